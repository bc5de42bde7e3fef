#include "gravac/checkpoint.h"

#include <cstdint>
#include <cstring>

#include "gravac/util/checksum.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Bytes: magic, version, sections, checksum of everything before it. All numbers are little-endian. A section
// is the length of its name (4 bytes), its type (1), the length of its content (8), the name and the content.
constexpr std::uint32_t kMagic = 0x4b435647;     // "GVCK"
constexpr std::uint32_t kVersion = 1;            // rises if older programs could misread a newer file
constexpr std::size_t kFrame = 4 + 4 + 8;        // magic, version and checksum
constexpr std::size_t kSectionHead = 4 + 1 + 8;  // length of the name, type, length of the content

// Writes values one behind the other. The caller has made the buffer exactly large enough: a checkpoint can
// have gigabytes, and growing a vector would copy them again and again.
class Giver {
 public:
  explicit Giver(std::span<std::byte> room) : room_(room) {}

  void bytes(std::span<const std::byte> source) {
    if (!source.empty()) std::memcpy(room_.data(), source.data(), source.size());
    room_ = room_.subspan(source.size());
  }
  template <class T>
  void value(const T& value) {
    bytes(std::as_bytes(std::span(&value, 1)));
  }

 private:
  std::span<std::byte> room_;
};

// Reads values one behind the other, and throws Error where the bytes end too early.
class Taker {
 public:
  explicit Taker(std::span<const std::byte> bytes) : left_(bytes) {}

