#include "train/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "gravac/codec/compressors.h"
#include "gravac/table_testing.h"
#include "gravac/util/require.h"
#include "train/files_testing.h"

namespace gravac::train {
namespace {

const Catalog kCatalog = {
    .models = {{"resnet20", ""}, {"mlp", ""}, {"lstm-200", "", true}},
    .data = {{"images", ""}, {"cifar10", "", false, true}, {"corpus", "", true}, {"words", "", true, true}}};

// Settings as flags give them: "lr=0.5 overlap=true".
Settings flags(std::string_view text) {
  Settings settings;
  for (const auto& [name, value] : options_from_string(text)) settings[name] = {value, "--" + name};
  return settings;
}

TrainOptions parse(std::string_view text) {
  return train_options(flags(text), kCatalog);
}

std::string refusal(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// The fields of the options as text, to compare two of them.
std::string fields(const TrainOptions& o) {
  std::ostringstream all;
  const auto link = [&](const Link& l) { all << l.bits_per_second << ' ' << l.latency_seconds << '\n'; };
  all.precision(17);
  all << o.model << '\n' << o.data << '\n' << o.data_dir << '\n' << o.workers << '\n' << o.backend << '\n';
  for (const auto& [name, value] : o.engine) all << name << '=' << value << '\n';
  all << o.overlap << '\n'
      << o.bucket << '\n'
      << o.batch << '\n'
      << o.lr << '\n'
      << o.momentum << '\n'
      << o.weight_decay << '\n';
  all << o.optimizer << '\n' << o.beta1 << '\n' << o.beta2 << '\n' << o.eps << '\n';
  all << o.clip << '\n' << o.nesterov << '\n' << o.schedule << '\n' << o.warmup << '\n';
  for (const double share : o.decay_at) all << share << '\n';
  all << o.decay_by << '\n' << o.schedule_by_effective << '\n' << o.steps.value_or(0) << '\n';
  all << o.epochs.value_or(0) << '\n' << o.eval_every << '\n' << o.window_tokens << '\n' << o.augment << '\n';
  if (o.until) all << o.until->metric << ' ' << o.until->value << '\n';
  all << o.skew.value_or(0) << '\n' << o.seed << '\n' << o.timeout << '\n';
  if (o.link) link(*o.link);
  if (o.emulate) {
    all << o.emulate->workers << ' ' << o.emulate->compute_seconds << ' '
        << o.emulate->compress_seconds_per_entry;
    link(o.emulate->link);
  }
  all << o.deterministic << '\n'
      << o.checkpoint_every << '\n'
      << static_cast<int>(o.start) << '\n'
      << o.out << '\n'
      << o.json << '\n'
      << o.threads << '\n';
  all << o.interface << '\n' << o.config;
  for (const auto& [name, value] : o.facts) all << name << '=' << value << '\n';
  for (const auto& [name, value] : o.fixed) all << name << '=' << value << '\n';
  return all.str();
}

TEST(Options, WithoutAnyAreTheDefaultsOfTheStruct) {
  TrainOptions defaults = parse("");
  defaults.config.clear();
  defaults.facts.clear();
  defaults.fixed.clear();
  EXPECT_EQ(fields(defaults), fields(TrainOptions{}));
}

TEST(Options, ADeterministicRunChoosesByTheSimulatedLink) {
  const TrainOptions given = parse("deterministic=true link=1gbit,50us compute=0.02");
  EXPECT_EQ(given.engine.at("deterministic"), "true");
  EXPECT_EQ(given.engine.at("link"), "1gbit,50us");
  EXPECT_EQ(given.engine.at("compute"), "0.02");
  EXPECT_FALSE(parse("link=1gbit,50us").engine.contains("link"));
  // Virtual times repeat without it.
  EXPECT_FALSE(
      parse("deterministic=true emulate=workers=2,link=1gbit,compute=1ms").engine.contains("deterministic"));
}

TEST(Options, ReadBackFromThePrintedConfigAreTheSame) {
  const char* cases[] = {
      "",
      "policy=gravac epsilon=.5 omega=0.02 window=20 ladder=geometric gain=error-fed smoothing=0.1 "
      "factor-max=1e3",
      "policy=static factor=12.5 values=bf16 exchange=all-gather granularity=layer compressor=dgc "
      "feedback=false",
      "memory=momentum momentum=0.7 weight-decay=1e-5 clip=2 masking=false seed=18 policy=accordion "
      "interval=7",
      "model=lstm-200 data=words data-dir=/da\"ta\\x until=ppl=120.5 tokens=70 lr=20 schedule=step "
      "decay-at=0.25,0.5",
      "steps=007 warmup=3 eval-every=5 augment=false skew=0.3 nesterov=true schedule-by=effective "
      "timeout=2.5",
      "epochs=1.5 workers=4 link=100mbit,1ms out=here resume=true checkpoint-every=10 json=true threads=2 "
      "interface=lo",
      "emulate=workers=32,link=10gbit/50us,compute=60ms,compress=0.5ns batch=8 until=top5=0.9 overlap=false "
      "bucket=2",
      "hand-over=as-is",
      "effective-momentum=0.5 policy=static factor=20",
      "optimizer=adamw beta1=0.8 beta2=0.95 eps=1e-6",
      "optimizer=adam lr=0.01 weight-decay=1e-4 clip=1",
      "deterministic=true seed=3 link=1gbit,50us compute=0.02",
      "backend=mpi overlap=1 progress-exponent=0.5 tail-exponent=2 floor=0.25 threshold=0.125",
  };
  const testing::Folder folder;
  for (const char* text : cases) {
    const TrainOptions given = parse(text);
    std::ofstream(folder / "run.toml") << given.config;
    Settings settings;
    add_file(settings, folder / "run.toml");
    EXPECT_EQ(fields(train_options(settings, kCatalog)), fields(given)) << text;
  }
}

TEST(Options, ThePrintedConfigNamesEveryOptionButTheFileItself) {
  const std::string config = parse("").config;
  for (const TrainOption& option : option_table()) {
    const bool there = config.find("\n" + std::string(option.name) + " = ") != std::string::npos ||
                       config.find("\n# " + std::string(option.name) + " = ") != std::string::npos;
    EXPECT_EQ(there, option.name != "config") << option.name;
  }
}

// Names lower case and unique, help one sentence without a full stop.
TEST(Options, HaveACompleteTable) {
  struct Line {
    std::string name, description;
  };
  std::vector<Line> lines;
  for (const TrainOption& option : option_table()) {
    lines.push_back({std::string(option.name), std::string(option.help) + "."});
    if (!option.default_value.empty()) {
      EXPECT_NO_THROW(canonical(option, std::string(option.default_value), "")) << option.name;
    }
  }
  EXPECT_EQ(gravac::testing::table_defects(lines), "");
}

TEST(Options, OfTheLibraryAreAllInTheTable) {
  for (const std::string_view name : option_names()) {
    if (name == "optimizer-momentum") continue;  // for optimizers that are not the trainer's own
    const auto all = option_table();
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const TrainOption& o) { return o.name == name; }))
        << name;
  }
}

