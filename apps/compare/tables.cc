#include "apps/compare/tables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "simulate/text.h"

namespace gravac::compare {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

using simulate::print;

bool is_share(const std::string& metric) {
  return metric.starts_with("top");
}

// "84.35 %", or "83.20" of a perplexity.
std::string metric_text(const std::string& metric, double value) {
  if (!std::isfinite(value)) return "-";
  return is_share(metric) ? print("%.2f %%", 100 * value) : print("%.2f", value);
}

std::string with_spread(const std::string& metric, const ComparisonRow& row) {
  const double half = (row.highest - row.lowest) / 2;
  if (row.seeds < 2 || !std::isfinite(half)) return metric_text(metric, row.value);
  return is_share(metric) ? print("%.2f ± %.2f %%", 100 * row.value, 100 * half)
                          : print("%.2f ± %.2f", row.value, half);
}

std::string difference(const std::string& metric, const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return "-";
  return print("%+.2f", is_share(metric) ? 100 * *value : *value);
}

// Three digits.
std::string digits(double value) {
  return print(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
}

std::string times(const std::optional<double>& value) {
  if (!value) return "-";
  return digits(*value) + "x";
}

std::string seconds(double value) {
  return print(value < 99.95 ? "%.1f s" : "%.0f s", value);
}

std::string amount(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T"};
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < std::size(kPrefixes)) value /= 1000, ++prefix;
  return digits(value) + " " + kPrefixes[prefix] + unit;
}

// The factors with the most steps, by size; the steps of all others together.
std::string shares(const std::map<double, double>& of_factor) {
  constexpr std::size_t kMost = 4;
  std::vector<std::pair<double, double>> by_share(of_factor.begin(), of_factor.end());
  std::ranges::stable_sort(by_share, std::greater(), &std::pair<double, double>::second);
  by_share.resize(std::min(by_share.size(), kMost));
  std::ranges::sort(by_share);
  std::string text;
  double shown = 0;
  for (const auto& [factor, share] : by_share) {
    shown += share;
    const std::string name = factor == 1 ? std::string("dense") : print("%.4gx", factor);
    text += (text.empty() ? "" : ", ") + name + (share == 1 ? "" : print(" %.0f %%", 100 * share));
  }
  if (of_factor.size() > kMost) {
    text += print(", %zu others %.0f %%", of_factor.size() - kMost, 100 * (1 - shown));
  }
  return text;
}

// The sign | would end a cell.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '|' ? std::string("\\|") : std::string(1, c);
  return safe;
}

// How many places a text takes: bytes that continue a letter take none.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

// Columns are padded, so that the table can be read as it stands. The first and, if `last_is_text`, the last
// one begin at their left.
std::string table(const std::vector<Cells>& rows, bool last_is_text) {
  std::vector<std::size_t> widths(rows[0].size(), 3);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  const auto left = [&](std::size_t column) {
    return column == 0 || (last_is_text && column + 1 == widths.size());
  };
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string blanks(widths[i] - width(rows[r][i]), ' ');
      text += "| " + (left(i) ? rows[r][i] + blanks : blanks + rows[r][i]) + " ";
    }
    text += "|\n";
    for (std::size_t i = 0; i < widths.size() && r == 0; ++i) {
      text += "|" + std::string(widths[i] + (left(i) ? 2 : 1), '-') + (left(i) ? "" : ":");
    }
    if (r == 0) text += "|\n";
  }
  return text;
}

std::string name_of(const ComparisonRow& row) {
  std::string name = escaped(row.name);
  if (row.seeds < row.seeds_asked) name += print(" (%zu of %zu seeds)", row.seeds, row.seeds_asked);
  return name;
}

// A column of the table, left out if `shown` is false.
struct Column {
  std::string title;
  bool shown;
  std::function<std::string(const ComparisonRow&)> cell;
};

std::string table_of(const Comparison& all, const std::vector<Column>& columns, bool last_is_text = false) {
  std::vector<Cells> rows(1 + all.rows.size());
  for (const Column& column : columns) {
    if (!column.shown) continue;
    rows[0].push_back(column.title);
    for (std::size_t i = 0; i < all.rows.size(); ++i) {
      const bool known = all.rows[i].seeds > 0 || rows[i + 1].empty();  // the name is known always
      rows[i + 1].push_back(known ? column.cell(all.rows[i]) : "-");
    }
  }
  return table(rows, last_is_text);
}

std::string target_sentence(const Comparison& all) {
  if (!all.target) return "No target: no variant sends dense gradients, and the experiment names none.\n";
  std::string text = "Target: " + all.target_metric + " " + metric_text(all.target_metric, *all.target);
  if (all.target_of_dense) {
    text += ", what " + escaped(all.rows[*all.baselines.dense].name) + " reaches at its end";
  }
  if (all.margin > 0) {
    const bool lower = lower_is_better(all.target_metric);
    text += print(lower ? ", plus %g %%" : ", less %g %%", 100 * all.margin);
  }
  return text + ".\n";
}

