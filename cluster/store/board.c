/* SPDX-License-Identifier: Apache-2.0
 *
 * The entries are a linked list, which is fast enough because a job has only a few keys for each rank. */
#include "cluster/store/board.h"

#include "core/base/locked.h"

typedef struct entry {
    struct entry *next;
    size_t n_value;
    char *value;
    char key[STRATA_STORE_KEY_BYTES + 1];
} entry;

struct strata_board {
    atomic_int references;
    /* Its lock guards the entries too. */
    strata_roster roster;
    entry *entries;
    int n_entries;
};

strata_status strata_board_create(int world, strata_board **out_board, strata_error *err) {
    *out_board = NULL;
    strata_board *board = calloc(1, sizeof *board);
    if (!board) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for the store");
    board->references = 1;
    const strata_status status = strata_roster_init(&board->roster, world, err);
    if (status)
        free(board);
    else
        *out_board = board;
    return status;
}

strata_roster *strata_board_roster(strata_board *board) {
    return &board->roster;
}

strata_board *strata_board_retain(strata_board *board) {
    atomic_fetch_add(&board->references, 1);
    return board;
}

void strata_board_release(strata_board *board) {
    if (!board || atomic_fetch_sub(&board->references, 1) != 1) return;
    for (entry *e = board->entries, *next; e; e = next) {
        next = e->next;
        free(e->value);
        free(e);
    }
    strata_roster_finish(&board->roster);
    free(board);
}

/* ---- entries ---- */

static entry *find(strata_board *board, const char *key) {
    for (entry *e = board->entries; e; e = e->next)
        if (!strcmp(e->key, key)) return e;
    return NULL;
}

static strata_status put(strata_board *board, entry *e, const char *key, const void *value, size_t n, strata_error *err) {
    if (!e && board->n_entries == STRATA_STORE_KEYS)
        return strata_fail(err, STRATA_INVALID, "the store holds %d keys already: no room for \"%s\"", STRATA_STORE_KEYS, key);
    char *copy = malloc(n + 1);
    entry *made = e ? NULL : calloc(1, sizeof *made);
    if (!copy || (!e && !made)) {
        free(copy);
        free(made);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for key \"%s\" of %zu bytes in the store", key, n);
    }
    if (n) memcpy(copy, value, n);
    copy[n] = 0;
    if (made) {
        strcpy(made->key, key); /* its length was checked */
        made->next = board->entries;
        board->entries = e = made;
        board->n_entries++;
    }
    free(e->value);
    e->value = copy;
    e->n_value = n;
    return STRATA_OK;
}

strata_status strata_store_check(const strata_store_request *r, strata_error *err) {
    const size_t n = strlen(r->key);
    if (r->op < 0 || r->op >= STRATA_STORE_OPS || !n || n > STRATA_STORE_KEY_BYTES)
        return strata_fail(err, STRATA_INVALID, "a key of the store has %zu bytes; it must have 1 to %d", n,
                           STRATA_STORE_KEY_BYTES);
    if (r->n_value > STRATA_STORE_VALUE_BYTES || r->n_expected > STRATA_STORE_VALUE_BYTES)
        return strata_fail(err, STRATA_INVALID, "the value of \"%s\" has %zu bytes; the store takes %d", r->key, r->n_value,
                           STRATA_STORE_VALUE_BYTES);
    return STRATA_OK;
}

static strata_status reply_with(const void *value, size_t n, strata_store_reply *reply, strata_error *err) {
    *reply = (strata_store_reply){calloc(1, n + 1), n};
    if (!reply->value) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %zu bytes", n);
    memcpy(reply->value, value, n);
    return STRATA_OK;
}

static strata_status apply_locked(strata_board *board, const strata_store_request *r, strata_store_reply *reply,
                                  strata_error *err) {
    entry *e = find(board, r->key);
    const void *value = r->value;
    size_t n = r->n_value;
    int64_t sum = 0;
    if (r->op == STRATA_STORE_GET)
        return e ? reply_with(e->value, e->n_value, reply, err)
                 : strata_fail(err, STRATA_TIMEOUT, "key \"%s\" is not in the store", r->key);
    if (r->op == STRATA_STORE_ADD) {
        if (e && e->n_value != sizeof sum)
            return strata_fail(err, STRATA_INVALID, "key \"%s\" holds %zu bytes, which is no number to add to", r->key,
                               e->n_value);
        if (e) memcpy(&sum, e->value, sizeof sum);
        sum = (int64_t)((uint64_t)sum + (uint64_t)r->amount);
        value = &sum;
        n = sizeof sum;
    } else if (r->op == STRATA_STORE_SWAP) {
        sum = e ? r->n_expected && e->n_value == r->n_expected && !memcmp(e->value, r->expected, e->n_value) : !r->n_expected;
    }
    if (r->op != STRATA_STORE_SET) STRATA_TRY(reply_with(&sum, sizeof sum, reply, err));
    if (r->op == STRATA_STORE_SWAP && !sum) return STRATA_OK;
    STRATA_TRY(put(board, e, r->key, value, n, err));
    pthread_cond_broadcast(&board->roster.changed);
    return STRATA_OK;
}

strata_status strata_board_apply(strata_board *board, const strata_store_request *request, strata_store_reply *out_reply,
                                 strata_error *err) {
    *out_reply = (strata_store_reply){0};
    STRATA_TRY(strata_store_check(request, err));
    STRATA_LOCKED(&board->roster.lock);
    return apply_locked(board, request, out_reply, err);
}

strata_status strata_board_wait(strata_board *board, const strata_seat *seat, const strata_store_request *request,
                                double seconds, strata_store_reply *out_reply, strata_error *err) {
    *out_reply = (strata_store_reply){0};
    STRATA_TRY(strata_store_check(request, err));
    strata_patience patience = strata_patience_of(seconds);
    STRATA_LOCKED(&board->roster.lock);
    strata_status status = apply_locked(board, request, out_reply, err);
    while (status == STRATA_TIMEOUT && !(seat && seat->failed) && strata_patience_left(&patience) > 0) {
        strata_wait_patiently(&board->roster.changed, &board->roster.lock, &patience);
        status = apply_locked(board, request, out_reply, err);
    }
    if (status == STRATA_TIMEOUT && seat) STRATA_TRY(strata_seat_verdict(seat, err));
    return status;
}
