// Ranks that do not belong together stop before they use a mean: with either engine, whatever they have
// loaded, and whichever number of their state differs.

#include "gravac/shared_state.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/engine_base.h"
#include "gravac/testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::size_t kRanks = 3;

Layout layout() {
  Layout layout;
  layout.add("first", 6000, 60);
  layout.add("second", 2000);
  return layout;
}

// An engine of either kind, which is fed gradients that differ from rank to rank.
class Fed {
 public:
  Fed(const std::string& options, bool overlapped, Comm& comm) : rank_(comm.rank()) {
    EngineSetup setup = make_setup(options_from_string(options), layout(), comm.size());
    engine_ = overlapped ? make_overlap(layout(), {{1}, {0}}, std::move(setup), comm, clock_)
                         : make_aggregator(layout(), std::move(setup), comm, clock_);
    sizes_ = overlapped ? std::vector<std::size_t>{2000, 6000} : std::vector<std::size_t>{8000};
  }

  Engine& operator*() { return *engine_; }
  Engine* operator->() { return engine_.get(); }

  void steps(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::vector<float>> parts;
      for (const std::size_t size : sizes_) {
        std::vector<float>& part = parts.emplace_back(size);
        for (float& x : part)
          x = static_cast<float>((seed_ = seed_ * 6364136223846793005u + 2 * rank_ + 1) >> 48) - 3e4f;
      }
      for (std::size_t b = 0; b < parts.size(); ++b) engine_->ready(b, parts[b]);
      engine_->finish(1);
    }
  }

 private:
  std::size_t rank_;
  std::uint64_t seed_ = 1;
  SteadyClock clock_;
  std::vector<std::size_t> sizes_;
  std::unique_ptr<Engine> engine_;
};

// What each rank's work throws, by rank; "" for nothing.
template <class Work>
std::vector<std::string> errors_of(const Work& work) {
  std::vector<std::string> errors(kRanks);
  run_ranks(kRanks, [&](Comm& comm) {
    try {
      work(comm);
    } catch (const Error& error) {
      errors[comm.rank()] = error.what();
    }
  });
  return errors;
}

void expect_all(const std::vector<std::string>& errors, const std::string& text) {
  for (const std::string& error : errors) EXPECT_NE(error.find(text), error.npos) << error;
  EXPECT_EQ(std::set<std::string>(errors.begin(), errors.end()).size(), 1) << "the same text on all ranks";
}

const std::vector<std::string> kOptions = {"policy=static factor=20",
                                           "policy=static factor=20 compressor=randomk",
                                           "policy=static factor=4 compressor=powersgd",
                                           "policy=gravac window=4 factor-max=100 start-steps=2",
                                           "policy=progress optimizer=sgd start-steps=3",
                                           "policy=dense"};

TEST(SharedState, RanksThatLoadedStatesOfDifferentStepsStop) {
  for (const bool overlapped : {false, true}) {
    for (const std::string& options : kOptions) {
      SCOPED_TRACE(options + (overlapped ? ", overlapped" : ""));
      const auto errors = errors_of([&](Comm& comm) {
        Fed before(options, overlapped, comm);
        before.steps(10);
        const Checkpoint early = before->save();
        before.steps(10);
        const Checkpoint late = before->save();
        Fed now(options, overlapped, comm);
        now->load(comm.rank() == 1 ? early : late);
        now.steps(1);
      });
      expect_all(errors, "rank 0 is at step 20, rank 1 at step 10");
    }
  }
}

TEST(SharedState, ARankThatLoadedNothingIsFoundOut) {
  for (const bool overlapped : {false, true}) {
    for (const std::string& options : kOptions) {
      SCOPED_TRACE(options + (overlapped ? ", overlapped" : ""));
      const auto errors = errors_of([&](Comm& comm) {
        Fed before(options, overlapped, comm);
        before.steps(5);
        const Checkpoint state = before->save();
        Fed now(options, overlapped, comm);
        if (comm.rank() == 0) now->load(state);
        now.steps(1);
      });
      expect_all(errors, "rank 0 is at step 5, ranks 1 and 2 at step 0");
    }
  }
}

