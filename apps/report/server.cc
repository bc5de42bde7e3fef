#include "apps/report/server.h"

#include <poll.h>
#include <sys/socket.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <exception>
#include <tuple>
#include <vector>

#include "gravac/util/clock.h"
#include "gravac/util/require.h"

namespace gravac::report {
namespace {

// Takes the next line off `text`, without its line end.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text = end == text.npos ? std::string_view() : text.substr(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool is_own_host(std::string_view host, std::uint16_t port) {
  const std::string end = ":" + std::to_string(port), name = lower(host);
  return name == "127.0.0.1" + end || name == "localhost" + end;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Internal Server Error";
  }
}

std::string bytes_of(const Response& response) {
  return "HTTP/1.1 " + std::to_string(response.status) + " " + std::string(reason_of(response.status)) +
         "\r\nContent-Type: " + response.type +
         "\r\nContent-Length: " + std::to_string(response.body.size()) +
         "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY"
         "\r\nCross-Origin-Resource-Policy: same-origin" +
         (response.status == 405 ? "\r\nAllow: GET" : "") + "\r\nConnection: close\r\n\r\n" + response.body;
}

// An exception must not end the server: the next request may be answered again.
Response answer_to(std::string_view head, std::uint16_t port, const Handler& handler) {
  try {
    return respond(head, port, handler);
  } catch (const std::exception& error) {
    return {.status = 500, .body = error.what() + std::string("\n")};
  }
}

// One client: first its request is read, then the answer is written.
class Connection {
 public:
  Connection(Socket socket, double until) : socket_(std::move(socket)), until_(until) {}

  pollfd wish() const { return {socket_.get(), static_cast<short>(answer_.empty() ? POLLIN : POLLOUT), 0}; }
  bool done(double now) const { return done_ || now > until_; }

  // To be called when poll() says that the wish can be granted.
  void go_on(std::uint16_t port, const Handler& handler) {
    if (answer_.empty()) return read(port, handler);
    const ssize_t count = send(socket_.get(), answer_.data() + sent_, answer_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0) return fail();
    sent_ += static_cast<std::size_t>(count);
    if (sent_ == answer_.size()) done_ = true;
  }

 private:
  void read(std::uint16_t port, const Handler& handler) {
    char buffer[4096];
    const ssize_t count = recv(socket_.get(), buffer, sizeof(buffer), 0);
    if (count == 0) done_ = true;
    if (count < 0) return fail();
    head_.append(buffer, static_cast<std::size_t>(count));
    const std::size_t end = head_.find("\r\n\r\n");
    if (end != head_.npos && end <= Server::kMostHeadBytes) {
      answer_ = bytes_of(answer_to(std::string_view(head_).substr(0, end), port, handler));
    } else if (head_.size() > Server::kMostHeadBytes) {
      answer_ = bytes_of({.status = 431, .body = "the head of the request is longer than 8192 bytes\n"});
    }
  }
  void fail() { done_ = done_ || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR); }

  Socket socket_;
  double until_;
  std::string head_, answer_;
  std::size_t sent_ = 0;
  bool done_ = false;
};

}  // namespace

Response respond(std::string_view head, std::uint16_t port, const Handler& handler) {
  const std::string_view request = take_line(head);
  const std::size_t first = request.find(' '), last = request.rfind(' ');
  if (first == request.npos || first == last || !request.substr(last + 1).starts_with("HTTP/1.")) {
    return {.status = 400, .body = "no HTTP request\n"};
  }
  std::size_t hosts = 0;
  bool own = true;
  while (!head.empty()) {
    const std::string_view line = take_line(head);
    const std::size_t colon = line.find(':');
    if (colon == line.npos || lower(line.substr(0, colon)) != "host") continue;
    ++hosts;
    own = own && is_own_host(trimmed(line.substr(colon + 1)), port);
  }
  if (hosts != 1) return {.status = 400, .body = "one Host expected\n"};
  if (!own) return {.status = 403, .body = "this page is for 127.0.0.1 and localhost only\n"};
  if (request.substr(0, first) != "GET") return {.status = 405, .body = "GET expected\n"};
  std::string_view path = request.substr(first + 1, last - first - 1);
  return handler(path.substr(0, path.find('?')));
}

Server::Server(std::uint16_t port) {
  Endpoint here;
  std::tie(listener_, here) = listen_at("127.0.0.1", 128, port);
  port_ = here.port;
}

void Server::serve(const Handler& handler, int stop) {
  const SteadyClock clock;
  std::vector<Connection> connections;
  for (;;) {
    std::vector<pollfd> wishes = {{stop, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Connection& one : connections) wishes.push_back(one.wish());
    if (poll(wishes.data(), wishes.size(), connections.empty() ? -1 : 500) < 0 && errno != EINTR) {
      throw Error(std::string("watch: poll: ") + std::strerror(errno));
    }
    if (wishes[0].revents != 0) return;
    for (std::size_t i = 0; i < connections.size(); ++i) {
      if (wishes[i + 2].revents != 0) connections[i].go_on(port_, handler);
    }
    std::erase_if(connections, [now = clock.now()](const Connection& one) { return one.done(now); });
    if (wishes[1].revents == 0) continue;
    // Whoever has been here longest has had time enough to ask, and makes room for the next one.
    if (connections.size() >= kMostConnections) connections.erase(connections.begin());
    Socket client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.open()) connections.emplace_back(std::move(client), clock.now() + kSeconds);
  }
}

}  // namespace gravac::report
