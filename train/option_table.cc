#include "train/option_table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "gravac/config.h"
#include "gravac/util/names.h"
#include "gravac/util/require.h"

namespace gravac::train {
namespace {

using enum OptionInfo::Kind;
using enum TrainOption::Scope;
using enum TrainOption::Resume;

constexpr const char kModel[] = "Model and data";
constexpr const char kWorkers[] = "Workers";
constexpr const char kTraining[] = "Training";
constexpr const char kLength[] = "Length and evaluation";
constexpr const char kOutput[] = "Output";

// What help and docs show before the engine's options...
constexpr TrainOption kBefore[] = {
    {{kModel, "model", text, "NAME", "resnet20", "Model to train (see gravac list)"}, same},
    {{kModel, "data", text, "NAME", "images", "Data set to train on (see gravac list)"}, same},
    {{kModel, "data-dir", text, "DIR", "", "Folder with the files of the data set"}, may_differ, may_change},
    {{kModel, "batch", count, "N", "32", "Samples per worker and step", 1, 1e6}, same},
    {{kModel, "tokens", count, "N", "35", "Tokens in a sample of text", 1, 1e6}, same},
    {{kModel, "augment", flag, "", "true", "Shift and mirror images in training"}, same},
    {{kModel, "skew", number, "ALPHA", "",
      "Give workers different shares of the labels, drawn from a Dirichlet distribution; small is skewed", 0,
      1e6, true},
     same},
    {{kModel, "seed", count, "N", "0", "Seed of initial weights, data order and random choices"}, same},
    {{kModel, "deterministic", flag, "", "false",
      "Equal seeds give equal bits: choose by modelled times of --link (default: 1gbit,100us)"},
     same},
    {{kModel, "compute", number, "SECONDS", "",
      "Forward and backward of a step, for --deterministic (default: 10 ns for each weight)", 0, 1e6, true},
     same},

    {{kWorkers, "workers", count, "N", "", "Worker processes to start on this machine", 1, 4096},
     may_differ,
     may_change},
    {{kWorkers, "backend", choice, "gloo|mpi", "gloo", "Library by which workers communicate"},
     same,
     may_change},
    {{kWorkers, "interface", text, "NAME", "",
      "Network interface that Gloo uses (default: the one on the way to rank 0)"},
     may_differ,
     may_change},
    {{kWorkers, "timeout", number, "SECONDS", "60", "Longest wait for another worker", 0, 1e6, true},
     may_differ,
     may_change},
    {{kWorkers, "threads", count, "N", "0", "Threads per worker; 0: the worker's share of the cores", 0,
      1024},
     may_differ,
     may_change},
    {{kWorkers, "overlap", flag, "", "false", "Send gradients while the backward pass still runs"}, same},
    {{kWorkers, "bucket", count, "KB", "0",
      "Cut gradients into messages of this size; 0: quarters with --overlap, whole gradients without"},
     same,
     may_change},
    {{kWorkers, "link", text, "RATE,DELAY", "", "Simulate a slow network, such as 100mbit,1ms"},
     same,
     may_change},
    {{kWorkers, "emulate", text, "SPEC", "",
      "Simulate a cluster in virtual time: workers=32,link=10gbit/50us,compute=60ms"},
     same,
     may_change},
};

// ...and after them.
constexpr TrainOption kAfter[] = {
    {{kTraining, "optimizer", choice, "sgd|adam|adamw", "sgd", "How gradients change the weights"}, same},
    {{kTraining, "lr", number, "L", "", "Learning rate (default: 0.1 for sgd, 0.001 for adam and adamw)", 0,
      1e6, true},
     same},
    {{kTraining, "momentum", number, "M", "",
      "Momentum of optimizer sgd, or of --memory momentum (default: 0.9)", 0, 1, false, true},
     same},
    {{kTraining, "nesterov", flag, "", "false", "Use Nesterov's momentum (optimizer sgd)"}, same},
    {{kTraining, "beta1", number, "B", "",
      "Share of the first moment that is kept (adam and adamw; default: 0.9)", 0, 1, false, true},
     same},
    {{kTraining, "beta2", number, "B", "",
      "Share of the second moment that is kept (adam and adamw; default: 0.999)", 0, 1, false, true},
     same},
    {{kTraining, "eps", number, "E", "",
      "Added to the root of the second moment (adam and adamw; default: 1e-8)", 0, 1, true},
     same},
    {{kTraining, "weight-decay", number, "D", "",
      "Weight decay (default: 5e-4 for sgd, 0 for adam, 0.01 for adamw); adamw decays the weights, the "
      "others add to "
      "the gradient",
      0, 1e6},
     same},
    {{kTraining, "clip", number, "NORM", "0", "Clip the gradient to this norm; 0: never"}, same},
    {{kTraining, "schedule", choice, "constant|step|cosine", "cosine", "How the learning rate falls"}, same},
    {{kTraining, "warmup", count, "STEPS", "0", "Steps at the start in which the learning rate rises from 0"},
     same},
    {{kTraining, "decay-at", numbers, "SHARES", "0.5,0.75",
      "Schedule step: shares of the run at which the learning rate falls", 0, 1, true, true},
     same},
    {{kTraining, "decay-by", number, "X", "0.1", "Schedule step: the learning rate is multiplied by X", 0, 1,
      true},
     same},
    {{kTraining, "schedule-by", choice, "steps|effective", "steps",
      "Whether the schedule counts steps, or the dense steps that they are worth (effective)"},
     same},

    {{kLength, "steps", count, "N", "", "Steps to train", 1}, same, may_change},
    {{kLength, "epochs", number, "N", "",
      "Passes over the data to train (default: 1 if --steps is not given)", 0, 1e6, true},
     same,
     may_change},
    {{kLength, "until", text, "METRIC=VALUE", "",
      "Stop when an evaluation reaches this: top1=0.80, top5=0.95 or ppl=120"},
     same,
     may_change},
    {{kLength, "eval-every", count, "STEPS", "0", "Steps between evaluations; 0: once per epoch"},
     same,
     may_change},

    {{kOutput, "out", text, "DIR", "", "Folder for reports and checkpoints"}, may_differ, may_change},
    {{kOutput, "checkpoint-every", count, "STEPS", "0", "Steps between checkpoints; 0: one at the end"},
     same,
     may_change},
    {{kOutput, "resume", choice, "true|false|or-begin", "false",
      "Continue from the last checkpoint in --out (alone it means true); or-begin: begin at step 0 if there "
      "is none"},
     same,
     may_change},
    {{kOutput, "json", flag, "", "false", "Print the summary as JSON"}, may_differ, may_change},
    {{kOutput, "config", text, "FILE", "", "Read options from a TOML file"}, may_differ, may_change},
};

std::vector<TrainOption> make_table() {
  std::vector<TrainOption> all(std::begin(kBefore), std::end(kBefore));
  for (const OptionInfo& option : engine_options()) {
    const bool offered = option.group == kCompressionOptions || option.group == kPolicyOptions;
    if (offered) all.push_back({option, engine});
  }
  all.insert(all.end(), std::begin(kAfter), std::end(kAfter));
  return all;
}

std::string shortest(double value) {
  char room[32];
  return std::string(room, std::to_chars(room, room + sizeof(room), value).ptr);
}

// The range that an option allows, in words: "a whole number of at least 1".
std::string range_of(const OptionInfo& option) {
  const std::string kind = option.kind == count ? "a whole number" : "a number";
  const bool bounded = option.most < 1e15;
  if (bounded && !option.above_least && !option.below_most) {
    return kind + " from " + shortest(option.least) + " to " + shortest(option.most);
  }
  std::string range = kind + (option.above_least ? " above " : " of at least ") + shortest(option.least);
  if (bounded) range += (option.below_most ? " and below " : " and at most ") + shortest(option.most);
  return range;
}

double checked_number(const OptionInfo& option, const std::string& text, const std::string& source) {
  // Counts must also be whole numbers, and fit the 64-bit integers of TOML files.
  const bool whole = option.kind != count || read<std::int64_t>(text);
  const std::optional<double> value = read<double>(text);
  const bool good = whole && value && *value >= option.least && *value <= std::max(option.most, 1e15) &&
                    (option.most >= 1e15 || *value <= option.most) &&
                    !(option.above_least && *value == option.least) &&
                    !(option.below_most && *value == option.most);
  require(good, source, " must be ", range_of(option), ", got '", text, "'");
  return *value;
}

}  // namespace

std::span<const TrainOption> option_table() {
  static const std::vector<TrainOption> table = make_table();
  return table;
}

std::string variable_of(std::string_view name) {
  std::string variable = "GRAVAC_";
  for (const char c : name) variable += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  return variable;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string canonical(const OptionInfo& option, const std::string& value, const std::string& source) {
  switch (option.kind) {
    case text:
      require(!value.empty(), source, ": expected ", option.value, ", got nothing");
      return value;
    case choice: {
      const auto choices = choices_of(option);
      require(std::find(choices.begin(), choices.end(), value) != choices.end(), source, " must be ",
              either(choices), ", got '", value, "'");
      return value;
    }
    case count:
      checked_number(option, value, source);
      return std::to_string(*read<std::int64_t>(value));
    case number:
      return shortest(checked_number(option, value, source));
    case numbers: {
      std::string all;
      for (const std::string& part : split(value, ',')) {
        if (!all.empty()) all += ',';
        all += shortest(checked_number(option, part, source));
      }
      return all;
    }
    case flag:
      if (value == "true" || value == "1" || value == "on" || value == "yes") return "true";
      require(value == "false" || value == "0" || value == "off" || value == "no", source,
              " must be true or false, got '", value, "'");
      return "false";
  }
  return value;
}

}  // namespace gravac::train
