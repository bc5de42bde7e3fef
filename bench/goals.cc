// How fast is a step, compared with what it must at least cost? An
// error-feedback step has to read the gradient, read the residual and write the
// residual: that loop, residual += gradient, is the floor. What is compared runs
// interleaved, repeat by repeat and equally often, PyTorch's steps too, and the
// least time of each counts. Every timed answer is checked, outside the clock.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bench/steps.h"
#include "gravac/codec/select/selector.h"
#include "gravac/codec/select/step.h"
#include "gravac/policy/gain.h"
#include "gravac/util/buffer.h"
#include "gravac/util/kernels.h"
#include "gravac/util/require.h"
#include "gravac/util/workers.h"
#include "gravac/wire/half.h"
#include "gravac/wire/packing.h"
#ifdef GRAVAC_BENCH_TORCH
#include "bench/torch_step.h"
#endif

namespace {
std::atomic<std::size_t> allocations{0};
}

// Taking malloc's place, to count for goal 9.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void* malloc(std::size_t size) {
  return ++allocations, __libc_malloc(size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return ++allocations, __libc_memalign(alignment, size);
}
}

namespace gravac::bench {
namespace {

struct Goal {
  int number = 0;
  std::string name;
  double ratio = 0;              // not a number if not measured
  double target = 0;             // not a number if there is none
  bool at_most = true;           // the ratio should be at most the target; else at least
  double median = std::nan("");  // the ratio of medians, for what it is worth on a noisy machine

  bool has_target() const { return !std::isnan(target); }
  bool met() const { return at_most ? ratio <= target : ratio >= target; }
};

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%g", value);
  return buffer;
}

// A step under test: its plan, what it sends, and its time.
struct Candidate {
  std::string name;
  StepOptions options;
  Plan plan;
  Send send = Send::candidate;
  bool encode = false;
  std::unique_ptr<Step> step;
  Timer timer, floor, read;  // the two loops it is compared with, timed as often
  std::vector<std::byte> payload;

  void run(const std::vector<float>& gradient) {
    if (!step) step = std::make_unique<Step>(Layout(gradient.size()), options);
    SparseView sent;
    timer.time([&] {
      step->measure(gradient, plan, send);
      sent = step->take(send);
      if (encode) encode_payload(sent);
    });
    check(sent, gradient);
  }

  void encode_payload(SparseView sent) {
    const std::size_t bound = packed_bound(sent.size()) + 4 * sent.size();
    if (payload.size() < bound) payload.resize(bound);
    const std::size_t bytes = pack_positions(sent.positions, payload);
    std::memcpy(payload.data() + bytes, sent.values.data(), 4 * sent.size());
  }

