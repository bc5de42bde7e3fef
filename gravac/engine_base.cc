#include "gravac/engine_base.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "gravac/codec/compressors.h"
#include "gravac/numerics.h"
#include "gravac/util/checksum.h"
#include "gravac/util/require.h"
#include "gravac/util/workers.h"

namespace gravac {
namespace {

// The options of one bucket's codec.
EngineOptions options_of(const EngineOptions& options, const Bucket& bucket) {
  EngineOptions part = options;
  part.step.numbers = bucket;
  part.stored_as.clear();
  for (const std::size_t s : bucket) {
    if (!options.stored_as.empty()) part.stored_as.push_back(options.stored_as.at(s));
  }
  return part;
}

std::string digest_of(const std::vector<Bucket>& buckets) {
  std::uint64_t digest = buckets.size();
  for (const Bucket& bucket : buckets) digest = checksum(std::as_bytes(std::span(bucket)), digest);
  return std::to_string(digest);
}

// What a checkpoint puts in front of the names of a bucket's numbers.
std::string codec_prefix(std::size_t bucket) {
  return "codec " + std::to_string(bucket) + "/";
}

// No payload of ours is longer: a value and a position for each entry, and a header for each bucket.
std::size_t longest_message(const Layout& layout, std::size_t buckets) {
  return 8 * layout.entries() + 1024 * (buckets + 1);
}

}  // namespace

std::vector<Bucket> make_buckets(const Layout& layout, std::size_t bytes) {
  std::vector<Bucket> buckets;
  std::size_t size = 0, last = layout.segments().size();
  for (std::size_t s = last; s-- > 0;) {
    size += 4 * layout.segments()[s].size;
    if (size < bytes && s > 0) continue;
    Bucket& bucket = buckets.emplace_back(last - s);
    std::iota(bucket.begin(), bucket.end(), s);
    last = s;
    size = 0;
  }
  return buckets;
}

EngineBase::EngineBase(const char* name, const Layout& layout, const std::vector<Bucket>& buckets,
                       EngineSetup setup, Comm& comm, Clock& clock)
    : name_(name),
      layout_(layout),
      options_(setup.options),
      comm_(comm),
      clock_(clock),
      round_(layout, std::max<std::size_t>(buckets.size(), 1), std::move(setup.policy), setup.options, comm),
      overshoot_(layout.entries()),
      rates_(layout.segments().size(), 0.0),
      told_(layout.segments().size(), 0.0) {
  options_.whole = std::make_shared<const Layout>(layout);
  options_.step.workers = std::make_shared<Workers>(options_.step.threads);
  require(options_.stored_as.empty() || options_.stored_as.size() == layout.segments().size(), name,
          ": expected ", layout.segments().size(), " types of gradients, got ", options_.stored_as.size());
  std::vector<int> seen(layout.segments().size(), 0);
  for (const Bucket& bucket : buckets) {
    for (const std::size_t s : bucket) {
      require(s < seen.size(), name, ": segment ", s, " of a bucket is out of range for ", seen.size(),
              " segments");
      ++seen[s];
    }
    parts_.push_back({.segments = bucket, .entries = layout.part(bucket).entries()});
  }
  require(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }), name,
          ": every segment must be in one bucket");
  std::vector<std::unique_ptr<Codec>> codecs = make_codecs(0);
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].codec = std::move(codecs[i]);
  comm.expect_messages_of(longest_message(layout, buckets.size()));
  Facts facts = round_.facts();
  facts.emplace_back("numerics", std::to_string(kNumerics));
  facts.emplace_back("engine", name);
  facts.emplace_back("buckets", digest_of(buckets));
  // Which collectives a step enters depends on it.
  for (std::size_t c = 0; c < std::max<std::size_t>(options_.compressors.size(), 1); ++c) {
    if (compressor_info(options_.compressor(c)).family != "half") continue;
    const Values type = values_from_string(options_.compressor(c));
    facts.emplace_back("adds up " + options_.compressor(c), comm.adds_halves(type) ? "yes" : "no");
  }
  handshake(comm_, facts);
  ended_ = clock_.now();
}

