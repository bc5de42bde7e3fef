// What policies are told of gradients, through either engine: the norms of summed gradients that Accordion
// goes by.

#include "gravac/round.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/testing.h"

namespace gravac {
namespace {

constexpr std::size_t kRanks = 3;

const Layout& layout() {
  static const Layout two = [] {
    Layout layout;
    layout.add("first", 3000);
    layout.add("second", 2000);
    return layout;
  }();
  return two;
}

// A constant direction plus noise: the distribution never changes.
std::vector<float> stationary(std::size_t rank, std::size_t step) {
  std::mt19937 direction(7), random(static_cast<unsigned>(1000 * step + rank + 1));
  std::normal_distribution<float> gauss;
  std::vector<float> gradient(layout().entries());
  for (float& g : gradient) g = 0.3f * gauss(direction) + gauss(random);
  return gradient;
}

// Either engine, as one that takes whole gradients.
class Whole {
 public:
  Whole(const std::string& options, bool overlapped, Comm& comm)
      : buckets_(overlapped ? std::vector<Bucket>{{1}, {0}} : std::vector<Bucket>{{0, 1}}) {
    EngineSetup setup = make_setup(options_from_string(options), layout(), comm.size());
    engine_ = overlapped ? make_overlap(layout(), buckets_, std::move(setup), comm, clock_)
                         : make_aggregator(layout(), std::move(setup), comm, clock_);
  }
  Engine& engine() { return *engine_; }

  StepReport step(std::vector<float> gradient) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::size_t begin = layout().segments()[buckets_[b].front()].begin;
      std::size_t size = 0;
      for (const std::size_t s : buckets_[b]) size += layout().segments()[s].size;
      engine_->ready(b, std::span(gradient).subspan(begin, size));
    }
    return engine_->finish(1);
  }

  std::vector<double> factors() {
    const auto factors = engine_->policy().segment_factors();
    return {factors.begin(), factors.end()};
  }
  std::vector<double> state(const std::string& name) {
    for (const auto& [key, values] : engine_->policy().save()) {
      if (key == name) return values;
    }
    return {};
  }

 private:
  SteadyClock clock_;
  std::vector<Bucket> buckets_;
  std::unique_ptr<Engine> engine_;
};

class Accordion : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(Engines, Accordion, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "during" : "after"; });

// If it looked at what is sent, it would take each change of its own factor for a change of the gradient.
TEST_P(Accordion, DoesNotReactToItsOwnFactor) {
  run_ranks(kRanks, [](Comm& comm) {
    Whole whole("policy=accordion factor-min=10 factor-max=1000 interval=4", GetParam(), comm);
    for (std::size_t step = 0; step < 40 * 4; ++step) {
      whole.step(stationary(comm.rank(), step));
      // From the first comparison of two intervals on, ten intervals apart, nothing is critical.
      if (step >= 11 * 4) {
        ASSERT_EQ(whole.factors(), (std::vector<double>{1000, 1000})) << step;
      }
    }
  });
}

}  // namespace
}  // namespace gravac
