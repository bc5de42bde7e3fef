#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "gravac/comm/thread_comm.h"
#include "gravac/gravac.h"

extern "C" int c_user(void);

namespace gravac {
namespace {

TEST(CApi, WorksFromPlainC) {
  EXPECT_EQ(c_user(), 0) << gravac_error();
}

// What a binding for another language would pass; here the ranks are threads of this process.
gravac_comm callbacks_to(Comm& comm) {
  return {&comm, comm.rank(), comm.size(),
          [](void* context, float* values, std::size_t count) {
            static_cast<Comm*>(context)->all_reduce({values, count});
            return 0;
          },
          [](void* context, const void* mine, std::size_t bytes, void* all) {
            auto& c = *static_cast<Comm*>(context);
            c.all_gather(std::span(static_cast<const std::byte*>(mine), bytes),
                         std::span(static_cast<std::byte*>(all), bytes * c.size()));
            return 0;
          }};
}

TEST(CApi, RanksGetTheMeanByEveryRoute) {
  for (const char* route : {"auto", "all-gather", "reduce-scatter", "dense"}) {
    run_ranks(3, [&](Comm& comm) {
      const gravac_comm callbacks = callbacks_to(comm);
      const char* name = "all";
      const size_t size = 50;
      const std::string options = std::string("policy=static factor=1 values=fp32 exchange=") + route;
      gravac_aggregator* g = gravac_create(options.c_str(), &name, &size, 1, &callbacks);
      ASSERT_NE(g, nullptr) << gravac_error();
      std::vector<float> gradient(size, static_cast<float>(3 * comm.rank()));
      ASSERT_EQ(gravac_step(g, gradient.data(), 8), 0) << gravac_error();
      for (const float value : gradient) EXPECT_FLOAT_EQ(value, 3) << route;
      gravac_destroy(g);
    });
  }
}

TEST(CApi, FailuresAreMessagesNotExceptions) {
  const char* names[] = {"a", "a"};
  const size_t sizes[] = {1, 1};
  EXPECT_EQ(gravac_create("", names, sizes, 2, nullptr), nullptr);
  EXPECT_STREQ(gravac_error(), "layout: segment 'a' has already been added");
  EXPECT_EQ(gravac_create("policy=clever", names, sizes, 1, nullptr), nullptr);
  EXPECT_EQ(gravac_step(nullptr, nullptr, 1), -1);
  gravac_comm broken = {nullptr, 0, 2, [](void*, float*, size_t) { return 5; },
                        [](void*, const void*, size_t, void*) { return 5; }};
  EXPECT_EQ(gravac_create("", names, sizes, 1, &broken), nullptr);
  EXPECT_STREQ(gravac_error(), "comm: all_gather failed with 5 on rank 0 (step 0)");
  broken.all_reduce = nullptr;
  EXPECT_EQ(gravac_create("", names, sizes, 1, &broken), nullptr);
}

TEST(CApi, ShapesReachTheEngine) {
  const char* names[] = {"weight", "bias"};
  const size_t sizes[] = {12, 4}, rows[] = {4, 1}, wrong[] = {5, 1};
  EXPECT_EQ(gravac_create_matrices("", names, sizes, wrong, 2, nullptr), nullptr);
  EXPECT_STREQ(gravac_error(), "layout: rows of segment 'weight' must divide its 12 entries, got 5");
  gravac_aggregator* g =
      gravac_create_matrices("policy=static factor=1 values=fp32", names, sizes, rows, 2, nullptr);
  ASSERT_NE(g, nullptr) << gravac_error();
  std::vector<float> gradient(16, 3.0f);
  EXPECT_EQ(gravac_step(g, gradient.data(), 8), 0) << gravac_error();
  EXPECT_EQ(gradient, std::vector<float>(16, 3.0f));
  // A state is refused by a model whose parameters have as many entries but other shapes.
  size_t size = 0;
  ASSERT_EQ(gravac_save(g, nullptr, &size), 0);
  std::vector<std::byte> state(size);
  ASSERT_EQ(gravac_save(g, state.data(), &size), 0);
  EXPECT_EQ(gravac_load(g, state.data(), size), 0) << gravac_error();
  gravac_aggregator* vectors = gravac_create("policy=static factor=1 values=fp32", names, sizes, 2, nullptr);
  ASSERT_NE(vectors, nullptr) << gravac_error();
  EXPECT_EQ(gravac_load(vectors, state.data(), size), -1);
  EXPECT_EQ(std::string(gravac_error()).find("checkpoint: layout is "), 0u) << gravac_error();
  gravac_destroy(vectors);
  gravac_destroy(g);
}

TEST(CApi, ACallWithWrongArgumentsCanBeMadeAgain) {
  const char* name = "a";
  const size_t entries = 4;
  gravac_aggregator* g = gravac_create("memory=momentum weight-decay=0.1", &name, &entries, 1, nullptr);
  ASSERT_NE(g, nullptr) << gravac_error();
  float gradient[4] = {1, 2, 3, 4};
  const float weights[4] = {1, 1, 1, 1};
  EXPECT_EQ(gravac_step(g, gradient, 1), -1);  // weights are missing
  EXPECT_EQ(gravac_step_weights(g, gradient, weights, 1), 0) << gravac_error();
  gravac_destroy(g);
}

TEST(CApi, FollowsAMomentumThatChanges) {
  const char* name = "a";
  const size_t entries = 1;
  gravac_aggregator* g =
      gravac_create("memory=momentum momentum=0.5 policy=dense", &name, &entries, 1, nullptr);
  ASSERT_NE(g, nullptr) << gravac_error();
  float mean = 1;
  EXPECT_EQ(gravac_step(g, &mean, 1), 0);
  EXPECT_EQ(gravac_momentum(g, 0.25, 0), 0) << gravac_error();
  mean = 1;
  EXPECT_EQ(gravac_step(g, &mean, 1), 0);
  EXPECT_EQ(mean, 1.25f);
  EXPECT_EQ(gravac_momentum(g, 1, 0), -1);
  EXPECT_EQ(gravac_momentum(g, 0.5, 0.9), -1);  // the optimizer had none
  EXPECT_EQ(gravac_momentum(nullptr, 0.5, 0), -1);
  gravac_destroy(g);
}

// Accordion sends 2 of 1000 entries once it has seen that nothing changes.
TEST(CApi, TellsPoliciesThatTheLearningRateDropped) {
  const char* name = "a";
  const size_t entries = 1000;
  gravac_aggregator* g = gravac_create("policy=accordion factor-min=4 factor-max=500 interval=1 spacing=3",
                                       &name, &entries, 1, nullptr);
  ASSERT_NE(g, nullptr) << gravac_error();
  const auto entries_sent = [&] {
    std::vector<float> gradient(entries, 1.0f);
    EXPECT_EQ(gravac_step(g, gradient.data(), 1), 0) << gravac_error();
    return std::count_if(gradient.begin(), gradient.end(), [](float x) { return x != 0; });
  };
  for (int step = 0; step < 4; ++step) EXPECT_EQ(entries_sent(), 250);
  EXPECT_EQ(entries_sent(), 2);
  EXPECT_EQ(gravac_learning_rate_dropped(g), 0);
  for (int step = 0; step < 2; ++step) EXPECT_EQ(entries_sent(), 250);
  EXPECT_EQ(entries_sent(), 2);
  gravac_destroy(g);
}

TEST(CApi, KeepsLessOfOldGradientsWhereTheLearningRateRises) {
  const char* name = "a";
  const size_t entries = 10;
  gravac_aggregator* g =
      gravac_create("policy=static factor=10 values=fp32 exchange=all-gather", &name, &entries, 1, nullptr);
  ASSERT_NE(g, nullptr) << gravac_error();
  std::vector<float> gradient = {8, 4, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(gravac_learning_rate(g, 0.1), 0);
  EXPECT_EQ(gravac_step(g, gradient.data(), 1), 0) << gravac_error();  // sends the 8, keeps the 4
  EXPECT_EQ(gravac_learning_rate(g, 0.2), 0);
  gradient.assign(entries, 0.0f);
  EXPECT_EQ(gravac_step(g, gradient.data(), 1), 0) << gravac_error();
  EXPECT_EQ(gradient[1], 2);
  EXPECT_NE(gravac_learning_rate(nullptr, 0.1), 0);
  gravac_destroy(g);
}

TEST(CApi, SaveWithTooLittleRoomSaysHowMuchIsNeeded) {
  const char* name = "a";
  const size_t entries = 10;
  gravac_aggregator* g = gravac_create(nullptr, &name, &entries, 1, nullptr);
  ASSERT_NE(g, nullptr) << gravac_error();
  char small[4];
  size_t size = sizeof(small);
  EXPECT_EQ(gravac_save(g, small, &size), -1);
  EXPECT_GT(size, sizeof(small));
  gravac_destroy(g);
}

}  // namespace
}  // namespace gravac
