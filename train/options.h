#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gravac/comm/paced_comm.h"
#include "gravac/config.h"
#include "train/option_table.h"
#include "train/settings.h"

namespace gravac::train {

// What a training run is told to do; option_table.cc describes the options.
struct TrainOptions {
  std::string model = "resnet20", data = "images", data_dir;

  std::size_t workers = 0;       // processes to start here; 0: not given
  std::string backend = "gloo";  // gloo | mpi
  gravac::Options engine;        // for gravac::make_setup; only what differs from its defaults
  bool overlap = false;          // send buckets while backward still runs
  std::size_t bucket = 0;  // kilobytes of a bucket; 0: a quarter of the gradient, and none after backward

  std::size_t batch = 32;  // samples per worker and step
  // With memory=momentum the engine does momentum, weight decay and clipping, and the optimizer must not.
  double lr = 0.1, momentum = 0.9, weight_decay = 5e-4, clip = 0;
  bool nesterov = false;
  std::string schedule = "cosine";  // constant | step | cosine
  std::size_t warmup = 0;           // steps of linear warm-up
  std::vector<double> decay_at = {0.5, 0.75};
  double decay_by = 0.1;               // schedule step: at these shares of the run, times this
  bool schedule_by_effective = false;  // the schedule counts effective steps

  std::optional<std::size_t> steps;  // at most one of the two; neither: 1 epoch
  std::optional<double> epochs;
  struct Until {
    std::string metric;  // top1 | top5 | ppl
    double value = 0;
  };
  std::optional<Until> until;
  std::size_t eval_every = 0;  // steps; 0: once per epoch and at the end

  std::size_t window_tokens = 35;  // length of a sample of text
  bool augment = true;
  std::optional<double> skew;  // Dirichlet label skew between the workers' shares

  std::uint64_t seed = 0;
  double timeout = 60;  // seconds, of every exchange
  std::optional<Link> link;
  struct Emulate {
    std::size_t workers = 1;
    Link link;
    double compute_seconds = 0;             // forward and backward of a step
    double compress_seconds_per_entry = 0;  // of the gradient
  };
  std::optional<Emulate> emulate;

  std::size_t checkpoint_every = 0;  // steps; 0: at the end only
  bool resume = false;
  std::string out;
  bool json = false;
  unsigned threads = 0;   // 0: this worker's share of the cores
  std::string interface;  // network interface for Gloo; empty: the backend's choice

  // All of the above as TOML, complete: read as a file it gives the same options.
  std::string config;
  // Options that must be the same on all workers, which compare them before the first step.
  // Without the engine's options: the engine compares those.
  std::vector<std::pair<std::string, std::string>> facts;

  bool momentum_memory() const;  // the engine has momentum, weight decay and clipping
};

// What options need to know of a model or a data set.
struct Known {
  std::string name, description;
  bool text = false;         // reads or holds words or characters; else images
  bool needs_files = false;  // only with --data-dir
};
struct Catalog {
  std::vector<Known> models, data;
};

// Checks every value, that the values fit together, and that the engine accepts its own.
// Throws Error with one line that says what was found and what is allowed.
TrainOptions train_options(const Settings& settings, const Catalog& catalog);

}  // namespace gravac::train
