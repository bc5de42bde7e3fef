#pragma once

#include <cstddef>
#include <cstdint>

namespace gravac::apps {

struct CompressorsOptions {
  std::size_t entries = 4'000'000;
  unsigned threads = 1;
  std::uint64_t seed = 1;
};

// Compresses one made-up gradient with every compressor at three factors and prints the factor that this
// really was, the gain and how long it took.
void show_compressors(const CompressorsOptions& options);

}  // namespace gravac::apps
