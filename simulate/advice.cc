#include "simulate/advice.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "gravac/codec/compressors.h"
#include "gravac/codec/low_rank/ranks.h"
#include "gravac/util/require.h"

namespace gravac::simulate {
namespace {

// The settings of one compressor that are worth showing.
std::vector<CompressorSetting> settings_of(const CompressorInfo& info, const Layout& layout) {
  std::vector<CompressorSetting> settings;
  const auto add = [&](double factor, std::string amount) {
    settings.push_back({{std::string(info.name)}, factor, std::move(amount)});
  };
  if (info.family == "half") {
    add(2, "");
  } else if (info.family == "quantiser") {
    for (const int bits : {8, 4, 2, 1}) add(32.0 / bits, print("%d bit%s", bits, bits == 1 ? "" : "s"));
  } else if (info.family == "low-rank") {
    for (const std::size_t rank : {4, 1}) {
      if (factor_of(layout, rank) > 1) add(factor_of(layout, rank), print("rank %zu", rank));
    }
  } else {
    for (const double factor : {10.0, 100.0, 1000.0}) add(factor, print("%gx", factor));
  }
  return settings;
}

// Whether the compressor sent about what the setting says: onebit cannot send four bits.
bool kept_to(const CompressorSetting& setting, const PredictedStep& step) {
  return std::abs(step.factor / setting.factor - 1) < 0.05;
}

// Adds a prediction, or its compressor to one that is equal.
void merge(std::vector<Prediction>& all, Prediction one) {
  for (Prediction& other : all) {
    if (other.setting.amount == one.setting.amount && other.step.seconds() == one.step.seconds() &&
        other.step.bytes == one.step.bytes && other.step.rate == one.step.rate) {
      other.setting.compressors.push_back(one.setting.compressors[0]);
      return;
    }
  }
  all.push_back(std::move(one));
}

// The lowest factor at which `good` holds, to 1 %; nothing if it holds at none. REQUIRES: if it holds at a
// factor, it holds at all higher ones, nearly.
template <class Good>
std::optional<double> lowest_factor(const Good& good) {
  for (double factor = 1.01; factor < 1e5; factor *= 1.01) {
    if (good(factor)) return factor;
  }
  return std::nullopt;
}

// Of each family the first compressor speaks for the others, whose rates were not measured one by one.
Prediction best_of(const std::vector<Prediction>& all) {
  constexpr double kFloor = 0.9, kMuchFaster = 0.9;  // as policy progress has them
  Prediction best = all.front();
  std::set<std::string_view> spoken_for;
  for (const CompressorInfo& info : compressors()) {
    if (!spoken_for.insert(info.family).second) continue;
    for (const Prediction& one : all) {
      const auto& names = one.setting.compressors;
      if (std::ranges::find(names, info.name) == names.end() || one.step.rate < kFloor) continue;
      if (one.progress_per_second() <= best.progress_per_second()) continue;
      best = one;
      best.setting.compressors = {std::string(info.name)};
    }
  }
  const bool worth_it = best.progress_per_second() * kMuchFaster > all.front().progress_per_second();
  return worth_it ? best : all.front();
}

std::string cluster_text(const Cluster& cluster) {
  std::string text = print("%zu worker%s", cluster.workers, cluster.workers == 1 ? "" : "s");
  if (cluster.workers_per_node > 1) text += print(" (%zu per node)", cluster.workers_per_node);
  return text + " at " + rate_text(cluster.link.bits_per_second);
}

std::string option_text(const CompressorSetting& setting) {
  std::string text = "--compressor " + setting.compressors[0];
  const auto ends = [&](const char* unit) { return setting.amount.find(unit) != std::string::npos; };
  if (ends("bit")) return text + print(" --bits %.0f", 32 / setting.factor);
  if (ends("rank")) return text + " --rank " + setting.amount.substr(5);
  if (setting.amount.empty()) return text + " --policy static --factor 2";
  return text + print(" --policy static --factor %g", setting.factor);
}

std::string sentence_of(const Advice& advice, const std::vector<Prediction>& all, const Job& job,
                        const Cluster& cluster) {
  std::string text =
      cluster_text(cluster) + ", " + job.name + print(": dense %.3g steps/s", 1 / advice.dense.seconds());
  for (const Prediction& one : all) {
    const auto& names = one.setting.compressors;
    if (!names.empty() && names[0] == "fp16") text += print(", in 16 bits %.3g", 1 / one.step.seconds());
  }
  if (!advice.break_even) {
    text += "; Top-k is slower than dense at any factor";
  } else if (*advice.break_even < 1.05) {
    text += "; Top-k is faster than dense at any factor";
  } else {
    text += print("; Top-k is faster than dense from %.3gx on", *advice.break_even);
  }
  if (advice.compute_bound)
    text += print("; from %.3gx on the step is bound by compute", *advice.compute_bound);
  if (advice.best.setting.compressors.empty()) {
    return text + "; use dense steps (--policy dense): compression would not save a tenth of the time.";
  }
  text += "; use " + advice.best.setting.name() +
          print(": %.3g steps/s, %.2g times dense", 1 / advice.best.step.seconds(),
                advice.dense.seconds() / advice.best.step.seconds());
  if (advice.best.step.rate < 0.995)
    text += print(", a step being worth %.2f dense ones", advice.best.step.rate);
  return text + " (" + option_text(advice.best.setting) + ").";
}

}  // namespace

std::string CompressorSetting::name() const {
  if (compressors.empty()) return "dense";
  std::string text;
  for (const std::string& one : compressors) text += (text.empty() ? "" : ", ") + one;
  return amount.empty() ? text : text + " " + amount;
}

std::vector<Prediction> predict_all(const Job& job, const Cluster& cluster) {
  std::vector<Prediction> all = {{{}, dense_step(job, cluster)}};
  for (const CompressorInfo& info : compressors()) {
    try {
      const CompressedSteps steps(job, cluster, std::string(info.name));
      for (const CompressorSetting& setting : settings_of(info, job.layout)) {
        const PredictedStep step = steps.at(setting.factor);
        if (kept_to(setting, step)) merge(all, {setting, step});
      }
    } catch (const Error&) {
      // The options of the job, such as --exchange, do not suit this compressor.
    }
  }
  return all;
}

Advice advise(const Job& job, const Cluster& cluster) {
  const std::vector<Prediction> all = predict_all(job, cluster);
  Advice advice{.dense = all.front().step, .best = best_of(all)};
  const CompressedSteps topk(job, cluster, "topk");
  advice.break_even = lowest_factor([&](double f) { return topk.at(f).seconds() < advice.dense.seconds(); });
  advice.compute_bound =
      lowest_factor([&](double f) { return topk.at(f).seconds() <= 1.1 * job.compute_seconds; });
  if (advice.dense.seconds() <= 1.1 * job.compute_seconds) advice.compute_bound.reset();
  advice.sentence = sentence_of(advice, all, job, cluster);
  return advice;
}

std::string rate_text(double bits) {
  return bits >= 1e9   ? print("%.3g Gbit/s", bits / 1e9)
         : bits >= 1e6 ? print("%.3g Mbit/s", bits / 1e6)
                       : print("%.3g kbit/s", bits / 1e3);
}

std::string time_text(double seconds) {
  return seconds >= 7200   ? print("%.1f h", seconds / 3600)
         : seconds >= 120  ? print("%.1f min", seconds / 60)
         : seconds >= 1    ? print("%.3g s", seconds)
         : seconds >= 1e-3 ? print("%.3g ms", 1e3 * seconds)
                           : print("%.3g us", 1e6 * seconds);
}

}  // namespace gravac::simulate
