#include "gravac/reshard.h"

#include <string>

#include "gravac/util/kernels.h"
#include "gravac/util/require.h"

namespace gravac {
namespace {

// Old rank i is taken over by new rank i mod `ranks`. Returns the sum of a section over the old ranks that
// `rank` takes over; zeros if there are none.
std::vector<float> taken_over(std::span<const Checkpoint> saved, std::size_t rank, std::size_t ranks,
                              const std::string& section) {
  std::vector<float> sum(saved[0].floats(section).size(), 0.0f);
  for (std::size_t old = rank; old < saved.size(); old += ranks) {
    add_into(sum, saved[old].floats(section, sum.size()));
  }
  return sum;
}

}  // namespace

Checkpoint reshard(std::span<const Checkpoint> saved, std::size_t rank, std::size_t ranks) {
  require(!saved.empty() && rank < ranks, "reshard: expected at least 1 state and a rank below ", ranks,
          ", got ", saved.size(), " states and rank ", rank);
  for (std::size_t old = 0; old < saved.size(); ++old) {
    const auto fact = [&](const char* name) { return saved[old].text(std::string("fact/") + name); };
    require(fact("rank") == std::to_string(old) && fact("ranks") == std::to_string(saved.size()),
            "reshard: expected the state of rank ", old, " of ", saved.size(), ", got that of rank ",
            fact("rank"), " of ", fact("ranks"));
    require(fact("layout") == saved[0].text("fact/layout"), "reshard: the states belong to different models");
  }
  const auto sharing = [&](const std::string& name) {
    return saved[0].has("sharing/" + name) ? saved[0].text("sharing/" + name) : "";
  };
  Checkpoint state;
  for (const std::string& name : saved[0].names("")) {
    if (name == "fact/rank") {
      state.add(name, std::to_string(rank));
    } else if (name == "fact/ranks") {
      state.add(name, std::to_string(ranks));
    } else if (sharing(name) == "own") {
      state.add(name, std::span<const float>(taken_over(saved, rank, ranks, name)));
    } else if (sharing(name) == "typical") {
      state.copy(name, saved[rank % saved.size()]);
    } else {
      state.copy(name, saved[0]);  // equal on all ranks, or good enough for any of them (last step's times)
    }
  }
  return state;
}

}  // namespace gravac
