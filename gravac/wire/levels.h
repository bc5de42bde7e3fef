#pragma once

// What codes of a few bits mean, in units of the scale of their run.

namespace gravac::quantise {

// Codes of equal steps count from -steps_of(bits) to steps_of(bits).
constexpr unsigned steps_of(unsigned bits) {
  return (1u << (bits - 1)) - 1;
}

// Levels of few bits, fitted to a Gaussian (Lloyd and Max) and scaled to integers: of magnitudes 0.4528 and
// 1.5104, and 0.2451, 0.7560, 1.3439 and 2.1520, if the root mean square is 1.
inline constexpr float kLevels2[] = {3, 10}, kLevels3[] = {14, 43, 77, 123};

}  // namespace gravac::quantise
