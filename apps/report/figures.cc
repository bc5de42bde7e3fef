#include "apps/report/figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

#include "apps/report/density.h"
#include "apps/report/overview.h"

namespace gravac::report {
namespace {

constexpr double kBandwidth = 0.1;  // of the density, in powers of ten: as in the paper's figures

using Value = std::function<double(const StepRecord&)>;

Points over_steps(const RunHistory& run, const Value& value) {
  Points points;
  for (const StepRecord& step : run.steps) points.add(static_cast<double>(step.step), value(step));
  return points;
}

// For numbers that differ much from one step to the next: means over the neighbouring 2 % of the steps.
Points smooth_over_steps(const RunHistory& run, const Value& value) {
  return running_mean(over_steps(run, value), run.steps.size() / 50);
}

bool any_known(const Points& points) {
  return std::any_of(points.y.begin(), points.y.end(), [](double y) { return std::isfinite(y); });
}

// Logarithmic axes have no place for 0.
double positive(double value) {
  return value > 0 ? value : std::nan("");
}

// Adds a curve for every run that has numbers for it.
Figure with_curves(Figure figure, const std::vector<RunHistory>& runs,
                   const std::function<Points(const RunHistory&)>& points_of, const Curve& like = {}) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    Curve curve = like;
    curve.run = r;
    curve.points = points_of(runs[r]);
    if (any_known(curve.points)) figure.curves.push_back(std::move(curve));
  }
  return figure;
}

Figure with_smooth_curves(Figure figure, const std::vector<RunHistory>& runs, const char* label,
                          std::size_t dash, const Value& value) {
  return with_curves(std::move(figure), runs,
                     [&](const RunHistory& run) { return smooth_over_steps(run, value); },
                     {.label = label, .dash = dash});
}

Figure loss_figure(const std::vector<RunHistory>& runs, bool by_time) {
  Figure figure{
      .id = by_time ? "loss-time" : "loss-steps",
      .title = std::string("Training loss against ") + (by_time ? "time" : "steps"),
      .text = by_time
                  ? "The same losses by seconds of training, evaluations left out: here short steps pay off. "
                    "The lower curve at a given time is the better run."
                  : "Mean loss of worker 0 over the neighbouring 2 % of the steps. Curves that lie on each "
                    "other lose nothing by compression; one above the dense run learns less in each step.",
      .x = {by_time ? "seconds" : "step"},
      .y = {"loss"}};
  return with_curves(std::move(figure), runs, [&](const RunHistory& run) {
    Points points = smooth_over_steps(run, &StepRecord::loss);
    for (std::size_t i = 0; by_time && i < points.size(); ++i) points.x[i] = run.steps[i].seconds;
    return points;
  });
}

std::string metric_title(const std::string& metric) {
  return metric == "top1" ? "Test accuracy" : metric == "ppl" ? "Test perplexity" : "Test loss";
}

Figure metric_figure(const std::vector<RunHistory>& runs, const std::string& metric, bool by_time) {
  Figure figure{
      .id = "test-" + metric + (by_time ? "-time" : "-steps"),
      .title = metric_title(metric) + " against " + (by_time ? "time" : "steps"),
      .text =
          by_time
              ? "When each run reached which quality. Draw a level line: the run that meets it first is "
                "the quickest way there."
              : "Quality on data that is not trained on, at each evaluation. A run that was evaluated once "
                "has one dot.",
      .x = {by_time ? "seconds" : "step"},
      .y = {metric, false, metric == "top1"},
      .dots = true};
  return with_curves(std::move(figure), runs, [&](const RunHistory& run) {
    Points points;
    for (const EvaluationRecord& e : run.evaluations) {
      if (e.metric == metric) points.add(by_time ? e.seconds : static_cast<double>(e.step), e.value);
    }
    return points;
  });
}

Figure factor_figure(const std::vector<RunHistory>& runs) {
  Figure figure{.id = "factor",
                .title = "Factor over time",
                .text =
                    "The compression factor of each step: 10 means ten times fewer numbers, 1 a dense step. "
                    "A level line "
                    "is a fixed factor; stairs are a policy at work.",
                .x = {"step"},
                .y = {"factor", true},
                .stepped = true};
  return with_curves(std::move(figure), runs,
                     [](const RunHistory& run) { return over_steps(run, &StepRecord::factor); },
                     {.thinning = Curve::Thinning::extremes});
}

