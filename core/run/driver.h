/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits for calls of drivers and plugins that hang, in two ways, which README.md explains: driver_call.c makes rare calls
 * (loading, listing, opening, closing, compiling) in a thread of their own; all others are marked by two atomic stores, which a
 * thread of the device observes (driver.c). */
#ifndef STRATA_CORE_DRIVER_H
#define STRATA_CORE_DRIVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "strata/device.h"

/* What a call does. Each kind has a limit. */
typedef enum strata_driver_work {
    STRATA_DRIVER_NONE,
    STRATA_DRIVER_START,
    STRATA_DRIVER_LIST,
    STRATA_DRIVER_OPEN,
    STRATA_DRIVER_CLOSE,
    STRATA_DRIVER_COMPILE,
    STRATA_DRIVER_SUBMIT,
    STRATA_DRIVER_WAIT,
    STRATA_DRIVER_COPY,
    STRATA_DRIVER_ALLOCATE,
    STRATA_DRIVER_FREE,
    STRATA_DRIVER_ASK,
    STRATA_DRIVER_WORKS
} strata_driver_work;

/* ---- calls of the calling thread ---- */

/* The call that a device's driver is executing. */
typedef struct strata_driver_mark {
    /* 0: none. Otherwise the number of the call << 8 | `reported` << 7 | its strata_driver_work. */
    atomic_uint now;
    /* The limit of the call's kind is multiplied by this. */
    atomic_int runs;
    /* The number of the newest call. Only the thread that uses the device accesses it. */
    unsigned n;
    /* The thread that observes `now`; NULL: there is none. */
    struct strata_driver_watch *watch;
} strata_driver_mark;

/* The call in which a thread is. */
typedef struct strata_driver_inside {
    /* The device's id, or the file, and the driver's name; NULL: the thread is in none. */
    const char *subject, *driver;
    strata_driver_work work;
} strata_driver_inside;

/* A call that is being made, in the frame of the function that makes it. */
typedef struct strata_driver_scope {
    strata_device *device;
    /* The mark of the call around this one, and this thread's call around this one. */
    unsigned outer_mark;
    strata_driver_inside outer;
} strata_driver_scope;

strata_driver_scope strata_driver_begin(strata_device *device, strata_driver_work work, int runs);
void strata_driver_end(strata_driver_scope *scope);
/* Marks the rest of the enclosing block as a call of the device's driver. It may take the limit of its kind times `runs`. */
#define STRATA_DRIVER_MARK(device, work, runs)                                                                             \
    __attribute__((unused)) __attribute__((cleanup(strata_driver_end))) strata_driver_scope strata_driver_scope_of_block = \
        strata_driver_begin(device, work, runs)
#define STRATA_DRIVER_RUNS(device, work, runs) STRATA_DRIVER_MARK(device, STRATA_DRIVER_##work, runs)
#define STRATA_DRIVER_CALL(device, work)       STRATA_DRIVER_RUNS(device, work, 1)

/* Starts and stops the thread that observes the device's calls. Without memory or a thread, nothing is observed. */
void strata_driver_watch_start(strata_device *device);
void strata_driver_watch_stop(strata_device *device);

/* The seconds that loading, listing, opening or closing may take. */
double strata_driver_seconds(void);
/* Reports by on_failure, or else by the device's on_warning, what no function can return. */
void strata_driver_report(const strata_device *device, const strata_error *why);
/* From now on strata_drivers_hang returns true. */
void strata_driver_hangs(void);
/* Sets the call in which this thread is, for a message if the driver calls exit; returns the former. */
strata_driver_inside strata_driver_enter_thread(strata_driver_inside inside);
/* Writes the error of a call that has not returned. */
strata_status strata_driver_fail_hung(strata_driver_inside call, double seconds, strata_error *err);

/* ---- calls of a thread of their own ---- */

typedef struct strata_driver_call {
    strata_driver_inside what;
    /* Makes the call and writes its results to `call`, a copy of the caller's struct of `bytes` bytes, which is copied back at
     * the end. It may outlive the caller's wait, so it accesses only what `call` owns and objects of the driver. */
    void (*run)(void *call);
    void *call;
    size_t bytes;
} strata_driver_call;

/* The most seconds that a driver may take to compile a program of n kernels; 0: a whole program. */
double strata_driver_compile_seconds(const strata_device *device, int n_kernels);

/* The same with a limit in seconds and an optional is_interrupted(user). Fails: TIMEOUT, INTERRUPTED. */
strata_status strata_driver_call_within(const strata_driver_call *call, double seconds, bool (*is_interrupted)(void *user),
                                        void *user, strata_error *err);

/* Makes a call of a driver's compiler, as strata_driver_call describes it, and waits for it. name: in messages ("kernel matmul
 * f32"); n_kernels: how many kernels the call compiles; 0: a whole program. Warns once if it is slow (strata_device_warn).
 * Fails: TIMEOUT after the device's time limit, INTERRUPTED if the device's is_interrupted returns true. Then the call goes on
 * in its thread and nobody waits for it, device->given_up is set, and everything that the driver uses for the call, also the
 * device itself, must stay until the process ends. */
strata_status strata_driver_compile_run(strata_device *device, const char *name, int n_kernels, void (*run)(void *call),
                                        void *call, size_t bytes, strata_error *err);

#endif
