#include "train/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gravac/aggregator.h"
#include "gravac/comm/thread_comm.h"
#include "gravac/util/clock.h"
#include "gravac/util/require.h"

namespace gravac::train {
namespace {

using Kind = OptionInfo::Kind;
using Scope = TrainOption::Scope;

// The value of every option, as given or the table's default. The constructor checks each value by
// itself and throws Error.
class Checked {
 public:
  explicit Checked(const Settings& given) {
    for (const TrainOption& option : option_table()) {
      Setting& setting = all_[std::string(option.name)];
      const auto found = given.find(option.name);
      setting = found != given.end()
                    ? found->second
                    : Setting{std::string(option.default_value), "--" + std::string(option.name)};
      if (found != given.end() || !option.default_value.empty())
        setting.value = canonical(option, setting.value, setting.source);
      if (found != given.end()) given_.push_back(option.name);
    }
  }

  // Gives an option of the table a value, unless the user has.
  void set_default(std::string_view name, std::string_view value) {
    if (given(name)) return;
    Setting& setting = all_.find(name)->second;
    const auto option =
        std::ranges::find(option_table(), name, [](const TrainOption& one) { return one.name; });
    setting.value = canonical(*option, std::string(value), setting.source);
  }

  // REQUIRES, here and below: an option of the table; number() and count() also a value.
  const Setting& operator[](std::string_view name) const { return all_.find(name)->second; }
  const std::string& text(std::string_view name) const { return (*this)[name].value; }
  const std::string& source(std::string_view name) const { return (*this)[name].source; }
  bool has(std::string_view name) const { return !text(name).empty(); }
  bool given(std::string_view name) const {
    return std::find(given_.begin(), given_.end(), name) != given_.end();
  }
  bool on(std::string_view name) const { return text(name) == "true"; }
  double number(std::string_view name) const { return *read<double>(text(name)); }
  std::size_t count(std::string_view name) const {
    return static_cast<std::size_t>(*read<std::int64_t>(text(name)));
  }
  // The option with its value, as messages name it: "--lr 0.5".
  std::string quote(std::string_view name) const { return source(name) + " " + text(name); }

