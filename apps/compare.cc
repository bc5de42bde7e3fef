#include "apps/compare.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "apps/catalog.h"
#include "apps/compare/comparison.h"
#include "apps/compare/experiment.h"
#include "apps/compare/results.h"
#include "apps/compare/runner.h"
#include "apps/compare/tables.h"
#include "apps/report/figures.h"
#include "apps/report/page.h"
#include "apps/report/run_folder.h"
#include "apps/trainer.h"
#include "apps/usage.h"
#include "gravac/util/clock.h"
#include "gravac/util/names.h"
#include "gravac/util/require.h"
#include "train/file.h"
#include "train/folder_lock.h"
#include "train/launch.h"
#include "train/progress_line.h"

namespace gravac::apps {
namespace {

namespace fs = std::filesystem;
using compare::ExperimentRun;
using compare::Result;
using compare::Task;
using compare::Variant;

// A run, and its place in the experiment.
struct ScheduledRun {
  const Task* task;
  const Variant* variant;
  const ExperimentRun* run;

  std::string name() const {
    return (task->name.empty() ? "" : task->name + ", ") + variant->name + ", seed " + run->seed;
  }
};

std::vector<ScheduledRun> schedule_of(const std::vector<Task>& tasks) {
  std::vector<ScheduledRun> all;
  for (const Task& task : tasks) {
    for (const Variant& variant : task.variants) {
      for (const ExperimentRun& run : variant.runs) all.push_back({&task, &variant, &run});
    }
  }
  return all;
}

std::vector<Task> read_tasks(const CompareOptions& options, const std::string& out) {
  const compare::Additions additions{
      .out = out,
      .settings = compare::settings_of(options.set),
      .data_dir = options.data_dir,
      // Runs that share the machine share its cores.
      .threads = options.jobs > 1 ? train::share_of_cores({.local_size = options.jobs}) : 0};
  return read_experiment(options.experiment, additions, catalog());
}

// The runs that were asked for, by tasks and variants.
std::vector<ScheduledRun> wanted(const std::vector<Task>& tasks, const CompareOptions& options) {
  const auto asked_for = [](const std::vector<std::string>& names, const std::string& name) {
    return names.empty() || std::ranges::find(names, name) != names.end();
  };
  std::vector<ScheduledRun> runs = schedule_of(tasks);
  std::erase_if(runs, [&](const ScheduledRun& scheduled) {
    return !asked_for(options.tasks, scheduled.task->name) ||
           !asked_for(options.variants, scheduled.variant->name);
  });
  return runs;
}

// Throws Error if one of the names is not among the `known` names of tasks or variants, which is what `kind`
// says.
void check_names(const std::vector<std::string>& names, const std::string& kind,
                 const std::vector<std::string_view>& known) {
  for (const std::string& name : names) {
    require(std::ranges::find(known, name) != known.end(), "--", kind, ": no such ", kind, " '", name,
            "'; did you mean '", nearest(name, known), "'?");
  }
}

// A word of a command line as a shell reads it.
std::string for_shell(const std::string& word) {
  const bool plain = word.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                         "-_=./,:+@%") == word.npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void print_runs(const std::vector<ScheduledRun>& runs) {
  for (const ScheduledRun& scheduled : runs) {
    std::string line = "gravac";
    for (const std::string& word : arguments_of(*scheduled.run)) line += " " + for_shell(word);
    std::printf("%s\n", line.c_str());
  }
}

void write_file(const std::string& path, const std::string& text) {
  train::File(path, O_WRONLY | O_CREAT | O_TRUNC).write(text);
}

// The comparison as a whole: which runs have ended, what they came to, how long the others will take.
class Comparing {
 public:
  Comparing(const std::vector<Task>& tasks, const CompareOptions& options, std::string out)
      : tasks_(tasks),
        options_(options),
        out_(std::move(out)),
        asked_(wanted(tasks, options)),
        line_(stderr, train::terminal_of(stderr, nullptr).terminal) {
    for (const ScheduledRun& scheduled : schedule_of(tasks)) {
      if (auto result = compare::read_result(scheduled.run->folder))
        results_[scheduled.run] = std::move(*result);
    }
  }

  int run() {
    std::vector<compare::Command> commands;
    for (const ScheduledRun& scheduled : asked_) {
      if (results_.contains(scheduled.run)) continue;
      waiting_.push_back(scheduled);
      commands.push_back({arguments_of(*scheduled.run), scheduled.run->folder + "/log.txt"});
    }
    note(std::to_string(asked_.size()) + " runs in " + out_ + "; done already: " + std::to_string(done()));
    const int signal = run_all(commands, options_.jobs,
                               {.began = [&](std::size_t i) { began(i); },
                                .ended = [&](std::size_t i, int code) { ended(i, code); },
                                .tick = [&] { show(); }});
    line_.finish();
    write_tables();
    try {
      write_reports();
    } catch (const Error& error) {
      note(error.what());  // the tables count more
    }
    std::fputs(to_markdown(comparisons()).c_str(), stdout);
    std::printf("\nFiles: %s/comparison.md, comparison.json, report%s.html\n", out_.c_str(),
                tasks_.size() > 1 ? "-TASK" : "");
    if (signal != 0) {
      note("stopped; done: " + std::to_string(done()) + " of " + std::to_string(asked_.size()) +
           " runs; the same command goes on from here");
      return 128 + signal;
    }
    if (failed_ > 0)
      note("failed: " + std::to_string(failed_) + " of " + std::to_string(asked_.size()) + " runs");
    return failed_ > 0 ? 1 : 0;
  }

