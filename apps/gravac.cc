// The program `gravac`: parses the command line and calls one of the commands. Exit codes: 0 done,
// 1 failed, 2 wrong usage. CLI11 parses; unknown commands and options are looked for here, so that
// the error can suggest the nearest name.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/compressors.h"
#include "apps/demo.h"
#include "apps/doctor.h"
#include "apps/list.h"
#include "apps/train.h"
#include "gravac/config.h"
#include "gravac/util/layout.h"
#include "gravac/util/require.h"

namespace {

using gravac::require;

// The name most like `word`. The result points into `names`.
std::string_view nearest_of(std::string_view word, const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string_view meant = gravac::nearest(word, views);
  return *std::find(names.begin(), names.end(), meant);
}

// Throws Error if the first argument is a command that does not exist.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const bool known = std::find(names.begin(), names.end(), argv[1]) != names.end();
  require(known, "no such command '", argv[1], "'; did you mean '", nearest_of(argv[1], names), "'?");
}

// Throws Error if the command line holds arguments that its command does not know.
void check_rest(const CLI::App& command) {
  const std::vector<std::string> rest = command.remaining();
  if (rest.empty()) return;
  const std::string word = rest.front().substr(0, rest.front().find('='));
  require(word.starts_with("--"), "'", rest.front(), "' found, gravac ", command.get_name(),
          " takes options only, such as --help");
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  throw gravac::Error("no such option '" + word + "'; did you mean '" + std::string(nearest_of(word, names)) +
                      "'?");
}

// Extra arguments are allowed here and refused by check_rest(), whose message is better than CLI11's.
CLI::App* add_command(CLI::App& app, const char* name, const char* help) {
  CLI::App* command = app.add_subcommand(name, help);
  command->allow_extras()->group("Commands");
  return command;
}

CLI::App* add_demo(CLI::App& app, gravac::apps::DemoOptions& options) {
  CLI::App* demo =
      add_command(app, "demo", "Train in six ways on a simulated cluster with a slow network, and compare them");
  demo->add_option("--out", options.out, "Folder for the files of all runs; default: a new temporary one");
  demo->add_option("--steps", options.steps, "Steps of each run")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  demo->add_option("--workers", options.workers, "Workers to simulate")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  demo->add_option("--link", options.link, "Network to simulate: RATE,DELAY")->capture_default_str();
  return demo;
}

CLI::App* add_compressors(CLI::App& app, gravac::apps::CompressorsOptions& options) {
  CLI::App* show =
      add_command(app, "compressors", "Compress one gradient with every compressor and compare the results");
  show->add_option("--entries", options.entries, "Length of the gradient")
      ->check(CLI::Range(std::size_t{1}, gravac::kMaxEntries))
      ->capture_default_str();
  show->add_option("--threads", options.threads, "Threads to use")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  show->add_option("--seed", options.seed, "Seed of the gradient and of compressors that draw at random")
      ->capture_default_str();
  return show;
}

gravac::apps::ListFormat list_format(bool json, bool markdown) {
  using gravac::apps::ListFormat;
  return json ? ListFormat::json : markdown ? ListFormat::markdown : ListFormat::text;
}

int usage_error(const std::string& what) {
  std::fprintf(stderr, "gravac: %s\n", what.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("GraVAC: adaptive gradient compression for distributed training", "gravac");
  app.set_version_flag("--version", "gravac " GRAVAC_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.footer(
      "gravac COMMAND --help shows the options of a command. Exit codes: 0 done, 1 failed, 2 wrong usage.");

  CLI::App* train = add_command(app, "train", "Train a model on one machine or many");
  gravac::apps::TrainCommand training(*train);
  bool json = false, markdown = false;
  CLI::App* list = add_command(
      app, "list", "List models, data sets, compressors, policies and exchanges with a description");
  CLI::Option* as_json = list->add_flag("--json", json, "As JSON");
  list->add_flag("--markdown", markdown, "As the tables of docs/, in Markdown")->excludes(as_json);
  CLI::App* doctor =
      add_command(app, "doctor", "Report what this machine and build can do, and what is wrong");
  doctor->add_flag("--json", json, "As JSON");
  gravac::apps::DemoOptions demo_options;
  CLI::App* demo = add_demo(app, demo_options);
  gravac::apps::CompressorsOptions compressors;
  CLI::App* show = add_compressors(app, compressors);

  try {
    check_command(app, argc, argv);
    app.parse(argc, argv);
    for (const CLI::App* command : app.get_subcommands()) check_rest(*command);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what() + std::string(" (see gravac --help)"));
  } catch (const gravac::Error& error) {
    return usage_error(error.what());
  }
  try {
    if (train->parsed()) return training.run({argv, argv + argc});
    if (demo->parsed()) return gravac::apps::show_demo(demo_options);
    if (list->parsed()) gravac::apps::show_list(list_format(json, markdown));
    if (doctor->parsed()) return gravac::apps::show_doctor(json);
    if (show->parsed()) gravac::apps::show_compressors(compressors);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gravac: %s\n", error.what());
    return 1;
  }
}
