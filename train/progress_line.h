#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace gravac::train {

// How far a run is. Numbers that are not known are NaN and left out, except for the loss.
struct Progress {
  std::uint64_t step = 0, steps = 0;  // steps = 0: nobody knows how many there will be
  double steps_per_second = 0, loss = 0;
  double factor = 1, gain = 1, bytes_factor = 1;
  std::string metric;  // e.g. "top1 0.712"
};

// One line of at most `width` characters: the least important parts are left out first, and a bar
// comes in where there is room. Colour adds escapes that take no room.
std::string format(const Progress& progress, unsigned width, bool colour);

// What a stream is, and by that how to show progress on it. `no_color` is the value of the
// environment variable NO_COLOR or null: anything but empty forbids colour.
struct Terminal {
  bool terminal = false, colour = false;
  unsigned width = 80;
};
Terminal terminal_of(std::FILE* out, const char* no_color);

// Shows progress: on a terminal one line that is rewritten, at most ten times a second; elsewhere a
// line every five seconds. The last is always shown.
class ProgressLine {
 public:
  ProgressLine(std::FILE* out, bool terminal, bool colour, unsigned width = 80);
  void show(const Progress& progress, double now_seconds);
  // Another line, such as a warning, above that of progress.
  void note(std::string_view line);
  void finish();

 private:
  void draw();
  void clear();

  std::FILE* out_;
  bool terminal_, colour_;
  unsigned width_;
  Progress last_;
  bool waiting_ = false;  // last_ was not shown
  double next_seconds_;
  bool drawn_ = false;  // there is a line that the next one overwrites
};

}  // namespace gravac::train
