// Ranks that do not belong together stop before they use a mean: with either engine, whatever they have
// loaded, and whichever number of their state differs.

#include "gravac/shared_state.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
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