  void check(SparseView sent, const std::vector<float>& gradient) {
    const double factor = send == Send::minimum ? plan.minimum : plan.candidate;
    const bool exact = options.compressor == "topk";
    check_kept(sent, exact && options.feedback ? std::span<const float>(step->residual().values()) : gradient,
               factor, exact);
    if (!encode) return;
    std::vector<std::uint32_t> positions(sent.size());
    unpack_positions(payload, gradient.size(), positions);
    require(std::equal(positions.begin(), positions.end(), sent.positions.begin()), "check: payload differs");
  }
};

Candidate fused(std::string name, Plan plan, Send send = Send::candidate, std::string compressor = "topk",
                unsigned threads = 1) {
  Candidate c;
  c.name = std::move(name);
  c.options = {.compressor = std::move(compressor), .threads = threads};
  c.plan = plan;
  c.send = send;
  return c;
}

Candidate alone(double factor) {
  Candidate c = fused("", {factor, factor});
  c.options.feedback = false;
  return c;
}

// The positions that exact Top-k keeps of a gradient whose scale changes every `row` entries, by
// a factor of about e^spread. Layers and rows of real gradients differ much; with spread 0
// positions are independent, and nobody can write them in less than their entropy.
std::vector<std::uint32_t> kept_positions(std::size_t entries, double factor, std::size_t row, float spread) {
  std::vector<float> gradient(entries);
  std::mt19937_64 random(2);
  std::normal_distribution<float> gauss;
  float scale = 1;
  for (std::size_t i = 0; i < entries; ++i) {
    if (i % row == 0) scale = std::exp(spread * gauss(random));
    gradient[i] = scale * gauss(random);
  }
  Step step(Layout(entries), {.feedback = false});
  step.measure(gradient, {factor, factor});
  const SparseView sent = step.take(Send::candidate);
  return {sent.positions.begin(), sent.positions.end()};
}

// Goal 10: what positions take on the wire, and how long that takes.
std::vector<Goal> measure_packing(std::size_t entries, int repeats) {
  struct Case {
    std::string name;
    double target = 0, factor = 0;
    std::vector<std::uint32_t> positions;
    std::vector<std::byte> bytes;
    std::size_t size = 0;
    Timer encode, decode;
  };
  struct Kind {
    std::string name;
    std::size_t row;
    float spread;
  };
  std::vector<Case> cases;
  for (const Kind& kind : {Kind{"rows of 512", 512, 2}, Kind{"layers of 65536", 65'536, 0.5f},
                           Kind{"independent", entries, 0}}) {
    for (const auto& [factor, target] : {std::pair{10.0, 0.6}, {100.0, 1.0}, {1000.0, 1.4}}) {
      Case c{kind.name + ", " + std::to_string(static_cast<int>(factor)), target, factor,
             kept_positions(entries, factor, kind.row, kind.spread)};
      c.bytes.resize(packed_bound(c.positions.size()));
      cases.push_back(std::move(c));
    }
  }
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (Case& c : cases) {
      std::vector<std::uint32_t> read(c.positions.size());
      c.encode.time([&] { c.size = pack_positions(c.positions, c.bytes); });
      c.decode.time([&] { unpack_positions(std::span(c.bytes).first(c.size), entries, read); });
      require(read == c.positions, "check: positions differ: ", c.name);
    }
  }
  std::vector<Goal> goals;
  for (const Case& c : cases) {
    const auto kept = static_cast<double>(c.positions.size());
    const double p = 1 / c.factor, entropy = -(std::log2(p) + (c.factor - 1) * std::log2(1 - p)) / 8;
    std::string name = "index bytes per kept entry: " + c.name;
    if (c.name.starts_with("independent")) name += " (entropy " + text(std::round(1e3 * entropy) / 1e3) + ")";
    goals.push_back({10, name, static_cast<double>(c.size) / kept, c.target});
    goals.push_back({10, "  encode, ns per kept entry", 1e9 * c.encode.seconds() / kept, 1.5, true,
                     1e9 * c.encode.median() / kept});
    goals.push_back({10, "  decode, ns per kept entry", 1e9 * c.decode.seconds() / kept, std::nan(""), true,
                     1e9 * c.decode.median() / kept});
  }
  return goals;
}

// Values in two bytes: written with what receivers get, and read.
std::vector<Goal> measure_halves(int repeats) {
  constexpr std::size_t kValues = 1'000'000;
  std::vector<float> values(kValues), decoded(kValues), read(kValues);
  std::mt19937_64 random(3);
  std::normal_distribution<float> gauss;
  for (float& value : values) value = 1e-3f * gauss(random);
  std::vector<std::byte> bytes(2 * kValues);
  Timer write16, read16, write_b, read_b;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    int exponent = 0;
    write16.time([&] {
      exponent = half_exponent(values);
      write_fp16(values, exponent, bytes.data(), decoded);
    });
    read16.time([&] { read_fp16(bytes.data(), exponent, read); });
    require(read == decoded, "check: fp16 values differ");
    write_b.time([&] { write_bf16(values, bytes.data(), decoded); });
    read_b.time([&] { read_bf16(bytes.data(), read); });
    require(read == decoded, "check: bf16 values differ");
  }
  const auto line = [&](const std::string& name, const Timer& timer) {
    return Goal{10,   name + ", ns per value",       1e9 * timer.seconds() / kValues, std::nan(""),
                true, 1e9 * timer.median() / kValues};
  };
  return {line("fp16: write", write16), line("fp16: read", read16), line("bf16: write", write_b),
          line("bf16: read", read_b)};
}

Goal over(int number, const std::string& name, const Timer& timer, const Timer& base, double target) {
  return {number, name, timer.seconds() / base.seconds(), target, true, timer.median() / base.median()};
}

Goal over_floor(int number, const std::string& name, const Candidate& c, double target) {
  return over(number, "fused step / floor: " + name, c.timer, c.floor, target);
}

Goal over_read(const std::string& name, const Candidate& c, double target) {
  return over(4, "exact Top-k alone / one read: " + name, c.timer, c.read, target);
}

// Goals 1 to 9: the steps that are compared with each other and with the floor.
class Contest {
 public:
  explicit Contest(std::size_t entries)
      : entries_(entries), gradients_(make_gradients(entries)), direct_(entries, {10, 1000}) {
    encoded10_.encode = true;
    for (const std::string_view name : selector_names()) {
      if (name == "topk") continue;  // measured above
      others_.push_back(
          fused(std::string(name) + " 10/1000", {10, 1000}, Send::candidate, std::string(name)));
    }
    floor_residual_.reserve(entries);
    std::fill_n(floor_residual_.data(), entries, 0.0f);
  }

