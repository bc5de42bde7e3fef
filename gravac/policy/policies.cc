#include "gravac/policy/policies.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <vector>

#include "gravac/util/names.h"

namespace gravac {

// policies.def is included twice: once to declare the functions NAME_policy(), once to fill the table.
#define POLICY(name, description) PolicyEntry name##_policy();
#include "gravac/policy/policies.def"
#undef POLICY

std::span<const PolicyInfo> policies() {
  static const PolicyInfo table[] = {
#define POLICY(name, description) {#name, description, name##_policy()},
#include "gravac/policy/policies.def"
#undef POLICY
  };
  return table;
}

std::span<const std::string_view> policy_names() {
  static const std::vector<std::string_view> names = names_of(policies());
  return names;
}

const PolicyInfo& policy_info(std::string_view name) {
  return entry_named(policies(), name, "policy", "policy");
}

namespace {

// Completes the help of a policy's option: "Policies gravac, accordion: lowest factor".
std::string help_of(const OptionInfo& option) {
  std::vector<std::string_view> readers, defaults;
  for (const PolicyInfo& policy : policies()) {
    if (policy.reads(option.name)) readers.push_back(policy.name);
    for (const SharedOption& shared : policy.entry.shared_options) {
      if (shared.name == option.name && !shared.default_value.empty())
        defaults.push_back(shared.default_value);
    }
  }
  if (std::ranges::adjacent_find(defaults, std::not_equal_to()) == defaults.end()) {
    defaults.resize(std::min<std::size_t>(defaults.size(), 1));  // the same for all of them
  }
  std::string help(option.help);
  help[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(help[0])));
  help = (readers.size() == 1 ? "Policy " : "Policies ") + listed(readers) + ": " + help;
  return defaults.empty() ? help : help + " (default: " + listed(defaults) + ")";
}

// The options that several policies share, then those of each policy. Help is completed with the names of the
// policies that read an option, so that it cannot go stale.
std::vector<OptionInfo> make_policy_options() {
  using enum OptionInfo::Kind;
  std::vector<OptionInfo> all = {
      {kPolicyOptions, "factor", number, "F", "", "Send 1 entry in F", 1},
      {kPolicyOptions, "factor-min", number, "F", "", "Lowest factor", 1},
      {kPolicyOptions, "factor-max", number, "F", "1000", "Highest factor", 1},
      {kPolicyOptions, "interval", count, "STEPS", "",
       "Steps between changes of the factor, or of what the policy takes for an epoch", 1},
      {kPolicyOptions, "start-steps", count, "STEPS", "",
       "Steps at the start that are sent in 4 bits, or dense where that is quicker (default: 30; in the "
       "trainer a tenth of --steps, at most 60)"},
      {kPolicyOptions, "smoothing", number, "S", "",
       "Weight of a new value in moving averages (default: workers / 100)", 0, 1, true},
  };
  for (const PolicyInfo& policy : policies()) {
    all.insert(all.end(), policy.entry.options.begin(), policy.entry.options.end());
  }
  static std::vector<std::string> helps;  // keeps the texts alive: options hold views of them
  for (const OptionInfo& option : all) helps.push_back(help_of(option));
  for (std::size_t i = 0; i < all.size(); ++i) all[i].help = helps[i];
  return all;
}

}  // namespace

std::span<const OptionInfo> policy_options() {
  static const std::vector<OptionInfo> table = make_policy_options();
  return table;
}

bool PolicyInfo::reads(std::string_view option) const {
  const auto own = names_of(entry.options), shared = names_of(entry.shared_options);
  return std::find(own.begin(), own.end(), option) != own.end() ||
         std::find(shared.begin(), shared.end(), option) != shared.end();
}

}  // namespace gravac
