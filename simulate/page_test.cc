#include "simulate/page.h"

#include <gtest/gtest.h>

#include <regex>

namespace gravac::simulate {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Chart chart(bool log_x, bool log_y) {
  return {.title = "Scaling",
          .x_label = "workers",
          .y_label = "efficiency",
          .log_x = log_x,
          .log_y = log_y,
          .lines = {{"dense", {{1, 1}, {64, 0.2}, {4096, 0.01}}}, {"topk", {{1, 1}, {4096, 0.9}}}}};
}

// Every point lies inside the drawing.
TEST(Page, DrawsEveryLineInsideItsChart) {
  for (const bool log_x : {false, true}) {
    for (const bool log_y : {false, true}) {
      const std::string html = to_html({.title = "Test", .charts = {chart(log_x, log_y)}});
      const std::regex line("points=\"([^\"]*)\""), point("([0-9.e+-]+),([0-9.e+-]+) "),
          grid("class=\"grid\"");
      std::size_t lines = 0, points = 0;
      for (std::sregex_iterator at(html.begin(), html.end(), line), end; at != end; ++at, ++lines) {
        const std::string all = (*at)[1];
        for (std::sregex_iterator p(all.begin(), all.end(), point); p != end; ++p, ++points) {
          EXPECT_GE(std::stod((*p)[1]), 0);
          EXPECT_LE(std::stod((*p)[1]), 720);
          EXPECT_GE(std::stod((*p)[2]), 0);
          EXPECT_LE(std::stod((*p)[2]), 360);
        }
      }
      EXPECT_EQ(lines, 2u);
      EXPECT_EQ(points, 5u);
      EXPECT_GT(std::distance(std::sregex_iterator(html.begin(), html.end(), grid), std::sregex_iterator()),
                5);
    }
  }
}

TEST(Page, NamesStayText) {
  Chart one = chart(true, false);
  one.lines[0].name = "<script>alert(1)</script>";
  const std::string html =
      to_html({.title = "a & b", .paragraphs = {"<b>"}, .charts = {one}, .table = {{"\"x\""}, {{"<i>"}}}});
  EXPECT_FALSE(has(html, "<script"));
  EXPECT_FALSE(has(html, "<b>"));
  EXPECT_FALSE(has(html, "<i>"));
  EXPECT_TRUE(has(html, "&lt;script&gt;"));
  EXPECT_TRUE(has(html, "a &amp; b"));
}

TEST(Page, NeedsNothingElse) {
  const std::string html = to_html({.title = "Test", .charts = {chart(true, true)}});
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("})
    EXPECT_FALSE(has(html, outside)) << outside;
  EXPECT_TRUE(has(html, "prefers-color-scheme: dark"));
}

TEST(Page, ChartsWithoutPointsOrWithASinglePointAreDrawn) {
  const std::string html = to_html(
      {.title = "Test",
       .charts = {{.title = "none"}, {.title = "one", .log_x = true, .lines = {{"dense", {{1, 1}}}}}}});
  EXPECT_TRUE(has(html, "No data"));
  EXPECT_FALSE(has(html, "nan"));
  EXPECT_FALSE(has(html, "inf"));
}

}  // namespace
}  // namespace gravac::simulate
