#include "train/progress_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <functional>

namespace gravac::train {
namespace {

Progress example() {
  return {.step = 120,
          .steps = 2340,
          .steps_per_second = 5.2,
          .loss = 1.234,
          .factor = 40,
          .gain = 0.92,
          .bytes_factor = 35.2,
          .metric = "top1 0.71"};
}

std::string without_colour(std::string text) {
  for (std::size_t at; (at = text.find('\033')) != text.npos;) text.erase(at, text.find('m', at) - at + 1);
  return text;
}

TEST(ProgressLine, SaysHowFarAndHowWell) {
  EXPECT_EQ(format(example(), 95, false),
            "step 120/2340  5.2/s  loss 1.234  top1 0.71  factor 40x  gain 0.92  saved 35.2x  ETA 7:07");
}

TEST(ProgressLine, HasABarWhereThereIsRoom) {
  Progress half = example();
  half.step = 1170;
  EXPECT_EQ(
      format(half, 110, false),
      "step 1170/2340  [========        ]  5.2/s  loss 1.234  top1 0.71  factor 40x  gain 0.92  saved 35.2x  "
      "ETA 3:45");
}

TEST(ProgressLine, LeavesOutTheLeastImportantFirst) {
  EXPECT_EQ(format(example(), 80, false),
            "step 120/2340  5.2/s  loss 1.234  top1 0.71  factor 40x  saved 35.2x  ETA 7:07");
  EXPECT_EQ(format(example(), 60, false), "step 120/2340  5.2/s  loss 1.234  top1 0.71  ETA 7:07");
  EXPECT_EQ(format(example(), 40, false), "step 120/2340  loss 1.234  ETA 7:07");
  EXPECT_EQ(format(example(), 30, false), "step 120/2340  loss 1.234");
  EXPECT_EQ(format(example(), 20, false), "step 120/2340");
  EXPECT_EQ(format(example(), 6, false), "step 1");
  EXPECT_EQ(format(example(), 0, true), "");
}

TEST(ProgressLine, IsNeverLongerThanTheWidthAndColourTakesNoRoom) {
  EXPECT_TRUE(rc::check(
      [](std::uint64_t step, std::uint64_t steps, double rate, double loss, double factor, double gain) {
        const auto width = *rc::gen::inRange(0u, 200u);
        const Progress progress = {
            .step = step,
            .steps = steps,
            .steps_per_second = rate,
            .loss = loss,
            .factor = factor,
            .gain = gain,
            .bytes_factor = factor * 1e30,
            .metric = *rc::gen::element<std::string>("", "top1 0.7", "good", "bits per word 3")};
        const std::string plain = format(progress, width, false);
        RC_ASSERT(plain.size() <= width);
        RC_ASSERT(without_colour(format(progress, width, true)) == plain);
      }));
}

TEST(ProgressLine, PromisesNoEndWhenThereIsNone) {
  Progress endless = example();
  endless.steps = 0;
  EXPECT_EQ(format(endless, 120, false),
            "step 120  5.2/s  loss 1.234  top1 0.71  factor 40x  gain 0.92  saved 35.2x");
  Progress stuck = example();
  stuck.steps_per_second = 0;
  EXPECT_EQ(format(stuck, 40, false), "step 120/2340  loss 1.234  top1 0.71");
}

TEST(ProgressLine, CountsTheTimeLeftInHoursMinutesAndSeconds) {
  const auto left = [](std::uint64_t steps) {
    const std::string line = format({.steps = steps, .steps_per_second = 1}, 100, false);
    return line.substr(line.rfind(' ') + 1);
  };
  EXPECT_EQ(left(1), "0:01");
  EXPECT_EQ(left(192), "3:12");
  EXPECT_EQ(left(3599), "59:59");
  EXPECT_EQ(left(3600), "1:00:00");
  EXPECT_EQ(left(360'061), "100:01:01");
}

TEST(ProgressLine, LeavesOutWhatIsNotKnownButNotABadLoss) {
  EXPECT_EQ(format({.step = 3, .loss = NAN, .factor = NAN, .gain = NAN, .bytes_factor = NAN}, 80, false),
            "step 3  loss nan");
}

// All that a ProgressLine writes while `use` calls it.
std::string written(bool terminal, const std::function<void(ProgressLine&)>& use) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* out = open_memstream(&text, &size);
  ProgressLine line(out, terminal, false, 20);
  use(line);
  std::fclose(out);
  const std::string result(text, size);
  free(text);
  return result;
}

TEST(ProgressLine, IsRewrittenInPlaceTenTimesASecondOnATerminal) {
  EXPECT_EQ(written(true,
                    [](ProgressLine& line) {
                      for (int step = 0; step <= 14; ++step) line.show({.step = step + 0u}, step * 0.02);
                      line.finish();
                      line.finish();
                    }),
            "step 0  loss 0\r\033[Kstep 5  loss 0\r\033[Kstep 10  loss 0\r\033[Kstep 14  loss 0\n");
}

TEST(ProgressLine, IsALineEveryFiveSecondsElsewhereAndTheLast) {
  const auto run = [](unsigned last) {
    return written(false, [&](ProgressLine& line) {
      for (unsigned step = 0; step <= last; ++step) line.show({.step = step}, 100 + step);
      line.finish();
    });
  };
  EXPECT_EQ(run(5), "step 0  loss 0\nstep 5  loss 0\n");
  EXPECT_EQ(run(6), "step 0  loss 0\nstep 5  loss 0\nstep 6  loss 0\n");
}

TEST(ProgressLine, WritesNothingWhenThereWasNothingToShow) {
  EXPECT_EQ(written(true, [](ProgressLine& line) { line.finish(); }), "");
}

TEST(ProgressLine, KeepsNotesApart) {
  const auto use = [](ProgressLine& line) {
    line.note("before");
    line.show({.step = 1}, 0);
    line.note("warning");
    line.finish();
  };
  EXPECT_EQ(written(true, use), "before\nstep 1  loss 0\r\033[Kwarning\nstep 1  loss 0\n");
  EXPECT_EQ(written(false, use), "before\nstep 1  loss 0\nwarning\n");
}

TEST(Terminal, IsSeenWithItsWidthAndColourUnlessForbidden) {
  const int host = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(host >= 0 && grantpt(host) == 0 && unlockpt(host) == 0);
  std::FILE* terminal = std::fopen(ptsname(host), "w");
  ASSERT_NE(terminal, nullptr);
  EXPECT_EQ(terminal_of(terminal, nullptr).width, 80u);
  const winsize size = {.ws_row = 50, .ws_col = 132};
  ioctl(host, TIOCSWINSZ, &size);
  EXPECT_EQ(terminal_of(terminal, nullptr).width, 132u);
  EXPECT_TRUE(terminal_of(terminal, nullptr).terminal);
  EXPECT_TRUE(terminal_of(terminal, nullptr).colour);
  EXPECT_TRUE(terminal_of(terminal, "").colour);
  EXPECT_FALSE(terminal_of(terminal, "1").colour);
  EXPECT_TRUE(terminal_of(terminal, "1").terminal);
  std::fclose(terminal);
  close(host);
}

TEST(Terminal, AFileIsNone) {
  std::FILE* file = std::fopen("/dev/null", "w");
  EXPECT_FALSE(terminal_of(file, nullptr).terminal);
  EXPECT_FALSE(terminal_of(file, nullptr).colour);
  std::fclose(file);
}

}  // namespace
}  // namespace gravac::train
