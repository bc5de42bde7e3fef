/* A C program that sees only the installed headers; tests/install builds and runs it. */
#include <gravac/gravac.h>
#include <stdio.h>

int main(void) {
  const char* name = "weight";
  const size_t size = 1000;
  float gradient[1000];
  size_t i;
  gravac_aggregator* g = gravac_create("policy=static factor=100 values=fp32", &name, &size, 1, NULL);
  if (!g) return puts(gravac_error()), 1;
  for (i = 0; i < size; ++i) gradient[i] = (float)i;
  if (gravac_step(g, gradient, 1) != 0) return puts(gravac_error()), 1;
  puts(gravac_report(g));
  gravac_destroy(g);
  return gradient[999] == 999.0f && gradient[0] == 0.0f ? 0 : 1;
}
