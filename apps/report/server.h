#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "adapters/sockets.h"

// A web server for one page that only this machine may see. Not cpp-httplib: that of Debian 12 (0.11.4)
// limits neither how long a client takes for its headers nor how many it sends, and links OpenSSL.

namespace gravac::report {

struct Response {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers a path such as "/data.json"; status 404 for what there is not.
using Handler = std::function<Response(std::string_view path)>;

// The answer to the head of a request, everything up to its empty line. Refuses other methods than GET, and
// hosts other than 127.0.0.1 and localhost with this port: a page of another site that has its name resolved
// to 127.0.0.1 cannot read what runs here.
Response respond(std::string_view head, std::uint16_t port, const Handler& handler);

// Listens on 127.0.0.1. Called from one thread.
class Server {
 public:
  static constexpr std::size_t kMostHeadBytes = 8192;  // of a request; more is refused
  static constexpr std::size_t kMostConnections =
      32;                                 // at a time; a further one takes the oldest one's place
  static constexpr double kSeconds = 10;  // after which a connection that is not done is closed

  // Port 0 takes a free one. Throws Error if the port is in use.
  explicit Server(std::uint16_t port);

  std::uint16_t port() const { return port_; }

  // Answers requests until `stop`, a file descriptor, can be read from. A client that is slow, or says
  // nothing, delays nobody else. If the handler throws, the answer has status 500 and what() as its text.
  void serve(const Handler& handler, int stop);

 private:
  Socket listener_;
  std::uint16_t port_ = 0;
};

}  // namespace gravac::report
