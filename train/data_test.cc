#include "train/data.h"

#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "gravac/table_testing.h"
#include "gravac/util/names.h"
#include "gravac/util/require.h"
#include "train/data_sets.h"

namespace gravac::train {
namespace {

using Bytes = std::string;
using Samples = std::vector<std::size_t>;

// Gives each test a new folder, which is deleted when the test ends.
class DataFiles : public ::testing::Test {
 protected:
  DataFiles() {
    std::string pattern = ::testing::TempDir() + "gravac_data_XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~DataFiles() override { std::filesystem::remove_all(dir_); }

  std::string path(const std::string& name) const { return dir_ + "/" + name; }

  void write(const std::string& name, const Bytes& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  void remove(const std::string& name) const { std::filesystem::remove(path(name)); }

  // The message of the Error that make_data throws for the files in the folder, with DIR in
  // place of the folder's name; empty if it throws none.
  std::string complaint(std::string_view name, DataOptions options = {}) const {
    options.dir = dir_;
    try {
      make_data(name, options);
    } catch (const Error& error) {
      std::string text = error.what();
      for (std::size_t at; (at = text.find(dir_)) != text.npos;) text.replace(at, dir_.size(), "DIR");
      return text;
    }
    return "";
  }

  std::string dir_;
};

Bytes gzip(const Bytes& plain) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  Bytes packed(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

Bytes xz(const Bytes& plain) {
  Bytes packed(lzma_stream_buffer_bound(plain.size()), '\0');
  std::size_t size = 0;
  lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, nullptr, reinterpret_cast<const std::uint8_t*>(plain.data()),
                          plain.size(), reinterpret_cast<std::uint8_t*>(packed.data()), &size, packed.size());
  packed.resize(size);
  return packed;
}

// Pseudo-random bytes, different for each `salt`.
Bytes noise(std::size_t size, unsigned salt) {
  Bytes bytes;
  for (unsigned state = salt; bytes.size() < size; state = state * 1664525 + 1013904223)
    bytes.push_back(static_cast<char>(state >> 24));
  return bytes;
}

// A CIFAR record. With `coarse` it begins with a coarse label, as in CIFAR-100, which the
// reader must ignore.
Bytes record(int label, unsigned salt, bool coarse = false) {
  return (coarse ? Bytes(1, 17) : Bytes()) + static_cast<char>(label) + noise(3072, salt);
}

std::map<std::string, Bytes> cifar10_files() {
  std::map<std::string, Bytes> files;
  for (int i = 0; i < 5; ++i)
    files["data_batch_" + std::to_string(i + 1) + ".bin"] =
        record(2 * i, static_cast<unsigned>(i)) + record(2 * i + 1, static_cast<unsigned>(i + 100));
  files["test_batch.bin"] = record(3, 7) + record(9, 8) + record(0, 9);
  return files;
}

Bytes big_endian(std::uint32_t value) {
  Bytes bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

Bytes idx_images(std::uint32_t count, std::uint32_t side, unsigned salt) {
  return big_endian(0x803) + big_endian(count) + big_endian(side) + big_endian(side) +
         noise(count * side * side, salt);
}

Bytes idx_labels(std::uint32_t count) {
  Bytes bytes = big_endian(0x801) + big_endian(count);
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i % 10));
  return bytes;
}

std::map<std::string, Bytes> mnist_files() {
  return {{"train-images-idx3-ubyte", idx_images(12, 28, 1)},
          {"train-labels-idx1-ubyte", idx_labels(12)},
          {"t10k-images-idx3-ubyte", idx_images(3, 28, 2)},
          {"t10k-labels-idx1-ubyte", idx_labels(3)}};
}

Samples all_of(const Data& data) {
  Samples all(data.train_size());
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

bool same(const Batch& a, const Batch& b) {
  return torch::equal(a.input, b.input) && torch::equal(a.target, b.target);
}

Bytes bytes_of(const torch::Tensor& tensor) {
  const auto whole = tensor.contiguous();
  return {static_cast<const char*>(whole.data_ptr()), whole.nbytes()};
}

std::vector<std::int64_t> numbers(const torch::Tensor& tensor) {
  const auto* first = tensor.data_ptr<std::int64_t>();
  return {first, first + tensor.numel()};
}

// Expects `input` to hold `pixels` plane by plane, with every channel shifted and scaled to mean 0
// and standard deviation 1.
void expect_normalised(const torch::Tensor& input, const Bytes& pixels, std::size_t planes,
                       std::size_t channels) {
  ASSERT_EQ(static_cast<std::size_t>(input.numel()), pixels.size());
  const float* values = input.data_ptr<float>();
  const std::size_t plane = pixels.size() / planes;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    std::vector<double> found, expected;
    for (std::size_t p = channel; p < planes; p += channels) {
      for (std::size_t i = p * plane; i < (p + 1) * plane; ++i) {
        found.push_back(values[i]);
        expected.push_back(static_cast<unsigned char>(pixels[i]));
      }
    }
    const auto n = static_cast<double>(found.size());
    const double mean = std::reduce(expected.begin(), expected.end()) / n;
    double variance = 0;
    for (const double value : expected) variance += (value - mean) * (value - mean) / n;
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], (expected[i] - mean) / std::sqrt(variance), 1e-4);
  }
}

TEST_F(DataFiles, CifarGivesBackWhatWasWrittenHoweverPacked) {
  const std::function<Bytes(const Bytes&)> packers[] = {[](const Bytes& plain) { return plain; }, gzip, xz};
  const std::string endings[] = {"", ".gz", ".xz"};
  for (const std::string folder : {"", "cifar-10-batches-bin/"}) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (const auto& [name, bytes] : cifar10_files()) write(folder + name + endings[i], packers[i](bytes));
      const auto data = make_data("cifar10", {.dir = dir_, .augment = false});
      EXPECT_EQ(data->shape().classes, 10);
      EXPECT_EQ(data->train_size(), 10u);
      EXPECT_EQ(data->test_size(), 3u);
      const Batch batch = data->train(all_of(*data), 0);
      EXPECT_EQ(batch.input.sizes(), (torch::IntArrayRef{10, 3, 32, 32}));
      EXPECT_EQ(numbers(batch.target), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
      EXPECT_EQ(numbers(data->test(1, 3).target), (std::vector<std::int64_t>{9, 0}));
      Bytes pixels;
      for (unsigned k = 0; k < 5; ++k) pixels += noise(3072, k) + noise(3072, k + 100);
      expect_normalised(batch.input, pixels, 30, 3);
      for (const auto& [name, bytes] : cifar10_files()) remove(folder + name + endings[i]);
    }
  }
}

