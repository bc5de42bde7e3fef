#pragma once

// The loops behind products.h, in the vector instructions that the processor has, which are chosen at run
// time. They take ranges of rows or columns, so that threads can share a product.

#include <cstddef>

namespace gravac {

// A matrix is read in blocks of this shape. A block, and what it is multiplied with, are small enough for the
// second-level cache, and many layers are a multiple of 512 wide. Ranges of columns begin at multiples of
// kBlockColumns: then the answer does not depend on the ranges.
inline constexpr std::size_t kBlockRows = 48;
inline constexpr std::size_t kBlockColumns = 512;

// gradient + residual, row by row.
struct MatrixView {
  const float* gradient = nullptr;
  const float* residual = nullptr;  // null: zeros
  std::size_t rows = 0, columns = 0;
};

// The energies (sums of squares) of some entries of a matrix, to a relative error of at most some 1e-5.
struct MatrixEnergy {
  double entered = 0;  // of the gradient
  double dense = 0;    // of gradient + residual
  bool finite = true;  // every gradient is below kHugeMagnitude, and every sum is a number
};

// Rows [begin, end) of p = matrix * q, and the energies of these rows.
MatrixEnergy multiply_rows(const MatrixView& matrix, const float* q, std::size_t rank, std::size_t begin,
                           std::size_t end, float* p);

// Rows [begin, end) of q = transposed matrix * p: those that belong to the matrix' columns [begin, end).
void multiply_columns(const MatrixView& matrix, const float* p, std::size_t rank, std::size_t begin,
                      std::size_t end, float* q);

// p * transposed q, a matrix of rank `rank`.
struct LowRank {
  const float* p = nullptr;  // `rank` columns of `rows` entries each, one behind the other
  const float* q = nullptr;  // `rank` columns of `columns` entries each
  std::size_t rank = 0, rows = 0, columns = 0;
};

// Rows [begin, end) of out = p * transposed q.
void expand_rows(const LowRank& low, std::size_t begin, std::size_t end, float* out);

// Rows [begin, end) of rest = matrix - mine, and of out = mine.p * transposed mean_q. `rest` may be the
// matrix' residual, and `out` its gradient.
void split_rows(const MatrixView& matrix, const LowRank& mine, const float* mean_q, std::size_t begin,
                std::size_t end, float* rest, float* out);

}  // namespace gravac
