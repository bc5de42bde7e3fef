#pragma once

namespace gravac {

// Options of the momentum memory. memory/momentum.h explains momentum correction.
struct MomentumOptions {
  double momentum = 0.9;    // in [0, 1): share of the velocity that is kept from step to step
  bool masking = true;      // set the velocity of entries that were sent to 0
  double clip = 0;          // each rank clips the norm of its gradient to clip / sqrt(ranks); 0: no clipping
  double weight_decay = 0;  // added to the velocity, so that entries sent late carry the decay of every step
  unsigned ranks = 1;       // for clip
  double optimizer = 0;     // in [0, 1): momentum of the caller's own optimizer, to be cancelled
};

}  // namespace gravac
