#include "gravac/codec/select/survey.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gravac {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;  // entries

// A pass over fewer entries than this is over before a second thread has woken up.
constexpr std::size_t kWorthThreads = std::size_t{1} << 17;

double square(float x) {
  return static_cast<double>(x) * x;
}

}  // namespace

Survey::Survey(std::vector<Range> ranges, std::unique_ptr<Selector> compressor,
               std::shared_ptr<Workers> workers)
    : ranges_(std::move(ranges)), compressor_(std::move(compressor)), workers_(std::move(workers)) {
  split();
}

// Cuts the ranges into chunks, and gives each thread consecutive chunks with about as many entries.
void Survey::split() {
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    first_chunk_.push_back(chunks_.size());
    const std::size_t stop = ranges_[r].begin + ranges_[r].size;
    for (std::size_t begin = ranges_[r].begin; begin < stop; begin += kChunk) {
      chunks_.push_back({.range = r, .begin = begin, .end = std::min(begin + kChunk, stop)});
    }
    entries_ += ranges_[r].size;
  }
  first_chunk_.push_back(chunks_.size());
  runs_.reserve(chunks_.size());

  const std::size_t pieces = entries_ < kWorthThreads ? 1 : workers_->size();
  pieces_ = std::vector<Piece>(pieces);
  std::size_t dealt = 0, next = 0;
  for (unsigned p = 0; p < pieces; ++p) {
    Piece& piece = pieces_[p];
    piece.first = next;
    const std::size_t goal = entries_ / pieces * (p + 1);
    while (next < chunks_.size() && (dealt < goal || p + 1 == pieces)) {
      Chunk& chunk = chunks_[next++];
      chunk.piece = p;
      dealt += chunk.end - chunk.begin;
      piece.entries += chunk.end - chunk.begin;
    }
    piece.last = next;
  }
}

// Calls work(piece) for all pieces at the same time, one thread each.
template <class Work>
void Survey::each_piece(const Work& work) {
  if (pieces_.size() == 1) return work(pieces_[0]);
  workers_->run([&](unsigned worker) noexcept {
    if (worker < pieces_.size()) work(pieces_[worker]);
  });
}

Survey::Found Survey::run(const Input& input, std::span<const Keep> levels) {
  for (std::size_t level = 0; level < levels.size(); ++level) levels_[level].keep = levels[level];
  thresholds_given_ = false;
  open(input, levels.size());
  guess_bands();
  return pass();
}

Survey::Found Survey::run(const Input& input, std::span<const std::uint32_t> thresholds,
                          std::span<const std::size_t> most) {
  assert(most.empty() || most.size() == thresholds.size());
  for (std::size_t level = 0; level < thresholds.size(); ++level) limit_by(most, level);
  thresholds_given_ = true;
  open(input, thresholds.size());
  for (std::size_t level = 0; level < thresholds.size(); ++level) {
    levels_[level].bands.assign(ranges_.size(), {thresholds[level], thresholds[level]});
  }
  return pass();
}

// Deals most[level] out to the ranges in proportion to their sizes; the shares add up to it exactly.
void Survey::limit_by(std::span<const std::size_t> most, std::size_t level) {
  const std::size_t all = most.empty() ? entries_ : std::min(most[level], entries_);
  Keep& keep = levels_[level].keep;
  keep.clear();
  std::size_t entries = 0, dealt = 0;
  for (const Range& range : ranges_) {
    entries += range.size;
    const std::size_t due = entries_ == 0 ? 0 : all * entries / entries_;  // positions have 32 bits
    keep.push_back(due - dealt);
    dealt = due;
  }
}

Survey::Found Survey::pass() {
  run_chunks();
  Found found;
  for (const Chunk& chunk : chunks_) {
    found.entered += chunk.totals.entered;
    found.dense += chunk.totals.dense;
    found.finite &= chunk.totals.finite;
  }
  if (!found.finite) return found;
  compressor_->threshold() ? settle_levels(found) : pick_levels(found);
  return found;
}

