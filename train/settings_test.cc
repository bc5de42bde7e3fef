#include "train/settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "gravac/util/require.h"
#include "train/files_testing.h"
#include "train/option_table.h"

namespace gravac::train {
namespace {

class SettingsFile : public ::testing::Test {
 protected:
  Settings read(const std::string& text) const {
    std::ofstream(path_) << text;
    Settings settings;
    add_file(settings, path_);
    return settings;
  }
  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  const testing::Folder folder_;
  const std::string path_ = folder_ / "run.toml";
};

Settings variables(std::vector<const char*> environment) {
  Settings settings;
  add_variables(settings, environment);
  return settings;
}

TEST_F(SettingsFile, HoldsOptionsInTheFormsOfToml) {
  const Settings settings =
      read("lr = 0.5\nsteps = 1_000\noverlap = true\nmodel = 'mlp'\ndecay-at = [0.25, 0.5]\nepsilon = '0.7'");
  EXPECT_EQ(settings.at("lr").value, "0.5");
  EXPECT_EQ(settings.at("steps").value, "1000");
  EXPECT_EQ(settings.at("overlap").value, "true");
  EXPECT_EQ(settings.at("model").value, "mlp");
  EXPECT_EQ(settings.at("decay-at").value, "0.25,0.5");
  EXPECT_EQ(settings.at("epsilon").value, "0.7");
  EXPECT_EQ(settings.at("lr").source, "lr in " + path_);
  EXPECT_TRUE(read("").empty());
}

TEST_F(SettingsFile, WithAnUnknownKeyIsRefusedWithTheNearest) {
  EXPECT_EQ(refusal("epsilom = 0.5"), "no such option 'epsilom' in " + path_ + "; did you mean 'epsilon'?");
  EXPECT_EQ(refusal("factor_min = 5"),
            "no such option 'factor_min' in " + path_ + "; did you mean 'factor-min'?");
  EXPECT_EQ(refusal("config = 'x'").substr(0, 31), "no such option 'config' in " + path_.substr(0, 4));
}

TEST_F(SettingsFile, ThatIsNoTomlIsRefusedWithTheLine) {
  EXPECT_EQ(refusal("lr = 1\nsteps = = 2\n").substr(0, path_.size() + 9), path_ + ", line 2:");
  EXPECT_NE(refusal("lr = 1\nlr = 2\n").find(", line 2:"), std::string::npos);
  for (const char* text : {"[lr]\nx = 1", "lr = [0.5]", "lr = 1979-05-27", "decay-at = [[0.5]]"}) {
    EXPECT_NE(refusal(text).find("expected a plain value, got "), std::string::npos) << text;
    EXPECT_EQ(refusal(text).find('\n'), std::string::npos) << text;
  }
}

TEST(Settings, FromAMissingFileOrAFolderAreRefused) {
  Settings settings;
  EXPECT_THROW(add_file(settings, "/no/such/file.toml"), Error);
  EXPECT_THROW(add_file(settings, "/"), Error);
}

TEST(Settings, ComeFromVariables) {
  const Settings settings =
      variables({"GRAVAC_FACTOR_MIN=20", "HOME=/x", "GRAVAC_LR=", "GRAVAC_WORKER_RANK=1"});
  EXPECT_EQ(settings.size(), 1u);
  EXPECT_EQ(settings.at("factor-min").value, "20");
  EXPECT_EQ(settings.at("factor-min").source, "GRAVAC_FACTOR_MIN");
}

TEST(Settings, EveryOptionHasItsVariable) {
  for (const OptionInfo& option : option_table()) {
    const std::string variable = variable_of(option.name) + "=1";
    EXPECT_TRUE(variables({variable.c_str()}).contains(option.name)) << variable;
  }
}

TEST(Settings, FromUnknownVariablesAreRefusedWithTheNearest) {
  try {
    variables({"GRAVAC_EPSILOM=1"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "no such option 'GRAVAC_EPSILOM' in the environment; did you mean 'GRAVAC_EPSILON'?");
  }
}

TEST_F(SettingsFile, YieldsToVariablesAndTheseToFlags) {
  std::ofstream(path_) << "lr = 3\nbatch = 3\nseed = 3\n";
  Settings settings = {{"lr", {"1", "--lr"}}};
  const char* const environment[] = {"GRAVAC_LR=2", "GRAVAC_BATCH=2"};
  add_variables(settings, environment);
  add_file(settings, path_);
  EXPECT_EQ(settings.at("lr").value, "1");
  EXPECT_EQ(settings.at("batch").value, "2");
  EXPECT_EQ(settings.at("seed").value, "3");
}

TEST_F(SettingsFile, SaysNothingOfEpochsWhenAFlagSaysSteps) {
  std::ofstream(path_) << "epochs = 3\n";
  Settings settings = {{"steps", {"5", "--steps"}}};
  add_file(settings, path_);
  EXPECT_FALSE(settings.contains("epochs"));
  EXPECT_TRUE(
      read("epochs = 3\nsteps = 5").contains("epochs"));  // both in one file: train_options() refuses that
}

}  // namespace
}  // namespace gravac::train