 private:
  Settings all_;
  std::vector<std::string_view> given_;
};

Link link_of(const std::string& text, const std::string& source) {
  try {
    return link_from_string(text);
  } catch (const Error& error) {
    throw Error(source + ": " + error.what());
  }
}

// Reads "workers=32,link=10gbit/50us,compute=60ms". The link has a slash because commas separate parts.
TrainOptions::Emulate emulate_of(const Setting& setting) {
  constexpr std::string_view kParts[] = {"workers", "link", "compute", "compress"};
  std::map<std::string, std::string, std::less<>> parts;
  for (const std::string& part : split(setting.value, ',')) {
    const std::size_t equals = std::min(part.find('='), part.size());
    const std::string name = part.substr(0, equals);
    require(std::find(std::begin(kParts), std::end(kParts), name) != std::end(kParts) && equals < part.size(),
            setting.source,
            ": expected workers=N,link=RATE/DELAY,compute=TIME and optionally compress=TIME, got '", part,
            "'");
    require(parts.emplace(name, part.substr(equals + 1)).second, setting.source, ": ", name,
            " is given twice");
  }
  for (const char* needed : {"workers", "link", "compute"}) {
    require(parts.contains(needed), setting.source, ": there is no ", needed, "= in '", setting.value,
            "'; expected workers=N,link=RATE/DELAY,compute=TIME");
  }
  const auto workers = read<std::int64_t>(parts["workers"]);
  require(workers && *workers >= 1 && *workers <= 4096, setting.source,
          ": workers must be a whole number from 1 to 4096, got '", parts["workers"], "'");
  return {.workers = static_cast<std::size_t>(*workers),
          .link = link_of(parts["link"], setting.source),
          .compute_seconds = seconds_from_string(parts["compute"], setting.source),
          .compress_seconds_per_entry =
              parts.contains("compress") ? seconds_from_string(parts["compress"], setting.source) : 0};
}

// Reads "top1=0.80" or "ppl=120".
TrainOptions::Until until_of(const Setting& setting) {
  const std::size_t equals = std::min(setting.value.find('='), setting.value.size());
  const std::string metric = setting.value.substr(0, equals);
  const std::string number = setting.value.substr(std::min(equals + 1, setting.value.size()));
  const double value = read<double>(number).value_or(std::nan(""));
  const bool share = metric == "top1" || metric == "top5";
  require((share || metric == "ppl") && !std::isnan(value), setting.source,
          " must be top1=SHARE, top5=SHARE or ppl=VALUE, got '", setting.value, "'");
  require(share ? value > 0 && value <= 1 : value >= 1 && std::isfinite(value), setting.source, " must be ",
          share ? "a share above 0 and at most 1" : "a perplexity of at least 1", ", got '", setting.value,
          "'");
  return {.metric = metric, .value = value};
}

// The model or data set that the setting names. Throws Error with the known names and the nearest one.
const Known& known(const std::vector<Known>& all, const Setting& setting, const char* what) {
  std::vector<std::string_view> names;
  for (const Known& entry : all) {
    if (entry.name == setting.value) return entry;
    names.push_back(entry.name);
  }
  require(!names.empty(), setting.source, ": this build has no ", what);
  throw Error(setting.source + ": no such " + what + " '" + setting.value + "'; did you mean '" +
              std::string(nearest(setting.value, names)) + "'? Known: " + listed(names));
}

// Each optimizer has settings of its own, and defaults of its own for those that all have.
struct OptimizerDefaults {
  std::string_view name, lr, weight_decay;
};
constexpr OptimizerDefaults kOptimizers[] = {
    {"sgd", "0.1", "5e-4"}, {"adam", "1e-3", "0"}, {"adamw", "1e-3", "0.01"}};
constexpr std::pair<std::string_view, std::string_view> kSgdOnly[] = {{"momentum", "0.9"}};
constexpr std::pair<std::string_view, std::string_view> kAdamOnly[] = {
    {"beta1", "0.9"}, {"beta2", "0.999"}, {"eps", "1e-8"}};

// Gives the settings that the optimizer has their defaults. Those that it does not have keep no value, and
// must not be given.
void set_optimizer_defaults(Checked& in) {
  const std::string& optimizer = in.text("optimizer");
  const bool sgd = optimizer == "sgd";
  for (const OptimizerDefaults& one : kOptimizers) {
    if (one.name != optimizer) continue;
    in.set_default("lr", one.lr);
    in.set_default("weight-decay", one.weight_decay);
  }
  const auto refuse = [&](std::string_view name) {
    throw Error(in.quote(name) + " is for --optimizer " + (sgd ? "adam or adamw" : "sgd") + ", not " +
                in.quote("optimizer"));
  };
  for (const auto& [name, value] : kSgdOnly) {
    if (sgd) in.set_default(name, value);
    if (!sgd && in.given(name)) refuse(name);
  }
  for (const auto& [name, value] : kAdamOnly) {
    if (!sgd) in.set_default(name, value);
    if (sgd && in.given(name)) refuse(name);
  }
  if (sgd) return;
  if (in.on("nesterov")) refuse("nesterov");
  if (in.text("memory") == "momentum") refuse("memory");
  if (in.given("effective-momentum")) refuse("effective-momentum");
}

// Model, data set and metric must fit together, and files be given exactly if the data set needs them.
void check_data(const Checked& in, const Catalog& catalog) {
  const Known& model = known(catalog.models, in["model"], "model");
  const Known& data = known(catalog.data, in["data"], "data set");
  const char* const kinds[] = {"images", "text"};
  require(model.text == data.text, in.quote("model"), " is made for ", kinds[model.text], ", but ",
          in.quote("data"), " holds ", kinds[data.text]);
  require(!data.needs_files || in.has("data-dir"), in.quote("data"),
          " needs --data-dir, the folder with its files");
  require(data.needs_files || !in.has("data-dir"), in.quote("data-dir"), " was given, but ", in.quote("data"),
          " is built in and reads no files");
  require(!in.has("skew") || !data.text, in.quote("skew"), " needs labelled images, but ", in.quote("data"),
          " is text");
  if (in.has("until")) {
    const bool perplexity = until_of(in["until"]).metric == "ppl";
    require(perplexity == data.text, in.quote("until"), " was given, but ", in.quote("data"),
            " is measured by ", data.text ? "ppl" : "top1 and top5");
  }
}

// How workers are started must fit the backend, and --emulate excludes real workers.
void check_workers(const Checked& in) {
  const bool mpi = in.text("backend") == "mpi";
  require(!(mpi && in.has("workers")), in.quote("workers"), " starts workers over Gloo; with ",
          in.quote("backend"), " start them with mpirun -n ", in.text("workers"));
  require(!(mpi && in.has("interface")), in.quote("interface"), " is for --backend gloo, not mpi");
  if (!in.has("emulate")) return;
  const auto forbid = [&](bool given, std::string_view other) {
    require(!given, in.source("emulate"), " simulates all workers in this process; ", in.source(other), " ",
            "cannot be combined with it");
  };
  forbid(in.has("link"), "link");
  forbid(in.has("workers"), "workers");
  forbid(in.on("overlap"), "overlap");
  forbid(mpi, "backend");
}

void check_training(const Checked& in) {
  require(!in.has("compute") || in.on("deterministic"), in.quote("compute"),
          " is for --deterministic; other runs measure how long steps take");
  const bool momentum_memory = in.text("memory") == "momentum";
  require(!(momentum_memory && in.on("nesterov")), in.quote("memory"),
          " applies the momentum itself and has no Nesterov variant; leave ", in.source("nesterov"), " out");
  require(!in.on("nesterov") || in.number("momentum") > 0, in.source("nesterov"),
          " needs a momentum above 0, got ", in.quote("momentum"));
  require(!(in.has("steps") && in.has("epochs")), in.quote("steps"), " and ", in.quote("epochs"),
          " cannot be combined; give one of them");
  require(!in.has("steps") || in.count("warmup") <= in.count("steps"), in.quote("warmup"),
          " is longer than the run, ", in.quote("steps"));
  require(in.has("out") || in.text("resume") == "false", in.source("resume"),
          " needs --out, the folder with the checkpoints");
  require(in.has("out") || in.count("checkpoint-every") == 0, in.quote("checkpoint-every"),
          " needs --out, the folder for the checkpoints");
  const auto shares = split(in.text("decay-at"), ',');
  for (std::size_t i = 1; i < shares.size(); ++i) {
    require(*read<double>(shares[i - 1]) < *read<double>(shares[i]), in.source("decay-at"),
            " must be ascending shares, got '", in.text("decay-at"), "'");
  }
}

// The options that the engine is given: those that differ from its defaults. With memory
// momentum it also gets the optimizer's momentum, weight decay and clipping, which it then does.
Options options_for_engine(const Checked& in) {
  Options options;
  for (const TrainOption& option : option_table()) {
    if (option.scope != Scope::engine || !in.has(option.name)) continue;
    const std::string& value = in.text(option.name);
    if (option.default_value.empty() || value != canonical(option, std::string(option.default_value), "")) {
      options.emplace(option.name, value);
    }
  }
  // The seed belongs to the run, but randomk and the sampling compressors draw from it too.
  if (in.text("seed") != "0") options["seed"] = in.text("seed");
  // Virtual times repeat by themselves.
  if (in.on("deterministic") && !in.has("emulate")) {
    options["deterministic"] = "true";
    for (const char* name : {"link", "compute"}) {
      if (in.has(name)) options[name] = in.text(name);
    }
  }
  options["optimizer"] = in.text("optimizer") == "sgd" ? "sgd" : "adam";  // adamw, too, to policies
  if (in.text("memory") == "momentum") {
    for (const char* name : {"momentum", "weight-decay", "clip"}) options[name] = in.text(name);
  }
  // A tenth of the run if its length is known, but not more than long runs need.
  constexpr std::int64_t kLongestStart = 60;
  if (!in.given("start-steps") && policy_info(in.text("policy")).reads("start-steps")) {
    const std::int64_t tenth = in.has("steps") ? in.count("steps") / 10 : kLongestStart;
    options["start-steps"] = std::to_string(std::min(tenth, kLongestStart));
  }
  // Bits and ranks stand for a static factor, which the summary should say, too.
  if (in.given("bits") || in.given("rank")) {
    options["policy"] = in.given("policy") ? in.text("policy") : "static";
  }
  return options;
}

// Builds an engine, because the library finds errors that cannot be found here. Returns its warnings.
std::vector<std::string> check_engine(const Checked& in, const Options& options) {
  require(!in.has("factor-min") || in.number("factor-min") <= in.number("factor-max"), in.quote("factor-min"),
          " is above ", in.quote("factor-max"));
  Layout layout;
  layout.add("weights", 64);
  EngineSetup setup = make_setup(options, layout, 1);
  ThreadGroup group(1);
  const auto comm = group.join(0);
  SteadyClock clock;
  Aggregator(layout, std::move(setup.policy), setup.options, *comm, clock);
  return setup.warnings;
}

// `text` as a TOML string.
std::string quoted(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) {
      all += c;
      continue;
    }
    char room[8];
    std::snprintf(room, sizeof(room), "\\u%04x", static_cast<unsigned>(c));
    all += room;
  }
  return all + "\"";
}

