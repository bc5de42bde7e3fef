#include "gravac/codec/select/step.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "gravac/codec/select/selector.h"
#include "gravac/codec/select/survey.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {

namespace {

std::vector<Range> ranges_of(const Layout& layout, Granularity granularity) {
  if (granularity == Granularity::global) return {{0, layout.entries()}};
  std::vector<Range> ranges;
  for (const Segment& segment : layout.segments()) ranges.push_back({segment.begin, segment.size});
  return ranges;
}

}  // namespace

// A step is closed, then open (measure), then closed again (take, take_dense, discard). While it is open the
// residual's buffer holds gradient + residual, without the entries that the survey has collected.
struct Step::State {
  StepOptions options;
  std::size_t entries;
  std::vector<Range> segments;
  std::vector<Range> ranges;  // from which entries are chosen
  Survey survey;
  Memory residual;
  std::uint64_t steps = 0;

  // The step that is open, or was last.
  bool open = false;
  bool taken = false;    // closed by take(): discard() can still undo it
  bool was_zero = true;  // the residual was all zeros before this step
  std::span<const float> gradient;
  bool dense_only = false;  // opened by measure_dense(): no entries were chosen
  // What the survey should find. Index 0 is the level expected to be taken, index 1 the other one.
  std::size_t levels = 1;                // 1 if both factors are equal
  Send first = Send::candidate;          // the level at index 0
  std::vector<Survey::Keep> keep{2};     // how many entries of each range to keep,
  std::uint32_t thresholds[2] = {0, 0};  // or the magnitudes from which on entries are kept,
  std::size_t most[2] = {0, 0};          // and how many at most

  State(const Layout& layout, const StepOptions& given)
      : options(given),
        entries(layout.entries()),
        segments(ranges_of(layout, Granularity::layer)),
        ranges(ranges_of(layout, given.granularity)),
        survey(ranges, make_selector(given.compressor), workers_of(given)),
        residual("residual", given.feedback ? entries : 0) {}

  void begin(std::span<const float> given) {
    require(given.size() == entries, "step: expected a gradient of ", entries, " entries, got ",
            given.size());
    require(!open, "step: the last step is still open; take, take_dense or discard it");
    gradient = given;
    was_zero = residual.zero();
    taken = false;
  }

  void close() {
    require(open, "step: nothing to take; call measure first");
    open = false;
  }

  // Turns factors into the number of entries to keep of each range.
  void plan_keep(const Plan& plan, Send expected) {
    first = expected == Send::minimum ? Send::minimum : Send::candidate;
    const double factors[2] = {first == Send::minimum ? plan.minimum : plan.candidate,
                               first == Send::minimum ? plan.candidate : plan.minimum};
    levels = factors[0] == factors[1] ? 1 : 2;
    for (std::size_t level = 0; level < levels; ++level) {
      keep[level].clear();
      for (const Range& range : ranges) keep[level].push_back(keep_count(range.size, factors[level]));
    }
  }

  // The same for given thresholds.
  void plan_thresholds(const Thresholds& given, Send expected) {
    first = expected == Send::minimum ? Send::minimum : Send::candidate;
    const float values[2] = {first == Send::minimum ? given.minimum : given.candidate,
                             first == Send::minimum ? given.candidate : given.minimum};
    levels = values[0] == values[1] ? 1 : 2;
    const std::size_t caps[2] = {first == Send::minimum ? given.minimum_most : given.candidate_most,
                                 first == Send::minimum ? given.candidate_most : given.minimum_most};
    for (std::size_t level = 0; level < levels; ++level) {
      thresholds[level] = magnitude(values[level]);
      most[level] = caps[level];
    }
  }

