// After the first steps a step allocates nothing: allocations of gradient size cost page faults, which would
// take longer than the step itself. This program replaces malloc to count calls. Sanitizers replace it, too,
// so this test is not built with them.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "gravac/codec/select/step.h"
#include "gravac/testing.h"

namespace {
std::atomic<std::size_t> allocations{0};
}

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void* malloc(std::size_t size) {
  return ++allocations, __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  return ++allocations, __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  return ++allocations, __libc_realloc(memory, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return ++allocations, __libc_memalign(alignment, size);
}
}

namespace gravac {
namespace {

TEST(StepAllocation, TheCounterCounts) {
  const std::size_t before = allocations;
  auto* volatile leaf = new int(1);
  delete leaf;
  EXPECT_GT(allocations, before);
}

TEST(StepAllocation, AWarmStepAllocatesNothing) {
  for (const std::string& compressor : testing::all_selectors()) {
    for (const Granularity granularity : {Granularity::global, Granularity::layer}) {
      for (const unsigned threads : {1u, 2u}) {
        const std::size_t n = 70'000;  // more than a chunk of the fused pass, so that two threads have work
        Step step(testing::uneven_layout(n),
                  {.compressor = compressor, .granularity = granularity, .threads = threads});
        std::vector<float> out(n);
        const auto round = [&] {
          for (const std::string& kind : testing::kKinds) {
            for (const Send taken : {Send::candidate, Send::minimum, Send::dense}) {
              for (const Send expected : {Send::candidate, Send::minimum}) {
                step.measure(testing::gradient_of(kind, n), {10, 100}, expected);
                step.discard();
                step.measure(testing::gradient_of(kind, n), {20, 20}, expected);  // one level only
                step.take(Send::minimum);
                step.measure(testing::gradient_of(kind, n), {10, 100}, expected);
                taken == Send::dense ? step.take_dense(out) : void(step.take(taken));
              }
            }
          }
        };
        round();
        round();
        const std::size_t before = allocations;
        round();
        EXPECT_EQ(allocations - before, 0u) << compressor << " " << to_string(granularity) << " " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace gravac
