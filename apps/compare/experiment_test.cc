#include "apps/compare/experiment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "gravac/util/require.h"
#include "train/files_testing.h"

namespace gravac::compare {
namespace {

const train::Catalog kCatalog = {
    .models = {{"mlp", ""}, {"resnet20", ""}, {"lstm-200", "", true}},
    .data = {{"images", ""}, {"cifar10", "", false, true}, {"ptb", "", true, true}}};

class ExperimentFile : public ::testing::Test {
 protected:
  std::vector<Task> read(const std::string& text) {
    std::ofstream(path_) << text;
    additions_.out = "out";
    return read_experiment(path_, additions_, kCatalog);
  }
  std::string refusal(const std::string& text) {
    return train::testing::error_of([&] { read(text); });
  }
  static std::vector<std::string> names(const Task& task) {
    std::vector<std::string> all;
    for (const Variant& variant : task.variants) all.push_back(variant.name);
    return all;
  }
  static std::string value(const compare::ExperimentRun& run, const std::string& option) {
    const auto found = run.settings.find(option);
    return found == run.settings.end() ? "" : found->second.value;
  }

  const train::testing::Folder folder_;
  const std::string path_ = folder_ / "lab.toml";
  Additions additions_;
};

using Names = std::vector<std::string>;

TEST_F(ExperimentFile, HasVariantsInTheOrderOfTheFileEachWithEverySeed) {
  const auto tasks = read(
      "seeds = [3, 1]\n[base]\nmodel = 'mlp'\nsteps = 20\n"
      "[variants.second]\npolicy = 'gravac'\n[variants.first]\npolicy = 'dense'\nsteps = 30\n");
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].name, "");
  EXPECT_EQ(names(tasks[0]), Names({"second", "first"}));
  const Variant& first = tasks[0].variants[1];
  ASSERT_EQ(first.runs.size(), 2u);
  EXPECT_EQ(first.runs[0].folder, "out/first/seed-3");
  EXPECT_EQ(first.runs[1].options.seed, 1u);
  EXPECT_EQ(first.runs[0].options.steps, 30u);
  EXPECT_EQ(first.runs[0].options.model, "mlp");
  EXPECT_EQ(tasks[0].variants[0].runs[0].options.steps, 20u);
}

TEST_F(ExperimentFile, MakesAVariantOfEveryCombinationOfLists) {
  const auto tasks = read(
      "[variants.'{compressor} {factor}x']\npolicy = 'static'\ncompressor = ['topk', 'dgc']\nfactor = [10, "
      "1000]\n"
      "[variants.gravac]\npolicy = 'gravac'\nepsilon = [0.7, 0.9]\n[variants.late]\ndecay-at = [[0.5], [0.5, "
      "0.9]]\n"
      "[variants.usual]\ndecay-at = [0.25, 0.5]\n");
  EXPECT_EQ(names(tasks[0]),
            Names({"topk 10x", "topk 1000x", "dgc 10x", "dgc 1000x", "gravac epsilon=0.7",
                   "gravac epsilon=0.9", "late decay-at=0.5", "late decay-at=0.5,0.9", "usual"}));
  EXPECT_EQ(tasks[0].variants[2].runs[0].folder, "out/dgc-10x/seed-0");
  EXPECT_EQ(value(tasks[0].variants[2].runs[0], "compressor"), "dgc");
  EXPECT_EQ(value(tasks[0].variants[8].runs[0], "decay-at"), "0.25,0.5");
}

TEST_F(ExperimentFile, TakesAnyOptionOfTheTrainerAsAList) {
  for (const train::TrainOption& option : train::option_table()) {
    const Names own = {"config", "json", "out", "resume", "seed"};
    if (std::ranges::find(own, option.name) != own.end()) continue;
    // Values that are no values of the option: only the name is looked at here.
    const std::string what = refusal("[variants.x]\n" + std::string(option.name) + " = ['?', '?']\n");
    EXPECT_EQ(what.find("no such option"), what.npos) << what;
    EXPECT_EQ(what.find("a plain value"), what.npos) << what;
  }
}

