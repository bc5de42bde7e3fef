#include "apps/report/page_data.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace gravac::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPointsInAll = 36000;  // on the page: about 15 bytes each

// JSON with as many digits as a screen can show.
Json rounded(double value, const char* format) {
  if (!std::isfinite(value)) return nullptr;
  char text[40];
  std::snprintf(text, sizeof(text), format, value);
  const double number = std::strtod(text, nullptr);
  if (number == std::floor(number) && std::abs(number) < 1e15) return static_cast<std::int64_t>(number);
  return number;
}

Json list_of(const std::vector<double>& values, const char* format) {
  Json list = Json::array();
  for (const double value : values) list.push_back(rounded(value, format));
  return list;
}

Json axis_of(const Axis& axis) {
  return {{"label", axis.label}, {"log", axis.log}, {"percent", axis.percent}};
}

Json json_of(const Curve& curve, std::size_t limit) {
  const Points points = curve.thinning == Curve::Thinning::extremes ? with_extremes(curve.points, limit)
                                                                    : averaged(curve.points, limit);
  return {{"run", curve.run},
          {"label", curve.label},
          {"dash", curve.dash},
          {"x", list_of(points.x, "%.7g")},
          {"y", list_of(points.y, "%.5g")}};
}

Json json_of(const Figure& figure, std::size_t limit) {
  Json json = {{"id", figure.id},
               {"title", figure.title},
               {"text", figure.text},
               {"x", axis_of(figure.x)},
               {"y", axis_of(figure.y)}};
  if (!figure.bars.empty()) {
    json["parts"] = figure.parts;
    json["bars"] = Json::array();
    for (const Figure::Bar& bar : figure.bars) {
      json["bars"].push_back({{"run", bar.run}, {"values", list_of(bar.values, "%.5g")}});
    }
    return json;
  }
  json["dots"] = figure.dots;
  json["stepped"] = figure.stepped;
  json["curves"] = Json::array();
  for (const Curve& curve : figure.curves) json["curves"].push_back(json_of(curve, limit));
  return json;
}

}  // namespace

std::string to_json(const PageData& page) {
  std::size_t curves = 0;
  for (const Figure& figure : page.figures) curves += figure.curves.size();
  const std::size_t limit = std::clamp<std::size_t>(kPointsInAll / std::max<std::size_t>(curves, 1), 40, 500);
  Json json = {{"title", page.title},
               {"paragraphs", page.paragraphs},
               {"runs", Json::array()},
               {"table", {{"columns", page.table.columns}, {"rows", page.table.rows}}},
               {"figures", Json::array()}};
  for (const auto& [name, unfinished] : page.runs) {
    json["runs"].push_back({{"name", name}, {"unfinished", unfinished}});
  }
  for (const Figure& figure : page.figures) json["figures"].push_back(json_of(figure, limit));
  // Names are file names, which may be any bytes: those that are no UTF-8 are replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gravac::report
