/* A program in C with one rank: a step, a checkpoint, loading it, and loading a damaged one. Returns the number
 * of the first check that failed, or 0. Compiled as C, so it also proves that the header is valid C. */
#include <stdlib.h>
#include <string.h>

#include "gravac/gravac.h"

int c_user(void);

int c_user(void) {
  const char* names[] = {"weight", "bias"};
  const size_t sizes[] = {90, 10};
  float gradient[100];
  double momentum = 0, scale = 0;
  size_t size = 0, i;
  void* state;
  gravac_aggregator* g = gravac_create("policy=static factor=10 values=fp32", names, sizes, 2, NULL);
  if (!g) return 1;
  for (i = 0; i < 100; ++i) gradient[i] = (float)i;
  if (gravac_step(g, gradient, 32) != 0) return 2;
  if (gradient[99] != 99.0f || gradient[50] != 0.0f) return 3; /* the ten largest arrived */
  if (!strstr(gravac_report(g), "\"factor\": 10")) return 4;
  if (gravac_save(g, NULL, &size) != 0 || size == 0) return 5;
  state = malloc(size);
  if (gravac_save(g, state, &size) != 0) return 6;
  if (gravac_load(g, state, size) != 0) return 7;
  if (gravac_load(g, state, size - 1) == 0) return 8;
  if (!strstr(gravac_error(), "checkpoint")) return 9;
  free(state);
  if (gravac_pause(g) != 0 || gravac_pause(NULL) == 0) return 10;
  if (gravac_learning_rate_dropped(g) != 0 || gravac_learning_rate_dropped(NULL) == 0) return 11;
  /* Top-k at 10x: all of the momentum in the first step, 0.78 of it once a hundred have been compressed. */
  if (gravac_hand_over(g, 0.9, &momentum, &scale) != 0 || momentum != 0.9 || scale != 1) return 12;
  for (i = 0; i < 100; ++i) {
    if (gravac_step(g, gradient, 32) != 0) return 13;
  }
  if (gravac_hand_over(g, 0.9, &momentum, &scale) != 0) return 13;
  if (momentum < 0.7019 || momentum > 0.7021 || scale < 2.97 || scale > 2.99) return 13;
  if (gravac_hand_over(g, 0, &momentum, &scale) != 0 || momentum != 0 || scale != 1) return 14;
  if (gravac_hand_over(g, 1, &momentum, &scale) == 0 || gravac_hand_over(g, 0.9, NULL, &scale) == 0)
    return 15;
  gravac_destroy(g);
  gravac_destroy(NULL);
  return 0;
}
