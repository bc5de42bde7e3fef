#pragma once

#include <optional>
#include <string>

#include "gravac/util/layout.h"
#include "simulate/step.h"
#include "train/recorded.h"

namespace gravac::apps {

// What to predict steps of, as users name it: a recorded run, or a model and its computing time.
struct JobOptions {
  std::string run;                // folder of `gravac train --out`
  std::string model, parameters;  // one of the two: a name, or a number such as 44.5M
  std::string compute;            // "60ms": forward and backward of a step
  std::string compress;           // "0.5ns": to compress, or to decode, one entry
  bool overlap = false;
  std::string engine;  // more options: "values=fp16 floor=0.8"
};

struct Work {
  simulate::Job job;
  std::optional<train::Recorded> recorded;
};

// Throws Error of one line if the options are wrong.
Work make_work(const JobOptions& options);

// How long a step of the recorded run should have taken, by the model: the mean over its steps, each at its
// own factor and by its own route. Nothing if it used several compressors, since a step does not say which it
// used.
std::optional<double> predicted_seconds(const Work& work, const simulate::Cluster& cluster);

// How long a message takes beyond what the link needs for it: the time of the library that sends it, and of
// processes that wait for a core. It is what has to be added to the latency for steps to take as long as
// those that were recorded on this cluster; 0 if they took less, or if the run used several compressors.
double message_seconds(const Work& work, const simulate::Cluster& cluster);

// "44.5M", "300k" or "1e6". Throws Error.
std::size_t parameters_from_string(const std::string& text);

}  // namespace gravac::apps
