#pragma once

namespace gravac {

// Options of the momentum memory; memory/momentum.h says what it does.
struct MomentumOptions {
  double momentum = 0.9;    // in [0, 1): how much of the velocity lives on
  bool masking = true;      // forget the velocity of entries that were sent
  double clip = 0;          // clip the norm of the whole gradient to this; 0 does not clip
  double weight_decay = 0;  // added before accumulation, as it must be when updates are sent late
  unsigned ranks = 1;       // each rank clips to clip / sqrt(ranks)
  double optimizer = 0;     // momentum of the caller's own optimizer, which is then undone
};

}  // namespace gravac