TEST(Options, AllowEveryPolicyAndCompressorOfTheLibrary) {
  for (const std::string_view name : policy_names())
    EXPECT_EQ(refusal("policy=" + std::string(name)), "accepted");
  for (const std::string_view name : compressor_names()) {
    EXPECT_EQ(refusal("compressor=" + std::string(name)), "accepted");
  }
}

// The help shows the table's defaults. A policy that is given them must decide exactly like
// a policy that is given no options.
struct LinkCosts final : StepCosts {
  double dense_seconds() const override { return 1; }
  double sparse_seconds(double factor, std::size_t) const override { return 0.2 + 0.8 / factor; }
};

TEST(Options, DefaultsOfTheTableAreThoseOfTheEngine) {
  const LinkCosts costs;
  Options told;
  for (const TrainOption& option : option_table()) {
    if (option.scope == TrainOption::Scope::engine && !option.default_value.empty()) {
      told.emplace(option.name, option.default_value);
    }
  }
  for (const std::string_view name : policy_names()) {
    told["policy"] = name;
    const auto with = make_setup(told, Layout(10), 4),
               without = make_setup({{"policy", told["policy"]}}, Layout(10), 4);
    for (int step = 0; step < 3000; ++step) {
      const double kept = step % 900 < 500 ? 0.99 : 0.65;
      const Statistics rank{.entries = 10, .sum = kept, .norms = {1, kept, kept}};
      const Energy energy{
          .entered = 1, .dense = 1, .minimum = kept, .candidate = kept * kept, .ranks = std::span(&rank, 1)};
      const auto plan = with.policy->plan();
      const double factor = plan ? plan->candidate : 1;
      for (Policy* policy : {with.policy.get(), without.policy.get()}) {
        policy->decide(energy);
        policy->record({.factor = factor, .samples_per_second = 100 + factor, .costs = &costs});
      }
      ASSERT_EQ(with.policy->save(), without.policy->save()) << name << " after step " << step;
    }
    EXPECT_EQ(with.options.step.compressor, without.options.step.compressor);
    EXPECT_EQ(with.options.step.feedback, without.options.step.feedback);
    EXPECT_EQ(with.options.values, without.options.values);
    EXPECT_EQ(with.options.route, without.options.route);
    EXPECT_EQ(with.options.momentum.has_value(), without.options.momentum.has_value());
  }
}

