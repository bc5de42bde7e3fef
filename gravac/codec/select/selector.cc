#include "gravac/codec/select/selector.h"

#include <cmath>

#include "gravac/util/names.h"

namespace gravac {

// compressors.def is included twice: once to declare the functions make_NAME(), once to fill the table.
#define SELECTOR(name, ...) std::unique_ptr<Selector> make_##name();
#include "gravac/codec/select/selectors.def"
#undef SELECTOR

namespace {

// The words of compressors.def for shared_positions.
constexpr bool own_of_each_rank = false, same_on_all_ranks = true;

constexpr SelectorInfo kSelectors[] = {
#define SELECTOR(name, positions, fewest, most, description) \
  {#name, description, positions, fewest, most, make_##name},
#include "gravac/codec/select/selectors.def"
#undef SELECTOR
};

}  // namespace

// Reading the sample costs time in proportion to its size; the number of entries that the band leaves
// undecided falls with the square root of that size. A size in proportion to sqrt(n) keeps both small.
std::size_t Threshold::sample_size(std::size_t n, std::size_t) const {
  return static_cast<std::size_t>(26 * std::sqrt(static_cast<double>(n)));
}

Band Threshold::guess(const Sample& sample, std::size_t keep) const {
  return sample.population < kSmall ? exact_band(sample, keep) : estimate(sample, keep);
}

Cut Threshold::cut(std::span<const float> values, std::size_t keep, const Draw& draw,
                   Scratch& scratch) const {
  return values.size() < kSmall ? exact_cut(values, keep, scratch) : define(values, keep, draw, scratch);
}

void Threshold::pick(std::span<const float> values, std::size_t keep, const Draw& draw,
                     std::vector<std::uint32_t>& picked) const {
  Scratch scratch;
  const Cut kept = cut(values, keep, draw, scratch);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (kept.keeps(values[i], static_cast<std::uint32_t>(i))) picked.push_back(static_cast<std::uint32_t>(i));
  }
}

std::span<const SelectorInfo> selectors() {
  return kSelectors;
}

std::span<const std::string_view> selector_names() {
  static const std::vector<std::string_view> names = names_of(kSelectors);
  return names;
}

const SelectorInfo& selector_info(std::string_view name) {
  return entry_named(kSelectors, name, "compressor", "compressor");
}

std::unique_ptr<Selector> make_selector(std::string_view name) {
  return selector_info(name).make();
}

}  // namespace gravac
