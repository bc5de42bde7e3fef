#pragma once

#include <cstdint>
#include <string_view>

namespace gravac {

// The type in which a value is stored or sent. The numbers are part of the wire format.
enum class Values : std::uint8_t { fp32 = 0, fp16 = 1, bf16 = 2 };

std::string_view to_string(Values values);
Values values_from_string(std::string_view name);  // throws Error for an unknown name

}  // namespace gravac
