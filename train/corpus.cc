#include <algorithm>
#include <array>
#include <utility>

#include "train/data_sets.h"
#include "train/stream.h"

// A synthetic language, so that text models can be trained without downloading anything.
// Every word belongs to one of twenty kinds, like parts of speech. The kinds of the last
// two words decide which three kinds may come next, like a grammar. Within the next kind,
// half of the time a fixed favourite of the last word follows, like a phrase; the other
// half, a word is drawn by Zipf's law. So a model can learn from word frequencies, from
// the last word, and from the kinds of the last two words. docs/data.md has the loss that
// models of each sort reach.

namespace gravac::train {

namespace {

constexpr std::size_t kWords = 1000, kKinds = 20, kWordsPerKind = kWords / kKinds;
constexpr double kPhrase = 0.5;  // probability that the last word's favourite follows
// Cumulative probabilities of the three kinds that may follow: 0.6, 0.3 and 0.1.
constexpr std::array<double, 3> kFollows = {0.6, 0.9, 1};

// Word w is of kind w % kKinds, and lower numbers are more frequent, so that every kind has
// both frequent and rare words.
class Language {
 public:
  explicit Language(Stream& random) : follows_(kKinds * kKinds), favourites_(kWords * kKinds) {
    double sum = 0;
    for (std::size_t i = 0; i < kWordsPerKind; ++i) {
      cumulative_weights_[i] = sum += 1 / (static_cast<double>(i) + 0.5);
    }
    for (auto& kinds : follows_)
      for (std::uint32_t& kind : kinds) kind = random.below(kKinds);
    for (std::size_t i = 0; i < favourites_.size(); ++i)
      favourites_[i] = any_word(static_cast<std::uint32_t>(i % kKinds), random);
  }

  // Draws the word that follows the words `before` and `last`.
  std::uint32_t next(std::uint32_t before, std::uint32_t last, Stream& random) const {
    const auto& kinds = follows_[before % kKinds * kKinds + last % kKinds];
    const double chance = random.uniform();
    const auto which = std::ranges::find_if(kFollows, [&](double limit) { return chance < limit; });
    const std::uint32_t kind = kinds[static_cast<std::size_t>(which - kFollows.begin())];
    return random.uniform() < kPhrase ? favourites_[last * kKinds + kind] : any_word(kind, random);
  }

 private:
  // Draws a word of the kind by Zipf's law.
  std::uint32_t any_word(std::uint32_t kind, Stream& random) const {
    const double chance = random.uniform() * cumulative_weights_.back();
    const auto place = std::ranges::upper_bound(cumulative_weights_, chance) - cumulative_weights_.begin();
    return kind + static_cast<std::uint32_t>(kKinds) * static_cast<std::uint32_t>(place);
  }

  std::array<double, kWordsPerKind> cumulative_weights_;             // of the words of any kind
  std::vector<std::array<std::uint32_t, kFollows.size()>> follows_;  // for each pair of kinds, three kinds
  std::vector<std::uint32_t> favourites_;                            // for each word, one of each kind
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
  // One text, cut in two: the test part goes on where the training part ends.
  write(200'000, set.train);
  write(20'000, set.test);
  return set;
}

}  // namespace gravac::train
