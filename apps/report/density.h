#pragma once

#include <map>
#include <span>
#include <vector>

namespace gravac::report {

// How often each value occurred.
using Counts = std::map<double, double>;

// The density of the counted values at the places `at`, by a Gaussian kernel of standard deviation
// `bandwidth`: its integral is 1. Zero everywhere if nothing was counted.
std::vector<double> density(const Counts& counts, std::span<const double> at, double bandwidth);

// Places around all counted values, `spacing` apart, from `margin` below the lowest to `margin` above the
// highest.
std::vector<double> places_around(const Counts& counts, double margin, double spacing);

}  // namespace gravac::report
