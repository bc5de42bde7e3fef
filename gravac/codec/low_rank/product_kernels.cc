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

// Whether a tile's sum of squares in float can be trusted; squares of tiny numbers lose digits or vanish,
// those of huge ones overflow. If not, the tile is summed again in double.
inline bool trusted_sum(float sum) {
  return sum > 1e-24f && sum < 1e36f;
}

// The sum of squares of a part of a matrix whose rows begin `stride` entries apart.
inline double careful_energy(const float* values, std::size_t stride, std::size_t rows, std::size_t columns) {
  double sum = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const double value = values[i * stride + j];
      sum += value * value;
    }
  }
  return sum;
}

inline bool any_unusable(const float* values, std::size_t stride, std::size_t rows, std::size_t columns) {
  std::uint32_t greatest = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j)
      greatest = std::max(greatest, magnitude(values[i * stride + j]));
  }
  return greatest >= kHugeMagnitude;
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
// Matrices of at most so many entries are taken to lie in the second-level cache: 512 KiB with the residual.
constexpr std::size_t kInSecondLevelCache = std::size_t{1} << 16;

// How far apart the rows of a tile are: 3 vectors at a time are read, whatever the vectors' length.
constexpr std::size_t kTileStride = (kTileColumns + 3 * kMostLanes - 1) / (3 * kMostLanes) * (3 * kMostLanes);

// A part of the matrix, copied to where the first-level cache keeps it. Behind `columns` every row has zeros,
// up to a multiple of 3 vectors; behind `rows` there are rows of zeros, up to a multiple of 3.
struct Tile {
  alignas(64) float values[kTileRows * kTileStride];
  std::size_t row = 0, column = 0;  // where it begins
  std::size_t rows = 0, columns = 0;
  // The tile that is read after this one: where its gradient and residual begin, and how far apart its rows
  // are. Null if there is none, or no need to fetch it.
  const float *next_gradient = nullptr, *next_residual = nullptr;
  std::size_t stride = 0;

  const float* at(std::size_t i, std::size_t j) const { return values + i * kTileStride + j; }
};
static_assert(kTileRows % 3 == 0 && kTileColumns % kLine == 0);

// Fetches the part of the next tile at row i and column j into the second-level cache: done while this tile
// is multiplied, or memory would have nothing to do meanwhile. There is no room in the first-level cache, to
// which Highway's Prefetch fetches.
HWY_INLINE void FetchNext(const Tile& tile, std::size_t i, std::size_t j) {
  __builtin_prefetch(tile.next_gradient + i * tile.stride + j, 0, 2);
  __builtin_prefetch(tile.next_residual + i * tile.stride + j, 0, 2);
}

HWY_INLINE float Sum(VF lanes) {
  return hn::GetLane(hn::SumOfLanes(df, lanes));
}

// Measures a tile again, slowly, because the sums in float cannot be trusted.
HWY_NOINLINE void MeasureCarefully(const MatrixView& m, const Tile& tile, MatrixEnergy& energy) {
  const float* gradient = m.gradient + tile.row * m.columns + tile.column;
  const double dense = careful_energy(tile.values, kTileStride, tile.rows, tile.columns);
  energy.entered += careful_energy(gradient, m.columns, tile.rows, tile.columns);
  energy.dense += dense;
  if (!std::isfinite(dense) || any_unusable(gradient, m.columns, tile.rows, tile.columns))
    energy.finite = false;
}