  // Times everything once per repeat, one after the other, after some repeats that do not count.
  void run(int repeats) {
    std::vector<Candidate*> all = {&c10_1000_,    &c100_1000_, &c10_100_,  &encoded10_,
                                   &two_threads_, &alone1000_, &alone100_, &alone10_};
    for (Candidate& other : others_) all.push_back(&other);
    constexpr int kWarmup = 3;
    for (int repeat = 0; repeat < kWarmup + repeats; ++repeat) {
      const auto& gradient = gradients_[static_cast<std::size_t>(repeat) % gradients_.size()];
      if (repeat == kWarmup) {
        direct_.timer = torch_topk_ = torch_multi_level_ = torch_direct_ = {};
        for (Candidate* c : all) c->timer = c->floor = c->read = {};
      }
      for (Candidate* c : all) run_one(*c, gradient);
      direct_.run(gradient);
      run_torch(gradient);
      time_floor_of_two(gradient);
    }
  }

  std::vector<Goal> goals() {
    std::vector<Goal> goals = {
        over_floor(1, "10/1000, candidate sent", c10_1000_, 1.3),
        over_floor(1, "100/1000, candidate sent", c100_1000_, 1.3),
        over_floor(2, "10/100, candidate sent", c10_100_, 1.4),
        over_floor(3, "10 sent, payload encoded", encoded10_, 1.8),
        over_read("1000", alone1000_, 1.4),
        over_read("100", alone100_, 1.8),
        over_read("10", alone10_, 2.6),
    };
    goals.push_back(torch_over(5, "torch.topk / exact Top-k alone: 1000", torch_topk_, alone1000_, 30));
    goals.push_back(
        torch_over(6, "step in PyTorch, multi-level / fused: 10/1000", torch_multi_level_, c10_1000_, 40));
    goals.push_back(torch_over(6, "step in PyTorch, direct / fused: 10/1000", torch_direct_, c10_1000_, 70));
    const double fused_seconds = c10_1000_.timer.seconds();
    goals.push_back(
        {7, "our own direct step / fused: 10/1000", direct_.timer.seconds() / fused_seconds, 2, false});
    goals.push_back(
        {8, "one thread / two threads: 10/1000", fused_seconds / two_threads_.timer.seconds(), 1.6, false});
    goals.push_back({9, "heap allocations per warm step", allocations_per_step(), 0});
    for (const Candidate& other : others_) goals.push_back(over_floor(1, other.name, other, 1.3));
    return goals;
  }

  void print_floor(int repeats) const {
    const double floor = c10_1000_.floor.seconds();
    std::fprintf(stderr,
                 "%zu entries, %s: floor %.2f ms (%.2f ns an entry; two threads: %.2fx as fast), "
                 "read %.2f ms, least of %d\n",
                 entries_, simd_name(), 1e3 * floor, 1e9 * floor / static_cast<double>(entries_),
                 floor / floor_of_two_.seconds(), 1e3 * c10_1000_.read.seconds(), repeats);
  }

 private:
  void run_one(Candidate& c, const std::vector<float>& gradient) {
    double sum = 0;
    c.floor.time([&] { add_into(floor_residual_.span().first(entries_), gradient); });
    c.run(gradient);
    c.read.time([&] { sum = energy(gradient); });
    require(sum > 0 && std::isfinite(floor_residual_.data()[entries_ / 2]),
            "check: the floor computed nothing");
  }

  void time_floor_of_two(const std::vector<float>& gradient) {
    floor_of_two_.time([&] {
      pair_.run([&](unsigned half) noexcept {
        const std::size_t begin = half * (entries_ / 2),
                          size = half == 0 ? entries_ / 2 : entries_ - entries_ / 2;
        add_into({floor_residual_.data() + begin, size}, {gradient.data() + begin, size});
      });
    });
  }

  double allocations_per_step() {
    const std::size_t before = allocations;
    for (const auto& gradient : gradients_) {
      c10_1000_.step->measure(gradient, c10_1000_.plan);
      c10_1000_.step->take(Send::candidate);
    }
    return static_cast<double>(allocations - before) / static_cast<double>(gradients_.size());
  }

