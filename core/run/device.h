/* SPDX-License-Identifier: Apache-2.0
 *
 * The device table: what a backend fills in for a kind of device, and the piece of a graph that it compiles. Users see
 * strata/device.h. Every call returns a status and a message; none aborts, prints, or falls back in silence. A backend is a
 * folder in backends/ and a row in backends/registry.c; tests/conformance runs over every device of every row. */
#ifndef STRATA_CORE_DEVICE_H
#define STRATA_CORE_DEVICE_H

#include "core/base/trace.h"
#include "core/compile/piece.h"
#include "core/graph/variable.h"
#include "strata/device.h"

struct strata_device_list;
typedef struct strata_program strata_program; /* a compiled piece; the backend's struct */

/* Collectives inside of programs: the ops all_reduce (SUM), all_gather and reduce_scatter (SUM) whose attributes name the cores
 * that take part (strata_communication_attrs.cores), each with an operand. The programs of all these cores have the same
 * collectives in the same order, and their runs are submitted, one a core, before any is waited for: so `run` must not wait for
 * other cores. Sums are folded as core/run/fold.h does, in the order of the cores' numbers; every core gets the same bits. When
 * a run fails on a core, in `run` or later, the runs of other cores that need it end as DEVICE_LOST, with its reason. */
typedef struct strata_device_collectives {
    /* Bit (1 << dtype): values that can be added up. Gathers take every dtype of the device. */
    uint32_t sum_dtypes;
    /* (optional) How many collectives the core has come to since it was opened. While others wait for a core that hangs, it
     * has come to fewest. May be called after a wait failed. */
    uint64_t (*reached)(strata_device *device);
} strata_device_collectives;

/* Copies that return before they are done, each with a ticket of the device. What is submitted later comes after them. */
typedef struct strata_device_transfers {
    /* As upload and download of the table. The host's memory is the device's until the ticket was waited for. */
    strata_status (*upload)(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source, int64_t bytes,
                            uint64_t *out_ticket, strata_error *err);
    strata_status (*download)(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                              uint64_t *out_ticket, strata_error *err);
    /* (optional) Copies from a buffer of another device with the same `backend` and waits for it. */
    strata_status (*copy)(strata_device *to, strata_buffer *to_buffer, int64_t to_offset, strata_device *from,
                          strata_buffer *from_buffer, int64_t from_offset, int64_t bytes, strata_error *err);
} strata_device_transfers;

/* What one run costs by the device's own account: an estimate or a measurement, in its own time. 0: not known. */
typedef struct strata_device_cost {
    double seconds, cycles;
    /* Read from and written to its main memory. */
    double bytes;
    /* 0..1: the share of its matrix units' multiply-adds that were used. */
    double utilisation;
    /* The most bytes of temporaries at one time, where the device plans them. */
    double work_bytes;
} strata_device_cost;

