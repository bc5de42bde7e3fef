#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gravac/util/named_numbers.h"

namespace gravac {

// The state of a run on one rank: sections of doubles, floats or text, each with a name. As bytes it is a
// version, the sections and a checksum, in our own binary format; no part of it is ever executed, as a pickle
// would be. docs/algorithm.md, "Checkpoints", says what engines save. A plain value: copy it, move it; from
// one thread at a time.
class Checkpoint {
 public:
  // Add a section. Throw Error if there is one of this name already.
  void add(const std::string& name, std::span<const double> numbers) {
    put(name, 'd', std::as_bytes(numbers));
  }
  void add(const std::string& name, double number) { add(name, std::span(&number, 1)); }
  void add(const std::string& name, std::span<const float> values) { put(name, 'f', std::as_bytes(values)); }
  void add(const std::string& name, std::string_view text) { put(name, 't', std::as_bytes(std::span(text))); }

  // The content of a section. Throw Error that names the section if it is missing, of another type, or does
  // not have `size` entries.
  std::vector<double> numbers(const std::string& name) const;
  std::vector<double> numbers(const std::string& name, std::size_t size) const;
  double number(const std::string& name) const { return numbers(name, 1)[0]; }
  std::vector<float> floats(const std::string& name) const;
  std::vector<float> floats(const std::string& name, std::size_t size) const;
  // The same without a copy, for as long as this checkpoint is there and unchanged.
  std::span<const float> view(const std::string& name) const;
  std::span<const float> view(const std::string& name, std::size_t size) const;
  std::string text(const std::string& name) const;
  // The type of a section: 'd' for numbers, 'f' for floats, 't' for text. Throws Error if it is missing.
  char type(const std::string& name) const;
  bool has(const std::string& name) const { return sections_.contains(name); }
  // Adds all sections of another checkpoint, with `prefix` put before their names; part() gets them back
  // under their old names.
  void add(const std::string& prefix, const Checkpoint& other);
  Checkpoint part(const std::string& prefix) const;
  // The same for numbers with names: a section for each of them.
  void add(const std::string& prefix, const NamedNumbers& numbers);
  NamedNumbers named_numbers(const std::string& prefix) const;
  // Adds the section `name` of another checkpoint.
  void copy(const std::string& name, const Checkpoint& other);
  // The names that begin with `prefix`, in alphabetical order.
  std::vector<std::string> names(std::string_view prefix) const;

  std::vector<std::byte> to_bytes() const;
  // Throws Error for bytes that are truncated, damaged, no checkpoint at all or written by a later version.
  // Whatever the bytes: reads nothing outside them, and allocates no more than their own size.
  static Checkpoint from_bytes(std::span<const std::byte> bytes);

 private:
  struct Section {
    char type = 0;
    std::vector<std::byte> bytes;
  };
  void put(const std::string& name, char type, std::span<const std::byte> bytes);
  const Section& get(const std::string& name, char type, std::size_t unit) const;

  std::map<std::string, Section> sections_;  // sorted, so that equal states give equal bytes
};

}  // namespace gravac