std::vector<std::unique_ptr<Codec>> EngineBase::make_codecs(std::size_t compressor) const {
  std::vector<std::unique_ptr<Codec>> codecs;
  for (const Part& part : parts_) {
    codecs.push_back(make_codec(layout_.part(part.segments), options_of(options_, part.segments), comm_,
                                clock_, compressor));
  }
  return codecs;
}

bool EngineBase::use_compressor() {
  if (round_.compressor() == compressor_) return false;
  compressor_ = round_.compressor();
  std::vector<std::unique_ptr<Codec>> codecs = make_codecs(compressor_);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Memory &kept = *parts_[i].codec->memories()[0], &now = *codecs[i]->memories()[0];
    if (!kept.zero() && now.size() > 0) now.assign(kept.copy());
    parts_[i].codec = std::move(codecs[i]);
  }
  return true;
}

void EngineBase::prove_equal(bool again) {
  if (!proven_ || again) round_.prove_equal(engine_digest());
  proven_ = true;
}

std::uint64_t EngineBase::engine_digest() const {
  std::vector<double> numbers = {static_cast<double>(compressor_)};
  for (const Part& part : parts_) numbers.push_back(part.codec->draws());
  if (options_.momentum) {
    numbers.insert(numbers.end(), {options_.momentum->momentum, options_.momentum->optimizer});
  }
  return digest_of(overshoot_.numbers(), digest_of(numbers, own_digest()));
}

void EngineBase::accept(std::size_t bucket, std::span<float> gradient, std::span<const float> weights) {
  require(bucket < parts_.size(), name_, ": bucket ", bucket, " is out of range for ", parts_.size(),
          " buckets");
  Part& part = parts_[bucket];
  require(gradient.size() == part.entries, name_, ": expected ", part.entries, " entries in bucket ", bucket,
          ", got ", gradient.size());
  require(!part.is_ready, name_, ": bucket ", bucket, " became ready twice in one step");
  part.gradient = gradient;
  part.weights = weights;
  part.is_ready = true;
}

Request EngineBase::request_for(Part& part, Send expected) {
  const std::span<const double> all = round_.policy().segment_factors();
  part.factors.clear();
  if (!all.empty()) {
    for (const std::size_t s : part.segments) part.factors.push_back(all[s]);
  }
  return {.plan = round_.plan(),
          .segment_factors = part.factors,
          .expected = expected,
          .step = round_.step(),
          .needs = round_.policy().needs()};
}

// Calls visit(segment, where it begins in the bucket) for the segments of a bucket.
template <class Visit>
void EngineBase::each_segment(const Part& part, const Visit& visit) const {
  std::size_t begin = 0;
  for (const std::size_t s : part.segments) {
    visit(layout_.segments()[s], begin);
    begin += layout_.segments()[s].size;
  }
}

void EngineBase::watch(const Part& part, std::span<const float> raw) {
  if (!round_.watches()) return;
  each_segment(part, [&](const Segment& segment, std::size_t begin) {
    round_.watch(segment.begin, raw.subspan(begin, segment.size));
  });
}

void EngineBase::close(const Agreed<Verdict>& verdict, const Agreed<Order>& order, const Traffic& traffic,
                       double samples, double hideable, StepReport& report) {
  for (Part& part : parts_) {
    part.codec->close(verdict->finite, part.gradient);
    part.is_ready = false;
  }
  round_.close(verdict, order, traffic, samples, hideable, report);
  if (verdict->finite) age_rates(*order);
  watch_overshoot(report);
  report.residual_norm = std::nan("");
  if (!options_.residual_norm) return;
  double sum = 0;
  for (Part& part : parts_) sum += part.codec->memories()[0]->energy();
  report.residual_norm = std::sqrt(sum);
}

void EngineBase::add_mean(const Part& part) {
  each_segment(part, [&](const Segment& segment, std::size_t begin) {
    overshoot_.add(segment.begin, part.gradient.subspan(begin, segment.size));
  });
}

void EngineBase::watch_mean_early(const Part& part) {
  if (!round_.policy().watches_overshoot()) return;
  add_mean(part);
  watched_early_ = true;
}

