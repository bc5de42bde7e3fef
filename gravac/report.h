#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gravac/comm/route.h"
#include "gravac/memory/hand_over.h"
#include "gravac/policy/plan.h"

namespace gravac {

// What one step was like on this rank. Energies, gains, decisions and the straggler are agreed by all
// ranks and equal on them; seconds and bytes are this rank's own. A plain value: copy it as you like.
struct StepReport {
  std::uint64_t step = 0;
  bool finite = true;           // false: bad numbers somewhere; raw gradients went out dense
  std::uint64_t bad_steps = 0;  // so far
  bool stop_requested = false;  // by some rank: Engine::request_stop
  Send sent = Send::dense;
  Route route = Route::dense;
  WholeReason whole;                  // why a compressed step was sent by route dense, and so saved no bytes
  double minimum = 1, candidate = 1;  // factors tried; 1 in a dense step
  double factor = 1;                  // sent
  MomentumUse momentum;               // that an SGD should use in this step: hand_over()
  double gain_error_fed[2] = {1, 1}, gain_gradient[2] = {1, 1};  // of minimum and candidate
  double gain_released[2] = {std::nan(""), std::nan("")};  // NaN unless the policy goes by norms of layers
  // Energies (sums of squares), added up over ranks; NaN in steps that measure nothing.
  double entered_energy = std::nan("");  // of the gradient
  double dense_energy = std::nan("");    // of gradient + residual; times gain_error_fed: of what was sent
  double compute_seconds = 0, compress_seconds = 0, agree_seconds = 0, exchange_seconds = 0,
         decode_seconds = 0;
  std::size_t entries = 0, entries_sent = 0;
  std::size_t bytes_sent = 0, bytes_received = 0;
  std::size_t dense_bytes = 0;              // that a dense step would have sent
  double residual_norm = 0;                 // NaN unless asked for: it costs a read of the residual
  double samples_per_second = 0;            // of the step before, all ranks together; pauses do not count
  double effective_samples_per_second = 0;  // times the gain: the paper's compression throughput
  double effective_steps = 0;               // steps of dense training that all steps so far were worth
  int straggler = -1;                       // the rank that held up the step before; -1: none did
  double straggler_seconds = 0;             // by how long

  double factor_entries() const;  // how many times fewer entries than dense
  double factor_bytes() const;    // how many times fewer bytes
};

// One line of JSON. Keys are stable; "schema" counts their changes.
std::string to_json(const StepReport& report);

}  // namespace gravac
