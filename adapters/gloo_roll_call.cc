#include "adapters/gloo_roll_call.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>

namespace gravac {
namespace {

using Clock = std::chrono::steady_clock;

// Whether a read has failed in a way from which a connection does not recover.
bool failed(ssize_t got) {
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Whether the other side has closed the connection. A rank that is called says nothing on it, and keeps it
// open as long as its process lives.
bool broken(const Socket& socket) {
  char nothing = 0;
  return failed(recv(socket.get(), &nothing, 1, 0));
}

// How far a connection has come that was started.
enum class Progress { connecting, connected, refused };
Progress progress_of(const Socket& socket) {
  if (!socket.open()) return Progress::refused;
  pollfd ready = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, 0) == 0) return Progress::connecting;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? Progress::connected : Progress::refused;
}

}  // namespace

// A call to another rank.
struct RollCall::Call {
  Socket socket;
  bool said = false;
  Clock::time_point refused = Clock::time_point::max();  // its process has ended

  void go_on(const Word& word) {
    if (refused != Clock::time_point::max()) return;
    if (said) {
      if (broken(socket)) refused = Clock::now();
      return;
    }
    const Progress progress = progress_of(socket);
    if (progress == Progress::connecting) return;
    said = progress == Progress::connected &&
           send(socket.get(), word.data(), sizeof(word), MSG_NOSIGNAL) == sizeof(word);
    if (!said) refused = Clock::now();
  }
};

RollCall::Heard::State RollCall::Heard::read() {
  char* room = reinterpret_cast<char*>(word.data());
  const ssize_t got = recv(socket.get(), room + bytes, sizeof(word) - bytes, 0);
  if (failed(got)) return State::broken;
  if (got > 0) bytes += static_cast<std::size_t>(got);
  return bytes == sizeof(word) ? State::complete : State::partial;
}

RollCall::RollCall(std::size_t rank, std::uint64_t run, const std::string& address) : rank_(rank), run_(run) {
  std::tie(listener_, endpoint_) = listen_at(address, SOMAXCONN);
}

// Anybody can connect to the port. Whoever hangs up before the word is complete is forgotten, and of those
// who say nothing only as many are kept as there are ranks, the latest ones: ranks say their word at once.
bool RollCall::called() {
  for (int socket;
       (socket = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
    heard_.push_back({.socket = Socket(socket)});
    listen_to_callers();
    if (heard_.size() > all_.size()) heard_.pop_front();
  }
  listen_to_callers();
  return !alive_.empty();
}

bool RollCall::ended() {
  if (asking_.open()) {
    const Progress progress = progress_of(asking_);
    if (progress == Progress::refused) return true;
    if (progress == Progress::connecting) return false;
    asking_ = Socket();
  }
  if (all_.size() < 2) return false;
  do asked_ = (asked_ + 1) % all_.size();
  while (asked_ == rank_);
  asking_ = start_connecting(all_[asked_]);
  return !asking_.open() && errno == ECONNREFUSED;  // on one machine the answer comes at once
}

void RollCall::listen_to_callers() {
  std::erase_if(heard_, [&](Heard& one) {
    const Heard::State state = one.read();
    const bool ours = state == Heard::State::complete && one.word[0] == run_ && one.word[1] < all_.size();
    if (ours) alive_[one.word[1]] = std::move(one.socket);
    return state != Heard::State::partial;
  });
}

std::vector<std::size_t> RollCall::missing(std::chrono::duration<double> patience) {
  // What a process said before it ended may arrive a little later than the news that it has ended.
  constexpr std::chrono::seconds kLate(1);
  const auto end = Clock::now() + patience;
  const Word word = {run_, rank_};
  std::vector<Call> calls;
  for (const Endpoint& other : all_) calls.push_back({.socket = start_connecting(other)});
  for (;;) {
    called();
    std::vector<std::size_t> missing;
    bool settled = true;  // nothing more can come, and everybody was told
    for (std::size_t r = 0; r < all_.size(); ++r) {
      if (r == rank_) continue;
      calls[r].go_on(word);
      const bool alive = alive_.contains(r), ended = calls[r].refused < Clock::now() - kLate;
      if (!alive) missing.push_back(r);
      settled &= ended || (alive && (calls[r].said || calls[r].refused < Clock::now()));
    }
    if (settled || Clock::now() >= end) return missing;
    pollfd ready = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
    poll(&ready, 1, 20);
  }
}

}  // namespace gravac
