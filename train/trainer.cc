#include "train/trainer.h"

#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <type_traits>

#include "gravac/config.h"
#include "gravac/reshard.h"
#include "gravac/util/checksum.h"
#include "gravac/util/named_numbers.h"
#include "gravac/util/random.h"
#include "gravac/util/require.h"

namespace gravac::train {
namespace {

// torch draws from one generator per process, which threads share.
std::mutex torch_random;

std::shared_ptr<Model> seeded_model(const TrainOptions& options, const Shape& shape) {
  const std::lock_guard lock(torch_random);
  torch::manual_seed(options.seed);
  return make_model(options.model, shape);
}

// Sums of everybody's numbers, in the order of ranks.
std::vector<double> sum_over_ranks(Comm& comm, std::span<const double> mine) {
  const std::vector<double> all = comm.all_gather(mine);
  std::vector<double> sums(mine.size());
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % mine.size()] += all[i];
  return sums;
}

// Where buckets of so many bytes end.
std::vector<std::size_t> cuts_of(const Layout& layout, std::size_t bytes) {
  std::vector<std::size_t> cuts;
  for (const Bucket& bucket : make_buckets(layout, bytes))
    cuts.push_back(layout.segments()[bucket.front()].begin);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

// Rises with every change of what save() writes here; the engine has a number of its own.
constexpr const char* kStateFormat = "1";

// Calls visit(name, number) for every number of an evaluation.
template <class One, class Visit>
void each_number_of(One& evaluation, const Visit& visit) {
  visit("step", evaluation.step);
  visit("loss", evaluation.loss);
  visit("top1", evaluation.top1);
  visit("top5", evaluation.top5);
  visit("ppl", evaluation.ppl);
}

// The number that a state has under this name; counters are checked.
template <class Number>
Number number_in(const Checkpoint& state, const std::string& name) {
  const double number = state.number(name);
  require(!std::is_integral_v<Number> || (number >= 0 && number < kManySteps), "checkpoint: '", name,
          "' must be a number of steps, got ", number);
  return static_cast<Number>(number);
}

void copy_into(std::span<float> target, const std::vector<float>& source) {
  std::copy(source.begin(), source.end(), target.begin());
}

}  // namespace

double Evaluation::value(const std::string& metric) const {
  return metric == "ppl" ? ppl : metric == "top5" ? top5 : metric == "loss" ? loss : top1;
}

bool Evaluation::reaches(const TrainOptions::Until& until) const {
  const bool less_is_better = until.metric == "ppl" || until.metric == "loss";
  return less_is_better ? value(until.metric) <= until.value : value(until.metric) >= until.value;
}

Trainer::Trainer(const TrainOptions& options, const Surroundings& around)
    : options_(options),
      around_(around),
      module_(seeded_model(options, around.data.shape())),
      model_(*module_),
      sampler_(around.data.train_size(), around.data.labels(), around.comm.rank(), around.comm.size(),
               options.seed, options.skew),
      schedule_{.kind = schedule_from_string(options.schedule),
                .warmup = static_cast<double>(options.warmup),
                .decay_at = options.decay_at,
                .decay_by = options.decay_by},
      optimizer_(make_optimizer(options, model_.layout().entries())) {
  handshake(around_.plain, options.facts);
  make_engine();
  broadcast(*module_, around_.plain);
  for (const auto& part : module_->modules()) draws_ |= part->name().find("Dropout") != std::string::npos;
  steps_per_epoch_ = sampler_.steps_per_epoch(options.batch);
  total_ = options.steps ? static_cast<double>(*options.steps)
                         : std::ceil(options.epochs.value_or(1) * static_cast<double>(steps_per_epoch_));
}

Trainer::~Trainer() = default;

// One engine or the other; from then on all that differs is how many buckets there are.
void Trainer::make_engine() {
  const Layout& layout = model_.layout();
  EngineSetup setup = make_setup(options_.engine, layout, around_.comm.size());
  if (options_.emulate)
    setup.options.compress_seconds_per_entry = options_.emulate->compress_seconds_per_entry;
  const std::size_t bytes = 1000 * options_.bucket;
  std::vector<Bucket> buckets;
  if (options_.overlap) {  // without a size: a quarter of the gradient each
    buckets = make_buckets(layout, bytes > 0 ? bytes : std::max<std::size_t>(layout.entries(), 1));
    engine_ = make_overlap(layout, buckets, std::move(setup), around_.comm, around_.clock);
  } else {
    if (bytes > 0) setup.options.cuts = cuts_of(layout, bytes);
    buckets = make_buckets(layout, std::numeric_limits<std::size_t>::max());
    engine_ = make_aggregator(layout, std::move(setup), around_.comm, around_.clock);
  }
  bucket_of_.resize(layout.segments().size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const std::size_t segment : buckets[b]) bucket_of_[segment] = b;
    const Segment &first = layout.segments()[buckets[b].front()],
                  &last = layout.segments()[buckets[b].back()];
    places_.push_back({first.begin, last.begin + last.size - first.begin});
  }
  model_.on_ready([this](std::size_t segment) { segment_ready(segment); });
}

