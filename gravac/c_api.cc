#include "gravac/c_api.h"

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gravac/config.h"
#include "gravac/gravac.h"
#include "gravac/util/require.h"

namespace {

using namespace gravac;

thread_local std::string last_error;  // of gravac_error(): threads do not see each other's failures

// A comm made of the caller's callbacks. There is no callback for all_to_all, so that a binding needs two
// functions only: it is made of all-gathers, which move size() times the bytes. Who needs reduce-scatter to
// be fast writes a Comm in C++.
class CallbackComm final : public Comm {
 public:
  explicit CallbackComm(const gravac_comm* callbacks) : callbacks_(callbacks ? *callbacks : alone()) {
    require(callbacks_.size >= 1 && callbacks_.rank < callbacks_.size, "comm: rank ", callbacks_.rank,
            " is out of range for ", callbacks_.size, " ranks");
    require(callbacks_.all_reduce && callbacks_.all_gather, "comm: a callback is missing");
  }

  std::size_t rank() const override { return callbacks_.rank; }
  std::size_t size() const override { return callbacks_.size; }
  void all_reduce(std::span<float> values) override {
    check(callbacks_.all_reduce(callbacks_.context, values.data(), values.size()), "all_reduce");
  }
  using Comm::all_gather;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    check(callbacks_.all_gather(callbacks_.context, mine.data(), mine.size(), all.data()), "all_gather");
  }
  void all_to_all(std::span<const std::span<const std::byte>> parts, Messages& received) override {
    std::vector<std::vector<std::byte>> kept(size());
    std::vector<std::size_t> lengths;
    Messages all;
    for (std::size_t to = 0; to < size(); ++to) {
      Comm::all_gather(parts[to], all);
      if (to != rank()) continue;
      for (std::size_t from = 0; from < size(); ++from) {
        kept[from].assign(all[from].begin(), all[from].end());
        lengths.push_back(kept[from].size());
      }
    }
    received.resize(lengths);
    for (std::size_t from = 0; from < size(); ++from) {
      std::copy(kept[from].begin(), kept[from].end(), received.message(from).begin());
    }
  }

 private:
  // One rank: a sum is the value itself, and gathering copies it.
  static gravac_comm alone() {
    return {nullptr, 0, 1, [](void*, float*, std::size_t) { return 0; },
            [](void*, const void* mine, std::size_t bytes, void* all) {
              if (bytes > 0) std::memcpy(all, mine, bytes);
              return 0;
            }};
  }
  void check(int result, const char* operation) const {
    require(result == 0, "comm: ", operation, " failed with ", result, " on rank ", rank(), " (step ", step(),
            ")");
  }

  gravac_comm callbacks_;
};

Layout layout_of(const char* const* names, const size_t* sizes, const size_t* rows, std::size_t segments) {
  Layout layout;
  for (std::size_t i = 0; i < segments; ++i) layout.add(names[i], sizes[i], rows ? rows[i] : 1);
  return layout;
}

}  // namespace

// What the opaque pointer of the C interface points to. The members are in the order in which they depend on
// each other: the engine uses the comm and the clock until it is destroyed.
struct gravac_aggregator {
  gravac_aggregator(std::unique_ptr<Comm> over, const char* options, const Layout& layout)
      : comm(std::move(over)),
        engine(make_aggregator(layout,
                               make_setup(options_from_string(options ? options : ""), layout, comm->size()),
                               *comm, clock)),
        entries(layout.entries()) {}

  std::unique_ptr<Comm> comm;
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
  std::size_t entries;
  std::string report;
  MomentumUse momentum;  // of the last step
};

namespace {

// Runs `work`. If it throws, keeps the message for gravac_error() and returns -1; exceptions must not unwind
// through C frames.
template <class Work>
int guarded(const Work& work) noexcept {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "gravac: an exception of unknown type";
  }
  return -1;
}

}  // namespace

