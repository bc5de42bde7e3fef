#include "gravac/config.h"

#include <gtest/gtest.h>

#include "gravac/codec/compressors.h"
#include "gravac/codec/low_rank/ranks.h"
#include "gravac/table_testing.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

std::string refusal(const char* text) {
  try {
    make_setup(options_from_string(text), Layout(10), 4);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Config, WithoutOptionsIsTheDefault) {
  const auto setup = make_setup({}, Layout(10), 4);
  EXPECT_EQ(setup.policy->name(), "progress");
  EXPECT_EQ(setup.options.step.compressor, "quantise");  // as good as dense under any optimizer
  EXPECT_FALSE(setup.options.route);
  EXPECT_FALSE(setup.options.momentum);
}

TEST(Config, AutoIsWhatSuitsThePolicyAndTheOptimizer) {
  const auto chosen = [](const char* text) {
    Options given = options_from_string(text);
    given.emplace("start-steps", "0");  // unless the text says otherwise
    const EngineOptions options = make_setup(given, Layout(10), 4).options;
    return options.compressors.empty() ? std::vector{options.step.compressor} : options.compressors;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(chosen("optimizer=sgd"), (Names{"topk", "quantise", "powersgd"}));
  EXPECT_EQ(chosen("optimizer=sgd hand-over=as-is"), (Names{"quantise", "powersgd"}));
  EXPECT_EQ(chosen("optimizer=sgd exchange=reduce-scatter"), (Names{"topk", "quantise"}));
  EXPECT_EQ(chosen("optimizer=adam"), (Names{"quantise", "powersgd"}));
  EXPECT_EQ(chosen("optimizer=adam exchange=all-gather"), Names{"quantise"});
  EXPECT_EQ(chosen("optimizer=adam feedback=false"), Names{"quantise"});
  EXPECT_EQ(chosen("optimizer=adam compressor=topk"), Names{"topk"});
  EXPECT_EQ(chosen("policy=gravac"), Names{"topk"});
  EXPECT_EQ(chosen("policy=gravac optimizer=sgd"), Names{"topk"});
  EXPECT_EQ(chosen("policy=gravac optimizer=adam"), (Names{"quantise", "powersgd"}));
  EXPECT_EQ(chosen("policy=gravac optimizer=adam compressor=topk"), Names{"topk"});
  EXPECT_EQ(chosen("policy=gravac optimizer=adam factor-min=10"), Names{"topk"});
  EXPECT_EQ(chosen("policy=accordion optimizer=sgd"), Names{"topk"});
  EXPECT_EQ(chosen("granularity=layer"), Names{"topk"});
  EXPECT_EQ(chosen("memory=momentum"), Names{"topk"});
  // For the start they get a quantiser, if they have none and can have one.
  EXPECT_EQ(chosen("policy=gravac start-steps=10"), (Names{"topk", "quantise"}));
  EXPECT_EQ(chosen("optimizer=sgd start-steps=10"), (Names{"topk", "quantise", "powersgd"}));
  EXPECT_EQ(chosen("memory=momentum start-steps=10"), Names{"topk"});
}

// Its rungs are the settings that were measured to be worth nearly as much as dense steps.
TEST(Config, UnderAdamGravacClimbsThroughBits) {
  const auto setup =
      make_setup(options_from_string("policy=gravac optimizer=adam start-steps=0"), Layout(10), 4);
  EXPECT_EQ(setup.policy->plan(), (Plan{4, 4}));
  EXPECT_THROW(make_setup(options_from_string("policy=gravac optimizer=adam factor-max=2"), Layout(10), 4),
               Error);
}

TEST(Config, WarnsOfTopkUnderAdamAndOfNothingElse) {
  const auto warns = [](const char* text) {
    return !make_setup(options_from_string(text), Layout(10), 4).warnings.empty();
  };
  EXPECT_TRUE(warns("policy=gravac optimizer=adam compressor=topk"));
  EXPECT_TRUE(warns("policy=static optimizer=adam factor=10"));
  EXPECT_FALSE(warns("policy=dense optimizer=adam"));
  EXPECT_FALSE(warns("policy=gravac optimizer=adam"));
  EXPECT_FALSE(warns("optimizer=adam"));
  EXPECT_FALSE(warns("policy=gravac optimizer=sgd"));
  EXPECT_FALSE(warns("policy=static"));
}

TEST(Config, EveryCompressorHasALaw) {
  Layout layout;
  layout.add("weights", 4096, 64);
  for (const CompressorInfo& info : compressors()) {
    for (const char* optimizer : {"sgd", "adam", "unknown"}) {
      const Options options = {
          {"compressor", std::string(info.name)}, {"optimizer", optimizer}, {"start-steps", "0"}};
      const auto setup = make_setup(options, layout, 4);
      ASSERT_EQ(setup.options.laws.size(), 1u);
      const double rate = setup.options.laws[0].rate(4, 0.5);
      EXPECT_TRUE(rate > 0 && rate <= 1.1) << info.name << " " << optimizer << ": " << rate;
    }
  }
}

TEST(Config, ResolvesEveryOptionThatResultsDependOn) {
  const Options none = resolved_options({}),
                some =
                    resolved_options(options_from_string("factor=5e2 epsilon=0.70 feedback=false threads=4"));
  EXPECT_EQ(none.size(), engine_options().size() - 1) << "all but threads";
  EXPECT_EQ(some.size(), none.size());
  EXPECT_EQ(none.at("factor"), "not set");
  EXPECT_EQ(some.at("factor"), "500");
  EXPECT_EQ(none.at("epsilon"), some.at("epsilon"));
  EXPECT_EQ(none.at("feedback"), "true");
  EXPECT_EQ(some.at("feedback"), "false");
  EXPECT_EQ(make_setup({}, Layout(10), 4).options.facts.size(), none.size());
  EXPECT_THROW(resolved_options(options_from_string("facto=5")), Error);
}

TEST(Config, ReadsEveryPolicyAndItsOptions) {
  EXPECT_EQ(
      make_setup(options_from_string("policy=static factor=50"), Layout(10), 4).policy->plan()->candidate,
      50);
  const auto gravac =
      make_setup(options_from_string(
                     "policy=gravac ladder=geometric factor-min=1.5 epsilon=0.9 gain=error-fed start-steps=0 "
                     "compressor=randomk"),
                 Layout(10), 4);
  EXPECT_EQ(gravac.policy->plan()->minimum, 1.5);
  EXPECT_EQ(gravac.options.step.compressor, "randomk");
  EXPECT_FALSE(gravac.policy->needs().norms);
  EXPECT_TRUE(
      make_setup(options_from_string("policy=gravac gain=released"), Layout(10), 4).policy->needs().norms);
  const auto factor_of = [](const char* text) {
    return make_setup(options_from_string(text), Layout(10), 4).policy->plan()->candidate;
  };
  EXPECT_EQ(factor_of("policy=static"), 100);
  EXPECT_EQ(factor_of("policy=scadles"), 10);
  EXPECT_EQ(factor_of("policy=scadles factor=25"), 25);
  EXPECT_EQ(factor_of("policy=adaqs start=4"), 8);
  const auto accordion = make_setup(options_from_string("policy=accordion"), Layout(10), 4);
  EXPECT_EQ(accordion.options.step.granularity, Granularity::layer);
  const auto momentum = make_setup(
      options_from_string("memory=momentum momentum=0.5 values=fp16 exchange=all-gather"), Layout(10), 4);
  EXPECT_EQ(momentum.options.momentum->momentum, 0.5);
  EXPECT_EQ(momentum.options.momentum->ranks, 4u);
  EXPECT_EQ(momentum.options.route, Route::all_gather);
}

TEST(Config, KnowsHowPositionsAreSent) {
  EXPECT_EQ(make_setup({}, Layout(10), 4).options.positions, Positions::coded);
  EXPECT_EQ(make_setup({{"positions", "int64"}}, Layout(10), 4).options.positions, Positions::int64);
  EXPECT_NE(refusal("positions=int32").find("positions must be coded or int64, got 'int32'"),
            std::string::npos)
      << refusal("positions=int32");
}

// Eight bits where the residual keeps what they round off; floats for sums, without feedback and in the
// paper's own form.
TEST(Config, ChoosesHowValuesAreSent) {
  const auto values = [](const char* text) {
    Layout layout;
    layout.add("matrix", 600, 20);
    return make_setup(options_from_string(text), layout, 4).options.values;
  };
  for (const char* text :
       {"compressor=topk", "compressor=dgc policy=static", "optimizer=sgd", "memory=momentum"}) {
    EXPECT_EQ(values(text), Values::int8) << text;
  }
  for (const char* text :
       {"compressor=randomk", "compressor=powersgd rank=2", "compressor=quantise", "feedback=false",
        "compressor=topk positions=int64", "compressor=topk values=fp32"}) {
    EXPECT_EQ(values(text), Values::fp32) << text;
  }
}

// What was measured of a rank counts at the factor that this rank makes in bits.
TEST(Config, RatesOfRanksGoByTheBitsOfTheirValues) {
  Layout layout;
  layout.add("matrix", 1024 * 1024, 1024);
  for (const Values values : kEveryValues) {
    const std::string options = "compressor=powersgd optimizer=sgd policy=progress values=";
    const Law law = make_setup(options_from_string(options + std::string(to_string(values))), layout, 4)
                        .options.laws.at(0);
    const char* family = values == Values::int4 ? "low-rank-int4" : "low-rank";
    for (const MeasuredRate& one : measured_rates(family, "momentum", "sgd")) {
      const double factor = factor_of(layout, static_cast<std::size_t>(one.setting), values);
      EXPECT_DOUBLE_EQ(law.rate(factor, 0.5), one.rate) << to_string(values) << " " << one.setting;
    }
  }
}

// Scales are more than a tensor of one entry saves.
TEST(Config, TakesARankForTheSmallestLayout) {
  for (const Values values : kEveryValues) {
    const std::string options = "compressor=powersgd rank=8 values=" + std::string(to_string(values));
    EXPECT_NO_THROW(make_setup(options_from_string(options), Layout(1), 4)) << options;
  }
}

TEST(Config, NamesTheNearestKnownOption) {
  EXPECT_EQ(refusal("compresor=topk"), "options: no such option 'compresor'; did you mean 'compressor'?");
  EXPECT_EQ(refusal("epsilom=1"), "options: no such option 'epsilom'; did you mean 'epsilon'?");
}

TEST(Config, KnowsEveryPolicyItNames) {
  for (const std::string_view policy : policy_names()) {
    EXPECT_EQ(make_setup({{"policy", std::string(policy)}}, Layout(10), 4).policy->name(), policy);
  }
}

// Options by name, kind and help: names lower case and unique, defaults that are values of
// their kind, help that begins with a capital and is one sentence without a full stop.
TEST(Config, HasACompleteTableOfOptions) {
  struct Line {
    std::string name, description;
  };
  std::vector<Line> lines;
  for (const OptionInfo& option : engine_options()) {
    lines.push_back({std::string(option.name), std::string(option.help) + "."});
    EXPECT_FALSE(option.group.empty()) << option.name;
    EXPECT_EQ(option.value.empty(), option.kind == OptionInfo::Kind::flag) << option.name;
  }
  EXPECT_EQ(testing::table_defects(lines), "");
}

TEST(Config, AcceptsEveryDefaultOfTheTable) {
  Options told;
  for (const OptionInfo& option : engine_options()) {
    if (!option.default_value.empty()) told.emplace(option.name, option.default_value);
  }
  for (const char* memory : {"residual", "momentum"}) {
    told["memory"] = memory;
    for (const PolicyInfo& policy : policies()) {
      told["policy"] = policy.name;
      for (const SharedOption& option : policy.entry.shared_options) {
        if (!option.default_value.empty()) told[std::string(option.name)] = option.default_value;
      }
      const auto without = make_setup({{"memory", memory}, {"policy", told["policy"]}}, Layout(10), 4);
      const auto with = make_setup(told, Layout(10), 4);
      EXPECT_EQ(with.policy->save(), without.policy->save());
      EXPECT_EQ(with.policy->observe_interval(), without.policy->observe_interval());
    }
  }
}

TEST(Config, SharedOptionsOfPoliciesAreInTheTable) {
  for (const PolicyInfo& policy : policies()) {
    for (const SharedOption& option : policy.entry.shared_options) {
      EXPECT_EQ(entry_named(policy_options(), option.name, "options", "option").name, option.name);
    }
  }
}

TEST(Config, RefusesValuesOutOfRangeInOneLine) {
  EXPECT_EQ(refusal("policy=gravac epsilon=high"), "options: epsilon must be a number, got 'high'");
  EXPECT_EQ(refusal("policy=gravac epsilon=2"), "gravac policy: epsilon must be from 0 to 1, got 2");
  EXPECT_EQ(refusal("policy=gravac window=-1"), "options: window must be a number, got '-1'");
  EXPECT_EQ(refusal("policy=gravac factor-min=100 factor-max=10"),
            "options: factor-max 10 is below factor-min 100");
  EXPECT_EQ(refusal("policy=gravac gain=best"),
            "gain: no such definition 'best'; known: error-fed, gradient, released");
  EXPECT_EQ(refusal("policy=adaqs start=16"),
            "adaqs policy: bits must satisfy 1 <= start <= cap <= 32, got start 16 and cap 8");
  EXPECT_EQ(refusal("policy=best"), "policy: no such policy 'best'; known: " + listed(policy_names()));
  EXPECT_EQ(refusal("memory=elephant"), "options: memory must be residual or momentum, got 'elephant'");
  EXPECT_EQ(refusal("policy"), "options: expected name=value, got 'policy'");
  EXPECT_EQ(refusal("seed=1 seed=2"), "options: 'seed' is given twice");
  EXPECT_EQ(refusal("hand-over=all"), "options: hand-over must be momentum or as-is, got 'all'");
  EXPECT_EQ(refusal("effective-momentum=1"), "options: effective-momentum must be >= 0 and below 1, got 1");
  EXPECT_EQ(
      refusal("effective-momentum=0.5 hand-over=as-is"),
      "options: effective-momentum is for hand-over momentum and memory residual, got hand-over as-is and "
      "memory residual");
  EXPECT_EQ(
      refusal("effective-momentum=0.5 memory=momentum"),
      "options: effective-momentum is for hand-over momentum and memory residual, got hand-over momentum and "
      "memory momentum");
  EXPECT_EQ(refusal("optimizer=lion"), "options: optimizer must be sgd, adam or unknown, got 'lion'");
  EXPECT_EQ(refusal("link=1gbit,50us"),
            "options: link is for deterministic runs, which choose by it; others go by the times that they "
            "measure");
  EXPECT_EQ(refusal("deterministic=true compute=-1"), "options: compute must be > 0 s, got -1 s");
  EXPECT_EQ(refusal("feedback=maybe"), "options: feedback must be true or false, got 'maybe'");
}

}  // namespace
}  // namespace gravac
