#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gravac {

// State as named sections of numbers, floats or text, and as bytes: a version, the
// sections, a checksum. Reading back is by name and checked; see docs/algorithm.md.
class Checkpoint {
 public:
  void add(const std::string& name, std::span<const double> numbers) {
    put(name, 'd', std::as_bytes(numbers));
  }
  void add(const std::string& name, std::span<const float> values) { put(name, 'f', std::as_bytes(values)); }
  void add(const std::string& name, std::string_view text) { put(name, 't', std::as_bytes(std::span(text))); }

  // Throw Error, naming the section, if it is not there, of another type or of another size.
  std::vector<double> numbers(const std::string& name) const;
  std::vector<double> numbers(const std::string& name, std::size_t size) const;
  std::vector<float> floats(const std::string& name) const;
  std::vector<float> floats(const std::string& name, std::size_t size) const;
  std::string text(const std::string& name) const;
  // 'd' for numbers, 'f' for floats, 't' for text.
  char type(const std::string& name) const;
  // All sections of another checkpoint, their names behind `prefix`; and back.
  void add(const std::string& prefix, const Checkpoint& other);
  Checkpoint part(const std::string& prefix) const;
  // The section `name` as another checkpoint has it.
  void copy(const std::string& name, const Checkpoint& other);
  // The names of the sections that begin with `prefix`.
  std::vector<std::string> names(std::string_view prefix) const;

  std::vector<std::byte> to_bytes() const;
  // Throws Error for bytes that are truncated, damaged, of another kind or of a
  // later version. Reads nothing outside them, and allocates no more than they hold.
  static Checkpoint from_bytes(std::span<const std::byte> bytes);

 private:
  struct Section {
    char type = 0;
    std::vector<std::byte> bytes;
  };
  void put(const std::string& name, char type, std::span<const std::byte> bytes);
  const Section& get(const std::string& name, char type, std::size_t unit) const;

  std::map<std::string, Section> sections_;
};

}  // namespace gravac
