# Makes the page of `gravac report` and `gravac simulate` and writes it as a C++ string.
# Usage: cmake -DFOLDER=apps/report -DOUT=page_template.cc -P page.cmake
cmake_minimum_required(VERSION 3.25)
file(READ ${FOLDER}/page.html page)
foreach(part CSS=page.css JS=page.js SVG_JS=svg.js)
  string(REGEX MATCH "^[A-Z_]+" mark ${part})
  string(REPLACE "${mark}=" "" file ${part})
  file(READ ${FOLDER}/${file} text)
  string(REPLACE "@${mark}@" "${text}" page "${page}")
endforeach()
file(WRITE ${OUT} "#include \"apps/report/page.h\"
namespace gravac::report {
const std::string_view kPageTemplate = R\"page(${page})page\";
}  // namespace gravac::report
")
