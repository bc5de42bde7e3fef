#pragma once

#include <cstddef>

#include "gravac/util/layout.h"

namespace gravac {

// What a rank costs and what rank a factor affords. There is one rank for all matrices of a gradient: a rank
// for each, by its size, would starve the small ones. Matrices are segments with more than one row and more
// than one column; at rank r a matrix of a rows and b columns travels as r (a + b) numbers. All other
// segments travel dense, and so do matrices for which that would be no fewer.
//
// Ranks are 1 or more. Each function takes time in proportion to the number of segments.

// Whether the segment travels as a matrix of this rank.
bool travels_as_low_rank(const Segment& segment, std::size_t rank);

// How many numbers a gradient is sent as, dense segments included.
std::size_t numbers_sent(const Layout& layout, std::size_t rank);

// The highest rank at which some matrix is still sent as fewer numbers than it has entries; 1 if there is
// none.
std::size_t highest_rank(const Layout& layout);

// The highest rank at which at most entries / factor numbers are sent; 1 if even that sends more, and at most
// highest_rank(). Undoes factor_of(). Throws Error unless factor is a finite number >= 1.
std::size_t rank_for(const Layout& layout, double factor);

// entries / numbers_sent(): how many times fewer numbers are sent than the gradient has entries. 1 for no
// entries.
double factor_of(const Layout& layout, std::size_t rank);

}  // namespace gravac