// Remembers the arguments and reserves room for the entries that the pass will write down. Collected are
// at most twice as many as should be kept, since no compressor may exceed that, and some more for the
// undecided ones. Pages that are never written take no memory, so generous room costs nothing.
void Survey::open(const Input& input, std::size_t levels) {
  input_ = input;
  level_count_ = static_cast<int>(levels);
  std::size_t most = 0;
  for (int i = 0; i < level_count_; ++i) {
    Level& level = levels_[i];
    level.bands.assign(ranges_.size(), {});
    level.settled.assign(ranges_.size(), {});
    std::size_t kept = 0;
    for (const std::size_t keep : level.keep) kept += keep;
    most = std::max(most, kept);
  }
  // One block more than the limit that run_chunks() checks: whether undecided entries are dropped must
  // depend on their total number only, not on how many threads share them.
  const std::size_t open_room = undecided_room() + kBlock;
  for (Piece& piece : pieces_) {
    const std::size_t room[3] = {2 * most + entries_ / 64 + 4096, open_room, open_room};
    Pairs* pairs[3] = {&piece.collected, &piece.undecided[0], &piece.undecided[1]};
    for (int i = 0; i < 3; ++i) {
      // joined() moves the entries of all pieces into the first.
      const std::size_t capacity = std::min(room[i], &piece == &pieces_[0] ? entries_ : piece.entries);
      piece.positions[i].reserve(capacity + Pairs::kSlack);
      piece.values[i].reserve(capacity + Pairs::kSlack);
      *pairs[i] = {piece.positions[i].data(), piece.values[i].data(),
                   piece.positions[i].size() - Pairs::kSlack};
    }
  }
}

// Takes a sample of each range and asks the compressor where the cut of each level probably lies. At
// 25 million entries it costs 5 to 10 % of the pass.
void Survey::guess_bands() {
  const Threshold* threshold = compressor_->threshold();
  if (!threshold) return;
  const float* residual = input_.residual_zero ? nullptr : input_.residual;
  const auto guess = [&](std::size_t r, Sample& sample) noexcept {
    const Range& range = ranges_[r];
    std::size_t size = 0;
    for (int level = 0; level < level_count_; ++level) {
      size = std::max(size, threshold->sample_size(range.size, levels_[level].keep[r]));
    }
    take_sample(input_.gradient + range.begin, residual ? residual + range.begin : nullptr, range.size, size,
                Random(input_.draw_for(r)), sample);
    sample.spread = spread_;
    for (int level = 0; level < level_count_; ++level) {
      const std::size_t keep = levels_[level].keep[r];
      levels_[level].bands[r] = keep < range.size ? threshold->guess(sample, keep) : Band{0, 0};
    }
  };
  // Each range is sampled by the thread that passes over its first entry.
  each_piece([&](Piece& piece) {
    for (std::size_t c = piece.first; c < piece.last; ++c) {
      const Chunk& chunk = chunks_[c];
      if (chunk.begin == ranges_[chunk.range].begin) guess(chunk.range, piece.sample);
    }
  });
}

// The pass over memory: every thread over its chunks.
void Survey::run_chunks() {
  each_piece([&](Piece& piece) {
    Pass pass{.gradient = input_.gradient,
              .residual = input_.residual,
              .residual_zero = input_.residual_zero,
              .two_levels = level_count_ == 2};
    for (std::size_t c = piece.first; c < piece.last; ++c) {
      Chunk& chunk = chunks_[c];
      for (int level = 0; level < level_count_; ++level)
        pass.bands[level] = levels_[level].bands[chunk.range];
      chunk.totals = run_pass(pass, chunk.begin, chunk.end, piece.collected, piece.undecided);
      chunk.collected_end = piece.collected.size;
      for (int level = 0; level < 2; ++level) chunk.undecided_end[level] = piece.undecided[level].size;
    }
  });
  collected_valid_ =
      std::none_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.collected.full; });
  for (int level = 0; level < 2; ++level) {
    std::size_t undecided = 0;
    for (const Piece& piece : pieces_) {
      undecided += piece.undecided[level].full ? undecided_room() + 1 : piece.undecided[level].size;
    }
    full_[level] = undecided > undecided_room();
  }
}

