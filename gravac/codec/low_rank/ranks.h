#pragma once

#include <cstddef>

#include "gravac/util/layout.h"
#include "gravac/wire/values.h"

namespace gravac {

// Between factors, in which policies think, and ranks, in which PowerSGD does. All matrices of a gradient
// have the same rank: with ranks of their own at equal volume, small layers would starve.
//
// A factor counts bits, scales included: a number is worth 32 of them. So at a factor of 20 `values` of 4
// bits leave room for nearly eight times the rank that floats have.

// How many bytes two factors of `rank` columns take.
std::size_t bytes_of_factors(std::size_t rows, std::size_t columns, std::size_t rank, Values values);

// Whether these are fewer than the bytes of the matrix itself. If not, it travels whole, as vectors do.
bool compresses(std::size_t rows, std::size_t columns, std::size_t rank, Values values = Values::fp32);

// How many numbers of 32 bits a rank sends if matrices have rank `rank`. Never falls as the rank rises.
double numbers_at(const Layout& layout, std::size_t rank, Values values = Values::fp32);

// The highest rank at which no more than entries / factor numbers are sent; at least 1, and at most the
// highest one that still compresses some matrix. Takes a few passes over the segments.
std::size_t rank_for(const Layout& layout, double factor, Values values = Values::fp32);

// The factor of a rank: entries / numbers_at(rank), for which rank_for() gives the rank again. 1 for an empty
// layout.
double factor_of(const Layout& layout, std::size_t rank, Values values = Values::fp32);

}  // namespace gravac
