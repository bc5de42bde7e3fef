#pragma once

#include <cstdint>

namespace gravac {

// What a random choice depends on, and nothing else: ranks that pass the same
// three numbers choose alike, and no program's random state is touched.
struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t segment = 0;
};

// A counter-based generator: the i-th number is a pure function of the draw and
// i (the finaliser of SplitMix64 over a Weyl sequence), so any number can be
// had in any order, on any thread.
class Random {
 public:
  explicit constexpr Random(const Draw& draw)
      : key_(mix(draw.seed + kWeyl * mix(draw.step + kWeyl * mix(draw.segment + kWeyl)))) {}

  constexpr std::uint64_t at(std::uint64_t i) const { return mix(key_ + kWeyl * i); }

 private:
  static constexpr std::uint64_t kWeyl = 0x9e3779b97f4a7c15u;

  static constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  std::uint64_t key_;
};

// A number in [0, limit) from 32 random bits. The bias is below limit / 2^32.
constexpr std::uint32_t scaled(std::uint32_t random, std::uint64_t limit) {
  return static_cast<std::uint32_t>((std::uint64_t{random} * limit) >> 32);
}

}  // namespace gravac