// Reads a tile: the only time that the gradient and the residual are read. Adds its energies if kMeasure.
template <bool kAdd, bool kMeasure>
HWY_INLINE void LoadTile(const MatrixView& m, Tile& tile, MatrixEnergy& energy) {
  const std::size_t lanes = hn::Lanes(df);
  const std::size_t padded = (tile.columns + 3 * lanes - 1) / (3 * lanes) * (3 * lanes);
  VF entered = hn::Zero(df), dense0 = entered, dense1 = entered;
  float entered_rest = 0, dense_rest = 0;
  for (std::size_t i = 0; i < tile.rows; ++i) {
    const float* HWY_RESTRICT g = m.gradient + (tile.row + i) * m.columns + tile.column;
    const float* HWY_RESTRICT r = kAdd ? m.residual + (tile.row + i) * m.columns + tile.column : nullptr;
    float* HWY_RESTRICT to = tile.values + i * kTileStride;
    // What is read next: the next row of the tile, or the first row of the tile to the right. A row of a tile
    // is too short for the processor to fetch it ahead in time by itself.
    const bool last = i + 1 == tile.rows;
    const float* g_next =
        last ? m.gradient + tile.row * m.columns + tile.column + kTileColumns : g + m.columns;
    const float* r_next = kAdd ? m.residual + (g_next - m.gradient) : nullptr;
    std::size_t j = 0;
    const auto do_vector = [&](std::size_t at, VF& dense) HWY_ATTR {
      const VF entry = hn::LoadU(df, g + at);
      const VF x = kAdd ? hn::Add(entry, hn::LoadU(df, r + at)) : entry;
      if constexpr (kMeasure) dense = hn::MulAdd(x, x, dense);
      if constexpr (kMeasure && kAdd) entered = hn::MulAdd(entry, entry, entered);
      hn::Store(x, df, to + at);
    };
    for (; j + 2 * lanes <= tile.columns; j += 2 * lanes) {
      hwy::Prefetch(g_next + j);
      if constexpr (kAdd) hwy::Prefetch(r_next + j);
      do_vector(j, dense0);
      do_vector(j + lanes, dense1);
    }
    for (; j + lanes <= tile.columns; j += lanes) do_vector(j, dense0);
    for (; j < tile.columns; ++j) {
      to[j] = kAdd ? g[j] + r[j] : g[j];
      entered_rest += g[j] * g[j];
      dense_rest += to[j] * to[j];
    }
    std::fill(to + j, to + padded, 0.0f);
  }
  for (std::size_t i = tile.rows; i % 3 != 0; ++i) std::fill_n(tile.values + i * kTileStride, padded, 0.0f);
  if constexpr (!kMeasure) return;
  const float dense_sum = Sum(hn::Add(dense0, dense1)) + dense_rest;
  const float entered_sum = kAdd ? Sum(entered) + entered_rest : dense_sum;
  if (!trusted_sum(dense_sum) || !trusted_sum(entered_sum)) return MeasureCarefully(m, tile, energy);
  energy.dense += dense_sum;
  energy.entered += entered_sum;
}

// Notes which tile is read next.
HWY_INLINE void SetNext(const MatrixView& m, std::size_t row, std::size_t column, Tile& tile) {
  const bool is_in_cache = m.rows * m.columns <= kInSecondLevelCache;
  tile.next_gradient = is_in_cache || row >= m.rows ? nullptr : m.gradient + row * m.columns + column;
  tile.next_residual =
      m.residual && tile.next_gradient ? m.residual + row * m.columns + column : tile.next_gradient;
  tile.stride = m.columns;
}

// Calls visit(tile) for the tiles of the rows and columns given, row by row of tiles.
template <bool kMeasure, class Visit>
HWY_INLINE MatrixEnergy EachTile(const MatrixView& m, std::size_t first_row, std::size_t last_row,
                                 std::size_t first_column, std::size_t last_column, const Visit& visit) {
  MatrixEnergy energy;
  Tile tile;
  for (tile.row = first_row; tile.row < last_row; tile.row += kTileRows) {
    tile.rows = std::min(kTileRows, last_row - tile.row);
    for (tile.column = first_column; tile.column < last_column; tile.column += kTileColumns) {
      tile.columns = std::min(kTileColumns, last_column - tile.column);
      if (m.residual) {
        LoadTile<true, kMeasure>(m, tile, energy);
      } else {
        LoadTile<false, kMeasure>(m, tile, energy);
      }
      const std::size_t right = tile.column + kTileColumns;
      SetNext(m, right < last_column ? tile.row : tile.row + kTileRows,
              right < last_column ? right : first_column, tile);
      visit(tile);
    }
  }
  return energy;
}

// What lies in a tile's range of a column of q. The last vector, if it is not full, is a copy with zeros
// behind it.
struct Stretch {
  const float* values;
  alignas(64) float last[kMostLanes];

  void set(const float* q, std::size_t size, std::size_t lanes) {
    values = q;
    const std::size_t whole = size / lanes * lanes;
    std::fill_n(last, kMostLanes, 0.0f);
    std::copy(q + whole, q + size, last);
  }
};

