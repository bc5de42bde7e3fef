#include "train/events.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

// We write TensorBoard's format ourselves: the little that scalars need of protobuf and TFRecord
// is shorter than a dependency on TensorFlow's libraries. An event file is a sequence of TFRecord
// frames with one protobuf message in each:
//
//   u64 length | u32 masked crc32c of those 8 bytes | data | u32 masked crc32c of data
//
//   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//             SessionLog session_log = 7; }
//   Summary { Value { string tag = 1; float simple_value = 2; } value = 1; }
//   SessionLog { enum { START = 1 } status = 1; }
//
// All numbers are little-endian. The first message holds the file_version.

namespace gravac::train {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kPending = 1 << 15;  // bytes to collect in memory before a write

constexpr std::array<std::uint32_t, 256> crc_table() {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? kPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// TFRecord rotates a CRC and adds a constant ("masking"), since the CRC of data that itself ends in
// a CRC would be a weak check.
std::string masked_crc(std::string_view bytes) {
  return raw(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

// Protobuf's integers: seven bits a byte, lowest first; the eighth bit says that another byte follows.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

// A field of a protobuf message is a key, made of the field's number and wire type, and the value.
std::string key(unsigned number, unsigned type) {
  return varint(number << 3 | type);
}
std::string field(unsigned number, std::uint64_t value) {
  return key(number, 0) + varint(value);
}
std::string field(unsigned number, double value) {
  return key(number, 1) + raw(value);
}
std::string field(unsigned number, std::string_view bytes) {
  return key(number, 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field(unsigned number, float value) {
  return key(number, 5) + raw(value);
}

std::string event_at(double wall_time, std::int64_t step) {
  return field(1, wall_time) + field(2, static_cast<std::uint64_t>(step));
}

// TensorBoard reads the files of a folder in the order of their names. The name therefore begins with
// the time, in microseconds, so that the file of a resumed run comes after that of the run it resumes.
std::string file_name(double wall_time) {
  char time[40], host[256] = {};
  std::snprintf(time, sizeof(time), "%017.6f", wall_time);
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return std::string("events.out.tfevents.") + time + '.' + (*host ? host : "unknown");
}

std::string create_folder(const std::string& folder) {
  std::error_code ignored;  // if there is no folder in the end, opening the file fails and says why
  std::filesystem::create_directories(folder, ignored);
  return folder;
}

}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 255];
  return ~crc;
}

EventFile::EventFile(const std::string& folder, std::function<double()> wall_time)
    : wall_time_(std::move(wall_time)),
      path_(create_folder(folder) + '/' + file_name(wall_time_())),
      sink_(path_) {
  add(field(1, wall_time_()) + field(3, "brain.Event:2"));
}

void EventFile::resume(std::int64_t step) {
  constexpr std::uint64_t kStart = 1;
  add(event_at(wall_time_(), step) + field(7, field(1, kStart)));
}

void EventFile::scalar(std::string_view tag, double value, std::int64_t step) {
  const std::string entry = field(1, tag) + field(2, static_cast<float>(value));
  add(event_at(wall_time_(), step) + field(5, field(1, entry)));
}

void EventFile::add(const std::string& event) {
  const std::string length = raw(std::uint64_t{event.size()});
  pending_ += length + masked_crc(length) + event + masked_crc(event);
  if (pending_.size() >= kPending) flush();
}

void EventFile::flush() {
  sink_.write(pending_);
  pending_.clear();
}

}  // namespace gravac::train
