#pragma once

#include <cstddef>
#include <cstdint>

namespace gravac::apps {

struct CompressorsOptions {
  std::size_t entries = 4'000'000;
  unsigned threads = 1;
  std::uint64_t seed = 1;
};

// Compresses one made-up gradient with every compressor at 10x to 1000x and
// prints what was kept, how much energy survived and how long it took.
void show_compressors(const CompressorsOptions& options);

}  // namespace gravac::apps
