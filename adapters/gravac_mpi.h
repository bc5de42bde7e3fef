/* GraVAC for C over MPI: gravac.h without callbacks.
 *
 *   gravac_aggregator* g = gravac_create_mpi("policy=progress", names, sizes, segments, 60);
 *
 * Ranks are those of MPI_COMM_WORLD. MPI is started unless the program has done so, and
 * then ended when the program ends. */
#ifndef GRAVAC_ADAPTERS_GRAVAC_MPI_H
#define GRAVAC_ADAPTERS_GRAVAC_MPI_H

#include "gravac/gravac.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An operation that a rank does not join within timeout_seconds fails on all others, with a
 * message that names the missing ranks. Otherwise like gravac_create(). */
gravac_aggregator* gravac_create_mpi(const char* options, const char* const* names, const size_t* sizes,
                                     size_t segments, double timeout_seconds);

#ifdef __cplusplus
}
#endif
#endif