  // Runs the survey for what plan_keep() or plan_thresholds() asked for.
  Measurement measure(bool by_thresholds = false) {
    const Input input{.gradient = gradient.data(),
                      .residual = options.feedback ? residual.buffer() : nullptr,
                      .residual_zero = residual.zero(),
                      .draw = {options.seed, steps, 0},
                      .numbers = options.numbers};
    open = true;
    dense_only = false;
    residual.written();  // the survey writes all of it
    const Survey::Found found =
        by_thresholds ? survey.run(input, std::span(thresholds).first(levels), std::span(most).first(levels))
                      : survey.run(input, std::span(keep).first(levels));
    if (!found.finite || !std::isfinite(found.dense)) {
      discard();
      return {.energy = {found.entered, found.dense, 0, 0}, .finite = false};
    }
    const auto minimum = level_of(Send::minimum), candidate = level_of(Send::candidate);
    // Policies rely on candidate <= minimum <= dense. Sums in different orders differ in their last bits, so
    // this has to be enforced.
    const double minimum_energy = std::min(found.energy[minimum], found.dense);
    const double candidate_energy = std::min(found.energy[candidate], minimum_energy);
    return {.energy = {found.entered, found.dense, minimum_energy, candidate_energy},
            .minimum_kept = found.kept[minimum],
            .candidate_kept = found.kept[candidate]};
  }

  // If the residual was all zeros before, marking it so is exact and free. If not, the gradient has to be
  // subtracted again, which costs a pass and rounding.
  void discard() {
    if (taken) {
      taken = false;
      open = true;
      --steps;
    }
    close();
    if (dense_only) return;
    survey.put_back();
    if (options.feedback && !was_zero) survey.undo();
    if (was_zero) residual.set_zero();
  }

  // The index of a level in the arrays above.
  int level_of(Send send) const { return send == first || levels == 1 ? 0 : 1; }
};

Step::Step(const Layout& layout, const StepOptions& options)
    : state_(std::make_unique<State>(layout, options)) {}
Step::~Step() = default;

Measurement Step::measure(std::span<const float> gradient, const Plan& plan, Send expected) {
  State& s = *state_;
  keep_count(0, plan.minimum);  // throws unless it is a factor
  keep_count(0, plan.candidate);
  require(plan.candidate >= plan.minimum, "plan: candidate ", plan.candidate, " is below minimum ",
          plan.minimum);
  s.begin(gradient);
  s.plan_keep(plan, expected);
  return s.measure();
}

Measurement Step::measure(std::span<const float> gradient, std::span<const double> factors) {
  State& s = *state_;
  require(s.options.granularity == Granularity::layer,
          "step: a factor for each segment needs granularity layer");
  require(factors.size() == s.ranges.size(), "step: expected ", s.ranges.size(), " factors, got ",
          factors.size());
  for (const double factor : factors) keep_count(0, factor);
  s.begin(gradient);
  s.levels = 1;
  s.keep[0].clear();
  for (std::size_t i = 0; i < factors.size(); ++i)
    s.keep[0].push_back(keep_count(s.ranges[i].size, factors[i]));
  return s.measure();
}

Measurement Step::measure_above(std::span<const float> gradient, const Thresholds& thresholds,
                                Send expected) {
  State& s = *state_;
  require(thresholds.candidate >= thresholds.minimum && thresholds.minimum >= 0,
          "step: thresholds must satisfy 0 <= minimum <= candidate, got minimum ", thresholds.minimum,
          " and candidate ", thresholds.candidate);
  require(s.survey.by_magnitude(), "step: compressor ", s.options.compressor,
          " does not choose by magnitude");
  s.begin(gradient);
  s.plan_thresholds(thresholds, expected);
  return s.measure(true);
}

bool Step::by_magnitude() const {
  return state_->survey.by_magnitude();
}

void Step::sample(std::span<const float> gradient, std::size_t stride, MagnitudeHistogram& histogram) const {
  State& s = *state_;
  const float* residual = s.options.feedback && !s.residual.zero() ? s.residual.buffer() : nullptr;
  // One cache line of 16 floats from each run of `stride` lines: reading single floats would cost a line
  // each. The line is drawn anew in each step, so that no entry stays unseen.
  constexpr std::size_t kLine = 16;
  const Random random({s.options.seed, s.steps, s.options.numbers.empty() ? 0 : s.options.numbers[0]});
  for (std::size_t run = 0; run * stride * kLine < gradient.size(); ++run) {
    const std::size_t line = run * stride + random.at(run) % stride;
    const std::size_t end = std::min((line + 1) * kLine, gradient.size());
    for (std::size_t i = line * kLine; i < end; ++i)
      histogram.add(gradient[i] + (residual ? residual[i] : 0.0f));
  }
}

