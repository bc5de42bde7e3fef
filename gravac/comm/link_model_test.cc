#include "gravac/comm/link_model.h"

#include <gtest/gtest.h>

namespace gravac {
namespace {

// A link of so many times 0.1 ms a round and 1 ns a byte.
double seconds_of(const Volume& volume, double slowness) {
  return slowness * (1e-4 * volume.rounds + 1e-9 * volume.bytes);
}

constexpr Volume kSmall{.rounds = 6, .bytes = 1e4}, kLarge{.rounds = 6, .bytes = 1e7};

LinkModel after_steps_over(double slowness) {
  LinkModel model;
  for (int i = 0; i < 100; ++i) {
    for (const Volume& volume : {kSmall, kLarge}) model.learn(volume, seconds_of(volume, slowness));
  }
  return model;
}

TEST(LinkModel, FindsLatencyAndRate) {
  const LinkModel model = after_steps_over(3);
  EXPECT_NEAR(model.seconds_per_round(), 3e-4, 1e-6);
  EXPECT_NEAR(model.seconds_per_byte(), 3e-9, 1e-11);
}

TEST(LinkModel, FollowsALinkWithinAFewExchanges) {
  for (const double slowness : {0.01, 0.3, 3.0, 100.0, 10'000.0}) {
    LinkModel model = after_steps_over(1);
    for (int i = 0; i < 5; ++i) {
      for (const Volume& volume : {kSmall, kLarge}) model.learn(volume, seconds_of(volume, slowness));
    }
    for (const Volume& volume : {kSmall, kLarge}) {
      const double expected = seconds_of(volume, slowness);
      EXPECT_NEAR(model.seconds(volume), expected, 0.5 * expected) << slowness;
    }
  }
}

// Only the rate has fallen: the short messages between the long ones are as quick as before.
TEST(LinkModel, FollowsARateThatFallsWhileTheLatencyStays) {
  LinkModel model = after_steps_over(1);
  const double slow = 100 * seconds_of(kLarge, 1);
  for (int i = 0; i < 5; ++i) {
    model.learn(kSmall, seconds_of(kSmall, 1));
    model.learn(kLarge, slow);
  }
  EXPECT_NEAR(model.seconds(kLarge), slow, 0.5 * slow);
}

// A processor that does something else for a moment makes exchanges long, the short ones most of all.
TEST(LinkModel, IsNotMisledByTwoSlowExchanges) {
  for (const Volume& first : {kSmall, kLarge}) {
    for (const Volume& second : {kSmall, kLarge}) {
      LinkModel model = after_steps_over(1);
      model.learn(first, 3);
      model.learn(second, 3);
      for (const Volume& volume : {kSmall, kLarge}) {
        EXPECT_NEAR(model.seconds(volume), seconds_of(volume, 1), 0.1 * seconds_of(volume, 1));
      }
    }
  }
}

}  // namespace
}  // namespace gravac
