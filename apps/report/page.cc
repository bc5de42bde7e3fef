#include "apps/report/page.h"

#include "gravac/util/require.h"

namespace gravac::report {
namespace {

void replace(std::string& text, std::string_view mark, std::string_view by) {
  const std::size_t at = text.find(mark);
  require(at != text.npos, "report: the page has no place for ", mark);
  text.replace(at, mark.size(), by);
}

}  // namespace

// '<' occurs only within strings, where JSON may write it as a number. Without it there is no "</script".
std::string escape_for_script(std::string_view json) {
  std::string text;
  for (const char c : json) c == '<' ? text += "\\u003c" : text += c;
  return text;
}

// The data goes in last: marks that it holds are text like any other.
std::string page(std::string_view data, PageKind kind) {
  std::string text(kPageTemplate);
  const bool live = kind == PageKind::live;
  replace(text, "@LIVE@", live ? "yes" : "no");
  replace(text, "@CONNECT@", live ? "'self'" : "'none'");
  replace(text, "@DATA@", escape_for_script(data));
  return text;
}

}  // namespace gravac::report
