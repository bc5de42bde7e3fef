#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "gravac/comm/comm.h"
#include "gravac/gravac.h"

namespace gravac {

// gravac_create() over any comm, for adapters that speak C too: NULL, and
// gravac_error() says why, if anything throws, the making of the comm included.
gravac_aggregator* create_over(const std::function<std::unique_ptr<Comm>()>& make_comm, const char* options,
                               const char* const* names, const std::size_t* sizes,
                               std::size_t segments) noexcept;

}  // namespace gravac
