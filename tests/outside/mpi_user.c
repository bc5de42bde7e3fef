/* A C program over MPI that sees only the installed headers; tests/install builds it and runs
 * mpirun -n 2 mpi_user. */
#include <gravac/adapters/gravac_mpi.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const char* name = "weight";
  const size_t size = 1000, rows = 20, wrong_rows = 30;
  static float gradient[1000], weights[1000];
  size_t i;
  int step;
  gravac_aggregator* g;
  if (gravac_create_mpi("policy=clever", &name, &size, 1, 60) != NULL)
    return puts("policy=clever was accepted"), 1;
  if (!strstr(gravac_error(), "no such policy 'clever'")) return puts(gravac_error()), 1;

  if (gravac_create_matrices_mpi("", &name, &size, &wrong_rows, 1, 60) != NULL)
    return puts("30 rows of 1000 entries were accepted"), 1;
  if (!strstr(gravac_error(), "got 30")) return puts(gravac_error()), 1;

  g = gravac_create_matrices_mpi(
      "policy=static factor=1 values=fp32 memory=momentum masking=false momentum=0.5 weight-decay=0.1", &name, &size,
      &rows, 1, 60);
  if (!g) return puts(gravac_error()), 1;
  /* Both ranks have the same gradient, so that the mean is the update of momentum SGD with weight decay. */
  for (step = 0; step < 3; ++step) {
    /* gradient + decay = 1.1, plus half of the update before */
    const float expected = step == 0 ? 1.1f : step == 1 ? 1.65f : 1.925f;
    for (i = 0; i < size; ++i) gradient[i] = weights[i] = 1.0f;
    if (gravac_step_weights(g, gradient, weights, 1) != 0) return puts(gravac_error()), 1;
    for (i = 0; i < size; ++i) {
      if (fabsf(gradient[i] - expected) > 1e-4f)
        return printf("step %d: %g, %g expected\n", step, gradient[i], expected), 1;
    }
  }
  puts(gravac_report(g));
  if (gravac_step(g, gradient, 1) == 0) return puts("weight decay without weights was accepted"), 1;
  gravac_destroy(g);
  return 0;
}
