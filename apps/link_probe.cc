// The two sides of a measurement talk over one TCP connection; the side that measures leads:
//
//   greeting         both: a number that names this protocol; the server adds whether it has Gloo
//   1 PING           bytes that are sent back one by one, up to kLastPing
//   2 SEND           the measuring side sends for kStreamSeconds; the server answers how fast bytes came in
//   3 RECEIVE        the same in the other direction
//   4 GLOO entries   the server answers address and port, then both make a group of two and all-reduce
//   0 END

#include "apps/link_probe.h"

#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <exception>
#include <vector>

#include "apps/channel.h"
#include "apps/trainer.h"
#include "gravac/util/require.h"

namespace gravac::apps {
namespace {

enum Command : std::uint64_t { kEnd, kPing, kSend, kReceive, kGloo };

constexpr std::uint64_t kGreeting = 0x314b4e4c56415247;  // "GRAVLNK1"
constexpr std::size_t kPings = 100, kBlock = 1 << 16;
constexpr int kMostWaiting = 128;  // connections that nobody has accepted yet
constexpr std::byte kLastPing{255};
constexpr double kStreamSeconds = 1.5, kWarmSeconds = 0.3, kGlooSeconds = 0.5;
constexpr Channel::Seconds kLimit{5}, kPatience{600}, kLongestMeasurement{120};

// Numbers travel with their lowest byte first.
constexpr auto kGreetingBytes = [] {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(kGreeting >> (8 * i));
  return bytes;
}();

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Blocks of kBlock bytes, each after a 1; a 0 ends them.
void stream(Channel& channel) {
  const std::vector<std::byte> block(kBlock);
  for (const double until = now() + kStreamSeconds; now() < until;) {
    channel.send_number(1);
    channel.send(block);
  }
  channel.send_number(0);
}

// Bits per second at which blocks come in. The first ones do not count: TCP begins slowly, and buffers on the
// way are still empty.
double drain(Channel& channel) {
  std::vector<std::byte> block(kBlock);
  const double began = now();
  double warm = began, last = began, bytes = 0, counted = 0;
  while (channel.receive_number() == 1) {
    channel.receive(block);
    last = now();
    bytes += kBlock;
    if (last - began < kWarmSeconds) {
      warm = last;
    } else {
      counted += kBlock;
    }
  }
  const bool long_enough = last > warm && counted > 0;
  return 8 * (long_enough ? counted / (last - warm) : bytes / std::max(last - began, 1e-9));
}

double ping(Channel& channel) {
  channel.send_number(kPing);
  std::vector<double> all;
  std::byte one[1] = {};
  for (const double until = now() + 2; all.empty() || (all.size() < kPings && now() < until);) {
    const double began = now();
    channel.send(one);
    channel.receive(one);
    all.push_back(now() - began);
  }
  one[0] = kLastPing;
  channel.send(one);
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

// Answers every byte with itself, until the last.
void pong(Channel& channel) {
  std::byte one[1];
  for (channel.receive(one); one[0] != kLastPing; channel.receive(one)) channel.send(one);
}

void send_text(Channel& channel, const std::string& text) {
  channel.send_number(text.size());
  channel.send(std::as_bytes(std::span(text)));
}

std::string receive_text(Channel& channel) {
  const std::uint64_t size = channel.receive_number();
  require(size < 1000, "link: expected a text of less than 1000 bytes from ", channel.other(), ", got ",
          size);
  std::string text(size, '\0');
  channel.receive(std::as_writable_bytes(std::span(text)));
  return text;
}

// The address of this machine that the other one has connected to.
std::string own_address(const Channel& channel) {
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  getsockname(channel.socket().get(), reinterpret_cast<sockaddr*>(&own), &length);
  char text[NI_MAXHOST] = "";
  getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  const std::string address = text;
  return address.starts_with("::ffff:") ? address.substr(7) : address;  // an IPv4 address at an IPv6 socket
}

// As many floats as the link should carry in kGlooSeconds.
std::size_t gloo_entries(double bits_per_second) {
  return static_cast<std::size_t>(std::clamp(bits_per_second / 8 * kGlooSeconds / 4, 1e4, 1.6e7));
}

double measure_gloo(Channel& channel, double bits_per_second) {
  const std::size_t entries = gloo_entries(bits_per_second);
  channel.send_number(kGloo);
  channel.send_number(entries);
  const std::string address = receive_text(channel);
  const auto port = static_cast<std::uint16_t>(channel.receive_number());
  const double seconds =
      trainer().gloo_seconds({.address = address, .port = port, .rank = 1, .entries = entries});
  return 8 * 4 * static_cast<double>(entries) /
         seconds;  // of two ranks each sends as much as the array is long
}

void serve_gloo(Channel& channel) {
  const std::size_t entries = std::min<std::size_t>(channel.receive_number(), std::size_t{1} << 24);
  const std::string address = own_address(channel);
  const std::uint16_t port = listen_at(address, 1).second.port;  // free again at once, for Gloo
  send_text(channel, address);
  channel.send_number(port);
  trainer().gloo_seconds({.address = address, .port = port, .rank = 0, .entries = entries});
}

// Answers somebody who has sent the greeting.
void serve(Channel& channel) {
  channel.end_after(kLongestMeasurement);
  channel.send_number(kGreeting);
  channel.send_number(has_trainer() ? 1 : 0);
  for (;;) {
    switch (const std::uint64_t command = channel.receive_number()) {
      case kEnd:
        return;
      case kPing:
        pong(channel);
        break;
      case kSend:
        channel.send_number(static_cast<std::uint64_t>(drain(channel)));
        break;
      case kReceive:
        stream(channel);
        break;
      case kGloo:
        serve_gloo(channel);
        break;
      default:
        throw Error("link: expected a command from 0 to 4 from " + channel.other() + ", got " +
                    std::to_string(command));
    }
  }
}

std::uint16_t port_from_string(const std::string& text, const std::string& option) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool good =
      error == std::errc() && end == text.data() + text.size() && (port > 0 || option == "--serve");
  require(good, option, ": port must be a number up to 65535, got '", text, "'");
  return port;
}

std::pair<Socket, Endpoint> listen_everywhere(std::uint16_t port) {
  try {
    return listen_at("::", kMostWaiting, port);  // IPv4, too
  } catch (const Error&) {
    return listen_at("0.0.0.0", kMostWaiting, port);
  }
}

}  // namespace

Link LinkSpeed::link() const {
  double bits = std::min(send_bits_per_second, receive_bits_per_second);
  if (gloo_bits_per_second) bits = std::min(bits, *gloo_bits_per_second);
  return {bits, round_trip_seconds / 2};
}

Endpoint endpoint_from_string(const std::string& text, const std::string& option) {
  const bool bracketed = text.starts_with('[');
  const std::size_t end = bracketed ? text.find(']') : text.find(':');
  // More than one colon and no brackets: an IPv6 address without a port.
  if (!bracketed && std::ranges::count(text, ':') > 1) return {text, kProbePort};
  Endpoint endpoint{bracketed ? text.substr(1, end - 1) : text.substr(0, end), kProbePort};
  const std::size_t colon = bracketed && end != text.npos ? end + 1 : end;
  const std::string port = colon == text.npos || colon >= text.size() ? "" : text.substr(colon + 1);
  if (!port.empty()) endpoint.port = port_from_string(port, option);
  require(!endpoint.address.empty() && (!bracketed || end != text.npos), option,
          ": expected HOST or HOST:PORT, got '", text, "'");
  return endpoint;
}

Endpoint listening_endpoint_from_string(const std::string& text) {
  if (text.find_first_not_of("0123456789") == text.npos) return {"", port_from_string(text, "--serve")};
  Endpoint endpoint = endpoint_from_string(text, "--serve");
  if (if_nametoindex(endpoint.address.c_str()) != 0)
    endpoint.address = own_addresses(endpoint.address).front();
  return endpoint;
}

LinkSpeed measure_link(const Endpoint& there) {
  Channel channel = connect_to(there, kLimit);
  channel.end_after(kLongestMeasurement);
  channel.send_number(kGreeting);
  require(channel.receive_number() == kGreeting, "link: ", there.text(),
          " is not a gravac doctor of this version");
  const bool gloo = channel.receive_number() == 1 && has_trainer();
  LinkSpeed speed{.round_trip_seconds = ping(channel)};
  channel.send_number(kSend);
  stream(channel);
  speed.send_bits_per_second = static_cast<double>(channel.receive_number());
  channel.send_number(kReceive);
  speed.receive_bits_per_second = drain(channel);
  require(speed.send_bits_per_second > 0 && speed.receive_bits_per_second > 0, "link: nothing arrived at ",
          there.text());
  if (gloo) speed.gloo_bits_per_second = measure_gloo(channel, speed.link().bits_per_second);
  channel.send_number(kEnd);
  return speed;
}

void serve_probe(const Endpoint& at, void (*say)(const std::string& line)) {
  const auto [listening, here] =
      at.address.empty() ? listen_everywhere(at.port) : listen_at(at.address, kMostWaiting, at.port);
  const bool six = at.address.find(':') != at.address.npos;
  const std::string host = at.address.empty() ? "HOST" : six ? '[' + at.address + ']' : at.address;
  const std::string port = std::to_string(here.port);
  say((at.address.empty() ? "listening at every address of this machine" : "listening at " + at.address) +
      " on port " + port + "; on the other machine run: gravac doctor --link " + host + ':' + port +
      " (ends after one measurement, or after 10 minutes without)");
  const double until = now() + kPatience.count();
  for (;;) {
    Channel channel = accept_greeted(listening, kGreetingBytes, Channel::Seconds(until - now()), kLimit, say);
    say("measuring the link to " + channel.other());
    try {
      serve(channel);
      return say("done");
    } catch (const std::exception& error) {
      say(error.what() + std::string("; still listening"));
    }
  }
}

}  // namespace gravac::apps
