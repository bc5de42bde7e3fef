#include "gravac/codec/low_rank/product_kernels.h"

#include <algorithm>
#include <cmath>

#include "gravac/util/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gravac/codec/low_rank/product_kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

// This file is compiled with -ffp-contract=off: what is written as a product and a sum stays two operations,
// and gives the same bits on every processor. Where fused operations may be used, MulAdd says so.

#ifndef GRAVAC_PRODUCT_KERNELS_ONCE
#define GRAVAC_PRODUCT_KERNELS_ONCE
namespace gravac {

// Whether a sum of squares in float can be trusted; squares of tiny numbers lose digits or vanish, those of
// huge ones overflow. If not, that part of the matrix is summed again in double.
inline bool trusted_sum(float sum) {
  return sum > 1e-24f && sum < 1e36f;
}

// The energies of the columns [first, last) of some rows, slowly.
inline MatrixEnergy careful_energy(const MatrixView& m, std::size_t row, std::size_t rows, std::size_t first,
                                   std::size_t last) {
  MatrixEnergy energy;
  std::uint32_t greatest = 0;
  for (std::size_t i = row; i < row + rows; ++i) {
    for (std::size_t j = first; j < last; ++j) {
      const float entered = m.gradient[i * m.columns + j];
      const double dense = m.residual ? entered + m.residual[i * m.columns + j] : entered;
      energy.entered += static_cast<double>(entered) * static_cast<double>(entered);
      energy.dense += dense * dense;
      greatest = std::max(greatest, magnitude(entered));
    }
  }
  energy.finite = std::isfinite(energy.dense) && greatest < kHugeMagnitude;
  return energy;
}

}  // namespace gravac
#endif

HWY_BEFORE_NAMESPACE();
namespace gravac::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr DF df;
constexpr std::size_t kMostLanes = 16;
constexpr std::size_t kLine = 16;  // entries of a cache line

// A matrix is worked on in blocks of so many rows and kBlockColumns columns, which the second-level cache
// keeps. Within a block, 3 rows at a time are multiplied with up to kGroup columns of a factor, of which the
// first-level cache keeps a copy: columns of factors are often a multiple of 4096 bytes apart, and it has
// room for few of those.
constexpr std::size_t kGroup = 16;

HWY_INLINE float Sum(VF lanes) {
  return hn::GetLane(hn::SumOfLanes(df, lanes));
}

// Fetches what lies `rows` rows below a piece of a row. Rows are long, and a block has but a piece of each,
// too short for the processor to fetch it ahead in time by itself.
template <bool kAdd>
HWY_INLINE void FetchBelow(const MatrixView& m, std::size_t at, std::size_t rows) {
  hwy::Prefetch(m.gradient + at + rows * m.columns);
  if constexpr (kAdd) hwy::Prefetch(m.residual + at + rows * m.columns);
}

// A vector of the matrix: gradient + residual.
template <bool kAdd>
HWY_INLINE VF LoadSum(const MatrixView& m, std::size_t at) {
  const VF gradient = hn::LoadU(df, m.gradient + at);
  return kAdd ? hn::Add(gradient, hn::LoadU(df, m.residual + at)) : gradient;
}

// The same for the last `n` entries of a row, fewer than a vector. Zeros behind them.
struct RowEnd {
  alignas(64) float gradient[kMostLanes] = {};
  alignas(64) float sum[kMostLanes] = {};

  RowEnd(const MatrixView& m, std::size_t at, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) {
      gradient[k] = m.gradient[at + k];
      sum[k] = m.residual ? gradient[k] + m.residual[at + k] : gradient[k];
    }
  }
};

// Up to kGroup columns of q, rows [first, last) of them: in groups of 4 columns, in which the vectors that
// belong to the same rows lie together. Zeros where there are no more rows or columns.
struct PackedColumns {
  alignas(64) float values[kGroup * kBlockColumns];
  std::size_t quads = 0, stride = 0;  // groups of 4 columns, and how far they are apart

