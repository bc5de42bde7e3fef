#pragma once

#include <cstdint>

namespace gravac::train {

// The shape of a data set's samples, for which a model is built.
struct Shape {
  enum class Kind { images, tokens };
  Kind kind = Kind::images;
  std::int64_t channels = 3, height = 32, width = 32;  // of images
  std::int64_t window = 0;                             // tokens in a sample of text
  std::int64_t classes = 10;                           // number of labels, or of words in the vocabulary
};

}  // namespace gravac::train
