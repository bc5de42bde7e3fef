#pragma once

namespace gravac::apps {

enum class ListFormat { text, json, markdown };

// Prints every name with its description. Markdown: the tables of docs/, see markdown.h.
void show_list(ListFormat format);

}  // namespace gravac::apps
