#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gravac::apps {

struct CompareOptions {
  std::string experiment;  // the TOML file
  std::string out;         // folder for all runs; empty: runs/NAME, by the name of the experiment
  std::string data_dir;    // folder with the data sets
  std::vector<std::string> tasks, variants;  // only runs of these are made; empty: all
  std::vector<std::string> set;   // options of `gravac train` that win over those of the file: "steps=100"
  std::size_t jobs = 1;           // how many runs at a time
  bool keep_checkpoints = false;  // of runs that have ended
  bool dry_run = false;           // print the runs and do nothing
};

// Trains all variants of an experiment and compares them (docs/compare.md). Returns the exit code: 0; 1 if a
// run failed; 2 if the file or a folder is not as expected; 128 + the signal that stopped it.
int show_compare(const CompareOptions& options);

}  // namespace gravac::apps