  void set(const float* q, std::size_t columns, std::size_t length, std::size_t first, std::size_t last) {
    const std::size_t lanes = hn::Lanes(df);
    quads = (columns + 3) / 4;
    stride = (last - first + lanes - 1) / lanes * lanes * 4;
    if (columns % 4 != 0 || (last - first) % lanes != 0) std::fill_n(values, quads * stride, 0.0f);
    for (std::size_t c = 0; c < columns; ++c) {
      float* to = values + c / 4 * stride + c % 4 * lanes;
      const float* from = q + c * length;
      std::size_t j = first;
      for (; j + lanes <= last; j += lanes, to += 4 * lanes) hn::Store(hn::LoadU(df, from + j), df, to);
      std::copy_n(from + j, last - j, to);
    }
  }
  const float* quad(std::size_t i) const { return values + i * stride; }

  // For sums of that shape: zeros; and adds them to q, or replaces it if there is nothing yet.
  void clear(std::size_t columns, std::size_t length) {
    const std::size_t lanes = hn::Lanes(df);
    quads = (columns + 3) / 4;
    stride = (length + lanes - 1) / lanes * lanes * 4;
    std::fill_n(values, quads * stride, 0.0f);
  }
  void add_to(float* q, std::size_t columns, std::size_t length, std::size_t first, std::size_t last,
              bool nothing_yet) const {
    const std::size_t lanes = hn::Lanes(df);
    for (std::size_t c = 0; c < columns; ++c) {
      const float* from = values + c / 4 * stride + c % 4 * lanes;
      float* to = q + c * length;
      if (nothing_yet) std::fill(to + first, to + last, 0.0f);
      std::size_t j = first;
      for (; j + lanes <= last; j += lanes, from += 4 * lanes)
        hn::StoreU(hn::Add(hn::LoadU(df, to + j), hn::Load(df, from)), df, to + j);
      for (std::size_t k = 0; j + k < last; ++k) to[j + k] += from[k];
    }
  }
};