// The value of an option, except that bits and rank stand for policy static, which may not have been given.
std::string value_of(const Checked& in, std::string_view name) {
  return name == "policy" && (in.has("bits") || in.has("rank")) ? "static" : in.text(name);
}

// Every option as a line "name = value"; options without a value become comments.
std::string to_toml(const Checked& in) {
  std::string all = "# All options of this run. To use them again: gravac train --config THIS_FILE\n";
  std::string_view group;
  for (const TrainOption& option : option_table()) {
    if (option.name == "config") continue;
    if (option.group != group) all += "\n# " + std::string(option.group) + "\n";
    group = option.group;
    const std::string value = value_of(in, option.name);
    const bool bare = option.kind == Kind::count || option.kind == Kind::number || option.kind == Kind::flag;
    if (value.empty()) {
      all += "# " + std::string(option.name) + " = " + std::string(option.value) + "\n";
    } else {
      all += std::string(option.name) + " = " +
             (bare                           ? value
              : option.kind == Kind::numbers ? "[" + value + "]"
                                             : quoted(value)) +
             "\n";
    }
  }
  return all;
}

}  // namespace

// A unit is required: a bare number could be read as seconds or as
// milliseconds.
double seconds_from_string(const std::string& text, const std::string& source) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789.e-+"), text.size());
  const auto value = read<double>(std::string_view(text).substr(0, digits));
  for (const auto& [unit, seconds] : kUnits) {
    if (value && *value >= 0 && std::isfinite(*value) && text.substr(digits) == unit) return *value * seconds;
  }
  throw Error(source + ": expected a time such as 60ms, got '" + text + "'");
}

