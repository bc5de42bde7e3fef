#pragma once

#include "gravac/util/clock.h"

namespace gravac::train {

// A steady clock that can be paused, so that evaluations and checkpoints do not count as training time.
class StopWatch final : public Clock {
 public:
  double now() const override { return (held_ ? held_at_ : steady_.now()) - lost_; }

  // Stops the clock until go_on().
  void hold() {
    held_at_ = steady_.now();
    held_ = true;
  }
  void go_on() {
    lost_ += steady_.now() - held_at_;
    held_ = false;
  }

 private:
  SteadyClock steady_;
  bool held_ = false;
  double held_at_ = 0, lost_ = 0;  // when it was stopped; seconds for which it stood still
};

}  // namespace gravac::train