// The products of 3 rows of the tile, from row `first` on, with kColumns stretches: the products with a
// stretch lie behind each other in sums[0..2]. Every product has one accumulator, whatever kColumns is: so a
// column of p does not depend on how many others there are.
template <std::size_t kColumns, bool kFetch>
HWY_INLINE void Multiply3Rows(const Tile& tile, std::size_t first, const Stretch* q,
                              float* HWY_RESTRICT sums) {
  const std::size_t lanes = hn::Lanes(df);
  const VF zero = hn::Zero(df);
  VF a0 = zero, a1 = zero, a2 = zero, b0 = zero, b1 = zero, b2 = zero;
  VF c0 = zero, c1 = zero, c2 = zero, d0 = zero, d1 = zero, d2 = zero;
  const auto do_vector = [&](std::size_t j, const float* qa, const float* qb, const float* qc,
                             const float* qd) HWY_ATTR {
    const float* row = tile.at(first, j);
    const VF x0 = hn::Load(df, row);
    const VF x1 = hn::Load(df, row + kTileStride);
    const VF x2 = hn::Load(df, row + 2 * kTileStride);
    const VF a = hn::LoadU(df, qa);
    a0 = hn::MulAdd(x0, a, a0);
    a1 = hn::MulAdd(x1, a, a1);
    a2 = hn::MulAdd(x2, a, a2);
    if constexpr (kColumns > 1) {
      const VF b = hn::LoadU(df, qb);
      b0 = hn::MulAdd(x0, b, b0);
      b1 = hn::MulAdd(x1, b, b1);
      b2 = hn::MulAdd(x2, b, b2);
    }
    if constexpr (kColumns > 2) {
      const VF c = hn::LoadU(df, qc);
      c0 = hn::MulAdd(x0, c, c0);
      c1 = hn::MulAdd(x1, c, c1);
      c2 = hn::MulAdd(x2, c, c2);
    }
    if constexpr (kColumns > 3) {
      const VF d = hn::LoadU(df, qd);
      d0 = hn::MulAdd(x0, d, d0);
      d1 = hn::MulAdd(x1, d, d1);
      d2 = hn::MulAdd(x2, d, d2);
    }
  };
  constexpr std::size_t k1 = kColumns > 1 ? 1 : 0, k2 = kColumns > 2 ? 2 : 0, k3 = kColumns > 3 ? 3 : 0;
  const float *qa = q[0].values, *qb = q[k1].values, *qc = q[k2].values, *qd = q[k3].values;
  std::size_t j = 0;
  if constexpr (kFetch) {
    for (; j + kLine <= tile.columns; j += kLine) {
      for (std::size_t i = first; i < first + 3; ++i) FetchNext(tile, i, j);
      for (std::size_t k = j; k < j + kLine; k += lanes) do_vector(k, qa + k, qb + k, qc + k, qd + k);
    }
  }
  for (; j + lanes <= tile.columns; j += lanes) do_vector(j, qa + j, qb + j, qc + j, qd + j);
  if (j < tile.columns) {
    do_vector(j, q[0].last, q[k1].last, q[k2].last, q[k3].last);
  }
  sums[0] = Sum(a0), sums[1] = Sum(a1), sums[2] = Sum(a2);
  if constexpr (kColumns > 1) sums[3] = Sum(b0), sums[4] = Sum(b1), sums[5] = Sum(b2);
  if constexpr (kColumns > 2) sums[6] = Sum(c0), sums[7] = Sum(c1), sums[8] = Sum(c2);
  if constexpr (kColumns > 3) sums[9] = Sum(d0), sums[10] = Sum(d1), sums[11] = Sum(d2);
}

// Columns [first, first + kColumns) of p, as far as this tile adds to them.
template <std::size_t kColumns>
HWY_INLINE void MultiplyTile(const MatrixView& m, const Tile& tile, const float* q, std::size_t first,
                             float* p) {
  Stretch stretches[kColumns];
  for (std::size_t c = 0; c < kColumns; ++c)
    stretches[c].set(q + (first + c) * m.columns + tile.column, tile.columns, hn::Lanes(df));
  for (std::size_t i = 0; i < tile.rows; i += 3) {
    float sums[3 * kColumns];
    if (first == 0 && tile.next_gradient) {
      Multiply3Rows<kColumns, true>(tile, i, stretches, sums);
    } else {
      Multiply3Rows<kColumns, false>(tile, i, stretches, sums);
    }
    const std::size_t rows = std::min<std::size_t>(3, tile.rows - i);
    for (std::size_t c = 0; c < kColumns; ++c) {
      float* HWY_RESTRICT to = p + (first + c) * m.rows + tile.row + i;
      for (std::size_t k = 0; k < rows; ++k)
        to[k] = tile.column == 0 ? sums[3 * c + k] : to[k] + sums[3 * c + k];
    }
  }
}

