#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "train/data_sets.h"
#include "train/shape.h"

namespace gravac::train {

// What a model is given at once.
//   images: input float [b, channels, height, width], each channel normalised; target int64 [b]
//   tokens: input int64 [b, window]; target int64 [b * window], the token after each
struct Batch {
  torch::Tensor input, target;
};

// A data set in memory, in two parts: one to train on and one to test on. Never
// changes, so that threads may share it. Samples out of range throw Error.
class Data {
 public:
  virtual ~Data() = default;
  virtual const Shape& shape() const = 0;
  virtual std::size_t train_size() const = 0;  // samples
  virtual std::size_t test_size() const = 0;

  // The label of each training sample; empty for text.
  virtual std::span<const std::int64_t> labels() const = 0;

  // Training samples in the order given. How a sample is augmented is a pure
  // function of the seed, `draw` and the sample, whatever batch it is in.
  virtual Batch train(std::span<const std::size_t> samples, std::uint64_t draw) const = 0;

  // Test samples [begin, end), never augmented.
  virtual Batch test(std::size_t begin, std::size_t end) const = 0;
};

// A line of the table of data sets, data_sets.def.
struct DataInfo {
  std::string_view name;
  std::string_view description;  // one sentence
  Shape::Kind kind;
  bool needs_dir;  // read from files in DataOptions::dir
  std::unique_ptr<Data> (*make)(std::string_view name, const DataOptions& options);
};

std::span<const DataInfo> data_sets();

// The data set called `name`. Throws Error that lists the known names, or that names a file
// and says what is wrong with it.
std::unique_ptr<Data> make_data(std::string_view name, const DataOptions& options);

}  // namespace gravac::train
