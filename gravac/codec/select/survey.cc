#include "gravac/codec/select/survey.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gravac {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 16;
constexpr std::size_t kWorthThreads = std::size_t{1}
                                      << 17;  // fewer entries are passed over sooner than a thread wakes

double square(float x) {
  return static_cast<double>(x) * x;
}

}  // namespace

Survey::Survey(std::vector<Range> ranges, std::unique_ptr<Compressor> compressor, unsigned threads)
    : ranges_(std::move(ranges)), compressor_(std::move(compressor)), workers_(threads) {
  split(threads);
}

// Cuts the ranges into chunks, and deals the chunks out to threads in runs of about equal size.
void Survey::split(unsigned threads) {
  for (std::size_t r = 0; r < ranges_.size(); ++r) {
    first_chunk_.push_back(chunks_.size());
    const std::size_t stop = ranges_[r].begin + ranges_[r].size;
    for (std::size_t begin = ranges_[r].begin; begin < stop; begin += kChunk) {
      chunks_.push_back({.range = r, .begin = begin, .end = std::min(begin + kChunk, stop)});
    }
    entries_ += ranges_[r].size;
  }
  first_chunk_.push_back(chunks_.size());

  const std::size_t pieces = entries_ < kWorthThreads ? 1 : threads;
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

// Calls work(piece) for all pieces at the same time.
template <class Work>
void Survey::each_piece(const Work& work) {
  if (pieces_.size() == 1) return work(pieces_[0]);
  workers_.run([&](unsigned worker) noexcept {
    if (worker < pieces_.size()) work(pieces_[worker]);
  });
}

Survey::Found Survey::run(const Input& input, std::span<const Keep> levels) {
  open(input, levels);
  settled_before_ = false;
  guess_bands();
  return pass();
}

Survey::Found Survey::run(const Input& input, std::span<const std::uint32_t> thresholds) {
  Keep all;  // any number may survive: make room for all
  for (const Range& range : ranges_) all.push_back(range.size);
  open(input, std::vector<Keep>(thresholds.size(), all));
  settled_before_ = true;
  for (std::size_t level = 0; level < thresholds.size(); ++level) {
    levels_[level].bands.assign(ranges_.size(), {thresholds[level], thresholds[level]});
  }
  return pass();
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

// Takes note of the arguments and makes room: for twice what is to be kept (no
// compressor is allowed more) and some slack. Room not used costs no memory.
void Survey::open(const Input& input, std::span<const Keep> levels) {
  input_ = input;
  level_count_ = static_cast<int>(levels.size());
  std::size_t most = 0;
  for (int i = 0; i < level_count_; ++i) {
    Level& level = levels_[i];
    level.keep = levels[static_cast<std::size_t>(i)];
    level.bands.assign(ranges_.size(), {});
    level.settled.assign(ranges_.size(), {});
    std::size_t kept = 0;
    for (const std::size_t keep : level.keep) kept += keep;
    most = std::max(most, kept);
  }
  // A piece's undecided may pass the limit by one block before they are dropped,
  // so that dropping never depends on how many pieces there are.
  const std::size_t open_room = undecided_room() + kBlock;
  for (Piece& piece : pieces_) {
    const std::size_t room[3] = {2 * most + entries_ / 64 + 4096, open_room, open_room};
    Pairs* pairs[3] = {&piece.collected, &piece.undecided[0], &piece.undecided[1]};
    for (int i = 0; i < 3; ++i) {
      // The first piece's room also has to hold what is joined from all of them.
      const std::size_t capacity = std::min(room[i], &piece == &pieces_[0] ? entries_ : piece.entries);
      piece.positions[i].reserve(capacity + Pairs::kSlack);
      piece.values[i].reserve(capacity + Pairs::kSlack);
      *pairs[i] = {piece.positions[i].data(), piece.values[i].data(),
                   piece.positions[i].size() - Pairs::kSlack};
    }
  }
}

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
  // Each range is guessed by the thread that passes over its first entry.
  each_piece([&](Piece& piece) {
    for (std::size_t c = piece.first; c < piece.last; ++c) {
      const Chunk& chunk = chunks_[c];
      if (chunk.begin == ranges_[chunk.range].begin) guess(chunk.range, piece.sample);
    }
  });
}

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

// Calls visit(position, value) for what the pass left undecided in a range, by position.
template <class Visit>
void Survey::each_undecided(int level, std::size_t range, const Visit& visit) const {
  for (std::size_t c = first_chunk_[range]; c < first_chunk_[range + 1]; ++c) {
    const Piece& piece = pieces_[chunks_[c].piece];
    const Pairs& pairs = piece.undecided[level];
    std::size_t i = c == piece.first ? 0 : chunks_[c - 1].undecided_end[level];
    for (const std::size_t end = chunks_[c].undecided_end[level]; i < end; ++i)
      visit(pairs.positions[i], pairs.values[i]);
  }
}

void Survey::settle_levels(Found& found) {
  bool missed = false;
  for (std::size_t range = 0; range < ranges_.size(); ++range) {
    if (ranges_[range].size == 0) continue;
    for (int level = 0; level < level_count_; ++level) {
      const std::optional<Settled> settled = settle(level, range);
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

Survey::Tally Survey::tally(int level, std::size_t range) const {
  Tally tally;
  for (std::size_t c = first_chunk_[range]; c < first_chunk_[range + 1]; ++c) {
    const Chunk& chunk = chunks_[c];
    const Piece& piece = pieces_[chunk.piece];
    tally.undecided +=
        chunk.undecided_end[level] - (c == piece.first ? 0 : chunks_[c - 1].undecided_end[level]);
    tally.sure += chunk.totals.sure_count[level];
    tally.energy += chunk.totals.sure_energy[level];
  }
  return tally;
}

// Settles a level from what the pass counted; nothing if the guess was too far off.
std::optional<Survey::Settled> Survey::settle(int level, std::size_t range) {
  if (full_[level]) return std::nullopt;
  const Band band = levels_[level].bands[range];
  const std::size_t keep = levels_[level].keep[range];
  const Tally found = tally(level, range);
  if (band.lo == band.hi) {
    if (!settled_before_ && !compressor_->threshold()->accepts(found.sure, keep)) return std::nullopt;
    return Settled{{band.lo}, found.sure, found.energy};
  }
  const bool zeros = keep > found.sure + found.undecided;  // some of those kept must be 0
  if (keep < found.sure || (zeros && band.lo > 1)) return std::nullopt;
  return settle_band(level, range, found);
}

// Settles exactly which of the undecided survive.
Survey::Settled Survey::settle_band(int level, std::size_t range, const Tally& found) {
  const std::size_t keep = levels_[level].keep[range], need = keep - found.sure;
  Settled settled{{levels_[level].bands[range].hi}, keep, found.energy};
  if (need == 0) return settled;
  if (need <= found.undecided) {
    settled.energy += keep_largest_undecided(level, range, found, settled.cut);
    return settled;
  }
  // All of them, and the first zeros.
  each_undecided(level, range, [&](std::uint32_t, float value) { settled.energy += square(value); });
  put_back();
  std::size_t zeros = need - found.undecided, i = ranges_[range].begin;
  while (magnitude(source()[i]) != 0 || --zeros > 0) ++i;
  settled.cut = {0, static_cast<std::uint32_t>(i)};
  return settled;
}

// Finds the cut that keeps as many of the largest undecided as are still needed;
// returns their energy. A histogram finds the few among which to search.
double Survey::keep_largest_undecided(int level, std::size_t range, const Tally& found, Cut& cut) {
  const Band band = levels_[level].bands[range];
  const std::size_t bins = found.undecided > 512 ? 2048 : 1;
  int shift = 0;
  while (((band.hi - band.lo - 1) >> shift) >= bins) ++shift;
  const auto bin_of = [&](float value) { return (magnitude(value) - band.lo) >> shift; };

  counts_.assign(bins, 0);
  energies_.assign(bins, 0);
  each_undecided(level, range, [&](std::uint32_t, float value) {
    const std::uint32_t bin = bin_of(value);
    ++counts_[bin];
    energies_[bin] += square(value);
  });
  double kept = 0;
  std::size_t bin = bins - 1, need = levels_[level].keep[range] - found.sure;
  for (; counts_[bin] < need; --bin) {
    need -= counts_[bin];
    kept += energies_[bin];
  }
  candidates_.clear();
  each_undecided(level, range, [&](std::uint32_t position, float value) {
    if (bin_of(value) == bin) candidates_.push_back({magnitude(value), position, value});
  });
  const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(need - 1);
  std::nth_element(candidates_.begin(), last, candidates_.end());
  for (auto in = candidates_.begin(); in <= last; ++in) kept += square(in->value);
  cut = {last->magnitude, last->position};
  return kept;
}

// Settles a level by the compressor's own definition, in passes of its own.
Survey::Settled Survey::settle_plainly(int level, std::size_t range) {
  put_back();
  const std::size_t begin = ranges_[range].begin, size = ranges_[range].size;
  const Draw draw = input_.draw_for(range);
  Settled settled;
  settled.cut =
      compressor_->threshold()->cut({source() + begin, size}, levels_[level].keep[range], draw, scratch_);
  if (settled.cut.last != Cut{}.last) settled.cut.last += static_cast<std::uint32_t>(begin);
  for (std::size_t i = begin; i < begin + size; ++i) {
    if (!settled.cut.keeps(source()[i], static_cast<std::uint32_t>(i))) continue;
    ++settled.kept;
    settled.energy += square(source()[i]);
  }
  return settled;
}

// The survivors of the level that keeps fewer are among those of the other.
// Exact cuts are nested by themselves; two estimates may have crossed.
void Survey::nest(std::size_t range) {
  const int few = levels_[0].keep[range] < levels_[1].keep[range] ? 0 : 1;
  Settled& inner = levels_[few].settled[range];
  const Settled& outer = levels_[1 - few].settled[range];
  const bool nested =
      inner.cut.bits != outer.cut.bits ? inner.cut.bits > outer.cut.bits : inner.cut.last <= outer.cut.last;
  if (nested) return;
  if (few == 0) put_back();  // level 0 was collected by its old cut
  inner = outer;
}

// Compressors that do not go by magnitude choose positions; the level that keeps
// fewer chooses among the survivors of the other.
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
    draw.segment += std::uint64_t{1} << 32;  // not the same draw again
    compressor_->pick(survivors_, std::min(levels_[few].keep[range], survivors_.size()), draw, inner);
    for (std::size_t i = inner_begin; i < inner.size(); ++i) {
      found.energy[few] += square(survivors_[inner[i]]);
      inner[i] = outer[outer_begin + inner[i]];
    }
    found.kept[few] += inner.size() - inner_begin;
  }
}

SparseView Survey::take(int level) {
  assert(level < level_count_);
  if (!compressor_->threshold()) return take_picked(levels_[level]);
  if (level == 0 && collected_valid_) return take_collected();
  put_back();
  return take_by_cuts(levels_[level]);
}

// The usual way: level 0 has been collected by the pass. The undecided that did
// not make it go back into the residual.
SparseView Survey::take_collected() {
  const Level& level = levels_[0];
  for (std::size_t range = 0; range < ranges_.size() && input_.residual; ++range) {
    each_undecided(0, range, [&](std::uint32_t position, float value) {
      if (!level.settled[range].cut.keeps(value, position)) input_.residual[position] = value;
    });
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

// Another level than expected: one more read, now with a known cut.
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

// Moves what the pieces hold together.
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
