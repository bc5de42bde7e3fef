#include "apps/compare/experiment.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <utility>

#include "gravac/util/names.h"
#include "gravac/util/require.h"
#include "train/toml.h"

namespace gravac::compare {
namespace {

namespace fs = std::filesystem;
using train::Setting;
using train::Settings;
using train::TrainOption;
using train::TrainOptions;

// An option with its values, of which each makes a variant or task of its own.
struct Choice {
  std::string name;
  std::vector<Setting> values;
};
using Choices = std::vector<Choice>;

// One value for each option.
struct Combination {
  std::string name;
  Settings settings;
};

// A table as it stands in the file: toml++ sorts keys by name.
using Items = std::vector<std::pair<std::string, const toml::node*>>;
Items in_order(const toml::table& table) {
  Items items;
  for (const auto& [key, node] : table) items.emplace_back(key.str(), &node);
  std::ranges::stable_sort(items, {}, [](const auto& item) {
    const toml::source_position at = item.second->source().begin;
    return std::pair(at.line, at.column);
  });
  return items;
}

std::string suggestion(const std::string& word, const std::vector<std::string_view>& names) {
  return "'" + word + "'; did you mean '" + std::string(nearest(word, names)) + "'?";
}

const std::vector<std::string_view>& option_names() {
  static const std::vector<std::string_view> names = names_of(train::option_table());
  return names;
}

// Throws Error if users may not set this option; `where` says where they did.
void check_option(const std::string& name, const std::string& where) {
  const auto& names = option_names();
  require(std::ranges::find(names, name) != names.end(), where, ": no such option ", suggestion(name, names));
  require(name != "seed", where, ": seed: give seeds = [1, 2] at the top of the file instead");
  for (const char* own : {"config", "json", "out", "resume"}) {
    require(name != own, where, ": ", name, ": gravac compare sets this option itself");
  }
}

// "a b" and "a/b" become the folder "a-b".
std::string folder_name(const std::string& name) {
  std::string folder;
  for (const char c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '=';
    if (plain) folder += c;
    if (!plain && !folder.empty() && folder.back() != '-') folder += '-';
  }
  while (!folder.empty() && (folder.back() == '-' || folder.back() == '.')) folder.pop_back();
  return folder;
}

class File {
 public:
  File(std::string path, const Additions& additions, const train::Catalog& catalog)
      : path_(std::move(path)),
        additions_(additions),
        catalog_(catalog),
        root_(train::parse_toml(path_, "compare")) {}

  std::vector<Task> tasks() {
    check_keys();
    const std::vector<std::string> seeds = read_seeds();
    const Choices base = root_.contains("base") ? choices_of(table_at("base"), "base") : Choices();
    const std::vector<Combination> variants = read_variants();
    Items tables = items_at("tasks");
    const toml::table nothing;
    if (tables.empty()) tables.emplace_back("", &nothing);
    std::vector<Task> tasks;
    for (const auto& [name, node] : tables) {
      const toml::table& table = table_of(*node, "tasks." + name);
      for (const Combination& one :
           combinations(name, over(base, choices_of(table, "task '" + name + "'")))) {
        tasks.push_back(make_task(one, variants, seeds));
        read_target(table, tasks.back());
      }
    }
    if (tasks.size() > 1) check_names(tasks, "tasks");
    return tasks;
  }

 private:
  void check_keys() const {
    const std::vector<std::string_view> known = {"base",  "tasks",  "variants",
                                                 "seeds", "target", "target-margin"};
    for (const auto& [key, node] : in_order(root_)) {
      require(std::ranges::find(known, key) != known.end(), path_, ": no such key ", suggestion(key, known),
              " Options of gravac train belong in [base], [tasks.NAME] or [variants.NAME]");
    }
  }

  const toml::table& table_of(const toml::node& node, const std::string& name) const {
    require(node.is_table(), path_, ": ", name, " must be a table, [", name, "]");
    return *node.as_table();
  }
  const toml::table& table_at(const std::string& key) const { return table_of(*root_.get(key), key); }
  Items items_at(const std::string& key) const {
    return root_.contains(key) ? in_order(table_at(key)) : Items();
  }

  std::vector<std::string> read_seeds() const {
    const toml::node* node = root_.get("seeds");
    if (node == nullptr) return {"0"};
    std::vector<std::string> seeds;
    if (const toml::array* list = node->as_array()) {
      for (const toml::node& seed : *list) {
        if (seed.is_integer() && *seed.value<std::int64_t>() >= 0) seeds.push_back(*train::text_of(seed));
      }
      const std::set<std::string> different(seeds.begin(), seeds.end());
      if (seeds.size() == list->size() && !seeds.empty() && different.size() == seeds.size()) return seeds;
    }
    throw Error("seeds in " + path_ + " must be a list of different whole numbers, such as [1, 2]");
  }

  // The options of a table. `where` names it in messages.
  Choices choices_of(const toml::table& table, const std::string& where) const {
    Choices choices;
    for (const auto& [name, node] : in_order(table)) {
      if (where.starts_with("task ") && (name == "target" || name == "target-margin")) continue;
      check_option(name, path_ + ": " + where);
      choices.push_back({name, values_of(name, *node, name + " of " + where + " in " + path_)});
    }
    return choices;
  }