// Finds the exact survivors of every range and level from what the pass counted. After a miss the bands
// are drawn twice as wide; while there is none they slowly narrow again, since wide bands leave more
// entries undecided and so cost time.
void Survey::settle_levels(Found& found) {
  for (int level = 0; level < level_count_; ++level) over_limit_[level] = over_limit(level);
  bool missed = false;
  for (std::size_t range = 0; range < ranges_.size(); ++range) {
    if (ranges_[range].size == 0) continue;
    for (int level = 0; level < level_count_; ++level) {
      const std::optional<Settled> settled =
          thresholds_given_ ? settle_threshold(level, range) : settle(level, range);
      missed |= !settled;
      levels_[level].settled[range] = settled ? *settled : settle_plainly(level, range);
    }
    if (level_count_ == 2) nest(range);
    for (int level = 0; level < level_count_; ++level) {
      found.kept[level] += levels_[level].settled[range].kept;
      found.energy[level] += levels_[level].settled[range].energy;
    }
  }
  spread_ = missed ? std::min(2 * spread_, 16.0) : std::max(0.98 * spread_, 1.0);
}

// What the pass counted in a range. REQUIRES: !full_[level]. Valid until the next call.
Counted Survey::counted(int level, std::size_t range) {
  Counted counted{.band = levels_[level].bands[range]};
  runs_.clear();
  for (std::size_t c = first_chunk_[range]; c < first_chunk_[range + 1]; ++c) {
    const Chunk& chunk = chunks_[c];
    const Piece& piece = pieces_[chunk.piece];
    const Pairs& pairs = piece.undecided[level];
    const std::size_t begin = c == piece.first ? 0 : chunks_[c - 1].undecided_end[level];
    const std::size_t size = chunk.undecided_end[level] - begin;
    counted.sure += chunk.totals.sure_count[level];
    counted.sure_energy += chunk.totals.sure_energy[level];
    if (size > 0) runs_.push_back({{pairs.positions + begin, size}, {pairs.values + begin, size}});
  }
  counted.undecided = runs_;
  return counted;
}

// Settles one range of a level from what the pass counted. Nothing if the sample was misleading: the band
// missed the cut, it left too many entries undecided, or too many or too few entries reach the threshold
// of a compressor that estimates.
std::optional<Settled> Survey::settle(int level, std::size_t range) {
  if (full_[level]) return std::nullopt;
  const std::size_t keep = levels_[level].keep[range];
  const Counted found = counted(level, range);
  if (found.band.lo == found.band.hi) {
    if (!compressor_->threshold()->accepts(found.sure, keep)) return std::nullopt;
    return Settled{{found.band.lo}, found.sure, found.sure_energy};
  }
  if (brackets(found, keep)) return settle_band(found, keep, settle_scratch_);
  if (!needs_zeros(found, keep)) return std::nullopt;
  put_back();  // until then collected entries are zero in the residual, like those to be found
  return settle_with_zeros(found, keep, source_of(ranges_[range]), ranges_[range].begin);
}

// Whether more entries of all ranges reach the given threshold than may survive.
bool Survey::over_limit(int level) const {
  std::size_t reached = 0, most = 0;
  for (const Chunk& chunk : chunks_) reached += chunk.totals.sure_count[level];
  for (const std::size_t keep : levels_[level].keep) most += keep;
  return thresholds_given_ && reached > most;
}

// Settles a level whose threshold was given: the pass has counted all that is needed, unless so many
// entries reach the threshold that only the largest of them may survive.
Settled Survey::settle_threshold(int level, std::size_t range) {
  const Counted found = counted(level, range);
  const std::size_t most = levels_[level].keep[range];
  if (!over_limit_[level] || found.sure <= most) {
    return {{found.band.lo}, found.sure, found.sure_energy};
  }
  put_back();
  return settle_exactly(source_of(ranges_[range]), ranges_[range].begin, most, scratch_);
}

