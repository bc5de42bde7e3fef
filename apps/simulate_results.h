#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/job.h"
#include "simulate/advice.h"
#include "simulate/cluster.h"

namespace gravac::apps {

// A line of the table of `gravac simulate`: a setting of a compressor, or a policy.
struct PredictionRow {
  std::string name;
  bool policy = false;
  std::string sends;  // of policies: what most steps are sent with; of others: the route
  double factor = 1, seconds = 0, bytes = 0, rate = 1;
};

// Latencies have message_seconds in them: what a message took in the recorded run beyond what its link
// needed.
struct Clusters {
  simulate::Cluster asked, recorded;  // the second is that of the recorded run, if there is one
  double message_seconds = 0;
};

// Everything that `gravac simulate` predicts: for one cluster, and a few rows for other numbers of workers.
struct Results {
  Clusters clusters;
  simulate::Advice advice;
  std::vector<PredictionRow> rows;
  struct Scale {
    std::size_t workers;
    std::vector<PredictionRow> rows;  // the same ones for all numbers of workers
  };
  std::vector<Scale> scaling;
};
Results predict(const Work& work, const Clusters& clusters);

// The share of a step that is computing.
double efficiency(const Work& work, const PredictionRow& row);
// Seconds until the target of the recorded run, or its end, is reached. REQUIRES: a recorded run.
double target_seconds(const Work& work, const PredictionRow& row);

// What tables show, and the sentences around them. check() compares the model with the recorded run; it is
// empty without one.
std::vector<std::string> head(const Work& work);
std::vector<std::string> cells(const Work& work, const Results& results, const PredictionRow& row);
std::string intro(const Work& work, const Results& results);
std::string check(const Work& work, const Results& results);

// Writes a page with scaling curves. Throws Error if the file cannot be written.
void write_page(const Work& work, const Results& results, const std::string& path);

}  // namespace gravac::apps
