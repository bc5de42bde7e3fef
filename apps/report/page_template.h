#pragma once

#include <string_view>

namespace gravac::report {

// page.html with page.css, page.js, svg.js and uPlot put in; cmake/page.cmake makes it when building. Empty
// if uPlot was not to be had then.
extern const std::string_view kPageTemplate;

}  // namespace gravac::report
