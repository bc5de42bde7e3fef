#include "gravac/codec/low_rank/products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gravac/codec/low_rank/orthonormalise.h"

namespace gravac {
namespace {

using Floats = std::vector<float>;

struct Shape {
  std::size_t rows, columns;
};

// Around the width of vectors and the size of blocks, odd ones, and a layer of a ResNet.
const Shape kShapes[] = {{1, 1},  {1, 40},   {40, 1},   {2, 3},    {7, 9},      {12, 512},
                         {13, 8}, {33, 65},  {64, 576}, {50, 529}, {25, 1551},  {1, 513},
                         {3, 48}, {5, 2000}, {130, 24}, {200, 7},  {1000, 517}, {11, 16}};
const std::size_t kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17};

Floats gauss(std::size_t size, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(size);
  for (float& value : values) value = scale * normal(random);
  return values;
}

std::vector<std::uint32_t> bits_of(const Floats& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

Floats first(const Floats& values, std::size_t size) {
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(size)};
}

// A matrix with what it is multiplied with, and the products written plainly, in double.
struct Case {
  Case(Shape given_shape, std::size_t given_rank, bool with_residual, unsigned seed = 1, float scale = 1)
      : shape(given_shape),
        rank(given_rank),
        gradient(gauss(shape.rows * shape.columns, seed, scale)),
        residual(with_residual ? gauss(gradient.size(), seed + 1, scale) : Floats()),
        p(gauss(rank * shape.rows, seed + 2)),
        q(gauss(rank * shape.columns, seed + 3)) {}

  ErrorFedMatrix matrix() const { return {.gradient = gradient, .residual = residual, .rows = shape.rows}; }
  float sum(std::size_t i, std::size_t j) const {
    const std::size_t at = i * shape.columns + j;
    return residual.empty() ? gradient[at] : gradient[at] + residual[at];
  }

  // p = M q and q = M' p: checks the result, each entry relative to the norms that it is a product of.
  void check_p(const Floats& found) const {
    for (std::size_t c = 0; c < rank; ++c) {
      for (std::size_t i = 0; i < shape.rows; ++i) {
        double expected = 0, row = 0, column = 0;
        for (std::size_t j = 0; j < shape.columns; ++j) {
          const double x = sum(i, j), y = q[c * shape.columns + j];
          expected += x * y;
          row += x * x;
          column += y * y;
        }
        ASSERT_NEAR(found[c * shape.rows + i], expected, tolerance(shape.columns, row, column))
            << what() << c << " " << i;
      }
    }
  }
  void check_q(const Floats& found) const {
    for (std::size_t c = 0; c < rank; ++c) {
      for (std::size_t j = 0; j < shape.columns; ++j) {
        double expected = 0, row = 0, column = 0;
        for (std::size_t i = 0; i < shape.rows; ++i) {
          const double x = sum(i, j), y = p[c * shape.rows + i];
          expected += x * y;
          row += x * x;
          column += y * y;
        }
        ASSERT_NEAR(found[c * shape.columns + j], expected, tolerance(shape.rows, row, column))
            << what() << c << " " << j;
      }
    }
  }
  // Entry (i, j) of p q', as every processor must have it: `volatile` keeps the compiler from fusing
  // anything.
  float expanded(std::size_t i, std::size_t j) const {
    float total = 0;
    for (std::size_t c = 0; c < rank; ++c) {
      const volatile float product = p[c * shape.rows + i] * q[c * shape.columns + j];
      const volatile float next = total + product;
      total = next;
    }
    return total;
  }
  double energy(bool of_sum) const {
    double total = 0;
    for (std::size_t at = 0; at < gradient.size(); ++at) {
      const double x = of_sum ? sum(at / shape.columns, at % shape.columns) : gradient[at];
      total += x * x;
    }
    return total;
  }
  void check_energy(const MatrixEnergy& found) const {
    EXPECT_NEAR(found.entered, energy(false), 1e-5 * energy(false)) << what();
    EXPECT_NEAR(found.dense, energy(true), 1e-5 * energy(true)) << what();
    EXPECT_TRUE(found.finite) << what();
  }

  // Each of `terms` additions may be wrong by the smallest denormal number.
  static double tolerance(std::size_t terms, double row, double column) {
    return 1e-5 * std::sqrt(row * column) + static_cast<double>(terms) * 0x1p-149;
  }
  std::string what() const {
    return std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + ", rank " +
           std::to_string(rank) + (residual.empty() ? ": " : ", with residual: ");
  }