TEST_F(ExperimentFile, MakesATaskOfEveryTableAndOfEveryValueInItsLists) {
  const auto tasks = read(
      "target = 'dense'\n[base]\nmodel = 'mlp'\nepochs = 2\n"
      "[tasks.images]\nsteps = 5\nlr = [0.1, 0.2]\ntarget = 'top1=0.5'\ntarget-margin = "
      "0.1\n[tasks.other]\nmodel = 'resnet20'\n"
      "[variants.dense]\npolicy = 'dense'\n");
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[1].name, "images lr=0.2");
  EXPECT_EQ(tasks[1].variants[0].runs[0].folder, "out/images-lr=0.2/dense/seed-0");
  EXPECT_EQ(tasks[1].variants[0].runs[0].options.steps, 5u);
  EXPECT_FALSE(tasks[1].variants[0].runs[0].options.epochs);
  ASSERT_TRUE(tasks[1].target);
  EXPECT_EQ(tasks[1].target->value, 0.5);
  EXPECT_EQ(tasks[1].margin, 0.1);
  EXPECT_EQ(tasks[2].variants[0].runs[0].options.epochs, 2);
  EXPECT_FALSE(tasks[2].target) << "what dense reaches";
}

TEST_F(ExperimentFile, GivesWayToTheCommandLine) {
  additions_.settings["steps"] = {"3", "--set steps"};
  additions_.threads = 2;
  std::filesystem::create_directory(folder_ / "ptb");
  additions_.data_dir = folder_.path();
  const auto tasks = read(
      "[base]\nepochs = 2\n[tasks.a]\nmodel = 'mlp'\n[tasks.b]\nmodel = 'mlp'\ndata = "
      "'cifar10'\n[tasks.c]\nmodel = "
      "'lstm-200'\ndata = 'ptb'\n[variants.x]\nsteps = 7\n");
  EXPECT_EQ(tasks[0].variants[0].runs[0].options.steps, 3u);
  EXPECT_EQ(tasks[0].variants[0].runs[0].options.threads, 2u);
  EXPECT_EQ(tasks[0].variants[0].runs[0].options.data_dir, "");
  EXPECT_EQ(tasks[1].variants[0].runs[0].options.data_dir, folder_.path());
  EXPECT_EQ(tasks[2].variants[0].runs[0].options.data_dir, folder_ / "ptb");
}

TEST_F(ExperimentFile, IsRefusedInOneLineThatNamesFileVariantAndKey) {
  const std::string variant = "[variants.topk]\n";
  EXPECT_EQ(refusal(variant + "factr = 10"),
            path_ + ": variant 'topk': no such option 'factr'; did you mean 'factor'?");
  EXPECT_EQ(refusal(variant + "factor = [10, 0.5]"),
            "factor of variant 'topk' in " + path_ + " must be a number of at least 1, got '0.5'");
  EXPECT_EQ(refusal("seed = 1\n" + variant).substr(0, path_.size() + 43),
            path_ + ": no such key 'seed'; did you mean 'seeds'?");
  EXPECT_EQ(refusal("seeds = [1, 1]\n" + variant),
            "seeds in " + path_ + " must be a list of different whole numbers, such as [1, 2]");
  EXPECT_EQ(refusal(variant + "seed = 1"),
            path_ + ": variant 'topk': seed: give seeds = [1, 2] at the top of the file instead");
  EXPECT_EQ(refusal(variant + "out = 'x'"),
            path_ + ": variant 'topk': out: gravac compare sets this option itself");
  EXPECT_EQ(refusal(variant + "[variants.topk.more]\nlr = 1"),
            path_ + ": variant 'topk': no such option 'more'; did you mean 'model'?");
  EXPECT_EQ(refusal(variant + "factor = []"),
            "factor of variant 'topk' in " + path_ + " must not be an empty list");
  EXPECT_EQ(refusal("base = 3\n" + variant), path_ + ": base must be a table, [base]");
  EXPECT_EQ(refusal(""), path_ + ": there are no variants; give each a table [variants.NAME]");
  EXPECT_EQ(refusal("[variants.'a b']\n[variants.'a/b']\n"),
            path_ + ": the variants 'a b' and 'a/b' would share the folder a-b; give them other names");
  EXPECT_EQ(refusal("[variants.'{factor}x']\n"),
            path_ + ": '{factor}x' names an option in braces that it does not set");
  EXPECT_EQ(refusal("target = 'dense'\n" + variant),
            "target in " + path_ + " is 'dense', but no variant has policy = \"dense\"");
  EXPECT_EQ(refusal("target = 'ppl=5'\n[variants.dense]\npolicy = 'dense'"),
            "target in " + path_ + " ppl=5 was given, but --data images is measured by top1 and top5");
  EXPECT_EQ(refusal("[tasks.a]\ndata = 'cifar10'\n[variants.dense]\n"),
            "data of task 'a' in " + path_ + " cifar10 needs --data-dir, the folder with its files");
  EXPECT_EQ(refusal(variant + "bits = 4\ncompressor = 'topk'"),
            path_ + ": variant 'topk': options: bits is for compressor quantise or qsgd, not 'topk'");
  EXPECT_EQ(refusal("[variants.x]\nlr = = 1").substr(0, path_.size() + 10), path_ + ", line 2: ");
}

