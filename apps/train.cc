#include "apps/train.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <optional>

#include "adapters/sockets.h"
#include "apps/catalog.h"
#include "apps/trainer.h"
#include "apps/usage.h"
#include "gravac/util/require.h"
#include "train/folder_lock.h"
#include "train/launch.h"
#include "train/options.h"

namespace gravac::apps {
namespace {

using train::Place;
using train::TrainOption;
using train::TrainOptions;

constexpr std::size_t kColumn = 36, kWidth = 92;  // of help: where descriptions begin, how wide they are

// What --help shows; --help-all shows everything else, too.
constexpr std::string_view kCommon[] = {"model",  "data",    "data-dir", "batch",      "seed",   "workers",
                                        "link",   "emulate", "policy",   "compressor", "factor", "optimizer",
                                        "lr",     "warmup",  "steps",    "epochs",     "until",  "out",
                                        "resume", "config",  "overlap"};

// The heading in help; an option without one is not shown.
std::string group_of(const OptionInfo& option, bool help_shows_all) {
  const bool shown = help_shows_all || std::ranges::find(kCommon, option.name) != std::end(kCommon);
  return shown ? std::string(option.group) : "";
}

// `text` in lines of at most kWidth characters, cut at blanks and after "|" in lists of choices.
std::string wrapped(std::string text) {
  for (std::size_t begin = 0; text.size() - begin > kWidth;) {
    const std::size_t blank = text.rfind(' ', begin + kWidth), bar = text.rfind('|', begin + kWidth - 1);
    const bool at_blank = blank != text.npos && blank > begin && (bar == text.npos || blank > bar);
    if (!at_blank && (bar == text.npos || bar <= begin)) return text;  // one long word
    if (at_blank) {
      text[blank] = '\n';
    } else {
      text.insert(bar + 1, 1, '\n');
    }
    begin = (at_blank ? blank : bar + 1) + 1;
  }
  return text;
}

// Adds --name and --no-name, so that a flag can overrule the file either way. Help shows
// the one that differs from the default.
void add_switch(CLI::App& app, const OptionInfo& option, const std::string& group) {
  const std::string name(option.name);
  std::string help(option.help);
  const bool on = option.default_value == "true";
  app.add_flag("--" + name)->description(help)->group(on ? "" : group);
  if (!help.empty()) help[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(help[0])));
  app.add_flag("--no-" + name)->description("Do not " + help)->group(on ? group : "");
}

// Whether the option may be given without a value, which then is "true".
bool bare_allowed(const OptionInfo& option) {
  return option.kind == OptionInfo::Kind::choice && option.value.starts_with("true|");
}

// Adds an option with a value. CLI11 takes any text; canonical() in option_table.cc checks it later. In
// help, a list of choices that is too long for the left column goes into the description.
void add_value(CLI::App& app, const OptionInfo& option, const std::string& group) {
  std::string value(option.value), help(option.help);
  if (option.name.size() + value.size() > kColumn - 6 && option.kind == OptionInfo::Kind::choice) {
    help += ": " + value;
    value = "NAME";
  }
  if (!option.default_value.empty()) help += " [" + std::string(option.default_value) + "]";
  app.add_option("--" + std::string(option.name))
      ->description(wrapped(help))
      ->group(group)
      ->type_name(value)
      ->expected(bare_allowed(option) ? 0 : 1, 1);
}

// The environment in which to look for a launcher. With --workers, Slurm's variables are hidden: a job
// script may run `gravac train --workers 4`, and then Slurm has started the script, not the workers.
// torchrun and mpirun set their variables only for workers, so those still count.
train::Variables variables_of(const TrainOptions& options) {
  train::Variables all = train::process_environment();
  if (options.workers == 0) return all;
  return [all](const std::string& name) { return name.starts_with("SLURM_") ? std::nullopt : all(name); };
}

// Throws Error if the options contradict the launcher that has started this process.
void check_place(const TrainOptions& options, const Place& place) {
  if (place.source == "gravac") return;
  require(options.workers == 0 || place.size == 1, "--workers ", options.workers, " was given, but ",
          place.source, " has already started ", place.size, " workers; leave --workers out");
  require(!options.emulate || place.size == 1, "--emulate simulates all workers in one process, but ",
          place.source, " has started ", place.size, " processes");
  require(options.backend != "mpi" || place.source != "torchrun",
          "--backend mpi was given, but torchrun has started the workers; start them with mpirun -n ",
          place.size);
  if (options.backend == "gloo" && place.size > 1) train::meeting_of(place, options.out);
}

// Whether this program was built with the backend.
bool built_in(const std::string& backend) {
#ifndef GRAVAC_MPI
  if (backend == "mpi") return false;
#endif
  return !backend.empty();
}

struct LaunchedTraining {
  TrainOptions options;
  std::optional<Place> place;
};

// Completes the settings from environment variables and file, checks them, and finds this process's place.
LaunchedTraining prepare(train::Settings settings) {
  std::vector<const char*> environment;
  for (char** entry = environ; *entry; ++entry) environment.push_back(*entry);
  train::add_variables(settings, environment);
  if (const auto config = settings.find("config"); config != settings.end()) {
    train::add_file(settings, config->second.value);
  }
  LaunchedTraining job{.options = train::train_options(settings, catalog())};
  require(built_in(job.options.backend), "--backend ", job.options.backend,
          " is not in this build; see gravac doctor");
  job.place = train::place_from_environment(variables_of(job.options));
  if (job.place) check_place(job.options, *job.place);
  // Better before workers are started, of which some would wait for those that find out first.
  if (job.options.backend == "gloo" && !job.options.interface.empty())
    own_addresses(job.options.interface);  // throws if this machine has no such network interface
  return job;
}

}  // namespace