TEST(Options, GoToTheEngineOnlyWhereTheyDifferFromItsDefaults) {
  EXPECT_EQ(parse("policy=progress epsilon=0.70 momentum=0.5 clip=3 start-steps=0").engine,
            (Options{{"optimizer", "sgd"}, {"start-steps", "0"}}));
  EXPECT_EQ(parse("policy=static factor=20 seed=3").engine,
            (Options{{"policy", "static"}, {"factor", "20"}, {"seed", "3"}, {"optimizer", "sgd"}}));
}

// Under Adam policy gravac climbs bits, unless a factor of Top-k is named, be it the default.
TEST(Options, GoToTheEngineWhereNamingThemMeansMore) {
  const auto ladder_of = [](const std::string& text) {
    return make_setup(parse(text).engine, Layout(10), 4).options.compressors;
  };
  const std::string adam = "policy=gravac optimizer=adamw start-steps=0";
  EXPECT_EQ(ladder_of(adam + " factor-min=10"), std::vector<std::string>());  // topk alone
  EXPECT_EQ(ladder_of(adam).front(), "quantise");
}

TEST(Options, EachOptimizerHasItsOwnDefaults) {
  const auto numbers = [](const char* text) {
    const TrainOptions options = parse(text);
    return std::vector<double>{options.lr, options.weight_decay};
  };
  EXPECT_EQ(numbers("optimizer=sgd"), (std::vector<double>{0.1, 5e-4}));
  EXPECT_EQ(numbers("optimizer=adam"), (std::vector<double>{1e-3, 0}));
  EXPECT_EQ(numbers("optimizer=adamw"), (std::vector<double>{1e-3, 0.01}));
  EXPECT_EQ(numbers("optimizer=adamw lr=0.5 weight-decay=0"), (std::vector<double>{0.5, 0}));
  for (const std::string name : {"adamw", "adam"}) {
    EXPECT_EQ(parse("policy=dense optimizer=" + name).engine,
              (Options{{"optimizer", "adam"}, {"policy", "dense"}}));
  }
}

TEST(Options, GiveMomentumDecayAndClippingToTheMomentumMemory) {
  const TrainOptions options = parse("memory=momentum clip=2 policy=static");
  EXPECT_TRUE(options.momentum_memory());
  EXPECT_FALSE(parse("clip=2").momentum_memory());
  EXPECT_EQ(options.engine, (Options{{"memory", "momentum"},
                                     {"momentum", "0.9"},
                                     {"weight-decay", "5e-04"},
                                     {"clip", "2"},
                                     {"policy", "static"},
                                     {"optimizer", "sgd"}}));
}

TEST(Options, StartWithATenthOfTheRunButNotWithMoreThanLongRunsNeed) {
  const auto start = [](const std::string& text) {
    const Options engine = parse(text).engine;
    const auto found = engine.find("start-steps");
    return found == engine.end() ? "none" : found->second;
  };
  EXPECT_EQ(start("steps=300"), "30");
  EXPECT_EQ(start("steps=3000 policy=gravac"), "60");
  EXPECT_EQ(start("epochs=1"), "60");
  EXPECT_EQ(start("steps=5"), "0");
  EXPECT_EQ(start("steps=300 start-steps=7"), "7");
  EXPECT_EQ(start("steps=300 policy=static"), "none");
}

TEST(Options, ReadAnEmulatedCluster) {
  const auto emulate = *parse("emulate=workers=32,link=10gbit/50us,compute=60ms,compress=0.5ns").emulate;
  EXPECT_EQ(emulate.workers, 32u);
  EXPECT_DOUBLE_EQ(emulate.link.bits_per_second, 1e10);
  EXPECT_DOUBLE_EQ(emulate.link.latency_seconds, 5e-5);
  EXPECT_DOUBLE_EQ(emulate.compute_seconds, 0.06);
  EXPECT_DOUBLE_EQ(emulate.compress_seconds_per_entry, 5e-10);
}

