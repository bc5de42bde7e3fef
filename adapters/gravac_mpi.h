/* GraVAC for C programs that use MPI: like gravac.h, but without callbacks for the exchange.
 *
 *   gravac_aggregator* g = gravac_create_mpi("policy=progress", names, sizes, segments, 60);
 *
 * The ranks are those of MPI_COMM_WORLD. If the program has not initialised MPI, this does, and
 * finalises it when the program ends. */
#ifndef GRAVAC_ADAPTERS_GRAVAC_MPI_H
#define GRAVAC_ADAPTERS_GRAVAC_MPI_H

#include "gravac/gravac.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Like gravac_create(), over MPI. If a rank does not take part in an exchange within
 * timeout_seconds, the exchange fails on all other ranks with a message that names it. */
gravac_aggregator* gravac_create_mpi(const char* options, const char* const* names, const size_t* sizes,
                                     size_t segments, double timeout_seconds);

/* Like gravac_create_matrices(), over MPI. */
gravac_aggregator* gravac_create_matrices_mpi(const char* options, const char* const* names,
                                              const size_t* sizes, const size_t* rows, size_t segments,
                                              double timeout_seconds);

#ifdef __cplusplus
}
#endif
#endif
