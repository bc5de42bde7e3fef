// What does multi-level compression save? The paper's Table 3: a step that measures 10x and 1000x, by
// compressing the whole gradient twice (direct) or by compressing what survives the first time once more
// (multi-level, here in one fused pass). One thread, gradients of the full sizes of the paper's models. The
// two take turns, and the least time of each counts.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/steps.h"

namespace gravac::bench {
namespace {

struct Model {
  const char* name;
  std::size_t entries;
};
constexpr Model kModels[] = {{"ResNet101", 44'549'160}, {"VGG16", 138'357'544}, {"LSTM-1500", 66'034'000}};
constexpr const char* kCompressors[] = {"topk", "dgc", "redsync", "randomk"};
constexpr Plan kPlan = {10, 1000};

void compare(const Model& model, const Gradients& gradients, const std::string& compressor, int repeats) {
  Step step(Layout(model.entries), {.compressor = compressor});
  DirectStep direct(model.entries, kPlan, compressor);
  Timer multi_level;
  constexpr int kWarmup = 2;
  for (int repeat = 0; repeat < kWarmup + repeats; ++repeat) {
    const auto& gradient = gradients[static_cast<std::size_t>(repeat) % gradients.size()];
    if (repeat == kWarmup) direct.timer = multi_level = {};
    SparseView sent;
    multi_level.time([&] {
      step.measure(gradient, kPlan, Send::candidate);
      sent = step.take(Send::candidate);
    });
    check_kept(sent, step.residual().values(), kPlan.candidate, compressor == "topk");
    direct.run(gradient);
  }
  std::printf("%-12s %-10s %12.1f %12.1f %9.2fx\n", model.name, compressor.c_str(),
              1e3 * direct.timer.seconds(), 1e3 * multi_level.seconds(),
              direct.timer.seconds() / multi_level.seconds());
  std::fflush(stdout);
}

}  // namespace
}  // namespace gravac::bench

int main(int argc, char** argv) {
  using namespace gravac::bench;
  CLI::App app("Multi-level against direct compression, 10x and 1000x, at the sizes of the paper's models");
  int repeats = 9;
  app.add_option("--repeats", repeats, "Times that each is timed")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::printf("%-12s %-10s %12s %12s %10s\n", "model", "compressor", "direct, ms", "multi, ms", "speed-up");
  for (const Model& model : kModels) {
    const Gradients gradients = make_gradients(model.entries);
    for (const char* compressor : kCompressors) compare(model, gradients, compressor, repeats);
  }
}