// Settles one range of a level by the compressor's own definition, which needs no sample but takes
// further passes over the range.
Settled Survey::settle_plainly(int level, std::size_t range) {
  put_back();
  const std::span<const float> values = source_of(ranges_[range]);
  const std::size_t begin = ranges_[range].begin, keep = levels_[level].keep[range];
  Cut cut = compressor_->threshold()->cut(values, keep, input_.draw_for(range), scratch_);
  if (cut.last != Cut{}.last) cut.last += static_cast<std::uint32_t>(begin);
  return settle_at(cut, values, begin);
}

// The level that keeps fewer entries of a range.
int Survey::smaller_level(std::size_t range) const {
  const std::uint32_t thresholds[2] = {levels_[0].bands[range].lo, levels_[1].bands[range].lo};
  if (thresholds_given_ && thresholds[0] != thresholds[1]) return thresholds[0] > thresholds[1] ? 0 : 1;
  return levels_[0].keep[range] < levels_[1].keep[range] ? 0 : 1;
}

// Makes sure that the survivors of the smaller level are among those of the larger one. With exact cuts
// they always are. Two estimated thresholds may come out in the wrong order, and so may two limits; then
// both levels get the survivors of the larger one.
void Survey::nest(std::size_t range) {
  const int few = smaller_level(range);
  Settled& inner = levels_[few].settled[range];
  const Settled& outer = levels_[1 - few].settled[range];
  if (nested(inner.cut, outer.cut)) return;
  if (few == 0) put_back();  // the pass collected level 0 by the cut that is now replaced
  inner = outer;
}

// For compressors that do not go by magnitude, such as randomk: they choose positions. The smaller level
// chooses among the survivors of the larger one.
void Survey::pick_levels(Found& found) {
  for (Level& level : levels_) level.picked.clear();
  for (std::size_t range = 0; range < ranges_.size(); ++range) {
    const std::size_t begin = ranges_[range].begin, size = ranges_[range].size;
    if (size == 0) continue;
    const int few = level_count_ == 2 && levels_[0].keep[range] < levels_[1].keep[range] ? 0 : 1;
    Draw draw = input_.draw_for(range);

    std::vector<std::uint32_t>& outer = levels_[1 - few].picked;
    const std::size_t outer_begin = outer.size();
    compressor_->pick({source() + begin, size}, levels_[1 - few].keep[range], draw, outer);
    survivors_.resize(outer.size() - outer_begin);
    for (std::size_t i = 0; i < survivors_.size(); ++i) {
      outer[outer_begin + i] += static_cast<std::uint32_t>(begin);
      survivors_[i] = source()[outer[outer_begin + i]];
    }
    found.energy[1 - few] += energy(survivors_);
    found.kept[1 - few] += survivors_.size();
    if (level_count_ == 1) continue;

    std::vector<std::uint32_t>& inner = levels_[few].picked;
    const std::size_t inner_begin = inner.size();
    draw.segment += std::uint64_t{1} << 32;  // other random numbers than for the larger level
    compressor_->pick(survivors_, std::min(levels_[few].keep[range], survivors_.size()), draw, inner);
    for (std::size_t i = inner_begin; i < inner.size(); ++i) {
      found.energy[few] += square(survivors_[inner[i]]);
      inner[i] = outer[outer_begin + inner[i]];
    }
    found.kept[few] += inner.size() - inner_begin;
  }
}

// The cut of the range that a position is in. Empty ranges begin where the next one does, so the last of
// those that begin there is the one.
const Cut& Survey::cut_at(int level, std::size_t position) const {
  const auto after = std::ranges::upper_bound(ranges_, position, {}, &Range::begin);
  return levels_[level].settled[static_cast<std::size_t>(after - ranges_.begin()) - 1].cut;
}

