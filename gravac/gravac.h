/* GraVAC for C, and so for any language: adaptive gradient compression between ranks.
 *
 *   gravac_aggregator* g = gravac_create("policy=progress values=fp16", names, sizes, segments, &comm);
 *   if (!g) fail(gravac_error());
 *   ... after every backward pass, on all ranks:
 *   if (gravac_step(g, gradient, batch_size) != 0) fail(gravac_error());   // gradient is now the mean
 *   gravac_destroy(g);
 *
 * Functions return 0, or -1 (NULL where they return a pointer) and then gravac_error()
 * says why, in one line. No C++ exception ever crosses this interface. */
#ifndef GRAVAC_GRAVAC_H
#define GRAVAC_GRAVAC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gravac_aggregator gravac_aggregator;

/* How ranks talk. Callbacks return 0, or anything else if they failed; all ranks call
 * them in the same order. */
typedef struct gravac_comm {
  void* context; /* handed to the callbacks */
  size_t rank, size;
  /* Replaces values by their sums over ranks, equal to the bit on all of them. */
  int (*all_reduce)(void* context, float* values, size_t count);
  /* Everybody's `bytes` bytes, by rank, into `all`, which holds size * bytes. */
  int (*all_gather)(void* context, const void* mine, size_t bytes, void* all);
} gravac_comm;

/* An aggregator for a gradient of `segments` named parts. Options are name=value pairs
 * separated by blanks; NULL or "" takes the defaults. comm NULL: one rank alone. The
 * comm's callbacks and context must outlive the aggregator. */
gravac_aggregator* gravac_create(const char* options, const char* const* names, const size_t* sizes,
                                 size_t segments, const gravac_comm* comm);

/* Replaces the gradient, all segments one behind the other, by the mean over ranks. */
int gravac_step(gravac_aggregator* g, float* gradient, double samples);

/* The same with the weights, as many as the gradient has entries; the option weight-decay
 * needs them. NULL: none. */
int gravac_step_weights(gravac_aggregator* g, float* gradient, const float* weights, double samples);

/* The last step as one line of JSON, valid until the next call with g. */
const char* gravac_report(gravac_aggregator* g);

/* The state of this rank. Called with data NULL, save only tells the size; both want room
 * for *size bytes and set it to what was used. */
int gravac_save(gravac_aggregator* g, void* data, size_t* size);
int gravac_load(gravac_aggregator* g, const void* data, size_t size);

void gravac_destroy(gravac_aggregator* g); /* NULL is fine */

/* Why the last call of this thread failed. */
const char* gravac_error(void);

#ifdef __cplusplus
}
#endif
#endif
