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

// The options of `gravac train`, checked. option_table.cc has their names, defaults and help.
struct TrainOptions {
  std::string model = "resnet20", data = "images", data_dir;

  std::size_t workers = 0;       // processes to start on this machine; 0: --workers was not given
  std::string backend = "gloo";  // gloo | mpi
  // For gravac::make_setup(): which optimizer it is (sgd or adam), and values that differ from its defaults.
  gravac::Options engine = {{"optimizer", "sgd"}, {"start-steps", "60"}};
  bool overlap = false;  // send buckets while backward still runs
  // Kilobytes per bucket. 0: with overlap a quarter of the gradient; without, no buckets.
  std::size_t bucket = 0;

  std::size_t batch = 32;         // samples per worker and step
  std::string optimizer = "sgd";  // sgd | adam | adamw
  double lr = 0.1;
  // With memory=momentum the engine gets these three too, and the optimizer must not apply them again.
  double momentum = 0.9, weight_decay = 5e-4, clip = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // of adam and adamw
  std::string schedule = "cosine";                // constant | step | cosine
  std::size_t warmup = 0;                         // steps of linear warm-up
  std::vector<double> decay_at = {0.5, 0.75};     // schedule step: shares of the run at which ...
  double decay_by = 0.1;                          // ... the learning rate is multiplied by this
  bool schedule_by_effective = false;             // the schedule counts effective steps

  // The length of the run. At most one of the two is given; if none is: 1 epoch.
  std::optional<std::size_t> steps;
  std::optional<double> epochs;
  // Training stops when an evaluation reaches this value.
  struct Until {
    std::string metric;  // top1 | top5 | ppl
    double value = 0;
  };
  std::optional<Until> until;
  std::size_t eval_every = 0;  // steps; 0: once per epoch and at the end

  std::size_t window_tokens = 35;  // length of a sample of text
  bool augment = true;
  std::optional<double> skew;  // alpha of the Dirichlet label skew between the workers' samples

  std::uint64_t seed = 0;
  bool deterministic = false;  // equal seeds end with equal bits: no clock decides anything
  double timeout = 60;         // seconds after which an exchange fails
  std::optional<Link> link;    // simulated network between real workers
  // A simulated cluster: all workers are threads of this process, and time is virtual.
  struct Emulate {
    std::size_t workers = 1;
    Link link;
    double compute_seconds = 0;             // forward and backward of a step
    double compress_seconds_per_entry = 0;  // time to compress one entry of the gradient
  };
  std::optional<Emulate> emulate;

  std::size_t checkpoint_every = 0;  // steps; 0: at the end only
  enum class Start { anew, resume, resume_or_begin };
  Start start = Start::anew;  // --resume: from the newest checkpoint; or-begin: anew if there is none
  std::string out;
  bool json = false;
  unsigned threads = 0;   // 0: this worker's share of the cores
  std::string interface;  // network interface for Gloo; empty: see GlooOptions

  // All of the above as a TOML file, from which --config reads the same options.
  std::string config;
  // The options that must be equal on all workers, for the handshake. Those of the engine are not
  // among them: the engine compares its own.
  std::vector<std::pair<std::string, std::string>> facts;
  // The options with which a run must be resumed as it was begun, those not given at their defaults. Here,
  // too, the engine compares its own.
  std::vector<std::pair<std::string, std::string>> fixed;

  // Sentences for the user, about options that are allowed but do harm.
  std::vector<std::string> warnings;

  // Whether the engine, not the optimizer, applies momentum, weight decay and clipping.
  bool momentum_memory() const;
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

// Checks every value by itself, the values against each other, and that the engine accepts its
// options. Throws Error of one line that says what was found and what is allowed.
TrainOptions train_options(const Settings& settings, const Catalog& catalog);

// "60ms" or "0.5ns" in seconds. Throws Error, which names `source`, the option with this value.
double seconds_from_string(const std::string& text, const std::string& source);

}  // namespace gravac::train