Figure density_figure(const std::vector<RunHistory>& runs) {
  Figure figure{.id = "density",
                .title = "Density of steps over factors",
                .text =
                    "Where each run spent its steps: a Gaussian kernel of bandwidth 0.1 over the logarithm "
                    "(base 10) of "
                    "the factor, as in the paper's figures. A single narrow peak is a fixed factor.",
                .x = {"factor", true},
                .y = {"density"}};
  return with_curves(std::move(figure), runs, [](const RunHistory& run) {
    Counts counts;
    for (const StepRecord& step : run.steps) ++counts[std::log10(step.factor)];
    Points points;
    const std::vector<double> at = places_around(counts, 4 * kBandwidth, kBandwidth / 5);
    const std::vector<double> found = density(counts, at, kBandwidth);
    for (std::size_t i = 0; i < at.size(); ++i) points.add(std::pow(10.0, at[i]), found[i]);
    return points;
  });
}

// A step's line tells the throughput of the step before.
Figure throughput_figure(const std::vector<RunHistory>& runs) {
  Figure figure{
      .id = "throughput",
      .title = "Compression throughput per factor",
      .text =
          "Samples per second times the error-fed gain, averaged over the steps at each factor (factors that "
          "differ by less than 5 % are put together). The highest dot is the factor the paper's policy looks "
          "for.",
      .x = {"factor", true},
      .y = {"samples/s x gain"},
      .dots = true};
  struct Sum {
    double factors = 0, throughput = 0, steps = 0;
  };
  return with_curves(std::move(figure), runs, [](const RunHistory& run) {
    std::map<long, Sum> sums;
    const std::vector<StepRecord>& steps = run.steps;
    for (std::size_t i = 1; i < steps.size(); ++i) {
      const double throughput = steps[i].effective_samples_per_second, factor = steps[i - 1].factor;
      if (!(throughput > 0) || steps[i].step != steps[i - 1].step + 1) continue;
      Sum& sum = sums[std::lround(std::log(factor) / std::log(1.05))];
      sum.factors += factor;
      sum.throughput += throughput;
      ++sum.steps;
    }
    Points points;
    for (const auto& [level, sum] : sums) points.add(sum.factors / sum.steps, sum.throughput / sum.steps);
    return points;
  });
}

Figure gain_figure(const std::vector<RunHistory>& runs) {
  Figure figure{
      .id = "gain",
      .title = "Gain over time",
      .text =
          "How much of the gradient survives compression, by three definitions: energy kept, divided by the "
          "energy of gradient plus residual (error-fed) or of the gradient alone (gradient), and norms of "
          "layers in place of energies (released; only where the policy goes by it). 1 is everything. Means "
          "over "
          "the neighbouring 2 % of the steps.",
      .x = {"step"},
      .y = {"gain"}};
  figure = with_smooth_curves(std::move(figure), runs, "error-fed", 0, &StepRecord::gain_error_fed);
  figure = with_smooth_curves(std::move(figure), runs, "gradient", 1, &StepRecord::gain_gradient);
  return with_smooth_curves(std::move(figure), runs, "released", 2, &StepRecord::gain_released);
}

Figure energy_figure(const std::vector<RunHistory>& runs) {
  Figure figure{
      .id = "energy",
      .title = "Gradient energy before and after compression",
      .text =
          "Sums of squares over all workers, which the paper calls the gradient's variance: of the gradient, "
          "of "
          "gradient plus residual, and of what was sent. The distance between the last two is what the step "
          "kept back. Steps in which nothing was measured have no point. Means over the neighbouring 2 %.",
      .x = {"step"},
      .y = {"energy", true}};
  const auto add = [&](const char* label, std::size_t dash, double (*energy)(const StepRecord&)) {
    figure = with_smooth_curves(std::move(figure), runs, label, dash,
                                [&](const StepRecord& step) { return positive(energy(step)); });
  };
  add("gradient", 1, [](const StepRecord& step) { return step.entered_energy; });
  add("gradient + residual", 2, [](const StepRecord& step) { return step.dense_energy; });
  add("sent", 0, [](const StepRecord& step) { return step.sent_energy(); });
  return figure;
}

