/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of functions that a backend implements for its devices. The public header is strata/device.h. Every function that
 * can fail returns a status and a message; none aborts, prints, or silently uses another device. A backend is a folder in
 * backends/ and a row in backends/registry.c; tests/conformance tests every device of every row.
 *
 * Threads: several threads may use a device at once. The code of core/ takes the device's lock around each call of the table
 * (strata_device_enter), so a backend's functions are called by one thread at a time, except `run` and `wait` of a device that
 * sets runs_in_threads. */
#ifndef STRATA_CORE_DEVICE_H
#define STRATA_CORE_DEVICE_H

#include "core/base/alloc.h"
#include "core/base/lock.h"
#include "core/base/trace.h"
#include "core/compile/piece.h"
#include "core/graph/variable.h"
#include "core/run/driver.h"
#include "strata/device.h"

struct strata_device_list;
typedef struct strata_program strata_program; /* a compiled piece; the backend's struct */

/* Collectives inside of programs: the ops all_reduce (SUM), all_gather and reduce_scatter (SUM) whose attributes name the cores
 * that take part (strata_communication_attrs.cores), each with an operand. The programs of all these cores have the same
 * collectives in the same order. One run for each core is submitted before any of them is waited for, so `run` must not wait
 * for other cores. Sums are added in the order of the cores' numbers, as in core/run/fold.h, and every core gets the same bits.
 * If a run fails on one core, in `run` or later, the runs of other cores that need it fail with DEVICE_LOST and the same
 * reason. */
typedef struct strata_device_collectives {
    /* Bit (1 << dtype) is set for dtypes that can be added up. Gathers work with every dtype of the device. */
    uint32_t sum_dtypes;
    /* (optional) How many collectives the core has begun since it was opened. It is used to find the core that hangs, which has
     * begun the fewest. May be called after a wait failed. */
    uint64_t (*reached)(strata_device *device);
    /* (optional) The seconds that the core has spent in collectives since the last call, without waiting for the operands of
     * others. */
    double (*take_seconds)(strata_device *device);
} strata_device_collectives;

/* Asynchronous copies, each of which returns a ticket of the device. Programs and copies that are submitted later run after
 * them. */
typedef struct strata_device_transfers {
    /* Like upload and download of the table. The host must not access its memory until the ticket was waited for. */
    strata_status (*upload)(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source, int64_t bytes,
                            uint64_t *out_ticket, strata_error *err);
    strata_status (*download)(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                              uint64_t *out_ticket, strata_error *err);
    /* (optional) Copies from a buffer of another device with the same `backend` and waits for it. */
    strata_status (*copy)(strata_device *to, strata_buffer *to_buffer, int64_t to_offset, strata_device *from,
                          strata_buffer *from_buffer, int64_t from_offset, int64_t bytes, strata_error *err);
} strata_device_transfers;

/* The cost of one run as the device reports it, estimated or measured. 0: not known. */
typedef struct strata_device_cost {
    double seconds, cycles;
    /* Bytes that are read from and written to the device's main memory. */
    double bytes;
    /* The used share of the multiply-adds that its matrix units could do, 0..1. */
    double utilisation;
    /* The most bytes of temporaries at one time, if the device plans their memory. */
    double work_bytes;
} strata_device_cost;

typedef struct strata_check_request {
    /* The program was just compiled. Its inputs, and values that earlier pieces compute, are generated, and are zero
     * afterwards. Otherwise the inputs are those of the slot's next run, and a wrong node is an error of the training. */
    bool first;
    int slot;
    /* The share of the nodes that are compared, 0..1, and the numbers by which they are chosen; at least one node is. */
    double share;
    uint32_t random;
} strata_check_request;

