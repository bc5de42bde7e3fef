#include "gravac/codec/low_rank_codec.h"

#include <algorithm>
#include <cmath>

#include "gravac/codec/low_rank/column.h"
#include "gravac/codec/low_rank/orthonormalise.h"
#include "gravac/codec/low_rank/ranks.h"
#include "gravac/util/kernels.h"
#include "gravac/util/random.h"
#include "gravac/util/require.h"

namespace gravac {

LowRankCodec::LowRankCodec(const Layout& layout, const EngineOptions& options, Comm& comm, Clock& clock)
    : ResidualCodec(layout, options, comm, clock),
      residual_("residual", options.step.feedback ? layout.entries() : 0),
      warm_start_("warm start", layout.entries(), Memory::Sharing::equal, Pages::small),
      workers_(workers_of(options.step)),
      sum_(comm, clock, options.values) {
  require(!options.momentum, "compressor: powersgd cannot keep a momentum memory; use memory=residual");
  for (std::size_t s = 0; s < layout.segments().size(); ++s) {
    const Segment& segment = layout.segments()[s];
    if (segment.size == 0) continue;
    parts_.push_back({.segment = s,
                      .number = options.step.numbers.empty() ? s : options.step.numbers[s],
                      .begin = segment.begin,
                      .rows = segment.rows,
                      .columns = segment.size / segment.rows});
  }
}

Coder& LowRankCodec::coder() {
  throw Error("compressor: powersgd has no payloads; its factors are added up");
}

// What is kept of a segment from earlier steps; empty if that is nothing.
std::span<const float> LowRankCodec::kept(const Part& part) {
  if (residual_.zero()) return {};
  return residual_.values().subspan(part.begin, part.rows * part.columns);
}

ErrorFedMatrix LowRankCodec::matrix(const Part& part, std::span<const float> gradient) {
  return {gradient.subspan(part.begin, part.rows * part.columns), kept(part), part.rows};
}

std::span<float> LowRankCodec::left(const Part& part, std::size_t columns) {
  return std::span(p_).subspan(part.p, columns * part.rows);
}

std::span<float> LowRankCodec::start_of(const Part& part, std::size_t columns) {
  return warm_start_.values().subspan(part.begin, columns * part.columns);
}

Measurement LowRankCodec::measure(std::span<const float> gradient, std::span<const float> /*weights*/,
                                  const Request& request) {
  set_aside(gradient);
  clock_.spend(options_.compress_seconds_per_entry * static_cast<double>(gradient.size()));
  measured_ = false;
  if (!request.plan) return measure_dense(gradient);
  choose_ranks(request);
  Measurement found = multiply(gradient);
  const double start = clock_.now();
  contributed_.resize(options_.values == Values::fp32 ? 0 : p_.size());
  const Traffic traffic = sum_.mean(p_, p_lengths_, found.finite, request.step, 0, contributed_);
  found.exchange_seconds = clock_.now() - start;
  found.bytes = traffic.bytes_sent;
  found.finite = measured_ = !traffic.bad;
  if (!measured_) return found;
  found.add(project(gradient));
  if (request.needs.sum) found.statistics.sum = sum_of(gradient);
  if (request.needs.norms) found.statistics.norms.entered = norms_of(gradient);
  return found;
}

// One rank for all matrices at each factor of the plan; or, if each segment has a factor of its own, the rank
// that all would have at that factor. The higher factor, the candidate, has the lower rank.
void LowRankCodec::choose_ranks(const Request& request) {
  const Layout& whole = options_.whole ? *options_.whole : layout_;
  const Values values = options_.values;
  const std::size_t minimum = rank_for(whole, request.plan->minimum, values);
  const std::size_t candidate = rank_for(whole, request.plan->candidate, values);
  std::size_t p = 0, q = 0;
  p_lengths_.clear();
  for (Part& part : parts_) {
    part.rank = minimum;
    part.candidate_rank = candidate;
    if (!request.segment_factors.empty()) {
      part.rank = part.candidate_rank = rank_for(whole, request.segment_factors[part.segment], values);
    }
    if (!compresses(part.rows, part.columns, part.rank, values)) part.rank = part.candidate_rank = 0;
    part.p = p;
    part.q = q;
    p += part.rank > 0 ? part.rank * part.rows : part.rows * part.columns;
    q += part.rank * part.columns;
    const std::size_t pieces = std::max<std::size_t>(part.rank, 1);
    p_lengths_.insert(p_lengths_.end(), pieces, part.rank > 0 ? part.rows : part.rows * part.columns);
    draw_columns(part);
  }
  p_.resize(p);
  q_.resize(q);
}

// Columns of Q that are not there yet, because the rank has risen or nothing was found along them, are drawn
// at random, the same on all ranks.
void LowRankCodec::draw_columns(const Part& part) {
  for (std::size_t k = 0; k < part.rank; ++k) {
    const std::span<float> column = start_of(part, k + 1).subspan(k * part.columns);
    if (std::ranges::any_of(column, [](float x) { return x != 0; })) continue;
    const Random random({options_.step.seed, k, part.number});
    for (std::size_t j = 0; j < part.columns; ++j) {
      column[j] = static_cast<float>(static_cast<std::int32_t>(random.at(j) >> 32)) * 0x1p-31f;
    }
  }
}

// What a matrix is multiplied with: the mean of Q that the last step left. If factors are rounded, its
// columns are made orthonormal first: columns that point nearly the same way would be told apart by less than
// what rounding P changes. The span of P, and with floats P itself, is the same either way.
std::span<const float> LowRankCodec::basis(const Part& part) {
  const std::span<const float> start = start_of(part, part.rank);
  if (options_.values == Values::fp32) return start;
  const std::span<float> columns = std::span(q_).subspan(part.q, start.size());
  std::ranges::copy(start, columns.begin());
  orthonormalise(columns, part.rank, scratch_);
  return columns;
}

// P = M Q, and the energies of M. Of what travels whole: M itself.
Measurement LowRankCodec::multiply(std::span<const float> gradient) {
  Measurement found;
  for (const Part& part : parts_) {
    if (part.rank > 0) {
      const MatrixEnergy energies =
          gravac::multiply(matrix(part, gradient), basis(part), left(part, part.rank), workers_.get());
      found.energy.entered += energies.entered;
      found.energy.dense += energies.dense;
      found.finite &= energies.finite;
      continue;
    }
    const std::size_t size = part.rows * part.columns;
    const std::span<const float> entered = gradient.subspan(part.begin, size);
    const std::span<float> whole = std::span(p_).subspan(part.p, size);
    std::ranges::copy(entered, whole.begin());
    if (const auto rest = kept(part); !rest.empty()) add_into(whole, rest);
    const double dense = energy(whole);
    found.energy.entered += energy(entered);
    found.energy.dense += dense;
    found.energy.minimum += dense;
    found.energy.candidate += dense;
    found.statistics.norms.minimum += std::sqrt(dense);
    found.statistics.norms.candidate += std::sqrt(dense);
  }
  found.finite &= std::isfinite(found.energy.entered) && fits(found.energy.dense);
  return found;
}

// Whether a matrix of this energy can be sent. No entry of its factors, of which one is orthonormal, is
// larger than the root of the energy, and only numbers below 2^64 can be rounded, sums included.
bool LowRankCodec::fits(double energy) const {
  if (options_.values == Values::fp32) return std::isfinite(energy);
  return std::sqrt(energy) * static_cast<double>(comm_.size()) < 0x1p64;
}

std::size_t LowRankCodec::bytes_of_all(std::span<const std::size_t> lengths) const {
  std::size_t bytes = 0;
  for (const std::size_t length : lengths) bytes += column_bytes(options_.values, length);
  return bytes;
}

// The numbers of 32 bits that the parts take with the ranks in this member of theirs.
std::size_t LowRankCodec::numbers(std::size_t Part::*rank) const {
  std::size_t bytes = 0;
  for (const Part& part : parts_) {
    bytes += part.rank > 0 ? bytes_of_factors(part.rows, part.columns, part.*rank, options_.values)
                           : column_bytes(options_.values, part.rows * part.columns);
  }
  return bytes / 4;
}

// Q = M' P with P orthonormal. A column of Q then holds the energy of M along that column of P.
Measurement LowRankCodec::project(std::span<const float> gradient) {
  Measurement found;
  for (const Part& part : parts_) {
    if (part.rank == 0) continue;
    const std::span<float> p = left(part, part.rank);
    orthonormalise(p, part.rank, scratch_);
    multiply_transposed(matrix(part, gradient), p, std::span(q_).subspan(part.q, part.rank * part.columns),
                        workers_.get());
    double minimum = 0, candidate = 0;
    for (std::size_t k = 0; k < part.rank; ++k) {
      minimum += energy(std::span(q_).subspan(part.q + k * part.columns, part.columns));
      if (k + 1 == part.candidate_rank) candidate = minimum;
    }
    found.energy.minimum += minimum;
    found.energy.candidate += candidate;
    found.statistics.norms.minimum += std::sqrt(minimum);
    found.statistics.norms.candidate += std::sqrt(candidate);
  }
  found.minimum_kept = numbers(&Part::rank);
  found.candidate_kept = numbers(&Part::candidate_rank);
  return found;
}

// Puts the columns that are to be sent one behind the other.
void LowRankCodec::take(const Order& order) {
  std::size_t q = 0;
  q_lengths_.clear();
  for (Part& part : parts_) {
    part.sent = order.sent == Send::minimum ? part.rank : part.candidate_rank;
    const std::size_t size = part.sent * part.columns;
    std::copy_n(q_.begin() + static_cast<std::ptrdiff_t>(part.q), size,
                q_.begin() + static_cast<std::ptrdiff_t>(q));
    part.q = q;
    q += size;
    q_lengths_.insert(q_lengths_.end(), part.sent, part.columns);
  }
  q_.resize(q);
  mine_.resize(q);
}

Traffic LowRankCodec::exchange(const Order& order, bool usable, std::span<float> gradient) {
  if (!usable) return {.bad = true};  // as all ranks know: the sum of P was bad
  Traffic traffic = sum_.mean(q_, q_lengths_, true, order.step, 1, mine_);
  require(!traffic.bad, "compressor: powersgd: a sum of factors is too large for a float");
  const double start = clock_.now();
  traffic.entries_sent = (bytes_of_all(p_lengths_) + bytes_of_all(q_lengths_)) / 4;
  for (const Part& part : parts_)
    part.rank > 0 ? finish_matrix(part, gradient) : finish_whole(part, gradient);
  traffic.take_seconds = clock_.now() - start;
  return traffic;
}

// Nothing is left of what travelled whole, unless it was rounded.
void LowRankCodec::finish_whole(const Part& part, std::span<float> gradient) {
  const std::size_t size = part.rows * part.columns;
  const std::span<float> mean = gradient.subspan(part.begin, size);
  if (residual_.size() > 0) {
    const std::span<float> rest = residual_.values().subspan(part.begin, size);
    for (std::size_t i = 0; i < size; ++i) {
      rest[i] = contributed_.empty() ? 0 : mean[i] + rest[i] - contributed_[part.p + i];
    }
  }
  std::copy_n(p_.begin() + static_cast<std::ptrdiff_t>(part.p), size, mean.begin());
}

// Keeps what this rank's matrix has beyond what it contributed, and writes the mean; the mean of Q is where
// the next step begins, without the columns that were measured but not sent.
void LowRankCodec::finish_matrix(const Part& part, std::span<float> gradient) {
  const std::span<const float> p = left(part, part.sent);
  const std::size_t size = part.sent * part.columns;
  const std::span<const float> q = std::span(q_).subspan(part.q, size);
  const std::span<float> mean = gradient.subspan(part.begin, part.rows * part.columns);
  if (residual_.size() > 0) {
    const ErrorFedMatrix before = matrix(part, gradient);
    split(before, p, std::span(mine_).subspan(part.q, size), q,
          residual_.values().subspan(part.begin, mean.size()), mean, workers_.get());
  } else {
    expand(p, q, part.rows, mean, workers_.get());
  }
  const std::span<float> start = start_of(part, part.rank);
  std::ranges::copy(q, start.begin());
  std::ranges::fill(start.subspan(size), 0.0f);
}

PayloadModel low_rank_payloads(const Layout& layout, const EngineOptions& options, std::size_t) {
  PayloadModel model;
  model.numbers = [layout, values = options.values](double factor) {
    return numbers_at(layout, rank_for(layout, factor, values), values);
  };
  model.bytes = model.summed_bytes = [](double n) { return 4 * n; };
  model.decoded = [](double) { return 0.0; };
  model.all_reduces = 2;
  model.only_summed = true;
  return model;
}

}  // namespace gravac
