#include "simulate/cluster.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gravac/util/require.h"

namespace gravac::simulate {
namespace {

// What nodes exchange between each other.
Volume between_nodes(const Cluster& cluster, Route route, const Load& load) {
  if (cluster.all_reduce == AllReduce::ring) return volume_of(route, load);
  if (route == Route::dense) return all_reduce_volume(AllReduce::tree, load.ranks, 4 * load.entries);
  if (route != Route::shared) return volume_of(route, load);
  Volume volume = all_reduce_volume(AllReduce::tree, load.ranks, load.payload);
  volume.rounds *= load.all_reduces;
  return volume;
}

double workers_of_node(const Cluster& cluster) {
  return static_cast<double>(std::min(cluster.workers, cluster.workers_per_node));
}

}  // namespace

AllReduce all_reduce_from_string(std::string_view name) {
  require(name == "ring" || name == "tree", "all-reduce: must be ring or tree, got '", name, "'");
  return name == "ring" ? AllReduce::ring : AllReduce::tree;
}

double seconds_of(const Volume& volume, const Link& link) {
  return volume.rounds * link.latency_seconds + 8 * volume.bytes / link.bits_per_second;
}

Volume all_reduce_volume(AllReduce how, double ranks, double bytes) {
  if (how == AllReduce::ring) return {2 * (ranks - 1), 2 * (ranks - 1) / ranks * bytes};
  return {2 * std::log2(ranks), 2 * std::log2(ranks) * bytes};
}

ExchangeCost exchange(const Cluster& cluster, Route route, Load load, double buckets) {
  load.ranks = static_cast<double>(cluster.nodes());
  Volume outer = between_nodes(cluster, route, load);
  outer.rounds *= buckets;
  double seconds = seconds_of(outer, cluster.link);
  const double together = workers_of_node(cluster);
  if (together > 1) {
    Volume inside = all_reduce_volume(AllReduce::ring, together, 4 * load.entries);
    inside.rounds *= buckets;
    seconds += seconds_of(inside, cluster.inner);
  }
  return {seconds, outer.bytes};
}

double agree_seconds(const Cluster& cluster, double bytes) {
  const double others = static_cast<double>(cluster.nodes()) - 1, together = workers_of_node(cluster);
  double seconds = seconds_of({others, others * together * bytes}, cluster.link);
  if (together > 1) seconds += seconds_of({together - 1, (together - 1) * bytes}, cluster.inner);
  return seconds;
}

}  // namespace gravac::simulate
