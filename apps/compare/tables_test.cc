#include "apps/compare/tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace gravac::compare {
namespace {

Comparison sample() {
  return {
      .task = "vgg",
      .metric = "top1",
      .target = 0.8,
      .target_metric = "top1",
      .target_of_dense = true,
      .margin = 0.01,
      .baselines = {.dense = 0},
      .rows = {{.name = "dense",
                .seeds = 2,
                .seeds_asked = 2,
                .value = 0.81,
                .lowest = 0.8,
                .highest = 0.82,
                .versus_dense = 0.0,
                .reached = Reached{90, 180},
                .over_dense = 1.0,
                .steps = 100,
                .seconds = 200,
                .entries_sent = 1e9,
                .bytes_sent = 4e9,
                .share_of_factor = {{1, 1}}},
               {.name = "a|b",
                .seeds = 1,
                .seeds_asked = 2,
                .value = std::nan(""),
                .steps = 100,
                .seconds = 20,
                .entries_sent = 1e6,
                .bytes_sent = 5e6,
                .fewer_entries = 1000,
                .fewer_bytes = 800,
                .share_of_factor = {{1, 0.1}, {10, 0.2}, {20, 0.05}, {40, 0.05}, {100, 0.4}, {1000, 0.2}}},
               {.name = "late", .seeds_asked = 2}}};
}

TEST(Tables, AreMarkdown) {
  EXPECT_EQ(to_markdown({sample()}).substr(0, to_markdown({sample()}).find("\n±")),
            "## vgg\n\nTarget: top1 80.00 %, what dense reaches at its end, less 1 %.\n\n"
            "| variant             |           top1 | difference | steps to target | time to target | over "
            "dense | steps |   time |\n"
            "|---------------------|---------------:|-----------:|----------------:|---------------:|--------"
            "---:|------:|-------:|\n"
            "| dense               | 81.00 ± 1.00 % |      +0.00 |              90 |          180 s |      "
            "1.00x |   100 |  200 s |\n"
            "| a\\|b (1 of 2 seeds) |              - |          - |               - |              - |       "
            "   - |   100 | 20.0 s |\n"
            "| late (0 of 2 seeds) |              - |          - |               - |              - |        "
            "  - |     - |      - |\n"
            "\nSent by each worker:\n\n"
            "| variant             | entries sent | fewer entries | bytes sent | fewer bytes | factors, by "
            "their share of the steps                       |\n"
            "|---------------------|-------------:|--------------:|-----------:|------------:|---------------"
            "---------------------------------------------|\n"
            "| dense               |       1.00 G |         1.00x |    4.00 GB |       1.00x | dense         "
            "                                             |\n"
            "| a\\|b (1 of 2 seeds) |       1.00 M |         1000x |    5.00 MB |        800x | dense 10 %, "
            "10x 20 %, 100x 40 %, 1000x 20 %, 2 others 10 % |\n"
            "| late (0 of 2 seeds) |            - |             - |          - |           - | -             "
            "                                             |\n");
}

TEST(Tables, WithoutATargetSaySo) {
  Comparison none = sample();
  none.target.reset();
  const std::string text = to_markdown({none});
  EXPECT_NE(text.find("No target"), text.npos);
  EXPECT_EQ(text.find("steps to target"), text.npos);
}

TEST(Tables, AreJsonWithNullForWhatIsNotKnown) {
  const auto json = nlohmann::json::parse(to_json({sample(), sample()}));
  ASSERT_EQ(json["tasks"].size(), 2u);
  const auto& task = json["tasks"][0];
  EXPECT_EQ(task["target"]["value"], 0.8);
  EXPECT_EQ(task["baselines"]["dense"], "dense");
  EXPECT_TRUE(task["baselines"]["topk"].is_null());
  EXPECT_EQ(task["rows"][0]["seconds_to_target"], 180);
  EXPECT_TRUE(task["rows"][1]["value"].is_null());
  EXPECT_TRUE(task["rows"][1]["seconds_to_target"].is_null());
  EXPECT_EQ(task["rows"][1]["share_of_factor"]["100"], 0.4);
  EXPECT_FALSE(task["rows"][2].contains("value"));
}

}  // namespace
}  // namespace gravac::compare
