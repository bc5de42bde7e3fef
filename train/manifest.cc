#include "train/manifest.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "gravac/util/require.h"

namespace gravac::train {
namespace {

constexpr int kFormat = 1;  // rises with every change of what to_text() writes

std::string hexadecimal(std::uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof(text), "%016jx", std::uintmax_t{number});
  return text;
}

std::uint64_t from_hexadecimal(const std::string& text) {
  std::uintmax_t number = 0;
  const bool read = std::sscanf(text.c_str(), "%16jx", &number) == 1;
  require(read && hexadecimal(number) == text, "manifest: '", text, "' is not a digest");
  return number;
}

}  // namespace

// From the system, not from --seed: two runs with one seed are two runs.
RunIdentity new_run() {
  std::random_device random;
  return {.run = hexadecimal(std::uint64_t{random()} << 32 | random())};
}

std::string to_text(const Manifest& manifest) {
  nlohmann::ordered_json json = {
      {"format", kFormat},     {"run", manifest.saved_by.run}, {"attempt", manifest.saved_by.attempt},
      {"step", manifest.step}, {"ranks", manifest.ranks()},    {"digests", nlohmann::ordered_json::array()}};
  for (const std::uint64_t digest : manifest.digests) json["digests"].push_back(hexadecimal(digest));
  return json.dump() + '\n';
}

Manifest manifest_from_text(const std::string& text) try {
  const auto json = nlohmann::json::parse(text);
  const auto format = json.at("format").get<int>();
  require(format == kFormat, "manifest: expected format ", kFormat, ", got ", format);
  Manifest manifest = {.saved_by = {.run = json.at("run").get<std::string>(),
                                    .attempt = json.at("attempt").get<std::uint64_t>()},
                       .step = json.at("step").get<std::uint64_t>()};
  for (const auto& digest : json.at("digests")) {
    manifest.digests.push_back(from_hexadecimal(digest.get<std::string>()));
  }
  const auto ranks = json.at("ranks").get<std::size_t>();
  require(ranks > 0 && ranks == manifest.ranks(),
          "manifest: expected at least 1 rank and a digest for each rank, got ", ranks, " ranks and ",
          manifest.ranks(), " digests");
  return manifest;
} catch (const nlohmann::json::exception&) {
  throw Error("manifest: truncated or damaged");
}

}  // namespace gravac::train