// The products of `kRows` rows, from row i on, in the columns [first, last), with 4 columns of q: those with
// column c are sums[kRows * c] and those behind it. Every product has one accumulator. Also adds the energies
// of this part if kMeasure.
template <std::size_t kRows, bool kAdd, bool kMeasure>
HWY_INLINE void MultiplyPart(const MatrixView& m, std::size_t i, std::size_t first, std::size_t last,
                             const float* HWY_RESTRICT q, float* HWY_RESTRICT sums, MatrixEnergy& energy) {
  static_assert(kRows == 1 || kRows == 3);
  const std::size_t lanes = hn::Lanes(df), next = kRows > 1 ? m.columns : 0;
  const VF zero = hn::Zero(df);
  VF a0 = zero, a1 = zero, a2 = zero, b0 = zero, b1 = zero, b2 = zero;
  VF c0 = zero, c1 = zero, c2 = zero, d0 = zero, d1 = zero, d2 = zero;
  VF entered0 = zero, entered1 = zero, dense0 = zero, dense1 = zero;
  const auto multiply = [&](VF x0, VF x1, VF x2) HWY_ATTR {
    const VF a = hn::Load(df, q), b = hn::Load(df, q + lanes);
    a0 = hn::MulAdd(x0, a, a0);
    b0 = hn::MulAdd(x0, b, b0);
    if constexpr (kRows > 1) a1 = hn::MulAdd(x1, a, a1), a2 = hn::MulAdd(x2, a, a2);
    if constexpr (kRows > 1) b1 = hn::MulAdd(x1, b, b1), b2 = hn::MulAdd(x2, b, b2);
    const VF c = hn::Load(df, q + 2 * lanes), d = hn::Load(df, q + 3 * lanes);
    c0 = hn::MulAdd(x0, c, c0);
    d0 = hn::MulAdd(x0, d, d0);
    if constexpr (kRows > 1) c1 = hn::MulAdd(x1, c, c1), c2 = hn::MulAdd(x2, c, c2);
    if constexpr (kRows > 1) d1 = hn::MulAdd(x1, d, d1), d2 = hn::MulAdd(x2, d, d2);
    q += 4 * lanes;
  };
  const auto measure = [&](VF gradient, VF x, VF& entered, VF& dense) HWY_ATTR {
    if constexpr (kMeasure) dense = hn::MulAdd(x, x, dense);
    if constexpr (kMeasure && kAdd) entered = hn::MulAdd(gradient, gradient, entered);
  };
  std::size_t j = first, at = i * m.columns + first;
  for (; j + lanes <= last; j += lanes, at += lanes) {
    if (kMeasure && j % kLine == 0) {
      for (std::size_t row = kRows; row < 2 * kRows; ++row) FetchBelow<kAdd>(m, at, row);
    }
    const VF x0 = LoadSum<kAdd>(m, at), x1 = LoadSum<kAdd>(m, at + next),
             x2 = LoadSum<kAdd>(m, at + 2 * next);
    measure(hn::LoadU(df, m.gradient + at), x0, entered0, dense0);
    if constexpr (kRows > 1) {
      measure(hn::LoadU(df, m.gradient + at + next), x1, entered1, dense1);
      measure(hn::LoadU(df, m.gradient + at + 2 * next), x2, entered0, dense0);
    }
    multiply(x0, x1, x2);
  }
  if (j < last) {
    const RowEnd end0(m, at, last - j), end1(m, at + next, last - j), end2(m, at + 2 * next, last - j);
    const VF x0 = hn::Load(df, end0.sum), x1 = hn::Load(df, end1.sum), x2 = hn::Load(df, end2.sum);
    measure(hn::Load(df, end0.gradient), x0, entered0, dense0);
    if constexpr (kRows > 1) {
      measure(hn::Load(df, end1.gradient), x1, entered1, dense1);
      measure(hn::Load(df, end2.gradient), x2, entered0, dense0);
    }
    multiply(x0, x1, x2);
  }
  sums[0] = Sum(a0), sums[kRows] = Sum(b0), sums[2 * kRows] = Sum(c0), sums[3 * kRows] = Sum(d0);
  if constexpr (kRows > 1) {
    sums[1] = Sum(a1), sums[2] = Sum(a2), sums[4] = Sum(b1), sums[5] = Sum(b2);
    sums[7] = Sum(c1), sums[8] = Sum(c2), sums[10] = Sum(d1), sums[11] = Sum(d2);
  }
  if constexpr (!kMeasure) return;
  const float dense = Sum(hn::Add(dense0, dense1)), entered = kAdd ? Sum(hn::Add(entered0, entered1)) : dense;
  MatrixEnergy found{.entered = entered, .dense = dense};
  if (!trusted_sum(dense) || !trusted_sum(entered)) found = careful_energy(m, i, kRows, first, last);
  energy.entered += found.entered;
  energy.dense += found.dense;
  energy.finite &= found.finite;
}

// Those rows of p, `columns` columns of it, as far as this part of the matrix adds to them.
template <std::size_t kRows, bool kAdd, bool kMeasure>
HWY_INLINE void MultiplyGroup(const MatrixView& m, std::size_t i, std::size_t first, std::size_t last,
                              const PackedColumns& q, std::size_t columns, float* p, MatrixEnergy& energy) {
  for (std::size_t quad = 0; quad < q.quads; ++quad) {
    float sums[4 * kRows];
    if (kMeasure && quad == 0) {
      MultiplyPart<kRows, kAdd, true>(m, i, first, last, q.quad(quad), sums, energy);
    } else {
      MultiplyPart<kRows, kAdd, false>(m, i, first, last, q.quad(quad), sums, energy);
    }
    for (std::size_t c = 0; c < std::min<std::size_t>(4, columns - 4 * quad); ++c) {
      float* HWY_RESTRICT to = p + (4 * quad + c) * m.rows + i;
      for (std::size_t k = 0; k < kRows; ++k)
        to[k] = first == 0 ? sums[kRows * c + k] : to[k] + sums[kRows * c + k];
    }
  }
}

