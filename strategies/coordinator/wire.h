/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages between coordinator and workers: the methods of a worker's server (cluster/rpc), and reading and writing the
 * heads of their requests and replies. Numbers are little-endian. The body of a message consists of arrays, each padded to a
 * multiple of STRATA_REMOTE_ALIGNMENT bytes. */
#ifndef STRATA_STRATEGIES_COORDINATOR_WIRE_H
#define STRATA_STRATEGIES_COORDINATOR_WIRE_H

#include <sys/uio.h>

#include "strata/coordinator.h"

enum { STRATA_REMOTE_ALIGNMENT = 64, STRATA_REMOTE_PIECES = 2 * STRATA_REMOTE_MAX_ARRAYS };

typedef enum strata_remote_method {
    /* The greeting: compares the functions of both sides, and destroys the objects of an earlier coordinator. */
    STRATA_REMOTE_GREET = 1,
    /* Creates this worker's object of a per-worker value. */
    STRATA_REMOTE_MAKE,
    /* Runs a closure. */
    STRATA_REMOTE_RUN,
    /* The coordinator ends. */
    STRATA_REMOTE_END,
} strata_remote_method;

/* ---- bytes ---- */

typedef struct strata_remote_writer {
    unsigned char *at, *end;
    /* The head was too small for something that was written. */
    bool full;
} strata_remote_writer;
void strata_remote_put(strata_remote_writer *w, uint64_t value, int n_bytes);
void strata_remote_put_text(strata_remote_writer *w, const char *text);
void strata_remote_put_array(strata_remote_writer *w, const strata_array *array);

typedef struct strata_remote_reader {
    const unsigned char *at, *end;
    /* The message was cut off or malformed. */
    bool wrong;
} strata_remote_reader;
uint64_t strata_remote_get(strata_remote_reader *r, int n_bytes);
/* Reads a text of at most n - 1 bytes; "" if the message is wrong. */
void strata_remote_get_text(strata_remote_reader *r, char *out, size_t n);
/* Returns a view of the next array of the body. *in_out_offset: the offset in the body at which the array begins, and on return
 * that of the next array. */
strata_array strata_remote_get_array(strata_remote_reader *r, void *body, size_t body_bytes, size_t *in_out_offset);

/* Appends the array's memory and its padding to the n pieces of a body. Returns the new number of pieces. */
int strata_remote_add_piece(struct iovec *pieces, int n, const strata_array *array);

/* ---- functions ---- */

/* Checks a table of functions: names, numbers of results, and that each row has either run or make. `who` names the task in
 * messages. Fails: INVALID. */
STRATA_MUST_USE strata_status strata_remote_check_functions(const char *who, const strata_remote_function *functions, int n,
                                                            strata_error *err);
/* Finds a function by its name; NULL: there is none. */
const strata_remote_function *strata_remote_find(const strata_remote_function *functions, int n, const char *name);
/* Writes the table. strata_remote_compare reads it and compares it with `own`. Fails: INVALID, with both tasks, if they
 * differ. */
void strata_remote_put_functions(strata_remote_writer *w, const strata_remote_function *functions, int n);
STRATA_MUST_USE strata_status strata_remote_compare(strata_remote_reader *r, const char *theirs_task, const char *own_task,
                                                    const strata_remote_function *own, int n, strata_error *err);

#endif
