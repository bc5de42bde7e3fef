// The engine as Python sees it. Tensors come as addresses and lengths, so that nothing here
// depends on torch; what ranks say to each other goes through a Python object, so that any
// process group will do. How it is used: python/gravac.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/parts.h"
#include "adapters/roll_call.h"
#include "gravac/codec/compressors.h"
#include "gravac/comm/comm.h"
#include "gravac/config.h"
#include "gravac/engine.h"
#include "gravac/memory/hand_over.h"
#include "gravac/reshard.h"
#include "gravac/util/checksum.h"
#include "gravac/util/clock.h"
#include "gravac/util/require.h"

namespace py = pybind11;

namespace gravac {
namespace {

py::memoryview view(const void* data, std::size_t bytes) {
  return py::memoryview::from_memory(const_cast<void*>(data), static_cast<py::ssize_t>(bytes));
}

std::span<float> floats_at(std::uintptr_t address, std::size_t size) {
  return {reinterpret_cast<float*>(address), size};  // NOLINT: this is how other languages give memory
}

// Talks through a Python object: all_reduce(values, type), all_gather(mine, all) and
// all_to_all(output, input, output_lengths, input_lengths) take memory, return nothing if
// all went well and else (missing ranks, whether there may be more, seconds, cause).
// start_all_reduce(values, type) returns what to call for that answer. adds_halves(type) says
// whether the type may be "fp16" or "bf16", and not only "fp32".
class PythonComm final : public Comm {
 public:
  explicit PythonComm(py::object peers)
      : peers_(std::move(peers)),
        rank_(peers_.attr("rank").cast<std::size_t>()),
        size_(peers_.attr("size").cast<std::size_t>()) {}
  ~PythonComm() override {
    const py::gil_scoped_acquire gil;
    peers_ = py::object();
  }

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return size_; }

  void all_reduce(std::span<float> values) override { sum(values, Values::fp32); }
  std::function<void()> start_all_reduce(std::span<float> values) override {
    return start_sum(values, Values::fp32);
  }

  bool adds_halves(Values type) const override {
    const py::gil_scoped_acquire gil;
    return peers_.attr("adds_halves")(std::string(to_string(type))).cast<bool>();
  }
  void all_reduce_halves(std::span<std::uint16_t> values, Values type) override { sum(values, type); }
  std::function<void()> start_all_reduce_halves(std::span<std::uint16_t> values, Values type) override {
    return start_sum(values, type);
  }

  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.empty()) return;
    if (size_ == 1) {
      std::memcpy(all.data(), mine.data(), mine.size());
      return;
    }
    call("all_gather", [&] {
      return peers_.attr("all_gather")(view(mine.data(), mine.size()), view(all.data(), all.size()));
    });
  }

  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    const Parts all = tell_lengths(*this, parts, received);
    if (!all.any) return;
    if (size_ == 1) {
      std::memcpy(received.bytes().data(), all.out.data(), all.out.size());
      return;
    }
    call("all_to_all", [&] {
      return peers_.attr("all_to_all")(view(received.bytes().data(), received.bytes().size()),
                                       view(all.out.data(), all.out.size()), all.receive, all.send);
    });
  }

 private:
  template <class Number>
  void sum(std::span<Number> values, Values type) {
    if (values.empty() || size_ == 1) return;
    call("all_reduce", [&] {
      return peers_.attr("all_reduce")(view(values.data(), values.size_bytes()),
                                       std::string(to_string(type)));
    });
  }

  template <class Number>
  std::function<void()> start_sum(std::span<Number> values, Values type) {
    if (values.empty() || size_ == 1) return [] {};
    const py::gil_scoped_acquire gil;
    const std::shared_ptr<py::object> end(
        new py::object(peers_.attr("start_all_reduce")(view(values.data(), values.size_bytes()),
                                                       std::string(to_string(type)))),
        [](py::object* object) {
          const py::gil_scoped_acquire held;
          delete object;
        });
    return [this, end] { call("all_reduce", [&] { return (*end)(); }); };
  }

  template <class Ask>
  void call(const char* operation, const Ask& ask) {
    std::optional<std::string> failed;
    {
      const py::gil_scoped_acquire gil;
      try {
        peers_.attr("step") = step();
        const py::object answer = ask();
        if (!answer.is_none()) {
          const auto [missing, more, seconds, cause] =
              answer.cast<std::tuple<std::vector<std::size_t>, bool, double, std::string>>();
          failed = lost_ranks("c10d", *this, missing, operation, seconds, cause, more);
        }
      } catch (const py::error_already_set& error) {
        failed = std::string(operation) + ": " + error.what();
      }
    }
    if (failed) throw Error(*failed);
  }

  py::object peers_;
  std::size_t rank_, size_;
};

