#include "train/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

constexpr std::size_t kRanks[] = {1, 2, 4, 7};
constexpr std::optional<double> kSkews[] = {std::nullopt, 0.01, 0.5, 100.0};

// Ten labels, not equally frequent.
std::vector<std::int64_t> some_labels(std::size_t samples) {
  std::vector<std::int64_t> labels;
  for (std::size_t i = 0; i < samples; ++i) labels.push_back(static_cast<std::int64_t>(i % 13 % 10));
  return labels;
}

using Samples = std::vector<std::size_t>;

Samples batch_of(const Sampler& sampler, std::uint64_t step, std::size_t size) {
  Samples out;
  sampler.batch(step, size, out);
  return out;
}

// All samples that a rank trains on in an epoch.
Samples epoch_of(const Sampler& sampler, std::uint64_t epoch, std::size_t size) {
  Samples all;
  const std::size_t steps = sampler.steps_per_epoch(size);
  for (std::uint64_t step = 0; step < steps; ++step) {
    const Samples batch = batch_of(sampler, epoch * steps + step, size);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Sampler, ShowsEverySampleOnceInAnEpochOverAllRanks) {
  for (const std::size_t ranks : kRanks) {
    for (const auto& skew : kSkews) {
      const std::size_t samples = 30 * ranks;
      const auto labels = some_labels(samples);
      for (std::uint64_t epoch : {0, 1, 5}) {
        Samples seen;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const Samples mine = epoch_of(Sampler(samples, labels, rank, ranks, 3, skew), epoch, 5);
          seen.insert(seen.end(), mine.begin(), mine.end());
        }
        std::ranges::sort(seen);
        ASSERT_EQ(seen.size(), samples);
        for (std::size_t i = 0; i < samples; ++i) ASSERT_EQ(seen[i], i);
      }
    }
  }
}

TEST(Sampler, ShowsNoSampleTwiceWhenBatchesDoNotComeOutEven) {
  for (const std::size_t ranks : kRanks) {
    for (const auto& skew : kSkews) {
      const auto labels = some_labels(101);
      std::set<std::size_t> seen;
      std::size_t count = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Sampler sampler(101, labels, rank, ranks, 3, skew);
        EXPECT_EQ(sampler.steps_per_epoch(4), 101 / (4 * ranks));
        const Samples mine = epoch_of(sampler, 2, 4);
        count += mine.size();
        seen.insert(mine.begin(), mine.end());
      }
      EXPECT_EQ(seen.size(), count);
      EXPECT_LT(*seen.rbegin(), 101u);
    }
  }
}

TEST(Sampler, IsAFunctionOfItsNumbersInAnyOrder) {
  const auto labels = some_labels(200);
  for (const auto& skew : kSkews) {
    const Sampler forward(200, labels, 1, 4, 9, skew), backward(200, labels, 1, 4, 9, skew);
    std::vector<Samples> batches;
    for (std::uint64_t step = 0; step < 40; ++step) batches.push_back(batch_of(forward, step, 6));
    for (std::uint64_t step = 40; step-- > 0;) EXPECT_EQ(batch_of(backward, step, 6), batches[step]);
    EXPECT_NE(batch_of(Sampler(200, labels, 1, 4, 10, skew), 0, 6), batches[0]) << "another seed";
    EXPECT_NE(batch_of(Sampler(200, labels, 2, 4, 9, skew), 0, 6), batches[0]) << "another rank";
  }
}

TEST(Sampler, ShufflesAnewEachEpoch) {
  const auto labels = some_labels(200);
  for (const auto& skew : kSkews) {
    const Sampler sampler(200, labels, 1, 2, 9, skew);
    EXPECT_NE(epoch_of(sampler, 0, 10), epoch_of(sampler, 1, 10));
  }
}

TEST(Sampler, ShowsTheSameSamplesAtAStepWhateverTheNumberOfRanks) {
  std::vector<Samples> steps;
  for (const std::size_t ranks : {1, 2, 4, 8}) {
    Samples together;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Samples mine = batch_of(Sampler(500, {}, rank, ranks, 5), 17, 16 / ranks);
      together.insert(together.end(), mine.begin(), mine.end());
    }
    steps.push_back(together);
    EXPECT_EQ(together, steps[0]);
  }
}

TEST(Sampler, LeavesSkewedSamplesWithTheirRank) {
  const auto labels = some_labels(400);
  std::vector<std::set<std::size_t>> shards(4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const Sampler sampler(400, labels, rank, 4, 5, 0.1);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      const Samples mine = epoch_of(sampler, epoch, 10);
      shards[rank].insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(shards[rank].size(), 100u);
    for (std::size_t other = 0; other < rank; ++other)
      for (const std::size_t sample : shards[rank]) EXPECT_FALSE(shards[other].contains(sample));
  }
}

// How far the label frequencies of a rank are from those of all samples: the total variation distance,
// averaged over ranks.
double skew_of(double alpha, std::uint64_t seed) {
  constexpr std::size_t kSamples = 2600, kCount = 4;
  const auto labels = some_labels(kSamples);
  std::vector<double> whole(10);
  for (const auto label : labels) whole[static_cast<std::size_t>(label)] += 1.0 / kSamples;
  double total = 0;
  for (std::size_t rank = 0; rank < kCount; ++rank) {
    auto left = whole;
    const Samples mine = epoch_of(Sampler(kSamples, labels, rank, kCount, seed, alpha), 0, 10);
    for (const std::size_t sample : mine)
      left[static_cast<std::size_t>(labels[sample])] -= 1.0 / static_cast<double>(mine.size());
    for (const double difference : left) total += std::abs(difference) / 2 / kCount;
  }
  return total;
}

TEST(Sampler, SkewsTheMoreTheSmallerAlphaIs) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const double extreme = skew_of(0.001, seed), strong = skew_of(0.1, seed), mild = skew_of(2, seed),
                 none = skew_of(1e6, seed);
    EXPECT_GT(extreme, 0.4);  // cannot be near 1: a quarter of all samples is at least two or three labels
    EXPECT_GT(strong, 0.35);
    EXPECT_GT(strong, 1.5 * mild);
    EXPECT_GT(mild, 2 * none);
    EXPECT_LT(none, 0.06);
  }
}

TEST(Sampler, SaysWhatItNeeds) {
  const auto labels = some_labels(100);
  EXPECT_EQ(message_of([&] { Sampler(100, labels, 0, 4, 1).steps_per_epoch(32); }),
            "sampler: 100 samples are too few for a batch of 32 on each of 4 ranks");
  EXPECT_EQ(message_of([&] { Sampler(0, {}, 0, 1, 1).steps_per_epoch(1); }),
            "sampler: 0 samples are too few for a batch of 1 on each of 1 ranks");
  EXPECT_EQ(message_of([&] { Sampler(100, labels, 0, 4, 1).steps_per_epoch(0); }),
            "sampler: batch must be at least 1 sample, got 0");
  EXPECT_EQ(message_of([&] { Sampler(100, {}, 0, 4, 1, 0.5); }),
            "sampler: a label skew needs a label for each of 100 samples, got 0");
  EXPECT_EQ(message_of([&] { Sampler(100, labels, 0, 4, 1, 0.0); }),
            "sampler: alpha must be finite and above 0, got 0");
  EXPECT_EQ(message_of([&] { Sampler(100, labels, 4, 4, 1); }),
            "sampler: rank 4 is out of range for 4 ranks");
}

}  // namespace
}  // namespace gravac::train
