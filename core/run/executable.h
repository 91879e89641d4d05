/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal functions of executables: what a program would need, without compiling it, and running the executable of a replica
 * segment by segment (for groups). */
#ifndef STRATA_CORE_EXECUTABLE_H
#define STRATA_CORE_EXECUTABLE_H

#include "core/compile/collectives.h"
#include "core/compile/plan.h"
#include "core/run/node_support.h"
#include "core/run/print.h"
#include "strata/executable.h"

typedef struct strata_slot {
    /* Of the last submitted program. */
    uint64_t ticket;
    /* The number of the slot's run in the executable. */
    uint64_t run;
    bool running;
    /* The values that its run prints have not been shown yet. */
    bool shows;
    /* Which memory it has: that of slot position / n_carried of the programs of copy position % n_carried. It is the slot's
     * number, unless strata_executable_place_run has chosen another. */
    int position;
} strata_slot;

struct strata_executable {
    strata_device *device;
    /* The optimized copy of the caller's graph; backends point into it. Its outputs are the caller's, then the values that
     * `prints` show. */
    strata_draft draft;
    strata_plan plan;
    /* The number of the caller's outputs. */
    int n_outputs;
    strata_prints prints;
    /* Values that several segments use are kept in n_carried copies, so that the segments of so many runs can alternate. 1: one
     * run at a time, or there are no such values. */
    int n_carried;
    /* [(n_carried - 1) * plan.n_arenas] The arenas of the copies from number 1 on; those of copy 0 are the plan's. */
    strata_arena *copies;
    /* [n_carried * n_segments] Of copy c and segment k, at index c * n_segments + k. */
    strata_program **programs;
    /* Of slot s and segment k, at index s * n_segments + k. */
    uint64_t *tickets;
    strata_slot *slots;
    int n_slots, next_slot;
    uint64_t n_runs;
    /* How long the first check of all nodes took; 0: the device has no check. How long all comparisons took that preceded the
     * first run: also those of the device's referee, and of programs that were not used because one of their kernels was
     * wrong. */
    double check_seconds, compared_seconds;
    /* It is on the referee of another executable's device (referee.c): the variables' buffers are its own. */
    bool is_referee;
    /* The program on the device's referee, with which this one is compared now and then. NULL: it is not compared. */
    strata_executable *referee;
};

/* The host memory, in a slot, of a tensor that the host writes or reads. */
char *strata_executable_memory(const strata_executable *executable, int slot, const strata_tensor *tensor, bool written);
/* The program that runs a segment of a slot, and the number of that slot among those of the program. */
strata_program *strata_executable_program(const strata_executable *executable, int slot, int segment, int *out_slot);
/* The nodes of all segments as one piece. */
strata_piece strata_executable_piece(const strata_executable *executable);

/* referee.c: runs the executable, whose variables and inputs keep their values, and the same program on the device's referee,
 * and compares outputs and variables. No run of the executable is active. on_inputs: the inputs of the slot are those of a
 * step; otherwise, they are generated. Fails: UNSUPPORTED if they differ. */
STRATA_MUST_USE strata_status strata_referee_compare(strata_executable *executable, strata_executable *referee, int slot,
                                                     bool on_inputs, uint32_t random, strata_error *err);
/* Whether a run of the referee is short enough. */
bool strata_referee_can_compare(const strata_executable *referee);

/* Copies `bytes` to the input of that name in an acquired slot; does nothing if there is no such input. */
void strata_executable_feed(strata_executable *executable, int slot, const char *name, const void *data, size_t bytes);

/* The memory that strata_executable_create would allocate on the device, and the work of one run. */
typedef struct strata_program_cost {
    int64_t device_bytes;
    /* Operations, and bytes that are read and written, as core/graph/graph.h counts them. */
    double flops;
    double moved_bytes;
} strata_program_cost;

/* Runs the passes and the memory plan only. Fails as create does before it allocates memory. */
STRATA_MUST_USE strata_status strata_executable_measure(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                        strata_tensor *const *updates, int n_updates,
                                                        strata_program_cost *out_cost, strata_error *err);

/* Calls `visit` with each node of the program, in order, and whether the device or the host would run it; also with nodes that
 * neither can run. Runs the passes and the memory plan only. */
STRATA_MUST_USE strata_status strata_executable_place(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                      strata_tensor *const *updates, int n_updates,
                                                      strata_node_support_visit *visit, void *user, strata_error *err);

/* A temporary that is alive at node `at`, where the program needs most memory. Views of a tensor and tensors computed in its
 * place share its bytes; `node` is the largest of them. */