// Entries that the pass has collected are zero in the residual, and so add nothing there; they are added from
// where they were collected. Without a residual nothing was set to zero.
std::vector<double> Survey::energies(int level, std::span<const Range> parts) const {
  std::vector<double> sums(parts.size(), 0);
  std::size_t part = 0;
  const auto add = [&](std::size_t position, float value) {  // positions come in ascending order
    while (position >= parts[part].begin + parts[part].size) ++part;
    sums[part] += square(value);
  };
  if (!compressor_->threshold()) {
    for (const std::uint32_t position : levels_[level].picked) add(position, source()[position]);
    return sums;
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto [begin, size] = parts[p];
    if (size > 0) sums[p] = settle_at(cut_at(level, begin), {source() + begin, size}, begin).energy;
  }
  for (const Piece& piece : pieces_) {
    for (std::size_t i = 0; i < piece.collected.size && input_.residual; ++i) {
      const std::uint32_t position = piece.collected.positions[i];
      const float value = piece.collected.values[i];
      if (cut_at(level, position).keeps(value, position)) add(position, value);
    }
  }
  return sums;
}

SparseView Survey::take(int level) {
  assert(level < level_count_);
  if (!compressor_->threshold()) return take_picked(levels_[level]);
  if (level == 0 && collected_valid_) return take_collected();
  put_back();
  return take_by_cuts(levels_[level]);
}

// The usual case: the pass has collected level 0. It collected the undecided entries too; those that do
// not survive go back into the residual.
SparseView Survey::take_collected() {
  const Level& level = levels_[0];
  for (std::size_t range = 0; range < ranges_.size() && input_.residual; ++range) {
    for (const SparseView& run : counted(0, range).undecided) {
      for (std::size_t i = 0; i < run.size(); ++i) {
        const std::uint32_t position = run.positions[i];
        if (!level.settled[range].cut.keeps(run.values[i], position))
          input_.residual[position] = run.values[i];
      }
    }
  }
  each_piece([&](Piece& piece) {
    if (piece.undecided[0].size == 0) return;
    std::size_t next = 0, begin = 0;
    for (std::size_t c = piece.first; c < piece.last; ++c) {
      filter(piece.collected, begin, chunks_[c].collected_end, level.settled[chunks_[c].range].cut, next);
      begin = chunks_[c].collected_end;
    }
    piece.collected.size = next;
  });
  collected_valid_ = false;
  return joined();
}

// The other level was expected, or the pass ran out of room: reads all entries once more and collects by
// the cut, which is known by now.
SparseView Survey::take_by_cuts(const Level& level) {
  each_piece([&](Piece& piece) {
    piece.collected.size = 0;
    for (std::size_t c = piece.first; c < piece.last; ++c) {
      const Chunk& chunk = chunks_[c];
      gather(source(), chunk.begin, chunk.end, level.settled[chunk.range].cut, piece.collected);
    }
    if (!input_.residual) return;
    for (std::size_t i = 0; i < piece.collected.size; ++i) input_.residual[piece.collected.positions[i]] = 0;
  });
  return joined();
}

SparseView Survey::take_picked(const Level& level) {
  Pairs& out = pieces_[0].collected;
  out.size = 0;
  for (const std::uint32_t position : level.picked) {
    out.append(position, source()[position]);
    if (input_.residual) input_.residual[position] = 0;
  }
  return {{out.positions, out.size}, {out.values, out.size}};
}

// Moves the collected entries of all pieces behind those of the first.
SparseView Survey::joined() {
  Pairs& all = pieces_[0].collected;
  for (std::size_t p = 1; p < pieces_.size(); ++p) {
    const Pairs& part = pieces_[p].collected;
    std::copy_n(part.positions, part.size, all.positions + all.size);
    std::copy_n(part.values, part.size, all.values + all.size);
    all.size += part.size;
  }
  return {{all.positions, all.size}, {all.values, all.size}};
}

void Survey::put_back() {
  for (Piece& piece : pieces_) {
    for (std::size_t i = 0; i < piece.collected.size && input_.residual; ++i) {
      input_.residual[piece.collected.positions[i]] = piece.collected.values[i];
    }
    piece.collected.size = 0;
  }
  collected_valid_ = false;
}

void Survey::undo() {
  each_piece([&](Piece& piece) {
    for (std::size_t c = piece.first; c < piece.last; ++c) {
      undo_pass(input_.gradient, input_.residual, chunks_[c].begin, chunks_[c].end);
    }
  });
}

}  // namespace gravac
