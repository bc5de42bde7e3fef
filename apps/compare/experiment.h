#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "train/options.h"
#include "train/settings.h"

// What `gravac compare` is asked to run: the experiment file (docs/compare.md) as a list of trainings.

namespace gravac::compare {

// One training.
struct ExperimentRun {
  std::string folder;  // of its files: OUT/TASK/VARIANT/seed-1
  std::string seed;
  train::Settings settings;     // the options of `gravac train`
  train::TrainOptions options;  // the same, checked
};

// A row of the table: one set of options, trained once with every seed.
struct Variant {
  std::string name;
  std::vector<ExperimentRun> runs;
};

// Variants that are compared with each other: on one model, data set and cluster.
struct Task {
  std::string name, folder;  // empty if there is only one task
  std::vector<Variant> variants;
  // The time to this value is compared. Nothing: to what the dense variant reaches at its end, if there is
  // one.
  std::optional<train::TrainOptions::Until> target;
  double margin = 0;  // how much worse than that may be and still counts, as a share
};

// What the command line adds to the file.
struct Additions {
  std::string out;           // folder for all runs
  train::Settings settings;  // win over those of the file
  std::string data_dir;  // holds the data sets: each in a folder with its name, or one in the folder itself
  std::size_t threads = 0;  // of a run that does not give them; 0: as many as `gravac train` uses by itself
};

// Reads an experiment and checks the options of every run. Throws Error of one line that names the file, the
// variant and the option.
std::vector<Task> read_experiment(const std::string& path, const Additions& additions,
                                  const train::Catalog& catalog);

// Options of the command line, each as NAME=VALUE. Throws Error.
train::Settings settings_of(const std::vector<std::string>& words);

// The variants with which the others are compared, recognised by their options, of several the first.
struct Baselines {
  std::optional<std::size_t> dense;  // policy dense
  std::optional<std::size_t> fp16;   // policy static, compressor fp16
  // Policy static, compressor topk, factor 10; one with 64-bit positions, as the paper sends them, before
  // others.
  std::optional<std::size_t> topk;
};
Baselines baselines_of(const Task& task);

// The command line of a run, without the program: "train", "--model=mlp", ...
std::vector<std::string> arguments_of(const ExperimentRun& run);

// Throws Error if the folder of a run holds a run with other options; the message names one of them. Where
// the run lies, where its data lie and how many threads it uses may differ.
void check_folder(const ExperimentRun& run, const train::Catalog& catalog);

}  // namespace gravac::compare