TEST_F(ExperimentFile, LetsTheCommandLineSetWhatItMaySetItself) {
  EXPECT_EQ(settings_of({"steps=3", "until=top1=0.5"}).at("until").value, "top1=0.5");
  const auto refusal_of = [](const std::string& word) {
    return train::testing::error_of([&] { settings_of({word}); });
  };
  EXPECT_EQ(refusal_of("steps"), "--set: expected NAME=VALUE, got 'steps'");
  EXPECT_EQ(refusal_of("step=3"), "--set: no such option 'step'; did you mean 'steps'?");
  EXPECT_EQ(refusal_of("out=x"), "--set: out: gravac compare sets this option itself");
}

TEST_F(ExperimentFile, KnowsItsBaselinesByTheirOptions) {
  const auto tasks = read(
      "[variants.mine]\n[variants.a]\npolicy = 'static'\nfactor = 10\n[variants.b]\npolicy = "
      "'static'\ncompressor = "
      "'fp16'\n[variants.c]\npolicy = 'dense'\n[variants.d]\npolicy = 'dense'\nlr = 0.5\n");
  const Baselines found = baselines_of(tasks[0]);
  EXPECT_EQ(found.topk, 1u);
  EXPECT_EQ(found.fp16, 2u);
  EXPECT_EQ(found.dense, 3u) << "the first of two";
  const Baselines none = baselines_of(read("[variants.x]\npolicy = 'static'\nfactor = 100\n")[0]);
  EXPECT_FALSE(none.topk || none.fp16 || none.dense);
}

TEST_F(ExperimentFile, MakesCommandLinesThatGiveEveryOption) {
  const auto tasks = read("seeds = [5]\n[variants.'a b']\nmodel = 'mlp'\noverlap = true\naugment = false\n");
  EXPECT_EQ(arguments_of(tasks[0].variants[0].runs[0]),
            Names({"train", "--model=mlp", "--no-augment", "--seed=5", "--overlap", "--out=out/a-b/seed-5",
                   "--resume=or-begin"}));
}

TEST_F(ExperimentFile, RefusesAFolderWithARunOfOtherOptions) {
  compare::ExperimentRun run = read("[variants.x]\nmodel = 'mlp'\nsteps = 5\n")[0].variants[0].runs[0];
  run.folder = folder_.path();
  EXPECT_NO_THROW(check_folder(run, kCatalog)) << "nothing there yet";
  std::string config = run.options.config;
  std::ofstream(folder_ / "config.toml") << config;
  EXPECT_NO_THROW(check_folder(run, kCatalog));
  std::ofstream(folder_ / "config.toml") << config << "\n"
                                         << "threads = 7\n";
  EXPECT_THROW(check_folder(run, kCatalog), Error) << "threads twice";
  config.replace(config.find("threads = 0"), 11, "threads = 7");
  std::ofstream(folder_ / "config.toml") << config;
  EXPECT_NO_THROW(check_folder(run, kCatalog)) << "threads change no result";
  config.replace(config.find("steps = 5"), 9, "steps = 6");
  std::ofstream(folder_ / "config.toml") << config;
  EXPECT_EQ(train::testing::error_of([&] { check_folder(run, kCatalog); }),
            folder_.path() +
                " holds a run with 'steps = 6', but this experiment has 'steps = 5'; give another --out, or "
                "remove that folder");
}

}  // namespace
}  // namespace gravac::compare