gravac_aggregator* gravac::create_over(const std::function<std::unique_ptr<Comm>()>& make_comm,
                                       const char* options, const char* const* names,
                                       const std::size_t* sizes, const std::size_t* rows,
                                       std::size_t segments) noexcept {
  gravac_aggregator* made = nullptr;
  guarded([&] {
    const Layout layout = layout_of(names, sizes, rows, segments);
    made = new gravac_aggregator(make_comm(), options, layout);
  });
  return made;
}

extern "C" {

gravac_aggregator* gravac_create(const char* options, const char* const* names, const size_t* sizes,
                                 size_t segments, const gravac_comm* comm) {
  return gravac_create_matrices(options, names, sizes, nullptr, segments, comm);
}

gravac_aggregator* gravac_create_matrices(const char* options, const char* const* names, const size_t* sizes,
                                          const size_t* rows, size_t segments, const gravac_comm* comm) {
  return create_over([&] { return std::make_unique<CallbackComm>(comm); }, options, names, sizes, rows,
                     segments);
}

int gravac_step(gravac_aggregator* g, float* gradient, double samples) {
  return gravac_step_weights(g, gradient, nullptr, samples);
}

int gravac_step_weights(gravac_aggregator* g, float* gradient, const float* weights, double samples) {
  return guarded([&] {
    require(g && (gradient || g->entries == 0), "gravac_step: a pointer is NULL");
    const std::size_t given = weights ? g->entries : 0;
    g->engine->ready(0, {gradient, g->entries}, {weights, given});
    const StepReport report = g->engine->finish(samples);
    g->momentum = report.momentum;
    g->report = to_json(report);
  });
}

const char* gravac_report(gravac_aggregator* g) {
  return g ? g->report.c_str() : "";
}

int gravac_hand_over(gravac_aggregator* g, double momentum, double* effective_momentum,
                     double* gradient_scale) {
  return guarded([&] {
    require(g && effective_momentum && gradient_scale, "gravac_hand_over: a pointer is NULL");
    require(momentum >= 0 && momentum < 1, "gravac_hand_over: momentum must be >= 0 and below 1, got ",
            momentum);
    const HandOver now = hand_over(momentum, g->momentum);
    *effective_momentum = now.momentum;
    *gradient_scale = now.scale;
  });
}

int gravac_save(gravac_aggregator* g, void* data, size_t* size) {
  return guarded([&] {
    require(g && size, "gravac_save: a pointer is NULL");
    const std::vector<std::byte> bytes = g->engine->save().to_bytes();
    const std::size_t room = data ? *size : bytes.size();
    *size = bytes.size();  // also if the room is too small: the caller then knows how much to allocate
    require(room >= bytes.size(), "gravac_save: expected room for ", bytes.size(), " bytes, got ", room);
    if (data) std::memcpy(data, bytes.data(), bytes.size());
  });
}

int gravac_load(gravac_aggregator* g, const void* data, size_t size) {
  return guarded([&] {
    require(g && data, "gravac_load: a pointer is NULL");
    g->engine->load(Checkpoint::from_bytes({static_cast<const std::byte*>(data), size}));
  });
}

int gravac_pause(gravac_aggregator* g) {
  return guarded([&] {
    require(g, "gravac_pause: a pointer is NULL");
    g->engine->pause();
  });
}

int gravac_learning_rate(gravac_aggregator* g, double rate) {
  return guarded([&] {
    require(g, "gravac_learning_rate: a pointer is NULL");
    g->engine->learning_rates({&rate, 1});
  });
}

int gravac_momentum(gravac_aggregator* g, double momentum, double optimizer_momentum) {
  return guarded([&] {
    require(g, "gravac_momentum: a pointer is NULL");
    g->engine->momentum(momentum, optimizer_momentum);
  });
}

int gravac_learning_rate_dropped(gravac_aggregator* g) {
  return guarded([&] {
    require(g, "gravac_learning_rate_dropped: a pointer is NULL");
    g->engine->learning_rate_dropped();
  });
}

void gravac_destroy(gravac_aggregator* g) {
  delete g;
}

const char* gravac_error(void) {
  return last_error.c_str();
}

}  // extern "C"
