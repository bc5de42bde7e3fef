#include <iomanip>

#include "gravac/util/require.h"
#include "train/data_sets.h"
#include "train/files.h"

namespace gravac::train {

namespace {

// A file in the idx format: a magic number and one size per dimension, each 4 bytes big-endian, then
// the data, one unsigned byte per value.
struct IdxFile {
  std::string path;
  std::vector<std::uint8_t> bytes;

  std::uint32_t word(std::size_t at) const {
    return std::uint32_t{bytes[at]} << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
  }
};

// Reads the file `name` in `dir`. Throws Error unless its header says unsigned bytes with this number
// of dimensions.
IdxFile read_idx(const std::string& dir, const std::string& name, unsigned dimensions) {
  const std::string path = find_file(dir, {name});
  IdxFile file{path, read_file(path)};
  const std::size_t header = 4 + 4 * dimensions;
  require(file.bytes.size() >= header, "data: ", path, ": ", file.bytes.size(), " bytes found, a header of ",
          header, " expected");
  const std::uint32_t magic = 0x800 + dimensions;  // 8 stands for unsigned bytes
  require(file.word(0) == magic, "data: ", path, ": magic number 0x", std::hex, file.word(0),
          " at byte 0, 0x", magic, " expected");
  return file;
}

// Reads the images and labels of one part ("train" or "t10k"), and sets height and width of `shape`.
// At 256 x 256, data.cc can still sum the squares of a plane in 32 bits.
Images read_part(const std::string& dir, const std::string& part, Shape& shape) {
  const IdxFile images = read_idx(dir, part + "-images-idx3-ubyte", 3);
  const IdxFile labels = read_idx(dir, part + "-labels-idx1-ubyte", 1);
  const std::size_t count = images.word(4), height = images.word(8), width = images.word(12);
  require(count > 0 && height > 0 && width > 0 && height <= 256 && width <= 256, "data: ", images.path,
          ": header announces ", count, " images of ", height, " x ", width,
          ", at least 1 image of at most 256 x 256 expected");
  require(images.bytes.size() - 16 == count * height * width, "data: ", images.path, ": ",
          images.bytes.size(), " bytes found, ", 16 + count * height * width, " expected for ", count,
          " images of ", height, " x ", width);
  require(labels.word(4) == count, "data: ", labels.path, ": header announces ", labels.word(4), " labels, ",
          count, " expected, one for each image");
  require(labels.bytes.size() - 8 == count, "data: ", labels.path, ": ", labels.bytes.size(),
          " bytes found, ", 8 + count, " expected for ", count, " labels");
  for (std::size_t i = 8; i < labels.bytes.size(); ++i)
    require(labels.bytes[i] < shape.classes, "data: ", labels.path, ": label ", int{labels.bytes[i]},
            " at byte ", i, ", 0 to ", shape.classes - 1, " expected");
  shape.height = static_cast<std::int64_t>(height);
  shape.width = static_cast<std::int64_t>(width);
  return {{images.bytes.begin() + 16, images.bytes.end()}, {labels.bytes.begin() + 8, labels.bytes.end()}};
}

}  // namespace

ImageSet read_mnist(const DataOptions& options) {
  const std::string& dir = options.dir;
  ImageSet set{.shape = {.channels = 1, .classes = 10}};
  set.train = read_part(dir, "train", set.shape);
  Shape test_shape = set.shape;
  set.test = read_part(dir, "t10k", test_shape);
  require(test_shape.height == set.shape.height && test_shape.width == set.shape.width, "data: ", dir,
          ": training images are ", set.shape.height, " x ", set.shape.width, " and test images ",
          test_shape.height, " x ", test_shape.width, ", one size expected");
  return set;
}

}  // namespace gravac::train