bool TrainOptions::momentum_memory() const {
  const auto memory = engine.find("memory");
  return memory != engine.end() && memory->second == "momentum";
}

TrainOptions train_options(const Settings& settings, const Catalog& catalog) {
  Checked in(settings);
  set_optimizer_defaults(in);
  check_data(in, catalog);
  check_workers(in);
  check_training(in);
  TrainOptions out;
  out.engine = options_for_engine(in);
  out.warnings = check_engine(in, out.engine);

  out.model = in.text("model");
  out.data = in.text("data");
  out.data_dir = in.text("data-dir");
  if (in.has("workers")) out.workers = in.count("workers");
  out.backend = in.text("backend");
  out.overlap = in.on("overlap");
  out.bucket = in.count("bucket");
  out.batch = in.count("batch");
  out.optimizer = in.text("optimizer");
  out.lr = in.number("lr");
  if (in.has("momentum")) out.momentum = in.number("momentum");
  if (in.has("beta1")) out.beta1 = in.number("beta1");
  if (in.has("beta2")) out.beta2 = in.number("beta2");
  if (in.has("eps")) out.eps = in.number("eps");
  out.weight_decay = in.number("weight-decay");
  out.clip = in.number("clip");
  out.nesterov = in.on("nesterov");
  out.schedule = in.text("schedule");
  out.warmup = in.count("warmup");
  out.decay_at.clear();
  for (const std::string& share : split(in.text("decay-at"), ','))
    out.decay_at.push_back(*read<double>(share));
  out.decay_by = in.number("decay-by");
  out.schedule_by_effective = in.text("schedule-by") == "effective";
  if (in.has("steps")) out.steps = in.count("steps");
  if (in.has("epochs")) out.epochs = in.number("epochs");
  if (in.has("until")) out.until = until_of(in["until"]);
  out.eval_every = in.count("eval-every");
  out.window_tokens = in.count("tokens");
  out.augment = in.on("augment");
  if (in.has("skew")) out.skew = in.number("skew");
  out.seed = in.count("seed");
  out.deterministic = in.on("deterministic");
  out.timeout = in.number("timeout");
  if (in.has("link")) out.link = link_of(in.text("link"), in.source("link"));
  if (in.has("emulate")) out.emulate = emulate_of(in["emulate"]);
  out.checkpoint_every = in.count("checkpoint-every");
  out.start = in.on("resume")                   ? TrainOptions::Start::resume
              : in.text("resume") == "or-begin" ? TrainOptions::Start::resume_or_begin
                                                : TrainOptions::Start::anew;
  out.out = in.text("out");
  out.json = in.on("json");
  out.threads = static_cast<unsigned>(in.count("threads"));
  out.interface = in.text("interface");

  out.config = to_toml(in);
  for (const TrainOption& option : option_table()) {
    if (option.scope == Scope::same) out.facts.emplace_back(option.name, in.text(option.name));
    if (option.scope == Scope::engine || option.resume == TrainOption::Resume::may_change) continue;
    out.fixed.emplace_back(option.name, in.has(option.name) ? in.text(option.name) : "not set");
  }
  return out;
}

}  // namespace gravac::train