TEST_F(DataFiles, Cifar100TakesTheFineLabel) {
  write("cifar-100-binary/train.bin", record(99, 1, true) + record(42, 2, true));
  write("cifar-100-binary/test.bin", record(7, 3, true));
  const auto data = make_data("cifar100", {.dir = dir_});
  EXPECT_EQ(data->shape().classes, 100);
  EXPECT_EQ(std::vector(data->labels().begin(), data->labels().end()), (std::vector<std::int64_t>{99, 42}));
  EXPECT_EQ(numbers(data->test(0, 1).target), (std::vector<std::int64_t>{7}));
}

TEST_F(DataFiles, CifarSaysWhatIsWrongWithItsFiles) {
  EXPECT_EQ(
      complaint("cifar10"),
      "data: DIR: no data_batch_1.bin or cifar-10-batches-bin/data_batch_1.bin found, plain or packed (.gz, "
      ".xz)");
  for (const auto& [name, bytes] : cifar10_files()) write(name, bytes);
  EXPECT_EQ(complaint("cifar10"), "");
  const Bytes good = record(1, 1);
  write("data_batch_3.bin", good.substr(0, 3072));
  EXPECT_EQ(complaint("cifar10"), "data: DIR/data_batch_3.bin: expected a multiple of 3073 bytes, got 3072");
  write("data_batch_3.bin", "");
  EXPECT_EQ(complaint("cifar10"), "data: DIR/data_batch_3.bin: expected a multiple of 3073 bytes, got 0");
  write("data_batch_3.bin", good + record(12, 1));
  EXPECT_EQ(complaint("cifar10"),
            "data: DIR/data_batch_3.bin: label at byte 3073 must be from 0 to 9, got 12");
  remove("data_batch_3.bin");
  std::filesystem::create_directory(path("data_batch_3.bin"));
  EXPECT_EQ(complaint("cifar10"), "data: DIR/data_batch_3.bin: expected a file, got a folder");
}

