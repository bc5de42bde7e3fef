#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "gravac/engine.h"
#include "gravac/policy/policies.h"
#include "gravac/util/names.h"
#include "gravac/util/options.h"

namespace gravac {

// Every option of the engine, of its compressors and of its policies. The trainer's flags,
// help and docs are made from this table.
std::span<const OptionInfo> engine_options();
std::span<const std::string_view> option_names();

// A heading in engine_options(). The trainer offers the options under this heading and under
// kPolicyOptions as they are. It has its own options by the names under other headings, such as
// momentum, because they concern its optimizer as well.
inline constexpr std::string_view kCompressionOptions = "Compression";

// Every option that results depend on, with its default if it was not given. An option whose default depends
// on others, as that of factor does on the policy, is "not set". Throws Error for an unknown name.
Options resolved_options(const Options& given);

// What the options say; its `facts` are resolved_options(), so that ranks, and checkpoints, compare them all.
// Throws Error for an unknown name, with the nearest known one, and for values out of range.
EngineSetup make_setup(const Options& options, const Layout& layout, std::size_t ranks);

}  // namespace gravac
