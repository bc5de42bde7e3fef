#pragma once

#include <optional>
#include <string>

#include "apps/compare/comparison.h"

namespace gravac::compare {

// The result of the run in a folder, from its summary.json and evals.jsonl. Nothing if it has not ended yet.
std::optional<Result> read_result(const std::string& folder);

// The last line that a file holds, without blanks around it; empty if there is none.
std::string last_line(const std::string& path);

}  // namespace gravac::compare
