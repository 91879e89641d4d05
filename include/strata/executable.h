/* SPDX-License-Identifier: Apache-2.0
 *
 * An executable is a graph that is compiled for one device and can then be run any number of times. After the first run it
 * allocates nothing, compiles nothing and waits only for a free slot.
 *
 * A slot is the memory of the inputs and outputs of one run. An executable has several slots, so that the host can write the
 * inputs of the next run while the device computes the one before.
 *     strata_executable_acquire(exe, &slot, err)        waits for the oldest slot's run; its outputs may be read now
 *     memcpy(strata_executable_input(exe, slot, x), ..) fill every input
 *     strata_executable_submit(exe, slot, err)          runs start in the order of submission
 * At the end call strata_executable_wait(exe, slot, err) for each slot that still runs. strata_executable_run does all of this
 * for a single run. */
#ifndef STRATA_EXECUTABLE_H
#define STRATA_EXECUTABLE_H

#include "strata/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_executable strata_executable;

enum { STRATA_MAX_SLOTS = 256 };
typedef struct strata_executable_options {
    /* How many slots, 1..STRATA_MAX_SLOTS; 0: 3. */
    int n_slots;
    /* Do not fuse nodes, for debugging and tests. */
    bool no_fusion;
} strata_executable_options;

typedef struct strata_executable_stats {
    /* How many nodes are left after the passes. */
    int n_nodes;
    /* Bytes of temporary values. */
    int64_t work_bytes;
    /* Bytes of the inputs and outputs of one slot. */
    int64_t slot_bytes;
    int64_t constant_bytes;
} strata_executable_stats;

/* Compiles what `outputs` (read by the host) and `updates` (strata_assign, strata_adam ...; may be none) need, on the
 * device where the graph's variables live. The graph is borrowed during the call only. opts may be NULL. Fails: the
 * graph's building error; UNSUPPORTED with a line for each node that the device does not run, and why; OUT_OF_MEMORY with
 * bytes wanted and free. */
STRATA_API STRATA_MUST_USE strata_status strata_executable_create(strata_device *device, strata_tensor *const *outputs,
                                                                  int n_outputs, strata_tensor *const *updates, int n_updates,
                                                                  const strata_executable_options *opts,
                                                                  strata_executable **out_executable, strata_error *err);
STRATA_API void strata_executable_destroy(strata_executable *executable); /* waits for its runs; NULL is fine */

STRATA_API int strata_executable_n_slots(const strata_executable *executable);
STRATA_API strata_executable_stats strata_executable_get_stats(const strata_executable *executable);
/* The index of the input of that name. -1 if there is none, or if no output or update depends on it. */
STRATA_API int strata_executable_input_index(const strata_executable *executable, const char *name);

STRATA_API STRATA_MUST_USE strata_status strata_executable_acquire(strata_executable *executable, int *out_slot,
                                                                   strata_error *err);
/* The host memory of input `index` in an acquired slot, all of which the caller must write; NULL for an index out of range. */
STRATA_API void *strata_executable_input(strata_executable *executable, int slot, int index);
STRATA_API STRATA_MUST_USE strata_status strata_executable_submit(strata_executable *executable, int slot, strata_error *err);
/* Waits for the end of the slot's last run, if there was one. The slot's inputs and outputs stay valid. */
STRATA_API STRATA_MUST_USE strata_status strata_executable_wait(strata_executable *executable, int slot, strata_error *err);
/* Output `index` of the slot's last finished run: borrowed until the slot is submitted again. */
STRATA_API const void *strata_executable_output(const strata_executable *executable, int slot, int index);

/* Does one run and waits for its end. inputs[i] is the value of the input with the name names[i]; outputs[i] (dtype, shape and
 * memory given by the caller, as strata_array_create makes them) receives output i. */
STRATA_API STRATA_MUST_USE strata_status strata_executable_run(strata_executable *executable, const char *const *names,
                                                               const strata_array *inputs, int n_inputs, strata_array *outputs,
                                                               int n_outputs, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
