// What engines return for generated gradients, to the bit. If a test here fails, results that were recorded
// before no longer compare with new ones: raise kNumerics (numerics.h) and put in the digests that the test
// prints.

#include "gravac/numerics.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cinttypes>
#include <cstdio>
#include <mutex>
#include <random>
#include <string>

#include "gravac/codec/compressors.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/policy/policies.h"
#include "gravac/util/checksum.h"

namespace gravac {
namespace {

constexpr std::size_t kRanks = 3, kSteps = 12;

Layout small_net() {
  Layout layout;
  layout.add("conv", 16 * 3 * 9, 16);
  layout.add("conv.bias", 16, 16);
  layout.add("linear", 64 * 100, 64);
  layout.add("linear.bias", 64, 64);
  return layout;
}

// No distribution of the standard library, since those differ from one implementation to the next.
std::vector<float> gradient_at(std::size_t rank, std::size_t step, std::size_t entries) {
  std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
  std::vector<float> gradient(entries);
  for (float& g : gradient) {
    const float even = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
    g = even * even * even;
  }
  return gradient;
}

// A digest of everything that rank 0's engine returns. All ranks must return the same.
std::uint64_t digest_of(const std::string& options, bool overlaps) {
  std::mutex mutex;
  std::uint64_t found = 0;
  run_ranks(kRanks, [&](Comm& comm) {
    const Layout layout = small_net();
    VirtualClock clock;
    EngineSetup setup = make_setup(options_from_string(options), layout, kRanks);
    std::vector<Bucket> buckets = {{2, 3}, {0, 1}};
    const auto engine = overlaps ? make_overlap(layout, buckets, std::move(setup), comm, clock)
                                 : make_aggregator(layout, std::move(setup), comm, clock);
    if (!overlaps) buckets = {{0, 1, 2, 3}};
    std::uint64_t digest = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      const std::vector<float> whole = gradient_at(comm.rank(), step, layout.entries());
      std::vector<std::vector<float>> parts;
      for (const Bucket& bucket : buckets) {
        const std::size_t begin = layout.segments()[bucket.front()].begin;
        parts.emplace_back(
            whole.begin() + static_cast<std::ptrdiff_t>(begin),
            whole.begin() + static_cast<std::ptrdiff_t>(begin + layout.part(bucket).entries()));
      }
      for (std::size_t b = 0; b < parts.size(); ++b) engine->ready(b, parts[b]);
      const StepReport report = engine->finish(1);
      for (const auto& part : parts) digest = checksum(std::as_bytes(std::span(part)), digest);
      const float share = static_cast<float>(report.momentum.share);
      digest = checksum(std::as_bytes(std::span(&share, 1)), digest);
    }
    const std::lock_guard lock(mutex);
    if (found == 0) found = digest;
    EXPECT_EQ(digest, found) << options << ", rank " << comm.rank();
  });
  return found;
}

// Those whose bits are the same on every processor. Matrix products add up in vectors of the processor's
// width: ranks of different kinds still end with equal bits, since they exchange what they have multiplied.
std::vector<std::string> exact_compressors() {
  std::vector<std::string> names;
  for (const CompressorInfo& info : compressors()) {
    if (info.family != "low-rank") names.emplace_back(info.name);
  }
  return names;
}

// Every compressor, and every policy.
std::vector<std::string> settings() {
  std::vector<std::string> all;
  for (const std::string& name : exact_compressors()) {
    all.push_back("policy=static factor=8 compressor=" + name);
  }
  all.emplace_back("policy=static factor=8 memory=momentum");
  all.emplace_back("policy=static factor=8 exchange=reduce-scatter optimizer=sgd");
  for (const PolicyInfo& policy : policies()) {
    all.push_back("optimizer=sgd compressor=topk policy=" + std::string(policy.name));
  }
  all.emplace_back("optimizer=sgd policy=gravac start-steps=2 window=3 epsilon=0.3");
  all.emplace_back("optimizer=adam policy=gravac start-steps=2 window=3 factor-max=11");
  all.emplace_back("optimizer=adam policy=progress start-steps=2 compressor=quantise");
  return all;
}

struct Known {
  const char* options;
  std::uint64_t whole, overlapped;
};
const std::vector<Known> kKnown = {
#include "gravac/numerics_digests.def"
};

TEST(Numerics, EnginesReturnTheBitsTheyAlwaysDid) {
  const std::vector<std::string> all = settings();
  bool same = all.size() == kKnown.size();
  std::string found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t whole = digest_of(all[i], false), overlapped = digest_of(all[i], true);
    same =
        same && all[i] == kKnown[i].options && whole == kKnown[i].whole && overlapped == kKnown[i].overlapped;
    char line[200];
    std::snprintf(line, sizeof(line), "{\"%s\", 0x%016" PRIx64 ", 0x%016" PRIx64 "},\n", all[i].c_str(),
                  whole, overlapped);
    found += line;
  }
  EXPECT_TRUE(same) << "for numerics_digests.def:\n" << found;
}

// Ranks may run on processors of different kinds.
TEST(Numerics, DoNotDependOnTheProcessor) {
  const std::string options = "policy=static factor=8 compressor=";
  const std::int64_t supported = hwy::SupportedTargets();
  for (const std::string& name : exact_compressors()) {
    const std::string setting = options + name;
    const std::uint64_t best = digest_of(setting, false);
    for (std::int64_t left = supported; left != 0; left &= left - 1) {
      const std::int64_t target = left & -left;
      hwy::SetSupportedTargetsForTest(target);
      EXPECT_EQ(digest_of(setting, false), best) << name << " " << hwy::TargetName(target);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

}  // namespace
}  // namespace gravac
