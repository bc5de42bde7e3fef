#pragma once

// The law for every table of named things: users can tell the entries apart and read what each is.

#include <cctype>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace gravac::testing {

inline bool is_lower_case_name(std::string_view name) {
  for (const char c : name) {
    if (!std::islower(static_cast<unsigned char>(c)) && !std::isdigit(static_cast<unsigned char>(c)) &&
        c != '-') {
      return false;
    }
  }
  return !name.empty();
}

// A capital letter or a number first, a full stop at the end and none before.
inline bool is_one_sentence(std::string_view text) {
  return text.size() > 10 &&
         (std::isupper(static_cast<unsigned char>(text[0])) ||
          std::isdigit(static_cast<unsigned char>(text[0]))) &&
         text.ends_with('.') && text.find(". ") == text.npos && text.find('\n') == text.npos &&
         text.find('|') == text.npos;
}

// What is wrong with a table whose entries have a `name` and a `description`; "" if nothing is.
template <class Table>
std::string table_defects(const Table& table) {
  std::ostringstream defects;
  std::set<std::string_view> names;
  for (const auto& entry : table) {
    if (!names.insert(entry.name).second) defects << entry.name << " is there twice\n";
    if (!is_lower_case_name(entry.name)) defects << "'" << entry.name << "' is no lower-case name\n";
    if (!is_one_sentence(entry.description)) {
      defects << entry.name << ": '" << entry.description << "' is not one sentence\n";
    }
  }
  if (names.empty()) defects << "the table is empty\n";
  return defects.str();
}

}  // namespace gravac::testing
