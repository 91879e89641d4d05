/* SPDX-License-Identifier: Apache-2.0
 *
 * A device whose unsupported nodes are run by the host, if the user allows it (strata_device_options.fallback_to_host). It
 * implements the device table with two other devices.
 *
 * Terms. The *device proper* is the device that the user opened. A *side* is the device proper or the host device. The
 * *mirror* of a buffer is its memory on the host's side. A *part* is a sequence of consecutive nodes of a program that
 * one side runs. */
#ifndef STRATA_BACKENDS_FALLBACK_H
#define STRATA_BACKENDS_FALLBACK_H

#include "core/run/device.h"

typedef enum fallback_side { FALLBACK_DEVICE = 0, FALLBACK_HOST = 1 } fallback_side;

/* ---- freshness.c: where the newest bytes of a buffer are ---- */

typedef struct fallback_interval {
    int64_t begin, end;
    fallback_side newest;
} fallback_interval;

/* The intervals are in ascending order and do not touch. Bytes in no interval are the same on both sides. */
typedef struct fallback_freshness {
    fallback_interval *intervals;
    int n;
    int64_t capacity;
} fallback_freshness;

/* Copies bytes begin .. end from the other side to the side `to`. */
typedef strata_status fallback_copy(void *user, int64_t begin, int64_t end, fallback_side to, strata_error *err);

/* Stores that the bytes were written on that side. */
STRATA_MUST_USE strata_status strata_fallback_written(fallback_freshness *freshness, int64_t begin, int64_t end,
                                                      fallback_side on, strata_error *err);
/* Makes the bytes available on that side: calls `copy` for those that are newer on the other side. */
STRATA_MUST_USE strata_status strata_fallback_needed(fallback_freshness *freshness, int64_t begin, int64_t end,
                                                     fallback_side on, fallback_copy *copy, void *user, strata_error *err);

/* ---- the device: device.c ---- */

/* The number of newest runs that have their own ticket. A wait for an older run waits for the oldest of these. */
enum { FALLBACK_TICKETS = 256 };

typedef struct fallback_device {
    strata_device base;
    /* Indexed by fallback_side. */
    strata_device *sides[2];
    /* The device proper has computed a program wrongly, so the host runs all nodes of programs that are compiled now. */
    bool distrusted;
    uint64_t last_ticket;
    /* [ticket t % FALLBACK_TICKETS] The newest ticket of the device proper when ticket t was returned; 0: there was none. */
    uint64_t device_tickets[FALLBACK_TICKETS];
    uint64_t newest_device_ticket;
    /* Counts that are added to those of both sides for the fields of strata_device_counters with the same names. */
    uint64_t host_nodes, copies, copy_bytes;
    /* The ticket of the newest copy that has not been waited for, if the device copies asynchronously; 0: there is none. */
    uint64_t newest_copy;
    /* The collectives of the device proper, with a function `reached` that is called with this device. */
    strata_device_collectives collectives;
} fallback_device;

struct strata_buffer {
    fallback_device *device;
    int64_t bytes;
    /* Indexed by fallback_side. The host's buffer is the mirror; it is NULL until a program needs it. */
    strata_buffer *sides[2];
    fallback_freshness freshness;
};

/* Creates *out_device, which owns `inner` from then on. On failure the caller still owns `inner`. */
STRATA_MUST_USE strata_status strata_fallback_create(strata_device *inner, strata_device **out_device, strata_error *err);

strata_status strata_fallback_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out_buffer,
                                            strata_error *err);
void strata_fallback_buffer_destroy(strata_device *device, strata_buffer *buffer);
/* Creates the buffer's mirror if it has none. */
STRATA_MUST_USE strata_status strata_fallback_mirror(strata_buffer *buffer, strata_error *err);
/* States that the bytes begin .. end of the buffer are needed on the side, or were written there. The copies that this needs
 * may still be in progress when the call returns. strata_fallback_await_copies waits for them and must be called before the
 * host reads or writes a mirror. The device's own programs run after the copies anyway. */
STRATA_MUST_USE strata_status strata_fallback_buffer_needed(strata_buffer *buffer, int64_t begin, int64_t end, fallback_side on,
                                                            strata_error *err);
STRATA_MUST_USE strata_status strata_fallback_buffer_written(strata_buffer *buffer, int64_t begin, int64_t end,
                                                             fallback_side on, strata_error *err);
STRATA_MUST_USE strata_status strata_fallback_await_copies(fallback_device *device, strata_error *err);
/* Sets the device's counters to the sums of both sides. */
void strata_fallback_count(fallback_device *device);

/* ---- programs: program.c, functions of strata_device_api with these names ---- */
strata_status strata_fallback_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                      strata_error *err);
void strata_fallback_program_destroy(strata_program *program);
void *strata_fallback_program_input(strata_program *program, int slot);
const void *strata_fallback_program_output(strata_program *program, int slot);
strata_status strata_fallback_program_cost(strata_program *program, int node, strata_device_cost *out_cost, strata_error *err);
/* New programs are checked when their parts are compiled; later, programs that the device runs alone are. */
strata_status strata_fallback_check(strata_device *base, const strata_piece *piece, strata_program *program,
                                    const strata_check_request *request, strata_error *err);
strata_status strata_fallback_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err);
strata_status strata_fallback_run_many(strata_program *program, int first, int n, uint64_t *out_ticket, strata_error *err);

#endif
