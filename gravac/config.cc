#include "gravac/config.h"

#include <deque>
#include <string>
#include <vector>

#include "gravac/codec/select/compressor.h"
#include "gravac/comm/route.h"

namespace gravac {
namespace {

using enum OptionInfo::Kind;

constexpr std::string_view kMomentumOptions = "Momentum memory";
constexpr std::string_view kProcessOptions = "Process";

// Tables of options hold views. Texts put together here stay until the program ends.
std::string_view kept(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

// "a|b|c": the names of a table as the choices of an option.
template <class Table>
std::string_view choices_from(const Table& table) {
  std::string all;
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
      {kCompressionOptions, "compressor", choice, choices_from(compressors()), "topk",
       "Compressor that chooses the entries to send"},
      {kCompressionOptions, "granularity", choice, "layer|global", "",
       "Choose entries per layer or over the whole gradient (default: as the policy needs)"},
      {kCompressionOptions, "values", choice, "fp32|fp16|bf16|int8|int4", "fp32",
       "Format in which values are sent"},
      {kCompressionOptions, "exchange", choice, choices_from(routes()), "auto",
       "Route by which workers exchange the chosen entries"},
      {kCompressionOptions, "memory", choice, "residual|momentum", "residual",
       "What the memory of unsent entries holds: their sum (residual) or their momentum"},
      {kCompressionOptions, "masking", flag, "", "true",
       "Reset the momentum of entries that are sent (memory momentum)"},
      {kCompressionOptions, "feedback", flag, "", "true",
       "Keep entries that are not sent and send them later"},
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
      {kProcessOptions, "seed", count, "N", "0", "Seed of random choices; the same on all workers"},
      {kProcessOptions, "threads", count, "N", "1", "Threads that compress", 1, 1024},
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

EngineSetup make_setup(const Options& options, const Layout& layout, std::size_t ranks) {
  const OptionReader reader(options, engine_options());
  EngineSetup setup;
  setup.policy = policy_info(reader.text("policy"))
                     .entry.make({.options = reader, .ranks = ranks, .segments = layout.segments().size()});
  const bool factor_per_layer = setup.policy->observe_interval() > 0;
  EngineOptions& out = setup.options;
  out.step.compressor = reader.text("compressor");
  out.step.granularity = reader.given("granularity") ? granularity_from_string(reader.text("granularity"))
                         : factor_per_layer          ? Granularity::layer
                                                     : Granularity::global;
  out.step.feedback = reader.flag("feedback");
  out.step.threads = reader.number<unsigned>("threads");
  out.step.seed = reader.number<std::uint64_t>("seed");
  out.values = values_from_string(reader.text("values"));
  out.route = route_from_string(reader.text("exchange"));
  if (reader.choice("memory") == "momentum") {
    out.momentum = MomentumOptions{.momentum = reader.number("momentum"),
                                   .masking = reader.flag("masking"),
                                   .clip = reader.number("clip"),
                                   .weight_decay = reader.number("weight-decay"),
                                   .ranks = static_cast<unsigned>(ranks),
                                   .optimizer = reader.number("optimizer-momentum")};
  }
  for (const auto& [name, value] : options) {
    if (name != "threads")
      out.facts.emplace_back("option " + name, value);  // results are the same for any number of threads
  }
  return setup;
}

}  // namespace gravac
