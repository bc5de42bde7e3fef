#pragma once

// The data sets as bytes and numbers, from which data.cc makes batches.

#include <cstdint>
#include <string>
#include <vector>

#include "train/shape.h"

namespace gravac::train {

// One part of a set of images: for each its channels, plane by plane, row by row.
struct Images {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
};

struct ImageSet {
  Shape shape;
  Images train, test;
  bool augment = false;  // whether training may shift and mirror the images
};

struct TokenSet {
  std::vector<std::int32_t> train, test;
  std::int64_t words = 0;  // tokens are below this
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
