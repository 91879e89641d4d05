/* SPDX-License-Identifier: Apache-2.0
 *
 * For the model: what a program would need, without making it. For strategies: one replica's executable, segment by segment. */
#ifndef STRATA_CORE_EXECUTABLE_H
#define STRATA_CORE_EXECUTABLE_H

#include "core/compile/collectives.h"
#include "core/run/placement.h"
#include "strata/executable.h"

/* Copies `bytes` to the acquired slot's input of that name, where there is one. */
void strata_executable_feed(strata_executable *executable, int slot, const char *name, const void *data, size_t bytes);

/* What a program would cost: the memory that strata_executable_create would reserve on the device, and the work of one run. */
typedef struct strata_program_cost {
    int64_t device_bytes;
    /* core/compile/cost.h. */
    double flops;
    /* core/compile/cost.h. */
    double moved_bytes;
} strata_program_cost;

/* By passes and plan alone. Fails as create does before memory is asked for. */
STRATA_MUST_USE strata_status strata_executable_measure(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                        strata_tensor *const *updates, int n_updates,
                                                        strata_program_cost *out_cost, strata_error *err);

/* Calls `visit` with each node of the program, in order, and where it would run, nodes that the device cannot run too. By
 * passes and plan alone. */
STRATA_MUST_USE strata_status strata_executable_place(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                      strata_tensor *const *updates, int n_updates,
                                                      strata_placement_visit *visit, void *user, strata_error *err);

/* A temporary that is alive where the program needs most memory, at node `at`. A tensor's views, and what is computed in place
 * of it, lie in the same bytes: `node` is the largest of them. */
typedef struct strata_peak_value {
    const strata_tensor *node, *at;
    int64_t bytes;
} strata_peak_value;
typedef strata_status strata_peak_visit(const strata_peak_value *value, void *user, strata_error *err);
/* Calls `visit` with each of them. By passes and plan alone. */
STRATA_MUST_USE strata_status strata_executable_visit_peak(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                           strata_tensor *const *updates, int n_updates,
                                                           strata_peak_visit *visit, void *user, strata_error *err);

/* ---- replicas ---- */

/* As strata_executable_create, but communication nodes stay: they divide the executable into segments. To run a slot, which is
 * acquired and waited for as ever: submit its segments in order; before segment k, each communication whose `before` is at most
 * k must have been carried out; that can be done once segment `after` has been waited for, on every replica that gives.
 * place: the device is a core of a system whose cores exchange by themselves what they can; NULL: it is not. */
STRATA_MUST_USE strata_status strata_executable_create_replica(strata_device *device, strata_tensor *const *outputs,
                                                               int n_outputs, strata_tensor *const *updates, int n_updates,
                                                               const strata_executable_options *opts,
                                                               const strata_core_place *place,
                                                               strata_executable **out_executable, strata_error *err);
strata_device *strata_executable_device(const strata_executable *executable); /* borrowed */
int strata_executable_n_segments(const strata_executable *executable);
STRATA_MUST_USE strata_status strata_executable_submit_segment(strata_executable *executable, int slot, int segment,
                                                               strata_error *err);
/* Submits runs of n acquired slots, first, first + 1, ... (modulo the slots), in one call of the device, where there is one
 * segment and n is at most strata_executable_most_runs. */
int strata_executable_most_runs(const strata_executable *executable);
STRATA_MUST_USE strata_status strata_executable_submit_many(strata_executable *executable, int first, int n, strata_error *err);
STRATA_MUST_USE strata_status strata_executable_wait_segment(strata_executable *executable, int slot, int segment,
                                                             strata_error *err);

/* The slot's run shows nothing of what it prints: it has no examples. Between its submission and the wait for it. */
void strata_executable_show_nothing(strata_executable *executable, int slot);

typedef struct strata_executable_communication {
    /* Dtype, shape and what to do; borrowed. */
    const strata_tensor *node;
    /* Segments; after -1: it gives nothing; before -1: nothing reads it. */
    int after, before;
    /* Host memory; NULL when it has 0 bytes, or gives nothing. */
    const void *operand;
    /* Host memory; NULL when it has 0 bytes, or takes nothing. */
    void *result;
} strata_executable_communication;
int strata_executable_n_communications(const strata_executable *executable);
strata_executable_communication strata_executable_get_communication(const strata_executable *executable, int index, int slot);

/* What it computes, in order, for those who show it. */
typedef struct strata_executable_node {
    /* Borrowed. */
    const strata_tensor *node;
    int segment;
} strata_executable_node;
int strata_executable_n_nodes(const strata_executable *executable);
strata_executable_node strata_executable_get_node(const strata_executable *executable, int index);
/* Microseconds of this node alone, with memory of its own that is laid out as here (core/run/bench.h); 0: there is nothing to
 * run. Fails: OUT_OF_MEMORY, UNSUPPORTED where it does not run alone; DEVICE_LOST. */
STRATA_MUST_USE strata_status strata_executable_time_node(const strata_executable *executable, int index, double *out_us,
                                                          strata_error *err);

/* What the device itself says of one run of this node, as a part of its program; index -1: of all segments together. Zeros
 * where it does not say. */
STRATA_MUST_USE strata_status strata_executable_device_cost(const strata_executable *executable, int index,
                                                            strata_device_cost *out_cost, strata_error *err);

/* Has the device compare one node of the program, that `random` chooses, with the reference (strata_device_api.recheck), before
 * an acquired slot whose inputs are written is submitted. */
STRATA_MUST_USE strata_status strata_executable_recheck(strata_executable *executable, int slot, uint32_t random,
                                                        strata_error *err);

#endif