  Shape shape;
  std::size_t rank;
  Floats gradient, residual, p, q;
};

// Calls check(case) for all shapes, ranks, and with and without a residual.
template <class Check>
void each_case(const Check& check) {
  for (const Shape shape : kShapes) {
    for (const std::size_t rank : kRanks) {
      for (const bool with_residual : {false, true}) check(Case(shape, rank, with_residual));
    }
  }
}

Floats multiplied(const Case& one, Workers* workers = nullptr) {
  Floats p(one.p.size(), -7.0f);
  multiply(one.matrix(), one.q, p, workers);
  return p;
}

Floats multiplied_transposed(const Case& one, Workers* workers = nullptr) {
  Floats q(one.q.size(), -7.0f);
  multiply_transposed(one.matrix(), one.p, q, workers);
  return q;
}

TEST(Products, AreThoseOfThePlainLoops) {
  each_case([](const Case& one) {
    Floats p(one.p.size(), -7.0f);
    one.check_energy(multiply(one.matrix(), one.q, p));
    one.check_p(p);
    one.check_q(multiplied_transposed(one));
  });
}

TEST(Products, ExpandHasTheSameBitsOnEveryProcessor) {
  each_case([](const Case& one) {
    Floats out(one.gradient.size(), -7.0f);
    expand(one.p, one.q, one.shape.rows, out);
    for (std::size_t at = 0; at < out.size(); ++at) {
      const float expected = one.expanded(at / one.shape.columns, at % one.shape.columns);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(out[at]), std::bit_cast<std::uint32_t>(expected))
          << one.what() << at;
    }
  });
}

// What is kept back and what was sent are together what there was, up to the rounding of one subtraction; and
// the mean has the bits of expand().
void check_split(const Case& one) {
  const std::size_t n = one.gradient.size(), rows = one.shape.rows;
  const Floats mean_q = gauss(one.q.size(), 77);
  Floats sent(n), mean(n), rest(n, -7.0f), out(n, -7.0f);
  expand(one.p, one.q, rows, sent);
  expand(one.p, mean_q, rows, mean);
  split(one.matrix(), one.p, one.q, mean_q, rest, out);
  EXPECT_EQ(bits_of(out), bits_of(mean)) << one.what();
  for (std::size_t at = 0; at < n; ++at) {
    const float sum = one.sum(at / one.shape.columns, at % one.shape.columns);
    ASSERT_EQ(rest[at], sum - sent[at]) << one.what() << at;
  }
  Floats gradient = one.gradient, kept = one.residual.empty() ? Floats(n, 0.0f) : one.residual;  // in place
  split({.gradient = gradient, .residual = kept, .rows = rows}, one.p, one.q, mean_q, kept, gradient);
  EXPECT_EQ(kept, rest) << one.what();
  EXPECT_EQ(gradient, out) << one.what();
}

TEST(Products, WhatIsSentAndWhatIsKeptAreTheMatrix) {
  each_case(check_split);
  for (const std::size_t rank : {31, 80, 81, 161, 200}) {  // around those of which fewer columns are packed
    for (const bool with_residual : {false, true}) check_split(Case({53, 300}, rank, with_residual));
  }
}

TEST(Products, TheFirstColumnsDoNotDependOnTheOthers) {
  for (const Shape shape : kShapes) {
    const Case whole(shape, 17, true);
    const Floats p = multiplied(whole), q = multiplied_transposed(whole);
    for (const std::size_t rank : kRanks) {
      Case part = whole;
      part.rank = rank;
      part.p.resize(rank * shape.rows);
      part.q.resize(rank * shape.columns);
      EXPECT_EQ(bits_of(multiplied(part)), bits_of(first(p, part.p.size()))) << part.what();
      EXPECT_EQ(bits_of(multiplied_transposed(part)), bits_of(first(q, part.q.size()))) << part.what();
    }
  }
}

TEST(Products, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Shape shape : {Shape{1000, 517}, Shape{37, 12'345}, Shape{3000, 45}, Shape{1, 200'000}}) {
    const Case one(shape, 5, true);
    Floats p(one.p.size());
    const MatrixEnergy alone = multiply(one.matrix(), one.q, p);
    const Floats q = multiplied_transposed(one);
    Floats out(one.gradient.size()), split_out = out, rest = out;
    expand(one.p, one.q, shape.rows, out);
    split(one.matrix(), one.p, one.q, one.q, rest, split_out);
    for (const unsigned threads : {1u, 2u, 3u, 7u}) {
      Workers workers(threads);
      Floats other_p(p.size()), other_out(out.size()), other_split(out.size()), other_rest(rest.size());
      const MatrixEnergy found = multiply(one.matrix(), one.q, other_p, &workers);
      EXPECT_EQ(found.entered, alone.entered) << threads;
      EXPECT_EQ(found.dense, alone.dense) << threads;
      EXPECT_EQ(bits_of(other_p), bits_of(p)) << threads;
      EXPECT_EQ(bits_of(multiplied_transposed(one, &workers)), bits_of(q)) << threads;
      expand(one.p, one.q, shape.rows, other_out, &workers);
      split(one.matrix(), one.p, one.q, one.q, other_rest, other_split, &workers);
      EXPECT_EQ(bits_of(other_out), bits_of(out)) << threads;
      EXPECT_EQ(bits_of(other_rest), bits_of(rest)) << threads;
      EXPECT_EQ(bits_of(other_split), bits_of(split_out)) << threads;
    }
  }
}

