#pragma once

#include <cstddef>
#include <string_view>

#include "gravac/comm/paced_comm.h"
#include "gravac/comm/route.h"

namespace gravac::simulate {

// How an all-reduce adds up arrays.
enum class AllReduce {
  ring,  // each rank sends 1 / ranks of the array to its neighbour, 2 (ranks - 1) times: what Gloo does
  tree,  // up and down a binary tree, the whole array on every level: fewer rounds, more bytes
};
AllReduce all_reduce_from_string(std::string_view name);  // throws Error for an unknown name

// The workers that train together, and the network between them. Workers on one node (a machine with several
// of them) share its link to the other nodes.
struct Cluster {
  std::size_t workers = 1;
  std::size_t workers_per_node = 1;
  Link link;   // of each node
  Link inner;  // between the workers of a node
  AllReduce all_reduce = AllReduce::ring;

  std::size_t nodes() const { return (workers + workers_per_node - 1) / workers_per_node; }
};

// The usual model of latency and bandwidth: rounds * latency + bytes / rate.
double seconds_of(const Volume& volume, const Link& link);

// An all-reduce of `bytes` among `ranks`, by the formulas of the GraVAC paper (alpha: latency, beta: seconds
// per byte):
//   ring: 2 (ranks - 1) alpha + 2 bytes beta (ranks - 1) / ranks
//   tree: 2 alpha log2(ranks) + 2 bytes beta log2(ranks)
Volume all_reduce_volume(AllReduce how, double ranks, double bytes);

// How long the exchange of a step takes, and what it moves over the link of a node.
struct ExchangeCost {
  double seconds = 0;
  double bytes = 0;
};

// The workers of each node first add up their whole gradients over the inner link; then nodes exchange `load`
// by `route`, as ranks do; then the result is spread inside each node. With one worker per node only the
// exchange between nodes is left; on a single node only the one inside. A gradient in several buckets takes
// the rounds of each of them. load.ranks is set here.
ExchangeCost exchange(const Cluster& cluster, Route route, Load load, double buckets = 1);

// The message by which all workers agree on what to send, once per step: an all-gather of `bytes` from each
// worker, first inside nodes and then between them.
double agree_seconds(const Cluster& cluster, double bytes);

}  // namespace gravac::simulate