TEST(Options, ThatWorkersMustAgreeOnAreInTheFacts) {
  const auto facts = parse("lr=0.5 out=here").facts;
  const auto has = [&](const char* name) {
    return std::any_of(facts.begin(), facts.end(), [&](const auto& fact) { return fact.first == name; });
  };
  EXPECT_TRUE(has("lr") && has("model") && has("seed") && has("batch"));
  EXPECT_FALSE(has("out") || has("data-dir") || has("threads") || has("workers"));
}

TEST(Options, WithWhichARunMustBeResumedHaveTheirValuesGivenOrNot) {
  const auto fixed = [](const char* options) {
    const auto all = parse(options).fixed;
    return std::map<std::string, std::string>(all.begin(), all.end());
  };
  EXPECT_EQ(fixed("lr=0.1 weight-decay=0.0005 steps=9 out=here threads=3 eval-every=7 workers=2"), fixed(""));
  EXPECT_EQ(fixed("").at("lr"), "0.1");
  EXPECT_EQ(fixed("").at("skew"), "not set");
  EXPECT_EQ(fixed("skew=0.5").at("skew"), "0.5");
  EXPECT_EQ(fixed("optimizer=adam").at("lr"), "0.001");
  EXPECT_FALSE(fixed("factor=5 policy=static").contains("factor")) << "the engine compares its own";
}

TEST(Options, OutOfRangeAreRefusedInOneLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"epsilon=2", "--epsilon must be a number from 0 to 1, got '2'"},
      {"epsilon=-0.1", "--epsilon must be a number from 0 to 1, got '-0.1'"},
      {"epsilon=nan", "--epsilon must be a number from 0 to 1, got 'nan'"},
      {"epsilon=high", "--epsilon must be a number from 0 to 1, got 'high'"},
      {"window=0", "--window must be a whole number of at least 1, got '0'"},
      {"window=1.5", "--window must be a whole number of at least 1, got '1.5'"},
      {"factor=0.5", "--factor must be a number of at least 1, got '0.5'"},
      {"factor=inf", "--factor must be a number of at least 1, got 'inf'"},
      {"factor-min=0", "--factor-min must be a number of at least 1, got '0'"},
      {"omega=1", "--omega must be a number of at least 0 and below 1, got '1'"},
      {"smoothing=0", "--smoothing must be a number above 0 and at most 1, got '0'"},
      {"lr=0", "--lr must be a number above 0 and at most 1e+06, got '0'"},
      {"momentum=1", "--momentum must be a number of at least 0 and below 1, got '1'"},
      {"batch=0", "--batch must be a whole number from 1 to 1e+06, got '0'"},
      {"workers=0", "--workers must be a whole number from 1 to 4096, got '0'"},
      {"steps=-5", "--steps must be a whole number of at least 1, got '-5'"},
      {"seed=99999999999999999999",
       "--seed must be a whole number of at least 0, got '99999999999999999999'"},
      {"backend=nccl", "--backend must be gloo or mpi, got 'nccl'"},
      {"augment=maybe", "--augment must be true or false, got 'maybe'"},
      {"model=resnet21",
       "--model: no such model 'resnet21'; did you mean 'resnet20'? Known: resnet20, mlp, lstm-200"},
      {"data=cifar",
       "--data: no such data set 'cifar'; did you mean 'cifar10'? Known: images, cifar10, corpus, words"},
      {"link=fast", "--link: link: expected a rate and a delay such as 100mbit,1ms, got 'fast'"},
      {"until=top1", "--until must be top1=SHARE, top5=SHARE or ppl=VALUE, got 'top1'"},
      {"until=top1=80", "--until must be a share above 0 and at most 1, got 'top1=80'"},
      {"until=ppl=0", "--until must be a perplexity of at least 1, got 'ppl=0'"},
      {"decay-at=0.5,1", "--decay-at must be a number above 0 and below 1, got '1'"},
      {"decay-at=0.5,0.3", "--decay-at must be ascending shares, got '0.5,0.3'"},
      {"emulate=32",
       "--emulate: expected workers=N,link=RATE/DELAY,compute=TIME and optionally compress=TIME, got '32'"},
      {"emulate=workers=4,link=1gbit",
       "--emulate: there is no compute= in 'workers=4,link=1gbit'; expected "
       "workers=N,link=RATE/DELAY,compute=TIME"},
      {"emulate=workers=0,link=1gbit,compute=1s",
       "--emulate: workers must be a whole number from 1 to 4096, got '0'"},
      {"emulate=workers=4,link=1gbit,compute=60", "--emulate: expected a time such as 60ms, got '60'"},
      {"emulate=workers=4,link=1gbit,50us,compute=60ms",
       "--emulate: expected workers=N,link=RATE/DELAY,compute=TIME and optionally compress=TIME, got '50us'"},
      {"link=100parsec", "--link: link: expected a rate and a delay such as 100mbit,1ms, got '100parsec'"},
      {"until=loss=2", "--until must be top1=SHARE, top5=SHARE or ppl=VALUE, got 'loss=2'"},
      {"timeout=0", "--timeout must be a number above 0 and at most 1e+06, got '0'"},
      {"out=", "--out: expected DIR, got nothing"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(refusal(text), message);
  EXPECT_EQ(refusal("policy=best"), "--policy must be " + either(policy_names()) + ", got 'best'");
  EXPECT_EQ(refusal("compressor=best"),
            "--compressor must be auto, " + either(compressor_names()) + ", got 'best'");
}

