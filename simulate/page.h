#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gravac::simulate {

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x and y, both above 0 on logarithmic scales
};

struct Chart {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<Line> lines;
};

struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

// What a page shows, from top to bottom.
struct Page {
  std::string title;
  std::vector<std::string> paragraphs;
  std::vector<Chart> charts;
  Table table;
};

// A complete HTML page: charts as SVG, light or dark as the reader's system is. It needs no script and no
// other file. All texts are escaped.
std::string to_html(const Page& page);

}  // namespace gravac::simulate
