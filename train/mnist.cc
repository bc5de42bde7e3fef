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
  require(file.bytes.size() >= header, "data: ", path, ": expected a header of ", header, " bytes, got ",
          file.bytes.size());
  const std::uint32_t magic = 0x800 + dimensions;  // 8 stands for unsigned bytes
  require(file.word(0) == magic, "data: ", path, ": expected magic number 0x", std::hex, magic,
          " at byte 0, got 0x", file.word(0));
  return file;
}

// Reads the images and labels of one part ("train" or "t10k"), and sets height and width of `shape`.
// At 256 x 256, data.cc can still sum the squares of a plane in 32 bits.
Images read_part(const std::string& dir, const std::string& part, Shape& shape) {
  const IdxFile images = read_idx(dir, part + "-images-idx3-ubyte", 3);
  const IdxFile labels = read_idx(dir, part + "-labels-idx1-ubyte", 1);
  const std::size_t count = images.word(4), height = images.word(8), width = images.word(12);
  require(count > 0 && height > 0 && width > 0 && height <= 256 && width <= 256, "data: ", images.path,
          ": expected at least 1 image of at most 256 x 256, but the header announces ", count, " images of ",
          height, " x ", width);
  require(images.bytes.size() - 16 == count * height * width, "data: ", images.path, ": expected ",
          16 + count * height * width, " bytes for ", count, " images of ", height, " x ", width, ", got ",
          images.bytes.size());
  require(labels.word(4) == count, "data: ", labels.path, ": expected ", count,
          " labels, one for each image, but the header announces ", labels.word(4));
  require(labels.bytes.size() - 8 == count, "data: ", labels.path, ": expected ", 8 + count, " bytes for ",
          count, " labels, got ", labels.bytes.size());
  for (std::size_t i = 8; i < labels.bytes.size(); ++i)
    require(labels.bytes[i] < shape.classes, "data: ", labels.path, ": label at byte ", i,
            " must be from 0 to ", shape.classes - 1, ", got ", int{labels.bytes[i]});
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
          ": training and test images must have the same size, got ", set.shape.height, " x ",
          set.shape.width, " and ", test_shape.height, " x ", test_shape.width);
  return set;
}

}  // namespace gravac::train
