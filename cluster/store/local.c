/* SPDX-License-Identifier: Apache-2.0
 *
 * Members for ranks that are threads of one process. All of them access the same board directly. */
#include "cluster/store/member.h"
#include "core/base/locked.h"

typedef struct local {
    strata_member member;
    strata_board *board;
} local;

static strata_status store(strata_member *member, const strata_seat *seat, const strata_store_request *request, double seconds,
                           strata_store_reply *out_reply, strata_error *err) {
    return strata_board_wait(((local *)member)->board, seat, request, seconds, out_reply, err);
}

static strata_status report(strata_member *member, strata_seat *seat, strata_status status, const char *text,
                            strata_error *err) {
    strata_roster_add(member->roster, STRATA_EVENT_FAILED, seat->communicator, status, text);
    return strata_seat_verdict(seat, err);
}

/* Copies the message to the receiver's seat, so the send is done when this returns. */
static strata_status send_message(strata_member *member, strata_transfer *transfer, const char *address, double seconds,
                                  strata_error *err) {
    const strata_seat *from = transfer->seat;
    (void)address, (void)seconds;
    STRATA_LOCKED(&member->roster->lock);
    strata_seat *to = strata_roster_find_seat(member->roster, from->communicator, transfer->peer);
    return to ? strata_seat_deliver(to, from->rank, transfer, err)
              : strata_fail(err, STRATA_PEER_LOST, "rank %d destroyed its communicator", transfer->peer);
}

/* Every send is done at once. */
static bool withdraw_message(strata_member *member, strata_transfer *transfer) {
    (void)member, (void)transfer;
    return true;
}

static void destroy(strata_member *member) {
    char text[64];
    snprintf(text, sizeof text, "rank %d left", member->rank);
    if (strata_roster_add(member->roster, STRATA_EVENT_LEFT, (uint32_t)member->rank, STRATA_PEER_LOST, text))
        strata_roster_rank_gone(member->roster, member->rank, text);
    strata_board_release(((local *)member)->board);
    free(member);
}

strata_status strata_member_create_local(int world, strata_member **out_members, strata_error *err) {
    strata_board *board;
    strata_status status = strata_board_create(world, &board, err);
    int n = 0;
    for (; n < world && !status; n++) {
        local *l = calloc(1, sizeof *l);
        if (!l) {
            status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a job of %d ranks", world);
            break;
        }
        *l = (local){.member = {.references = 1,
                                .rank = n,
                                .world = world,
                                .roster = strata_board_roster(board),
                                .store = store,
                                .report = report,
                                .send_message = send_message,
                                .withdraw_message = withdraw_message,
                                .destroy = destroy},
                     .board = strata_board_retain(board)};
        out_members[n] = &l->member;
    }
    while (status && n > 0) strata_member_release(out_members[--n]);
    strata_board_release(board);
    return status;
}
