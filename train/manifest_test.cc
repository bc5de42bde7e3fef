#include "train/manifest.h"

#include <gtest/gtest.h>

#include "train/files_testing.h"

namespace gravac::train {
namespace {

using testing::error_of;

const Manifest kManifest = {
    .saved_by = {"00112233445566ff", 3}, .step = 12'345'678'901, .digests = {0, ~std::uint64_t{0}, 42}};

TEST(Manifest, IsOneLineThatReadsBackAsItWas) {
  const std::string text = to_text(kManifest);
  EXPECT_EQ(text,
            "{\"format\":1,\"run\":\"00112233445566ff\",\"attempt\":3,\"step\":12345678901,\"ranks\":3,"
            "\"digests\":[\"0000000000000000\",\"ffffffffffffffff\",\"000000000000002a\"]}\n");
  EXPECT_EQ(manifest_from_text(text), kManifest);
}

TEST(Manifest, EveryRunHasAnIdentityOfItsOwn) {
  const RunIdentity one = new_run(), other = new_run();
  EXPECT_NE(one.run, other.run);
  EXPECT_EQ(one.run.size(), 16u);
  EXPECT_EQ(one.attempt, 1u);
}

TEST(Manifest, RefusesWhatIsDamaged) {
  const std::string text = to_text(kManifest);
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_EQ(error_of([&] { manifest_from_text(text.substr(0, size)); }), "manifest: truncated or damaged");
  }
  const auto with = [&](const std::string& old, const std::string& now) {
    std::string changed = text;
    changed.replace(changed.find(old), old.size(), now);
    return error_of([&] { manifest_from_text(changed); });
  };
  EXPECT_EQ(with("\"format\":1", "\"format\":2"), "manifest: expected format 1, got 2");
  EXPECT_EQ(with("\"ranks\":3", "\"ranks\":4"),
            "manifest: expected at least 1 rank and a digest for each rank, got 4 ranks and 3 digests");
  EXPECT_EQ(with("\"step\":", "\"stop\":"), "manifest: truncated or damaged");
  EXPECT_EQ(with("\"0000000000000000\"", "\"000000000000000\""),
            "manifest: '000000000000000' is not a digest");
  EXPECT_EQ(with("\"0000000000000000\"", "\"-000000000000001\""),
            "manifest: '-000000000000001' is not a digest");
  EXPECT_EQ(with("{", "["), "manifest: truncated or damaged");
  EXPECT_EQ(error_of([] { manifest_from_text("[]"); }), "manifest: truncated or damaged");
}

// Whatever the bytes: an Error, or a manifest.
TEST(Manifest, AnyBitMayFlip) {
  const std::string text = to_text(kManifest);
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    error_of([&] { manifest_from_text(changed); });
  }
}

}  // namespace
}  // namespace gravac::train