MatrixEnergy MultiplyRows(const MatrixView& m, const float* q, std::size_t rank, std::size_t begin,
                          std::size_t end, float* p) {
  return EachTile<true>(m, begin, end, 0, m.columns, [&](const Tile& tile) HWY_ATTR {
    std::size_t c = 0;
    for (; c + 4 <= rank; c += 4) MultiplyTile<4>(m, tile, q, c, p);
    if (rank - c == 3) MultiplyTile<3>(m, tile, q, c, p);
    if (rank - c == 2) MultiplyTile<2>(m, tile, q, c, p);
    if (rank - c == 1) MultiplyTile<1>(m, tile, q, c, p);
  });
}

// Adds 3 vectors of sums to what is there, which ends after n entries.
HWY_NOINLINE void AddFirstSums(VF s0, VF s1, VF s2, float* HWY_RESTRICT to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(df);
  float sums[3 * kMostLanes] = {};
  hn::StoreU(s0, df, sums);
  hn::StoreU(s1, df, sums + lanes);
  hn::StoreU(s2, df, sums + 2 * lanes);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(df, to + i), hn::LoadU(df, sums + i)), df, to + i);
  for (; i < n; ++i) to[i] += sums[i];
}

HWY_INLINE void AddSums(VF s0, VF s1, VF s2, float* HWY_RESTRICT to, std::size_t n) {
  const std::size_t lanes = hn::Lanes(df);
  if (n < 3 * lanes) return AddFirstSums(s0, s1, s2, to, n);
  hn::StoreU(hn::Add(hn::LoadU(df, to), s0), df, to);
  hn::StoreU(hn::Add(hn::LoadU(df, to + lanes), s1), df, to + lanes);
  hn::StoreU(hn::Add(hn::LoadU(df, to + 2 * lanes), s2), df, to + 2 * lanes);
}

// Columns [first, first + kColumns) of q, as far as this tile adds to them; 3 vectors of them at a time.
template <std::size_t kColumns, bool kFetch>
HWY_INLINE void MultiplyTransposed(const MatrixView& m, const Tile& tile, const float* p, std::size_t first,
                                   float* q) {
  const std::size_t lanes = hn::Lanes(df);
  const float* HWY_RESTRICT pa = p + first * m.rows + tile.row;
  const float *pb = pa + m.rows, *pc = pb + m.rows, *pd = pc + m.rows;
  float* to = q + first * m.columns + tile.column;
  const VF zero = hn::Zero(df);
  for (std::size_t j = 0; j < tile.columns; j += 3 * lanes) {
    VF a0 = zero, a1 = zero, a2 = zero, b0 = zero, b1 = zero, b2 = zero;
    VF c0 = zero, c1 = zero, c2 = zero, d0 = zero, d1 = zero, d2 = zero;
    for (std::size_t i = 0; i < tile.rows; ++i) {
      if constexpr (kFetch) {
        for (std::size_t k = j; k < j + 3 * lanes; k += kLine) FetchNext(tile, i, k);
      }
      const float* row = tile.at(i, j);
      const VF x0 = hn::Load(df, row), x1 = hn::Load(df, row + lanes), x2 = hn::Load(df, row + 2 * lanes);
      const VF a = hn::Set(df, pa[i]);
      a0 = hn::MulAdd(x0, a, a0);
      a1 = hn::MulAdd(x1, a, a1);
      a2 = hn::MulAdd(x2, a, a2);
      if constexpr (kColumns > 1) {
        const VF b = hn::Set(df, pb[i]);
        b0 = hn::MulAdd(x0, b, b0);
        b1 = hn::MulAdd(x1, b, b1);
        b2 = hn::MulAdd(x2, b, b2);
      }
      if constexpr (kColumns > 2) {
        const VF c = hn::Set(df, pc[i]);
        c0 = hn::MulAdd(x0, c, c0);
        c1 = hn::MulAdd(x1, c, c1);
        c2 = hn::MulAdd(x2, c, c2);
      }
      if constexpr (kColumns > 3) {
        const VF d = hn::Set(df, pd[i]);
        d0 = hn::MulAdd(x0, d, d0);
        d1 = hn::MulAdd(x1, d, d1);
        d2 = hn::MulAdd(x2, d, d2);
      }
    }
    const auto add = [&](std::size_t column, VF s0, VF s1, VF s2)
                         HWY_ATTR { AddSums(s0, s1, s2, to + column * m.columns + j, tile.columns - j); };
    add(0, a0, a1, a2);
    if constexpr (kColumns > 1) add(1, b0, b1, b2);
    if constexpr (kColumns > 2) add(2, c0, c1, c2);
    if constexpr (kColumns > 3) add(3, d0, d1, d2);
  }
}

