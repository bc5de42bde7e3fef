#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "gravac/comm/comm.h"
#include "gravac/gravac.h"

namespace gravac {

// gravac_create_matrices() over any comm, for adapters with a C interface of their own (gravac_mpi.h).
// Returns NULL if anything throws, make_comm() included; gravac_error() then has the message. Not installed.
gravac_aggregator* create_over(const std::function<std::unique_ptr<Comm>()>& make_comm, const char* options,
                               const char* const* names, const std::size_t* sizes, const std::size_t* rows,
                               std::size_t segments) noexcept;

}  // namespace gravac
