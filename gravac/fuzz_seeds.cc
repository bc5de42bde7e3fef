// Writes messages of every form, for the fuzzer to begin with. Usage: fuzz_seeds FOLDER

#include <fstream>
#include <string>

#include "gravac/wire.h"

int main(int argc, char** argv) {
  using namespace gravac;
  if (argc != 2) return 2;
  Wire wire;
  int number = 0;
  const auto write = [&](std::span<const std::byte> message) {
    for (const int padding : {0, 1}) {  // odd lengths get a right checksum from the fuzzer
      std::ofstream file(std::string(argv[1]) + "/seed" + std::to_string(number++), std::ios::binary);
      file.write(reinterpret_cast<const char*>(message.data()), static_cast<std::streamsize>(message.size()));
      for (int i = 0; i < padding; ++i) file.put(0);
    }
  };
  for (const Values values : {Values::fp32, Values::fp16, Values::bf16}) {
    for (const std::uint32_t stride : {1u, 2u, 7u, 60u}) {
      Sparse sparse;
      for (std::uint32_t i = 0; i < 400; i += stride) {
        sparse.positions.push_back(i);
        sparse.values.push_back(0.1f * static_cast<float>(i));
      }
      write(wire.encode(sparse, {1, 2, 0, 400}, values));
    }
    write(wire.encode_values(std::vector<float>(50, 1.5f), {1, 2, 0, 50}, values));
  }
}
