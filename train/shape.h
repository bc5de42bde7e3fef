#pragma once

#include <cstdint>

namespace gravac::train {

// What a data set holds and a model is made for.
struct Shape {
  enum class Kind { images, tokens };
  Kind kind = Kind::images;
  std::int64_t channels = 3, height = 32, width = 32;  // of images
  std::int64_t window = 0;                             // tokens in a sample of text
  std::int64_t classes = 10;                           // labels, or words known
};

}  // namespace gravac::train
