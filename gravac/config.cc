#include "gravac/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "gravac/codec/compressors.h"
#include "gravac/codec/low_rank/ranks.h"
#include "gravac/comm/paced_comm.h"
#include "gravac/comm/route.h"

namespace gravac {
namespace {

using enum OptionInfo::Kind;

constexpr std::string_view kMomentumOptions = "Momentum memory";
constexpr std::string_view kOptimizerOptions = "Optimizer";
constexpr std::string_view kProcessOptions = "Process";
constexpr std::string_view kDeterministicOptions = "Deterministic runs";
constexpr std::string_view kAuto = "auto";
constexpr std::string_view kLowRankInBits = "low-rank-int4";  // the family in rates.def: powersgd in 4 bits

// Tables of options hold views. Texts put together here stay until the program ends.
std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

// "a|b|c": the names of a table as the choices of an option, after those in `first`.
template <class Table>
std::string_view choices_from(const Table& table, std::string_view first = "") {
  std::string all(first);
  for (const auto& entry : table) {
    if (!all.empty()) all += '|';
    all += entry.name;
  }
  return kept(std::move(all));
}

std::vector<OptionInfo> make_engine_options() {
  std::vector<OptionInfo> all = {
      {kCompressionOptions, "policy", choice, choices_from(policies()), "progress",
       "Policy that chooses the compression factor on every step"},
      {kCompressionOptions, "compressor", choice, choices_from(compressors(), kAuto), kAuto,
       "What is sent of a gradient; auto: topk, or under policy progress what suits the optimizer and the "
       "link"},
      {kCompressionOptions, "bits", count, "B", "",
       "Bits of an entry (compressors quantise and qsgd): the same as --policy static --factor 32/B", 1, 8},
      {kCompressionOptions, "rank", count, "R", "",
       "Columns of the factors (compressor powersgd): the same as --policy static and the factor that they "
       "make",
       1},
      {kCompressionOptions, "rank-min", count, "R", "1",
       "Columns of layers that change little (compressor powersgd with policy accordion)", 1},
      {kCompressionOptions, "rank-max", count, "R", "4",
       "Columns of layers that change much (compressor powersgd with policy accordion)", 1},
      {kCompressionOptions, "granularity", choice, "layer|global", "",
       "Choose entries per layer or over the whole gradient (default: as the policy needs)"},
      {kCompressionOptions, "values", choice, "fp32|fp16|bf16|int8|int4", "",
       "Format in which values are sent (default: int8 for chosen entries whose rounding is kept, else "
       "fp32)"},
      {kCompressionOptions, "positions", choice, "coded|int64", "coded",
       "Format in which the positions of chosen entries are sent: as short as possible (coded), or in 8 "
       "bytes each, as "
       "in the paper (int64)"},
      {kCompressionOptions, "exchange", choice, choices_from(routes()), "auto",
       "Route by which workers exchange the chosen entries"},
      {kCompressionOptions, "memory", choice, "residual|momentum", "residual",
       "What the memory of unsent entries holds: their sum (residual) or their momentum"},
      {kCompressionOptions, "masking", flag, "", "true",
       "Reset the momentum of entries that are sent (memory momentum)"},
      {kCompressionOptions, "feedback", flag, "", "true",
       "Keep entries that are not sent and send them later"},
      {kCompressionOptions, "hand-over", choice, "momentum|as-is", "momentum",
       "How SGD uses its momentum in compressed steps: less of it, by the factor (momentum), or all of it "
       "(as-is)"},
      {kCompressionOptions, "effective-momentum", number, "M", "",
       "Momentum that SGD uses in compressed steps (default: by the compressor and the factor)", 0, 1, false,
       true},
  };
  all.insert(all.end(), policy_options().begin(), policy_options().end());
  const OptionInfo others[] = {
      {kMomentumOptions, "momentum", number, "M", "0.9", "Momentum that the memory keeps (memory momentum)",
       0, 1, false, true},
      {kMomentumOptions, "clip", number, "NORM", "0",
       "Clip each worker's gradient to this norm / sqrt(workers); 0: never (memory momentum)"},
      {kMomentumOptions, "weight-decay", number, "D", "0", "Weight decay (memory momentum)", 0, 1e6},
      {kMomentumOptions, "optimizer-momentum", number, "M", "0",
       "Momentum that the optimizer adds by itself (memory momentum)", 0, 1, false, true},
      {kOptimizerOptions, "optimizer", choice, "sgd|adam|unknown", "unknown",
       "Optimizer that is handed the means; policies go by it"},
      {kProcessOptions, "seed", count, "N", "0", "Seed of random choices; the same on all workers"},
      {kProcessOptions, "threads", count, "N", "1", "Threads that compress", 1, 1024},
      {kDeterministicOptions, "deterministic", flag, "", "false",
       "Choose routes, compressors and factors by modelled times, not measured ones: equal seeds give equal "
       "bits"},
      {kDeterministicOptions, "link", text, "RATE,DELAY", "",
       "The link between workers, by which a deterministic run chooses (default: 1gbit,100us)"},
      {kDeterministicOptions, "compute", number, "SECONDS", "",
       "Forward and backward of one step, by which a deterministic run chooses (default: 10 ns for each "
       "entry "
       "of the gradient)",
       0, 1e6, true},
  };
  all.insert(all.end(), std::begin(others), std::end(others));
  return all;
}

}  // namespace

std::span<const OptionInfo> engine_options() {
  static const std::vector<OptionInfo> table = make_engine_options();
  return table;
}

std::span<const std::string_view> option_names() {
  static const std::vector<std::string_view> names = names_of(engine_options());
  return names;
}

namespace {

// A number as text that reads back as the same number.
std::string exactly(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

// "500.0" and "5e2" are one number.
std::string shortest(const OptionInfo& option, const std::string& value) {
  if (option.kind != number && option.kind != count) return value;
  double parsed = 0;
  const char* const end = value.data() + value.size();
  return std::from_chars(value.data(), end, parsed).ptr == end ? exactly(parsed) : value;
}

// Eight bits train as well as 32 (docs/results.md) where the residual keeps what they round off. powersgd
// sends floats, as published, if it was named; else 4 bits under Adam, where high ranks in few bits are best,
// and 16 under SGD, where low ranks do. Values that are added up on their way, as those of shared positions
// are, travel as floats.
Values values_of(const OptionReader& reader, std::string_view compressor) {
  if (reader.given("values")) return values_from_string(reader.text("values"));
  const std::string_view family = compressor_info(compressor).family;
  if (!reader.flag("feedback")) return Values::fp32;
  if (family == "low-rank" && reader.text("compressor") == kAuto) {
    return reader.text("optimizer") == "adam" ? Values::int4 : Values::fp16;
  }
  return family == "selector" && reader.text("positions") != "int64" ? Values::int8 : Values::fp32;
}

// Options by which users name a setting of a compressor in its own words stand for a factor: bits and rank
// for the one of policy static, rank-min and rank-max for the two of policy accordion.
class Settings {
 public:
  Settings(const Options& given, const Layout& layout)
      : given_(given), reader_(given, engine_options()), layout_(layout) {}

  Options with_factors() const {
    Options options = given_;
    if (reader_.given("bits")) {
      fix("bits", {"quantise", "qsgd"}, 32 / reader_.number("bits"), options);
    }
    if (reader_.given("rank")) {
      fix("rank", {"powersgd"}, factor_of_rank("rank"), options);
    }
    const bool by_rank = reader_.text("compressor") == "powersgd" && reader_.text("policy") == "accordion";
    for (const auto& [rank, factor] : {std::pair("rank-max", "factor-min"), {"rank-min", "factor-max"}}) {
      if (!by_rank) continue;  // ignored, as options of other policies are
      require(!reader_.given(rank) || !reader_.given(factor), "options: ", rank, " and ", factor,
              " are both given; one follows from the other");
      if (!reader_.given(factor)) {
        options[factor] = exactly(factor_of_rank(rank));
      }
    }
    return options;
  }

 private:
  // The factor of powersgd's rank that an option names: it counts the bits of its values.
  double factor_of_rank(std::string_view option) const {
    const double factor =
        factor_of(layout_, reader_.number<std::size_t>(option), values_of(reader_, "powersgd"));
    return std::max(factor, 1.0);  // of tensors of a few entries, scales and all take more than the entries
  }

  // `option` stands for policy static with this factor.
  void fix(std::string_view option, std::vector<std::string_view> compressors, double factor,
           Options& options) const {
    const std::string compressor = reader_.text("compressor"), policy = reader_.text("policy");
    require(std::ranges::find(compressors, compressor) != compressors.end(), "options: ", option,
            " is for compressor ", either(compressors), ", not '", compressor, "'");
    require(!reader_.given("factor"), "options: ", option,
            " and factor are both given; one follows from the other");
    require(!reader_.given("policy") || policy == "static", "options: ", option,
            " is for policy static, not '", policy, "'; other policies choose the factor themselves");
    options["policy"] = "static";
    options["factor"] = exactly(factor);
  }

  const Options& given_;
  OptionReader reader_;
  const Layout& layout_;
};

// What a compressor that sends all entries has no use for.
void check_compressor(const OptionReader& reader, std::string_view compressor, bool factor_per_layer) {
  const CompressorInfo& info = compressor_info(compressor);
  require(info.factor_per_layer || !factor_per_layer, "options: policy ", reader.text("policy"),
          " sets a factor for each layer, which compressor ", info.name, " does not support");
  if (info.selects) return;
  const auto refuse = [&](std::string_view option) {
    throw Error("options: " + std::string(option) + " is for compressors that choose entries, not '" +
                std::string(info.name) + "'");
  };
  if (reader.given("granularity")) refuse("granularity");
  if (reader.text("memory") != "residual") refuse("memory");
  if (reader.text("positions") != "coded") refuse("positions");
  if (info.as_payloads && reader.given("values") && reader.text("values") != "fp32") refuse("values");
}

// The compressors that `compressor` stands for. auto is topk, as in the paper, except that policy progress
// chooses between the families whose steps are worth as much as dense ones under this optimizer, and policy
// gravac climbs through them under Adam, where Top-k does harm. Options that only selectors have leave topk
// alone.
std::vector<std::string> compressors_of(const OptionReader& reader) {
  const std::string name = reader.text("compressor");
  if (name != kAuto) return {name};
  const bool for_selectors = reader.given("granularity") || reader.text("memory") != "residual" ||
                             reader.given("values") || reader.text("positions") != "coded" ||
                             reader.text("exchange") == "shared";
  if (for_selectors) return {"topk"};
  const bool progress = reader.text("policy") == "progress", adam = reader.text("optimizer") == "adam",
             own_ladder = reader.given("factor-min") || reader.given("ladder"),
             climbs = reader.text("policy") == "gravac" && adam && !own_ladder;
  if (!progress && !climbs) return {"topk"};
  std::vector<std::string> names;
  const bool sgd = reader.text("optimizer") == "sgd";
  if (sgd && reader.text("hand-over") == "momentum") names.emplace_back("topk");
  names.emplace_back("quantise");
  const bool sums = reader.text("exchange") == "auto" && reader.flag("feedback");  // as powersgd needs
  if (sums && (sgd || adam)) names.emplace_back("powersgd");
  return names;
}

// What the user should know about a choice that is allowed. Under Adam a step of Top-k is worth much less
// than a dense one (rates.def): it is what entries wait for that does harm, and momentum is not the cause.
std::vector<std::string> warnings_of(const OptionReader& reader, std::span<const std::string> compressors) {
  const bool selects = compressor_info(compressors[0]).family == "selector";
  if (reader.text("optimizer") != "adam" || reader.text("policy") == "dense" || !selects) return {};
  return {"compressor " + compressors[0] +
          " costs accuracy under Adam; quantise, or policy progress without a compressor, does not"};
}

// What becomes of SGD's momentum in compressed steps, as rates.def says it.
std::string momentum_use(const OptionReader& reader) {
  return reader.text("memory") == "momentum" ? "memory" : reader.text("hand-over");
}

// What a step with a compressor is worth. Where nothing was measured for the optimizer, because it is
// unknown, the lower of what was measured for others counts.
Law law_of(const CompressorInfo& info, const OptionReader& reader, const Layout& layout, Values values) {
  const std::string optimizer = reader.text("optimizer");
  const bool in_bits = info.family == "low-rank" && values == Values::int4;
  const std::string_view family = in_bits ? kLowRankInBits : info.family;
  // powersgd leaves momentum alone, so what was measured of it holds for any use of momentum.
  const std::string use = info.family == "low-rank" ? "momentum" : momentum_use(reader);
  std::vector<MeasuredRate> rates = measured_rates(family, use, optimizer);
  if (rates.empty() && optimizer == "unknown" && info.family != "selector") {
    rates = measured_rates(family, "as-is", "adam");
  }
  const bool by_rank = info.family == "low-rank";
  std::vector<RatePoint> points;
  for (const MeasuredRate& one : rates) {
    const double factor =
        by_rank ? factor_of(layout, static_cast<std::size_t>(one.setting), values) : one.setting;
    if (factor > 1) points.push_back({factor, one.rate, one.spread});
  }
  std::ranges::sort(points, {}, &RatePoint::factor);
  const auto same = [](const RatePoint& a, const RatePoint& b) { return a.factor == b.factor; };
  points.erase(std::unique(points.begin(), points.end(), same), points.end());
  return points.empty() ? Law() : Law(std::move(points));
}

// The factors at which policy progress may use a compressor: those at which it sends something else.
std::vector<double> factors_of(const CompressorInfo& info, const Layout& layout, Values values,
                               double maximum) {
  std::vector<double> factors;
  if (info.family == "half") {
    factors = {2};
  } else if (info.family == "quantiser") {
    for (int bits = 8; bits >= 1; --bits) factors.push_back(32.0 / bits);
  } else if (info.family == "low-rank") {
    for (const std::size_t rank : {64, 32, 16, 8, 4, 2, 1})
      factors.push_back(factor_of(layout, rank, values));
  } else {
    return fine_ladder(maximum);
  }
  std::erase_if(factors, [&](double factor) { return factor <= 1 || factor > maximum; });
  return factors;
}

// How the run starts: in 4 bits, for which the engine gets a quantiser beside the compressors that the policy
// chooses from, or dense where the options leave no room for one.
StartOptions add_start(const OptionReader& reader, const std::vector<std::string>& names,
                       EngineOptions& out) {
  constexpr std::string_view kStartsWith = "quantise";
  constexpr std::size_t kStartSteps = 30;  // programs do not say how long they train
  out.compressors = names;
  StartOptions start{.steps = reader.number("start-steps", kStartSteps),
                     .watches_overshoot = reader.text("optimizer") == "sgd"};
  const bool fits =
      reader.flag("feedback") && reader.text("memory") == "residual" && reader.text("exchange") != "shared";
  if (start.steps > 0 && policy_info(reader.text("policy")).reads("start-steps") && fits) {
    const auto found = std::ranges::find(out.compressors, kStartsWith);
    start.compressor = static_cast<std::size_t>(found - out.compressors.begin());
    start.factor = 8;
    if (found == out.compressors.end()) out.compressors.emplace_back(kStartsWith);
  }
  if (out.compressors.size() == 1) out.compressors.clear();
  for (const std::string& name : out.compressors) out.compressor_values.push_back(values_of(reader, name));
  return start;
}

// What a deterministic run goes by, instead of times that it measures.
std::optional<ModelledTimes> modelled_of(const OptionReader& reader) {
  if (!reader.flag("deterministic")) {
    for (const char* name : {"link", "compute"}) {
      require(!reader.given(name), "options: ", name,
              " is for deterministic runs, which choose by it; others go by the times that they measure");
    }
    return std::nullopt;
  }
  ModelledTimes times;
  if (reader.given("link")) {
    const Link link = link_from_string(reader.text("link"));
    times.seconds_per_round = link.latency_seconds;
    times.seconds_per_byte = 8 / link.bits_per_second;
  }
  times.compute_seconds = reader.number("compute", 0.0);
  require(!reader.given("compute") || (times.compute_seconds > 0 && std::isfinite(times.compute_seconds)),
          "options: compute must be > 0 s, got ", times.compute_seconds, " s");
  return times;
}

}  // namespace

Options resolved_options(const Options& given) {
  Options all;
  const OptionReader reader(given, engine_options());
  for (const OptionInfo& option : engine_options()) {
    const std::string value = reader.text(option.name);
    const bool matters = option.name != "threads";  // results are the same for any number of threads
    if (matters) all.emplace(option.name, value.empty() ? "not set" : shortest(option, value));
  }
  return all;
}

EngineSetup make_setup(const Options& given, const Layout& layout, std::size_t ranks) {
  const Options options = Settings(given, layout).with_factors();
  const OptionReader reader(options, engine_options());
  EngineSetup setup;
  EngineOptions& out = setup.options;
  std::vector<ProgressOptions::Compressor> known;
  const std::vector<std::string> names = compressors_of(reader);
  out.step.compressor = names[0];
  out.values = values_of(reader, names[0]);
  const StartOptions start = add_start(reader, names, out);
  for (const std::string& name : names) {
    const CompressorInfo& info = compressor_info(name);
    const Values values = values_of(reader, name);
    out.laws.push_back(law_of(info, reader, layout, values));
    known.push_back({.law = out.laws.back(),
                     .factors = factors_of(info, layout, values, reader.number("factor-max")),
                     .ramps = info.selects});
  }
  for (std::size_t c = names.size(); c < out.compressors.size(); ++c) {
    out.laws.push_back(law_of(compressor_info(out.compressors[c]), reader, layout, out.compressor_values[c]));
  }
  setup.policy = policy_info(reader.text("policy"))
                     .entry.make({.options = reader,
                                  .ranks = ranks,
                                  .segments = layout.segments().size(),
                                  .compressors = known,
                                  .has_settings = reader.text("policy") == "gravac" &&
                                                  reader.text("compressor") == kAuto && names[0] != "topk",
                                  .start = start});
  const bool factor_per_layer = setup.policy->observe_interval() > 0;
  for (const std::string& name : names) check_compressor(reader, name, factor_per_layer);
  out.step.granularity = reader.given("granularity") ? granularity_from_string(reader.text("granularity"))
                         : factor_per_layer          ? Granularity::layer
                                                     : Granularity::global;
  out.step.feedback = reader.flag("feedback");
  out.step.threads = reader.number<unsigned>("threads");
  out.step.seed = reader.number<std::uint64_t>("seed");
  out.positions = reader.choice("positions") == "int64" ? Positions::int64 : Positions::coded;
  out.route = route_from_string(reader.text("exchange"));
  out.modelled = modelled_of(reader);
  const bool momentum_memory = reader.choice("memory") == "momentum";
  out.hand_over = reader.choice("hand-over") == "momentum";
  if (reader.given("effective-momentum")) {
    require(out.hand_over && !momentum_memory,
            "options: effective-momentum is for hand-over momentum and memory residual, got hand-over ",
            reader.text("hand-over"), " and memory ", reader.text("memory"));
    out.effective_momentum = reader.number("effective-momentum");
    require(*out.effective_momentum >= 0 && *out.effective_momentum < 1,
            "options: effective-momentum must be >= 0 and below 1, got ", *out.effective_momentum);
  }
  setup.warnings = warnings_of(reader, names);
  reader.choice("optimizer");  // no more than a known name is expected of it here
  if (momentum_memory) {
    out.momentum = MomentumOptions{.momentum = reader.number("momentum"),
                                   .masking = reader.flag("masking"),
                                   .clip = reader.number("clip"),
                                   .weight_decay = reader.number("weight-decay"),
                                   .ranks = static_cast<unsigned>(ranks),
                                   .optimizer = reader.number("optimizer-momentum")};
  }
  for (const auto& [name, value] : resolved_options(given)) out.facts.emplace_back("option " + name, value);
  return setup;
}

}  // namespace gravac
