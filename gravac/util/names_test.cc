#include "gravac/util/names.h"

#include <gtest/gtest.h>

#include "gravac/table_testing.h"

namespace gravac {
namespace {

using Names = std::vector<std::string_view>;

struct Entry {
  std::string_view name;
  int value;
};
const Entry kTable[] = {{"one", 1}, {"two", 2}, {"three", 3}};

TEST(Names, AreListedInTheOrderGiven) {
  EXPECT_EQ(listed(Names{}), "");
  EXPECT_EQ(listed(Names{"a"}), "a");
  EXPECT_EQ(listed(names_of(kTable)), "one, two, three");
  EXPECT_EQ(either(Names{"a"}), "a");
  EXPECT_EQ(either(names_of(kTable)), "one, two or three");
}

TEST(Names, FindTheirEntryOrListTheKnownOnes) {
  EXPECT_EQ(entry_named(kTable, "two", "count", "number").value, 2);
  try {
    entry_named(kTable, "Two", "count", "number");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "count: no such number 'Two'; known: one, two, three");
  }
}

// The law that every table is held to notices each defect it is there for.
TEST(TableDefects, AreNoticed) {
  struct Line {
    std::string_view name, description;
  };
  using Table = std::vector<Line>;
  const auto defects = [](const Table& table) { return testing::table_defects(table); };
  EXPECT_EQ(defects({{"a-1", "Does one thing."}, {"b", "60 things (of 3.5 kinds) are done."}}), "");
  EXPECT_NE(defects({}), "");
  EXPECT_NE(defects({{"a", "Does one thing."}, {"a", "Does two things."}}), "");
  for (const char* name : {"", "Topk", "top k", "top_k"}) EXPECT_NE(defects({{name, "Does one thing."}}), "");
  for (const char* text :
       {"", ".", "does one thing.", "Does one thing", "Does one. Does two.", "Does\none."}) {
    EXPECT_NE(defects({{"a", text}}), "") << text;
  }
}

TEST(Names, NearestIsTheNameWithTheFewestLettersChanged) {
  const Names names = {"lr", "factor", "factor-min", "factor-max"};
  EXPECT_EQ(nearest("factormax", names), "factor-max");
  EXPECT_EQ(nearest("facter", names), "factor");
  EXPECT_EQ(nearest("", names), "lr");
}

}  // namespace
}  // namespace gravac