// Backward has completed a parameter's gradient; a bucket leaves with its last one.
void Trainer::segment_ready(std::size_t segment) {
  const std::size_t bucket = bucket_of_[segment];
  if (--missing_[bucket] > 0) return;
  const auto [begin, size] = places_[bucket];
  engine_->ready(bucket, model_.gradient().subspan(begin, size), model_.weights().subspan(begin, size));
}

double Trainer::position() const {
  return options_.schedule_by_effective ? effective_ : static_cast<double>(steps_);
}

bool Trainer::done() const {
  return position() >= total_;
}

// Forward and backward on this rank's batch; returns the loss.
double Trainer::compute(const Batch& batch) {
  const Turn turn(around_.turns);
  module_->train();
  model_.zero_gradient();
  torch::Tensor loss;
  {
    // Dropout draws depend on the step and the rank alone, so that nothing of torch's need be saved.
    std::unique_lock lock(torch_random, std::defer_lock);
    if (around_.turns && draws_) lock.lock();
    torch::manual_seed(Random({options_.seed, steps_, around_.comm.rank() + 1}).at(0));
    loss = torch::nn::functional::cross_entropy(module_->forward(batch.input), batch.target);
  }
  missing_.assign(places_.size(), 0);
  for (const std::size_t bucket : bucket_of_) ++missing_[bucket];
  loss.backward();
  model_.collect();
  // Parameters that backward did not reach have no gradient: their buckets wait no longer.
  for (std::size_t s = 0; s < bucket_of_.size(); ++s) {
    if (missing_[bucket_of_[s]] == 0) continue;
    missing_[bucket_of_[s]] = 1;
    segment_ready(s);
  }
  return loss.item<double>();
}

Stepped Trainer::step() {
  const double began = around_.clock.now();
  const double at = position();
  const std::size_t drops = schedule_.drops(at, total_);
  if (drops > drops_) engine_->learning_rate_dropped();
  drops_ = drops;

  sampler_.batch(steps_, options_.batch, samples_);
  Stepped stepped{.learning_rate = options_.lr * schedule_.at(at, total_)};
  if (options_.optimizer == "sgd") engine_->learning_rates({&stepped.learning_rate, 1});
  stepped.loss = compute(around_.data.train(samples_, steps_));
  if (options_.emulate) around_.clock.spend(options_.emulate->compute_seconds);
  stepped.report = engine_->finish(static_cast<double>(options_.batch));
  optimizer_->step(model_.weights(), model_.gradient(), stepped.learning_rate, stepped.report.momentum);
  ++steps_;
  effective_ = stepped.report.effective_steps;
  bad_steps_ = stepped.report.bad_steps;

  const StepReport& report = stepped.report;
  costs_.seconds += around_.clock.now() - began;
  costs_.bytes_sent += static_cast<double>(report.bytes_sent);
  costs_.entries_sent += static_cast<double>(report.entries_sent);
  costs_.dense_bytes += static_cast<double>(report.dense_bytes);
  costs_.entries += static_cast<double>(report.entries);
  costs_.compute_seconds += report.compute_seconds;
  costs_.compress_seconds += report.compress_seconds;
  costs_.agree_seconds += report.agree_seconds;
  costs_.exchange_seconds += report.exchange_seconds;
  costs_.decode_seconds += report.decode_seconds;
  ++costs_.steps_per_factor[report.factor];
  return stepped;
}

