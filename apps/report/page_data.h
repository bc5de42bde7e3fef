#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/report/thin.h"

// What a page shows, whoever makes it: `gravac report`, `gravac watch` or `gravac simulate`.

namespace gravac::report {

// One curve of a figure. Colours go by run; curves of one run differ in their dashes.
struct Curve {
  std::size_t run = 0;
  std::string label;     // what it shows, if the figure has several curves for each run
  std::size_t dash = 0;  // 0: a solid line
  enum class Thinning { average, extremes } thinning = Thinning::average;
  Points points;
};

struct Axis {
  std::string label;
  bool log = false;
  bool percent = false;  // shares, to be shown in percent
};

// Curves, or one stacked bar for each run.
struct Figure {
  std::string id, title, text;  // text: how to read it
  Axis x, y;
  bool dots = false;     // show the points themselves
  bool stepped = false;  // the value holds until the next point
  std::vector<Curve> curves;
  struct Bar {
    std::size_t run = 0;
    std::vector<double> values;
  };
  std::vector<std::string> parts;  // of each bar
  std::vector<Bar> bars;
};

// The first cell of a row is its name; it has the colour of the run of that name.
struct PageTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

struct PageData {
  std::string title;
  std::vector<std::string> paragraphs;
  struct Name {
    std::string name;
    bool unfinished = false;
  };
  std::vector<Name> runs;  // what curves and bars belong to
  PageTable table;
  std::vector<Figure> figures;
};

// As JSON. Long curves are thinned, so that the page stays small whatever the length and the number of runs.
std::string to_json(const PageData& page);

}  // namespace gravac::report
