#include "adapters/gravac_mpi.h"

#include "adapters/mpi_comm.h"
#include "gravac/c_api.h"
#include "gravac/util/require.h"

gravac_aggregator* gravac_create_mpi(const char* options, const char* const* names, const size_t* sizes,
                                     size_t segments, double timeout_seconds) {
  return gravac_create_matrices_mpi(options, names, sizes, nullptr, segments, timeout_seconds);
}

gravac_aggregator* gravac_create_matrices_mpi(const char* options, const char* const* names,
                                              const size_t* sizes, const size_t* rows, size_t segments,
                                              double timeout_seconds) {
  const auto make_comm = [&] {
    gravac::require(timeout_seconds > 0, "mpi: timeout must be > 0 s, got ", timeout_seconds, " s");
    return gravac::make_mpi_comm(std::chrono::duration<double>(timeout_seconds));
  };
  return gravac::create_over(make_comm, options, names, sizes, rows, segments);
}
