#pragma once

// Readers and generators of the single data sets. They return pixels as bytes and text as
// token numbers; data.cc turns those into batches of tensors.

#include <cstdint>
#include <string>
#include <vector>

#include "train/shape.h"

namespace gravac::train {

// The training part or the test part of an image data set. Pixels are stored image by
// image, within an image channel by channel, and within a channel row by row.
struct Images {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
};

struct ImageSet {
  Shape shape;
  Images train, test;
  bool augment = false;  // shifting and mirroring keep the label true, so training may do so
};

struct TokenSet {
  std::vector<std::int32_t> train, test;
  std::int64_t words = 0;  // size of the vocabulary: tokens are 0 to words - 1
};

struct DataOptions {
  std::string dir;           // where the files are; for text, also a file
  std::int64_t window = 35;  // tokens in a sample of text
  bool augment = true;       // CIFAR: crops padded by 4, mirror images
  std::uint64_t seed = 0;    // of augmentation and of synthetic data: ranks must pass the same
};

// The functions of data_sets.def, one per data set.
#define IMAGE_DATA(name, function, source, description) ImageSet function(const DataOptions& options);
#define TEXT_DATA(name, function, source, description) TokenSet function(const DataOptions& options);
#include "train/data_sets.def"
#undef IMAGE_DATA
#undef TEXT_DATA

}  // namespace gravac::train
