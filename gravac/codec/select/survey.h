#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gravac/codec/select/compressor.h"
#include "gravac/codec/select/histogram.h"
#include "gravac/codec/select/settle.h"
#include "gravac/util/buffer.h"
#include "gravac/util/kernels.h"
#include "gravac/util/random.h"
#include "gravac/util/workers.h"
#include "gravac/wire/sparse.h"

namespace gravac {

// A run of entries that a compressor chooses from: a segment, or the whole gradient.
struct Range {
  std::size_t begin = 0, size = 0;
};

// What to look at. The residual is rewritten on the way; null stands for none.
struct Input {
  const float* gradient = nullptr;
  float* residual = nullptr;
  bool residual_zero = false;            // the residual counts as 0, whatever it holds
  Draw draw;                             // seed and step
  std::span<const std::size_t> numbers;  // of the ranges, for their draws; empty: 0, 1, 2 ...

  Draw draw_for(std::size_t range) const {
    return {draw.seed, draw.step, numbers.empty() ? range : numbers[range]};
  }
};

// Finds what survives compression at one or two levels, and its energy, in one
// pass over memory; then hands out one of the levels. How it is done and why it
// is exact: docs/algorithm.md, "The fused pass".
class Survey {
 public:
  Survey(std::vector<Range> ranges, std::unique_ptr<Compressor> compressor, unsigned threads);

  // How many entries to keep of each range, for each level. Level 0 is the one
  // expected to be taken; level 1 is absent if there is only one. The level with
  // fewer entries is chosen from the survivors of the other.
  using Keep = std::vector<std::size_t>;

  struct Found {
    double entered = 0, dense = 0;  // energies of gradient, and of gradient + residual
    double energy[2] = {0, 0};      // of each level's survivors
    std::size_t kept[2] = {0, 0};   // their number
    bool finite = true;             // false: only put_back() and undo() may follow
  };
  Found run(const Input& input, std::span<const Keep> levels);
  // The same with thresholds instead of numbers: at each level the entries whose magnitude is at least
  // thresholds[level] survive, in every range. most[level], if given, limits how many entries of all
  // ranges together may survive at that level. If more reach the threshold, only the largest survive,
  // ties to the lowest positions: exactly most[level] of them if there is one range; with several
  // ranges, each range keeps at most its share of most[level], in proportion to its size.
  // REQUIRES: by_magnitude(); most is empty (no limit) or as long as thresholds.
  Found run(const Input& input, std::span<const std::uint32_t> thresholds,
            std::span<const std::size_t> most = {});
  bool by_magnitude() const { return compressor_->threshold() != nullptr; }

  // The survivors of a level of the last run; the residual loses them.
  SparseView take(int level);
  // Nothing is taken: the residual is gradient + residual of the last run.
  void put_back();
  // After put_back(): the residual without the gradient, up to rounding.
  void undo();

  // How much samples were seen to scatter beyond independence: it decides how
  // wide bands are drawn, hence how energies are rounded. At least 1.
  double spread() const { return spread_; }
  void set_spread(double spread) { spread_ = spread; }

 private:
  // A run of entries within one range that is passed over at once. Chunks do not
  // depend on the number of threads, so neither do the sums over them.
  struct Chunk {
    std::size_t range = 0, begin = 0, end = 0;
    unsigned piece = 0;
    Totals totals;
    std::size_t collected_end = 0;  // where its entries end among the piece's
    std::size_t undecided_end[2] = {0, 0};
  };
  // The chunks of one thread, and room for what it finds.
  struct Piece {
    std::size_t first = 0, last = 0;  // chunks [first, last)
    std::size_t entries = 0;
    Buffer<std::uint32_t> positions[3];
    Buffer<float> values[3];
    Pairs collected, undecided[2];
    Sample sample;
  };
  struct Level {
    Keep keep;                          // per range: how many to keep, or at most to keep
    std::vector<Band> bands;            // per range, before the pass
    std::vector<Settled> settled;       // per range, after it
    std::vector<std::uint32_t> picked;  // by compressors that do not go by magnitude
  };

  void split(unsigned threads);
  void limit_by(std::span<const std::size_t> most, std::size_t level);
  void open(const Input& input, std::size_t levels);
  Found pass();
  void guess_bands();
  void run_chunks();
  std::size_t undecided_room() const { return entries_ / 16 + 4096; }
  void settle_levels(Found& found);
  Counted counted(int level, std::size_t range);
  std::optional<Settled> settle(int level, std::size_t range);
  bool over_limit(int level) const;
  Settled settle_threshold(int level, std::size_t range);
  Settled settle_plainly(int level, std::size_t range);
  int smaller_level(std::size_t range) const;
  void nest(std::size_t range);
  void pick_levels(Found& found);
  SparseView take_collected();
  SparseView take_by_cuts(const Level& level);
  SparseView take_picked(const Level& level);
  SparseView joined();
  template <class Work>
  void each_piece(const Work& work);
  const float* source() const { return input_.residual ? input_.residual : input_.gradient; }
  std::span<const float> source_of(const Range& range) const { return {source() + range.begin, range.size}; }

  std::vector<Range> ranges_;
  std::unique_ptr<Compressor> compressor_;
  Workers workers_;
  std::vector<Chunk> chunks_;             // by position
  std::vector<std::size_t> first_chunk_;  // per range, and one more
  std::vector<Piece> pieces_;             // per thread
  std::size_t entries_ = 0;

  Input input_;
  Level levels_[2];
  int level_count_ = 1;
  bool thresholds_given_ = false;  // the bands are thresholds, and `keep` limits the number of survivors
  bool collected_valid_ = false;   // level 0 is in the pieces, and missing in the residual
  bool over_limit_[2] = {false, false};  // more entries reach the given threshold than may survive
  bool full_[2] = {false, false};        // so much was undecided that it was not kept
  double spread_ = 1;                    // learned: how much samples scatter beyond independence
  Scratch scratch_;
  SettleScratch settle_scratch_;
  std::vector<SparseView> runs_;  // the undecided entries of one range and level, chunk by chunk
  std::vector<float> survivors_;
};

}  // namespace gravac
