#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace gravac::train {

// How far a run has come. A number that is NaN is not shown, except for the loss, where NaN is news.
struct Progress {
  std::uint64_t step = 0, steps = 0;  // steps = 0: the length of the run is not known
  double steps_per_second = 0, loss = 0;
  double factor = 1, gain = 1;
  double bytes_factor = 1;  // how many times fewer bytes than dense, over the whole run so far
  std::string metric;       // of the last evaluation, such as "top1 0.712"; may be empty
};

// One line of at most `width` characters. If there is little room, the least important parts are left
// out; if there is much, a bar is added. The escape sequences that `colour` adds do not count.
std::string format(const Progress& progress, unsigned width, bool colour);

// Whether `out` is a terminal, whether to use colour on it, and its width in characters. `no_color`
// is the value of the environment variable NO_COLOR (https://no-color.org), or null: any text but an
// empty one forbids colour.
struct Terminal {
  bool terminal = false, colour = false;
  unsigned width = 80;
};
Terminal terminal_of(std::FILE* out, const char* no_color);

// Seconds as h:mm:ss, or as m:ss below an hour.
std::string duration(double seconds);

// A line at the end of the output that is rewritten in place on a terminal; elsewhere every line stays.
class LiveLine {
 public:
  LiveLine(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}
  void draw(std::string line);
  // Prints a line of text, such as a warning, above the live one.
  void note(std::string_view line);
  // Whatever is printed next begins on a line of its own.
  void finish();
  bool terminal() const { return terminal_; }

 private:
  void clear();

  std::FILE* out_;
  bool terminal_;
  std::string line_;
  bool drawn_ = false;  // the line is on the terminal, and the next one overwrites it
};

// Shows progress. On a terminal it is one line, rewritten at most ten times a second; in a file or
// pipe, a new line every five seconds. finish() shows the last progress if that is still to be shown.
class ProgressLine {
 public:
  ProgressLine(std::FILE* out, bool terminal, bool colour, unsigned width = 80);
  void show(const Progress& progress, double now_seconds);
  // Prints a line of text, such as a warning, above the progress line.
  void note(std::string_view line) { line_.note(line); }
  void finish();

 private:
  void draw();

  LiveLine line_;
  bool colour_;
  unsigned width_;
  Progress last_;
  bool unshown_ = false;  // last_ has not been shown yet
  double next_seconds_;   // when to draw again
};

}  // namespace gravac::train
