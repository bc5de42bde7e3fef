#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "gravac/codec/options.h"
#include "gravac/codec/payload_model.h"
#include "gravac/comm/route.h"
#include "gravac/util/layout.h"
#include "gravac/util/options.h"
#include "simulate/cluster.h"
#include "simulate/gain_law.h"

namespace gravac::simulate {

// What is trained, and how long a worker's own part of a step takes.
struct Job {
  std::string name;  // of the model, for people
  Layout layout;
  double compute_seconds = 0;                  // forward and backward
  double compress_seconds_per_entry = 0.5e-9;  // of the gradient, in compressed steps
  double decode_seconds_per_entry = 0.5e-9;    // of the payloads that a worker receives
  bool overlap = false;  // exchange parts of the gradient while backward computes the others
  Options engine = {{"optimizer", "sgd"}};  // options of the engine (gravac/config.h)
  GainLaw gains;
};

// A step, as it would be. Seconds add up to seconds().
struct PredictedStep {
  double compute = 0, compress = 0, agree = 0, exchange = 0, decode = 0;
  double hidden = 0;  // of compressing, exchanging and decoding: behind backward
  double seconds() const { return compute + compress + agree + exchange + decode - hidden; }

  Route route = Route::dense;
  double factor = 1;      // times fewer numbers than dense
  double bytes = 0;       // through the link of a node, in one direction
  double rate = 1;        // how many dense steps it is worth
  double least_rate = 1;  // the same on models that compression harms most
};

// A plain all-reduce of all entries, as DDP does it.
PredictedStep dense_step(const Job& job, const Cluster& cluster);

// Predicts steps with one compressor. What it sends comes from the models of the engine itself (PayloadModel,
// Volume), so the bytes are those that the engine would send.
class CompressedSteps {
 public:
  // `values` is what a low rank sends, if that is not fp32. Throws Error if there is no such compressor, or
  // if the job's options do not suit it.
  CompressedSteps(const Job& job, const Cluster& cluster, const std::string& compressor,
                  std::optional<Values> values = {});

  // The step at a factor, by the quickest route. A compressor cannot send at every factor: Step::factor is
  // the real one.
  PredictedStep at(double factor) const;
  PredictedStep by_route(Route route, double factor) const;

 private:
  bool one_round(double numbers) const;
  double agree_seconds_of_step() const;

  Job job_;
  Cluster cluster_;
  EngineOptions options_;
  PayloadModel payloads_;
  bool sums_first_;  // it adds up factors before ranks agree, and so compares their state before that, too
};

// Backward hides what is exchanged meanwhile: half of computing lies between the first ready bucket and the
// last, if the gradient travels in quarters, as with `gravac train --overlap`.
inline constexpr double kBuckets = 4, kHideableShare = 0.5;
inline double buckets_of(const Job& job) {
  return job.overlap ? kBuckets : 1;
}

}  // namespace gravac::simulate