// Only an SGD that uses less than its momentum takes longer steps. What the user has chosen stays as it is.
// Policies that keep to safe settings while steps overshoot want to know of all steps.
void EngineBase::watch_overshoot(StepReport& report) {
  const bool for_policy = report.finite && round_.policy().watches_overshoot();
  const bool watched = std::exchange(watched_early_, false);
  if (report.momentum.share == 1 && !for_policy) return overshoot_.skip();
  for (const Part& part : parts_) {
    if (!watched) add_mean(part);
  }
  overshoot_.end();
  if (for_policy) round_.policy().overshoots(overshoot_.extent());
  report.momentum.share = std::lerp(1.0, report.momentum.share, overshoot_.extent());
}

void EngineBase::rescale(float ratio) {
  for (Part& part : parts_) {
    for (Memory* memory : part.codec->memories()) memory->scale(ratio);
  }
  round_.rescale(ratio);
}

// Rates may change a little on every step. A pass over the residual for each of those would make a step half
// as long again, so it is left alone until the rate has risen by so much that it matters.
void EngineBase::learning_rates(std::span<const double> rates) {
  constexpr double kMuch = 1.05;
  require(rates.size() == 1 || rates.size() == rates_.size(), name_, ": expected 1 or ", rates_.size(),
          " learning rates, got ", rates.size());
  if (!options_.hand_over) return;
  for (const Part& part : parts_) {
    Memory& residual = *part.codec->memories()[0];
    std::size_t end = 0;
    for (const std::size_t s : part.segments) {
      const std::size_t size = layout_.segments()[s].size, begin = std::exchange(end, end + size);
      const double rate = rates[rates.size() == 1 ? 0 : s], before = rates_[s];
      if (!(rate > 0) || !std::isfinite(rate)) continue;
      told_[s] = rate;
      if (before > 0 && rate < kMuch * before) continue;
      if (before > 0) residual.scale(begin, size, static_cast<float>(before / rate));
      rates_[s] = rate;
    }
  }
}

// A step at a lower rate than that of what is kept has added a gradient, and sent one part in `factor`: so
// much of what is kept is of the lower rate now. After a dense step nothing older is left.
void EngineBase::age_rates(const Order& order) {
  const double left = order.sent == Send::dense ? 0 : 1 - 1 / std::max(order.factor, 1.0);
  for (std::size_t s = 0; s < rates_.size(); ++s) {
    if (told_[s] < rates_[s]) rates_[s] = std::lerp(told_[s], rates_[s], left);
  }
}

void EngineBase::momentum(double memory, double optimizer) {
  if (!options_.momentum) return;
  for (Part& part : parts_) part.codec->use_momentum(memory, optimizer);
  options_.momentum->momentum = memory;
  options_.momentum->optimizer = optimizer;
}

// What the buckets hold of a memory, in the order of the layout.
std::vector<float> EngineBase::gather_memory(std::size_t number) {
  std::vector<float> all;
  for (Part& part : parts_) {
    Memory& memory = *part.codec->memories()[number];
    if (memory.size() == 0) continue;
    all.resize(layout_.entries());
    if (memory.zero()) continue;
    each_segment(part, [&](const Segment& segment, std::size_t begin) {
      std::copy_n(memory.values().begin() + static_cast<std::ptrdiff_t>(begin), segment.size,
                  all.begin() + static_cast<std::ptrdiff_t>(segment.begin));
    });
  }
  return all;
}

Checkpoint EngineBase::save() {
  Checkpoint checkpoint;
  round_.save(checkpoint);
  checkpoint.add(std::string(name_) + "/", own_numbers());
  const bool told = std::ranges::any_of(rates_, [](double rate) { return rate > 0; });
  if (told) checkpoint.add("learning rates", std::span<const double>(rates_));
  if (told) checkpoint.add("learning rates now", std::span<const double>(told_));
  checkpoint.add("overshoot/", overshoot_.numbers());
  checkpoint.add("last mean", overshoot_.last_mean());
  checkpoint.add("codecs", static_cast<double>(parts_.size()));
  for (std::size_t i = 0; i < parts_.size(); ++i) checkpoint.add(codec_prefix(i), parts_[i].codec->numbers());
  if (parts_.empty()) return checkpoint;
  const std::vector<Memory*> memories = parts_[0].codec->memories();
  for (std::size_t m = 0; m < memories.size(); ++m) {
    const std::string name(memories[m]->name());
    checkpoint.add(name, std::span<const float>(gather_memory(m)));
    checkpoint.add("sharing/" + name, to_string(memories[m]->sharing()));  // for reshard()
  }
  return checkpoint;
}

