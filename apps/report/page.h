#pragma once

#include <string>
#include <string_view>

namespace gravac::report {

// Whether the page is a file, or is served by `gravac watch` and asks for new data every two seconds.
enum class PageKind { file, live };

// One HTML page that needs nothing else. `data` is what to_json() returns (page_data.h).
std::string page(std::string_view data, PageKind kind);

// page.html with page.css, page.js and svg.js put in; cmake/page.cmake makes it when building.
extern const std::string_view kPageTemplate;

// JSON as it may stand inside a <script> element: no text in it can end the element or open a comment.
std::string escape_for_script(std::string_view json);

}  // namespace gravac::report