TrainCommand::TrainCommand(CLI::App& train, bool help_shows_all) : app_(train) {
  app_.get_formatter()->column_width(kColumn);
  for (const TrainOption& option : train::option_table()) {
    const std::string group = group_of(option, help_shows_all);
    option.kind == OptionInfo::Kind::flag ? add_switch(app_, option, group) : add_value(app_, option, group);
  }
  app_.add_flag("--print-config", print_config_, "Print all options as a TOML file and exit")
      ->group("Output");
  app_.set_help_all_flag("--help-all", "Show all options");
  app_.footer(
      "Every option can also be given as an environment variable (GRAVAC_DATA_DIR=/data) or in the\n"
      "--config file (data-dir = \"/data\"). Flags win over variables, and variables over the file.\n"
      "Example: gravac train --model resnet8 --workers 4 --link 100mbit,1ms --epochs 3 --out run");
}

train::Settings TrainCommand::flags() const {
  train::Settings settings;
  for (const TrainOption& option : train::option_table()) {
    const std::string name(option.name);
    const CLI::Option* given = app_.get_option("--" + name);
    if (option.kind != OptionInfo::Kind::flag) {
      if (given->count() == 0) continue;
      const std::string value = given->results().front();
      settings[name] = {value.empty() && bare_allowed(option) ? "true" : value, "--" + name};
      continue;
    }
    const bool on = given->count() > 0, off = app_.get_option("--no-" + name)->count() > 0;
    require(!(on && off), "--", name, " and --no-", name, " cannot be combined; give one of them");
    if (on) settings[name] = {"true", "--" + name};
    if (off) settings[name] = {"false", "--no-" + name};
  }
  return settings;
}

int TrainCommand::run(const std::vector<std::string>& arguments) const {
  require_trainer();
  const LaunchedTraining job = from_command_line([&] { return prepare(flags()); });
  const TrainOptions& options = job.options;
  if (print_config_) {
    std::fputs(options.config.c_str(), stdout);
    return 0;
  }
  const bool started = job.place && job.place->source == "gravac";
  for (const std::string& warning : options.warnings) {
    if (!started && (!job.place || job.place->rank == 0))
      std::fprintf(stderr, "gravac: %s\n", warning.c_str());
  }
  std::optional<train::FolderLock> lock;  // of workers of other launchers rank 0 has it (train/run.cc)
  try {
    if (!job.place && !options.out.empty()) lock.emplace(options.out);
  } catch (const train::FolderInUse& error) {
    throw UsageError(error.what());
  }
  if (options.workers > 1 && !started) {
    return train::run_workers(
        {.workers = options.workers, .timeout_seconds = options.timeout, .arguments = arguments});
  }
  return trainer().run(options, job.place);
}

}  // namespace gravac::apps
