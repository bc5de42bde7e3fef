#include "train/summary.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "gravac/numerics.h"

namespace gravac::train {
namespace {

using Json = nlohmann::ordered_json;

template <class... Values>
std::string print(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// 1 if nothing was sent, as in a run of no steps.
double ratio(double a, double b) {
  return b > 0 ? a / b : 1;
}

std::string factor_name(double factor) {
  return print("%g", factor);
}

std::string bytes_name(double bytes) {
  return bytes < 1e6 ? print("%.0f kB", bytes / 1e3) : print("%.1f MB", bytes / 1e6);
}

// The value of --until and when it was reached; null for what does not apply.
Json target_of(const Summary& s, const TrainOptions& options) {
  if (!options.until) return nullptr;
  return {{"metric", options.until->metric},
          {"value", options.until->value},
          {"reached_at_step", s.reached ? Json(s.reached->step) : Json(nullptr)},
          {"reached_at_seconds", s.reached ? Json(s.reached->seconds) : Json(nullptr)}};
}

}  // namespace

// Keys keep this order in the file (ordered_json). Readers may rely on names: add keys, never rename.
std::string to_json(const Summary& s, const TrainOptions& options) {
  Json factors = Json::object();
  for (const auto& [factor, steps] : s.costs.steps_per_factor) {
    factors[factor_name(factor)] = static_cast<std::uint64_t>(steps);
  }
  Json json = {{"schema", 1},
               {"numerics", kNumerics},
               {"model", options.model},
               {"data", options.data},
               {"workers", s.ranks},
               {"parameters", s.entries},
               {"finished", s.finished},
               {"steps", s.steps},
               {"effective_steps", s.effective_steps},
               {"bad_steps", s.bad_steps},
               {"seconds", s.costs.seconds}};
  json["metric"] =
      s.last ? Json{{"name", s.last->metric()}, {"value", s.last->value(s.last->metric())}} : Json(nullptr);
  json["target"] = target_of(s, options);
  json["bytes_sent"] = static_cast<std::uint64_t>(s.costs.bytes_sent);
  json["entries_sent"] = static_cast<std::uint64_t>(s.costs.entries_sent);
  json["dense_bytes"] = static_cast<std::uint64_t>(s.costs.dense_bytes);
  json["factor_entries"] = ratio(s.costs.entries, s.costs.entries_sent);
  json["factor_bytes"] = ratio(s.costs.dense_bytes, s.costs.bytes_sent);
  json["steps_per_factor"] = factors;
  json["phase_seconds"] = {{"compute", s.costs.compute_seconds},
                           {"compress", s.costs.compress_seconds},
                           {"agree", s.costs.agree_seconds},
                           {"exchange", s.costs.exchange_seconds},
                           {"decode", s.costs.decode_seconds}};
  json["peak_memory_bytes"] = static_cast<std::uint64_t>(s.peak_bytes);
  // As text: JSON numbers are doubles to most readers, and lose digits of 64-bit integers.
  json["weights_digest"] = print("%016llx", static_cast<unsigned long long>(s.digest));
  return json.dump(2);
}

std::string to_text(const Summary& s, const TrainOptions& options) {
  const auto policy = options.engine.find("policy");
  std::string text = options.model + " on " + options.data + ", " + std::to_string(s.ranks) +
                     (s.ranks == 1 ? " worker" : " workers") + ", policy " +
                     (policy == options.engine.end() ? std::string("progress") : policy->second) + "\n";
  text += print("  steps     %llu", static_cast<unsigned long long>(s.steps));
  // Dense training makes them equal; half a step allows for rounding in the sum.
  if (std::abs(s.effective_steps - static_cast<double>(s.steps)) > 0.5) {
    text += print(" (worth %.0f dense steps)", s.effective_steps);
  }
  const double steps = std::max(1.0, static_cast<double>(s.steps));
  text += print("\n  time      %.1f s, %.0f ms per step", s.costs.seconds, 1e3 * s.costs.seconds / steps);
  text += print(": compute %.0f, compress %.1f, agree %.1f, exchange %.1f, decode %.1f\n",
                1e3 * s.costs.compute_seconds / steps, 1e3 * s.costs.compress_seconds / steps,
                1e3 * s.costs.agree_seconds / steps, 1e3 * s.costs.exchange_seconds / steps,
                1e3 * s.costs.decode_seconds / steps);
  if (s.last) {
    text += s.last->text
                ? print("  ppl       %.2f\n", s.last->ppl)
                : print("  top1      %.2f %% (top5 %.2f %%)\n", 100 * s.last->top1, 100 * s.last->top5);
  }
  if (options.until) {
    text += s.reached ? print("  target    %s=%g reached after %llu steps, %.1f s\n",
                              options.until->metric.c_str(), options.until->value,
                              static_cast<unsigned long long>(s.reached->step), s.reached->seconds)
                      : print("  target    %s=%g not reached\n", options.until->metric.c_str(),
                              options.until->value);
  }
  text += "  sent      " + bytes_name(s.costs.bytes_sent) + "; dense would have sent " +
          bytes_name(s.costs.dense_bytes) +
          print(": %.1fx fewer bytes, %.1fx fewer entries\n", ratio(s.costs.dense_bytes, s.costs.bytes_sent),
                ratio(s.costs.entries, s.costs.entries_sent));
  text += "  factors  ";
  for (const auto& [factor, count] : s.costs.steps_per_factor) {
    const bool last = factor == s.costs.steps_per_factor.rbegin()->first;
    text += factor == 1 ? print(" dense %.0f steps", count) : print(" %.4gx %.0f steps", factor, count);
    if (!last) text += ",";
  }
  text += "\n";
  if (!options.out.empty()) text += "  files     " + options.out + "\n";
  return text;
}

}  // namespace gravac::train
