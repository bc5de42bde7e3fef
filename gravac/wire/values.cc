#include "gravac/wire/values.h"

#include <string>

#include "gravac/util/require.h"
#include "gravac/wire/codes.h"
#include "gravac/wire/runs.h"

namespace gravac {
namespace {

struct Info {
  std::string_view name;
  std::size_t bits;
  bool scaled;  // runs of values share a scale
};

// In the order of their numbers.
constexpr Info kInfos[] = {
    {"fp32", 32, false}, {"fp16", 16, false}, {"bf16", 16, false}, {"int8", 8, true}, {"int4", 4, true}};
static_assert(std::size(kInfos) == std::size(kEveryValues));

const Info& info_of(Values values) {
  return kInfos[static_cast<std::size_t>(values)];
}

}  // namespace

std::string_view to_string(Values values) {
  return info_of(values).name;
}

Values values_from_string(std::string_view name) {
  std::string known;
  for (const Values values : kEveryValues) {
    if (name == to_string(values)) return values;
    known += (known.empty() ? "" : ", ") + std::string(to_string(values));
  }
  throw Error("values: no such form '" + std::string(name) + "'; known: " + known);
}

std::string_view to_string(Positions positions) {
  return positions == Positions::coded ? "coded" : "int64";
}

bool can_store(Values values) {
  return !info_of(values).scaled;
}

std::size_t bytes_of(Values values, std::size_t count) {
  const Info& info = info_of(values);
  if (!info.scaled) return info.bits / 8 * count;
  return kScaleBytes * ((count + kRun - 1) / kRun) + info.bits * ((count + 7) / 8);
}

}  // namespace gravac