  // PyTorch's steps take about a second each, and run as often as all others.
  void run_torch([[maybe_unused]] const std::vector<float>& gradient) {
#ifdef GRAVAC_BENCH_TORCH
    const float* residual =
        gradients_[0].data();  // any numbers of the right size: time does not depend on them
    const auto timed = [&](Timer& timer, const auto& work) {
      std::size_t kept = 0;
      timer.time([&] { kept = work(); });
      require(kept == keep_count(entries_, 1000), "check: PyTorch kept ", kept);
    };
    timed(torch_topk_, [&] { return torch_topk(gradient.data(), entries_, 1000); });
    for (const bool multi_level : {true, false}) {
      timed(multi_level ? torch_multi_level_ : torch_direct_,
            [&] { return torch_step(gradient.data(), residual, entries_, 10, 1000, multi_level); });
    }
#endif
  }

  static Goal torch_over(int number, const std::string& name, const Timer& torch, const Candidate& ours,
                         double target) {
    Goal goal{number, name, std::nan(""), target, false};
    if (torch.empty()) return goal;
    goal.ratio = torch.seconds() / ours.timer.seconds();
    goal.median = torch.median() / ours.timer.median();
    return goal;
  }

  std::size_t entries_;
  Gradients gradients_;
  Candidate c10_1000_ = fused("topk 10/1000", {10, 1000}), c100_1000_ = fused("topk 100/1000", {100, 1000}),
            c10_100_ = fused("topk 10/100", {10, 100});
  Candidate encoded10_ = fused("topk 10/1000", {10, 1000}, Send::minimum);
  Candidate two_threads_ = fused("", {10, 1000}, Send::candidate, "topk", 2);
  Candidate alone1000_ = alone(1000), alone100_ = alone(100), alone10_ = alone(10);
  std::vector<Candidate> others_;
  DirectStep direct_;
  Buffer<float> floor_residual_{Pages::huge};  // in huge pages, like the step's own
  Workers pair_{2};
  Timer floor_of_two_, torch_topk_, torch_multi_level_, torch_direct_;
};

std::vector<Goal> measure_goals(std::size_t entries, int repeats) {
  std::vector<Goal> goals;
  {
    Contest contest(entries);
    contest.run(repeats);
    goals = contest.goals();
    contest.print_floor(repeats);
  }
  for (const auto& more : {measure_packing(entries, repeats), measure_halves(repeats)}) {
    goals.insert(goals.end(), more.begin(), more.end());
  }
  return goals;
}

void print_table(const std::vector<Goal>& goals) {
  std::printf("%4s  %-62s %8s %8s %8s  %s\n", "goal", "what", "ratio", "(median)", "target", "met");
  for (const Goal& goal : goals) {
    const std::string target = !goal.has_target() ? "" : (goal.at_most ? "<= " : ">= ") + text(goal.target);
    if (std::isnan(goal.ratio)) {
      std::printf("%4d  %-62s %8s %8s %8s  not measured: built without libtorch\n", goal.number,
                  goal.name.c_str(), "-", "", target.c_str());
    } else {
      const std::string median = std::isnan(goal.median) ? "" : text(std::round(100 * goal.median) / 100);
      const char* met = !goal.has_target() ? "" : goal.met() ? "yes" : "NO";
      std::printf("%4d  %-62s %8.3f %8s %8s  %s\n", goal.number, goal.name.c_str(), goal.ratio,
                  median.c_str(), target.c_str(), met);
    }
  }
}

void print_json(const std::vector<Goal>& goals) {
  const auto number = [](double value) { return std::isnan(value) ? std::string("null") : text(value); };
  std::printf("[");
  for (std::size_t i = 0; i < goals.size(); ++i) {
    const Goal& goal = goals[i];
    const bool judged = !std::isnan(goal.ratio) && goal.has_target();
    std::printf("%s\n  {\"goal\": %d, \"name\": \"%s\", \"ratio\": %s, \"target\": %s, \"met\": %s}",
                i ? "," : "", goal.number, goal.name.c_str(), number(goal.ratio).c_str(),
                number(goal.target).c_str(),
                !judged      ? "null"
                : goal.met() ? "true"
                             : "false");
  }
  std::printf("\n]\n");
}

}  // namespace
}  // namespace gravac::bench

int main(int argc, char** argv) {
  CLI::App app("Measures the performance goals", "goals");
  std::size_t entries = 25'000'000;
  int repeats = 15;
  bool json = false;
  app.add_option("--entries", entries, "Length of the gradient")
      ->check(CLI::Range(std::size_t{100'000}, std::size_t{200'000'000}))
      ->capture_default_str();
  app.add_option("--repeats", repeats, "Repeats of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--json", json, "Print JSON instead of a table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    const auto goals = gravac::bench::measure_goals(entries, repeats);
    json ? gravac::bench::print_json(goals) : gravac::bench::print_table(goals);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "goals: %s\n", error.what());
    return 1;
  }
}
