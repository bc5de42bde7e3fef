#pragma once

#include <cstdint>

namespace gravac {

// The key of a sequence of random numbers. It depends on nothing else: ranks that use the same three numbers
// get the same sequence without exchanging anything, a resumed run continues with the right one, and the
// caller's own random generators are not touched.
struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t segment = 0;  // so that segments of one step differ
};

// A counter-based generator: the i-th number is a pure function of the draw and of i, so numbers can be
// computed in any order and on any thread. It is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a Weyl
// sequence, whose terms are mixed by a finaliser. Not for cryptography.
class Random {
 public:
  explicit constexpr Random(const Draw& draw)
      : key_(mix(draw.seed + kWeyl * mix(draw.step + kWeyl * mix(draw.segment + kWeyl)))) {}

  constexpr std::uint64_t at(std::uint64_t i) const { return mix(term(i)); }

  // What at() is made of, for vector loops that compute many numbers: at(i) == mix(term(i)).
  static constexpr std::uint64_t kWeyl = 0x9e3779b97f4a7c15u;  // 2^64 divided by the golden ratio
  static constexpr std::uint64_t kFirst = 0xbf58476d1ce4e5b9u, kSecond = 0x94d049bb133111ebu;

  constexpr std::uint64_t term(std::uint64_t i) const { return key_ + kWeyl * i; }

  static constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * kFirst;
    x = (x ^ (x >> 27)) * kSecond;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t key_;
};

// Turns 32 random bits into a number in [0, limit), by a multiplication instead of a slow division (Lemire).
// Some numbers are likelier than others by a share of at most limit / 2^32.
constexpr std::uint32_t scaled(std::uint32_t random, std::uint64_t limit) {
  return static_cast<std::uint32_t>((std::uint64_t{random} * limit) >> 32);
}

}  // namespace gravac
