#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapters/torch_model.h"
#include "gravac/checkpoint.h"
#include "gravac/comm/comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/util/clock.h"
#include "train/data.h"
#include "train/models.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/sampler.h"
#include "train/schedule.h"
#include "train/turns.h"

namespace gravac::train {

// What a rank trains with. What must be the same on all ranks is compared at the start.
struct Surroundings {
  const Data& data;
  Comm& comm;   // for gradients; may be paced
  Comm& plain;  // for everything else: its time does not count
  Clock& clock;
  // Ranks that are threads of one process take turns to compute.
  Turns* turns = nullptr;
};

// One step, as the trainer sees it.
struct Stepped {
  StepReport report;
  double loss = 0;  // of this rank
  double learning_rate = 0;
};

// How good the model is on the test data, all ranks together.
struct Evaluation {
  std::uint64_t step = 0;  // how many steps the model had been trained
  double loss = 0, top1 = 0, top5 = 0, ppl = 0;
  bool text = false;

  std::string metric() const { return text ? "ppl" : "top1"; }
  double value(const std::string& metric) const;
  bool reaches(const TrainOptions::Until& until) const;
};

// What a run has cost so far, on this rank.
struct Costs {
  double seconds = 0;  // of training: evaluations and checkpoints do not count
  double bytes_sent = 0, entries_sent = 0, dense_bytes = 0, entries = 0;
  double compute_seconds = 0, compress_seconds = 0, agree_seconds = 0, exchange_seconds = 0,
         decode_seconds = 0;
  std::map<double, double> steps_per_factor;  // 1 is dense
};

// Trains a model on one of several ranks. The loop itself is the caller's.
class Trainer {
 public:
  Trainer(const TrainOptions& options, const Surroundings& around);
  ~Trainer();

  bool done() const;  // the steps that were asked for are over
  Stepped step();
  Evaluation evaluate();

  // Everything: weights, optimizer, buffers, memories, policy, position in the data, costs.
  Checkpoint save();
  // States of all ranks that saved, by rank: their number may be another than that of
  // the ranks now. Throws Error if they do not fit.
  void load(const std::vector<Checkpoint>& states);

  std::uint64_t steps() const { return steps_; }
  double effective_steps() const { return effective_; }
  std::uint64_t bad_steps() const { return bad_steps_; }
  // The last evaluation, perhaps before a resume; nothing if there was none.
  const std::optional<Evaluation>& last_evaluation() const { return last_evaluation_; }
  // How far the run has come, and how far it goes: in steps or effective steps.
  double position() const;
  double total() const { return total_; }
  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  const Costs& costs() const { return costs_; }
  std::size_t entries() const { return model_.layout().entries(); }
  // Tells all ranks that this one wants to stop: the report of the next step says so on all of them.
  void request_stop() { engine_->request_stop(); }
  // A hash of all weights.
  std::uint64_t digest();

 private:
  double compute(const Batch& batch);
  std::array<double, 4> evaluate_my_share();
  void make_engine();
  void segment_ready(std::size_t segment);
  void require_options(const Checkpoint& state) const;
  template <class Self, class Visit>
  static void each_number(Self& self, const Visit& visit);

  TrainOptions options_;
  Surroundings around_;
  std::shared_ptr<Model> module_;
  TorchModel model_;
  Sampler sampler_;
  Schedule schedule_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::size_t> bucket_of_;  // each segment's bucket
  struct Place {
    std::size_t begin, size;
  };
  std::vector<Place> places_;         // each bucket's entries
  std::vector<std::size_t> missing_;  // segments that each bucket still waits for
  bool draws_ = false;                // the model uses torch's random numbers
  std::size_t steps_per_epoch_ = 0;
  double total_ = 0;
  std::uint64_t steps_ = 0;
  double effective_ = 0;
  std::uint64_t bad_steps_ = 0;
  std::optional<Evaluation> last_evaluation_;
  std::size_t drops_ = 0;
  Costs costs_;
  std::vector<std::size_t> samples_;
};

}  // namespace gravac::train