Evaluation Trainer::evaluate() {
  const torch::NoGradGuard no_grad;
  average_buffers(*module_, around_.plain);
  const std::vector<double> all = sum_over_ranks(around_.plain, evaluate_my_share());
  const double n = std::max(all[3], 1.0);
  last_evaluation_ = {.step = steps_,
                      .loss = all[0] / n,
                      .top1 = all[1] / n,
                      .top5 = all[2] / n,
                      .ppl = std::exp(all[0] / n),
                      .text = around_.data.shape().kind == Shape::Kind::tokens};
  return *last_evaluation_;
}

// Sums over this rank's share of the test data: loss, right at first, right among five, and how many.
std::array<double, 4> Trainer::evaluate_my_share() {
  const Turn turn(around_.turns);
  module_->eval();
  const std::size_t size = around_.data.test_size(), ranks = around_.comm.size(), rank = around_.comm.rank();
  const std::size_t begin = size * rank / ranks, end = size * (rank + 1) / ranks;
  // Larger than most training batches: nothing is kept for backward, and small batches take longer in all.
  const std::size_t batch = std::max<std::size_t>(options_.batch, 64);
  double loss = 0, top1 = 0, top5 = 0, count = 0;
  for (std::size_t at = begin; at < end; at += batch) {
    const Batch test = around_.data.test(at, std::min(at + batch, end));
    const torch::Tensor logits = module_->forward(test.input);
    const auto reduction = torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum);
    loss += torch::nn::functional::cross_entropy(logits, test.target, reduction).item<double>();
    const torch::Tensor best = std::get<1>(logits.topk(std::min<std::int64_t>(5, logits.size(1)), 1));
    const torch::Tensor right = best.eq(test.target.view({-1, 1}));
    top1 += right.select(1, 0).sum().item<double>();
    top5 += right.sum().item<double>();
    count += static_cast<double>(test.target.numel());
  }
  return {loss, top1, top5, count};
}

std::uint64_t Trainer::digest() {
  return checksum(std::as_bytes(model_.weights()));
}

// Calls visit(name, number) for every number of the trainer's own state.
template <class Self, class Visit>
void Trainer::each_number(Self& self, const Visit& visit) {
  visit("steps", self.steps_);
  visit("effective steps", self.effective_);
  visit("bad steps", self.bad_steps_);
  visit("learning rate drops", self.drops_);
  auto& costs = self.costs_;
  visit("seconds", costs.seconds);
  visit("bytes sent", costs.bytes_sent);
  visit("entries sent", costs.entries_sent);
  visit("dense bytes", costs.dense_bytes);
  visit("entries", costs.entries);
  visit("compute seconds", costs.compute_seconds);
  visit("compress seconds", costs.compress_seconds);
  visit("agree seconds", costs.agree_seconds);
  visit("exchange seconds", costs.exchange_seconds);
  visit("decode seconds", costs.decode_seconds);
}

Checkpoint Trainer::save() {
  Checkpoint state;
  state.add("trainer state", kStateFormat);
  for (const auto& [name, value] : options_.fixed) state.add("option/" + name, value);
  each_number(*this, [&](const std::string& name, const auto& number) {
    state.add("trainer/" + name, static_cast<double>(number));
  });
  if (last_evaluation_) {
    each_number_of(*last_evaluation_, [&](const std::string& name, const auto& number) {
      state.add("evaluation/" + name, static_cast<double>(number));
    });
  }
  std::vector<double> factors, times;
  for (const auto& [factor, steps] : costs_.steps_per_factor) {
    factors.push_back(factor);
    times.push_back(steps);
  }
  state.add("factors/used", std::span<const double>(factors));
  state.add("factors/steps", std::span<const double>(times));
  for (const Segment& segment : model_.layout().segments()) {
    const auto run = [&](std::span<float> all) {
      return std::span<const float>(all.subspan(segment.begin, segment.size));
    };
    state.add("weights/" + segment.name, run(model_.weights()));
    for (const auto& [name, values] : optimizer_->arrays()) state.add(name + "/" + segment.name, run(values));
  }
  for (const auto& [name, value] : optimizer_->counters()) state.add("optimizer/" + name, *value);
  for (const auto& item : module_->named_buffers()) {
    const torch::Tensor buffer = item.value().to(torch::kDouble).contiguous();
    state.add("buffer/" + item.key(),
              std::span<const double>(buffer.data_ptr<double>(), static_cast<std::size_t>(buffer.numel())));
  }
  state.add("gravac/", engine_->save());
  return state;
}