typedef struct strata_peak_value {
    const strata_tensor *node, *at;
    int64_t bytes;
} strata_peak_value;
typedef strata_status strata_peak_visit(const strata_peak_value *value, void *user, strata_error *err);
/* Calls `visit` with each of these temporaries. Runs the passes and the memory plan only. */
STRATA_MUST_USE strata_status strata_executable_visit_peak(strata_device *device, strata_tensor *const *outputs, int n_outputs,
                                                           strata_tensor *const *updates, int n_updates,
                                                           strata_peak_visit *visit, void *user, strata_error *err);

/* ---- replicas ---- */

/* Like strata_executable_create, but for one of several replicas: communication nodes are kept and divide the executable into
 * segments. A slot is acquired and waited for as usual. To run it, submit its segments in order. Before segment k is submitted,
 * each communication whose `before` is at most k must have been performed. A communication can be performed when segment
 * `after` was waited for on every replica that contributes a value.
 *   place  the device's position in a system of cores, whose collectives become part of the program; NULL: there is none */
STRATA_MUST_USE strata_status strata_executable_create_replica(strata_device *device, strata_tensor *const *outputs,
                                                               int n_outputs, strata_tensor *const *updates, int n_updates,
                                                               const strata_executable_options *opts,
                                                               const strata_core_place *place,
                                                               strata_executable **out_executable, strata_error *err);
/* The same for a replica whose host performs all exchanges, and of which n_carried runs may alternate (core/run/flight.c).
 * n_carried: at most the number of slots. */
STRATA_MUST_USE strata_status strata_executable_create_in_flight(strata_device *device, strata_tensor *const *outputs,
                                                                 int n_outputs, strata_tensor *const *updates, int n_updates,
                                                                 const strata_executable_options *opts, int n_carried,
                                                                 strata_executable **out_executable, strata_error *err);
/* strata_executable_measure of such a replica. */
STRATA_MUST_USE strata_status strata_executable_measure_in_flight(strata_device *device, strata_tensor *const *outputs,
                                                                  int n_outputs, strata_tensor *const *updates, int n_updates,
                                                                  const strata_executable_options *opts, int n_carried,
                                                                  strata_program_cost *out_cost, strata_error *err);
/* Submits a segment for n acquired slots, first, first + 1, ... (modulo the slots), in one call of the device. n is 1, or at
 * most strata_executable_most_runs, which is more than 1 only where there is one segment. */
STRATA_MUST_USE strata_status strata_executable_submit_segment(strata_executable *executable, int first, int n, int segment,
                                                               strata_error *err);
int strata_executable_most_runs(const strata_executable *executable);
/* Gives an acquired slot the memory of a sequence's run with this number. Of the sequence, at most as many runs are in flight
 * as there are slots. n_carried runs that follow each other have their own copies of the values between segments. */
void strata_executable_place_run(strata_executable *executable, int slot, int number);
/* Begins the run of an acquired slot before its first segment is submitted, and ends it after its last one was waited for:
 * shows what runs up to this one printed. For a thread that does not submit and wait itself. */
void strata_executable_begin_run(strata_executable *executable, int slot);
void strata_executable_end_run(strata_executable *executable, int slot);
STRATA_MUST_USE strata_status strata_executable_wait_segment(strata_executable *executable, int slot, int segment,
                                                             strata_error *err);

/* The nodes of the executable, in order, for reports. */
typedef struct strata_executable_node {
    /* Borrowed. */
    const strata_tensor *node;
    int segment;
} strata_executable_node;
strata_executable_node strata_executable_get_node(const strata_executable *executable, int index);
/* Measures this node alone, in microseconds, with separate memory of the same layout (core/run/bench.h); 0: the node computes
 * nothing. Fails: OUT_OF_MEMORY; UNSUPPORTED if it cannot run alone; DEVICE_LOST. */
STRATA_MUST_USE strata_status strata_executable_time_node(const strata_executable *executable, int index, double *out_us,
                                                          strata_error *err);

/* The cost of one run of this node within its program, as the device reports it; index -1: of all segments together. Zeros if
 * it is not known. */
STRATA_MUST_USE strata_status strata_executable_device_cost(const strata_executable *executable, int index,
                                                            strata_device_cost *out_cost, strata_error *err);

/* Lets the device compare nodes of the program with the references (strata_device_api.check), on the values of the next run of
 * the slot, which was acquired and whose inputs are written; or compares a run with the device's referee. seconds: about how
 * long the former may take; it determines the share of the nodes, which `random` chooses. */
STRATA_MUST_USE strata_status strata_executable_recheck(strata_executable *executable, int slot, double seconds,
                                                        uint32_t random, strata_error *err);

#endif