 private:
  std::size_t done() const { return asked_.size() - waiting_.size() + ended_here_; }

  void began(std::size_t number) {
    const ScheduledRun& scheduled = waiting_[number];
    fs::create_directories(scheduled.run->folder);
    going_[number] = clock_.now();
    if (!line_.terminal()) note("begun: " + scheduled.name());
  }

  void ended(std::size_t number, int code) {
    const ScheduledRun& scheduled = waiting_[number];
    const double seconds = clock_.now() - going_[number];
    going_.erase(number);
    auto result = compare::read_result(scheduled.run->folder);
    if (code != 0 || !result) {
      ++failed_;
      const std::string log = scheduled.run->folder + "/log.txt";
      note("failed: " + scheduled.name() + ": exit code " + std::to_string(code) + ": " +
           compare::last_line(log) + " (" + log + ")");
      return;
    }
    results_[scheduled.run] = std::move(*result);
    if (!options_.keep_checkpoints) fs::remove_all(scheduled.run->folder + "/checkpoints");
    run_seconds_ += seconds;
    ++ended_here_;
    note("done: " + scheduled.name() + ", in " + train::duration(seconds) +
         (line_.terminal() ? "" : "; " + status()));
    write_tables();
  }

  // "3 of 12 runs done, 2 going, about 4:10 left"
  std::string status() const {
    std::string text = std::to_string(done()) + " of " + std::to_string(asked_.size()) + " runs done";
    if (failed_ > 0) text += ", " + std::to_string(failed_) + " failed";
    if (!going_.empty()) text += ", " + std::to_string(going_.size()) + " going";
    if (ended_here_ == 0) return text;
    const double each = run_seconds_ / static_cast<double>(ended_here_);
    double left = each * static_cast<double>(waiting_.size() - ended_here_ - failed_ - going_.size());
    for (const auto& [number, began] : going_) left += std::max(0.0, each - (clock_.now() - began));
    left /= static_cast<double>(options_.jobs);
    return left > 0 ? text + ", about " + train::duration(left) + " left" : text;
  }

  void show() {
    if (line_.terminal()) line_.draw(status());
  }

  void note(const std::string& text) { line_.note("gravac: " + text); }

  std::vector<compare::Comparison> comparisons() const {
    std::vector<compare::Comparison> all;
    for (const Task& task : tasks_) {
      std::vector<compare::Results> results(task.variants.size());
      for (std::size_t i = 0; i < task.variants.size(); ++i) {
        for (const ExperimentRun& run : task.variants[i].runs) {
          if (const auto found = results_.find(&run); found != results_.end())
            results[i].push_back(found->second);
        }
      }
      all.push_back(compare::compare(task, results));
    }
    return all;
  }

  void write_tables() const {
    write_file(out_ + "/comparison.md", to_markdown(comparisons()));
    write_file(out_ + "/comparison.json", to_json(comparisons()));
  }

  // A page for each task, with the first seed of each variant that has ended: more curves cannot be told
  // apart.
  void write_reports() {
    for (const Task& task : tasks_) {
      std::vector<report::RunHistory> runs;
      for (const Variant& variant : task.variants) {
        const auto run = std::ranges::find_if(
            variant.runs, [&](const ExperimentRun& one) { return results_.contains(&one); });
        if (run == variant.runs.end()) continue;
        runs.push_back(report::RunFolder(run->folder).run());
        runs.back().name = variant.name + (variant.runs.size() > 1 ? ", seed " + run->seed : "");
      }
      const std::string name = tasks_.size() > 1 ? "report-" + task.folder : "report";
      if (!runs.empty())
        write_file(out_ + "/" + name + ".html", page(report::data_of(runs), report::PageKind::file));
    }
  }

  const std::vector<Task>& tasks_;
  const CompareOptions& options_;
  std::string out_;
  std::vector<ScheduledRun> asked_, waiting_;  // the runs that were asked for; those that had not ended yet
  std::map<const ExperimentRun*, Result> results_;  // of runs that have ended
  std::map<std::size_t, double> going_;             // when they began, by number in waiting_
  std::size_t ended_here_ = 0, failed_ = 0;
  double run_seconds_ = 0;  // of runs that have ended here
  SteadyClock clock_;
  train::LiveLine line_;
};

}  // namespace

int show_compare(const CompareOptions& options) {
  require_trainer();
  const std::string out =
      options.out.empty() ? "runs/" + fs::path(options.experiment).stem().string() : options.out;
  const std::vector<Task> tasks = from_command_line([&] {
    std::vector<Task> all = read_tasks(options, out);
    check_names(options.tasks, "task", names_of(all));
    check_names(options.variants, "variant", names_of(all[0].variants));
    for (const ScheduledRun& scheduled : schedule_of(all)) check_folder(*scheduled.run, catalog());
    return all;
  });
  if (options.dry_run) {
    print_runs(wanted(tasks, options));
    return 0;
  }
  const auto lock = from_command_line([&] { return std::make_unique<train::FolderLock>(out); });
  return Comparing(tasks, options, out).run();
}

}  // namespace gravac::apps
