#include "gravac/wire/quantise.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gravac/util/require.h"
#include "gravac/wire/dequantise_kernels.h"
#include "gravac/wire/quantise_kernels.h"

namespace gravac {
namespace {

// Threads share pieces of so many runs, and totals are added up piece by piece: so neither depends on the
// number of threads.
constexpr std::size_t kPieceRuns = 512;

// Fewer pieces than this are done before a second thread has woken up.
constexpr std::size_t kWorthThreads = 3;

// The largest scale that a sender writes, as bits: 2^64, rounded up from less.
constexpr std::uint16_t kLargestScale = std::bit_cast<std::uint32_t>(0x1p64f) >> 16;

std::string_view name_of(Scheme scheme) {
  switch (scheme) {
    case Scheme::nearest:
      return "nearest";
    case Scheme::stochastic:
      return "stochastic";
    case Scheme::onebit:
      return "onebit";
    case Scheme::fp16:
      return "fp16";
    case Scheme::bf16:
      return "bf16";
  }
  return "unknown";
}

std::size_t pieces_of(std::size_t first, std::size_t last) {
  return (last - first + kPieceRuns - 1) / kPieceRuns;
}

void add(const QuantiseTotals& some, QuantiseTotals& all) {
  all.entered += some.entered;
  all.dense += some.dense;
  all.error += some.error;
  all.finite &= some.finite;
}

}  // namespace

void check_format(const Format& format) {
  const unsigned bits = format.bits;
  const bool known = format.scheme <= Scheme::stochastic ? bits >= 1 && bits <= 8
                     : format.scheme == Scheme::onebit   ? bits == 1
                                                         : format.scheme <= Scheme::bf16 && bits == 16;
  require(known, "quantise: no such format: ", to_string(format));
}

std::string to_string(const Format& format) {
  return std::string(name_of(format.scheme)) + ", " + std::to_string(format.bits) + " bits";
}

std::size_t scales_per_run(const Format& format) {
  return format.scheme == Scheme::bf16 || format.scale > 0 ? 0 : format.scheme == Scheme::onebit ? 2 : 1;
}

bool scales_fit(std::span<const std::byte> bytes) {
  std::uint16_t largest = 0;  // negative scales and those that are no numbers have larger bits
  for (std::size_t i = 0; i < bytes.size(); i += kScaleBytes) {
    std::uint16_t scale;
    std::memcpy(&scale, bytes.data() + i, sizeof(scale));
    largest = std::max(largest, scale);
  }
  return largest <= kLargestScale;
}

std::size_t code_bytes(const Runs& runs, const Format& format, std::size_t first, std::size_t last) {
  return format.bits * runs.octets(first, last);
}

// Where the entries, scales and codes of a stretch begin, counted from those of the first run of the call.
struct Quantiser::Place {
  std::size_t piece;  // number of the piece
  std::size_t entry, scales, codes;
};

Quantiser::Quantiser(Runs runs, std::shared_ptr<Workers> workers)
    : runs_(std::move(runs)), workers_(std::move(workers)) {}

// Calls work(place, stretch) for all stretches of runs [first, last), on all threads.
template <class Work>
void Quantiser::each_stretch(std::size_t first, std::size_t last, const Format& format, const Work& work) {
  const std::size_t pieces = pieces_of(first, last), begin = runs_.begin(first);
  const std::size_t scale_bytes = kScaleBytes * scales_per_run(format);
  const auto do_pieces = [&](std::size_t from, std::size_t until) noexcept {
    for (std::size_t piece = from; piece < until; ++piece) {
      const std::size_t run = first + piece * kPieceRuns;
      std::size_t codes = code_bytes(runs_, format, first, run);
      runs_.each_stretch(run, std::min(run + kPieceRuns, last), [&](const Runs::Stretch& stretch) {
        work(Place{piece, stretch.begin - begin, scale_bytes * (stretch.first - first), codes}, stretch);
        codes += code_bytes(runs_, format, stretch.first, stretch.last);
      });
    }
  };
  if (pieces < kWorthThreads) return do_pieces(0, pieces);
  workers_->run([&](unsigned worker) noexcept {
    do_pieces(pieces * worker / workers_->size(), pieces * (worker + 1) / workers_->size());
  });
}

void Quantiser::check_size(std::size_t first, std::size_t last, std::size_t entries) const {
  require(first <= last && last <= runs_.size(), "quantise: runs ", first, " to ", last,
          " are out of range for ", runs_.size(), " runs");
  require(entries == runs_.entries(first, last), "quantise: expected ", runs_.entries(first, last),
          " entries, got ", entries);
}

QuantiseTotals Quantiser::pass(std::size_t first, std::size_t last, std::span<const float> gradient,
                               std::span<const float> residual, const Format& format, const Draw& draw,
                               Codes* out) {
  check_format(format);
  check_size(first, last, gradient.size());
  if (!residual.empty()) check_size(first, last, residual.size());
  if (out) {
    out->format = format;
    out->first = first;
    out->last = last;
    out->scales.reserve(kScaleBytes * scales_per_run(format) * (last - first));
    out->codes.reserve(code_bytes(runs_, format, first, last));
  }
  totals_.assign(pieces_of(first, last), {});
  const Random random(draw);
  each_stretch(first, last, format, [&](const Place& place, const Runs::Stretch& stretch) {
    const QuantiseTotals found = quantise_stretch(
        format,
        {gradient.data() + place.entry, residual.empty() ? nullptr : residual.data() + place.entry,
         stretch.entries, random, stretch.first},
        out ? out->scales.data() + place.scales : nullptr, out ? out->codes.data() + place.codes : nullptr);
    add(found, totals_[place.piece]);
  });
  QuantiseTotals all;
  for (const QuantiseTotals& piece : totals_) add(piece, all);
  return all;
}

QuantiseTotals Quantiser::quantise(std::size_t first, std::size_t last, std::span<const float> gradient,
                                   std::span<const float> residual, const Format& format, const Draw& draw,
                                   Codes& out) {
  return pass(first, last, gradient, residual, format, draw, &out);
}

QuantiseTotals Quantiser::measure(std::size_t first, std::size_t last, std::span<const float> gradient,
                                  std::span<const float> residual, const Format& format, const Draw& draw) {
  return pass(first, last, gradient, residual, format, draw, nullptr);
}

// Calls work(codes of the stretch, its first entry, its number of entries) for all stretches.
template <class Work>
void Quantiser::each_coded(const CodesView& codes, const Work& work) {
  each_stretch(codes.first, codes.last, codes.format, [&](const Place& place, const Runs::Stretch& stretch) {
    work(CodesView{codes.format, stretch.first, stretch.last, codes.scales + place.scales,
                   codes.codes + place.codes},
         place.entry, stretch.entries);
  });
}

void Quantiser::keep_rest(const CodesView& codes, std::span<const float> gradient,
                          std::span<float> residual) {
  check_size(codes.first, codes.last, gradient.size());
  check_size(codes.first, codes.last, residual.size());
  each_coded(codes, [&](const CodesView& some, std::size_t entry, std::size_t entries) {
    keep_rest_of_stretch(some, entries, gradient.data() + entry, residual.data() + entry);
  });
}

void Quantiser::decode_add(const CodesView& codes, float scale, std::span<float> out) {
  check_size(codes.first, codes.last, out.size());
  each_coded(codes, [&](const CodesView& some, std::size_t entry, std::size_t entries) {
    decode_stretch_add(some, entries, scale, out.data() + entry);
  });
}

void Quantiser::decode(const CodesView& codes, std::span<float> out) {
  check_size(codes.first, codes.last, out.size());
  each_coded(codes, [&](const CodesView& some, std::size_t entry, std::size_t entries) {
    decode_stretch(some, entries, out.data() + entry);
  });
}

}  // namespace gravac
