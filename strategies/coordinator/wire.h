/* SPDX-License-Identifier: Apache-2.0
 *
 * What coordinator and workers say to each other: the methods of a worker's server (cluster/rpc) and the heads of their
 * messages. Numbers are little-endian. The body of a message is its arrays, each padded to STRATA_REMOTE_ALIGNMENT bytes. */
#ifndef STRATA_STRATEGIES_COORDINATOR_WIRE_H
#define STRATA_STRATEGIES_COORDINATOR_WIRE_H

#include <sys/uio.h>

#include "strata/coordinator.h"

enum { STRATA_REMOTE_ALIGNMENT = 64, STRATA_REMOTE_PIECES = 2 * STRATA_REMOTE_MAX_ARRAYS };

typedef enum strata_remote_method {
    /* Compares the functions of both sides, and forgets the objects of an earlier coordinator. */
    STRATA_REMOTE_GREET = 1,
    /* Makes this worker's object of a per-worker value. */
    STRATA_REMOTE_MAKE,
    /* Runs a closure. */
    STRATA_REMOTE_RUN,
    /* The coordinator ends. */
    STRATA_REMOTE_END,
} strata_remote_method;

/* ---- bytes ---- */

typedef struct strata_remote_writer {
    unsigned char *at, *end;
    /* Something did not fit. */
    bool full;
} strata_remote_writer;
void strata_remote_put(strata_remote_writer *w, uint64_t value, int n_bytes);
void strata_remote_put_text(strata_remote_writer *w, const char *text);
void strata_remote_put_array(strata_remote_writer *w, const strata_array *array);

typedef struct strata_remote_reader {
    const unsigned char *at, *end;
    /* Something was not there, or not as it must be. */
    bool wrong;
} strata_remote_reader;
uint64_t strata_remote_get(strata_remote_reader *r, int n_bytes);
/* At most n - 1 bytes; "" where it is wrong. */
void strata_remote_get_text(strata_remote_reader *r, char *out, size_t n);
/* A view into the body, of which *in_out_offset bytes are used. */
strata_array strata_remote_get_array(strata_remote_reader *r, void *body, size_t body_bytes, size_t *in_out_offset);

/* Appends an array's memory, and what pads it, to pieces. Returns their new number. */
int strata_remote_add_piece(struct iovec *pieces, int n, const strata_array *array);

/* ---- functions ---- */

/* INVALID for rows that no table may have; `who` is for the message. */
STRATA_MUST_USE strata_status strata_remote_check_functions(const char *who, const strata_remote_function *functions, int n,
                                                            strata_error *err);
/* NULL: there is none. */
const strata_remote_function *strata_remote_find(const strata_remote_function *functions, int n, const char *name);
/* Writes the table; strata_remote_compare reads it, and fails with INVALID where `own` differs, naming both sides. */
void strata_remote_put_functions(strata_remote_writer *w, const strata_remote_function *functions, int n);
STRATA_MUST_USE strata_status strata_remote_compare(strata_remote_reader *r, const char *theirs_task, const char *own_task,
                                                    const strata_remote_function *own, int n, strata_error *err);

#endif
