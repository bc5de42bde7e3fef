// For tests: the engine with ranks as threads, as a Python module of its own that no wheel contains.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "gravac/comm/thread_comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/util/clock.h"

namespace py = pybind11;

namespace gravac {
namespace {

// The means of a few steps, which any other way of exchanging the same gradients must give, too.
// `sizes` and `rows` are those of the parameters; gradients[rank][step] are floats.
std::vector<py::bytes> means(const std::vector<std::size_t>& sizes, const std::vector<std::size_t>& rows,
                             const Options& options, const std::vector<std::vector<std::string>>& gradients) {
  Layout layout;
  for (std::size_t i = 0; i < sizes.size(); ++i) layout.add("ps." + std::to_string(i), sizes[i], rows[i]);
  std::vector<std::string> found;
  {
    const py::gil_scoped_release free;
    run_ranks(gradients.size(), [&](Comm& comm) {
      SteadyClock clock;
      const auto engine = make_aggregator(layout, make_setup(options, layout, comm.size()), comm, clock);
      for (std::string gradient : gradients[comm.rank()]) {
        engine->ready(0, {reinterpret_cast<float*>(gradient.data()), gradient.size() / sizeof(float)});
        engine->finish(1);
        if (comm.rank() == 0) found.push_back(gradient);
      }
    });
  }
  return {found.begin(), found.end()};
}

}  // namespace
}  // namespace gravac

PYBIND11_MODULE(gravac_in_threads, m) {
  m.def("means", &gravac::means);
}