TEST(Options, ThatContradictEachOtherAreRefusedInOneLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"factor-min=100 factor-max=10", "--factor-min 100 is above --factor-max 10"},
      {"policy=gravac factor-min=100 factor-max=10", "--factor-min 100 is above --factor-max 10"},
      {"policy=gravac factor-max=5", "options: factor-max 5 is below factor-min 10"},
      {"steps=5 epochs=1", "--steps 5 and --epochs 1 cannot be combined; give one of them"},
      {"resume=true", "--resume needs --out, the folder with the checkpoints"},
      {"checkpoint-every=5", "--checkpoint-every 5 needs --out, the folder for the checkpoints"},
      {"optimizer=adam momentum=0.9", "--momentum 0.9 is for --optimizer sgd, not --optimizer adam"},
      {"optimizer=adamw nesterov=true", "--nesterov true is for --optimizer sgd, not --optimizer adamw"},
      {"optimizer=adam memory=momentum", "--memory momentum is for --optimizer sgd, not --optimizer adam"},
      {"optimizer=adam effective-momentum=0.5",
       "--effective-momentum 0.5 is for --optimizer sgd, not --optimizer adam"},
      {"beta1=0.8", "--beta1 0.8 is for --optimizer adam or adamw, not --optimizer sgd"},
      {"optimizer=lion", "--optimizer must be sgd, adam or adamw, got 'lion'"},
      {"optimizer=adam beta2=1", "--beta2 must be a number of at least 0 and below 1, got '1'"},
      {"hand-over=all", "--hand-over must be momentum or as-is, got 'all'"},
      {"hand-over=as-is effective-momentum=0.5",
       "options: effective-momentum is for hand-over momentum and memory residual, got hand-over as-is "
       "and memory residual"},
      {"memory=momentum nesterov=true",
       "--memory momentum applies the momentum itself and has no Nesterov variant; leave --nesterov out"},
      {"nesterov=true momentum=0", "--nesterov needs a momentum above 0, got --momentum 0"},
      {"data=cifar10", "--data cifar10 needs --data-dir, the folder with its files"},
      {"data-dir=/x", "--data-dir /x was given, but --data images is built in and reads no files"},
      {"model=lstm-200", "--model lstm-200 is made for text, but --data images holds images"},
      {"until=ppl=100", "--until ppl=100 was given, but --data images is measured by top1 and top5"},
      {"model=lstm-200 data=corpus until=top1=0.5",
       "--until top1=0.5 was given, but --data corpus is measured by ppl"},
      {"model=lstm-200 data=corpus skew=1", "--skew 1 needs labelled images, but --data corpus is text"},
      {"backend=mpi workers=4",
       "--workers 4 starts workers over Gloo; with --backend mpi start them with mpirun -n 4"},
      {"backend=mpi interface=lo", "--interface lo is for --backend gloo, not mpi"},
      {"steps=5 warmup=6", "--warmup 6 is longer than the run, --steps 5"},
      {"exchange=shared compressor=topk",
       "exchange: shared positions need a compressor that picks the same ones on all ranks, such as randomk"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(refusal(text), message);
  const std::string cluster = "emulate=workers=4,link=1gbit,compute=1ms ";
  for (const char* other : {"link=1gbit", "workers=2", "overlap=true", "backend=mpi"}) {
    const std::string name(other, std::string_view(other).find('='));
    EXPECT_EQ(refusal(cluster + other),
              "--emulate simulates all workers in this process; --" + name + " cannot be combined with it");
  }
}

}  // namespace
}  // namespace gravac::train
