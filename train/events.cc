#include "train/events.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

// An event file is a run of TFRecord frames, each with one protobuf message:
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

constexpr std::size_t kPending = 1 << 15;  // bytes to gather before they are written

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

std::string masked_crc(std::string_view bytes) {
  return raw(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

// Fields of a message: a key of number and wire type, then the value.
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

// TensorBoard reads the files of a folder in the order of their names, so time comes first and is fine.
std::string file_name(double wall_time) {
  char time[40], host[256] = {};
  std::snprintf(time, sizeof(time), "%017.6f", wall_time);
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return std::string("events.out.tfevents.") + time + '.' + (*host ? host : "unknown");
}

std::string made(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);  // if it is not there then, opening fails and says why
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
    : wall_time_(std::move(wall_time)), path_(made(folder) + '/' + file_name(wall_time_())), sink_(path_) {
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
