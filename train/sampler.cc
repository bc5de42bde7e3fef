#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "gravac/util/require.h"
#include "train/stream.h"

namespace gravac::train {

namespace {

// Keys that keep these random numbers apart from others of the same seed: "skew" and "order" in ASCII.
constexpr std::uint64_t kSkew = 0x736b6577, kOrder = 0x6f72646572;

void shuffle_all(std::vector<std::uint32_t>& values, Stream& random) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[random.below(left)]);
}

// Draws from the gamma distribution with shape alpha, by Marsaglia and Tsang (2000), and returns the
// logarithm. The number itself may be too small for a double: at alpha 0.001, half are below 1e-300.
// Gamma draws of several labels, divided by their sum, would be a Dirichlet draw; choose() normalises.
double log_gamma_draw(double alpha, Stream& random) {
  const double d = alpha + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal(), v = std::pow(1 + c * x, 3);
    const double u = random.uniform();
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + std::log(random.uniform()) / alpha;
  }
}

// The samples of one label that no rank has taken yet, and each rank's preference for the label.
struct Pile {
  std::vector<std::uint32_t> samples;
  std::vector<double> log_preference;  // by rank
};

std::vector<Pile> make_piles(std::span<const std::int64_t> labels, std::size_t ranks, double alpha,
                             Stream& random) {
  std::map<std::int64_t, Pile> by_label;
  for (std::size_t i = 0; i < labels.size(); ++i)
    by_label[labels[i]].samples.push_back(static_cast<std::uint32_t>(i));
  std::vector<Pile> piles;
  for (auto& [label, pile] : by_label) {
    shuffle_all(pile.samples, random);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      pile.log_preference.push_back(log_gamma_draw(alpha, random));
    }
    piles.push_back(std::move(pile));
  }
  return piles;
}

// Draws the pile from which a rank takes its next sample. The probability of a pile is proportional to
// the rank's preference times the number of samples left. Preferences are divided by the largest one
// before they leave the logarithm, so that they do not all become 0.
Pile& choose(std::vector<Pile>& piles, std::size_t rank, std::vector<double>& weights, Stream& random) {
  double most = -std::numeric_limits<double>::infinity(), total = 0;
  for (const Pile& pile : piles)
    if (!pile.samples.empty()) most = std::max(most, pile.log_preference[rank]);
  weights.clear();
  for (const Pile& pile : piles) {
    const auto left = static_cast<double>(pile.samples.size());
    weights.push_back(left == 0 ? 0 : left * std::exp(pile.log_preference[rank] - most));
    total += weights.back();
  }
  double chance = random.uniform() * total;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < piles.size(); ++i) {
    if (weights[i] == 0) continue;
    chosen = i;  // the last pile is chosen if rounding leaves a little of `chance`
    if ((chance -= weights[i]) < 0) break;
  }
  return piles[chosen];
}

// The samples that belong to `rank`. Every rank plays through the whole division, so that all ranks
// agree without exchanging anything.
std::vector<std::uint32_t> skewed_shard(std::span<const std::int64_t> labels, std::size_t rank,
                                        std::size_t ranks, std::uint64_t seed, double alpha) {
  Stream random({seed, 0, kSkew});
  std::vector<Pile> piles = make_piles(labels, ranks, alpha, random);
  std::vector<double> weights;
  std::vector<std::uint32_t> shard;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    Pile& pile = choose(piles, i % ranks, weights, random);
    if (i % ranks == rank) shard.push_back(pile.samples.back());
    pile.samples.pop_back();
  }
  return shard;
}

}  // namespace

Sampler::Sampler(std::size_t samples, std::span<const std::int64_t> labels, std::size_t rank,
                 std::size_t ranks, std::uint64_t seed, std::optional<double> alpha)
    : samples_(samples), rank_(rank), ranks_(ranks), seed_(seed), skewed_(alpha.has_value()) {
  require(rank < ranks, "sampler: rank ", rank, " is out of range for ", ranks, " ranks");
  require(samples <= std::numeric_limits<std::uint32_t>::max(),
          "sampler: expected fewer than 2^32 samples, got ", samples);
  if (!skewed_) {
    deck_.resize(samples);
    std::iota(deck_.begin(), deck_.end(), 0u);
    return;
  }
  require(std::isfinite(*alpha) && *alpha > 0, "sampler: alpha must be finite and above 0, got ", *alpha);
  require(labels.size() == samples, "sampler: a label skew needs a label for each of ", samples,
          " samples, got ", labels.size());
  deck_ = skewed_shard(labels, rank, ranks, seed, *alpha);
}

std::size_t Sampler::steps_per_epoch(std::size_t size) const {
  require(size > 0, "sampler: batch must be at least 1 sample, got 0");
  const std::size_t steps = samples_ / ranks_ / size;
  require(steps > 0, "sampler: ", samples_, " samples are too few for a batch of ", size, " on each of ",
          ranks_, " ranks");
  return steps;
}

void Sampler::batch(std::uint64_t step, std::size_t size, std::vector<std::size_t>& out) const {
  const std::size_t steps = steps_per_epoch(size);
  shuffle(step / steps);
  const auto place = static_cast<std::size_t>(step % steps);
  const std::size_t first = skewed_ ? place * size : (place * ranks_ + rank_) * size;
  const auto begin = order_.begin() + static_cast<std::ptrdiff_t>(first);
  out.assign(begin, begin + static_cast<std::ptrdiff_t>(size));
}

void Sampler::shuffle(std::uint64_t epoch) const {
  if (epoch_ == epoch) return;
  order_ = deck_;
  // All ranks shuffle all samples the same way; with a skew, each rank shuffles its own.
  Stream random({seed_, epoch, kOrder + (skewed_ ? 1 + rank_ : 0)});
  shuffle_all(order_, random);
  epoch_ = epoch;
}

}  // namespace gravac::train
