#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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

  // From now on all operations together may take this long.
  void end_after(Seconds all) { end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(all); }

  const Socket& socket() const { return socket_; }
  const std::string& other() const { return other_; }

 private:
  using Clock = std::chrono::steady_clock;

  void check_end() const;
  void wait_for(short event);

  Socket socket_;
  std::string other_;
  Seconds limit_;
  Clock::time_point end_ = Clock::time_point::max();
};

// Throws Error if nobody answers there within the limit.
Channel connect_to(const Endpoint& there, Channel::Seconds limit);

// Waits on a listening socket for a connection whose first bytes are `greeting`. Many may connect at a time;
// all that send something else, leave, or have not sent it within `limit` are dropped, with a line to `say`.
// Throws Error if nobody has sent it within `patience`.
Channel accept_greeted(const Socket& listening, std::span<const std::byte> greeting,
                       Channel::Seconds patience, Channel::Seconds limit,
                       const std::function<void(const std::string& line)>& say);

}  // namespace gravac::apps
