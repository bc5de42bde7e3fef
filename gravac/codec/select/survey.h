#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gravac/codec/select/histogram.h"
#include "gravac/codec/select/selector.h"
#include "gravac/codec/select/settle.h"
#include "gravac/util/buffer.h"
#include "gravac/util/kernels.h"
#include "gravac/util/random.h"
#include "gravac/util/workers.h"
#include "gravac/wire/sparse.h"

namespace gravac {

// Consecutive entries that a compressor chooses from: a layer, or the whole gradient.
struct Range {
  std::size_t begin = 0, size = 0;
};

// One step's gradient and residual. The survey writes to the residual; without error feedback it is null.
struct Input {
  const float* gradient = nullptr;
  float* residual = nullptr;
  bool residual_zero = false;            // treat the residual as zero and do not read it
  Draw draw;                             // seed and step, for random choices
  std::span<const std::size_t> numbers;  // of the ranges, for those choices; empty: 0, 1, 2 ...

  Draw draw_for(std::size_t range) const {
    return {draw.seed, draw.step, numbers.empty() ? range : numbers[range]};
  }
};

// Finds which entries of gradient + residual survive compression at one or two levels, and their energy
// (sum of squares), in one pass over memory; then hands out the survivors of one level.
//
// Exact Top-k needs the k-th largest magnitude before it can tell which entries survive, and finding that
// takes at least one pass of its own. The survey saves that pass by guessing:
//
// 1. Sample. It reads a few thousand cache lines, spread over the gradient, and estimates the k-th largest
//    magnitude from them. A sample cannot give the exact value, so the estimate is a band [lo, hi) that
//    almost always contains it: entries at or above hi surely survive, entries below lo surely do not.
// 2. Pass. It adds the gradient to the residual, sums the energies, counts the sure entries and writes
//    down the undecided ones between lo and hi (about one entry in a hundred). Entries at or above lo of the
//    level that will probably be sent are collected and set to zero in the residual on the way.
// 3. Settle (settle.h). The counts are exact, whatever the sample was. If they show that the k-th largest
//    entry lies in the band, the missing survivors are picked from the undecided entries.
// 4. Otherwise the sample was misleading. Everything collected goes back into the residual, and the
//    compressor's own definition is carried out in further passes. The next bands are drawn wider.
//
// So a bad sample costs time and never changes the result. docs/algorithm.md, "The fused pass", has the
// proof; the passes are in kernels.h.
class Survey {
 public:
  Survey(std::vector<Range> ranges, std::unique_ptr<Selector> compressor, std::shared_ptr<Workers> workers);

  // How many entries to keep of each range, at one level.
  using Keep = std::vector<std::size_t>;

  struct Found {
    double entered = 0, dense = 0;  // energies of the gradient, and of gradient + residual
    double energy[2] = {0, 0};      // energy of each level's survivors
    std::size_t kept[2] = {0, 0};   // number of each level's survivors
    bool finite = true;             // false: only put_back() and undo() may follow
  };
  // Finds the survivors of one or two levels. Level 0 is the one that will probably be taken: taking it is
  // cheap, taking level 1 costs one more pass. The survivors of the level that keeps fewer entries are
  // always among the survivors of the other.
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

  // The energy of one level's survivors of the last run, separately for each of `parts`, which are
  // consecutive and each within one range. Costs a read of all entries.
  std::vector<double> energies(int level, std::span<const Range> parts) const;

  // Hands out the survivors of one level of the last run and sets them to zero in the residual. The
  // view is valid until the next run.
  SparseView take(int level);
  // Takes nothing: afterwards the residual is gradient + residual of the last run.
  void put_back();
  // After put_back(): subtracts the gradient from the residual again. Exact up to rounding.
  void undo();

  // How many times wider bands are drawn than independent entries would need, at least 1. Rows of a matrix
  // often share a scale, so a sample of few rows misleads more than its size suggests; every miss widens
  // the next bands. Saved in checkpoints, because energies are rounded differently for other bands.
  double spread() const { return spread_; }
  void set_spread(double spread) { spread_ = spread; }

 private:
  // Entries [begin, end) of one range. How a gradient is cut into chunks does not depend on the number of
  // threads, and sums are added chunk by chunk, so the results do not depend on it either.
  struct Chunk {
    std::size_t range = 0, begin = 0, end = 0;
    unsigned piece = 0;                     // which thread passes over it
    Totals totals;                          // what the pass summed and counted
    std::size_t collected_end = 0;          // where its entries end in the piece's collected
    std::size_t undecided_end[2] = {0, 0};  // and in the piece's undecided
  };
  // The chunks that one thread passes over, and room for the entries it finds there.
  struct Piece {
    std::size_t first = 0, last = 0;  // chunks [first, last)
    std::size_t entries = 0;          // of all those chunks
    Buffer<std::uint32_t> positions[3];
    Buffer<float> values[3];
    Pairs collected, undecided[2];
    Sample sample;
  };
  struct Level {
    Keep keep;                          // per range: how many to keep, or at most to keep
    std::vector<Band> bands;            // per range, before the pass
    std::vector<Settled> settled;       // per range, after it
    std::vector<std::uint32_t> picked;  // the survivors, if the compressor does not go by magnitude
  };

  void split();
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
  const Cut& cut_at(int level, std::size_t position) const;
  void nest(std::size_t range);
  void pick_levels(Found& found);
  SparseView take_collected();
  SparseView take_by_cuts(const Level& level);
  SparseView take_picked(const Level& level);
  SparseView joined();
  template <class Work>
  void each_piece(const Work& work);
  // gradient + residual of every entry, except that collected entries are zero there until put_back().
  const float* source() const { return input_.residual ? input_.residual : input_.gradient; }
  std::span<const float> source_of(const Range& range) const { return {source() + range.begin, range.size}; }

  std::vector<Range> ranges_;
  std::unique_ptr<Selector> compressor_;
  std::shared_ptr<Workers> workers_;
  std::vector<Chunk> chunks_;             // by position
  std::vector<std::size_t> first_chunk_;  // range r has the chunks [first_chunk_[r], first_chunk_[r + 1])
  std::vector<Piece> pieces_;             // one for each thread
  std::size_t entries_ = 0;

  Input input_;
  Level levels_[2];
  int level_count_ = 1;
  bool thresholds_given_ = false;  // the bands are thresholds, and `keep` limits the number of survivors
  bool collected_valid_ = false;   // the pieces hold all of level 0, which is zero in the residual
  bool over_limit_[2] = {false, false};  // more entries reach the given threshold than may survive
  bool full_[2] = {false, false};        // too many entries were undecided to write them all down
  double spread_ = 1;
  Scratch scratch_;
  SettleScratch settle_scratch_;
  std::vector<SparseView> runs_;  // the undecided entries of one range and level, chunk by chunk
  std::vector<float> survivors_;
};

}  // namespace gravac
