#include "gravac/config.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "gravac/util/require.h"

namespace gravac {
namespace {

constexpr std::string_view kKnown[] = {"policy",        "compressor",
                                       "factor",        "factor-min",
                                       "factor-max",    "epsilon",
                                       "omega",         "window",
                                       "smoothing",     "ladder",
                                       "gain",          "memory",
                                       "momentum",      "masking",
                                       "clip",          "weight-decay",
                                       "granularity",   "values",
                                       "exchange",      "seed",
                                       "threads",       "interval",
                                       "threshold",     "floor",
                                       "feedback",      "progress-exponent",
                                       "tail-exponent", "optimizer-momentum"};

constexpr std::string_view kPolicies[] = {"dense", "static", "gravac", "progress", "accordion"};

// Reads options by name and type.
class Reader {
 public:
  explicit Reader(const Options& options) : options_(options) {
    for (const auto& [name, value] : options) {
      if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) continue;
      throw Error("options: no such option '" + name + "'; did you mean '" +
                  std::string(nearest(name, kKnown)) + "'?");
    }
  }

  std::string text(const std::string& name, std::string_view otherwise) const {
    const auto found = options_.find(name);
    return found == options_.end() ? std::string(otherwise) : found->second;
  }
  template <class Number>
  Number number(const std::string& name, Number otherwise) const {
    const auto found = options_.find(name);
    if (found == options_.end()) return otherwise;
    const std::string& value = found->second;
    Number result{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    require(error == std::errc() && end == value.data() + value.size(), "options: ", name, " '", value,
            "' found, a number expected");
    return result;
  }
  bool flag(const std::string& name, bool otherwise) const {
    const std::string value = text(name, otherwise ? "true" : "false");
    require(value == "true" || value == "false", "options: ", name, " '", value,
            "' found, true or false expected");
    return value == "true";
  }

 private:
  const Options& options_;
};

std::unique_ptr<Policy> make_policy(const Reader& reader, const Layout& layout, std::size_t ranks) {
  const std::string policy = reader.text("policy", "progress");
  const double minimum = reader.number("factor-min", 10.0), maximum = reader.number("factor-max", 1000.0);
  if (policy == "dense") return make_dense_policy();
  if (policy == "static") return make_static_policy(reader.number("factor", 100.0));
  if (policy == "gravac") {
    const std::string ladder = reader.text("ladder", "exponential");
    require(ladder == "exponential" || ladder == "geometric", "options: ladder '", ladder,
            "' found, exponential or geometric expected");
    return make_gravac_policy({.ladder = ladder == "exponential" ? exponential_ladder(minimum, maximum)
                                                                 : geometric_ladder(minimum, maximum),
                               .epsilon = reader.number("epsilon", 0.7),
                               .omega = reader.number("omega", 0.01),
                               .window = reader.number<std::size_t>("window", 500),
                               .smoothing = reader.number("smoothing", default_smoothing(ranks)),
                               .gain = gain_from_string(reader.text("gain", "gradient"))});
  }
  if (policy == "progress") {
    return make_progress_policy({.maximum = maximum,
                                 .floor = reader.number("floor", 0.0),
                                 .progress_exponent = reader.number("progress-exponent", 1.0 / 3),
                                 .tail_exponent = reader.number("tail-exponent", 1.25),
                                 .interval = reader.number<std::size_t>("interval", 10)});
  }
  require(policy == "accordion", "policy: no such policy '", policy,
          "'; known: dense, static, gravac, progress, accordion");
  return make_accordion_policy({.low = minimum,
                                .high = maximum,
                                .threshold = reader.number("threshold", 0.5),
                                .interval = reader.number<std::size_t>("interval", 100),
                                .segments = layout.segments().size()});
}

}  // namespace

std::span<const std::string_view> option_names() {
  return kKnown;
}
std::span<const std::string_view> policy_names() {
  return kPolicies;
}

Options options_from_string(std::string_view text) {
  Options options;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    require(equals != std::string_view::npos && equals > 0, "options: '", word,
            "' found, name=value expected");
    const auto added = options.emplace(word.substr(0, equals), word.substr(equals + 1));
    require(added.second, "options: '", word.substr(0, equals), "' is given twice");
  }
  return options;
}

Setup make_setup(const Options& options, const Layout& layout, std::size_t ranks) {
  const Reader reader(options);
  Setup setup;
  setup.policy = make_policy(reader, layout, ranks);
  const bool accordion = setup.policy->name() == "accordion";
  AggregatorOptions& out = setup.options;
  out.step.compressor = reader.text("compressor", "topk");
  out.step.granularity = granularity_from_string(reader.text("granularity", accordion ? "layer" : "global"));
  out.step.feedback = reader.flag("feedback", true);
  out.step.threads = reader.number("threads", 1u);
  out.step.seed = reader.number<std::uint64_t>("seed", 0);
  out.values = values_from_string(reader.text("values", "fp32"));
  out.route = route_from_string(reader.text("exchange", "auto"));
  const std::string memory = reader.text("memory", "residual");
  require(memory == "residual" || memory == "momentum", "options: memory '", memory,
          "' found, residual or momentum expected");
  if (memory == "momentum") {
    out.momentum = MomentumOptions{.momentum = reader.number("momentum", 0.9),
                                   .masking = reader.flag("masking", true),
                                   .clip = reader.number("clip", 0.0),
                                   .weight_decay = reader.number("weight-decay", 0.0),
                                   .ranks = static_cast<unsigned>(ranks),
                                   .optimizer = reader.number("optimizer-momentum", 0.0)};
  }
  for (const auto& [name, value] : options) {
    if (name != "threads") out.facts.emplace_back("option " + name, value);  // threads change no result
  }
  return setup;
}

}  // namespace gravac
