// A program over Gloo, with one rank, that sees only the installed headers; tests/install builds and
// runs it.
#include <gravac/adapters/gloo_comm.h>

#include <cstdio>
#include <vector>

int main(int, char** argv) {
  const auto comm = gravac::make_gloo_comm({.store = std::string(argv[0]) + ".store"});
  std::vector<float> values = {1, 2};
  comm->all_reduce(values);
  std::printf("gloo: rank %zu of %zu\n", comm->rank(), comm->size());
  return values[1] == 2 ? 0 : 1;
}
