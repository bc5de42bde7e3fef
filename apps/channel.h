#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "adapters/sockets.h"

namespace gravac::apps {

// A TCP connection to another machine, whose every operation ends within a limit: then it throws Error that
// names the other machine. Numbers travel with their lowest byte first.
class Channel {
 public:
  using Seconds = std::chrono::duration<double>;

  Channel(Socket socket, std::string other, Seconds limit)
      : socket_(std::move(socket)), other_(std::move(other)), limit_(limit) {}

  void send(std::span<const std::byte> bytes);
  void receive(std::span<std::byte> bytes);
  void send_number(std::uint64_t number);
  std::uint64_t receive_number();

  const Socket& socket() const { return socket_; }
  const std::string& other() const { return other_; }

 private:
  void wait_for(short event);

  Socket socket_;
  std::string other_;
  Seconds limit_;
};

// Throws Error if nobody answers there within the limit.
Channel connect_to(const Endpoint& there, Channel::Seconds limit);
// The next connection to a listening socket. Throws Error if none comes within `patience`.
Channel accept_from(const Socket& listening, Channel::Seconds patience, Channel::Seconds limit);

}  // namespace gravac::apps
