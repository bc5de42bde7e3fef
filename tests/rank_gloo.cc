// The comm of rank.cc in the program rank_gloo.

#include <csignal>

#include "adapters/gloo_comm.h"

std::unique_ptr<gravac::Comm> make_comm(const gravac::GlooOptions& options) {
  auto comm = gravac::make_gloo_comm(options);
  raise(SIGPIPE);  // as when Gloo writes to a rank that has died: must not end this one
  return comm;
}
