#include <algorithm>
#include <array>
#include <utility>

#include "train/data_sets.h"
#include "train/stream.h"

// A made-up language. Every word is of one of twenty kinds; which kinds may
// follow depends on the last two, as in a grammar. Within a kind, words are as
// frequent as Zipf's law has it, but half of the time a word's favourite of that
// kind follows it, as in a phrase. So there is something to learn from the kind of a word,
// from the word itself and from the one before it. Entropies: docs/data.md.

namespace gravac::train {

namespace {

constexpr std::size_t kWords = 1000, kKinds = 20, kOfAKind = kWords / kKinds;
constexpr double kPhrase = 0.5;                            // how often a favourite follows
constexpr std::array<double, 3> kFollows = {0.6, 0.9, 1};  // cumulative, of the kinds that may follow

// Words are numbered by frequency and kinds dealt out in turn, so that each has frequent and rare ones.
class Language {
 public:
  explicit Language(Stream& random) : follows_(kKinds * kKinds), favourites_(kWords * kKinds) {
    double sum = 0;
    for (std::size_t i = 0; i < kOfAKind; ++i) upto_[i] = sum += 1 / (static_cast<double>(i) + 0.5);
    for (auto& kinds : follows_)
      for (std::uint32_t& kind : kinds) kind = random.below(kKinds);
    for (std::size_t i = 0; i < favourites_.size(); ++i)
      favourites_[i] = any_word(static_cast<std::uint32_t>(i % kKinds), random);
  }

  std::uint32_t next(std::uint32_t before, std::uint32_t last, Stream& random) const {
    const auto& kinds = follows_[before % kKinds * kKinds + last % kKinds];
    const double chance = random.uniform();
    const auto which = std::ranges::find_if(kFollows, [&](double upto) { return chance < upto; });
    const std::uint32_t kind = kinds[static_cast<std::size_t>(which - kFollows.begin())];
    return random.uniform() < kPhrase ? favourites_[last * kKinds + kind] : any_word(kind, random);
  }

 private:
  std::uint32_t any_word(std::uint32_t kind, Stream& random) const {
    const auto place = std::ranges::upper_bound(upto_, random.uniform() * upto_.back()) - upto_.begin();
    return kind + static_cast<std::uint32_t>(kKinds) * static_cast<std::uint32_t>(place);
  }

  std::array<double, kOfAKind> upto_;  // sums of frequencies within a kind
  std::vector<std::array<std::uint32_t, kFollows.size()>> follows_;
  std::vector<std::uint32_t> favourites_;
};

}  // namespace

// 200,000 words to train on, 20,000 to test on.
TokenSet write_corpus(const DataOptions& options) {
  Stream random({options.seed, 0, 2});
  const Language language(random);
  TokenSet set{.words = kWords};
  auto write = [&, before = 0u, last = 1u](std::size_t count, std::vector<std::int32_t>& tokens) mutable {
    for (std::size_t i = 0; i < count; ++i) {
      before = std::exchange(last, language.next(before, last, random));
      tokens.push_back(static_cast<std::int32_t>(last));
    }
  };
  write(200'000, set.train);
  write(20'000, set.test);
  return set;
}

}  // namespace gravac::train