std::string results_table(const Comparison& all) {
  const bool target = all.target.has_value();
  const auto over = [&](const char* title, const std::optional<std::size_t>& baseline,
                        std::optional<double> ComparisonRow::*ratio) {
    const std::string name = baseline ? escaped(all.rows[*baseline].name) : "";
    return Column{title + name, target && baseline,
                  [ratio](const ComparisonRow& row) { return times(row.*ratio); }};
  };
  return table_of(
      all, {{"variant", true, name_of},
            {all.metric.empty() ? "result" : all.metric, true,
             [&](const ComparisonRow& row) { return with_spread(all.metric, row); }},
            {"difference", all.baselines.dense.has_value(),
             [&](const ComparisonRow& row) { return difference(all.metric, row.versus_dense); }},
            {"steps to target", target,
             [](const ComparisonRow& row) { return row.reached ? print("%.0f", row.reached->steps) : "-"; }},
            {"time to target", target,
             [](const ComparisonRow& row) { return row.reached ? seconds(row.reached->seconds) : "-"; }},
            over("over ", all.baselines.topk, &ComparisonRow::over_topk),
            over("over ", all.baselines.dense, &ComparisonRow::over_dense),
            over("over ", all.baselines.fp16, &ComparisonRow::over_fp16),
            {"steps", true, [](const ComparisonRow& row) { return print("%.0f", row.steps); }},
            {"time", true, [](const ComparisonRow& row) { return seconds(row.seconds); }}});
}

std::string traffic_table(const Comparison& all) {
  return table_of(
      all,
      {{"variant", true, name_of},
       {"entries sent", true, [](const ComparisonRow& row) { return amount(row.entries_sent, ""); }},
       {"fewer entries", true, [](const ComparisonRow& row) { return times(row.fewer_entries); }},
       {"bytes sent", true, [](const ComparisonRow& row) { return amount(row.bytes_sent, "B"); }},
       {"fewer bytes", true, [](const ComparisonRow& row) { return times(row.fewer_bytes); }},
       {"factors, by their share of the steps", true,
        [](const ComparisonRow& row) { return shares(row.share_of_factor); }}},
      true);
}

Json or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json row_json(const ComparisonRow& row) {
  Json json = {{"name", row.name}, {"seeds", row.seeds}, {"seeds_asked", row.seeds_asked}};
  if (row.seeds == 0) return json;
  json["value"] = or_null(row.value);
  json["lowest"] = or_null(row.lowest);
  json["highest"] = or_null(row.highest);
  json["versus_dense"] = or_null(row.versus_dense);
  json["steps_to_target"] = row.reached ? Json(row.reached->steps) : Json(nullptr);
  json["seconds_to_target"] = row.reached ? Json(row.reached->seconds) : Json(nullptr);
  json["speedup_over_topk"] = or_null(row.over_topk);
  json["speedup_over_dense"] = or_null(row.over_dense);
  json["speedup_over_fp16"] = or_null(row.over_fp16);
  json["steps"] = row.steps;
  json["seconds"] = row.seconds;
  json["entries_sent"] = row.entries_sent;
  json["fewer_entries"] = row.fewer_entries;
  json["bytes_sent"] = row.bytes_sent;
  json["fewer_bytes"] = row.fewer_bytes;
  json["share_of_factor"] = Json::object();
  for (const auto& [factor, share] : row.share_of_factor)
    json["share_of_factor"][print("%g", factor)] = share;
  return json;
}

}  // namespace

std::string to_markdown(const std::vector<Comparison>& comparisons) {
  std::string text;
  for (const Comparison& one : comparisons) {
    if (comparisons.size() > 1 &&
        std::ranges::all_of(one.rows, [](const ComparisonRow& row) { return row.seeds == 0; }))
      continue;
    if (!text.empty()) text += "\n";
    if (!one.task.empty()) text += "## " + one.task + "\n\n";
    text +=
        target_sentence(one) + "\n" + results_table(one) + "\nSent by each worker:\n\n" + traffic_table(one);
  }
  return text +
         "\n± is half the distance between the best and the worst seed, \"difference\" that to the dense "
         "variant,\n"
         "\"over X\" how many times sooner than X the target is reached; \"steps\" and \"time\" are those of "
         "whole runs.\n";
}

std::string to_json(const std::vector<Comparison>& comparisons) {
  Json tasks = Json::array();
  for (const Comparison& one : comparisons) {
    const auto name = [&](const std::optional<std::size_t>& row) {
      return row ? Json(one.rows[*row].name) : Json(nullptr);
    };
    Json json = {{"task", one.task},
                 {"metric", one.metric},
                 {"lower_is_better", one.lower_is_better},
                 {"target",
                  {{"metric", one.target_metric},
                   {"value", or_null(one.target)},
                   {"of_dense", one.target_of_dense},
                   {"margin", one.margin}}},
                 {"baselines",
                  {{"topk", name(one.baselines.topk)},
                   {"dense", name(one.baselines.dense)},
                   {"fp16", name(one.baselines.fp16)}}},
                 {"rows", Json::array()}};
    for (const ComparisonRow& row : one.rows) json["rows"].push_back(row_json(row));
    tasks.push_back(std::move(json));
  }
  return Json{{"schema", 1}, {"tasks", tasks}}.dump(2) + "\n";
}

}  // namespace gravac::compare