template <bool kAdd, bool kMeasure>
HWY_INLINE void MultiplyBlock(const MatrixView& m, std::size_t begin, std::size_t end, std::size_t first,
                              std::size_t last, const PackedColumns& q, std::size_t columns, float* p,
                              MatrixEnergy& energy) {
  std::size_t i = begin;
  for (; i + 3 <= end; i += 3) MultiplyGroup<3, kAdd, kMeasure>(m, i, first, last, q, columns, p, energy);
  for (; i < end; ++i) MultiplyGroup<1, kAdd, kMeasure>(m, i, first, last, q, columns, p, energy);
}

template <bool kAdd>
HWY_INLINE MatrixEnergy Multiply(const MatrixView& m, const float* q, std::size_t rank, std::size_t begin,
                                 std::size_t end, float* p) {
  MatrixEnergy energy;
  PackedColumns packed;
  for (std::size_t row = begin; row < end; row += kBlockRows) {
    const std::size_t stop = std::min(row + kBlockRows, end);
    for (std::size_t first = 0; first < m.columns; first += kBlockColumns) {
      const std::size_t last = std::min(first + kBlockColumns, m.columns);
      for (std::size_t c = 0; c < rank; c += kGroup) {
        const std::size_t columns = std::min(kGroup, rank - c);
        packed.set(q + c * m.columns, columns, m.columns, first, last);
        float* to = p + c * m.rows;
        if (c == 0) {
          MultiplyBlock<kAdd, true>(m, row, stop, first, last, packed, columns, to, energy);
        } else {
          MultiplyBlock<kAdd, false>(m, row, stop, first, last, packed, columns, to, energy);
        }
      }
    }
  }
  return energy;
}

MatrixEnergy MultiplyRows(const MatrixView& m, const float* q, std::size_t rank, std::size_t begin,
                          std::size_t end, float* p) {
  return m.residual ? Multiply<true>(m, q, rank, begin, end, p) : Multiply<false>(m, q, rank, begin, end, p);
}

// Adds to 4 columns of q what `kRows` rows of the matrix, from row i on, give in its columns [first, last).
// The 4 columns' vectors lie together in `sums`, as PackedColumns has them.
template <std::size_t kRows, bool kAdd, bool kFetch>
HWY_INLINE void MultiplyTransposedPart(const MatrixView& m, std::size_t i, std::size_t first,
                                       std::size_t last, const float* p, std::size_t columns,
                                       float* HWY_RESTRICT sums) {
  static_assert(kRows == 1 || kRows == 3);
  const std::size_t lanes = hn::Lanes(df), next = kRows > 1 ? m.columns : 0, below = kRows > 1 ? 1 : 0;
  const auto factor = [&](std::size_t column, std::size_t row) HWY_ATTR {
    return column < columns ? hn::Set(df, p[column * m.rows + i + row]) : hn::Zero(df);
  };
  const VF a0 = factor(0, 0), a1 = factor(0, below), a2 = factor(0, 2 * below);
  const VF b0 = factor(1, 0), b1 = factor(1, below), b2 = factor(1, 2 * below);
  const VF c0 = factor(2, 0), c1 = factor(2, below), c2 = factor(2, 2 * below);
  const VF d0 = factor(3, 0), d1 = factor(3, below), d2 = factor(3, 2 * below);
  const auto add = [&](VF x0, VF x1, VF x2, VF p0, VF p1, VF p2) HWY_ATTR {
    VF sum = hn::MulAdd(x0, p0, hn::Load(df, sums));
    if constexpr (kRows > 1) sum = hn::MulAdd(x2, p2, hn::MulAdd(x1, p1, sum));
    hn::Store(sum, df, sums);
    sums += lanes;
  };
  const auto multiply = [&](VF x0, VF x1, VF x2) HWY_ATTR {
    add(x0, x1, x2, a0, a1, a2);
    add(x0, x1, x2, b0, b1, b2);
    add(x0, x1, x2, c0, c1, c2);
    add(x0, x1, x2, d0, d1, d2);
  };
  std::size_t j = first, at = i * m.columns + first;
  for (; j + lanes <= last; j += lanes, at += lanes) {
    if (kFetch && j % kLine == 0) {
      for (std::size_t row = kRows; row < 2 * kRows; ++row) FetchBelow<kAdd>(m, at, row);
    }
    multiply(LoadSum<kAdd>(m, at), LoadSum<kAdd>(m, at + next), LoadSum<kAdd>(m, at + 2 * next));
  }
  if (j < last) {
    const RowEnd end0(m, at, last - j), end1(m, at + next, last - j), end2(m, at + 2 * next, last - j);
    multiply(hn::Load(df, end0.sum), hn::Load(df, end1.sum), hn::Load(df, end2.sum));
  }
}

