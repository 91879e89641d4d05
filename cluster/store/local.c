/* SPDX-License-Identifier: Apache-2.0
 *
 * Members that are threads of one process: all use one board directly. */
#include <stdlib.h>

#include "cluster/store/member.h"

typedef struct shared {
    atomic_int references;
    strata_board *board;
} shared;

typedef struct local {
    strata_member member;
    shared *shared;
} local;

static strata_status store(strata_member *member, const strata_store_request *request, double seconds,
                           strata_store_reply *out_reply, strata_error *err) {
    return strata_board_wait(((local *)member)->shared->board, request, seconds, out_reply, err);
}

static strata_status report(strata_member *member, strata_status status, const char *text, strata_error *err) {
    strata_board_fail(((local *)member)->shared->board, status, text);
    return strata_member_verdict(member, err);
}

static void release(shared *s) {
    if (s && atomic_fetch_sub(&s->references, 1) == 1) {
        strata_board_destroy(s->board);
        free(s);
    }
}

static void destroy(strata_member *member) {
    release(((local *)member)->shared);
    free(member);
}

strata_status strata_member_create_local(int world, strata_member **out_members, strata_error *err) {
    shared *s = calloc(1, sizeof *s);
    if (!s) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a job of %d ranks", world);
    s->references = 1;
    strata_status status = strata_board_create(&s->board, err);
    int n = 0;
    for (; n < world && !status; n++) {
        local *l = calloc(1, sizeof *l);
        if (!l) {
            status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a job of %d ranks", world);
            break;
        }
        atomic_fetch_add(&s->references, 1);
        *l = (local){.member = {.references = 1,
                                .rank = n,
                                .world = world,
                                .board = s->board,
                                .store = store,
                                .report = report,
                                .destroy = destroy},
                     .shared = s};
        out_members[n] = &l->member;
    }
    while (status && n > 0) strata_member_release(out_members[--n]);
    release(s);
    return status;
}
