#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gravac/util/buffer.h"
#include "gravac/util/random.h"
#include "gravac/util/workers.h"
#include "gravac/wire/runs.h"

namespace gravac {

// How an entry becomes a code of a few bits. The numbers are part of the wire format.
enum class Scheme : std::uint8_t {
  nearest = 0,     // the nearest of 2^bits levels; 0 is one of them from 4 bits on
  stochastic = 1,  // QSGD: one of the two levels around the entry at random, so that the mean is the entry
  onebit = 2,      // the mean of the run's entries that are not negative, or that of those that are
  fp16 = 3,        // two bytes, scaled by a power of two that is the run's own
  bf16 = 4,        // two bytes, the upper half of a float
};

// bits: 1 to 8 for nearest and stochastic, 1 for onebit, 16 for fp16 and bf16.
struct Format {
  Scheme scheme = Scheme::nearest;
  unsigned bits = 4;

  bool operator==(const Format&) const = default;
};

void check_format(const Format& format);      // throws Error if there is no such format
std::string to_string(const Format& format);  // "nearest 4 bit", for messages

// Scales are bf16: not negative, finite, two bytes. How many of them a run has, and how many bytes the codes
// of runs [first, last) take.
std::size_t scales_per_run(const Format& format);
std::size_t code_bytes(const Runs& runs, const Format& format, std::size_t first, std::size_t last);

// Energies are sums of squares, with a relative error of at most some 1e-5.
struct QuantiseTotals {
  double entered = 0;  // of the gradient
  double dense = 0;    // of gradient + residual
  double error = 0;    // of gradient + residual - what receivers decode
  bool finite = true;  // false: some entry is NaN, infinite or at least 2^64 (kHugeMagnitude), in the
                       // gradient or with the residual added. Nothing else that was found may be used then.
};

// The codes of runs [first, last), somewhere in memory: in a Codes, or in a message.
struct CodesView {
  Format format;
  std::size_t first = 0, last = 0;
  const std::byte* scales = nullptr;
  const std::byte* codes = nullptr;
};

// The codes of runs [first, last). Filled again and again, it allocates memory only to grow.
struct Codes {
  Format format;
  std::size_t first = 0, last = 0;
  Buffer<std::byte> scales, codes;

  operator CodesView() const { return {format, first, last, scales.data(), codes.data()}; }
};

// Turns entries into codes and back. Nothing depends on the number of threads. Codes and scales, and what
// is decoded from them, have the same bits on every processor; energies may differ in their last digits.
// Called by one thread at a time.
class Quantiser {
 public:
  explicit Quantiser(Runs runs, unsigned threads = 1);

  const Runs& runs() const { return runs_; }

  // Quantises gradient + residual over runs [first, last). The spans hold exactly the entries of those runs;
  // an empty residual is taken as zeros. Neither is changed. `draw` is the key of the random numbers of
  // Scheme::stochastic; an entry gets the same number whatever the range it is quantised with. After finite =
  // false `out` holds nothing of use. Throws Error for a format that there is not, or spans of another size.
  QuantiseTotals quantise(std::size_t first, std::size_t last, std::span<const float> gradient,
                          std::span<const float> residual, const Format& format, const Draw& draw,
                          Codes& out);

  // What quantise() would return, for a format that is only tried.
  QuantiseTotals measure(std::size_t first, std::size_t last, std::span<const float> gradient,
                         std::span<const float> residual, const Format& format, const Draw& draw);

  // residual = gradient + residual - decoded: what is left to send after `codes` were sent. The spans hold
  // exactly the entries of the codes' runs.
  void keep_rest(const CodesView& codes, std::span<const float> gradient, std::span<float> residual);

  // out += scale * decoded, and out = decoded.
  void decode_add(const CodesView& codes, float scale, std::span<float> out);
  void decode(const CodesView& codes, std::span<float> out);

 private:
  struct Piece;
  template <class Work>
  void each_piece(std::size_t first, std::size_t last, const Format& format, const Work& work);
  QuantiseTotals pass(std::size_t first, std::size_t last, std::span<const float> gradient,
                      std::span<const float> residual, const Format& format, const Draw& draw, Codes* out);
  void check_size(std::size_t first, std::size_t last, std::size_t entries) const;

  Runs runs_;
  Workers workers_;
  std::vector<QuantiseTotals> totals_;  // of each piece
};

}  // namespace gravac
