#pragma once

#include <string>
#include <vector>

#include "apps/compare/comparison.h"

namespace gravac::compare {

// The comparisons of all tasks as Markdown: for each task a table of results and one of what was sent. Of
// several tasks, those of which no run has ended are left out.
std::string to_markdown(const std::vector<Comparison>& comparisons);

// All numbers as JSON. Keys are stable: add, never rename.
std::string to_json(const std::vector<Comparison>& comparisons);

}  // namespace gravac::compare