// First everything is read and checked, then everything is changed: a refused load changes nothing.
void EngineBase::load(const Checkpoint& checkpoint) {
  auto round = round_.read(checkpoint);
  const NamedNumbers own = checkpoint.named_numbers(std::string(name_) + "/");
  check_own(own);
  const auto read_rates = [&](const char* name, std::vector<double> otherwise) {
    if (!checkpoint.has(name)) return otherwise;
    std::vector<double> found = checkpoint.numbers(name, rates_.size());
    require(std::ranges::all_of(found, [](double x) { return std::isfinite(x) && x >= 0; }), "checkpoint: '",
            name, "' contains negative numbers, infinities or NaN");
    return found;
  };
  const std::vector<double> rates = read_rates("learning rates", std::vector<double>(rates_.size()));
  const std::vector<double> told = read_rates("learning rates now", rates);
  const NamedNumbers overshoot = checkpoint.named_numbers("overshoot/");
  const std::span<const float> last_mean = checkpoint.view("last mean");
  overshoot_.check(overshoot, last_mean);
  // Codecs of the compressor in use when the state was saved, if that is another.
  std::vector<std::unique_ptr<Codec>> others;
  if (round->compressor != compressor_) others = make_codecs(round->compressor);
  const auto codec = [&](std::size_t i) -> Codec& { return others.empty() ? *parts_[i].codec : *others[i]; };
  // Where the buckets are others than they were, all of them go on from the first one's numbers.
  const double saved = checkpoint.number("codecs");
  require(saved >= 0 && saved <= static_cast<double>(std::max(layout_.segments().size(), parts_.size())),
          "checkpoint: 'codecs' must be a number of buckets, got ", saved);
  const bool same_number = saved == static_cast<double>(parts_.size());
  std::vector<NamedNumbers> numbers;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    numbers.push_back(checkpoint.named_numbers(codec_prefix(same_number ? i : 0)));
    codec(i).check(numbers.back());
  }
  std::vector<std::span<const float>> memories;
  for (std::size_t m = 0; !parts_.empty() && m < codec(0).memories().size(); ++m) {
    const std::string name(codec(0).memories()[m]->name());
    bool any = false;
    for (std::size_t i = 0; i < parts_.size(); ++i) any |= codec(i).memories()[m]->size() > 0;
    const std::string sharing = checkpoint.text("sharing/" + name);
    require(sharing == to_string(codec(0).memories()[m]->sharing()), "checkpoint: '", name, "' must be ",
            to_string(codec(0).memories()[m]->sharing()), ", got ", sharing);
    memories.push_back(checkpoint.view(name, any ? layout_.entries() : 0));
    require(std::ranges::all_of(memories.back(), [](float x) { return std::isfinite(x); }), "checkpoint: '",
            name, "' holds infinities or NaN");
  }

  proven_ = false;
  compressor_ = round->compressor;
  rates_ = rates;
  told_ = told;
  overshoot_.restore(overshoot, last_mean);
  round_.adopt(std::move(round));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!others.empty()) parts_[i].codec = std::move(others[i]);
    parts_[i].codec->restore(numbers[i]);
    for (std::size_t m = 0; m < memories.size(); ++m) {
      std::vector<float> mine;
      each_segment(parts_[i], [&](const Segment& segment, std::size_t) {
        if (memories[m].empty()) return;
        const auto values = memories[m].subspan(segment.begin, segment.size);
        mine.insert(mine.end(), values.begin(), values.end());
      });
      parts_[i].codec->memories()[m]->assign(mine);
    }
  }
  restore_own(own);
  ended_ = clock_.now();
}

}  // namespace gravac
