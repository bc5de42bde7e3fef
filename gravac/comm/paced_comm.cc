#include "gravac/comm/paced_comm.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "gravac/util/require.h"

namespace gravac {
namespace {

// Reads a number and the unit behind it: "1.5ms" is 0.0015 if `units` has {"ms", 1e-3}. Throws Error that
// shows `whole`, the text the user gave.
double quantity(std::string_view text, std::initializer_list<std::pair<std::string_view, double>> units,
                std::string_view whole) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [name, factor] : units) {
    if (error == std::errc() && unit == name && number >= 0 && number < 1e15) return number * factor;
  }
  throw Error("link: expected a rate and a delay such as 100mbit,1ms, got '" + std::string(whole) + "'");
}

}  // namespace

Link link_from_string(std::string_view text) {
  const std::size_t comma = text.find_first_of(",/");
  Link link;
  link.bits_per_second =
      quantity(text.substr(0, comma), {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}}, text);
  if (comma != std::string_view::npos) {
    link.latency_seconds = quantity(text.substr(comma + 1), {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}, text);
  }
  require(link.bits_per_second > 0, "link: rate must be above 0, got '", text, "'");
  return link;
}

PacedComm::PacedComm(Comm& inner, const Link& link, Clock& clock)
    : inner_(inner), link_(link), clock_(clock), virtual_(dynamic_cast<VirtualClock*>(&clock)) {}

// When this rank begins. Virtual clocks of ranks differ, so their times are exchanged, and the last one
// counts.
double PacedComm::begin() {
  prepare(inner_);
  const double now = clock_.now();
  if (!virtual_) return now;
  const std::vector<double> all = inner_.all_gather(std::span<const double>(&now, 1));
  return *std::max_element(all.begin(), all.end());
}

// Waits, or moves the virtual clock, until the simulated end. The time that the real operation took counts
// towards it, so a real network slower than the simulated one is not slowed down further.
void PacedComm::end(Kind kind, double began, double rounds, double bytes) {
  const double now = clock_.now();
  if (!virtual_) began = std::max(began, now - without_waiting(kind, bytes, now - began));
  const double until = began + rounds * link_.latency_seconds + 8 * bytes / link_.bits_per_second;
  const double left = until - now;
  if (virtual_) {
    virtual_->spend(left);
  } else if (left > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(left));
  }
}

// How long an operation of the inner comm takes without waiting for other ranks, if this one took `seconds`.
double PacedComm::without_waiting(Kind kind, double bytes, double seconds) {
  const std::pair<Kind, int> key(kind, std::ilogb(bytes + 1));
  double& shortest = shortest_.try_emplace(key, seconds).first->second;
  return shortest = std::min(shortest, seconds);
}

void PacedComm::all_reduce(std::span<float> values) {
  const double began = begin();
  inner_.all_reduce(values);
  end_all_reduce(began, values.size_bytes());
}

void PacedComm::all_reduce_halves(std::span<std::uint16_t> values, Values type) {
  const double began = begin();
  inner_.all_reduce_halves(values, type);
  end_all_reduce(began, values.size_bytes());
}

void PacedComm::end_all_reduce(double began, std::size_t bytes) {
  const auto n = static_cast<double>(size());
  end(Kind::all_reduce, began, 2 * (n - 1), 2 * (n - 1) / n * static_cast<double>(bytes));
}

void PacedComm::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const double began = begin();
  inner_.all_gather(mine, all);
  const auto others = static_cast<double>(size() - 1);
  end(Kind::all_gather, began, others, others * static_cast<double>(mine.size()));
}

void PacedComm::all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) {
  const double began = begin();
  inner_.all_to_all(parts, received);
  double sent = 0, got = 0;
  for (std::size_t r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    sent += static_cast<double>(parts[r].size());
    got += static_cast<double>(received[r].size());
  }
  // Ranks may end at different times, each when its own link is done. The next operation waits for the
  // slowest.
  end(Kind::all_to_all, began, static_cast<double>(size() - 1), std::max(sent, got));
}

}  // namespace gravac
