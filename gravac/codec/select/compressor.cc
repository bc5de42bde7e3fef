#include "gravac/codec/select/compressor.h"

#include <cmath>
#include <iterator>

#include "gravac/util/require.h"

namespace gravac {
namespace {

struct Known {
  std::string_view name;
  std::unique_ptr<Compressor> (*make)();
};

constexpr Known kKnown[] = {{"topk", make_topk},
                            {"dgc", make_dgc},
                            {"redsync", make_redsync},
                            {"randomk", make_randomk},
                            {"sidco", make_sidco}};

}  // namespace

// The cost of looking grows with the sample, the cost of the undecided band
// shrinks with its root: their sum is least near a root of n.
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

std::unique_ptr<Compressor> make_compressor(std::string_view name) {
  std::string known;
  for (const Known& entry : kKnown) {
    if (entry.name == name) return entry.make();
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw Error("compressor: no such compressor '" + std::string(name) + "'; known: " + known);
}

std::span<const std::string_view> compressor_names() {
  static const auto names = [] {
    std::vector<std::string_view> all;
    for (const Known& entry : kKnown) all.push_back(entry.name);
    return all;
  }();
  return names;
}

}  // namespace gravac
