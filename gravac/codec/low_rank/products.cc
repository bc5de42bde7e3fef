#include "gravac/codec/low_rank/products.h"

#include <algorithm>
#include <cassert>

namespace gravac {
namespace {

// Rows are cut into at most so many ranges, however many threads there are: so energies are always added up
// in the same order.
constexpr std::size_t kRanges = 64;

// A product with fewer entries than this is over before a second thread has woken up.
constexpr std::size_t kWorthThreads = std::size_t{1} << 17;

std::size_t ceiling(std::size_t size, std::size_t step) {
  return (size + step - 1) / step;
}

// Calls work(number, begin, end) for the ranges into which [0, size) is cut: at most `ranges`, beginning at
// multiples of `step`. `entries` says whether threads are worth it.
template <class Work>
void each_range(std::size_t size, std::size_t step, std::size_t ranges, std::size_t entries, Workers* workers,
                const Work& work) {
  const std::size_t length = step * ceiling(ceiling(size, step), ranges);
  const std::size_t threads = workers && entries >= kWorthThreads ? workers->size() : 1;
  const auto share = [&](unsigned worker) noexcept {
    for (std::size_t i = worker; i * length < size; i += threads)
      work(i, i * length, std::min((i + 1) * length, size));
  };
  if (threads == 1) return share(0);
  workers->run(share);
}

template <class Work>
void each_range_of_rows(const MatrixView& matrix, Workers* workers, const Work& work) {
  each_range(matrix.rows, kBlockRows, kRanges, matrix.rows * matrix.columns, workers, work);
}

MatrixView view_of(const ErrorFedMatrix& matrix) {
  assert(matrix.rows >= 1 && matrix.gradient.size() % matrix.rows == 0);
  assert(matrix.residual.empty() || matrix.residual.size() == matrix.gradient.size());
  return {matrix.gradient.data(), matrix.residual.empty() ? nullptr : matrix.residual.data(), matrix.rows,
          matrix.columns()};
}

// How many columns p has, and q, too.
std::size_t rank_of(std::span<const float> p, std::size_t rows, [[maybe_unused]] std::span<const float> q,
                    [[maybe_unused]] std::size_t columns) {
  const std::size_t rank = p.size() / rows;
  assert(p.size() == rank * rows && q.size() == rank * columns);
  return rank;
}

}  // namespace

MatrixEnergy multiply(const ErrorFedMatrix& matrix, std::span<const float> q, std::span<float> p,
                      Workers* workers) {
  const MatrixView view = view_of(matrix);
  const std::size_t rank = rank_of(p, view.rows, q, view.columns);
  if (view.columns == 0) {
    std::ranges::fill(p, 0.0f);
    return {};
  }
  MatrixEnergy found[kRanges];
  each_range_of_rows(view, workers, [&](std::size_t i, std::size_t begin, std::size_t end) {
    found[i] = multiply_rows(view, q.data(), rank, begin, end, p.data());
  });
  MatrixEnergy all;
  for (const MatrixEnergy& one : found) {
    all.entered += one.entered;
    all.dense += one.dense;
    all.finite &= one.finite;
  }
  return all;
}

void multiply_transposed(const ErrorFedMatrix& matrix, std::span<const float> p, std::span<float> q,
                         Workers* workers) {
  const MatrixView view = view_of(matrix);
  const std::size_t rank = rank_of(p, view.rows, q, view.columns);
  const std::size_t ranges = workers ? workers->size() : 1;
  each_range(view.columns, kBlockColumns, ranges, matrix.gradient.size(), workers,
             [&](std::size_t, std::size_t begin, std::size_t end) {
               multiply_columns(view, p.data(), rank, begin, end, q.data());
             });
}

void expand(std::span<const float> p, std::span<const float> q, std::size_t rows, std::span<float> out,
            Workers* workers) {
  const MatrixView shape = view_of({.gradient = out, .residual = {}, .rows = rows});
  const LowRank low = {p.data(), q.data(), rank_of(p, rows, q, shape.columns), rows, shape.columns};
  each_range_of_rows(shape, workers, [&](std::size_t, std::size_t begin, std::size_t end) {
    expand_rows(low, begin, end, out.data());
  });
}

void split(const ErrorFedMatrix& matrix, std::span<const float> p, std::span<const float> q,
           std::span<const float> mean_q, std::span<float> rest, std::span<float> out, Workers* workers) {
  const MatrixView view = view_of(matrix);
  assert(rest.size() == matrix.gradient.size() && out.size() == rest.size() && mean_q.size() == q.size());
  const LowRank mine = {p.data(), q.data(), rank_of(p, view.rows, q, view.columns), view.rows, view.columns};
  each_range_of_rows(view, workers, [&](std::size_t, std::size_t begin, std::size_t end) {
    split_rows(view, mine, mean_q.data(), begin, end, rest.data(), out.data());
  });
}

}  // namespace gravac