// Two runs that differ in a seed or a learning rate have equal steps and options.
TEST(SharedState, StatesOfTwoRunsAreNotMixed) {
  for (const bool overlapped : {false, true}) {
    const auto errors = errors_of([&](Comm& comm) {
      const std::string options = "policy=gravac window=4 factor-max=100 start-steps=0 epsilon=0.9";
      Fed one(options, overlapped, comm), other(options, overlapped, comm);
      one.steps(20);
      other.steps(3);
      other->rescale(3);
      other.steps(17);
      const Checkpoint theirs = other->save(), ours = one->save();
      Fed now(options, overlapped, comm);
      now->load(comm.rank() == 2 ? theirs : ours);
      now.steps(1);
    });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("at step 20"), error.npos) << error;
      EXPECT_NE(error.find("rank 2 differs from rank 0's"), error.npos) << error;
    }
  }
}

// A flipped bit, or a call that one rank leaves out, in the middle of a run: found by the message of the same
// step.
TEST(SharedState, APolicyThatDiffersOnOneRankIsFoundInTheSameStep) {
  for (const bool overlapped : {false, true}) {
    const auto errors = errors_of([&](Comm& comm) {
      Fed engine("policy=gravac window=5 factor-max=100 start-steps=0", overlapped, comm);
      engine.steps(7);
      PolicyState state = engine->policy().save();
      for (auto& [name, numbers] : state) {
        if (name == "gains" && comm.rank() == 1) numbers[0] *= 1 + 1e-15;
      }
      engine->policy().load(state);
      engine.steps(1);
    });
    expect_all(errors, "at step 7, the policy state of rank 1 differs from rank 0's");
  }
}

// One configuration for each way in which ranks exchange: shared positions, factors, two stages, 16-bit sums,
// payloads, plain sums.
const std::vector<std::string> kRoutes = {
    "policy=accordion compressor=randomk factor-min=4 factor-max=40 interval=3",
    "policy=gravac compressor=randomk window=4 factor-max=100 start-steps=0",
    "policy=gravac compressor=powersgd window=4 factor-min=2 factor-max=20 start-steps=0",
    "policy=accordion compressor=powersgd interval=3",
    "policy=progress compressor=quantise exchange=reduce-scatter start-steps=2",
    "policy=adaqs compressor=quantise exchange=all-gather",
    "policy=progress compressor=fp16 start-steps=0",
    "policy=gravac window=4 factor-max=100 start-steps=0",
    "policy=scadles interval=3",
    "policy=progress optimizer=sgd start-steps=50",
    "policy=progress floor=1 start-steps=0",
};

// Changes one number of a state that a policy or a cost model saves.
using Change = std::function<void(double&)>;

// Steps, then one rank's state changes, then one step more. Returns what that throws, by rank; "" if nothing.
std::vector<std::string> errors_after(const std::string& options, bool overlapped,
                                      const std::function<void(EngineBase&)>& change) {
  return errors_of([&](Comm& inner) {
    testing::AddsHalves comm(inner);
    Fed engine(options, overlapped, comm);
    engine.steps(7);
    if (comm.rank() == 1) change(dynamic_cast<EngineBase&>(*engine));
    engine.steps(1);
  });
}

// Every number of every policy: halved, doubled, or one more. A change that the policy refuses is none.
TEST(SharedState, APolicyThatDiffersInAnyNumberIsFoundByEveryRouteInTheSameStep) {
  for (const bool overlapped : {false, true}) {
    for (const std::string& options : kRoutes) {
      SCOPED_TRACE(options + (overlapped ? ", overlapped" : ""));
      std::size_t numbers = 0;
      run_ranks(1, [&](Comm& comm) {
        testing::AddsHalves halves(comm);
        Fed engine(options, overlapped, halves);
        for (const auto& [name, values] : engine->policy().save()) numbers += values.size();
      });
      for (std::size_t number = 0; number < numbers; ++number) {
        bool changed = false;
        const auto errors = errors_after(options, overlapped, [&](EngineBase& engine) {
          for (const Change& change : {Change([](double& x) { x *= 2; }), Change([](double& x) { x += 1; }),
                                       Change([](double& x) { x /= 2; })}) {
            PolicyState state = engine.policy().save();
            std::size_t at = 0;
            for (auto& [name, values] : state) {
              for (double& value : values) {
                if (at++ == number) change(value);
              }
            }
            if (state == engine.policy().save()) continue;
            try {
              engine.policy().load(state);
              changed = engine.policy().save() == state;
            } catch (const Error&) {
            }
            if (changed) return;
          }
        });
        if (changed) expect_all(errors, "at step 7, the policy state of rank 1 differs from rank 0's");
        if (changed && HasFailure()) return;
      }
    }
  }
}

