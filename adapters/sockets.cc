#include "adapters/sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "gravac/util/require.h"

namespace gravac {
namespace {

using Found = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Found look_up(const Endpoint& endpoint) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error =
      getaddrinfo(endpoint.address.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  require(error == 0, "network: no address found for '", endpoint.address, "': ", gai_strerror(error));
  return Found(found, freeaddrinfo);
}

std::string numbers_of(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

}  // namespace

Socket::~Socket() {
  if (open()) close(descriptor_);
}

std::pair<Socket, Endpoint> listen_at(const std::string& address, int waiting, std::uint16_t port) {
  const Found found = look_up({address, port});
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_storage bound = {};
  socklen_t length = sizeof(bound);
  const int yes = 1;  // a port that was in use a moment ago is free
  if (socket.open() && port != 0) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool good = socket.open() && bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                    listen(socket.get(), waiting) == 0 &&
                    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) == 0;
  require(good, "network: cannot listen at ", address, port == 0 ? "" : " on port " + std::to_string(port),
          ": ", std::strerror(errno));
  const auto chosen = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                  : reinterpret_cast<const sockaddr_in&>(bound).sin_port;
  return {std::move(socket), Endpoint{address, ntohs(chosen)}};
}

Socket start_connecting(const Endpoint& to) {
  const Found found = look_up(to);
  Socket socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.open() && connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS)
    return Socket();
  return socket;
}

bool reachable(const Endpoint& to, std::chrono::duration<double> patience) {
  const Socket socket = start_connecting(to);
  if (!socket.open()) return false;
  pollfd ready = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
  if (poll(&ready, 1, static_cast<int>(1000 * patience.count())) <= 0) return false;
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

// Connecting a UDP socket sends nothing, but makes the kernel choose route and address.
std::string route_to(const std::string& address) {
  const Found found = look_up({address, 9});
  const Socket socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  const bool good = socket.open() && connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0;
  require(good, "network: no route to ", address, ": ", std::strerror(errno));
  return numbers_of(reinterpret_cast<sockaddr*>(&own), length);
}

std::vector<std::string> own_addresses(const std::string& interface) {
  ifaddrs* all = nullptr;
  require(getifaddrs(&all) == 0, "network: cannot list the interfaces: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  std::vector<std::string> four, six, names;
  for (const ifaddrs* at = all; at; at = at->ifa_next) {
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP)) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    names.push_back(at->ifa_name);
    if (interface.empty() ? (at->ifa_flags & IFF_LOOPBACK) != 0 : interface != at->ifa_name) continue;
    const std::string address =
        numbers_of(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (address.starts_with("fe80:")) continue;  // of use on one cable only
    (family == AF_INET ? four : six).push_back(address);
  }
  four.insert(four.end(), six.begin(), six.end());
  if (!interface.empty() && four.empty()) {
    std::string known;
    for (const std::string& name : names) {
      if ((" " + known + " ").find(" " + name + " ") == std::string::npos)
        known += (known.empty() ? "" : " ") + name;
    }
    throw Error("network: no interface '" + interface + "' is up; available: " + known);
  }
  return four;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// The boot tells machines apart, and the network namespace the containers of one machine.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code error;
  const auto space = std::filesystem::read_symlink("/proc/self/ns/net", error);
  return boot.empty() || error ? "unknown" : boot + "/" + space.string();
}

}  // namespace gravac
