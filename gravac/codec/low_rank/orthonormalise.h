#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gravac {

// Makes `rank` columns, which lie one behind the other, orthonormal: the first keeps its direction, each
// further one what is left of it at right angles to those before. Returns how many columns are not zero.
//
// A column that is zero or depends on those before it (of which less than 1e-6 is left: that much is rounding
// errors) becomes zeros, and so does one with infinities or NaN. There is no way back from zeros: who
// multiplies with these columns again should put something else in their place.
//
// The first s columns do not depend on the others. The same numbers give the same bits on every processor.
// Numbers of any size will do, denormal ones too. `scratch` is memory that the caller keeps from call to
// call. Costs some 4 operations in double for each pair of columns and row; bench/low_rank.cc measures it.
std::size_t orthonormalise(std::span<float> columns, std::size_t rank, std::vector<double>& scratch);

}  // namespace gravac
