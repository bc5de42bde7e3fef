#pragma once

#include <chrono>
#include <memory>

#include "gravac/comm/comm.h"

namespace gravac {

// Ranks as MPI processes: all of MPI_COMM_WORLD. Starts MPI unless the program
// has, and then ends it with the program. MPI has no timeouts of its own; operations are started
// without blocking and asked after until `timeout`.
std::unique_ptr<Comm> make_mpi_comm(std::chrono::duration<double> timeout = std::chrono::seconds(60));

}  // namespace gravac
