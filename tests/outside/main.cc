// A program that only knows the installed headers: two ranks, as threads, average their gradients.
#include <gravac/comm/thread_comm.h>
#include <gravac/config.h>
#include <gravac/engine.h>

#include <atomic>
#include <cstdio>
#include <vector>

int main() {
  gravac::Layout layout;
  layout.add("weight", 900);
  layout.add("bias", 100);
  std::atomic<int> right = 0;
  gravac::run_ranks(2, [&](gravac::Comm& comm) {
    gravac::SteadyClock clock;
    const auto options =
        gravac::options_from_string("policy=static factor=100 exchange=all-gather values=fp32");
    const auto engine =
        gravac::make_aggregator(layout, gravac::make_setup(options, layout, comm.size()), comm, clock);
    std::vector<float> gradient(layout.entries(), 0.0f);
    for (std::size_t i = 0; i < 10; ++i) gradient[i] = comm.rank() == 0 ? 1.0f : 3.0f;
    engine->ready(0, gradient);
    const gravac::StepReport report = engine->finish(32);
    right += report.entries_sent == 10 && gradient[9] == 2 && gradient[10] == 0;
    if (comm.rank() == 0) std::printf("%s\n", gravac::to_json(report).c_str());
  });
  return right == 2 ? 0 : 1;
}
