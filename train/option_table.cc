#include "train/option_table.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <sstream>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

using enum OptionInfo::Kind;
using enum OptionInfo::Scope;

constexpr const char kModel[] = "Model and data";
constexpr const char kWorkers[] = "Workers";
constexpr const char kCompression[] = "Compression";
constexpr const char kPolicy[] = "Policies";
constexpr const char kTraining[] = "Training";
constexpr const char kLength[] = "Length and evaluation";
constexpr const char kOutput[] = "Output";

// Defaults of the engine's options are those of gravac/config.cc; without one where
// that depends on the policy or the number of workers.
constexpr OptionInfo kTable[] = {
    {kModel, "model", text, "NAME", "resnet20", "Model to train; see gravac list", run},
    {kModel, "data", text, "NAME", "images", "Data set; images and corpus are built in", run},
    {kModel, "data-dir", text, "DIR", "", "Folder with the files of the data set", here},
    {kModel, "batch", count, "N", "32", "Samples per worker and step", run, 1, 1e6},
    {kModel, "tokens", count, "N", "35", "Length of a sample of text", run, 1, 1e6},
    {kModel, "augment", flag, "", "true", "Shift and mirror images in training", run},
    {kModel, "skew", number, "ALPHA", "", "Dirichlet label skew between workers; small is skewed", run, 0,
     1e6, true},
    {kModel, "seed", count, "N", "0", "Seed of weights, data order and draws", run},

    {kWorkers, "workers", count, "N", "", "Processes to start on this machine", here, 1, 4096},
    {kWorkers, "backend", choice, "gloo|mpi", "gloo", "How workers talk", run},
    {kWorkers, "interface", text, "NAME", "", "Network interface for Gloo", here},
    {kWorkers, "timeout", number, "SECONDS", "60", "Longest wait for another worker", here, 0, 1e6, true},
    {kWorkers, "threads", count, "N", "0", "Threads per worker; 0: its share of the cores", here, 0, 1024},
    {kWorkers, "overlap", flag, "", "false", "Send gradients while backward still runs", run},
    {kWorkers, "bucket", count, "KB", "0",
     "Cut dense gradients, and overlapped ones, into messages of this size; 0: as seems best", run},
    {kWorkers, "link", text, "RATE,DELAY", "", "Rehearse a slow network: 100mbit,1ms", run},
    {kWorkers, "emulate", text, "SPEC", "",
     "Rehearse a cluster in virtual time: workers=32,link=10gbit/50us,compute=60ms", run},

    {kCompression, "policy", choice, "dense|static|gravac|progress|accordion", "progress",
     "Who chooses the factor", engine},
    {kCompression, "compressor", choice, "topk|dgc|redsync|randomk|sidco", "topk", "Who chooses the entries",
     engine},
    {kCompression, "factor", number, "F", "100", "Policy static: send 1 entry in F", engine, 1},
    {kCompression, "factor-min", number, "F", "10", "Lowest factor", engine, 1},
    {kCompression, "factor-max", number, "F", "1000", "Highest factor", engine, 1},
    {kCompression, "granularity", choice, "layer|global", "", "Choose per layer or over the whole gradient",
     engine},
    {kCompression, "values", choice, "fp32|fp16|bf16", "fp32", "Form of values on the wire", engine},
    {kCompression, "exchange", choice, "auto|dense|all-gather|reduce-scatter|shared", "auto",
     "Route that chosen entries take", engine},
    {kCompression, "memory", choice, "residual|momentum", "residual", "What is kept of entries not sent",
     engine},
    {kCompression, "masking", flag, "", "true", "Forget the velocity of entries sent (memory momentum)",
     engine},
    {kCompression, "feedback", flag, "", "true", "Send later what was not sent now", engine},

    {kPolicy, "epsilon", number, "E", "0.7", "gravac: least gain at which a factor may be used", engine, 0,
     1},
    {kPolicy, "omega", number, "W", "0.01", "gravac: difference below which gains count as equal", engine, 0,
     1, false, true},
    {kPolicy, "window", count, "STEPS", "500", "gravac: steps between moves", engine, 1},
    {kPolicy, "smoothing", number, "S", "", "gravac: weight of a new sample; else workers / 100", engine, 0,
     1, true},
    {kPolicy, "ladder", choice, "exponential|geometric", "exponential", "gravac: how factors rise", engine},
    {kPolicy, "gain", choice, "error-fed|gradient", "gradient", "gravac: definition of gain", engine},
    {kPolicy, "interval", count, "STEPS", "", "progress, accordion: steps between moves; else 10, 100",
     engine, 1},
    {kPolicy, "floor", number, "P", "0", "progress: least progress per step, relative to dense", engine, 0,
     1},
    {kPolicy, "progress-exponent", number, "X", "", "progress: progress of a step = gain ^ X; else 1/3",
     engine, 0, 1e3, true},
    {kPolicy, "tail-exponent", number, "X", "1.25", "progress: how fast gain falls with the factor", engine,
     0, 1e3, true},
    {kPolicy, "threshold", number, "T", "0.5", "accordion: change of the norm that is critical", engine},

    {kTraining, "lr", number, "L", "0.1", "Learning rate", run, 0, 1e6, true},
    {kTraining, "momentum", number, "M", "0.9", "Momentum of SGD, or of the memory", run, 0, 1, false, true},
    {kTraining, "nesterov", flag, "", "false", "Nesterov's momentum", run},
    {kTraining, "weight-decay", number, "D", "5e-4", "Weight decay", run, 0, 1e6},
    {kTraining, "clip", number, "NORM", "0", "Clip the gradient to this norm; 0: never", run},
    {kTraining, "schedule", choice, "constant|step|cosine", "cosine", "How the learning rate falls", run},
    {kTraining, "warmup", count, "STEPS", "0", "Steps in which it rises first", run},
    {kTraining, "decay-at", numbers, "SHARES", "0.5,0.75",
     "Schedule step: shares of the run at which it falls", run, 0, 1, true, true},
    {kTraining, "decay-by", number, "X", "0.1", "Schedule step: to X times what it was", run, 0, 1, true},
    {kTraining, "schedule-by", choice, "steps|effective", "steps", "What the schedule counts", run},

    {kLength, "steps", count, "N", "", "Steps to train", run, 1},
    {kLength, "epochs", number, "N", "", "Passes over the data to train; 1 if nothing is said", run, 0, 1e6,
     true},
    {kLength, "until", text, "METRIC=VALUE", "", "Stop when reached: top1=0.80, top5=0.95, ppl=120", run},
    {kLength, "eval-every", count, "STEPS", "0", "Steps between evaluations; 0: once per epoch", run},

    {kOutput, "out", text, "DIR", "", "Folder for reports and checkpoints", here},
    {kOutput, "checkpoint-every", count, "STEPS", "0", "Steps between checkpoints; 0: at the end", run},
    {kOutput, "resume", flag, "", "false", "Go on from the last checkpoint in --out", run},
    {kOutput, "json", flag, "", "false", "Print the summary as JSON", here},
    {kOutput, "config", text, "FILE", "", "Read options from a TOML file", here},
};