template <bool kFetch>
HWY_INLINE void MultiplyTransposed(const MatrixView& m, const Tile& tile, const float* p, std::size_t columns,
                                   std::size_t first, float* q) {
  if (columns >= 4) return MultiplyTransposed<4, kFetch>(m, tile, p, first, q);
  if (columns == 3) return MultiplyTransposed<3, kFetch>(m, tile, p, first, q);
  if (columns == 2) return MultiplyTransposed<2, kFetch>(m, tile, p, first, q);
  MultiplyTransposed<1, kFetch>(m, tile, p, first, q);
}

void MultiplyColumns(const MatrixView& m, const float* p, std::size_t rank, std::size_t begin,
                     std::size_t end, float* q) {
  for (std::size_t c = 0; c < rank; ++c) std::fill(q + c * m.columns + begin, q + c * m.columns + end, 0.0f);
  EachTile<false>(m, 0, m.rows, begin, end, [&](const Tile& tile) HWY_ATTR {
    for (std::size_t c = 0; c < rank; c += 4) {
      if (c == 0 && tile.next_gradient) {
        MultiplyTransposed<true>(m, tile, p, rank - c, c, q);
      } else {
        MultiplyTransposed<false>(m, tile, p, rank - c, c, q);
      }
    }
  });
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
// part of q stays in the second-level cache. Longer stretches than tiles have, because rows are read and
// written in place here: the processor is better at that the longer it goes on.
template <class Store, class StoreOne>
HWY_INLINE void Expand(const LowRank& low, std::size_t begin, std::size_t end, const Store& store,
                       const StoreOne& store_one) {
  constexpr std::size_t kStretch = 3 * kTileColumns;
  for (std::size_t row = begin; row < end; row += kTileRows) {
    const std::size_t stop = std::min(row + kTileRows, end);
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

void SubtractRows(const MatrixView& m, const LowRank& low, std::size_t begin, std::size_t end, float* rest) {
  const float* g = m.gradient;
  const float* r = m.residual;
  if (r) {
    Expand(
        low, begin, end,
        [&](std::size_t at, VF sums) HWY_ATTR {
          const VF x = hn::Add(hn::LoadU(df, g + at), hn::LoadU(df, r + at));
          hn::StoreU(hn::Sub(x, sums), df, rest + at);
        },
        [&](std::size_t at, float sum) { rest[at] = (g[at] + r[at]) - sum; });
  } else {
    Expand(
        low, begin, end,
        [&](std::size_t at, VF sums)
            HWY_ATTR { hn::StoreU(hn::Sub(hn::LoadU(df, g + at), sums), df, rest + at); },
        [&](std::size_t at, float sum) { rest[at] = g[at] - sum; });
  }
}

}  // namespace gravac::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gravac {

HWY_EXPORT(MultiplyRows);
HWY_EXPORT(MultiplyColumns);
HWY_EXPORT(ExpandRows);
HWY_EXPORT(SubtractRows);

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

void subtract_rows(const MatrixView& matrix, const LowRank& low, std::size_t begin, std::size_t end,
                   float* rest) {
  HWY_DYNAMIC_DISPATCH(SubtractRows)(matrix, low, begin, end, rest);
}

}  // namespace gravac
#endif
