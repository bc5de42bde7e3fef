#pragma once

// The data sets one by one, as bytes and numbers: what data.cc makes batches of.

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
  bool augment = false;  // whether shifted and mirrored images are as good as the given ones
};

struct TokenSet {
  std::vector<std::int32_t> train, test;
  std::int64_t words = 0;  // tokens are below this
};

// CIFAR's binary files in `dir`; 10 or 100 classes. https://www.cs.toronto.edu/~kriz/cifar.html
ImageSet read_cifar(const std::string& dir, int classes);

// Files in the idx format of MNIST.
ImageSet read_mnist(const std::string& dir);

// Ten kinds of shapes, drawn. 8000 to train on, 2000 to test on, labels in turn.
ImageSet draw_images(std::uint64_t seed);

// Words between blanks, as the Penn Treebank comes; each end of line is a word, <eos>.
TokenSet read_words(const std::string& dir);

// Bytes of a file; the last tenth is to test on.
TokenSet read_text(const std::string& path);

// Made-up text over 1000 words: 200,000 tokens to train on, 20,000 to test on.
TokenSet write_corpus(std::uint64_t seed);

}  // namespace gravac::train