typedef struct strata_device_api {
    /* Waits for what runs, frees the device. */
    void (*close)(strata_device *device);

    /* ---- memory ---- */
    /* `bytes` > 0 of zeros. OUT_OF_MEMORY: bytes wanted and, where known, free. */
    strata_status (*buffer_create)(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err);
    void (*buffer_destroy)(strata_device *device, strata_buffer *buffer); /* no program that uses it may be running */
    /* Both are ordered after every program submitted before, and done when they return. */
    strata_status (*upload)(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source, int64_t bytes,
                            strata_error *err);
    strata_status (*download)(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                              strata_error *err);

    /* The buffer's memory, where the host reads and writes the very bytes that programs use and no program runs when `run` has
     * returned (optional). */
    void *(*buffer_memory)(strata_buffer *buffer);

    /* ---- programs ---- */
    /* Whether compile would take this node, by its op, attributes, dtypes and shapes alone: the node may be one that is only
     * asked about. If not, *reason (static memory) says why. */
    strata_support (*supports)(strata_device *device, const strata_tensor *node, const char **reason);
    strata_status (*compile)(strata_device *device, const strata_piece *piece, strata_program **out_program, strata_error *err);
    void (*program_destroy)(strata_program *program); /* none of its runs may be going on */
    /* Host memory of a slot's INPUT or OUTPUT arena, stable for the program's life. The host may touch a slot's only while the
     * slot is not running (before run, or after wait on its ticket). NULL when the arena has 0 bytes. */
    void *(*program_input)(strata_program *program, int slot);
    const void *(*program_output)(strata_program *program, int slot);
    /* (optional) The cost of the piece's nodes[node], or of the whole program for -1. Zeros where the device does not say. */
    strata_status (*program_cost)(strata_program *program, int node, strata_device_cost *out_cost, strata_error *err);
    /* Submits one run on a slot, after all submitted before on the device, and returns at once. *out_ticket is larger than
     * every ticket before it on this device. Allocates nothing, compiles nothing. */
    strata_status (*run)(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
    /* Blocks, without spinning, until the run with that ticket, and so all before it, is done. DEVICE_LOST when it can't be. */
    strata_status (*wait)(strata_device *device, uint64_t ticket, strata_error *err);

    /* (optional) Compares a node of the piece, which `random` chooses, with the reference: on the values that it has in the run
     * of `slot`, whose inputs are written and which has not been submitted; where those are not to be had, or with slot -1, on
     * values that are made up. A node that is wrong is a warning (strata_device_warn), not a failure. Variables and inputs are
     * as before when it returns; all else of the program's memory may be changed, as a run does. */
    strata_status (*recheck)(strata_device *device, const strata_piece *piece, strata_program *program, int slot,
                             uint32_t random, strata_error *err);

    /* ---- time ---- */
    /* (optional) Sets device->trace and device->trace_track. Programs that are compiled with a trace add a slice to it for each
     * kernel or node of each run, by the device's own clock, at the latest in the wait for the run. They may keep kernels apart
     * that would run beside each other. Called while nothing runs; NULL: no trace any more, and such programs are gone. Where
     * the device cannot tell times, device->trace stays NULL. */
    strata_status (*set_trace)(strata_device *device, strata_trace *trace, int track, strata_error *err);

    /* ---- optional: accelerators ---- */
    /* (optional) How many runs `run_many` takes in one call; 1: no more than `run` does. */
    int (*most_runs)(strata_device *device);
    /* (optional) Submits runs on the slots first, first + 1, ..., first + n - 1 (modulo the program's slots), one after the
     * other, as `run` would. The host is not asked for anything between them. One ticket for all. 1 < n <= most_runs. */
    strata_status (*run_many)(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err);
    /* (optional) Of which system the device is a core; NULL: of none. Lives as long as the device. */
    const strata_topology *(*topology)(strata_device *device);
    /* (optional) What the core exchanges with the other cores of its system by itself; NULL: nothing. As topology. */
    const strata_device_collectives *(*collectives)(strata_device *device);
    /* (optional) Copies that do not wait; NULL: it has none. As topology. */
    const strata_device_transfers *(*transfers)(strata_device *device);
    /* (optional) Sets the spaces of *features (strata/device.h). */
    void (*spaces)(strata_device *device, strata_device_features *features);
    /* (optional) The device counts as lost from now on: its programs wait for a core that is. */
    void (*abandon)(strata_device *device, const strata_error *why);
} strata_device_api;

/* First member of every backend's device struct. */
struct strata_device {
    const strata_device_api *api;
    strata_device_info info;
    /* The backend counts in these. */
    strata_device_counters counters;
    /* Of strata_device_options. */
    strata_compile_callback on_compile;
    void *on_compile_user;
    strata_warning_callback on_warning;
    strata_print_callback on_print;
    /* Among a strategy's devices: strata_printed.place. */
    char place[48];
    double compile_notice_seconds, compile_seconds;
    bool (*is_interrupted)(void *user);
    /* Why a call of the driver's compiler was left, which goes on; its status is OK where none was. The device may be used, but
     * for compiling, and must not be closed. */
    strata_error given_up;
    /* How many kernels were found to compute wrongly: `supports` may say no since then where it said yes. */
    int n_distrusted;
    /* NULL: nothing is traced. */
    strata_trace *trace;
    int trace_track;
    /* The step of the runs that are submitted. */
    int64_t trace_step;
    /* The backend plans the memory of temporaries by itself: WORK arenas have no buffer. */
    bool plans_temporaries;
    /* It takes constants from their nodes: CONSTANT arenas have no buffer. */
    bool keeps_constants;
    /* What the host writes into a slot's OUTPUT arena before a run is what the run's kernels read there. */
    bool reads_outputs;
    /* It has kernels that strata_device_options.fast allows. */
    bool has_fast;
};

/* Calls on_compile, if there is one. */
void strata_device_report_compile(const strata_device *device, bool tuning, int done, int total);
/* Calls on_warning, if there is one. */
void strata_device_warn(const strata_device *device, const char *format, ...) STRATA_PRINTF(2, 3);
/* How many runs the device takes in one call; 1: run by run. */
int strata_device_most_runs(strata_device *device);
/* What the device exchanges with other cores by itself, and its copies that do not wait; NULL: nothing. */
const strata_device_collectives *strata_device_get_collectives(strata_device *device);
const strata_device_transfers *strata_device_get_transfers(strata_device *device);

typedef struct strata_device_list {
    strata_device_info *rows;
    int n, capacity;
} strata_device_list;
strata_status strata_device_list_add(strata_device_list *list, const strata_device_info *row, strata_error *err);

#endif
