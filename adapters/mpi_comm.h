#pragma once

#include <chrono>
#include <memory>

#include "gravac/comm/comm.h"

namespace gravac {

// Ranks that are the processes of MPI_COMM_WORLD. Initialises MPI if the program has not, and then
// finalises it when the program ends. MPI has no timeouts, so we use its non-blocking operations and
// test for completion until `timeout`. MPI's counts are ints: what is longer than `most` entries, or bytes,
// goes in several pieces.
std::unique_ptr<Comm> make_mpi_comm(std::chrono::duration<double> timeout = std::chrono::seconds(60),
                                    std::size_t most = std::size_t{1} << 30);

}  // namespace gravac
