/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: keys with their values, and the verdict. In memory, under a lock; who may reach it is not its business. */
#ifndef STRATA_CLUSTER_STORE_BOARD_H
#define STRATA_CLUSTER_STORE_BOARD_H

#include <stdbool.h>

#include "strata/status.h"

enum {
    STRATA_STORE_KEY_BYTES = 200,
    STRATA_STORE_VALUE_BYTES = 64 << 10,
    STRATA_STORE_KEYS = 1 << 16, /* of a board */
};

typedef enum strata_store_op {
    STRATA_STORE_SET,
    STRATA_STORE_GET,
    STRATA_STORE_ADD,
    STRATA_STORE_SWAP,
    STRATA_STORE_OPS
} strata_store_op;

typedef struct strata_store_request {
    strata_store_op op;
    const char *key;
    const void *value; /* SET, SWAP */
    size_t n_value;
    const void *expected; /* SWAP */
    size_t n_expected;
    int64_t amount; /* ADD */
} strata_store_request;

typedef struct strata_store_reply {
    void *value; /* GET: a copy, with a NUL behind it; the caller frees */
    size_t n_value;
    int64_t number; /* ADD: the sum; SWAP: 1 when swapped */
} strata_store_reply;

typedef struct strata_board strata_board;

STRATA_MUST_USE strata_status strata_board_create(strata_board **out_board, strata_error *err);
void strata_board_destroy(strata_board *board); /* NULL is fine */

/* Threads: any. Fails: INVALID for a request out of bounds, TIMEOUT when the key of a GET isn't there (now), OUT_OF_MEMORY; the
 * verdict. */
STRATA_MUST_USE strata_status strata_board_apply(strata_board *board, const strata_store_request *request,
                                                 strata_store_reply *out_reply, strata_error *err);
/* As apply, but a GET waits for its key at most `seconds`. */
STRATA_MUST_USE strata_status strata_board_wait(strata_board *board, const strata_store_request *request, double seconds,
                                                strata_store_reply *out_reply, strata_error *err);

/* The first failure stays. Returns whether this was it. */
bool strata_board_fail(strata_board *board, strata_status status, const char *text);
bool strata_board_failed(const strata_board *board);
strata_status strata_board_verdict(const strata_board *board, strata_error *err); /* OK where there is none */

#endif
