#pragma once

#include "gravac/util/clock.h"

namespace gravac::train {

// A steady clock that can be held: evaluations and checkpoints are not training.
class StopWatch final : public Clock {
 public:
  double now() const override { return (held_ ? held_at_ : steady_.now()) - lost_; }

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
  double held_at_ = 0, lost_ = 0;
};

}  // namespace gravac::train
