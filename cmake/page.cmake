# Makes the page of `gravac report` and writes it as a C++ string; an empty one if there is no uPlot (scripts/page).
# Usage: cmake -DFOLDER=apps/report -DUPLOT=build/uplot -DOUT=page_template.cc -P page.cmake
cmake_minimum_required(VERSION 3.25)
set(page "")
if(EXISTS ${UPLOT}/uPlot.iife.min.js)
  file(READ ${FOLDER}/page.html page)
  foreach(part CSS=${FOLDER}/page.css JS=${FOLDER}/page.js SVG_JS=${FOLDER}/svg.js UPLOT_CSS=${UPLOT}/uPlot.min.css
          UPLOT_JS=${UPLOT}/uPlot.iife.min.js)
    string(REGEX MATCH "^[A-Z_]+" mark ${part})
    string(REPLACE "${mark}=" "" file ${part})
    file(READ ${file} text)
    string(REPLACE "@${mark}@" "${text}" page "${page}")
  endforeach()
  file(READ ${UPLOT}/LICENSE licence)
  string(REPLACE "</head>" "<!-- Contains uPlot:\n${licence}-->\n</head>" page "${page}")
endif()
file(WRITE ${OUT} "#include \"apps/report/page_template.h\"
namespace gravac::report {
const std::string_view kPageTemplate = R\"page(${page})page\";
}  // namespace gravac::report
")