  // A list is a value for each of its entries, except that decay-at is a list by itself.
  static std::vector<Setting> values_of(const std::string& name, const toml::node& node,
                                        const std::string& source) {
    std::vector<Setting> values;
    const auto add = [&](const toml::node& one) {
      const auto text = train::text_of(one);
      const bool list = one.is_array() && name != "decay-at";
      require(text && !list, source, " must be a plain value or a list of them");
      values.push_back({*text, source});
    };
    const toml::array* list = node.as_array();
    const bool several =
        list != nullptr && (name != "decay-at" || (!list->empty() && list->front().is_array()));
    if (!several) add(node);
    if (several) list->for_each([&](const toml::node& one) { add(one); });
    require(!values.empty(), source, " must not be an empty list");
    return values;
  }

  // Those of `more`, and of `base` what it does not have.
  static Choices over(const Choices& base, Choices more) {
    const auto has = [&](std::string_view name) {
      return std::ranges::find(more, name, &Choice::name) != more.end();
    };
    const bool length = has("steps") || has("epochs");
    Choices all;
    for (const Choice& choice : base) {
      const bool is_length = choice.name == "steps" || choice.name == "epochs";
      if (!has(choice.name) && !(length && is_length)) all.push_back(choice);
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  // Every value of every option with every other; the first option varies slowest.
  std::vector<Combination> combinations(const std::string& name, const Choices& choices) const {
    std::vector<Combination> all = {{name, {}}};
    for (const Choice& choice : choices) {
      std::vector<Combination> longer;
      for (const Combination& one : all) {
        for (const Setting& value : choice.values) {
          Combination more = one;
          more.settings[choice.name] = value;
          const bool shown = fill_in(more.name, "{" + choice.name + "}", value.value);
          if (!shown && choice.values.size() > 1) {
            more.name += (more.name.empty() ? "" : " ") + choice.name + "=" + value.value;
          }
          longer.push_back(std::move(more));
        }
      }
      all = std::move(longer);
    }
    for (const Combination& one : all) {
      const std::size_t open = one.name.find('{');
      require(open == name.npos || one.name.find('}', open) == name.npos, path_, ": '", name,
              "' names an option in braces that it does not set");
    }
    return all;
  }

  static bool fill_in(std::string& text, const std::string& mark, const std::string& value) {
    bool found = false;
    for (std::size_t at = 0; (at = text.find(mark, at)) != text.npos; at += value.size()) {
      text.replace(at, mark.size(), value);
      found = true;
    }
    return found;
  }

  std::vector<Combination> read_variants() const {
    std::vector<Combination> variants;
    for (const auto& [name, node] : items_at("variants")) {
      const Choices choices = choices_of(table_of(*node, "variants." + name), "variant '" + name + "'");
      for (Combination& one : combinations(name, choices)) variants.push_back(std::move(one));
    }
    require(!variants.empty(), path_, ": there are no variants; give each a table [variants.NAME]");
    check_names(variants, "variants");
    return variants;
  }

  // Each has a folder of its own.
  template <class Named>
  void check_names(const std::vector<Named>& all, const std::string& kind) const {
    std::map<std::string, std::string> folders;
    for (const Named& one : all) {
      const std::string folder = folder_name(one.name);
      require(!folder.empty(), path_, ": names of ", kind, " must contain letters or digits, got '", one.name,
              "'");
      const auto [before, added] = folders.emplace(folder, one.name);
      require(added, path_, ": the ", kind, " '", before->second, "' and '", one.name,
              "' would share the folder ", folder, "; give them other names");
    }
  }

  Task make_task(const Combination& task, const std::vector<Combination>& variants,
                 const std::vector<std::string>& seeds) const {
    Task made{.name = task.name, .folder = folder_name(task.name)};
    for (const Combination& variant : variants) {
      made.variants.push_back({.name = variant.name});
      for (const std::string& seed : seeds) {
        ExperimentRun run{.seed = seed, .settings = additions_.settings};
        train::add(run.settings, variant.settings);
        train::add(run.settings, task.settings);
        run.folder = fs::path(additions_.out) / made.folder / folder_name(variant.name) / ("seed-" + seed);
        complete(run);
        run.options = checked(run.settings, task.name, variant.name);
        made.variants.back().runs.push_back(std::move(run));
      }
    }
    return made;
  }

  // Adds what is not the user's to choose, and what the command line says about the data.
  void complete(ExperimentRun& run) const {
    run.settings["seed"] = {run.seed, "seeds in " + path_};
    run.settings["out"] = {run.folder, "--out"};
    run.settings["resume"] = {"or-begin", "--resume"};
    if (additions_.threads > 0 && !run.settings.contains("threads")) {
      run.settings["threads"] = {std::to_string(additions_.threads), "--jobs"};
    }
    const auto data = run.settings.find("data");
    if (additions_.data_dir.empty() || data == run.settings.end()) return;
    const auto known = std::ranges::find(catalog_.data, data->second.value, &train::Known::name);
    if (known == catalog_.data.end() || !known->needs_files) return;
    const fs::path own = fs::path(additions_.data_dir) / known->name;
    run.settings["data-dir"] = {fs::is_directory(own) ? own.string() : additions_.data_dir, "--data-dir"};
  }

  TrainOptions checked(const Settings& settings, const std::string& task, const std::string& variant) const {
    try {
      return train::train_options(settings, catalog_);
    } catch (const Error& error) {
      const std::string what = error.what();
      if (what.find(path_) != what.npos) throw;
      throw Error(path_ + ": " + (task.empty() ? "" : "task '" + task + "', ") + "variant '" + variant +
                  "': " + what);
    }
  }

  // The target of a task stands in its table or, for all tasks, at the top of the file.
  void read_target(const toml::table& table, Task& task) const {
    const auto find = [&](std::string_view key) {
      const toml::node* own = table.get(key);
      return own != nullptr ? own : root_.get(key);
    };
    if (const toml::node* node = find("target-margin")) {
      const auto value = node->value<double>();
      require(value && *value >= 0 && *value < 1, "target-margin in ", path_,
              " must be a share >= 0 and below 1");
      task.margin = *value;
    }
    const toml::node* node = find("target");
    if (node == nullptr) return;
    const std::string text = train::text_of(*node).value_or("");
    if (text == "dense") {
      require(baselines_of(task).dense.has_value(), "target in ", path_,
              " is 'dense', but no variant has policy = \"dense\"");
      return;
    }
    Settings settings = task.variants[0].runs[0].settings;
    settings["until"] = {text, "target in " + path_};
    task.target = checked(settings, task.name, task.variants[0].name).until;
  }

  std::string path_;
  const Additions& additions_;
  const train::Catalog& catalog_;
  toml::table root_;
};

// The value of an option of the engine, its default if it was not given.
std::string value_of(const ExperimentRun& run, std::string_view name) {
  const auto given = run.options.engine.find(std::string(name));
  if (given != run.options.engine.end()) return given->second;
  const auto table = train::option_table();
  const auto option = std::ranges::find(table, name, [](const TrainOption& one) { return one.name; });
  return option == table.end() ? "" : std::string(option->default_value);
}

// Those that may differ between a run and the same run begun before.
constexpr const char* kOwnOfAStart[] = {"out", "data-dir", "resume", "threads", "json"};

std::string config_of(Settings settings, const Settings& here, const train::Catalog& catalog) {
  for (const char* name : kOwnOfAStart) {
    settings.erase(name);
    if (const auto mine = here.find(name); mine != here.end()) settings[name] = mine->second;
  }
  return train::train_options(settings, catalog).config;
}

}  // namespace

std::vector<Task> read_experiment(const std::string& path, const Additions& additions,
                                  const train::Catalog& catalog) {
  return File(path, additions, catalog).tasks();
}

Settings settings_of(const std::vector<std::string>& words) {
  Settings settings;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    require(equals != word.npos, "--set: expected NAME=VALUE, got '", word, "'");
    const std::string name = word.substr(0, equals);
    check_option(name, "--set");
    settings[name] = {word.substr(equals + 1), "--set " + name};
  }
  return settings;
}

Baselines baselines_of(const Task& task) {
  Baselines found;
  bool papers_form = false;
  for (std::size_t i = 0; i < task.variants.size(); ++i) {
    const ExperimentRun& run = task.variants[i].runs[0];
    const std::string policy = value_of(run, "policy"), compressor = value_of(run, "compressor");
    if (policy == "dense" && !found.dense) found.dense = i;
    if (policy == "static" && compressor == "fp16" && !found.fp16) found.fp16 = i;
    const bool topk = compressor == "topk" || compressor == "auto";
    if (policy != "static" || !topk || value_of(run, "factor") != "10") continue;
    const bool wide = value_of(run, "positions") == "int64";
    if (!found.topk || (wide && !papers_form)) found.topk = i;
    papers_form |= wide;
  }
  return found;
}

std::vector<std::string> arguments_of(const ExperimentRun& run) {
  std::vector<std::string> words = {"train"};
  for (const TrainOption& option : train::option_table()) {
    const auto given = run.settings.find(option.name);
    if (given == run.settings.end()) continue;
    const std::string name(option.name);
    if (option.kind != OptionInfo::Kind::flag) {
      words.push_back("--" + name + "=" + given->second.value);
    } else {
      const bool on = train::canonical(option, given->second.value, given->second.source) == "true";
      words.push_back((on ? "--" : "--no-") + name);
    }
  }
  return words;
}

void check_folder(const ExperimentRun& run, const train::Catalog& catalog) {
  const std::string file = run.folder + "/config.toml";
  if (!fs::exists(file)) return;
  Settings found;
  train::add_file(found, file);
  const std::vector<std::string> before = train::split(config_of(found, run.settings, catalog), '\n');
  const std::vector<std::string> now = train::split(run.options.config, '\n');
  for (std::size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    require(before[i] == now[i], run.folder, " holds a run with '", before[i], "', but this experiment has '",
            now[i], "'; give another --out, or remove that folder");
  }
}

}  // namespace gravac::compare