template <std::size_t kRows, bool kAdd>
HWY_INLINE void MultiplyTransposedGroup(const MatrixView& m, std::size_t i, std::size_t first,
                                        std::size_t last, const float* p, std::size_t columns,
                                        PackedColumns& sums) {
  for (std::size_t c = 0; c < columns; c += 4) {
    float* to = sums.values + c / 4 * sums.stride;
    if (c == 0) {
      MultiplyTransposedPart<kRows, kAdd, true>(m, i, first, last, p, columns, to);
    } else {
      MultiplyTransposedPart<kRows, kAdd, false>(m, i, first, last, p + c * m.rows, columns - c, to);
    }
  }
}

// Rows are added up in blocks of kBlockRows, and then the blocks.
template <bool kAdd>
HWY_INLINE void MultiplyTransposed(const MatrixView& m, const float* p, std::size_t rank, std::size_t begin,
                                   std::size_t end, float* q) {
  PackedColumns sums;
  for (std::size_t row = 0; row < m.rows; row += kBlockRows) {
    const std::size_t stop = std::min(row + kBlockRows, m.rows);
    for (std::size_t first = begin; first < end; first += kBlockColumns) {
      const std::size_t last = std::min(first + kBlockColumns, end);
      for (std::size_t c = 0; c < rank; c += kGroup) {
        const std::size_t columns = std::min(kGroup, rank - c);
        sums.clear(columns, last - first);
        std::size_t i = row;
        for (; i + 3 <= stop; i += 3)
          MultiplyTransposedGroup<3, kAdd>(m, i, first, last, p + c * m.rows, columns, sums);
        for (; i < stop; ++i)
          MultiplyTransposedGroup<1, kAdd>(m, i, first, last, p + c * m.rows, columns, sums);
        sums.add_to(q + c * m.columns, columns, m.columns, first, last, row == 0);
      }
    }
  }
}

void MultiplyColumns(const MatrixView& m, const float* p, std::size_t rank, std::size_t begin,
                     std::size_t end, float* q) {
  if (m.residual) return MultiplyTransposed<true>(m, p, rank, begin, end, q);
  MultiplyTransposed<false>(m, p, rank, begin, end, q);
}

