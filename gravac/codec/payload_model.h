#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "gravac/wire/values.h"

namespace gravac {

// What a compressor sends at which factor, for predictions. The factor is the common currency of policies:
// f times fewer numbers than dense, a number being worth 32 bits.
struct PayloadModel {
  // How many numbers a rank sends if it is asked for a factor. Methods have limits: a quantiser cannot send
  // less than a bit for each entry, whatever the factor.
  std::function<double(double factor)> numbers;
  std::function<double(double numbers)> bytes;  // of a rank's payloads, headers included
  std::function<double(double numbers)> summed_bytes = [](double n) { return 4 * n; };  // by Route::shared
  std::function<double(double numbers)> decoded;  // entries that a receiver decodes in them
  bool fixed_bytes = false;  // all ranks know the length of payloads, so that it need not be told
  double sums = 2;           // numbers in the sums of a reduce-scatter for each number in a rank's share
  // Payloads can be added up, by this many all-reduces one after the other; 0: they cannot.
  double all_reduces = 0;
  bool only_summed = false;  // there is no other way for them
  // The type of payloads that can be added up where the comm can do so: all_reduces is then 1.
  std::optional<Values> halves;
};

}  // namespace gravac
