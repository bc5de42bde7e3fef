#pragma once

#include <cstddef>
#include <span>

#include "gravac/codec/low_rank/product_kernels.h"
#include "gravac/util/workers.h"

namespace gravac {

// The products of low-rank compression (PowerSGD). A matrix M of a rows and b columns is sent as p, of a
// rows, and q, of b rows, which have `rank` columns each:
//
//   multiply             p = M q             ranks add up their p and make it orthonormal
//   multiply_transposed  q = M' p            ranks add up their q
//   expand               out = p q'          what arrives
//   split                rest = M - p q'     what is kept back, and the same out, of the mean of q
//
// p and q lie column behind column, so that their first s columns are a prefix of them; these do not depend
// on the other columns, to the bit. The rank is as many columns as p and q have room for; any rank from 1 on
// will do. None of the functions allocates memory. With workers, large matrices are shared among them; the
// answer is the same for any number of them.
//
// All of this is bound by memory: each product reads the matrix once, whatever the rank, and
// bench/low_rank.cc compares the speed with a BLAS. M itself is gradient + residual, added as they are read:
// the residual changes in split() only, and so a step that turns out bad has nothing to undo.
struct ErrorFedMatrix {
  std::span<const float> gradient;  // row by row
  std::span<const float> residual;  // as long; or empty, which stands for zeros
  std::size_t rows = 1;

  std::size_t columns() const { return gradient.size() / rows; }
};

// p = M q, and what was seen of M on the way. If `finite` is false, p must not be used. The sums are rounded
// as vector instructions have it, which differs between processors; errors are some 1e-6 of |row of M|
// |column of q|.
MatrixEnergy multiply(const ErrorFedMatrix& matrix, std::span<const float> q, std::span<float> p,
                      Workers* workers = nullptr);

// q = M' p, with errors of the same size. Workers share the columns, kBlockColumns at a time: narrow matrices
// keep few of them busy.
void multiply_transposed(const ErrorFedMatrix& matrix, std::span<const float> p, std::span<float> q,
                         Workers* workers = nullptr);

// out = p q', a matrix of `rows` rows. Products are added in the order of the columns and rounded one by one:
// ranks that have the same p and q get the same bits, on any processor.
void expand(std::span<const float> p, std::span<const float> q, std::size_t rows, std::span<float> out,
            Workers* workers = nullptr);

// rest = M - p q' and out = p mean_q', where both products have the bits of expand(): in one pass, which
// reads and writes less than two. `rest` may be the matrix' residual, and `out` its gradient.
void split(const ErrorFedMatrix& matrix, std::span<const float> p, std::span<const float> q,
           std::span<const float> mean_q, std::span<float> rest, std::span<float> out,
           Workers* workers = nullptr);

}  // namespace gravac