// Computes `kRows` rows of p * transposed q, from row i on, in the columns [first, last). Every entry is the
// sum over ascending columns of p and q, each product rounded before it is added: the same bits everywhere.
// Calls store(index, vector) and store_one(index, value) with them; `index` is their place in the matrix.
template <std::size_t kRows, class Store, class StoreOne>
HWY_INLINE void ExpandPart(const LowRank& low, std::size_t i, std::size_t first, std::size_t last,
                           const Store& store, const StoreOne& store_one) {
  static_assert(kRows <= 3);
  const std::size_t lanes = hn::Lanes(df);
  const VF zero = hn::Zero(df);
  std::size_t j = first;
  for (; j + 3 * lanes <= last; j += 3 * lanes) {
    VF a0 = zero, a1 = zero, a2 = zero, b0 = zero, b1 = zero, b2 = zero, c0 = zero, c1 = zero, c2 = zero;
    for (std::size_t column = 0; column < low.rank; ++column) {
      const float* p = low.p + column * low.rows + i;
      const float* q = low.q + column * low.columns + j;
      const VF q0 = hn::LoadU(df, q), q1 = hn::LoadU(df, q + lanes), q2 = hn::LoadU(df, q + 2 * lanes);
      const VF a = hn::Set(df, p[0]);
      a0 = hn::Add(a0, hn::Mul(a, q0));
      a1 = hn::Add(a1, hn::Mul(a, q1));
      a2 = hn::Add(a2, hn::Mul(a, q2));
      if constexpr (kRows > 1) {
        const VF b = hn::Set(df, p[1]);
        b0 = hn::Add(b0, hn::Mul(b, q0));
        b1 = hn::Add(b1, hn::Mul(b, q1));
        b2 = hn::Add(b2, hn::Mul(b, q2));
      }
      if constexpr (kRows > 2) {
        const VF c = hn::Set(df, p[2]);
        c0 = hn::Add(c0, hn::Mul(c, q0));
        c1 = hn::Add(c1, hn::Mul(c, q1));
        c2 = hn::Add(c2, hn::Mul(c, q2));
      }
    }
    const auto store_row = [&](std::size_t row, VF s0, VF s1, VF s2) HWY_ATTR {
      const std::size_t at = row * low.columns + j;
      store(at, s0);
      store(at + lanes, s1);
      store(at + 2 * lanes, s2);
    };
    store_row(i, a0, a1, a2);
    if constexpr (kRows > 1) store_row(i + 1, b0, b1, b2);
    if constexpr (kRows > 2) store_row(i + 2, c0, c1, c2);
  }
  for (std::size_t row = i; row < i + kRows; ++row) {
    std::size_t k = j;
    for (; k + lanes <= last; k += lanes) {
      VF sum = zero;
      for (std::size_t column = 0; column < low.rank; ++column) {
        const VF a = hn::Set(df, low.p[column * low.rows + row]);
        sum = hn::Add(sum, hn::Mul(a, hn::LoadU(df, low.q + column * low.columns + k)));
      }
      store(row * low.columns + k, sum);
    }
    for (; k < last; ++k) {
      float sum = 0;
      for (std::size_t column = 0; column < low.rank; ++column)
        sum += low.p[column * low.rows + row] * low.q[column * low.columns + k];
      store_one(row * low.columns + k, sum);
    }
  }
}

// The same for the rows [begin, end). It takes some rows and a stretch of columns at a time, so that this
// part of q stays in the second-level cache. Longer stretches than blocks have, because rows are read and
// written in place here: the processor is better at that the longer it goes on.
template <class Store, class StoreOne>
HWY_INLINE void Expand(const LowRank& low, std::size_t begin, std::size_t end, const Store& store,
                       const StoreOne& store_one) {
  constexpr std::size_t kStretch = 3 * kBlockColumns;
  for (std::size_t row = begin; row < end; row += kBlockRows) {
    const std::size_t stop = std::min(row + kBlockRows, end);
    for (std::size_t first = 0; first < low.columns; first += kStretch) {
      const std::size_t last = std::min(first + kStretch, low.columns);
      std::size_t i = row;
      for (; i + 3 <= stop; i += 3) ExpandPart<3>(low, i, first, last, store, store_one);
      if (stop - i == 2) ExpandPart<2>(low, i, first, last, store, store_one);
      if (stop - i == 1) ExpandPart<1>(low, i, first, last, store, store_one);
    }
  }
}

void ExpandRows(const LowRank& low, std::size_t begin, std::size_t end, float* out) {
  Expand(
      low, begin, end, [&](std::size_t at, VF sums) HWY_ATTR { hn::StoreU(sums, df, out + at); },
      [&](std::size_t at, float sum) { out[at] = sum; });
}

// Some rows of q and of mean q, in which the columns' vectors for 3 vectors of the matrix lie together, as
// the first-level cache wants them (see PackedColumns).
struct PackedFactors {
  static constexpr std::size_t kRoom = 7680;
  alignas(64) float values[kRoom];

