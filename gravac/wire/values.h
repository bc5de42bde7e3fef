#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gravac {

// The type in which a value is stored or sent. int8 and int4 are for the wire only: they stand for values of
// which 128 share a scale. The numbers are part of the wire format.
enum class Values : std::uint8_t { fp32 = 0, fp16 = 1, bf16 = 2, int8 = 3, int4 = 4 };

inline constexpr Values kEveryValues[] = {Values::fp32, Values::fp16, Values::bf16, Values::int8,
                                          Values::int4};

std::string_view to_string(Values values);
Values values_from_string(std::string_view name);  // throws Error for an unknown name

// How the positions of chosen entries are sent: in the shortest form there is, or as 64-bit integers, which
// is how the paper's implementation and many others send them.
enum class Positions { coded, int64 };

std::string_view to_string(Positions positions);

// Whether gradients can be stored in the type.
bool can_store(Values values);

// How many bytes `count` values take in a message, scales included.
std::size_t bytes_of(Values values, std::size_t count);

}  // namespace gravac
