#pragma once

#include <cstddef>

#include "gravac/util/layout.h"

namespace gravac {

// Between factors, in which policies think, and ranks, in which PowerSGD does. All matrices of a gradient
// have the same rank: with ranks of their own at equal volume, small layers would starve.

// Whether two factors of `rank` columns are less than the matrix itself. If not, it travels whole, as vectors
// do.
bool compresses(std::size_t rows, std::size_t columns, std::size_t rank);

// How many numbers a rank sends if matrices have rank `rank`.
std::size_t numbers_at(const Layout& layout, std::size_t rank);

// The highest rank at which no more than entries / factor numbers are sent; at least 1, and at most the
// highest one that still compresses some matrix. Takes a few passes over the segments.
std::size_t rank_for(const Layout& layout, double factor);

// The factor of a rank: entries / numbers_at(rank), for which rank_for() gives the rank again. 1 if there is
// nothing to compress.
double factor_of(const Layout& layout, std::size_t rank);

}  // namespace gravac
