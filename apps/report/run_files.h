#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace gravac::report {

// What is read of a run's folder.
inline constexpr const char* kRunFiles[] = {"config.toml", "evals.jsonl", "steps.jsonl", "summary.json"};

inline constexpr std::uint64_t kMostLineFileBytes = std::uint64_t{4} << 30;  // steps.jsonl, evals.jsonl
inline constexpr std::uint64_t kMostSmallFileBytes = 1 << 20;                // config.toml, summary.json
inline constexpr std::uint64_t kMostLineBytes = 1 << 20;

// Opens a file of a run for reading; returns nothing if it does not exist. Throws Error, which names the
// path, if it cannot be read, is larger than `most_bytes`, or is not a regular file: a FIFO would wait for a
// writer.
std::optional<std::ifstream> open_run_file(const std::string& path, std::uint64_t most_bytes);

// Throws Error if writing a page to `out` would overwrite a file in the folder of a run, whatever path or
// link leads there, or would create a file that is read as part of the run. Pages (*.html) may be written
// again.
void check_out(const std::string& out, const std::string& run_folder);

}  // namespace gravac::report