  std::span<const std::byte> bytes(std::uint64_t size) {
    require(size <= left_.size(), "checkpoint: a section announces ", size, " bytes, but only ", left_.size(),
            " bytes are left");
    const auto taken = left_.first(size);
    left_ = left_.subspan(size);
    return taken;
  }
  template <class T>
  T value() {
    T result;
    std::memcpy(&result, bytes(sizeof(T)).data(), sizeof(T));
    return result;
  }
  bool empty() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

// Copies, because bytes of a file are not aligned for T.
template <class T>
std::vector<T> as(std::span<const std::byte> bytes) {
  std::vector<T> result(bytes.size() / sizeof(T));
  if (!result.empty()) std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

void require_size(const std::string& name, std::size_t found, std::size_t expected) {
  require(found == expected, "checkpoint: expected ", expected, " entries in '", name, "', got ", found);
}

}  // namespace

void Checkpoint::put(const std::string& name, char type, std::span<const std::byte> bytes) {
  require(sections_.try_emplace(name, Section{type, {bytes.begin(), bytes.end()}}).second, "checkpoint: '",
          name, "' has already been added");
}

const Checkpoint::Section& Checkpoint::get(const std::string& name, char type, std::size_t unit) const {
  const auto found = sections_.find(name);
  require(found != sections_.end(), "checkpoint: has no '", name, "'");
  // A length that is no multiple of the unit cannot come from add(), but bytes may say anything.
  require(found->second.type == type && found->second.bytes.size() % unit == 0, "checkpoint: '", name,
          "' has a different type");
  return found->second;
}

void Checkpoint::add(const std::string& prefix, const Checkpoint& other) {
  for (const auto& [name, section] : other.sections_) put(prefix + name, section.type, section.bytes);
}

void Checkpoint::copy(const std::string& name, const Checkpoint& other) {
  const auto found = other.sections_.find(name);
  require(found != other.sections_.end(), "checkpoint: has no '", name, "'");
  put(name, found->second.type, found->second.bytes);
}

Checkpoint Checkpoint::part(const std::string& prefix) const {
  Checkpoint part;
  for (const std::string& name : names(prefix)) {
    const Section& section = sections_.at(name);
    part.put(name.substr(prefix.size()), section.type, section.bytes);
  }
  return part;
}

void Checkpoint::add(const std::string& prefix, const NamedNumbers& numbers) {
  for (const auto& [name, values] : numbers) add(prefix + name, std::span<const double>(values));
}

NamedNumbers Checkpoint::named_numbers(const std::string& prefix) const {
  NamedNumbers named;
  for (const std::string& name : names(prefix)) named.emplace_back(name.substr(prefix.size()), numbers(name));
  return named;
}

char Checkpoint::type(const std::string& name) const {
  const auto found = sections_.find(name);
  require(found != sections_.end(), "checkpoint: has no '", name, "'");
  return found->second.type;
}

std::vector<double> Checkpoint::numbers(const std::string& name) const {
  return as<double>(get(name, 'd', sizeof(double)).bytes);
}

std::vector<double> Checkpoint::numbers(const std::string& name, std::size_t size) const {
  std::vector<double> result = numbers(name);
  require_size(name, result.size(), size);
  return result;
}

std::vector<float> Checkpoint::floats(const std::string& name) const {
  const std::span<const float> found = view(name);
  return {found.begin(), found.end()};
}

std::vector<float> Checkpoint::floats(const std::string& name, std::size_t size) const {
  const std::span<const float> found = view(name, size);
  return {found.begin(), found.end()};
}

// A section has memory of its own, which is aligned for every type.
std::span<const float> Checkpoint::view(const std::string& name) const {
  const std::vector<std::byte>& bytes = get(name, 'f', sizeof(float)).bytes;
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<const float> Checkpoint::view(const std::string& name, std::size_t size) const {
  const std::span<const float> found = view(name);
  require_size(name, found.size(), size);
  return found;
}

std::string Checkpoint::text(const std::string& name) const {
  const std::vector<char> result = as<char>(get(name, 't', 1).bytes);
  return {result.begin(), result.end()};
}

std::vector<std::string> Checkpoint::names(std::string_view prefix) const {
  std::vector<std::string> result;
  for (const auto& [name, section] : sections_) {
    if (name.starts_with(prefix)) result.push_back(name);
  }
  return result;
}

// Two passes over the sections: the first adds up the size, the second writes.
std::vector<std::byte> Checkpoint::to_bytes() const {
  std::size_t size = kFrame;
  for (const auto& [name, section] : sections_) size += kSectionHead + name.size() + section.bytes.size();
  std::vector<std::byte> out(size);
  Giver giver(out);
  giver.value(kMagic);
  giver.value(kVersion);
  for (const auto& [name, section] : sections_) {
    giver.value(static_cast<std::uint32_t>(name.size()));
    giver.value(section.type);
    giver.value(static_cast<std::uint64_t>(section.bytes.size()));
    giver.bytes(std::as_bytes(std::span(name)));
    giver.bytes(section.bytes);
  }
  giver.value(checksum(std::span(out).first(size - sizeof(std::uint64_t))));
  return out;
}

// Magic and version come before the checksum, because "not a checkpoint" and "too new" help a user more than
// "damaged".
Checkpoint Checkpoint::from_bytes(std::span<const std::byte> bytes) {
  constexpr std::size_t kLeast = 2 * sizeof(std::uint32_t) + sizeof(std::uint64_t);
  require(bytes.size() >= kLeast, "checkpoint: expected at least ", kLeast, " bytes, got ", bytes.size());
  const auto body = bytes.first(bytes.size() - sizeof(std::uint64_t));
  Taker taker(body);
  require(taker.value<std::uint32_t>() == kMagic, "checkpoint: these bytes are not a GraVAC checkpoint");
  const auto version = taker.value<std::uint32_t>();
  require(version <= kVersion, "checkpoint: expected version ", kVersion, " or older, got ", version);
  require(Taker(bytes.subspan(body.size())).value<std::uint64_t>() == checksum(body),
          "checkpoint: truncated or damaged: its checksum does not match");
  // The checksum is only against accidents: lengths are still checked, since anyone can compute a checksum.
  Checkpoint checkpoint;
  while (!taker.empty()) {
    const auto letters = taker.value<std::uint32_t>();
    const auto type = taker.value<char>();
    const auto size = taker.value<std::uint64_t>();
    const std::vector<char> name = as<char>(taker.bytes(letters));
    checkpoint.put({name.begin(), name.end()}, type, taker.bytes(size));
  }
  return checkpoint;
}

}  // namespace gravac