// Throws Error unless the state was saved with our options, those that a run may change apart.
void Trainer::require_options(const Checkpoint& state) const {
  require(state.text("trainer state") == kStateFormat, "checkpoint: expected trainer state of format ",
          kStateFormat, ", got ", state.text("trainer state"));
  for (const auto& [name, value] : options_.fixed) {
    const std::string there = state.text("option/" + name);
    require(there == value, "checkpoint: ", name, " is ", there, " there and ", value, " here");
  }
}

void Trainer::load(const std::vector<Checkpoint>& states) {
  const std::size_t rank = around_.comm.rank(), ranks = around_.comm.size();
  const Checkpoint& state = states.at(rank % states.size());
  require_options(state);
  // Read everything before anything is changed.
  std::map<std::string, double> numbers;
  each_number(*this, [&]<class Number>(const std::string& name, const Number&) {
    numbers[name] = static_cast<double>(number_in<Number>(state, "trainer/" + name));
  });
  std::optional<Evaluation> last;
  if (state.has("evaluation/step")) {
    last = {.text = around_.data.shape().kind == Shape::Kind::tokens};
    each_number_of(*last, [&]<class Number>(const std::string& name, Number& number) {
      number = number_in<Number>(state, "evaluation/" + name);
    });
  }
  const std::vector<double> factors = state.numbers("factors/used");
  const std::vector<double> times = state.numbers("factors/steps", factors.size());
  const std::vector<Optimizer::Counter> counters = optimizer_->counters();
  std::vector<double> counted;
  for (const auto& counter : counters) counted.push_back(state.number("optimizer/" + counter.name));
  std::vector<std::vector<float>> weights;
  const std::vector<Optimizer::Array> arrays = optimizer_->arrays();
  std::vector<std::vector<std::vector<float>>> array_values(arrays.size());
  for (const Segment& segment : model_.layout().segments()) {
    weights.push_back(state.floats("weights/" + segment.name, segment.size));
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      array_values[a].push_back(state.floats(arrays[a].name + "/" + segment.name, segment.size));
    }
  }
  const auto buffers = module_->named_buffers();
  std::vector<std::vector<double>> buffer_values;
  for (const auto& item : buffers) {
    buffer_values.push_back(
        state.numbers("buffer/" + item.key(), static_cast<std::size_t>(item.value().numel())));
  }
  std::vector<Checkpoint> parts;
  for (const Checkpoint& one : states) parts.push_back(one.part("gravac/"));
  const Checkpoint part = states.size() == ranks ? parts[rank] : reshard(parts, rank, ranks);
  engine_->load(part);

  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Segment& segment = model_.layout().segments()[i];
    copy_into(model_.weights().subspan(segment.begin, segment.size), weights[i]);
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      copy_into(arrays[a].values.subspan(segment.begin, segment.size), array_values[a][i]);
    }
  }
  for (std::size_t i = 0; i < counters.size(); ++i) *counters[i].value = counted[i];
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < buffer_values.size(); ++i) {
    torch::Tensor buffer = buffers[i].value();
    buffer.copy_(torch::tensor(buffer_values[i], torch::kDouble).view_as(buffer));
  }
  each_number(*this, [&]<class Number>(const std::string& name, Number& number) {
    number = static_cast<Number>(numbers.at(name));
  });
  last_evaluation_ = last;
  costs_.steps_per_factor.clear();
  for (std::size_t i = 0; i < factors.size(); ++i) costs_.steps_per_factor[factors[i]] = times[i];
}

}  // namespace gravac::train
