#pragma once

#include <chrono>

namespace gravac {

// Where time comes from. A real clock runs by itself; a virtual one stands still
// except for what is spent on it, so that a rehearsal gives the same times again.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;            // seconds since some beginning
  virtual void spend(double /*seconds*/) {}  // on work that takes no time here
};

class SteadyClock final : public Clock {
 public:
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

class VirtualClock final : public Clock {
 public:
  double now() const override { return now_; }
  void spend(double seconds) override { now_ += seconds; }

 private:
  double now_ = 0;
};

}  // namespace gravac
