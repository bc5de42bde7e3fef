#include "adapters/gloo_meeting.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "adapters/sockets.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::TCPStore>;

std::string key(const char* name, std::size_t rank) {
  return std::string(name) + "/" + std::to_string(rank);
}

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, std::vector<std::uint8_t>(text.begin(), text.end()));
}

std::string get(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return std::string(bytes.begin(), bytes.end());
}

// Repeats attempt() until it returns true. Returns false if it does not before `end`.
template <class Attempt>
bool until(Clock::time_point end, const Attempt& attempt) {
  while (!attempt()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// rank 0: opens the store. Others: connect to it.
Store make_store(const GlooOptions& options, const Endpoint& at) {
  c10d::TCPStoreOptions tcp;
  tcp.port = at.port;
  tcp.isServer = options.rank == 0;
  tcp.waitWorkers = false;  // we wait for them ourselves, and name those that do not come
  tcp.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.meeting_timeout);
  try {
    return c10::make_intrusive<c10d::TCPStore>(at.address, tcp);
  } catch (const std::exception& error) {
    const std::string cause = error.what();
    throw Error("gloo: rank " + std::to_string(options.rank) +
                (tcp.isServer ? " cannot listen on port " + std::to_string(at.port)
                              : " cannot reach rank 0 at " + at.text()) +
                " (" + cause.substr(0, cause.find('\n')) + ")");
  }
}

// What rank 0 writes into the file through which the ranks meet: how to reach it. A file may be left
// over from a run that was killed; it counts only if something with the same run's number answers there.
struct Invitation {
  std::uint64_t run = 0;
  std::uint16_t port = 0;
  std::string host;
  std::vector<std::string> addresses;

  void write(const std::string& path) const {
    std::error_code error;
    const auto folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    const std::string unfinished = path + "." + std::to_string(run);
    std::ofstream file(unfinished);
    file << run << ' ' << port << ' ' << host;
    for (const std::string& address : addresses) file << ' ' << address;
    file << " end\n";
    file.close();
    if (file) std::filesystem::rename(unfinished, path, error);
    require(file && !error, "gloo: rank 0 cannot write '", path, "', through which the ranks meet");
  }

  static std::optional<Invitation> read(const std::string& path) {
    Invitation all;
    std::ifstream file(path);
    file >> all.run >> all.port >> all.host;
    for (std::string word; file >> word && word != "end";) all.addresses.push_back(word);
    return file ? std::optional(all) : std::nullopt;
  }

  // On the same machine 127.0.0.1 always works; elsewhere any of the addresses may.
  std::vector<Endpoint> endpoints() const {
    if (host != "unknown" && host == host_identity()) return {{"127.0.0.1", port}};
    std::vector<Endpoint> all;
    for (const std::string& address : addresses) all.push_back({address, port});
    return all;
  }
};

// One rank on its way to the others.
class Guest {
 public:
  Guest(const GlooOptions& options, WaitingFor& waiting)
      : options_(options),
        waiting_(waiting),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(options.meeting_timeout)) {}

  Met arrive() {
    if (options_.rank == 0) {
      open();
    } else if (options_.store.empty()) {
      find(meeting_address());
    } else {
      find_by_file();
    }
    Met met{.store = store_, .run = run_};
    introduce();
    options_.rank == 0 ? judge() : hear_judgement();
    met.address = final_address();
    return met;
  }

 private:
  Endpoint meeting_address() const { return {options_.address, options_.port}; }

  // Rank 0 opens the store, and tells in the file where it is.
  void open() {
    std::random_device random;
    run_ = (std::uint64_t{random()} << 32) ^ random();
    store_ = make_store(options_, {"127.0.0.1", options_.port});
    put(*store_, "run", std::to_string(run_));
    address_ = !options_.interface.empty() ? own_addresses(options_.interface).front()
                                           : "127.0.0.1";  // final_address() finds a better one
    if (options_.store.empty()) return;
    Invitation{run_, store_->getPort(), host_identity(), own_addresses(options_.interface)}.write(
        options_.store);
  }

  // Connects to the store, which must be there.
  void enter(const Endpoint& at) {
    store_ = make_store(options_, at);
    store_->setTimeout(std::chrono::seconds(5));
    run_ = std::stoull(get(*store_, "run"));
    store_->setTimeout(std::chrono::duration_cast<std::chrono::milliseconds>(options_.meeting_timeout));
    address_ = options_.interface.empty() ? route_to(at.address) : own_addresses(options_.interface).front();
  }

  // The same for a place that may belong to another run, or to another program.
  bool entered(const Endpoint& at) {
    try {
      enter(at);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  void find(const Endpoint& at) {
    std::string trouble;
    const bool listens = until(end_, [&] {
      trouble.clear();
      try {
        if (reachable(at, std::chrono::seconds(1))) return true;
      } catch (const Error& error) {  // a name that nobody knows, perhaps not yet
        trouble = std::string(", ") + error.what();
      }
      waiting_.set("rank 0 to listen at " + at.text() + trouble);
      return false;
    });
    require(listens, "gloo: rank 0 of ", options_.size, " did not start: nothing listens at ", at.text(),
            trouble, " (waited ", options_.meeting_timeout.count(), " s)");
    enter(at);
  }

  void find_by_file() {
    std::string last = "rank 0 to write " + options_.store;
    const bool found = until(end_, [&] {
      waiting_.set(last);
      const auto invitation = Invitation::read(options_.store);
      if (!invitation) return false;
      last = "rank 0 to listen where " + options_.store + " says";
      for (const Endpoint& at : invitation->endpoints()) {
        if (reachable(at, std::chrono::seconds(1)) && entered(at) && run_ == invitation->run) return true;
      }
      return false;
    });
    require(found, "gloo: rank 0 of ", options_.size, " did not start, or cannot be reached: rank ",
            options_.rank, " waited ", options_.meeting_timeout.count(), " s for ", last);
  }

  // Every rank leaves two entries in the store: a counter that shows whether a second process has the
  // same rank, and how many ranks it expects and where it can be reached.
  void introduce() {
    require(store_->add(key("claim", options_.rank), 1) == 1, "gloo: rank ", options_.rank,
            " is taken by another process");
    put(*store_, key("guest", options_.rank), std::to_string(options_.size) + " " + address_);
  }

  // Takes off the list the ranks that have come since.
  void strike(std::vector<std::size_t>& absent) {
    std::erase_if(absent, [&](std::size_t r) { return store_->check({key("guest", r)}); });
    if (absent.empty()) return;
    waiting_.set(name_ranks(absent) + " of " + std::to_string(options_.size) + " to start");
  }

  std::vector<std::size_t> everybody() const {
    std::vector<std::size_t> all(options_.size);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }

  std::string verdict_on(const std::vector<std::size_t>& missing) {
    std::vector<std::size_t> seen;
    for (std::size_t r = 0; r < options_.size; ++r) {
      if (std::find(missing.begin(), missing.end(), r) == missing.end()) seen.push_back(r);
    }
    std::ostringstream verdict;
    if (!missing.empty()) {
      verdict << "gloo: " << name_ranks(missing) << " of " << options_.size
              << " did not start; seen: " << name_ranks(seen) << " (waited "
              << options_.meeting_timeout.count() << " s)";
      return verdict.str();
    }
    for (const std::size_t r : seen) {
      const std::size_t theirs = std::stoul(get(*store_, key("guest", r)));
      if (theirs == options_.size) continue;
      verdict << "gloo: rank " << r << " expects " << theirs << " ranks, rank 0 expects " << options_.size;
      return verdict.str();
    }
    return "";
  }

  // Rank 0 decides whether all have come, so that all say the same. If not, it keeps the store open until
  // those that have come know.
  void judge() {
    std::vector<std::size_t> absent = everybody();
    until(end_, [&] {
      strike(absent);
      const auto invitation = options_.store.empty() ? std::nullopt : Invitation::read(options_.store);
      require(!invitation || invitation->run == run_, "gloo: rank 0 is taken by another process");
      return absent.empty();
    });
    const std::string verdict = verdict_on(absent);
    put(*store_, "verdict", verdict.empty() ? "welcome" : verdict);
    std::error_code ignored;
    if (!options_.store.empty()) std::filesystem::remove(options_.store, ignored);
    if (verdict.empty()) return;
    const auto others = static_cast<std::int64_t>(options_.size - absent.size()) - 1;
    until(Clock::now() + std::chrono::seconds(5), [&] { return store_->add("told", 0) >= others; });
    throw Error(verdict);
  }

  void hear_judgement() {
    std::vector<std::size_t> absent = everybody();
    unsigned asked = 0;
    const bool judged = until(end_, [&] {
      if (store_->check({"verdict"})) return true;
      if (asked++ % 50 == 0) strike(absent);  // once a second: all ranks ask, and rank 0 answers them all
      return false;
    });
    if (!judged) {
      const bool others = !absent.empty();
      throw Error(others ? verdict_on(absent)
                         : "gloo: rank 0 of " + std::to_string(options_.size) + " hangs");
    }
    const std::string verdict = get(*store_, "verdict");
    if (verdict == "welcome") return;
    store_->add("told", 1);
    throw Error(verdict);
  }

  // Each rank's address is the one from which it reached rank 0. Where that was by loopback, as on rank
  // 0's own machine, but others came from elsewhere, it is the address from which those can be reached.
  std::string final_address() {
    if (!is_loopback(address_) || !options_.interface.empty()) return address_;
    for (std::size_t r = 0; r < options_.size; ++r) {
      const std::string guest = get(*store_, key("guest", r));
      const std::string theirs = guest.substr(guest.find(' ') + 1);
      if (!is_loopback(theirs)) return route_to(theirs);
    }
    return address_;
  }

  const GlooOptions& options_;
  WaitingFor& waiting_;
  const Clock::time_point end_;
  Store store_;
  std::uint64_t run_ = 0;
  std::string address_;
};

}  // namespace

Met meet(const GlooOptions& options, WaitingFor& waiting) {
  try {
    return Guest(options, waiting).arrive();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // from the store
    const std::string cause = error.what();
    throw Error("gloo: rank " + std::to_string(options.rank) + " lost rank 0 while it waited for " +
                waiting.get() + " (" + cause.substr(0, cause.find('\n')) + ")");
  }
}

}  // namespace gravac