// State as Python has it: numbers as a list, floats as bytes, text as text.
py::dict to_python(const Checkpoint& checkpoint) {
  py::dict state;
  for (const std::string& name : checkpoint.names("")) {
    const py::str key(name);
    if (checkpoint.type(name) == 't') {
      state[key] = checkpoint.text(name);
    } else if (checkpoint.type(name) == 'd') {
      state[key] = checkpoint.numbers(name);
    } else {
      const std::span<const float> values = checkpoint.view(name);
      state[key] = py::bytearray(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
  }
  return state;
}

Checkpoint from_python(const py::dict& state) {
  Checkpoint checkpoint;
  for (const auto& [key, value] : state) {
    const auto name = key.cast<std::string>();
    if (py::isinstance<py::str>(value)) {
      checkpoint.add(name, std::string_view(value.cast<std::string>()));
    } else if (py::isinstance<py::list>(value)) {
      checkpoint.add(name, std::span<const double>(value.cast<std::vector<double>>()));
    } else {
      const py::buffer_info info = py::reinterpret_borrow<py::buffer>(value).request();
      const auto bytes = static_cast<std::size_t>(info.size * info.itemsize);
      require(bytes % sizeof(float) == 0, "state: '", name, "' must hold whole floats, got ", bytes,
              " bytes");
      checkpoint.add(name, std::span(static_cast<const float*>(info.ptr), bytes / sizeof(float)));
    }
  }
  return checkpoint;
}

// A parameter: its name, its size, its rows (as Segment has them) and the type its gradient is stored as.
using Parameters = std::vector<std::tuple<std::string, std::size_t, std::size_t, std::string>>;

Layout make_layout(const Parameters& parameters) {
  Layout layout;
  for (const auto& [name, size, rows, type] : parameters) layout.add(name, size, rows);
  return layout;
}

EngineSetup make_setup(const Parameters& parameters, const Options& options, std::size_t ranks) {
  EngineSetup setup = gravac::make_setup(options, make_layout(parameters), ranks);
  for (const auto& [name, size, rows, type] : parameters) {
    setup.options.stored_as.push_back(values_from_string(type));
  }
  return setup;
}

// An engine, with what it needs to live.
class Session {
 public:
  // `buckets` nothing: for after backward. `check_every`: steps between calls of compare(). It must be
  // equal on all ranks, but may change when a run is resumed, so it is no option of the engine.
  Session(const Parameters& parameters, const std::optional<std::vector<Bucket>>& buckets,
          const Options& options, py::object peers, std::size_t check_every)
      : comm_(std::move(peers)), parameters_(parameters), options_(options) {
    EngineSetup setup = make_setup(parameters, options, comm_.size());
    const py::gil_scoped_release free;
    handshake(comm_, {{"check_every", std::to_string(check_every)}});
    if (buckets) {
      overlap(*buckets, std::move(setup));
    } else {
      engine_ = make_aggregator(make_layout(parameters), std::move(setup), comm_, clock_);
    }
  }
  ~Session() {
    const py::gil_scoped_release free;  // the engine's thread may have to end first, and wants the GIL
    engine_.reset();
  }

  Engine& engine() {
    require(engine_ != nullptr, "engine: it was lost when the buckets changed");
    return *engine_;
  }

  // Goes on with other buckets. The engine's memories, as large as gradients, are gone before the new ones
  // are made.
  void cut_anew(const std::vector<Bucket>& buckets) {
    EngineSetup setup = make_setup(parameters_, options_, comm_.size());
    const Checkpoint state = engine().save();
    engine_.reset();
    overlap(buckets, std::move(setup));
    engine_->load(state);
  }

  std::string finish(double samples) {
    const StepReport report = engine().finish(samples);
    momentum_ = report.momentum;
    return to_json(report);
  }

  // The momentum that an SGD with this momentum should use after the last finish(), and by what to scale.
  std::pair<double, double> hand_over(double momentum) const {
    const HandOver now = gravac::hand_over(momentum, momentum_);
    return {now.momentum, now.scale};
  }

  // Compares arrays, given as addresses and lengths in bytes, with those of the other ranks, by their
  // hashes. Returns nothing if all are equal, and the hashes of every array on every rank if not. Ranks that
  // do not take part, because theirs may differ, are not compared and have no hashes. Called between steps,
  // on all ranks.
  std::vector<std::vector<std::uint64_t>> compare(
      const std::vector<std::pair<std::uintptr_t, std::size_t>>& arrays, bool takes_part) {
    std::vector<std::uint64_t> mine;
    mine.reserve(arrays.size());
    for (const auto& [address, bytes] : arrays) {
      mine.push_back(
          checksum({reinterpret_cast<const std::byte*>(address), bytes}));  // NOLINT: as floats_at()
    }
    const std::vector<std::uint64_t> whole =
        gather({std::uint64_t{takes_part}, checksum(std::as_bytes(std::span(mine)))});
    std::set<std::uint64_t> found;
    for (std::size_t i = 0; i < whole.size(); i += 2) {
      if (whole[i] != 0) found.insert(whole[i + 1]);
    }
    if (found.size() <= 1) return {};
    const std::vector<std::uint64_t> all = gather(mine);
    std::vector<std::vector<std::uint64_t>> ranks(comm_.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (whole[2 * rank] == 0) continue;
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
      ranks[rank].assign(begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
    }
    return ranks;
  }

 private:
  void overlap(const std::vector<Bucket>& buckets, EngineSetup setup) {
    setup.options.hold_unused = true;  // DDP drops means of parameters that no rank used
    engine_ = make_overlap(make_layout(parameters_), buckets, std::move(setup), comm_, clock_);
  }

  std::vector<std::uint64_t> gather(const std::vector<std::uint64_t>& mine) {
    std::vector<std::uint64_t> all(mine.size() * comm_.size());
    comm_.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  PythonComm comm_;
  SteadyClock clock_;
  Parameters parameters_;
  Options options_;
  std::unique_ptr<Engine> engine_;
  MomentumUse momentum_;  // of the last step
};

// This process ends with exit code 1 if it would have ended with 0. Python's own exit handlers cannot do
// that; these run after all of them.
void fail_at_exit() {
  static const pid_t process = getpid();
  static const auto fail = [](int status) {
    if (status != 0 || getpid() != process) return;  // a forked child ends as it likes
    std::fflush(nullptr);
    _exit(1);
  };
#ifdef __GLIBC__
  [[maybe_unused]] static const int registered = on_exit([](int status, void*) { fail(status); }, nullptr);
#else
  [[maybe_unused]] static const int registered = std::atexit([] { fail(0); });
#endif
}

}  // namespace
}  // namespace gravac

PYBIND11_MODULE(_engine, m) {
  using namespace gravac;
  m.doc() = "GraVAC's engine; use the package gravac";
  py::register_exception<Error>(m, "Error", PyExc_RuntimeError);

  // Whatever may wait for other ranks releases the GIL: the engine's own thread wants it.
  const auto released = py::call_guard<py::gil_scoped_release>();
  py::class_<Session>(m, "Engine")
      .def(py::init<const Parameters&, const std::optional<std::vector<Bucket>>&, const Options&, py::object,
                    std::size_t>())
      .def(
          "ready",
          [](Session& session, std::size_t bucket, std::uintptr_t address, std::size_t entries) {
            session.engine().ready(bucket, floats_at(address, entries));
          },
          released)
      .def(
          "wait", [](Session& session, std::size_t bucket) { session.engine().wait(bucket); }, released)
      .def("means_are_final", [](Session& session) { return session.engine().means_are_final(); })
      .def("finish", &Session::finish, released)
      .def("hand_over", &Session::hand_over)
      .def(
          "pause", [](Session& session) { session.engine().pause(); }, released)
      .def(
          "rescale", [](Session& session, float ratio) { session.engine().rescale(ratio); }, released)
      .def(
          "learning_rates",
          [](Session& session, const std::vector<double>& rates) { session.engine().learning_rates(rates); },
          released)
      .def("momentum", [](Session& session, double memory,
                          double optimizer) { session.engine().momentum(memory, optimizer); })
      .def(
          "learning_rate_dropped", [](Session& session) { session.engine().learning_rate_dropped(); },
          released)
      .def("compare", &Session::compare, released)
      .def("cut_anew", &Session::cut_anew, released)
      .def("save", [](Session& session) { return to_python(session.engine().save()); })
      .def("load",
           [](Session& session, const py::dict& state) { session.engine().load(from_python(state)); });

  m.def("reshard", [](const std::vector<py::dict>& states, std::size_t rank, std::size_t ranks) {
    std::vector<Checkpoint> saved;
    for (const py::dict& state : states) saved.push_back(from_python(state));
    return to_python(reshard(saved, rank, ranks));
  });
  // Throws Error for options that do not go together; returns warnings about those that do harm.
  m.def("check_options", [](const Options& options, std::size_t ranks) {
    return gravac::make_setup(options, Layout(1), ranks).warnings;
  });
  m.def("resolved_options", &resolved_options);
  m.def("compressors", [] {  // by name: what tests have to know of them
    py::dict all;
    for (const CompressorInfo& info : compressors()) {
      py::dict facts;
      facts["as_sums"] = info.as_sums;
      facts["as_payloads"] = info.as_payloads;
      facts["selects"] = info.selects;
      facts["factor_per_layer"] = info.factor_per_layer;
      facts["conserves"] = info.conserves;
      all[py::str(std::string(info.name))] = facts;
    }
    return all;
  });
  m.def("policies", [] {
    py::list all;
    for (const std::string_view name : policy_names()) all.append(py::str(std::string(name)));
    return all;
  });
  m.def("fail_at_exit", &fail_at_exit);
  // Adds a reference that is never dropped: the object is not destroyed, not even when the process ends.
  m.def("keep_for_good", [](py::object object) { object.release(); });
}
