#pragma once

#include <string>
#include <vector>

namespace gravac::apps {

// A kind of thing that users choose by name.
struct Section {
  struct Line {
    std::string name, description;
  };
  std::string name;  // "compressors"
  std::vector<Line> lines;
};

// Models, data, compressors, policies and exchanges, from the tables that the program works by.
std::vector<Section> sections();

enum class ListFormat { text, json, markdown };

// Prints every name with its description. Markdown: the tables of docs/, see markdown.h.
void show_list(ListFormat format);

}  // namespace gravac::apps
