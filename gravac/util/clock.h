#pragma once

#include <chrono>

namespace gravac {

// Where the library takes the time from. Everything that needs the time gets a Clock from its caller, so that
// tests and simulations can pass a VirtualClock.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;  // seconds since a fixed but arbitrary moment
  // Simulated work takes `seconds`. A real clock ignores it: real work takes its time anyway.
  virtual void spend(double /*seconds*/) {}
};

// The real time, as it passes.
class SteadyClock final : public Clock {
 public:
  double now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

// A clock that moves only when spend() is called. A simulated cluster has one for each rank, and a simulation
// gives exactly the same times again when it is repeated.
class VirtualClock final : public Clock {
 public:
  double now() const override { return now_; }
  void spend(double seconds) override { now_ += seconds; }

 private:
  double now_ = 0;
};

}  // namespace gravac
