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
#include <vector>

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

void Channel::check_end() const {
  require(Clock::now() < end_, "link: ", other_, " takes too long");
}

void Channel::wait_for(short event) {
  require(ready(socket_, event, limit_), "link: ", other_, " no longer answers (waited ", limit_.count(),
          " s)");
}

void Channel::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    check_end();
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
    check_end();
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

namespace {

constexpr std::size_t kMostGuests = 32, kMostComplaints = 10;

// Somebody who has connected and has not sent the whole greeting yet.
struct Guest {
  Socket socket;
  std::string name;
  std::chrono::steady_clock::time_point until;
  std::size_t greeted = 0;  // bytes of the greeting
  std::string wrong;        // why the guest is to be dropped

  void read(std::span<const std::byte> greeting) {
    std::array<std::byte, 64> bytes;
    const std::size_t room = std::min(bytes.size(), greeting.size() - greeted);
    const ssize_t got = recv(socket.get(), bytes.data(), room, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const std::size_t count = got > 0 ? static_cast<std::size_t>(got) : 0;
    const bool right = std::equal(bytes.begin(), bytes.begin() + count, greeting.begin() + greeted);
    if (count == 0 || !right) wrong = count == 0 ? "has left" : "is no gravac doctor of this version";
    greeted += count;
  }
};

Guest accept_guest(const Socket& listening, Channel::Seconds limit) {
  sockaddr_storage from = {};
  socklen_t length = sizeof(from);
  Socket socket(
      accept4(listening.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
  return {without_delay(std::move(socket)), address_of(from, length), until};
}

// Waits until a guest or somebody new has something to say, or until one of the two times.
bool wait_for_any(const Socket& listening, std::vector<Guest>& guests, std::span<const std::byte> greeting,
                  std::chrono::steady_clock::time_point until) {
  std::vector<pollfd> wishes = {{listening.get(), POLLIN, 0}};
  for (const Guest& guest : guests) {
    wishes.push_back({guest.socket.get(), POLLIN, 0});
    until = std::min(until, guest.until);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  if (poll(wishes.data(), wishes.size(), std::max(0, static_cast<int>(left.count()))) < 0) return false;
  for (std::size_t i = 0; i < guests.size(); ++i) {
    if (wishes[i + 1].revents != 0) guests[i].read(greeting);
  }
  return wishes[0].revents != 0;
}

}  // namespace

Channel accept_greeted(const Socket& listening, std::span<const std::byte> greeting,
                       Channel::Seconds patience, Channel::Seconds limit,
                       const std::function<void(const std::string& line)>& say) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
  std::vector<Guest> guests;  // in the order in which they came
  std::size_t complaints = 0;
  for (;;) {
    require(Clock::now() < until, "link: timed out; nobody has measured the link");
    const bool somebody_new = wait_for_any(listening, guests, greeting, until);
    for (Guest& guest : guests) {
      if (guest.wrong.empty() && guest.greeted == greeting.size())
        return Channel(std::move(guest.socket), guest.name, limit);
      if (guest.wrong.empty() && Clock::now() >= guest.until) guest.wrong = "says nothing";
    }
    if (somebody_new && guests.size() >= kMostGuests) guests.front().wrong = "makes room for others";
    for (const Guest& guest : guests) {
      if (!guest.wrong.empty() && ++complaints <= kMostComplaints)
        say("dropped " + guest.name + ", which " + guest.wrong);
    }
    std::erase_if(guests, [](const Guest& guest) { return !guest.wrong.empty(); });
    if (!somebody_new) continue;
    Guest guest = accept_guest(listening, limit);
    if (guest.socket.open()) guests.push_back(std::move(guest));
  }
}

}  // namespace gravac::apps
