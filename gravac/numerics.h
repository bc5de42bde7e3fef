#pragma once

namespace gravac {

// Rises with every change after which engines return other bits for the same gradients. Recorded runs carry
// it, so that no table mixes results of two kinds of arithmetic, and ranks compare it before the first step.
// numerics_test.cc notices a change. 5: the start lasts while steps overshoot; new rates. 6: `progress`
// seldom leaves a compressor that it has chosen.
inline constexpr int kNumerics = 6;

}  // namespace gravac
