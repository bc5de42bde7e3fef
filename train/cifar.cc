#include "gravac/util/require.h"
#include "train/data_sets.h"
#include "train/files.h"

namespace gravac::train {

namespace {

constexpr std::size_t kPixels = 3 * 32 * 32;

// How the records of CIFAR-10 or CIFAR-100 are laid out. CIFAR-100 has two label bytes,
// the coarse one first; we train on the last one, the fine label.
struct Format {
  std::string folder;  // that the official archive unpacks to
  std::size_t label_bytes;
  int classes;
};

// Appends all records of one file to `images`. A record is the label bytes followed by the
// red, green and blue planes.
void add_records(const std::string& dir, const std::string& name, const Format& format, Images& images) {
  const std::string path = find_file(dir, {name, format.folder + "/" + name});
  const std::vector<std::uint8_t> bytes = read_file(path);
  const std::size_t record = format.label_bytes + kPixels;
  require(!bytes.empty() && bytes.size() % record == 0, "data: ", path, ": expected a multiple of ", record,
          " bytes, got ", bytes.size());
  for (std::size_t begin = 0; begin < bytes.size(); begin += record) {
    const std::size_t pixels = begin + format.label_bytes;
    const int label = bytes[pixels - 1];
    require(label < format.classes, "data: ", path, ": label at byte ", pixels - 1, " must be from 0 to ",
            format.classes - 1, ", got ", label);
    images.labels.push_back(label);
    const auto* first = bytes.data() + pixels;
    images.pixels.insert(images.pixels.end(), first, first + kPixels);
  }
}

ImageSet empty_set(int classes) {
  ImageSet set{.shape = {.classes = classes}, .augment = true};
  set.train.pixels.reserve(50'000 * kPixels);
  return set;
}

}  // namespace

ImageSet read_cifar10(const DataOptions& options) {
  ImageSet set = empty_set(10);
  const Format format{"cifar-10-batches-bin", 1, 10};
  for (const char* part : {"1", "2", "3", "4", "5"})
    add_records(options.dir, std::string("data_batch_") + part + ".bin", format, set.train);
  add_records(options.dir, "test_batch.bin", format, set.test);
  return set;
}

ImageSet read_cifar100(const DataOptions& options) {
  ImageSet set = empty_set(100);
  const Format format{"cifar-100-binary", 2, 100};
  add_records(options.dir, "train.bin", format, set.train);
  add_records(options.dir, "test.bin", format, set.test);
  return set;
}

}  // namespace gravac::train
