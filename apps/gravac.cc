// The program `gravac`: parses the command line and calls one of the commands. Exit codes: 0 done,
// 1 failed, 2 wrong usage. CLI11 parses; unknown commands and options are looked for here, so that
// the error can suggest the nearest name.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/compare.h"
#include "apps/compressors.h"
#include "apps/demo.h"
#include "apps/doctor.h"
#include "apps/list.h"
#include "apps/report.h"
#include "apps/simulate.h"
#include "apps/train.h"
#include "apps/usage.h"
#include "gravac/config.h"
#include "gravac/numerics.h"
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
  require(word.starts_with("--"), "gravac ", command.get_name(), " takes only options, such as --help, got '",
          rest.front(), "'");
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
  CLI::App* demo = add_command(
      app, "demo", "Train in six ways on a simulated cluster with a slow network, and compare them");
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

CLI::App* add_compare(CLI::App& app, gravac::apps::CompareOptions& options) {
  CLI::App* compare =
      add_command(app, "compare", "Train all variants of an experiment and compare them in a table");
  compare->add_option("EXPERIMENT", options.experiment, "TOML file with the variants (docs/compare.md)")
      ->required();
  compare->add_option("--out", options.out, "Folder for the files of all runs [runs/EXPERIMENT]")
      ->type_name("DIR");
  compare->add_option("--jobs", options.jobs, "Runs at a time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  compare
      ->add_option("--data-dir", options.data_dir,
                   "Folder with the data sets, each in a folder with its name, or one in the folder itself")
      ->type_name("DIR");
  compare->add_option("--task", options.tasks, "Make the runs of this task only; may be given several times")
      ->type_name("NAME")
      ->allow_extra_args(false);
  compare
      ->add_option("--variant", options.variants,
                   "Make the runs of this variant only; may be given several times")
      ->type_name("NAME")
      ->allow_extra_args(false);
  compare->add_option("--set", options.set, "Option of train for all runs, over those of the file: steps=100")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  compare->add_flag("--keep-checkpoints", options.keep_checkpoints,
                    "Keep the checkpoints of runs that have ended");
  compare->add_flag("--dry-run", options.dry_run, "Print the command line of every run and exit");
  return compare;
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

// What is to be trained, for commands that predict its steps.
void add_job(CLI::App& command, gravac::apps::JobOptions& options) {
  command
      .add_option("--model", options.model, "Model to predict steps of (see gravac list); needs --compute")
      ->type_name("NAME");
  command
      .add_option("--parameters", options.parameters,
                  "Number of parameters, such as 44.5M, instead of --model")
      ->type_name("N");
  command.add_option("--compute", options.compute, "Time of forward and backward in a step, such as 60ms")
      ->type_name("TIME");
}

CLI::App* add_simulate(CLI::App& app, gravac::apps::SimulateOptions& options) {
  CLI::App* simulate = add_command(
      app, "simulate", "Predict steps of every compressor and policy on a cluster, and say which to use");
  simulate->add_option("--run", options.job.run, "Folder of a recorded run (gravac train --out)")
      ->type_name("DIR");
  add_job(*simulate, options.job);
  simulate->add_option("--workers", options.workers, "Workers that train together [as recorded, or 32]")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  simulate->add_option("--link", options.link, "Link of each node [as recorded, or 10gbit,50us]")
      ->type_name("RATE,DELAY");
  simulate
      ->add_option("--workers-per-node", options.workers_per_node,
                   "Workers that share a node and its link; they add up their gradients inside it first")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  simulate->add_option("--inner-link", options.inner_link, "Link between the workers of a node")
      ->type_name("RATE,DELAY")
      ->capture_default_str();
  simulate->add_option("--all-reduce", options.all_reduce, "How sums are made: ring or tree")
      ->type_name("NAME")
      ->capture_default_str();
  simulate->add_flag("--overlap", options.job.overlap,
                     "Exchange gradients while the backward pass still runs");
  simulate
      ->add_option("--compress", options.job.compress,
                   "Time to compress or decode one entry [as recorded, or 0.5ns]")
      ->type_name("TIME");
  simulate
      ->add_option("--options", options.job.engine, "More options of the engine: \"values=fp16 floor=0.8\"")
      ->type_name("TEXT");
  simulate->add_flag("--json", options.json, "As JSON");
  simulate->add_option("--html", options.html, "Also write a page with scaling curves")->type_name("FILE");
  return simulate;
}

struct DoctorOptions {
  gravac::apps::LinkOptions link;
  std::string serve;  // where to listen; empty: everywhere, on the usual port
};

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options, bool& json) {
  CLI::App* doctor = add_command(
      app, "doctor",
      "Report what this machine, this build and its link to another machine can do, and what is wrong");
  doctor->add_flag("--json", json, "As JSON");
  CLI::Option* serve =
      doctor
          ->add_option("--serve", options.serve,
                       "Wait for a measurement of the link to this machine; HOST may be an interface")
          ->expected(0, 1)
          ->type_name("[HOST:]PORT");
  doctor
      ->add_option("--link", options.link.there,
                   "Measure the link to a machine on which gravac doctor --serve runs")
      ->type_name("HOST[:PORT]")
      ->excludes(serve);
  add_job(*doctor, options.link.job);
  doctor->add_option("--workers", options.link.workers, "Workers that would train over such links")
      ->check(CLI::Range(1, 4096))
      ->type_name("N")
      ->capture_default_str();
  return doctor;
}

int run_doctor(const CLI::App& doctor, DoctorOptions& options, bool json) {
  if (doctor.count("--serve") > 0) {
    return gravac::apps::serve_link(options.serve.empty() ? "29470" : options.serve);
  }
  if (doctor.count("--link") == 0) return gravac::apps::show_doctor(json);
  options.link.json = json;
  return gravac::apps::show_link(options.link);
}

CLI::App* add_report(CLI::App& app, gravac::apps::ReportOptions& options) {
  CLI::App* report = add_command(app, "report", "Write one HTML page with the figures of one run or several");
  report->add_option("DIR", options.folders, "Folders of runs, as train --out writes them")->required();
  report->add_option("--out", options.out, "File to write")->capture_default_str();
  return report;
}

CLI::App* add_watch(CLI::App& app, gravac::apps::WatchOptions& options) {
  CLI::App* watch = add_command(app, "watch", "Serve that page on 127.0.0.1, updated while the runs go on");
  watch->add_option("DIR", options.folders, "Folders of runs, as train --out writes them")->required();
  watch->add_option("--port", options.port, "Port to listen on; 0: a free one")->capture_default_str();
  return watch;
}

gravac::apps::ListFormat list_format(bool json, bool markdown) {
  using gravac::apps::ListFormat;
  return json ? ListFormat::json : markdown ? ListFormat::markdown : ListFormat::text;
}

// What `gravac` without arguments prints.
constexpr const char kFirstSteps[] =
    "gravac: name a command. Three to try:\n"
    "\n"
    "  gravac demo                                        dense and compressed training over a slow network, "
    "in "
    "3 minutes\n"
    "  gravac simulate --parameters 25M --compute 200ms   what compression would save on a cluster\n"
    "  gravac train --workers 2 --model resnet8 --steps 40 --link 100mbit,1ms --out run\n"
    "\n"
    "gravac --help lists all commands.\n";

int usage_error(const std::string& what) {
  std::fprintf(stderr, "gravac: %s\n", what.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs(kFirstSteps, stderr);
    return 2;
  }
  CLI::App app("GraVAC: adaptive gradient compression for distributed training", "gravac");
  app.set_version_flag("--version",
                       "gravac " GRAVAC_VERSION ", numerics " + std::to_string(gravac::kNumerics));
  app.require_subcommand(1);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.footer(
      "gravac COMMAND --help shows the options of a command. Exit codes: 0 done, 1 failed, 2 wrong usage.");

  CLI::App* train = add_command(app, "train", "Train a model on one machine or many");
  const bool help_shows_all = std::find(argv, argv + argc, std::string_view("--help-all")) != argv + argc;
  gravac::apps::TrainCommand training(*train, help_shows_all);
  bool json = false, markdown = false;
  CLI::App* list = add_command(
      app, "list", "List models, data sets, compressors, policies and exchanges with a description");
  CLI::Option* as_json = list->add_flag("--json", json, "As JSON");
  list->add_flag("--markdown", markdown, "As the tables of docs/, in Markdown")->excludes(as_json);
  DoctorOptions doctor_options;
  CLI::App* doctor = add_doctor(app, doctor_options, json);
  gravac::apps::SimulateOptions simulate_options;
  CLI::App* simulate = add_simulate(app, simulate_options);
  gravac::apps::DemoOptions demo_options;
  CLI::App* demo = add_demo(app, demo_options);
  gravac::apps::CompareOptions compare_options;
  CLI::App* compare = add_compare(app, compare_options);
  gravac::apps::CompressorsOptions compressors;
  CLI::App* show = add_compressors(app, compressors);
  gravac::apps::ReportOptions report_options;
  CLI::App* report = add_report(app, report_options);
  gravac::apps::WatchOptions watch_options;
  CLI::App* watch = add_watch(app, watch_options);

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
    if (compare->parsed()) return gravac::apps::show_compare(compare_options);
    if (simulate->parsed()) return gravac::apps::show_simulate(simulate_options);
    if (report->parsed()) return gravac::apps::show_report(report_options);
    if (watch->parsed()) return gravac::apps::show_watch(watch_options);
    if (demo->parsed()) return gravac::apps::show_demo(demo_options);
    if (list->parsed()) gravac::apps::show_list(list_format(json, markdown));
    if (doctor->parsed()) return run_doctor(*doctor, doctor_options, json);
    if (show->parsed()) gravac::apps::show_compressors(compressors);
  } catch (const gravac::apps::UsageError& error) {
    return usage_error(error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gravac: %s\n", error.what());
    return 1;
  }
}
