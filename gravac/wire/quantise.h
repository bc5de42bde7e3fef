#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "gravac/util/random.h"
#include "gravac/util/workers.h"
#include "gravac/wire/codes.h"
#include "gravac/wire/runs.h"

namespace gravac {

// How many bytes the codes of runs [first, last) take, scales not counted.
std::size_t code_bytes(const Runs& runs, const Format& format, std::size_t first, std::size_t last);

// Turns entries into codes and back. Nothing depends on the number of threads. Codes and scales, and what
// is decoded from them, have the same bits on every processor; energies may differ in their last digits.
// Called by one thread at a time.
class Quantiser {
 public:
  explicit Quantiser(Runs runs, std::shared_ptr<Workers> workers = std::make_shared<Workers>(1));

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
  struct Place;
  template <class Work>
  void each_stretch(std::size_t first, std::size_t last, const Format& format, const Work& work);
  template <class Work>
  void each_coded(const CodesView& codes, const Work& work);
  QuantiseTotals pass(std::size_t first, std::size_t last, std::span<const float> gradient,
                      std::span<const float> residual, const Format& format, const Draw& draw, Codes* out);
  void check_size(std::size_t first, std::size_t last, std::size_t entries) const;

  Runs runs_;
  std::shared_ptr<Workers> workers_;
  std::vector<QuantiseTotals> totals_;  // of each piece
};

}  // namespace gravac
