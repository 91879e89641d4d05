/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: an in-memory table of keys and values. It contains a roster, whose lock guards the table too. Access over the
 * network is in serve.c. */
#ifndef STRATA_CLUSTER_STORE_BOARD_H
#define STRATA_CLUSTER_STORE_BOARD_H

#include "cluster/store/roster.h"

enum {
    STRATA_STORE_KEY_BYTES = 200,
    STRATA_STORE_VALUE_BYTES = 64 << 10,
    STRATA_STORE_KEYS = 1 << 16, /* at most so many keys in a board */
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
    /* For SET and SWAP: the new value. */
    const void *value;
    size_t n_value;
    /* For SWAP: the value that the key must have; n_expected 0: the key must not exist. */
    const void *expected;
    size_t n_expected;
    /* For ADD. */
    int64_t amount;
} strata_store_request;

/* What a request returns, followed by a NUL; the caller frees it. GET: the value; ADD: the sum, int64_t; SWAP: 1 if the value
 * was set, else 0, int64_t; SET: nothing. */
typedef struct strata_store_reply {
    void *value;
    size_t n_value;
} strata_store_reply;
static inline void strata_store_reply_finish(strata_store_reply *reply) {
    free(reply->value);
}

typedef struct strata_board strata_board;

/* A board has one reference; release frees it with the last one. NULL is fine. */
STRATA_MUST_USE strata_status strata_board_create(int world, strata_board **out_board, strata_error *err);
strata_board *strata_board_retain(strata_board *board);
void strata_board_release(strata_board *board);
strata_roster *strata_board_roster(strata_board *board);

/* Fails with INVALID if a key or value has a wrong size. */
STRATA_MUST_USE strata_status strata_store_check(const strata_store_request *request, strata_error *err);
/* Applies a request without waiting. Threads: any. Fails: INVALID for a key or value of a wrong size, TIMEOUT when the key of a
 * GET does not exist, OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_board_apply(strata_board *board, const strata_store_request *request,
                                                 strata_store_reply *out_reply, strata_error *err);
/* Like apply, but a GET waits at most `seconds` for its key. If the seat (may be NULL) gets a verdict meanwhile, the GET fails
 * with the verdict. */
STRATA_MUST_USE strata_status strata_board_wait(strata_board *board, const strata_seat *seat,
                                                const strata_store_request *request, double seconds,
                                                strata_store_reply *out_reply, strata_error *err);

#endif
