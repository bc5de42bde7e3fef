#include "apps/report/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gravac::report {
namespace {

TEST(Page, EscapesWhatCouldEndAScript) {
  const std::string json = R"({"name":"</script><script>alert(1)</script><!--"})";
  const std::string escaped = escape_for_script(json);
  EXPECT_EQ(escaped.find('<'), escaped.npos);
  EXPECT_EQ(nlohmann::json::parse(escaped), nlohmann::json::parse(json));
}

TEST(Page, HoldsTheDataAndNoMarkThatWasNotFilledIn) {
  const std::string text = page(R"({"runs":[]})", PageKind::file);
  EXPECT_NE(text.find(R"(type="application/json">{"runs":[]}</script>)"), text.npos);
  for (const char* mark : {"@DATA@", "@LIVE@", "@CONNECT@", "@JS@", "@SVG_JS@", "@CSS@"}) {
    EXPECT_EQ(text.find(mark), text.npos) << mark;
  }
  EXPECT_LT(text.size(), 60'000);
}

TEST(Page, LeavesMarksInTheDataAlone) {
  const std::string text = page(R"(["@LIVE@ @DATA@ @JS@"])", PageKind::file);
  EXPECT_NE(text.find(R"(["@LIVE@ @DATA@ @JS@"])"), text.npos);
}

TEST(Page, ConnectsToNothingUnlessItIsLive) {
  EXPECT_NE(page("{}", PageKind::file).find("connect-src 'none'"), std::string::npos);
  EXPECT_NE(page("{}", PageKind::file).find("data-live=\"no\""), std::string::npos);
  EXPECT_NE(page("{}", PageKind::live).find("connect-src 'self'"), std::string::npos);
  EXPECT_NE(page("{}", PageKind::live).find("data-live=\"yes\""), std::string::npos);
}

}  // namespace
}  // namespace gravac::report
