// AdaQS (Guo et al., "Accelerating Distributed Deep Learning By Adaptive Gradient Quantization", ICASSP 2020)
// chooses how many bits a quantiser spends on an entry by the ratio of mean to standard deviation of the
// gradient's entries: few bits at first, and more as the ratio falls.
//
// So much is published. We know the article from others that cite it, and they do not give its rule, so this
// one is our reading: whenever the smoothed ratio has fallen below `ratio` times what it was at the last
// change, the bits double.
//
// What differs: bits are expressed as a factor, 32 / bits, so that every compressor can be used with this
// policy. The ratio is that of the gradients of all ranks together, before anything is added to them or left
// out, so it does not depend on the factor.

#include <algorithm>
#include <cmath>

#include "gravac/policy/policies.h"
#include "gravac/policy/policy_state.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr double kFloatBits = 32;

// |mean| / standard deviation of all entries. 0 if there is no telling: for a gradient of zeros, and if
// entries scatter by no more than the rounding of energies, which have five digits.
double ratio_of(const Energy& energy) {
  double entries = 0, sum = 0;
  for (const Statistics& rank : energy.ranks) {
    entries += rank.entries;
    sum += rank.sum;
  }
  const double variance = entries * energy.entered - sum * sum;  // times the square of entries
  return variance > 1e-4 * sum * sum ? std::abs(sum) / std::sqrt(variance) : 0;
}

class AdaqsPolicy final : public Policy {
 public:
  explicit AdaqsPolicy(const AdaqsOptions& options) : options_(options), bits_(options.start) {
    require(options.start >= 1 && options.start <= options.cap && options.cap <= kFloatBits,
            "adaqs policy: bits must satisfy 1 <= start <= cap <= ", kFloatBits, ", got start ",
            options.start, " and cap ", options.cap);
    require(options.ratio > 0 && options.ratio < 1, "adaqs policy: ratio must be above 0 and below 1, got ",
            options.ratio);
    require(options.smoothing > 0 && options.smoothing <= 1,
            "adaqs policy: smoothing must be above 0 and at most 1, got ", options.smoothing);
  }

  std::string_view name() const override { return "adaqs"; }
  Needs needs() const override { return {.sum = true}; }

  std::optional<Plan> plan() const override {
    if (bits_ == kFloatBits) return std::nullopt;
    return Plan{kFloatBits / bits_, kFloatBits / bits_};
  }

  Send decide(const Energy& energy) override {
    if (!plan()) return Send::dense;
    look_at(ratio_of(energy));
    return Send::candidate;
  }

  void record(const Outcome&) override {}

  PolicyState save() const override {
    return {{"bits", {bits_}},
            {"average", {average_}},
            {"reference", {reference_}},
            {"seen", {static_cast<double>(seen_)}}};
  }
  void load(const PolicyState& state) override {
    const StateReader reader(name(), state);
    AdaqsPolicy loaded(options_);
    loaded.bits_ = reader.number("bits");
    require(loaded.bits_ >= options_.start && loaded.bits_ <= options_.cap,
            "adaqs policy: 'bits' in the state must be from ", options_.start, " to ", options_.cap, ", got ",
            loaded.bits_);
    loaded.average_ = reader.number("average");
    loaded.reference_ = reader.number("reference");
    loaded.seen_ = reader.index("seen", kManySteps);
    *this = loaded;
  }
  std::unique_ptr<Policy> clone() const override { return std::make_unique<AdaqsPolicy>(*this); }

 private:
  // A ratio of 0 says that there was no gradient in this step. The first samples are averaged equally, since
  // a moving average that begins with one noisy sample would remember it for long; the average of as many as
  // the moving one is long becomes the first reference.
  void look_at(double ratio) {
    if (ratio == 0) return;
    ++seen_;
    average_ += std::max(options_.smoothing, 1 / static_cast<double>(seen_)) * (ratio - average_);
    if (static_cast<double>(seen_) * options_.smoothing < 1) return;
    if (reference_ == 0) reference_ = average_;
    if (average_ >= options_.ratio * reference_) return;
    bits_ = std::min(2 * bits_, options_.cap);
    reference_ = average_;
  }

  AdaqsOptions options_;
  double bits_;
  double average_ = 0;    // of the ratios
  double reference_ = 0;  // what it was at the last change; 0: not known yet
  std::size_t seen_ = 0;  // ratios so far
};

using enum OptionInfo::Kind;

constexpr OptionInfo kOptions[] = {
    {kPolicyOptions, "start", number, "BITS", "2", "Bits for each entry at first: a factor of 32 / BITS", 1,
     32},
    {kPolicyOptions, "cap", number, "BITS", "8", "Highest number of bits; 32 is dense", 1, 32},
    {kPolicyOptions, "ratio", number, "R", "0.5",
     "Double the bits when mean / deviation of the gradient has fallen to R times its last value", 0, 1, true,
     true},
};
constexpr SharedOption kShared[] = {{"smoothing"}};

std::unique_ptr<Policy> from_options(const PolicyInput& input) {
  const OptionReader& options = input.options;
  return make_adaqs_policy({.start = options.number("start"),
                            .cap = options.number("cap"),
                            .ratio = options.number("ratio"),
                            .smoothing = options.number("smoothing", default_smoothing(input.ranks))});
}

}  // namespace

std::unique_ptr<Policy> make_adaqs_policy(const AdaqsOptions& options) {
  return std::make_unique<AdaqsPolicy>(options);
}

PolicyEntry adaqs_policy() {
  return {.make = from_options, .options = kOptions, .shared_options = kShared};
}

}  // namespace gravac
