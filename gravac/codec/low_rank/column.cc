#include "gravac/codec/low_rank/column.h"

#include "gravac/util/require.h"
#include "gravac/wire/runs.h"

namespace gravac {

Format column_format(Values values) {
  switch (values) {
    case Values::fp16:
      return {Scheme::fp16, 16};
    case Values::bf16:
      return {Scheme::bf16, 16};
    case Values::int8:
      return {Scheme::nearest, 8};
    case Values::int4:
      return {Scheme::nearest, 4};
    case Values::fp32:
      break;
  }
  throw Error("powersgd: values fp32 are not rounded");
}

std::size_t column_bytes(Values values, std::size_t entries) {
  if (values == Values::fp32) return sizeof(float) * entries;
  const Format format = column_format(values);
  const std::size_t runs = (entries + kRun - 1) / kRun, octets = (entries + 7) / 8;
  return kScaleBytes * scales_per_run(format) * runs + format.bits * octets;
}

}  // namespace gravac
