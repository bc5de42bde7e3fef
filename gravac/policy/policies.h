#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gravac/policy/policy.h"
#include "gravac/util/options.h"

namespace gravac {

// What a policy's factory function gets.
struct PolicyInput {
  const OptionReader& options;
  std::size_t ranks = 1;
  std::size_t segments = 1;  // parameters of the model, each with its own part of the gradient
  std::span<const ProgressOptions::Compressor> compressors = {};  // that the engine has, by number
  bool has_settings =
      false;  // they have a few settings each, chosen to suit the optimizer: no ladder of factors
  StartOptions start = {};
};

// An option that several policies read. A policy can have its own default for it.
struct SharedOption {
  std::string_view name;
  std::string_view default_value = "";
};

// What the file of a policy adds to the table of policies: the result of its function NAME_policy().
struct PolicyEntry {
  std::unique_ptr<Policy> (*make)(const PolicyInput& input) = nullptr;
  std::span<const OptionInfo> options;           // read by this policy only
  std::span<const SharedOption> shared_options;  // read by others as well; their help is in policies.cc
};

// A line of the table of policies, policies.def.
struct PolicyInfo {
  std::string_view name;
  std::string_view description;  // one sentence
  PolicyEntry entry;

  bool reads(std::string_view option) const;
};

std::span<const PolicyInfo> policies();
std::span<const std::string_view> policy_names();

// The entry of the policy called `name`. Throws Error that lists the known names.
const PolicyInfo& policy_info(std::string_view name);

// The options of all policies.
std::span<const OptionInfo> policy_options();

// Their heading in help and docs.
inline constexpr std::string_view kPolicyOptions = "Policies";

}  // namespace gravac