typedef struct strata_device_api {
    /* Waits for all runs and frees the device. */
    void (*close)(strata_device *device);

    /* ---- memory ---- */
    /* Creates a buffer of `bytes` > 0 zero bytes. Fails: OUT_OF_MEMORY, with the bytes that are needed and, if known, free. */
    strata_status (*buffer_create)(strata_device *device, int64_t bytes, strata_buffer **out_buffer, strata_error *err);
    void (*buffer_destroy)(strata_device *device, strata_buffer *buffer); /* no program that uses it may be running */
    /* Copies, which take place after every program that was submitted before, and are done when the function returns. */
    strata_status (*upload)(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source, int64_t bytes,
                            strata_error *err);
    strata_status (*download)(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                              strata_error *err);

    /* (optional) The buffer's memory, if the host can access the bytes that programs use, and `run` returns after the program
     * has ended. */
    void *(*buffer_memory)(strata_buffer *buffer);

    /* ---- programs ---- */
    /* Whether compile accepts this node. It depends only on the node's op, attributes, dtypes and shapes; the node need not be
     * part of a piece. If not, *reason (static memory) says why. */
    strata_support (*supports)(strata_device *device, const strata_tensor *node, const char **reason);
    strata_status (*compile)(strata_device *device, const strata_piece *piece, strata_program **out_program, strata_error *err);
    void (*program_destroy)(strata_program *program); /* none of its runs may be unfinished */
    /* The host memory of a slot's INPUT or OUTPUT arena; the address does not change. The host may access it only while the
     * slot is not running (before run, or after wait with its ticket). NULL if the arena has 0 bytes. */
    void *(*program_input)(strata_program *program, int slot);
    const void *(*program_output)(strata_program *program, int slot);
    /* (optional) The cost of the piece's nodes[node], or of the whole program for -1. Zeros if it is not known. */
    strata_status (*program_cost)(strata_program *program, int node, strata_device_cost *out_cost, strata_error *err);
    /* Submits one run on a slot and returns at once. Runs of a device take place in the order of their submission. *out_ticket
     * is larger than every earlier ticket of this device. Must not allocate or compile. */
    strata_status (*run)(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
    /* Blocks, without spinning, until the run with that ticket, and all runs before it, have ended. DEVICE_LOST if the device
     * fails. */
    strata_status (*wait)(strata_device *device, uint64_t ticket, strata_error *err);

    /* (optional) Runs the program and compares what its nodes compute with the references. Variables have their former values
     * when it returns; the program's other memory may have changed. Fails: UNSUPPORTED if a node is wrong. If its kernels are
     * wrong each time, n_distrusted has grown, and the device does not use them any more: a program that is compiled again has
     * others. */
    strata_status (*check)(strata_device *device, const strata_piece *piece, strata_program *program,
                           const strata_check_request *request, strata_error *err);

    /* (optional) A program has computed wrongly: from now on the host runs all nodes for the device. Warns with the message of
     * `why`, and increments n_distrusted. */
    void (*distrust)(strata_device *device, const strata_error *why);

    /* ---- time ---- */
    /* (optional) Sets device->trace and device->trace_track. Programs that are compiled with a trace add a slice to it for each
     * kernel or node of each run, by the device's own clock, at the latest in the wait for the run. In such programs kernels
     * may be serialized that otherwise overlap. Called while nothing runs. trace NULL: no trace any more; programs compiled
     * with a trace were destroyed before. If the device cannot measure times, device->trace stays NULL. */
    strata_status (*set_trace)(strata_device *device, strata_trace *trace, int track, strata_error *err);

    /* ---- optional: accelerators ---- */
    /* (optional) The most runs for one call of `run_many`; 1: there is no run_many. */
    int (*most_runs)(strata_device *device);
    /* (optional) Submits runs on the slots first, first + 1, ..., first + n - 1 (modulo the program's slots), which the device
     * does one after the other without the host. One ticket for all. 1 < n <= most_runs. */
    strata_status (*run_many)(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err);
    /* (optional) The position of the device in a system of cores; NULL: it is not in one. Valid as long as the device. */
    const strata_topology *(*topology)(strata_device *device);
    /* (optional) Lets the n devices exchange values inside of programs, if they can and do not yet: `collectives` of each is
     * not NULL then. They are cores of one system, in the order of their numbers, whose programs are always submitted together.
     * Called before programs are compiled. */
    strata_status (*connect)(strata_device *const *devices, int n, strata_error *err);
    /* (optional) The collectives that the device supports inside of programs; NULL: none. Valid as long as the device. */
    const strata_device_collectives *(*collectives)(strata_device *device);
    /* (optional) The device's asynchronous copies; NULL: none. Valid as long as the device. */
    const strata_device_transfers *(*transfers)(strata_device *device);
    /* (optional) Sets n_spaces and spaces of *features (strata/device.h). */
    void (*spaces)(strata_device *device, strata_device_features *features);
    /* (optional) Marks the device as lost, because its programs wait for a core that is lost. Called without the device's lock,
     * which another thread may have taken for a wait. */
    void (*abandon)(strata_device *device, const strata_error *why);
    /* (optional) Called once in a child of fork before it uses the device that its parent had opened. Threads of the device do
     * not exist there. NULL: the child cannot use the device, and every call fails. */
    void (*adopt)(strata_device *device);
} strata_device_api;

/* First member of every backend's device struct. */
struct strata_device {
    const strata_device_api *api;
    strata_device_info info;
    /* A host device that runs each new program too, because the values of the device's own nodes cannot be read one by one
     * (referee.c). The device owns it. NULL: none. */
    strata_device *referee;
    /* What the f32 operands of products are rounded to; F32: they are not. */
    strata_dtype product_dtype;
    /* NULL: the device is part of another device, or of a test, and only one thread uses it. */
    strata_lock *lock;
    /* The backend increments these. */
    strata_device_counters counters;
    /* Copies of fields of strata_device_options. */
    strata_compile_callback on_compile;
    void *on_compile_user;
    strata_warning_callback on_warning;
    strata_print_callback on_print;
    /* The device's replica or worker in a strategy, for strata_printed.place. */
    char place[48];
    double compile_notice_seconds, compile_seconds;
    bool (*is_interrupted)(void *user);
    /* Why the library stopped waiting for a call of the driver's compiler, which still runs in its thread; the status is OK if
     * there is no such call. The device can then not compile any more, and its driver objects must not be freed. */
    strata_error given_up;
    /* A driver or plugin computes, whose calls may hang: they have limits (driver.h). The backend's own stall_seconds; 0: the
     * default. The call that is being made. */
    bool has_driver;
    double stall_seconds;
    strata_driver_mark driver;
    /* How many kernels were found to compute wrongly. Each may change what `supports` returns. */
    int n_distrusted;
    /* When a program of the device is to be checked next, in microseconds of strata_trace_now; 0: no program has run yet.
     * Negative, with the same absolute value, once there was such a check. Read and written atomically. */
    int64_t next_check;
    /* NULL: nothing is traced. */
    strata_trace *trace;
    int trace_track;
    /* The number of the step whose runs are being submitted. */
    int64_t trace_step;
    /* The backend plans the memory of temporaries itself, so WORK arenas have no buffer. */
    bool plans_temporaries;
    /* The backend reads constants from their nodes, so CONSTANT arenas have no buffer. */
    bool keeps_constants;
    /* Kernels can read what the host wrote into the slot's OUTPUT arena before the run. */
    bool reads_outputs;
    /* It has kernels that strata_device_options.fast allows. */
    bool has_fast;
    /* `run` computes in the calling thread, and returns when the program has ended. */
    bool runs_at_once;
    /* Several threads may call `run` and `wait` at once, for different programs. */
    bool runs_in_threads;
};

/* Takes the device's lock; strata_device_leave releases it. A thread may take it several times. Fails: UNAVAILABLE in a child
 * of fork that cannot use the device. */
STRATA_MUST_USE strata_status strata_device_enter(strata_device *device, strata_error *err);
void strata_device_leave(strata_device *device);
/* The same for a call of `run` or `wait`, for which some devices need no lock. */
STRATA_MUST_USE strata_status strata_device_enter_run(strata_device *device, strata_error *err);
void strata_device_leave_run(strata_device *device);
/* Calls `supports` of the table. */
strata_support strata_device_supports(strata_device *device, const strata_tensor *node, const char **reason);

void strata_device_report_compile(const strata_device *device, bool tuning, int done, int total);
/* Calls on_warning, if there is one. */
void strata_device_warn(const strata_device *device, const char *format, ...) STRATA_PRINTF(2, 3);
/* For backends: fails with INVALID if the bytes are not all in a buffer of `size` bytes. */
STRATA_MUST_USE strata_status strata_device_check_range(const strata_device *device, int64_t size, int64_t offset,
                                                        int64_t bytes, strata_error *err);
/* For backends: the next file in a text of the form of STRATA_PLUGINS, and moves *at behind it. Its parts are separated by
 * colons, so the name of a file contains none. is_pjrt: only those that "pjrt:" precedes, otherwise only the others. The caller
 * frees *out_path, which is NULL at the end. Fails: OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_plugins_next(const char **at, bool is_pjrt, char **out_path, strata_error *err);
/* The most runs that the device can do in one call. */
int strata_device_most_runs(strata_device *device);
/* The collectives that the device supports inside of programs, and its asynchronous copies; NULL: none. */
const strata_device_collectives *strata_device_get_collectives(strata_device *device);
const strata_device_transfers *strata_device_get_transfers(strata_device *device);

typedef struct strata_device_list {
    strata_device_info *rows;
    int n;
    /* Why a driver's devices are not in the list: its call has not returned. Status OK: all have returned. */
    strata_error hung;
} strata_device_list;
strata_status strata_device_list_add(strata_device_list *list, const strata_device_info *row, strata_error *err);
/* Adds a row for devices whose driver has not listed them within so many seconds. */
strata_status strata_device_list_add_hung(strata_device_list *list, const char *backend, double seconds, strata_error *err);

#endif
