#include "gravac/wire/message.h"

#include <cstring>

#include "gravac/util/checksum.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::uint32_t kMagic = 0x43415647;  // "GVAC"
constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kChecksumAt = offsetof(Header, checksum);

// Over the header, without the checksum itself, and the body.
std::uint64_t checksum_of(std::span<const std::byte> message) {
  return checksum(message.subspan(sizeof(Header)), checksum(message.first(kChecksumAt)));
}

}  // namespace

void begin_message(std::span<std::byte> message, Form form, std::uint8_t values, const Stamp& stamp) {
  const Header header{.magic = kMagic,
                      .version = kVersion,
                      .form = form,
                      .values = values,
                      .begin = stamp.begin,
                      .entries = stamp.entries,
                      .step = stamp.step,
                      .plan = stamp.plan};
  std::memcpy(message.data(), &header, sizeof(header));
}

void seal_message(std::span<std::byte> message) {
  const std::uint64_t sum = checksum_of(message);
  std::memcpy(message.data() + kChecksumAt, &sum, sizeof(sum));
}

// The order matters: magic and version come first, because a message of another format has its checksum
// elsewhere.
OpenMessage open_message(std::span<const std::byte> message, const Stamp& stamp) {
  OpenMessage opened;
  require(message.size() >= sizeof(Header), "wire: expected a message of at least ", sizeof(Header),
          " bytes, got ", message.size());
  std::memcpy(&opened.header, message.data(), sizeof(Header));
  const Header& header = opened.header;
  opened.body = message.subspan(sizeof(Header));
  require(header.magic == kMagic, "wire: these bytes are not a GraVAC message");
  require(header.version == kVersion, "wire: expected version ", int{kVersion}, ", got ",
          int{header.version});
  require(header.checksum == checksum_of(message), "wire: message damaged: its checksum does not match");
  require(header.step == stamp.step, "wire: expected a message of step ", stamp.step, ", got one of step ",
          header.step);
  require(header.plan == stamp.plan, "wire: the sender's decision for step ", stamp.step,
          " differs from this rank's");
  require(header.begin == stamp.begin && header.entries == stamp.entries,
          "wire: expected a message about entries ", stamp.begin, " to ",
          std::uint64_t{stamp.begin} + stamp.entries, ", got entries ", header.begin, " to ",
          std::uint64_t{header.begin} + header.entries);
  return opened;
}

}  // namespace gravac
