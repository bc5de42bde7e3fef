#include "simulate/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace gravac::simulate {
namespace {

constexpr double kWidth = 720, kHeight = 360, kLeft = 64, kRight = 16, kTop = 12, kBottom = 44;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1d2329; --paper: #fff; --grid: #d8dee4; --soft: #57606a;
  --c0: #1f6feb; --c1: #d1590a; --c2: #1a7f37; --c3: #a626a4; --c4: #bf8700; --c5: #cf222e; --c6: #0a7ea4; --c7: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --grid: #30363d; --soft: #9198a1;
  --c0: #58a6ff; --c1: #ffa657; --c2: #3fb950; --c3: #d2a8ff; --c4: #e3b341; --c5: #ff7b72; --c6: #56d4dd; --c7: #8b949e; } }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--grid); stroke-width: 1; } .line { fill: none; stroke-width: 2; }
ul.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; list-style: none; font-size: .9rem; }
ul.legend span { display: inline-block; width: 1.4em; height: .25em; vertical-align: middle; margin-right: .4em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
td, th { padding: .2rem .7rem; border-bottom: 1px solid var(--grid); text-align: right; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '&'   ? "&amp;"
           : c == '<' ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  }
  return out;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// One axis: from values to a share of its length, and where its marks are.
class Axis {
 public:
  Axis(double least, double most, bool logarithmic) : log_(logarithmic), least_(least), most_(most) {
    if (!log_) least_ = std::min(0.0, least_);
    if (most_ <= least_) most_ = log_ ? 2 * least_ : least_ + 1;
  }

  double share(double value) const {
    return log_ ? std::log(value / least_) / std::log(most_ / least_) : (value - least_) / (most_ - least_);
  }

  // Powers of two or ten, or about five round numbers.
  std::vector<double> marks() const {
    std::vector<double> all;
    if (log_) {
      const double base = most_ / least_ > 5000 && least_ != 1 ? 10 : most_ / least_ > 32 ? 4 : 2;
      for (double x = std::pow(base, std::ceil(std::log(least_) / std::log(base) - 1e-9));
           x <= most_ * 1.0001; x *= base) {
        all.push_back(x);
      }
      return all;
    }
    const double rough = (most_ - least_) / 5, power = std::pow(10, std::floor(std::log10(rough)));
    const double step = power * (rough / power <= 2.01 ? 2 : rough / power <= 5.01 ? 5 : 10);
    for (double x = std::ceil(least_ / step) * step; x <= most_ * 1.0001; x += step) all.push_back(x);
    return all;
  }

 private:
  bool log_;
  double least_, most_;
};

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

std::string grid_line(double x1, double y1, double x2, double y2) {
  return "<line class=\"grid\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\"/>\n";
}

std::string colour(std::size_t line) {
  return "var(--c" + std::to_string(line % 8) + ")";
}

std::string svg(const Chart& chart) {
  constexpr double kMost = std::numeric_limits<double>::max();
  double left = kMost, right = -kMost, low = kMost, high = -kMost;
  for (const Line& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      left = std::min(left, x), right = std::max(right, x), low = std::min(low, y), high = std::max(high, y);
    }
  }
  if (left > right) return "<p>No data.</p>\n";
  const Axis across(left, right, chart.log_x), up(low, high, chart.log_y);
  const auto x_of = [&](double x) { return kLeft + across.share(x) * (kWidth - kLeft - kRight); };
  const auto y_of = [&](double y) { return kHeight - kBottom - up.share(y) * (kHeight - kTop - kBottom); };
  std::string out = "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
                    "\" role=\"img\" aria-label=\"" + escaped(chart.title) + "\">\n";
  for (const double mark : up.marks()) {
    out += grid_line(kLeft, y_of(mark), kWidth - kRight, y_of(mark)) +
           text_at(kLeft - 6, y_of(mark) + 4, "end", number(mark));
  }
  for (const double mark : across.marks()) {
    out += grid_line(x_of(mark), kTop, x_of(mark), kHeight - kBottom) +
           text_at(x_of(mark), kHeight - kBottom + 16, "middle", number(mark));
  }
  out += text_at((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", chart.x_label);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    const Line& line = chart.lines[i];
    out += "<polyline class=\"line\" stroke=\"" + colour(i) + "\" points=\"";
    for (const auto& [x, y] : line.points) out += number(x_of(x)) + "," + number(y_of(y)) + " ";
    out += "\"><title>" + escaped(line.name) + "</title></polyline>\n";
  }
  return out + "</svg>\n";
}

std::string legend(const Chart& chart) {
  std::string out = "<ul class=\"legend\">\n";
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    out +=
        "<li><span style=\"background:" + colour(i) + "\"></span>" + escaped(chart.lines[i].name) + "</li>\n";
  }
  return out + "</ul>\n";
}

std::string row(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  for (const std::string& cell : cells)
    out += std::string("<") + tag + ">" + escaped(cell) + "</" + tag + ">";
  return out + "</tr>\n";
}

}  // namespace

std::string to_html(const Page& page) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped(page.title) + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>" +
      escaped(page.title) + "</h1>\n";
  for (const std::string& text : page.paragraphs) out += "<p>" + escaped(text) + "</p>\n";
  for (const Chart& chart : page.charts) {
    out += "<h2>" + escaped(chart.title) + "</h2>\n<p>" + escaped(chart.y_label) + "</p>\n" + svg(chart) +
           legend(chart);
  }
  if (!page.table.rows.empty()) {
    out += "<div class=\"wide\">\n<table>\n<thead>" + row(page.table.head, "th") + "</thead>\n<tbody>\n";
    for (const auto& cells : page.table.rows) out += row(cells, "td");
    out += "</tbody>\n</table>\n</div>\n";
  }
  return out + "</body>\n</html>\n";
}

}  // namespace gravac::simulate