// "a, b or c"
std::string either(const std::vector<std::string>& names) {
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) all += i + 1 < names.size() ? ", " : " or ";
    all += names[i];
  }
  return all;
}

std::string shortest(double value) {
  char room[32];
  return std::string(room, std::to_chars(room, room + sizeof(room), value).ptr);
}

// What an option of numbers allows, in words.
std::string range_of(const OptionInfo& option) {
  const std::string kind = option.kind == count ? "a whole number" : "a number";
  const bool bounded = option.most < 1e15;
  if (bounded && !option.above && !option.below) {
    return kind + " from " + shortest(option.least) + " to " + shortest(option.most);
  }
  std::string range = kind + (option.above ? " above " : " of at least ") + shortest(option.least);
  if (bounded) range += (option.below ? " and below " : ", at most ") + shortest(option.most);
  return range;
}

double checked_number(const OptionInfo& option, const std::string& text, const std::string& source) {
  // Counts must also be whole, and fit a file's integers.
  const bool whole = option.kind != count || read<std::int64_t>(text);
  const std::optional<double> value = read<double>(text);
  const bool good = whole && value && *value >= option.least && *value <= std::max(option.most, 1e15) &&
                    (option.most >= 1e15 || *value <= option.most) &&
                    !(option.above && *value == option.least) && !(option.below && *value == option.most);
  require(good, source, ": '", text, "' found, ", range_of(option), " expected");
  return *value;
}

}  // namespace

std::span<const OptionInfo> option_table() {
  return kTable;
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
      require(!value.empty(), source, ": nothing found, ", option.value, " expected");
      return value;
    case choice: {
      const auto choices = split(option.value, '|');
      require(std::find(choices.begin(), choices.end(), value) != choices.end(), source, ": '", value,
              "' found, ", either(choices), " expected");
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
      require(value == "false" || value == "0" || value == "off" || value == "no", source, ": '", value,
              "' found, true or false expected");
      return "false";
  }
  return value;
}

std::string options_as_markdown() {
  std::ostringstream all;
  std::string_view group;
  for (const OptionInfo& option : kTable) {
    if (option.group != group) {
      all << (group.empty() ? "" : "\n") << "### " << option.group
          << "\n\n| option | value | default | what it does |\n|---|---|---|---|\n";
    }
    group = option.group;
    all << "| `--" << option.name << "` | ";
    for (const char c : option.kind == flag ? std::string_view("true|false") : option.value) {
      all << (c == '|' ? "\\" : "") << c;
    }
    all << " | " << option.otherwise << " | " << option.help << " |\n";
  }
  return all.str();
}

}  // namespace gravac::train