  // For how many columns of the matrix there is room, in steps of 3 vectors; 0 if the rank is too high.
  static std::size_t room(std::size_t rank) {
    const std::size_t width = 3 * hn::Lanes(df);
    return kRoom / (2 * rank) / width * width;
  }

  // Columns [first, last) of the matrix, in steps of 3 vectors. Zeros where there are no more.
  void set(const LowRank& mine, const float* mean_q, std::size_t first, std::size_t last) {
    const std::size_t width = 3 * hn::Lanes(df);
    float* to = values;
    for (std::size_t j = first; j < last; j += width) {
      const std::size_t size = std::min(width, last - j);
      for (std::size_t column = 0; column < mine.rank; ++column) {
        for (const float* q : {mine.q, mean_q}) {
          std::copy_n(q + column * mine.columns + j, size, to);
          std::fill(to + size, to + width, 0.0f);
          to += width;
        }
      }
    }
  }
};

// One entry of both results, where there is no room for a vector.
template <bool kAdd>
HWY_INLINE void SplitOne(const MatrixView& m, std::size_t at, float sent, float mean, float* rest,
                         float* out) {
  rest[at] = (kAdd ? m.gradient[at] + m.residual[at] : m.gradient[at]) - sent;
  out[at] = mean;
}

// `kRows` rows, from row i on, of both results in the columns [first, last). Sums are made as ExpandPart
// makes them. Every entry is read before it is written: the results may lie where the matrix does.
template <std::size_t kRows, bool kAdd>
HWY_INLINE void SplitPart(const MatrixView& m, const LowRank& mine, const PackedFactors& packed,
                          std::size_t i, std::size_t first, std::size_t last, float* rest, float* out) {
  static_assert(kRows <= 2);
  const std::size_t lanes = hn::Lanes(df);
  const VF zero = hn::Zero(df);
  const float* g = m.gradient;
  const float* r = m.residual;
  const auto store = [&](std::size_t at, VF sent, VF mean) HWY_ATTR {
    const VF entry = hn::LoadU(df, g + at);
    const VF x = kAdd ? hn::Add(entry, hn::LoadU(df, r + at)) : entry;
    hn::StoreU(hn::Sub(x, sent), df, rest + at);
    hn::StoreU(mean, df, out + at);
  };
  const float* q = packed.values;
  for (std::size_t j = first; j < last; j += 3 * lanes) {
    const std::size_t at = i * m.columns + j, below = at + m.columns;
    for (std::size_t line = 0; line < 3 * lanes; line += kLine) {
      for (std::size_t row = kRows; row < 2 * kRows; ++row) {
        hwy::Prefetch(g + at + row * m.columns + line);
        if constexpr (kAdd) hwy::Prefetch(r + at + row * m.columns + line);
      }
    }
    VF a0 = zero, a1 = zero, a2 = zero, b0 = zero, b1 = zero, b2 = zero;
    VF c0 = zero, c1 = zero, c2 = zero, d0 = zero, d1 = zero, d2 = zero;
    for (std::size_t column = 0; column < mine.rank; ++column) {
      const float* p = mine.p + column * mine.rows + i;
      const VF u = hn::Set(df, p[0]), v = hn::Set(df, p[kRows - 1]);
      const auto add = [&](VF& to_a, VF& to_b) HWY_ATTR {
        const VF x = hn::Load(df, q);
        to_a = hn::Add(to_a, hn::Mul(u, x));
        if constexpr (kRows > 1) to_b = hn::Add(to_b, hn::Mul(v, x));
        q += lanes;
      };
      add(a0, b0), add(a1, b1), add(a2, b2);
      add(c0, d0), add(c1, d1), add(c2, d2);
    }
    if (j + 3 * lanes <= last) {
      store(at, a0, c0), store(at + lanes, a1, c1), store(at + 2 * lanes, a2, c2);
      if constexpr (kRows > 1) {
        store(below, b0, d0), store(below + lanes, b1, d1), store(below + 2 * lanes, b2, d2);
      }
      continue;
    }
    alignas(64) float sums[12 * kMostLanes];
    std::size_t k = 0;
    const auto keep = [&](VF x) HWY_ATTR { hn::Store(x, df, sums + lanes * k++); };
    keep(a0), keep(a1), keep(a2), keep(c0), keep(c1), keep(c2);
    keep(b0), keep(b1), keep(b2), keep(d0), keep(d1), keep(d2);
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t c = 0; c < last - j; ++c) {
        const float* both = sums + 6 * lanes * row + c;
        SplitOne<kAdd>(m, at + row * m.columns + c, both[0], both[3 * lanes], rest, out);
      }
    }
  }
}

