#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gravac {

// A socket, which the destructor closes. Never blocks.
class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

// A TCP port. Addresses are numbers ("10.0.0.1", "fe80::1") or names.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
  std::string text() const { return address + ":" + std::to_string(port); }
};

// Listens at an address of this machine, on this port; 0: on a free one. Throws Error.
std::pair<Socket, Endpoint> listen_at(const std::string& address, int waiting, std::uint16_t port = 0);
// Begins to connect; a socket that is not open if that is impossible.
Socket start_connecting(const Endpoint& to);
// Whether something listens there, asked for at most so long.
bool reachable(const Endpoint& to, std::chrono::duration<double> patience);

// The address of this machine from which packets to `address` leave. Throws Error if there is no route.
std::string route_to(const std::string& address);
// The addresses of this machine that others can reach, or of one network interface. Throws Error if
// there is no such interface.
std::vector<std::string> own_addresses(const std::string& interface = "");
bool is_loopback(const std::string& address);
// Equal for two processes exactly if they can reach each other by 127.0.0.1.
std::string host_identity();

}  // namespace gravac
