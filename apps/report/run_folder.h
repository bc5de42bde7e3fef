#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// The files that `gravac train --out` and the Python package write (docs/training.md), read for a report.

namespace gravac::report {

inline constexpr const char* kPhases[] = {"compute", "compress", "agree", "exchange", "decode"};
inline constexpr std::size_t kPhaseCount = 5;

// A line of steps.jsonl. Numbers that the line does not have are NaN.
struct StepRecord {
  std::uint64_t step = 0;
  double seconds = 0;  // of training, up to the end of this step
  double loss = 0;
  double factor = 1;
  double gain_error_fed = 1, gain_gradient = 1, gain_released = 1;  // at the factor that was sent
  double entered_energy = 0, dense_energy = 0;                      // before compression, over all workers
  double residual_norm = 0;
  double phase_seconds[kPhaseCount] = {};
  double bytes_sent = 0, dense_bytes = 0;
  double effective_samples_per_second = 0;  // of the step before

  double sent_energy() const { return dense_energy * gain_error_fed; }
};

// A line of evals.jsonl.
struct EvaluationRecord {
  std::uint64_t step = 0;
  double seconds = 0;
  std::string metric;  // "top1", "ppl" or "loss"
  double value = 0;
};

enum class RunState { finished, unfinished, unknown };  // unknown: written by a program that never says

struct RunHistory {
  std::string name;                             // the last part of the folder's path
  std::map<std::string, std::string> settings;  // config.toml
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  RunState state = RunState::unknown;
  std::string target;         // "top1=0.8", if the run had one
  double target_seconds = 0;  // when it was reached; NaN: not yet
  // Complete lines that are not JSON objects with a step, or a step out of order; they are left out.
  std::size_t unreadable_steps = 0, unreadable_evaluations = 0;

  std::string setting(const std::string& key, const std::string& otherwise = "") const;
};

// A file of lines that another process may still be writing to. Called from one thread.
class LineReader {
 public:
  explicit LineReader(std::string path) : path_(std::move(path)) {}
  // Calls `take` for every complete line that was added since the last call; a last line without its newline
  // waits for the next call. Returns false if the file no longer holds the last line it gave, or as soon as
  // `take` does: rewind() then starts over. A file that does not exist has no lines. Throws Error for what
  // open_run_file() refuses, and for a line longer than kMostLineBytes.
  bool next(const std::function<bool(const std::string& line)>& take);
  void rewind() {
    offset_ = 0;
    last_.clear();
  }

 private:
  std::string path_;
  std::uint64_t offset_ = 0;  // behind the last line
  std::string last_;          // with its newline; empty before the first
};

// The folder of one run, which may still be going on.
class RunFolder {
 public:
  // Throws Error if `path` holds no steps.jsonl, or files that a run does not write.
  explicit RunFolder(std::string path);
  // Reads what was added since the last call. Throws Error.
  void update();
  const RunHistory& run() const { return run_; }

 private:
  void read_settings();
  void read_steps();
  bool add_step(const std::string& line);
  void read_evaluations();
  void read_summary();

  std::string path_;
  LineReader steps_, evaluations_;
  RunHistory run_;
};

// Reads a line of steps.jsonl or evals.jsonl. Returns false if it is not a JSON object with a step.
bool parse_step(std::string_view line, StepRecord& step);
bool parse_evaluation(std::string_view line, EvaluationRecord& evaluation);

}  // namespace gravac::report
