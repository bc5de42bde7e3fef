#include "apps/report/figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace gravac::report {
namespace {

// A run with every number there is, whose factor alternates between 10 and 20.
RunHistory full_run(std::size_t count) {
  RunHistory run{.name = "full"};
  for (std::size_t i = 0; i < count; ++i) {
    const auto n = static_cast<double>(i);
    StepRecord step{.step = i, .seconds = 0.5 * n, .loss = 3 / (1 + n)};
    step.factor = i % 2 == 0 ? 10 : 20;
    step.gain_error_fed = 0.5;
    step.entered_energy = 2;
    step.dense_energy = 4;
    step.bytes_sent = 1e6;
    step.dense_bytes = 2e6;
    step.phase_seconds[0] = 0.25;
    step.effective_samples_per_second = i % 2 == 0 ? 200 : 100;  // of the step before: 20x 200, 10x 100
    run.steps.push_back(step);
  }
  run.evaluations = {{count / 2, 1, "top1", 0.5}, {count, 2, "top1", 0.6}};
  return run;
}

const Figure* find(const std::vector<Figure>& figures, const std::string& id) {
  for (const Figure& figure : figures) {
    if (figure.id == id) return &figure;
  }
  return nullptr;
}

TEST(Figures, AreAllThereInOrder) {
  std::vector<std::string> ids;
  for (const Figure& figure : figures_of({full_run(10)})) ids.push_back(figure.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"loss-steps", "loss-time", "test-top1-steps", "test-top1-time",
                                           "factor", "density", "throughput", "gain", "energy", "phases",
                                           "bytes", "residual"}));
}

TEST(Figures, AreLeftOutWithoutData) {
  report::RunHistory run = full_run(10);
  run.evaluations.clear();
  for (StepRecord& step : run.steps)
    step.loss = step.entered_energy = step.dense_energy = step.residual_norm = std::nan("");
  const std::vector<Figure> figures = figures_of({run});
  for (const char* id : {"loss-steps", "test-top1-steps", "energy", "residual"})
    EXPECT_EQ(find(figures, id), nullptr) << id;
  EXPECT_TRUE(figures_of({report::RunHistory{.name = "new"}}).empty());
}

TEST(Figures, ThroughputBelongsToTheFactorOfTheStepBefore) {
  const std::vector<Figure> figures = figures_of({full_run(100)});
  const Points& points = find(figures, "throughput")->curves.at(0).points;
  EXPECT_EQ(points.x, (std::vector<double>{10, 20}));
  EXPECT_EQ(points.y, (std::vector<double>{100, 200}));
}

TEST(Figures, ResidualIsWhatWasNotSent) {
  const std::vector<Figure> figures = figures_of({full_run(3)});
  EXPECT_NEAR(find(figures, "residual")->curves.at(0).points.y[0], std::sqrt(2), 1e-12);
}

TEST(Figures, DensityPeaksAtTheFactorsInUse) {
  const std::vector<Figure> figures = figures_of({full_run(100)});
  const Points& points = find(figures, "density")->curves.at(0).points;
  double best = 0, at = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points.y[i] > best) best = points.y[i], at = points.x[i];
  }
  EXPECT_NEAR(std::log10(at), at > 14 ? std::log10(20) : 1, 0.03);
}

TEST(Figures, BytesAreAddedUp) {
  const std::vector<Figure> figures = figures_of({full_run(4)});
  const Figure& bytes = *find(figures, "bytes");
  EXPECT_EQ(bytes.curves.at(0).points.y, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(bytes.curves.at(1).points.y, (std::vector<double>{2, 4, 6, 8}));
}

TEST(Figures, StaySmallWhateverTheLengthAndTheNumberOfRuns) {
  EXPECT_LT(data_of({full_run(10000)}).size(), 400'000);
  EXPECT_LT(data_of(std::vector<report::RunHistory>(30, full_run(2000))).size(), 850'000);
}

TEST(Figures, AreJsonWhateverTheNames) {
  report::RunHistory run = full_run(5);
  run.name = "</script>\xff\"\n";
  const nlohmann::json data = nlohmann::json::parse(data_of({run}));
  EXPECT_EQ(data["runs"][0]["name"], "</script>\xef\xbf\xbd\"\n");
  std::set<std::string> ids;
  for (const auto& figure : data["figures"]) ids.insert(figure["id"]);
  EXPECT_EQ(ids.size(), data["figures"].size());
}

}  // namespace
}  // namespace gravac::report
