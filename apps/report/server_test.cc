#include "apps/report/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "gravac/util/clock.h"
#include "gravac/util/require.h"

namespace gravac::report {
namespace {

Response answer(std::string_view path) {
  if (path == "/") return {.body = "home"};
  if (path == "/broken") throw Error("the handler fails");
  if (path == "/large") return {.body = std::string(5'000'000, 'x')};
  return {.status = 404};
}

int status_of(std::string_view head) {
  return respond(head, 8080, answer).status;
}

TEST(Respond, AnswersGetForThisMachine) {
  EXPECT_EQ(respond("GET / HTTP/1.1\r\nHost: 127.0.0.1:8080", 8080, answer).body, "home");
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nAccept: */*\r\nhost:LOCALHOST:8080 \r\n"), 200);
  EXPECT_EQ(status_of("GET /?a=b HTTP/1.1\r\nHost: localhost:8080"), 200);
  EXPECT_EQ(status_of("GET /../etc/passwd HTTP/1.1\r\nHost: localhost:8080"), 404);
}

TEST(Respond, RefusesOtherHosts) {
  for (const char* host : {"example.com", "example.com:8080", "localhost", "localhost:81", "127.0.0.1:80800",
                           "127.0.0.1.example.com:8080", "localhost:8080.example.com", "[::1]:8080", ""}) {
    EXPECT_EQ(status_of(std::string("GET / HTTP/1.1\r\nHost: ") + host), 403) << host;
  }
  EXPECT_EQ(status_of("GET / HTTP/1.1"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: localhost:8080\r\nHost: localhost:8080"), 400);
}

TEST(Respond, RefusesOtherMethodsAndOtherProtocols) {
  for (const char* method : {"POST", "HEAD", "PUT", "OPTIONS", "get", ""}) {
    EXPECT_EQ(status_of(std::string(method) + " / HTTP/1.1\r\nHost: localhost:8080"), 405) << method;
  }
  for (const char* head : {"", "GET", "GET /", "GET / HTTP/2", "\r\n", "\x16\x03\x01"}) {
    EXPECT_EQ(status_of(head), 400) << head;
  }
}

// A server on a thread, until the end of the test.
class Running {
 public:
  Running() {
    if (pipe(stop_) != 0) throw Error("no pipe");
    thread_ = std::thread([this] { server_.serve(answer, stop_[0]); });
  }
  ~Running() {
    close(stop_[1]);
    thread_.join();
    close(stop_[0]);
  }
  std::uint16_t port() const { return server_.port(); }

  int connect() const {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port());
    EXPECT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return client;
  }
  // Everything that the server says.
  std::string ask(const std::string& request) const {
    const int client = connect();
    EXPECT_EQ(send(client, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string all;
    char buffer[65536];
    for (ssize_t count; (count = recv(client, buffer, sizeof(buffer), 0)) > 0;) {
      all.append(buffer, static_cast<std::size_t>(count));
    }
    close(client);
    return all;
  }
  std::string host() const { return "Host: localhost:" + std::to_string(port()) + "\r\n\r\n"; }

 private:
  Server server_{0};
  int stop_[2] = {};
  std::thread thread_;
};

TEST(Server, SendsWholeAnswers) {
  const Running running;
  const std::string home = running.ask("GET / HTTP/1.1\r\n" + running.host());
  EXPECT_TRUE(home.starts_with("HTTP/1.1 200 OK\r\n")) << home;
  EXPECT_TRUE(home.ends_with("\r\n\r\nhome")) << home;
  EXPECT_GT(running.ask("GET /large HTTP/1.1\r\n" + running.host()).size(), 5'000'000);
}

TEST(Server, RefusesLongRequests) {
  const Running running;
  const std::string answer = running.ask("GET / HTTP/1.1\r\nA: " + std::string(Server::kMostHeadBytes, 'x'));
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 431 ")) << answer;
}

TEST(Server, AnswersWhileOtherClientsSayNothing) {
  const Running running;
  const int silent = running.connect(), half = running.connect();
  EXPECT_EQ(send(half, "GET /", 5, MSG_NOSIGNAL), 5);
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(running.ask("GET / HTTP/1.1\r\n" + running.host()).ends_with("home"));
  close(silent);
  close(half);
}

TEST(Server, GoesOnAfterTheHandlerHasThrown) {
  const Running running;
  const std::string broken = running.ask("GET /broken HTTP/1.1\r\n" + running.host());
  EXPECT_TRUE(broken.starts_with("HTTP/1.1 500 ")) << broken;
  EXPECT_TRUE(broken.ends_with("\r\n\r\nthe handler fails\n")) << broken;
  EXPECT_TRUE(running.ask("GET / HTTP/1.1\r\n" + running.host()).ends_with("home"));
}

TEST(Server, DropsWhoeverHasSaidNothingForLongestWhenManyConnect) {
  const Running running;
  std::vector<int> silent;
  for (std::size_t i = 0; i < 2 * Server::kMostConnections; ++i) silent.push_back(running.connect());
  const SteadyClock clock;
  const double began = clock.now();
  EXPECT_TRUE(running.ask("GET / HTTP/1.1\r\n" + running.host()).ends_with("home"));
  EXPECT_LT(clock.now() - began, Server::kSeconds / 2);
  char byte;
  EXPECT_EQ(recv(silent.front(), &byte, 1, 0), 0);
  for (const int client : silent) close(client);
}

TEST(Server, SaysThatAPortIsInUse) {
  const Server one(0);
  try {
    const Server two(one.port());
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "network: cannot listen at 127.0.0.1 on port " + std::to_string(one.port()) +
                                ": Address already in use");
  }
}

}  // namespace
}  // namespace gravac::report
