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

// The read_ functions throw Error that names the file, what was found and what was expected.

// Reads CIFAR-10 or CIFAR-100, by `classes`, from the binary files in `dir`. The format:
// https://www.cs.toronto.edu/~kriz/cifar.html
ImageSet read_cifar(const std::string& dir, int classes);

// Reads MNIST, or another data set in its idx format such as Fashion-MNIST, from `dir`.
ImageSet read_mnist(const std::string& dir);

// Draws images of ten shapes, one class each: 8000 to train on and 2000 to test on. Labels
// run 0 to 9 over and over. Equal seeds give equal images.
ImageSet draw_images(std::uint64_t seed);

// Reads text whose tokens are words separated by blanks, such as the Penn Treebank. Every
// end of line becomes the token <eos>; a test word that the training file does not have
// becomes <unk>.
TokenSet read_words(const std::string& dir);

// Reads a file (or input.txt in a folder) whose tokens are bytes. Its last tenth is the
// test part.
TokenSet read_text(const std::string& path);

// Generates text over 1000 made-up words: 200,000 tokens to train on, 20,000 to test on.
// Equal seeds give equal text.
TokenSet write_corpus(std::uint64_t seed);

}  // namespace gravac::train
