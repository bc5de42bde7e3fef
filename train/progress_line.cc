#include "train/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace gravac::train {
namespace {

constexpr double kTerminalSeconds = 0.1, kPlainSeconds = 5;  // between two lines
constexpr std::size_t kGap = 2;                              // blanks between parts
constexpr std::size_t kLeastBar = 10, kMostBar = 30;         // characters
constexpr double kLongest = 1e9;                             // seconds, 30 years: a longer ETA is not shown

struct Part {
  int priority = 0;  // 0 is the most important part, and never left out
  std::string label, value;

  std::size_t size() const { return label.size() + !label.empty() + value.size(); }
  std::string str(bool colour) const {
    if (label.empty()) return value;
    return (colour ? "\033[2m" + label + "\033[0m" : label) + ' ' + value;
  }
};

std::string number(const char* form, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), form, value);
  return text;
}

// Infinite if the length of the run or its speed is not known.
double seconds_left(const Progress& p) {
  const double steps = p.steps > p.step ? static_cast<double>(p.steps - p.step) : 0;
  return p.steps > 0 && p.steps_per_second > 0 ? steps / p.steps_per_second
                                               : std::numeric_limits<double>::infinity();
}

// All parts of the line, in the order in which they are shown.
std::vector<Part> parts_of(const Progress& p) {
  std::vector<Part> parts;
  const auto add = [&](int priority, const char* label, const char* form, double value) {
    if (std::isfinite(value)) parts.push_back({priority, label, number(form, value)});
  };
  parts.push_back({0, "step", std::to_string(p.step) + (p.steps ? '/' + std::to_string(p.steps) : "")});
  if (p.steps_per_second > 0) add(4, "", p.steps_per_second < 10 ? "%.1f/s" : "%.0f/s", p.steps_per_second);
  parts.push_back({1, "loss", number("%.4g", p.loss)});
  const std::size_t space = p.metric.rfind(' ');
  if (space == p.metric.npos) {
    if (!p.metric.empty()) parts.push_back({3, "", p.metric});
  } else {
    parts.push_back({3, p.metric.substr(0, space), p.metric.substr(space + 1)});
  }
  add(5, "factor", "%.4gx", p.factor);
  add(7, "gain", "%.2f", p.gain);
  add(6, "saved", "%.1fx", p.bytes_factor);
  if (seconds_left(p) < kLongest) parts.push_back({2, "ETA", duration(seconds_left(p))});
  return parts;
}

std::size_t size_of(const std::vector<Part>& parts) {
  std::size_t size = 0;
  for (const Part& part : parts) size += part.size() + kGap;
  return size > 0 ? size - kGap : 0;
}

std::string bar(const Progress& p, std::size_t size, bool colour) {
  const double done = std::min(1.0, static_cast<double>(p.step) / static_cast<double>(p.steps));
  const auto full = static_cast<std::size_t>(done * static_cast<double>(size - 2));
  const std::string begin = colour ? "\033[32m" : "", end = colour ? "\033[0m" : "";
  return '[' + begin + std::string(full, '=') + end + std::string(size - 2 - full, ' ') + ']';
}

}  // namespace

std::string format(const Progress& progress, unsigned width, bool colour) {
  std::vector<Part> parts = parts_of(progress);
  const auto more_important = [](const Part& a, const Part& b) { return a.priority < b.priority; };
  while (parts.size() > 1 && size_of(parts) > width) {
    parts.erase(std::max_element(parts.begin(), parts.end(), more_important));  // the least important
  }
  if (size_of(parts) > width) return parts[0].str(false).substr(0, width);
  std::string line = parts[0].str(colour);
  const std::size_t left = width - size_of(parts);
  if (progress.steps > 0 && left >= kLeastBar + kGap) {
    line += std::string(kGap, ' ') + bar(progress, std::min(left - kGap, kMostBar), colour);
  }
  for (std::size_t i = 1; i < parts.size(); ++i) line += std::string(kGap, ' ') + parts[i].str(colour);
  return line;
}

Terminal terminal_of(std::FILE* out, const char* no_color) {
  Terminal result;
  result.terminal = isatty(fileno(out)) == 1;
  result.colour = result.terminal && (no_color == nullptr || *no_color == '\0');
  winsize size = {};
  if (result.terminal && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    result.width = size.ws_col;
  }
  return result;
}

std::string duration(double seconds) {
  const auto whole = static_cast<unsigned long>(std::llround(seconds));
  char text[40];
  if (whole >= 3600) {
    std::snprintf(text, sizeof(text), "%lu:%02lu:%02lu", whole / 3600, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof(text), "%lu:%02lu", whole / 60, whole % 60);
  }
  return text;
}

void LiveLine::draw(std::string line) {
  clear();
  line_ = std::move(line);
  std::fputs(line_.c_str(), out_);
  if (!terminal_) std::fputc('\n', out_);
  std::fflush(out_);
  drawn_ = terminal_;
}

void LiveLine::note(std::string_view line) {
  const bool redraw = drawn_;
  clear();
  std::fprintf(out_, "%.*s\n", static_cast<int>(line.size()), line.data());
  if (redraw) draw(line_);
  std::fflush(out_);
}

void LiveLine::finish() {
  if (drawn_) std::fputc('\n', out_);
  drawn_ = false;
  std::fflush(out_);
}

// Moves the cursor to the first column and erases the line.
void LiveLine::clear() {
  if (drawn_) std::fputs("\r\033[K", out_);
  drawn_ = false;
}

ProgressLine::ProgressLine(std::FILE* out, bool terminal, bool colour, unsigned width)
    : line_(out, terminal),
      colour_(colour),
      // Some terminals begin a new line as soon as the last column is written.
      width_(terminal && width > 0 ? width - 1 : width),
      next_seconds_(-std::numeric_limits<double>::infinity()) {}

void ProgressLine::show(const Progress& progress, double now_seconds) {
  last_ = progress;
  unshown_ = true;
  if (now_seconds < next_seconds_) return;
  next_seconds_ = now_seconds + (line_.terminal() ? kTerminalSeconds : kPlainSeconds);
  draw();
}

void ProgressLine::finish() {
  if (unshown_) draw();
  line_.finish();
}

void ProgressLine::draw() {
  line_.draw(format(last_, width_, colour_));
  unshown_ = false;
}

}  // namespace gravac::train
