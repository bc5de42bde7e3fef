#pragma once

// Helpers of several tests: comms that count and check collectives, gradients of many kinds, and Top-k
// written plainly as the reference for the fused pass. Not installed.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gravac/codec/select/selector.h"
#include "gravac/codec/select/step.h"
#include "gravac/comm/comm.h"
#include "gravac/engine.h"
#include "gravac/util/clock.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"
#include "gravac/wire/half.h"
#include "gravac/wire/sparse.h"

namespace gravac::testing {

// Passes every operation on to another comm. Tests derive from it to change or observe single operations.
class Relay : public Comm {
 public:
  explicit Relay(Comm& inner) : inner_(inner) {}
  std::size_t rank() const override { return inner_.rank(); }
  std::size_t size() const override { return inner_.size(); }
  void all_reduce(std::span<float> values) override {
    prepare(inner_);
    inner_.all_reduce(values);
  }
  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    prepare(inner_);
    inner_.all_gather(mine, all);
  }
  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    prepare(inner_);
    inner_.all_to_all(parts, received);
  }
  bool adds_halves(Values type) const override { return inner_.adds_halves(type); }
  void all_reduce_halves(std::span<std::uint16_t> values, Values type) override {
    prepare(inner_);
    inner_.all_reduce_halves(values, type);
  }

 private:
  Comm& inner_;
};

// Adds up floats of 16 bits, as Gloo does: in rank order, rounded to 16 bits every time.
class AddsHalves : public Relay {
 public:
  using Relay::Relay;
  bool adds_halves(Values) const override { return true; }
  void all_reduce_halves(std::span<std::uint16_t> values, Values type) override {
    ++operations;
    std::vector<std::uint16_t> all(values.size() * size());
    Relay::all_gather(std::as_bytes(values), std::as_writable_bytes(std::span(all)));
    std::vector<float> sum(values.size(), 0.0f), more(values.size());
    for (std::size_t r = 0; r < size(); ++r) {
      const auto* theirs = reinterpret_cast<const std::byte*>(all.data() + r * values.size());
      type == Values::fp16 ? read_fp16(theirs, 0, more) : read_bf16(theirs, more);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
      auto* out = reinterpret_cast<std::byte*>(values.data());
      const std::vector<float> exact = sum;
      type == Values::fp16 ? write_fp16(exact, 0, out, sum) : write_bf16(exact, out, sum);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        if (std::isfinite(exact[i]) && (type == Values::bf16 || std::abs(exact[i]) < 65520)) continue;
        values[i] = 0x7fff;  // write_fp16() is for numbers that fit
        sum[i] = std::nanf("");
      }
    }
  }
  std::size_t operations = 0;
};

// Counts all-gathers, which is how many rounds of messages a step takes.
class Counting final : public Relay {
 public:
  using Comm::all_gather;
  using Relay::Relay;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ++operations;
    Relay::all_gather(mine, all);
  }
  std::size_t operations = 0;
};

// The sequence of collectives that ranks have entered; must be the same for all ranks.
class Ledger {
 public:
  explicit Ledger(std::size_t ranks) : entered_by_(ranks, 0) {}

  // Rank `rank` enters its next collective. Throws Error if another rank entered a different one at this
  // point of the sequence.
  void enter(std::size_t rank, const std::string& operation) {
    const std::lock_guard lock(mutex_);
    const std::size_t place = entered_by_[rank]++;
    if (place == operations_.size()) operations_.push_back(operation);
    require(operations_[place] == operation, "collective ", place, ": rank ", rank, " enters ", operation,
            ", others entered ", operations_[place]);
  }

 private:
  std::mutex mutex_;
  std::vector<std::size_t> entered_by_;  // by rank: how many collectives it has entered
  std::vector<std::string> operations_;  // the sequence, as far as the fastest rank has come
};

// Checks that all ranks enter collectives of the same kind and size in the same order. If they did not, they
// would wait for each other until a timeout; with this the test fails at once, and the message says why. It
// also implements start_all_reduce(), as Gloo does, and checks that no other kind of operation is called
// until all sums that were started have been waited for.
class Checked final : public Relay {
 public:
  Checked(Comm& inner, Ledger& ledger) : Relay(inner), ledger_(ledger) {}
  void all_reduce(std::span<float> values) override {
    enter("all_reduce", values.size());
    Relay::all_reduce(values);
  }
  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    enter("all_gather", mine.size());
    Relay::all_gather(mine, all);
  }
  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    enter("all_to_all", parts.size());
    Relay::all_to_all(parts, received);
  }
  std::function<void()> start_all_reduce(std::span<float> values) override {
    enter("all_reduce", values.size());
    ++under_way_;
    return [this, values] {
      --under_way_;
      Relay::all_reduce(values);
    };
  }
  void all_reduce_halves(std::span<std::uint16_t> values, Values type) override {
    enter("all_reduce", values.size());
    Relay::all_reduce_halves(values, type);
  }
  std::function<void()> start_all_reduce_halves(std::span<std::uint16_t> values, Values type) override {
    enter("all_reduce", values.size());
    ++under_way_;
    return [this, values, type] {
      --under_way_;
      Relay::all_reduce_halves(values, type);
    };
  }

 private:
  void enter(const char* operation, std::size_t size) {
    const bool sum = std::string_view(operation) == "all_reduce";
    require(under_way_ == 0 || sum, operation, " while sums are under way");
    ledger_.enter(rank(), std::string(operation) + " of " + std::to_string(size));
  }

  Ledger& ledger_;
  std::atomic<int> under_way_ = 0;
};