TEST(Products, NumbersOfAnySizeWillDo) {
  for (const float scale : {0.0f, 1e-42f, 1e-38f, 1e-30f, 1e-19f, 1e18f}) {
    for (const Shape shape : {Shape{33, 65}, Shape{50, 801}}) {
      for (const bool with_residual : {false, true}) {
        const Case one(shape, 3, with_residual, 5, scale);
        Floats p(one.p.size());
        one.check_energy(multiply(one.matrix(), one.q, p));
        one.check_p(p);
        one.check_q(multiplied_transposed(one));
      }
    }
  }
}

TEST(Products, ConstantAndMixedNumbersWillDo) {
  Case one({90, 600}, 4, true);
  std::ranges::fill(one.gradient, 0.1f);
  std::ranges::fill(one.residual, 0.0f);
  std::ranges::fill(one.q, 0.3f);
  std::ranges::fill(one.p, 0.7f);
  one.check_p(multiplied(one));
  one.check_q(multiplied_transposed(one));
  // Blocks of huge numbers, of tiny ones, and zeros: each is measured as it needs.
  for (std::size_t at = 0; at < one.gradient.size(); ++at) {
    const std::size_t j = at % 600;
    one.gradient[at] = j < 512 ? (at < 12 * 600 ? 1e18f : 0.0f) : 1e-30f;
  }
  Floats p(one.p.size());
  one.check_energy(multiply(one.matrix(), one.q, p));
}

TEST(Products, SeeBadNumbersWhereverTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::nanf(""), 0x1p64f, -3e38f}) {
    for (const Shape shape : {Shape{1, 1}, Shape{7, 9}, Shape{33, 65}, Shape{25, 530}}) {
      for (const bool with_residual : {false, true}) {
        for (std::size_t at = 0; at < shape.rows * shape.columns; at += at % 97 + 1) {
          Case one(shape, 2, with_residual);
          Floats p(one.p.size());
          one.gradient[at] = bad;
          EXPECT_FALSE(multiply(one.matrix(), one.q, p).finite) << one.what() << bad << " at " << at;
          one.gradient[at] = 1;
          EXPECT_TRUE(multiply(one.matrix(), one.q, p).finite) << one.what() << at;
          if (!with_residual || std::isfinite(bad)) continue;
          one.residual[at] = bad;
          EXPECT_FALSE(multiply(one.matrix(), one.q, p).finite) << one.what() << bad << " in the residual";
        }
      }
    }
  }
}

// As in the fused pass: gradients below 2^64 are usable, and a residual may have grown beyond that.
TEST(Products, TakeTheLargestUsableNumbers) {
  Case one({3, 5}, 1, true);
  std::ranges::fill(one.gradient, std::nextafter(0x1p64f, 0.0f));
  std::ranges::fill(one.residual, 0x1p66f);
  Floats p(one.p.size());
  one.check_energy(multiply(one.matrix(), one.q, p));
  one.check_p(p);
}

// One iteration from random columns q finds a matrix whole if its rank is not above that of q; columns that
// are too many become zeros or noise, and do no harm.
TEST(Products, AMatrixOfLowRankArrivesWhole) {
  for (const std::size_t rank : {1u, 2u, 3u, 6u}) {
    for (const float scale : {1e-18f, 1.0f, 1e15f}) {
      const Shape shape = {70, 431};
      Case one(shape, rank, true, 8);
      const Case low(shape, 2, false, 9);
      for (std::size_t at = 0; at < one.gradient.size(); ++at) {
        one.gradient[at] = scale * low.expanded(at / shape.columns, at % shape.columns);
        one.residual[at] = 0.5f * one.gradient[at];
      }
      Floats out(one.gradient.size());
      std::vector<double> scratch;
      multiply(one.matrix(), one.q, one.p);
      orthonormalise(one.p, rank, scratch);
      multiply_transposed(one.matrix(), one.p, one.q);
      expand(one.p, one.q, shape.rows, out);
      double left = 0;
      for (std::size_t at = 0; at < out.size(); ++at) {
        left += std::pow(one.sum(at / shape.columns, at % shape.columns) - out[at], 2);
      }
      const double share = left / one.energy(true);
      if (rank == 1) {
        EXPECT_GT(share, 0.01) << scale;  // one column cannot do it
      } else {
        EXPECT_LT(share, 1e-10) << rank << " " << scale;
      }
    }
  }
}

TEST(Products, NoColumnsAreNoTrouble) {
  const ErrorFedMatrix empty = {.gradient = {}, .residual = {}, .rows = 1};
  Floats p = {3, 4}, nothing;
  const MatrixEnergy found = multiply(empty, {}, p);
  EXPECT_EQ(p, (Floats{0, 0}));
  EXPECT_EQ(found.dense, 0);
  EXPECT_TRUE(found.finite);
  multiply_transposed(empty, p, nothing);
  expand(p, {}, 1, nothing);
  split(empty, p, {}, {}, nothing, nothing);
}

}  // namespace
}  // namespace gravac
