/* GraVAC's C interface, for C and for languages that can call C: adaptive gradient compression between ranks.
 *
 *   gravac_aggregator* g = gravac_create("policy=progress values=fp16", names, sizes, segments, &comm);
 *   if (!g) fail(gravac_error());
 *   ... after every backward pass, on all ranks:
 *   if (gravac_step(g, gradient, batch_size) != 0) fail(gravac_error());   // gradient is now the mean
 *   gravac_destroy(g);
 *
 * Errors: a function that fails returns -1, or NULL if it returns a pointer, and gravac_error() then
 * describes the failure in one line. No C++ exception leaves this interface.
 *
 * Threads: an aggregator may be used from any thread, but from one at a time. */
#ifndef GRAVAC_GRAVAC_H
#define GRAVAC_GRAVAC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gravac_aggregator gravac_aggregator;

/* How ranks exchange data: two functions of the caller's, each called by all ranks in the same order and
 * on the thread that called this library. They return 0 on success. */
typedef struct gravac_comm {
  void* context; /* passed to both functions */
  size_t rank, size;
  /* Replaces each value by its sum over ranks; the result must be equal to the bit on all ranks. */
  int (*all_reduce)(void* context, float* values, size_t count);
  /* Gathers `bytes` bytes from every rank. Those of rank r go to `all` + r * bytes; `all` has room for
   * size * bytes. `bytes` is the same on all ranks. */
  int (*all_gather)(void* context, const void* mine, size_t bytes, void* all);
} gravac_comm;

/* Creates an aggregator for the gradient of a model with `segments` parameters; parameter i is called
 * names[i] and has sizes[i] entries. Options are name=value pairs separated by blanks (docs/command_line.md
 * lists them); NULL or "" means the defaults. comm NULL means a single rank. The struct is copied; its
 * context must outlive the aggregator. Compares the options with those of the other ranks, and fails on all
 * if they differ. */
gravac_aggregator* gravac_create(const char* options, const char* const* names, const size_t* sizes,
                                 size_t segments, const gravac_comm* comm);

/* The same with the shapes of the parameters, for compressors that treat them as matrices. rows[i] is the
 * size of the first dimension of a parameter with two or more dimensions and 1 for any other; it must divide
 * sizes[i]. Entries of a row lie one behind the other. rows NULL means 1 for all. */
gravac_aggregator* gravac_create_matrices(const char* options, const char* const* names, const size_t* sizes,
                                          const size_t* rows, size_t segments, const gravac_comm* comm);

/* One step: replaces the gradient by the mean over ranks of what was sent. The gradient holds all parameters
 * one behind the other. `samples` is the number of samples that this rank's gradient was computed from. */
int gravac_step(gravac_aggregator* g, float* gradient, double samples);

/* The same with the weights, one for each entry of the gradient, which the option weight-decay needs. weights
 * may be NULL without that option. */
int gravac_step_weights(gravac_aggregator* g, float* gradient, const float* weights, double samples);

/* The report of the last step as one line of JSON; "" before the first. Valid until the next call with g. */
const char* gravac_report(gravac_aggregator* g);

/* After gravac_step, for an SGD with this momentum: the momentum that it should use in this step, and the
 * number by which it should multiply the gradient (with weight decay added, if it has any). In compressed
 * steps less momentum is better than all of it; in dense steps these are `momentum` and 1. For each entry:
 *   buffer = effective_momentum * buffer + gradient_scale * gradient;  weight -= learning_rate * buffer;
 * Other optimizers, such as Adam, take the gradient as it is. */
int gravac_hand_over(gravac_aggregator* g, double momentum, double* effective_momentum,
                     double* gradient_scale);

/* Save and load the state of this rank, to continue a run with equal bits; weights and optimizer are not in
 * it. gravac_save writes to data, which has room for *size bytes, and sets *size to the bytes needed. With
 * data NULL it only sets *size. gravac_load changes nothing if it fails. */
int gravac_save(gravac_aggregator* g, void* data, size_t* size);
int gravac_load(gravac_aggregator* g, const void* data, size_t size);

/* The time since the last step was a pause, not computing: an evaluation, a checkpoint. To be called when the
 * pause is over. Long pauses are recognised without it. */
int gravac_pause(gravac_aggregator* g);

/* The learning rate of the steps to come. Where it rises, as in a warm-up, what is kept of earlier gradients
 * is scaled down, so that it does not count for more than it would have in its own step. Without this call
 * the rate is taken to be constant. To be called before any step for which the rate may have changed, on all
 * ranks. */
int gravac_learning_rate(gravac_aggregator* g, double rate);

/* The momentum of the steps to come under memory=momentum, where a schedule changes it: what the memory keeps
 * of its velocity, and the momentum of the optimizer itself. Until the first call both are as in the options
 * momentum and optimizer-momentum. To be called between steps, on all ranks. Does nothing with
 * memory=residual. */
int gravac_momentum(gravac_aggregator* g, double momentum, double optimizer_momentum);

/* The schedule has lowered the learning rate: some policies (accordion) compress less for a while. To be
 * called between steps, on all ranks. */
int gravac_learning_rate_dropped(gravac_aggregator* g);

void gravac_destroy(gravac_aggregator* g); /* NULL is fine */

/* Describes why the last call that failed on this thread did so. */
const char* gravac_error(void);

#ifdef __cplusplus
}
#endif
#endif
