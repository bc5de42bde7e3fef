#pragma once

#include <string_view>

namespace gravac::report {

// page.html with page.css, page.js and svg.js put in; cmake/page.cmake makes it when building.
extern const std::string_view kPageTemplate;

}  // namespace gravac::report
