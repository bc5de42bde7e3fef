// A C++ program that sees only the installed headers; tests/install builds and runs it.
#include <gravac/codec/select/step.h>
#include <gravac/policy/gain.h>

#include <cstdio>
#include <vector>

int main() {
  gravac::Layout layout;
  layout.add("weight", 900);
  layout.add("bias", 100);
  gravac::Step step(layout, {.compressor = "topk"});
  std::vector<float> gradient(layout.entries(), 0.5f);
  const gravac::Measurement found = step.measure(gradient, {.minimum = 10, .candidate = 100});
  const gravac::SparseView sent = step.take(gravac::Send::candidate);
  std::printf("%zu of %zu entries, gain %.3f\n", sent.size(), gradient.size(),
              gravac::gain(gravac::Gain::error_fed, found.energy, gravac::Send::candidate));
  return sent.size() == 10 ? 0 : 1;
}
