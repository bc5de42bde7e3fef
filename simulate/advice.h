#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulate/cluster.h"
#include "simulate/step.h"
#include "simulate/text.h"

namespace gravac::simulate {

// A compressor at a factor. Several compressors that send the same, and whose steps are worth the same, are
// one setting.
struct CompressorSetting {
  std::vector<std::string> compressors;  // none: dense
  double factor = 1;
  std::string amount;  // in the compressors' own words: "10x", "4 bits", "rank 4"; may be empty

  std::string name() const;  // "dense", "topk, dgc 10x"
};

struct Prediction {
  CompressorSetting setting;
  PredictedStep step;
  double progress_per_second() const {
    return step.least_rate / step.seconds();
  }  // as policy progress counts it
};

// Dense steps, and those of every compressor at a few factors, in the order of the table of compressors.
// Those that the job's options do not suit are left out, and so is powersgd if the layout has no matrices.
std::vector<Prediction> predict_all(const Job& job, const Cluster& cluster);

// What to do on a cluster.
struct Advice {
  PredictedStep dense;
  std::optional<double> break_even;  // lowest factor of Top-k whose steps are shorter than dense ones
  std::optional<double>
      compute_bound;  // lowest factor of Top-k whose steps take at most a tenth more than computing
  Prediction
      best;  // of the settings whose steps are worth at least 0.9 dense ones, the one with the most progress
  std::string sentence;
};
Advice advise(const Job& job, const Cluster& cluster);

}  // namespace gravac::simulate