// Real time plus simulated computing: now() also counts the seconds that were passed to spend().
class Computing final : public Clock {
 public:
  double now() const override { return steady_.now() + spent_; }
  void spend(double seconds) override { spent_ = spent_ + seconds; }

 private:
  SteadyClock steady_;
  std::atomic<double> spent_ = 0;
};

// The residual of an engine, in the order of its layout.
inline std::vector<float> residual_of(Engine& engine) {
  return engine.save().floats("residual");
}

// Kinds of gradients for gradient_of(): light and heavy tails, many zeros, all ties, and rows with scales of
// their own.
inline const std::vector<std::string> kKinds = {"gauss",       "laplace",  "student",
                                                "mostly-zero", "constant", "row-correlated"};
// Sizes to try: empty, around the vector width, just above a chunk of the fused pass (65,536), and large.
inline const std::vector<std::size_t> kSizes = {0, 1, 7, 8, 9, 1000, 65'537, 1'000'000};

// A gradient of one of kKinds with `n` entries. Cached, because generating it takes longer than most tests.
inline const std::vector<float>& gradient_of(const std::string& kind, std::size_t n, unsigned seed = 1) {
  static std::mutex mutex;  // ranks may be threads
  const std::lock_guard lock(mutex);
  static std::map<std::tuple<std::string, std::size_t, unsigned>, std::vector<float>> made;
  auto& values = made[{kind, n, seed}];
  if (!values.empty() || n == 0) return values;
  std::mt19937 random(seed);
  std::normal_distribution<float> gauss(0, 1e-3f);
  std::exponential_distribution<float> exponential(1e3f);
  std::student_t_distribution<float> student(3);
  std::uniform_real_distribution<float> uniform;
  values.resize(n);
  float scale = 1;
  for (std::size_t i = 0; i < n; ++i) {
    if (kind == "gauss") values[i] = gauss(random);
    if (kind == "laplace") values[i] = (uniform(random) < 0.5f ? -1.0f : 1.0f) * exponential(random);
    if (kind == "student") values[i] = 1e-3f * student(random);
    if (kind == "mostly-zero") values[i] = uniform(random) < 0.02f ? gauss(random) : 0;
    if (kind == "constant") values[i] = 0.7f;
    if (kind == "row-correlated") {
      // Rows of 512 entries share a scale, drawn from a log-normal distribution: samples of such a gradient
      // scatter more than those of independent entries, which makes first guesses of thresholds fail.
      if (i % 512 == 0) scale = std::exp(2000 * gauss(random));
      values[i] = scale * gauss(random);
    }
  }
  return values;
}

// The largest divisor of `size` that is at most its root: the rows of a matrix that is as square as it can
// be.
inline std::size_t square_rows(std::size_t size) {
  std::size_t rows = 1;
  for (std::size_t r = 2; r * r <= size; ++r) {
    if (size % r == 0) rows = r;
  }
  return rows;
}

// A layout of `n` entries whose segments are as uneven as those of a model: empty, of one entry, small and
// large; most are matrices.
inline Layout uneven_layout(std::size_t n) {
  Layout layout;
  layout.add("empty", 0);
  std::size_t left = n, size = 1;
  for (int i = 0; left > 0; ++i) {
    const std::size_t take = std::min(left, size);
    layout.add("segment" + std::to_string(i), take, square_rows(take));
    left -= take;
    size = i % 4 == 3 ? 1 : size * 7 + 3;
  }
  return layout;
}

// The names of all compressors in the table.
inline std::vector<std::string> all_selectors() {
  const auto names = selector_names();
  return {names.begin(), names.end()};
}

// Whether the table of compressors allows `compressor` to keep `count` entries when it was asked for `keep`.
inline bool respects_keep(const std::string& compressor, std::size_t count, std::size_t keep) {
  const SelectorInfo& info = selector_info(compressor);
  const auto found = static_cast<double>(count), target = static_cast<double>(keep);
  return found >= info.fewest * target && found <= info.most * target;
}

// a + b, entry by entry, in float as the fused pass computes it.
inline std::vector<float> sum(std::span<const float> a, std::span<const float> b) {
  std::vector<float> result(a.begin(), a.end());
  for (std::size_t i = 0; i < result.size(); ++i) result[i] += b[i];
  return result;
}

// The sum of squares, in double.
inline double plain_energy(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [](double total, double value) { return total + value * value; });
}

// Exact Top-k by sorting: the positions of the `keep` largest magnitudes, ascending. The sort is stable, so
// ties go to the lowest positions.
inline std::vector<std::uint32_t> plain_topk(std::span<const float> values, std::size_t keep) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return std::abs(values[a]) > std::abs(values[b]); });
  order.resize(keep);
  std::sort(order.begin(), order.end());
  return order;
}

// Exact Top-k of the whole gradient (global) or of each segment (layer), at one factor and without levels.
inline Sparse plain_topk(std::span<const float> values, const Layout& layout, Granularity granularity,
                         double factor) {
  Sparse result;
  const auto add = [&](std::size_t begin, std::size_t size) {
    for (const std::uint32_t i : plain_topk(values.subspan(begin, size), keep_count(size, factor))) {
      result.positions.push_back(static_cast<std::uint32_t>(begin) + i);
      result.values.push_back(values[begin + i]);
    }
  };
  if (granularity == Granularity::global) {
    add(0, values.size());
  } else {
    for (const Segment& segment : layout.segments()) add(segment.begin, segment.size);
  }
  return result;
}

}  // namespace gravac::testing
