#include "apps/demo.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "gravac/util/require.h"
#include "train/launch.h"

namespace gravac::apps {
namespace {

using Words = std::vector<std::string>;

struct Run {
  std::string name;
  Words flags;
};

// The first one is what the others are compared with. GraVAC's window is short because the runs are.
const std::vector<Run>& runs() {
  static const std::vector<Run> runs = {
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

// While it exists, what this process and its children write to stdout is thrown away: the demo prints
// one table in place of six summaries.
class Silence {
 public:
  Silence() : kept_(dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
  ~Silence() {
    dup2(kept_, STDOUT_FILENO);
    close(kept_);
  }

 private:
  int kept_;
};

// The cluster to simulate. In virtual time a slow link need not be waited for, and how fast this machine is
// does not change the result.
std::string cluster(const DemoOptions& options) {
  std::string link = options.link;
  std::ranges::replace(link, ',', '/');
  return "workers=" + std::to_string(options.workers) + ",link=" + link + ",compute=100ms,compress=2ns";
}

// Runs `gravac train` in a process of its own. Returns the exit code.
int train(const DemoOptions& options, const Run& run, const std::string& folder) {
  Words words = {"gravac",       "train",
                 "--model",      "vgg-small",
                 "--data",       "images",
                 "--batch",      "16",
                 "--lr",         "0.02",
                 "--warmup",     std::to_string(options.steps / 10),
                 "--seed",       "1",
                 "--steps",      std::to_string(options.steps),
                 "--emulate",    cluster(options),
                 "--eval-every", "1000000",
                 "--out",        folder};
  words.insert(words.end(), run.flags.begin(), run.flags.end());
  const Silence silence;
  return train::run_workers({.workers = 1, .arguments = words});
}

nlohmann::json summary_in(const std::string& folder) {
  std::ifstream file(folder + "/summary.json");
  nlohmann::json summary = nlohmann::json::parse(file, nullptr, false);
  require(!summary.is_discarded(), "demo: ", folder, "/summary.json is missing or is not JSON");
  return summary;
}

}  // namespace

int show_demo(const DemoOptions& options) {
  const std::string out = options.out.empty() ? new_folder() : options.out;
  std::printf(
      "vgg-small on built-in images: %zu workers over %s links, 100 ms of computing per step, %zu steps.\n"
      "Gradients, bytes and accuracy are real; the workers are simulated on this machine, in virtual "
      "time.\n\n",
      options.workers, options.link.c_str(), options.steps);
  std::vector<nlohmann::json> summaries;
  for (const Run& run : runs()) {
    std::fprintf(stderr, "-- %s\n", run.name.c_str());
    const std::string folder = out + "/" + run.name;
    if (const int code = train(options, run, folder); code != 0) return code;
    summaries.push_back(summary_in(folder));
  }
  std::printf("%-13s %8s %7s %9s %9s %9s %9s\n", "policy", "top1", "steps", "seconds", "speed-up", "MB sent",
              "fewer");
  const double dense = summaries[0]["seconds"];
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    const nlohmann::json& s = summaries[i];
    std::printf("%-13s %7.2f%% %7d %9.1f %8.2fx %9.1f %8.1fx\n", runs()[i].name.c_str(),
                100 * s["metric"]["value"].get<double>(), s["steps"].get<int>(), s["seconds"].get<double>(),
                dense / s["seconds"].get<double>(), 1e-6 * s["bytes_sent"].get<double>(),
                s["factor_bytes"].get<double>());
  }
  std::printf(
      "\nseconds: virtual time of training; fewer: how many times fewer bytes than dense training.\n"
      "The files of all runs (steps.jsonl, evals.jsonl, summary.json, TensorBoard events): %s\n",
      out.c_str());
  return 0;
}

}  // namespace gravac::apps