template <bool kAdd>
HWY_INLINE void Split(const MatrixView& m, const LowRank& mine, const float* mean_q, std::size_t begin,
                      std::size_t end, float* rest, float* out) {
  const std::size_t stretch = PackedFactors::room(mine.rank);
  PackedFactors packed;
  for (std::size_t row = begin; row < end; row += kBlockRows) {
    const std::size_t stop = std::min(row + kBlockRows, end);
    for (std::size_t first = 0; first < m.columns; first += stretch) {
      const std::size_t last = std::min(first + stretch, m.columns);
      packed.set(mine, mean_q, first, last);
      std::size_t i = row;
      for (; i + 2 <= stop; i += 2) SplitPart<2, kAdd>(m, mine, packed, i, first, last, rest, out);
      if (i < stop) SplitPart<1, kAdd>(m, mine, packed, i, first, last, rest, out);
    }
  }
}

// The same for a rank that is too high to pack, one result after the other.
HWY_NOINLINE void SplitInTwo(const MatrixView& m, const LowRank& mine, const float* mean_q, std::size_t begin,
                             std::size_t end, float* rest, float* out) {
  const float* g = m.gradient;
  const float* r = m.residual;
  Expand(
      mine, begin, end,
      [&](std::size_t at, VF sums) HWY_ATTR {
        const VF x = hn::LoadU(df, g + at);
        hn::StoreU(hn::Sub(r ? hn::Add(x, hn::LoadU(df, r + at)) : x, sums), df, rest + at);
      },
      [&](std::size_t at, float sum) { rest[at] = (r ? g[at] + r[at] : g[at]) - sum; });
  ExpandRows({mine.p, mean_q, mine.rank, mine.rows, mine.columns}, begin, end, out);
}

void SplitRows(const MatrixView& m, const LowRank& mine, const float* mean_q, std::size_t begin,
               std::size_t end, float* rest, float* out) {
  if (PackedFactors::room(mine.rank) == 0) return SplitInTwo(m, mine, mean_q, begin, end, rest, out);
  if (m.residual) return Split<true>(m, mine, mean_q, begin, end, rest, out);
  Split<false>(m, mine, mean_q, begin, end, rest, out);
}

}  // namespace gravac::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gravac {

HWY_EXPORT(MultiplyRows);
HWY_EXPORT(MultiplyColumns);
HWY_EXPORT(ExpandRows);
HWY_EXPORT(SplitRows);

MatrixEnergy multiply_rows(const MatrixView& matrix, const float* q, std::size_t rank, std::size_t begin,
                           std::size_t end, float* p) {
  return HWY_DYNAMIC_DISPATCH(MultiplyRows)(matrix, q, rank, begin, end, p);
}

void multiply_columns(const MatrixView& matrix, const float* p, std::size_t rank, std::size_t begin,
                      std::size_t end, float* q) {
  HWY_DYNAMIC_DISPATCH(MultiplyColumns)(matrix, p, rank, begin, end, q);
}

void expand_rows(const LowRank& low, std::size_t begin, std::size_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(ExpandRows)(low, begin, end, out);
}

void split_rows(const MatrixView& matrix, const LowRank& mine, const float* mean_q, std::size_t begin,
                std::size_t end, float* rest, float* out) {
  HWY_DYNAMIC_DISPATCH(SplitRows)(matrix, mine, mean_q, begin, end, rest, out);
}

}  // namespace gravac
#endif