Figure phases_figure(const std::vector<RunHistory>& runs) {
  Figure figure{
      .id = "phases",
      .title = "Time per phase",
      .text =
          "Milliseconds of a mean step of worker 0. Compression pays where the exchange shrinks by more than "
          "compress and decode add. With --overlap phases run at the same time, and a bar is longer than "
          "the step.",
      .y = {"ms"},
      .parts = {std::begin(kPhases), std::end(kPhases)}};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].steps.empty()) continue;
    Figure::Bar bar{r, std::vector<double>(kPhaseCount, 0.0)};
    for (const StepRecord& step : runs[r].steps) {
      for (std::size_t i = 0; i < kPhaseCount; ++i) bar.values[i] += 1e3 * step.phase_seconds[i];
    }
    for (double& value : bar.values) value /= static_cast<double>(runs[r].steps.size());
    figure.bars.push_back(std::move(bar));
  }
  return figure;
}

Points added_up(const RunHistory& run, double StepRecord::*number) {
  Points points;
  double sum = 0;
  for (const StepRecord& step : run.steps)
    points.add(static_cast<double>(step.step), 1e-6 * (sum += step.*number));
  return points;
}

Figure bytes_figure(const std::vector<RunHistory>& runs) {
  Figure figure{
      .id = "bytes",
      .title = "Bytes sent",
      .text =
          "What worker 0 has sent up to each step, positions and headers included. A factor of 10 saves less "
          "than "
          "ten times the bytes, since an entry travels with its position and to every other worker.",
      .x = {"step"},
      .y = {"MB"}};
  std::vector<RunTotals> all;
  for (const RunHistory& run : runs) all.push_back(totals_of(run));
  const bool compared = dense_run(all).has_value();
  const auto add = [&](const char* label, std::size_t dash, double StepRecord::*number) {
    figure =
        with_curves(std::move(figure), runs, [&](const RunHistory& run) { return added_up(run, number); },
                    {.label = label, .dash = dash});
  };
  add(compared ? "" : "sent", 0, &StepRecord::bytes_sent);
  if (!compared) add("dense training", 1, &StepRecord::dense_bytes);
  return figure;
}

// What a step left unsent is its residual: exactly for compressors that choose entries, nearly for others.
double residual_norm(const StepRecord& step) {
  const double left = step.dense_energy - step.sent_energy();
  return std::isnan(left) ? step.residual_norm : std::sqrt(std::max(0.0, left));
}

Figure residual_figure(const std::vector<RunHistory>& runs) {
  Figure figure{
      .id = "residual",
      .title = "Norm of the residual",
      .text =
          "What is kept for later steps, over all workers. It rises until as much is sent as comes in, and "
          "then goes with the gradient. One that rises much faster than the gradient says that the factor "
          "is too high. For "
          "compressors without a residual it is the rounding error.",
      .x = {"step"},
      .y = {"norm"}};
  return with_curves(std::move(figure), runs, [](const RunHistory& run) {
    Points points = over_steps(run, residual_norm);
    const bool all_zero = std::ranges::none_of(points.y, [](double y) { return y > 0; });
    return all_zero ? Points() : points;
  });
}

}  // namespace

std::vector<Figure> figures_of(const std::vector<RunHistory>& runs) {
  std::vector<Figure> all = {loss_figure(runs, false), loss_figure(runs, true)};
  for (const char* metric : {"top1", "ppl", "loss"}) {
    all.push_back(metric_figure(runs, metric, false));
    all.push_back(metric_figure(runs, metric, true));
  }
  for (auto* make : {factor_figure, density_figure, throughput_figure, gain_figure, energy_figure,
                     phases_figure, bytes_figure, residual_figure}) {
    all.push_back(make(runs));
  }
  std::erase_if(all, [](const Figure& figure) { return figure.curves.empty() && figure.bars.empty(); });
  return all;
}

std::string data_of(const std::vector<RunHistory>& runs) {
  PageData page{.title = "GraVAC: ",
                .paragraphs = {conclusion_of(runs)},
                .table = table_of(runs),
                .figures = figures_of(runs)};
  for (const RunHistory& run : runs) {
    page.runs.push_back({run.name, run.state == RunState::unfinished});
    if (runs.size() <= 3) page.title += (page.runs.size() > 1 ? ", " : "") + run.name;
  }
  if (runs.size() > 3) page.title += std::to_string(runs.size()) + " runs";
  return to_json(page);
}

}  // namespace gravac::report
