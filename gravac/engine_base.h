#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "gravac/codec/codec.h"
#include "gravac/engine.h"
#include "gravac/memory/overshoot.h"
#include "gravac/round.h"

namespace gravac {

// What both engines share: buckets and their codecs, the round, state. An engine adds the order of events
// in a step, and perhaps a few numbers of its own to the state.
class EngineBase : public Engine {
 public:
  std::size_t buckets() const override { return parts_.size(); }
  void request_stop() override { round_.request_stop(); }
  void pause() override { ended_ = clock_.now(); }
  void rescale(float ratio) override;
  void learning_rates(std::span<const double> rates) override;
  void momentum(double memory, double optimizer) override;
  void learning_rate_dropped() override { round_.policy().learning_rate_dropped(); }
  Checkpoint save() override;
  void load(const Checkpoint& checkpoint) override;
  Policy& policy() override { return round_.policy(); }
  const CostModel& costs() const { return round_.costs(); }

 protected:
  EngineBase(const char* name, const Layout& layout, const std::vector<Bucket>& buckets, EngineSetup setup,
             Comm& comm, Clock& clock);

  // A bucket, and this step's gradient in it.
  struct Part {
    Bucket segments;
    std::size_t entries = 0;
    std::unique_ptr<Codec> codec;
    std::vector<double> factors;  // of its segments, if the policy has one for each
    bool is_ready = false;
    std::span<float> gradient;
    std::span<const float> weights;
    std::vector<float> raw;  // a copy of the gradient, if the engine overwrites it before the step is known
                             // to be good and the policy watches gradients
  };

  // Changes to the round's compressor, if that is another than before; what is kept goes over to it. Returns
  // whether it did. Before a step.
  bool use_compressor();
  // Compares the state of all ranks, unless they have proved that it is equal; before the exchanges of a
  // step. `again`: even then, because sums depend on what the policy says in this step; it must be equal on
  // all ranks.
  void prove_equal(bool again = false);
  bool proven() const { return proven_; }
  // Of what chooses collectives, beside the round.
  std::uint64_t engine_digest() const;
  // Takes note of a gradient.
  void accept(std::size_t bucket, std::span<float> gradient, std::span<const float> weights);
  // What to look for in a part.
  Request request_for(Part& part, Send expected);
  // A part's gradient of this step, which is good, for policies that watch gradients. Before close().
  void watch(const Part& part, std::span<const float> raw);
  // For policies that watch how steps overshoot: a mean that the caller may use, and change, before close().
  // All parts of a step, in their order, or none.
  void watch_mean_early(const Part& part);
  // The step is over: policies, codecs and the report are told.
  void close(const Agreed<Verdict>& verdict, const Agreed<Order>& order, const Traffic& traffic,
             double samples, double hideable, StepReport& report);

  // Of the engine's own state that chooses collectives; equal on all ranks.
  virtual std::uint64_t own_digest() const = 0;
  // Numbers of the engine's own, for checkpoints. check throws Error where restore could not take them;
  // restore does not fail, and is called once everything else has been loaded.
  virtual NamedNumbers own_numbers() const = 0;
  virtual void check_own(const NamedNumbers& numbers) const = 0;
  virtual void restore_own(const NamedNumbers& numbers) = 0;

  const char* name_;
  Layout layout_;
  EngineOptions options_;
  Comm& comm_;
  Clock& clock_;
  Round round_;
  std::vector<Part> parts_;
  double ended_ = 0;  // when the last step, or a pause after it, ended

 private:
  std::size_t compressor_ = 0;  // of the codecs, by number
  bool proven_ = false;         // all ranks' state was equal, and has not been loaded since
  Overshoot overshoot_;
  bool watched_early_ = false;  // this step's means, by watch_mean_early()
  std::vector<double> rates_;   // of each segment: the learning rate that its residual suits; 0: not known
  std::vector<double> told_;    // of each segment: its learning rate now; 0: not known
  std::vector<std::unique_ptr<Codec>> make_codecs(std::size_t compressor) const;
  template <class Visit>
  void each_segment(const Part& part, const Visit& visit) const;
  std::vector<float> gather_memory(std::size_t number);
  void add_mean(const Part& part);
  void age_rates(const Order& order);
  void watch_overshoot(StepReport& report);
};

}  // namespace gravac
