// The comm of rank.cc in the program rank_mpi, which mpirun tells who it is. With PIECE=N in the environment
// long arrays go in pieces of N, as arrays of more than 2^30 do otherwise.

#include <cstdlib>

#include "adapters/gloo_comm.h"
#include "adapters/mpi_comm.h"

std::unique_ptr<gravac::Comm> make_comm(const gravac::GlooOptions& options) {
  const char* const piece = std::getenv("PIECE");
  if (!piece || !*piece) return gravac::make_mpi_comm(options.timeout);
  return gravac::make_mpi_comm(options.timeout, std::strtoull(piece, nullptr, 10));
}
