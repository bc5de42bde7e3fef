#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "apps/report/page_data.h"
#include "apps/report/run_folder.h"

namespace gravac::report {

// The figures of one run that the table and the conclusion are made of.
struct RunTotals {
  double steps = 0, seconds = 0;
  double bytes_sent = 0, dense_bytes = 0;  // of worker 0
  double mean_factor = 1;                  // geometric
  bool dense = true;                       // every step was
  std::string metric;                      // of the last evaluation; empty: there was none
  double value = 0;                        // of that metric
  double final_loss = 0;                   // training loss, mean of the last twentieth; NaN if unknown

  double seconds_per_step() const { return steps > 0 ? seconds / steps : 0; }
  double fewer_bytes() const { return bytes_sent > 0 ? dense_bytes / bytes_sent : 1; }
};
RunTotals totals_of(const RunHistory& run);

// One row for each run.
PageTable table_of(const std::vector<RunHistory>& runs);

// One sentence: which run was the fastest, by how much, and what that cost.
std::string conclusion_of(const std::vector<RunHistory>& runs);

// The first run that sent dense gradients throughout, with which the others are compared.
std::optional<std::size_t> dense_run(const std::vector<RunTotals>& totals);

}  // namespace gravac::report
