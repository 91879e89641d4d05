/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: keys with their values, in memory, under the lock of a roster, which is part of it. Who may reach it is not its
 * business. */
#ifndef STRATA_CLUSTER_STORE_BOARD_H
#define STRATA_CLUSTER_STORE_BOARD_H

#include "cluster/store/roster.h"

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
    /* SET, SWAP. */
    const void *value;
    size_t n_value;
    /* SWAP. */
    const void *expected;
    size_t n_expected;
    /* ADD. */
    int64_t amount;
} strata_store_request;

typedef struct strata_store_reply {
    /* GET: a copy, with a NUL behind it; the caller frees. */
    void *value;
    size_t n_value;
    /* ADD: the sum; SWAP: 1 when swapped. */
    int64_t number;
} strata_store_reply;

typedef struct strata_board strata_board;

STRATA_MUST_USE strata_status strata_board_create(int world, strata_board **out_board, strata_error *err);
void strata_board_destroy(strata_board *board); /* NULL is fine */
strata_roster *strata_board_roster(strata_board *board);

/* Threads: any. Fails: INVALID for a request out of bounds, TIMEOUT when the key of a GET isn't there (now),
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_board_apply(strata_board *board, const strata_store_request *request,
                                                 strata_store_reply *out_reply, strata_error *err);
/* As apply, but a GET waits for its key at most `seconds`, and no longer than the seat (NULL: none) has no verdict, with
 * which it fails then. */
STRATA_MUST_USE strata_status strata_board_wait(strata_board *board, const strata_seat *seat,
                                                const strata_store_request *request, double seconds,
                                                strata_store_reply *out_reply, strata_error *err);

#endif