// Reads the gradient and, if it is not zero, the residual. Writes nothing, so that discarding is exact and
// free.
Measurement Step::measure_dense(std::span<const float> gradient) {
  State& s = *state_;
  s.begin(gradient);
  const double entered = energy(gradient);
  const bool zero = !s.options.feedback || s.residual.zero();
  const double dense = zero ? entered : energy_of_sum(gradient, s.residual.values());
  if (!std::isfinite(entered) || !std::isfinite(dense)) {
    return {.energy = {entered, dense, 0, 0}, .finite = false};
  }
  s.open = s.dense_only = true;
  return {.energy = {entered, dense, dense, dense}, .minimum_kept = s.entries, .candidate_kept = s.entries};
}

Norms Step::norms() const {
  State& s = *state_;
  require(s.open, "step: there are no norms until a step is open; call measure first");
  const auto sum_of_norms = [](const std::vector<double>& energies) {
    double sum = 0;
    for (const double energy : energies) sum += std::sqrt(energy);
    return sum;
  };
  std::vector<double> entered, all;
  for (const Range& segment : s.segments) {
    const std::span<const float> gradient = s.gradient.subspan(segment.begin, segment.size);
    entered.push_back(energy(gradient));
    if (!s.dense_only || s.residual.zero()) continue;
    all.push_back(energy_of_sum(gradient, s.residual.values().subspan(segment.begin, segment.size)));
  }
  Norms norms{.entered = sum_of_norms(entered)};
  if (s.dense_only) {
    norms.minimum = norms.candidate = s.residual.zero() ? norms.entered : sum_of_norms(all);
    return norms;
  }
  norms.candidate = sum_of_norms(s.survey.energies(s.level_of(Send::candidate), s.segments));
  norms.minimum = s.levels == 1 ? norms.candidate
                                : sum_of_norms(s.survey.energies(s.level_of(Send::minimum), s.segments));
  return norms;
}

SparseView Step::take(Send level) {
  State& s = *state_;
  require(level != Send::dense && !(s.open && s.dense_only), "step: this step is dense; call take_dense");
  s.close();
  s.taken = true;
  ++s.steps;
  return s.survey.take(s.level_of(level));
}

void Step::take_dense(std::span<float> out) {
  State& s = *state_;
  require(out.size() == s.entries, "step: expected room for ", s.entries, " entries, got ", out.size());
  s.close();
  ++s.steps;
  if (!s.dense_only) s.survey.put_back();
  const bool summed = s.options.feedback && !s.dense_only;  // the buffer holds gradient + residual already
  const std::span<const float> source = summed ? std::span<const float>(s.residual.values()) : s.gradient;
  if (out.data() != source.data()) std::copy(source.begin(), source.end(), out.begin());
  if (s.dense_only && s.options.feedback && !s.residual.zero()) add_into(out, s.residual.values());
  s.residual.set_zero();
}

void Step::discard() {
  state_->discard();
}

void Step::skip() {
  ++state_->steps;
}

Memory& Step::residual() {
  require(!state_->open, "step: the residual is in use; take, take_dense or discard first");
  return state_->residual;
}

const Memory& Step::residual() const {
  return state_->residual;
}

StepState Step::state() const {
  return {state_->steps, state_->survey.spread()};
}

void Step::check(const StepState& state) {
  require(state.spread >= 1 && state.spread <= 16, "step: spread must be from 1 to 16, got ", state.spread);
}

void Step::restore(const StepState& state) {
  State& s = *state_;
  require(!s.open, "step: the residual is in use; take, take_dense or discard first");
  check(state);
  s.taken = false;
  s.steps = state.steps;
  s.survey.set_spread(state.spread);
}

}  // namespace gravac
