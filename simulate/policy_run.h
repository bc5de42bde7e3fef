#pragma once

#include <cstddef>
#include <string>

#include "simulate/cluster.h"
#include "simulate/step.h"

namespace gravac::simulate {

// What a policy does on a cluster, averaged over the second half of a run, when it has settled.
struct PolicyRun {
  double seconds = 0;  // of a step
  double bytes = 0;    // of a step, through the link of a node
  double rate = 1;     // how many dense steps a step is worth
  double factor = 1;   // numbers of all steps, if they were dense, divided by the numbers that were sent
  std::string usual;   // what most steps were sent with: "dense", "topk 11x"
};

// Lets the real policy called `policy` (gravac/policy) decide on `steps` steps, with the engine's own cost
// model, which learns from the times that the simulated cluster takes. Gains come from the job's law;
// gradients are taken to keep their size and their spread, so accordion, adaqs and scadles, which wait for
// those to change, see nothing happen.
PolicyRun run_policy(const std::string& policy, const Job& job, const Cluster& cluster,
                     std::size_t steps = 6000);

}  // namespace gravac::simulate
