#include "gravac/step.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gravac/buffer.h"
#include "gravac/compressor.h"
#include "gravac/kernels.h"
#include "gravac/require.h"
#include "gravac/survey.h"

namespace gravac {

std::string_view to_string(Granularity granularity) {
  return granularity == Granularity::global ? "global" : "layer";
}

Granularity granularity_from_string(std::string_view name) {
  if (name == "global") return Granularity::global;
  require(name == "layer", "granularity: no such granularity '", name, "'; known: global, layer");
  return Granularity::layer;
}

namespace {

std::vector<Range> ranges_of(const Layout& layout, Granularity granularity) {
  if (granularity == Granularity::global) return {{0, layout.entries()}};
  std::vector<Range> ranges;
  for (const Segment& segment : layout.segments()) ranges.push_back({segment.begin, segment.size});
  return ranges;
}

}  // namespace

struct Step::State {
  StepOptions options;
  std::size_t entries;
  std::vector<Range> ranges;
  Survey survey;
  Buffer<float> residual{Pages::huge};
  bool residual_zero = true;  // the residual is 0, whatever the buffer holds
  std::uint64_t steps = 0;

  // The step that is open.
  bool open = false;
  bool was_zero = true;  // residual_zero before it
  std::span<const float> gradient;
  std::vector<Survey::Keep> keep;  // of the level expected to be taken, then of the other
  Send first = Send::candidate;    // which level comes first

  State(const Layout& layout, const StepOptions& given)
      : options(given),
        entries(layout.entries()),
        ranges(ranges_of(layout, given.granularity)),
        survey(ranges, make_compressor(given.compressor), given.threads) {
    if (options.feedback) residual.reserve(std::max<std::size_t>(entries, 1));
  }

  std::span<float> values() { return {residual.data(), options.feedback ? entries : 0}; }

  void require_size(std::size_t size) const {
    require(size == entries, "step: gradient of ", size, " entries found, ", entries, " expected");
  }

  void close() {
    require(open, "step: nothing to take; call measure first");
    open = false;
  }

  // Writes down how many entries to keep of each range.
  void plan_keep(const Plan& plan, Send expected) {
    first = expected == Send::minimum ? Send::minimum : Send::candidate;
    const double factors[2] = {first == Send::minimum ? plan.minimum : plan.candidate,
                               first == Send::minimum ? plan.candidate : plan.minimum};
    keep.resize(factors[0] == factors[1] ? 1 : 2);
    for (std::size_t level = 0; level < keep.size(); ++level) {
      keep[level].clear();
      for (const Range& range : ranges) keep[level].push_back(keep_count(range.size, factors[level]));
    }
  }

  int level_of(Send send) const { return send == first || keep.size() == 1 ? 0 : 1; }
};

Step::Step(const Layout& layout, const StepOptions& options)
    : state_(std::make_unique<State>(layout, options)) {}
Step::~Step() = default;

Measurement Step::measure(std::span<const float> gradient, const Plan& plan, Send expected) {
  State& s = *state_;
  s.require_size(gradient.size());
  require(!s.open, "step: the last one is still open; take, take_dense or discard it");
  keep_count(0, plan.minimum);
  keep_count(0, plan.candidate);
  require(plan.candidate >= plan.minimum, "plan: candidate ", plan.candidate, " is below minimum ",
          plan.minimum);
  s.plan_keep(plan, expected);
  s.gradient = gradient;
  s.was_zero = s.residual_zero;

  const Input input{.gradient = gradient.data(),
                    .residual = s.options.feedback ? s.residual.data() : nullptr,
                    .residual_zero = s.residual_zero,
                    .draw = {s.options.seed, s.steps, 0}};
  const Survey::Found found = s.survey.run(input, s.keep);
  ++s.steps;
  s.open = true;
  s.residual_zero = false;
  if (!found.finite) {
    discard();
    return {.energy = {found.entered, found.dense, 0, 0}, .finite = false};
  }
  const auto minimum = s.level_of(Send::minimum), candidate = s.level_of(Send::candidate);
  // Sums in different orders differ in their last bits; parts are no larger than their whole.
  const double minimum_energy = std::min(found.energy[minimum], found.dense);
  const double candidate_energy = std::min(found.energy[candidate], minimum_energy);
  return {.energy = {found.entered, found.dense, minimum_energy, candidate_energy},
          .minimum_kept = found.kept[minimum],
          .candidate_kept = found.kept[candidate]};
}

SparseView Step::take(Send level) {
  require(level != Send::dense, "step: take_dense takes all");
  state_->close();
  return state_->survey.take(state_->level_of(level));
}

void Step::take_dense(std::span<float> out) {
  State& s = *state_;
  s.require_size(out.size());
  s.close();
  s.survey.put_back();
  const std::span<const float> all = s.options.feedback ? s.values() : s.gradient;
  std::copy(all.begin(), all.end(), out.begin());
  s.residual_zero = true;
}

void Step::discard() {
  State& s = *state_;
  s.close();
  s.survey.put_back();
  if (s.options.feedback && !s.was_zero) s.survey.undo();
  s.residual_zero = s.was_zero;
}

Measurement Step::pass_dense(std::span<float> gradient) {
  State& s = *state_;
  s.require_size(gradient.size());
  require(!s.open, "step: the last one is still open; take, take_dense or discard it");
  ++s.steps;
  Measurement found;
  found.energy.entered = energy(gradient);
  found.energy.dense = found.energy.entered;
  found.finite = std::isfinite(found.energy.entered);
  if (found.finite && s.options.feedback && !s.residual_zero) {
    add_into(gradient, s.values());
    found.energy.dense = energy(gradient);
    s.residual_zero = true;
  }
  found.energy.minimum = found.energy.candidate = found.energy.dense;
  found.minimum_kept = found.candidate_kept = s.entries;
  return found;
}

std::span<float> Step::residual() {
  State& s = *state_;
  require(!s.open, "step: the residual is in use; take, take_dense or discard first");
  if (s.residual_zero) std::fill(s.values().begin(), s.values().end(), 0.0f);
  s.residual_zero = false;
  return s.values();
}

std::uint64_t Step::steps() const {
  return state_->steps;
}

void Step::restore(std::uint64_t steps, std::span<const float> values) {
  const std::span<float> residual = this->residual();
  require(values.size() == residual.size(), "step: residual of ", values.size(), " entries found, ",
          residual.size(), " expected");
  require(std::isfinite(energy(values)), "step: the residual to restore holds unusable numbers");
  std::copy(values.begin(), values.end(), residual.begin());
  state_->steps = steps;
}

}  // namespace gravac