TEST_F(DataFiles, PackedFilesThatAreCutOrDamagedAreNoticed) {
  for (const auto& [name, bytes] : cifar10_files()) write(name, bytes);
  remove("test_batch.bin");
  const Bytes plain = record(1, 1);
  const std::pair<std::string, Bytes> packed[] = {{"gz", gzip(plain)}, {"xz", xz(plain)}};
  for (const auto& [ending, bytes] : packed) {
    const std::string name = "test_batch.bin." + ending, format = ending == "gz" ? "gzip" : "xz";
    write(name, bytes);
    EXPECT_EQ(complaint("cifar10"), "");
    for (const std::size_t length : {std::size_t{0}, std::size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
      write(name, bytes.substr(0, length));
      EXPECT_EQ(complaint("cifar10"),
                "data: DIR/" + name + ": " + format + " data ends early, at byte " + std::to_string(length));
    }
    write(name, plain);
    EXPECT_TRUE(
        complaint("cifar10").starts_with("data: DIR/" + name + ": damaged " + format + " data at byte "));
    for (std::size_t at = 20; at < bytes.size(); at += bytes.size() / 9) {
      Bytes damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
      write(name, damaged);
      EXPECT_TRUE(complaint("cifar10").starts_with("data: DIR/" + name + ": ")) << at;
    }
    remove(name);
  }
}

TEST_F(DataFiles, AFileOfSeveralGzipPartsIsRead) {
  for (const auto& [name, bytes] : cifar10_files()) write(name, bytes);
  remove("test_batch.bin");
  write("test_batch.bin.gz", gzip(record(1, 1)) + gzip(record(2, 2)));
  EXPECT_EQ(make_data("cifar10", {.dir = dir_})->test_size(), 2u);
}

TEST_F(DataFiles, MnistGivesBackWhatWasWrittenPlainOrPacked) {
  for (const bool packed : {false, true}) {
    for (const auto& [name, bytes] : mnist_files()) {
      remove(name);
      write(packed ? name + ".gz" : name, packed ? gzip(bytes) : bytes);
    }
    const auto data = make_data("mnist", {.dir = dir_});
    const Batch batch = data->train(all_of(*data), 5);
    EXPECT_EQ(batch.input.sizes(), (torch::IntArrayRef{12, 1, 28, 28}));
    EXPECT_EQ(batch.target[11].item<std::int64_t>(), 1);
    EXPECT_EQ(data->test_size(), 3u);
    expect_normalised(batch.input, noise(12 * 28 * 28, 1), 12, 1);
  }
}

TEST_F(DataFiles, MnistSaysWhatIsWrongWithItsFiles) {
  EXPECT_EQ(complaint("mnist"), "data: DIR: no train-images-idx3-ubyte found, plain or packed (.gz, .xz)");
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  const auto said = [&](const std::string& name, const Bytes& bytes) {
    for (const auto& [each, good] : mnist_files()) write(each, good);
    write(name, bytes);
    return complaint("mnist");
  };
  EXPECT_EQ(said(images, "\1\2\3"), "data: DIR/" + images + ": expected a header of 16 bytes, got 3");
  EXPECT_EQ(said(images, idx_labels(12)),
            "data: DIR/" + images + ": expected magic number 0x803 at byte 0, got 0x801");
  EXPECT_EQ(said(images, idx_images(12, 28, 1) + "x"),
            "data: DIR/" + images + ": expected 9424 bytes for 12 images of 28 x 28, got 9425");
  EXPECT_EQ(
      said(images, idx_images(0, 28, 1)),
      "data: DIR/" + images +
          ": expected at least 1 image of at most 256 x 256, but the header announces 0 images of 28 x 28");
  EXPECT_EQ(said(labels, idx_labels(11)),
            "data: DIR/" + labels + ": expected 12 labels, one for each image, but the header announces 11");
  EXPECT_EQ(said(labels, idx_labels(12) + "x"),
            "data: DIR/" + labels + ": expected 20 bytes for 12 labels, got 21");
  Bytes high = idx_labels(12);
  high[9] = 10;
  EXPECT_EQ(said(labels, high), "data: DIR/" + labels + ": label at byte 9 must be from 0 to 9, got 10");
  EXPECT_EQ(said("t10k-images-idx3-ubyte", idx_images(3, 32, 1)),
            "data: DIR: training and test images must have the same size, got 28 x 28 and 32 x 32");
}

TEST_F(DataFiles, WordsAreNumberedByTheTrainingFile) {
  write("train.txt", "the cat <unk>\n the\tdog sat \r\n\nend");
  write("test.txt", "dog bird cat\n");
  auto data = make_data("words", {.dir = dir_, .window = 3});
  // the 0, cat 1, <unk> 2, <eos> 3, dog 4, sat 5, end 6
  EXPECT_EQ(data->shape().kind, Shape::Kind::tokens);
  EXPECT_EQ(data->shape().classes, 7);
  EXPECT_EQ(data->shape().window, 3);
  EXPECT_EQ(data->train_size(), 3u);
  EXPECT_TRUE(data->labels().empty());
  const Batch batch = data->train(Samples{2, 0}, 0);
  EXPECT_EQ(batch.input.sizes(), (torch::IntArrayRef{2, 3}));
  EXPECT_EQ(numbers(batch.input), (std::vector<std::int64_t>{5, 3, 3, 0, 1, 2}));
  EXPECT_EQ(numbers(batch.target), (std::vector<std::int64_t>{3, 3, 6, 1, 2, 3}));
  data = make_data("words", {.dir = dir_, .window = 2});
  EXPECT_EQ(numbers(data->test(0, 1).input), (std::vector<std::int64_t>{4, 2}));

  write("valid.txt", "cat cat cat");
  data = make_data("words", {.dir = dir_, .window = 2});
  EXPECT_EQ(numbers(data->test(0, 1).input), (std::vector<std::int64_t>{1, 1})) << "validation first";
}

TEST_F(DataFiles, PtbIsAnotherNameForWords) {
  write("ptb.train.txt", "the cat <unk>\nthe dog sat\n");
  write("ptb.valid.txt", "dog cat sat\n");
  const auto words = make_data("words", {.dir = dir_, .window = 2});
  const auto ptb = make_data("ptb", {.dir = dir_, .window = 2});
  EXPECT_EQ(ptb->shape().classes, 6);  // the words of the training file and <eos>
  EXPECT_EQ(ptb->train_size(), words->train_size());
  EXPECT_EQ(numbers(ptb->train(Samples{0, 1}, 0).input), numbers(words->train(Samples{0, 1}, 0).input));
  EXPECT_EQ(numbers(ptb->test(0, 1).target), numbers(words->test(0, 1).target));
}

TEST_F(DataFiles, WordsSayWhatIsWrongWithTheirFiles) {
  EXPECT_EQ(complaint("words"), "data: DIR: no ptb.train.txt or train.txt found, plain or packed (.gz, .xz)");
  write("ptb.train.txt", "");
  EXPECT_EQ(complaint("words"), "data: DIR/ptb.train.txt: expected text, got an empty file");
  write("ptb.train.txt", "a b c\n");
  EXPECT_EQ(complaint("words"),
            "data: DIR: no ptb.valid.txt or valid.txt or ptb.test.txt or test.txt found, plain or packed "
            "(.gz, .xz)");
  write("ptb.test.txt", "a b\n");
  EXPECT_EQ(complaint("words", {.window = 4}),
            "data: words: expected at least 5 tokens to train on for a window of 4, got 4");
  EXPECT_EQ(complaint("words", {.window = 3}),
            "data: words: expected at least 4 tokens to test on for a window of 3, got 3");
  EXPECT_EQ(complaint("words", {.window = 2}), "");
  EXPECT_EQ(complaint("words", {.window = 0}), "data: window must be at least 1 token, got 0");
}

TEST_F(DataFiles, TextIsCutIntoBytesAndItsLastTenthIsForTests) {
  write("input.txt", "abababababababababcdabababababababababdc");  // 40
  for (const std::string& dir : {dir_, path("input.txt")}) {
    const auto data = make_data("text", {.dir = dir, .window = 3});
    EXPECT_EQ(data->shape().classes, 4);
    EXPECT_EQ(data->train_size(), 11u);
    EXPECT_EQ(data->test_size(), 1u);
    EXPECT_EQ(numbers(data->test(0, 1).input), (std::vector<std::int64_t>{0, 1, 3}));
    EXPECT_EQ(numbers(data->test(0, 1).target), (std::vector<std::int64_t>{1, 3, 2}));
  }
  remove("input.txt");
  EXPECT_EQ(complaint("text"), "data: DIR: no input.txt found, plain or packed (.gz, .xz)");
}

TEST_F(DataFiles, AugmentationIsAFunctionOfSeedDrawAndSample) {
  for (const auto& [name, bytes] : cifar10_files()) write(name, bytes);
  const auto data = make_data("cifar10", {.dir = dir_, .seed = 4});
  const Samples all = all_of(*data);
  const Batch first = data->train(all, 9);
  EXPECT_TRUE(same(first, data->train(all, 9)));
  EXPECT_TRUE(same(first, make_data("cifar10", {.dir = dir_, .seed = 4})->train(all, 9)));
  EXPECT_FALSE(same(first, data->train(all, 10)));
  EXPECT_FALSE(same(first, make_data("cifar10", {.dir = dir_, .seed = 5})->train(all, 9)));
  const Batch alone = data->train(Samples{6}, 9);
  EXPECT_TRUE(torch::equal(alone.input[0], first.input[6])) << "whatever batch a sample is in";
}

TEST_F(DataFiles, AugmentationIsAShiftOverBlackAndAMirrorImage) {
  for (const auto& [name, bytes] : cifar10_files()) write(name, bytes);
  const auto plain = make_data("cifar10", {.dir = dir_, .augment = false});
  const auto data = make_data("cifar10", {.dir = dir_});
  // The pixels are noise in which every byte value occurs, so the smallest value of a channel is black.
  const auto black = plain->train(all_of(*plain), 0).input.amin({0, 2, 3});
  const auto image = plain->train(Samples{0}, 0).input[0];
  auto padded = black.reshape({3, 1, 1}).repeat({1, 40, 40});
  padded.slice(1, 4, 36).slice(2, 4, 36).copy_(image);
  std::set<Bytes> allowed, seen;
  for (int y = 0; y <= 8; ++y) {
    for (int x = 0; x <= 8; ++x) {
      const auto crop = padded.slice(1, y, y + 32).slice(2, x, x + 32);
      allowed.insert({bytes_of(crop), bytes_of(crop.flip(2))});
    }
  }
  ASSERT_EQ(allowed.size(), 9u * 9 * 2);
  for (std::uint64_t draw = 0; draw < 2000; ++draw) {
    const Bytes changed = bytes_of(data->train(Samples{0}, draw).input[0]);
    ASSERT_TRUE(allowed.contains(changed)) << draw;
    seen.insert(changed);
  }
  EXPECT_EQ(seen.size(), allowed.size());
}

TEST(Data, HasACompleteTable) {
  EXPECT_EQ(testing::table_defects(data_sets()), "");
}

TEST(Data, KnowsItsNames) {
  for (const DataInfo& info : data_sets()) {
    if (info.needs_dir) {
      EXPECT_THROW(make_data(info.name, {}), Error);
      EXPECT_THROW(make_data(info.name, {.dir = "/no/such/folder"}), Error);
    } else {
      EXPECT_EQ(make_data(info.name, {})->shape().kind, info.kind);
    }
  }
  try {
    make_data("imagenet", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "data: no such data set 'imagenet'; known: " + listed(names_of(data_sets())));
  }
  try {
    make_data("cifar10", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "data: 'cifar10' is read from files, but no folder was given");
  }
}

TEST(Data, RefusesSamplesItDoesNotHave) {
  for (const char* name : {"images", "corpus"}) {
    const auto data = make_data(name, {});
    EXPECT_THROW(data->train(Samples{0, data->train_size()}, 0), Error);
    EXPECT_THROW(data->test(0, data->test_size() + 1), Error);
    EXPECT_THROW(data->test(2, 1), Error);
    EXPECT_EQ(data->test(1, 1).target.numel(), 0);
    EXPECT_EQ(data->train({}, 0).input.size(0), 0);
  }
}

TEST(Data, SyntheticDataAreAFunctionOfTheSeed) {
  for (const char* name : {"images", "corpus"}) {
    const auto one = make_data(name, {.seed = 1}), again = make_data(name, {.seed = 1}),
               other = make_data(name, {.seed = 2});
    const Samples some = {0, 1, 2, 77, 5000};
    EXPECT_TRUE(same(one->train(some, 0), again->train(some, 3))) << "never augmented";
    EXPECT_TRUE(same(one->test(10, 20), again->test(10, 20)));
    EXPECT_FALSE(same(one->train(some, 0), other->train(some, 0)));
    EXPECT_FALSE(same(one->test(0, 5), one->train(Samples{0, 1, 2, 3, 4}, 0)));
  }
}

TEST(Data, ImagesAreBalancedAndNormalised) {
  const auto data = make_data("images", {});
  EXPECT_EQ(data->train_size(), 8000u);
  EXPECT_EQ(data->test_size(), 2000u);
  std::vector<int> counts(10);
  for (const std::int64_t label : data->labels()) ++counts.at(static_cast<std::size_t>(label));
  EXPECT_EQ(counts, std::vector<int>(10, 800));
  const auto input = data->train(all_of(*data), 0).input;
  EXPECT_LT(input.mean({0, 2, 3}).abs().max().item<double>(), 1e-3);
  EXPECT_LT((input.std() - 1).abs().item<double>(), 1e-3);
  EXPECT_NEAR(data->test(0, 2000).input.std().item<double>(), 1, 0.02);
}

// Compares the cross-entropy on the test part, in nats per word, of two models counted on the training
// part: word frequencies alone, and word frequencies mixed with pairs of words.
TEST(Data, TheCorpusFollowsZipfAndHasMoreToLearnThanFrequencies) {
  const TokenSet set = write_corpus({});
  std::vector<double> single(1000, 0.01);
  std::map<std::pair<int, int>, double> pairs;
  for (std::size_t i = 0; i + 1 < set.train.size(); ++i) {
    ++single.at(static_cast<std::size_t>(set.train[i]));
    ++pairs[{set.train[i], set.train[i + 1]}];
  }
  const double total = std::reduce(single.begin(), single.end());
  double alone = 0, in_pairs = 0;
  for (std::size_t i = 0; i + 1 < set.test.size(); ++i) {
    const auto last = static_cast<std::size_t>(set.test[i]), next = static_cast<std::size_t>(set.test[i + 1]);
    const double frequency = single[next] / total;
    const auto found = pairs.find({set.test[i], set.test[i + 1]});
    alone -= std::log(frequency);
    in_pairs -= std::log(0.3 * frequency + 0.7 * (found == pairs.end() ? 0 : found->second) / single[last]);
  }
  const auto tokens = static_cast<double>(set.test.size());
  EXPECT_GT(alone / tokens, 5);
  EXPECT_LT(in_pairs / tokens, alone / tokens - 0.8);
  std::ranges::sort(single, std::greater());
  EXPECT_GT(single[0], 4 * single[30]);
  EXPECT_GT(single[30], 4 * single[500]);
}

}  // namespace
}  // namespace gravac::train
