// The comm of rank.cc in the program rank_mpi, which mpirun tells who it is.

#include "adapters/gloo_comm.h"
#include "adapters/mpi_comm.h"

std::unique_ptr<gravac::Comm> make_comm(const gravac::GlooOptions& options) {
  return gravac::make_mpi_comm(options.timeout);
}