TEST(SharedState, CostsThatDifferInOneNumberAreFoundByEveryRouteInTheSameStep) {
  for (const bool overlapped : {false, true}) {
    for (const std::string& options : kRoutes) {
      SCOPED_TRACE(options + (overlapped ? ", overlapped" : ""));
      const auto errors = errors_after(options, overlapped, [](EngineBase& engine) {
        NamedNumbers state = engine.costs().save();
        for (auto& [name, values] : state) {
          if (name == "link/alpha") values[0] = 1e3;  // seconds per round
        }
        const_cast<CostModel&>(engine.costs()).load(state);  // a flipped bit
      });
      expect_all(errors, "at step 7, the step times in the cost model of rank 1 differs from rank 0's");
    }
  }
}

// With another count a rank would draw other positions, and sums would mix them up in silence.
TEST(SharedState, ACountOfDrawsThatDiffersIsFoundBeforeASum) {
  for (const bool overlapped : {false, true}) {
    const auto errors = errors_of([&](Comm& comm) {
      const std::string options = "policy=static factor=20 compressor=randomk";
      Fed before(options, overlapped, comm), now(options, overlapped, comm);
      before.steps(5);
      const Checkpoint saved = before->save();
      Checkpoint state;
      for (const std::string& name : saved.names("")) {
        if (saved.type(name) == 't') state.add(name, saved.text(name));
        if (saved.type(name) == 'f') state.add(name, saved.view(name));
        if (saved.type(name) != 'd') continue;
        std::vector<double> numbers = saved.numbers(name);
        if (name == "codec 0/steps" && comm.rank() == 2) ++numbers[0];
        state.add(name, std::span<const double>(numbers));
      }
      now->load(state);
      now.steps(1);
    });
    expect_all(errors, "at step 5, the engine state of rank 2 differs from rank 0's");
  }
}

TEST(SharedState, AMomentumThatDiffersOnOneRankIsFoundInTheSameStep) {
  for (const bool overlapped : {false, true}) {
    const auto errors = errors_of([&](Comm& comm) {
      Fed engine("policy=static factor=20 memory=momentum optimizer-momentum=0.9", overlapped, comm);
      engine.steps(3);
      engine->momentum(0.8, comm.rank() == 2 ? 0.7 : 0.8);
      engine.steps(1);
    });
    expect_all(errors, "at step 3, the engine state of rank 2 differs from rank 0's");
  }
}

TEST(SharedState, AResumedRunGoesOn) {
  for (const bool overlapped : {false, true}) {
    for (const std::string& options : kOptions) {
      SCOPED_TRACE(options + (overlapped ? ", overlapped" : ""));
      const auto errors = errors_of([&](Comm& comm) {
        Fed before(options, overlapped, comm);
        before.steps(6);
        Fed now(options, overlapped, comm);
        now->load(before->save());
        now.steps(6);
      });
      EXPECT_EQ(errors, std::vector<std::string>(kRanks));
    }
  }
}

TEST(SharedState, EveryPartChangesTheDigest) {
  const SharedState state{.step = 1, .policy = 2, .costs = 3, .engine = 4};
  std::set<std::uint64_t> digests = {state.digest()};
  for (std::uint64_t SharedState::*part :
       {&SharedState::step, &SharedState::policy, &SharedState::costs, &SharedState::engine}) {
    SharedState other = state;
    ++(other.*part);
    digests.insert(other.digest());
  }
  EXPECT_EQ(digests.size(), 5);
  // Names count, too, and where one list of numbers ends.
  EXPECT_NE(digest_of(PolicyState{{"a", {1}}}), digest_of(PolicyState{{"b", {1}}}));
  EXPECT_NE(digest_of(PolicyState{{"a", {1}}, {"b", {}}}), digest_of(PolicyState{{"a", {}}, {"b", {1}}}));
}

}  // namespace
}  // namespace gravac
