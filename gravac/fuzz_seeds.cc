// Writes the first inputs of the fuzzers: payloads of every compressor in every format of values, quantised
// payloads of every format, and checkpoints with the state of every policy. From valid inputs a fuzzer gets
// deeper in minutes than from nothing in days.
//
// Usage: fuzz_seeds FOLDER_FOR_MESSAGES FOLDER_FOR_QUANTISED_MESSAGES FOLDER_FOR_CHECKPOINTS

#include <fstream>
#include <string>

#include "gravac/checkpoint.h"
#include "gravac/codec/quantise/quantisers.h"
#include "gravac/codec/select/selector.h"
#include "gravac/config.h"
#include "gravac/wire/quantised_wire.h"
#include "gravac/wire/wire.h"

namespace {

using namespace gravac;

// Writes two files, one a byte longer: the fuzzers give inputs of odd length a valid checksum.
void write(const std::string& folder, std::span<const std::byte> bytes) {
  static int number = 0;
  for (const int padding : {0, 1}) {
    std::ofstream file(folder + "/seed" + std::to_string(number++), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    for (int i = 0; i < padding; ++i) file.put(0);
  }
}

// Payloads whose positions are all, half, some and few of the entries: each is encoded in another form.
void write_messages(const std::string& folder) {
  Wire wire;
  for (const Values values : kEveryValues) {
    for (const std::uint32_t stride : {1u, 2u, 7u, 60u}) {
      Sparse sparse;
      for (std::uint32_t i = 0; i < 400; i += stride) {
        sparse.positions.push_back(i);
        sparse.values.push_back(0.1f * static_cast<float>(i));
      }
      write(folder, wire.encode(sparse, {1, 2, 0, 400}, values));
      sparse.positions.back() = 3999;  // a long gap
      write(folder, wire.encode(sparse, {1, 2, 0, 4000}, values));
      write(folder, wire.encode(sparse, {1, 2, 0, 4000}, values, Positions::int64));
    }
  }
}

// What each compressor would send of a gradient whose entries are all of different size.
void write_payloads(const std::string& folder) {
  constexpr std::uint32_t kEntries = 4000;
  std::vector<float> gradient;
  for (std::uint32_t i = 0; i < kEntries; ++i) gradient.push_back(static_cast<float>(i * 7919 % kEntries));
  Wire wire;
  for (const SelectorInfo& info : selectors()) {
    for (const Values values : kEveryValues) {
      Sparse sparse;
      info.make()->pick(gradient, 40, {}, sparse.positions);
      for (const std::uint32_t i : sparse.positions) sparse.values.push_back(gradient[i]);
      write(folder, wire.encode(sparse, {1, 2, 0, kEntries}, values));
    }
  }
}

// Messages of segments such as fuzz_quantised.cc expects: their runs are full, short, and of one entry.
void write_quantised(const std::string& folder) {
  for (const std::size_t rest : {0, 8, 200}) {
    Layout layout;
    for (const std::size_t size : {std::size_t{1}, std::size_t{130}, std::size_t{300}, rest}) {
      layout.add(std::to_string(layout.segments().size()), size);
    }
    std::vector<float> gradient;
    for (std::size_t i = 0; i < layout.entries(); ++i)
      gradient.push_back(static_cast<float>(i * 7919 % 1000) - 500);
    Quantiser quantiser{Runs(layout)};
    const QuantisedWire wire(quantiser);
    const std::size_t runs = quantiser.runs().size();
    const auto write_as = [&](const Format& format) {
      Codes codes;
      std::vector<std::byte> message;
      quantiser.quantise(0, runs, gradient, {}, format, {}, codes);
      wire.encode(codes, 0, runs, wire.stamp_of(0, runs, 1, 2), message);
      write(folder, message);
    };
    for (unsigned bits = 1; bits <= 8; ++bits) write_as({Scheme::nearest, bits});
    for (const unsigned bits : {1u, 4u, 7u}) write_as({Scheme::stochastic, bits});
    for (const Format& format : {Format{Scheme::onebit, 1}, {Scheme::fp16, 16}, {Scheme::bf16, 16}})
      write_as(format);
  }
}

void write_checkpoints(const std::string& folder) {
  Checkpoint checkpoint;
  write(folder, checkpoint.to_bytes());
  checkpoint.add("fact/policy", std::string_view("gravac"));
  write(folder, checkpoint.to_bytes());
  checkpoint.add("steps", std::vector<double>{1, 2});
  checkpoint.add("residual", std::vector<float>{0.5f, -1, 3});
  checkpoint.add("watched", std::vector<float>{});
  write(folder, checkpoint.to_bytes());
  for (const std::string_view name : policy_names()) {
    Checkpoint of_policy;
    of_policy.add("fact/policy", name);
    const EngineSetup setup = make_setup({{"policy", std::string(name)}}, Layout(10), 4);
    for (const auto& [key, values] : setup.policy->save()) of_policy.add("policy/" + key, values);
    write(folder, of_policy.to_bytes());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  write_messages(argv[1]);
  write_payloads(argv[1]);
  write_quantised(argv[2]);
  write_checkpoints(argv[3]);
}
