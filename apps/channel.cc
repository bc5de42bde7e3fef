#include "apps/channel.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "gravac/util/require.h"

namespace gravac::apps {
namespace {

// Whether the socket is ready for `event` within the limit. Signals do not count as ready.
bool ready(const Socket& socket, short event, Channel::Seconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    pollfd one = {.fd = socket.get(), .events = event, .revents = 0};
    const Channel::Seconds left = until - std::chrono::steady_clock::now();
    const int found = poll(&one, 1, std::max(0, static_cast<int>(1000 * left.count())));
    if (found >= 0 || errno != EINTR) return found > 0;
  }
}

// Small messages leave at once, and little waits in this machine's own buffers, which on a slow link would
// take seconds to empty.
Socket without_delay(Socket socket) {
  const int yes = 1, most_waiting = 1 << 17;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_waiting, sizeof(most_waiting));
  return socket;
}

std::string address_of(const sockaddr_storage& address, socklen_t length) {
  char text[NI_MAXHOST] = "another machine";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof(text), nullptr, 0,
              NI_NUMERICHOST);
  return text;
}

}  // namespace

void Channel::wait_for(short event) {
  require(ready(socket_, event, limit_), "link: ", other_, " does not answer any more (waited ",
          limit_.count(), " s)");
}

void Channel::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else {
      require(errno == EAGAIN || errno == EINTR, "link: ", other_, " has left: ", std::strerror(errno));
      wait_for(POLLOUT);
    }
  }
}

void Channel::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    require(got != 0, "link: ", other_, " has left");
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    } else {
      require(errno == EAGAIN || errno == EINTR, "link: ", other_, " has left: ", std::strerror(errno));
      wait_for(POLLIN);
    }
  }
}

void Channel::send_number(std::uint64_t number) {
  std::array<std::byte, 8> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number >> (8 * i));
  send(bytes);
}

std::uint64_t Channel::receive_number() {
  std::array<std::byte, 8> bytes;
  receive(bytes);
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) number |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return number;
}

Channel connect_to(const Endpoint& there, Channel::Seconds limit) {
  Socket socket = start_connecting(there);
  int error = errno;
  socklen_t length = sizeof(error);
  const bool answered = socket.open() && ready(socket, POLLOUT, limit);
  if (answered) getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  require(answered && error == 0, "link: nobody answers at ", there.text(), " (",
          answered || !socket.open() ? std::strerror(error) : "no answer",
          "); run gravac doctor --serve on that machine first");
  return Channel(without_delay(std::move(socket)), there.text(), limit);
}

Channel accept_from(const Socket& listening, Channel::Seconds patience, Channel::Seconds limit) {
  require(ready(listening, POLLIN, patience), "link: nobody has connected within ", patience.count(), " s");
  sockaddr_storage from = {};
  socklen_t length = sizeof(from);
  Socket socket(
      accept4(listening.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  require(socket.open(), "link: cannot accept a connection: ", std::strerror(errno));
  return Channel(without_delay(std::move(socket)), address_of(from, length), limit);
}

}  // namespace gravac::apps
