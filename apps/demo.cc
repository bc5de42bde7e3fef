#include "apps/demo.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "apps/compare/results.h"
#include "apps/compare/runner.h"
#include "gravac/util/require.h"

namespace gravac::apps {
namespace {

using Words = std::vector<std::string>;

struct DemoRun {
  std::string name;
  Words flags;
};

// The first one is what the others are compared with. GraVAC's window is short because the runs are.
const std::vector<DemoRun>& runs() {
  static const std::vector<DemoRun> runs = {
      {"dense", {"--policy", "dense"}},
      {"fp16", {"--policy", "static", "--compressor", "fp16"}},
      {"4-bits", {"--compressor", "quantise", "--bits", "4"}},
      {"static-10x", {"--policy", "static", "--factor", "10"}},
      {"gravac", {"--policy", "gravac", "--window", "20"}},
      {"progress", {"--policy", "progress"}},
  };
  return runs;
}

std::string new_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "gravac-demo-XXXXXX").string();
  require(mkdtemp(name.data()) != nullptr, "demo: cannot create the temporary folder ", name);
  return name;
}

// The cluster to simulate. In virtual time a slow link need not be waited for, and how fast this machine is
// does not change the result.
std::string cluster(const DemoOptions& options) {
  std::string link = options.link;
  std::ranges::replace(link, ',', '/');
  return "workers=" + std::to_string(options.workers) + ",link=" + link + ",compute=100ms,compress=2ns";
}

compare::Command command(const DemoOptions& options, const DemoRun& run, const std::string& out) {
  std::istringstream always(
      "train --model vgg-small --data images --batch 16 --lr 0.02 --seed 1 --threads 1 --eval-every 1000000");
  Words words{std::istream_iterator<std::string>(always), {}};
  for (const auto& [flag, value] : {std::pair("--steps", std::to_string(options.steps)),
                                    {"--warmup", std::to_string(options.steps / 10)},
                                    {"--emulate", cluster(options)},
                                    {"--out", out + "/" + run.name}}) {
    words.insert(words.end(), {flag, value});
  }
  words.insert(words.end(), run.flags.begin(), run.flags.end());
  return {.arguments = words, .log = out + "/" + run.name + ".log"};
}

struct FailedRun {
  int code;
};

// Trains in all ways, as many at a time as there are processors. Returns 0 if all went well; after the first
// that fails, the others are ended.
int train_all(const DemoOptions& options, const std::string& out) {
  std::vector<compare::Command> commands;
  for (const DemoRun& run : runs()) commands.push_back(command(options, run, out));
  const auto ended = [&](std::size_t number, int code) {
    const std::string& log = commands[number].log;
    if (code == 0) {
      std::fprintf(stderr, "-- %s: done\n", runs()[number].name.c_str());
      std::filesystem::remove(log);
      return;
    }
    std::ifstream said(log);
    for (std::string line; std::getline(said, line);) std::fprintf(stderr, "%s\n", line.c_str());
    throw FailedRun{code};
  };
  const std::size_t jobs = std::max(1u, std::thread::hardware_concurrency());
  try {
    const int signal = compare::run_all(commands, jobs, {[](std::size_t) {}, ended, [] {}});
    return signal != 0 ? 128 + signal : 0;
  } catch (const FailedRun& failed) {
    return failed.code;
  }
}

}  // namespace

int show_demo(const DemoOptions& options) {
  const std::string out = options.out.empty() ? new_folder() : options.out;
  std::printf(
      "vgg-small on built-in images: %zu workers over %s links, 100 ms of computing per step, %zu steps.\n"
      "Gradients, bytes and accuracy are real; the workers are simulated on this machine, in virtual "
      "time.\n\n",
      options.workers, options.link.c_str(), options.steps);
  std::filesystem::create_directories(out);
  if (const int code = train_all(options, out); code != 0) return code;
  std::printf("%-13s %8s %7s %9s %9s %9s %9s\n", "policy", "top1", "steps", "seconds", "speed-up", "MB sent",
              "fewer");
  std::optional<double> dense_seconds;
  for (const DemoRun& run : runs()) {
    const auto found = compare::read_result(out + "/" + run.name);
    require(found.has_value(), "demo: no finished run in ", out, "/", run.name);
    if (!dense_seconds) dense_seconds = found->seconds;
    std::printf("%-13s %7.2f%% %7.0f %9.1f %8.2fx %9.1f %8.1fx\n", run.name.c_str(), 100 * found->value,
                found->steps, found->seconds, *dense_seconds / found->seconds,
                1e-6 * found->bytes_sent * static_cast<double>(options.workers),
                found->dense_bytes / found->bytes_sent);
  }
  std::printf(
      "\nseconds: virtual time of training; fewer: how many times fewer bytes than dense training.\n"
      "The files of all runs (steps.jsonl, evals.jsonl, summary.json, TensorBoard events): %s\n",
      out.c_str());
  return 0;
}

}  // namespace gravac::apps
