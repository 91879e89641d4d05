/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks over every transport: order, tags, senders, deadlines, requests, and which calls fail when a rank
 * fails. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cluster/ranks.h"

enum { LARGE = 1000003, MANY = 40 };
static const double SECONDS = TEST_PATIENCE;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs the function over each transport. */
static void over_all(int world, test_rank run) {
    const strata_communicator_options opts = {.stall_seconds = TEST_PATIENCE};
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), world, &opts, run, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

static void fill(unsigned char *data, size_t bytes, int from) {
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(i * 31 + i / 251 + (size_t)from);
}

static bool is_filled(const unsigned char *data, size_t bytes, int from) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)(i * 31 + i / 251 + (size_t)from)) return false;
    return true;
}

/* ---- order, sizes, senders ---- */

static strata_test_result send_sizes(strata_communicator *comm, const void *user) {
    static const size_t sizes[] = {0, 1, 7, 262144, 262145, LARGE};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    const int rank = strata_communicator_rank(comm), next = (rank + 1) % 3, before = (rank + 2) % 3;
    unsigned char *data = malloc(2 * LARGE), *room = data + LARGE;
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    (void)user;
    fill(data, LARGE, rank);
    for (int i = 0; i < SIZES && result.ok; i++)
        if (strata_message_send(comm, data, sizes[i], next, 5, SECONDS, &err)) result = strata_test_bad("%s", err.message);
    for (int i = 0; i < SIZES && result.ok; i++) {
        strata_message message = {0};
        memset(room, 0xee, LARGE);
        if (strata_message_receive(comm, room, sizes[i], before, 5, SECONDS, &message, &err))
            result = strata_test_bad("%s", err.message);
        else if (message.peer != before || message.tag != 5 || message.bytes != sizes[i])
            result = strata_test_bad("message %d: %zu bytes from %d", i, message.bytes, message.peer);
        else if (!is_filled(room, sizes[i], before) || (sizes[i] < LARGE && room[sizes[i]] != 0xee))
            result = strata_test_bad("message %d has other bytes", i);
    }
    free(data);
    return result;
}

Test(messages, come_whole_and_in_their_order, .timeout = 300) {
    over_all(3, send_sizes);
}

static strata_test_result choose(strata_communicator *comm, const void *user) {
    const int rank = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_message message;
    int value = 0;
    (void)user;
    if (rank) {
        for (int tag = 0; tag < 3; tag++) {
            value = 100 * rank + tag;
            TEST_TRY(strata_message_send(comm, &value, sizeof value, 0, tag, SECONDS, &err));
        }
        return strata_test_ok();
    }
    TEST_TRY(strata_message_receive(comm, &value, sizeof value, 2, 1, SECONDS, &message, &err));
    if (value != 201) return strata_test_bad("by rank and tag came %d", value);
    TEST_TRY(strata_message_receive(comm, &value, sizeof value, 1, STRATA_ANY, SECONDS, &message, &err));
    if (value != 100 || message.tag != 0) return strata_test_bad("the first of rank 1 is %d", value);
    bool seen[4] = {false};
    for (int i = 0; i < 3; i++) {
        TEST_TRY(strata_message_probe(comm, STRATA_ANY, 2, SECONDS, &message, &err));
        const int from = message.peer;
        TEST_TRY(strata_message_receive(comm, &value, sizeof value, STRATA_ANY, 2, SECONDS, &message, &err));
        if (message.peer != from || value != 100 * from + 2 || seen[from]) return strata_test_bad("by tag came %d", value);
        seen[from] = true;
    }
    int n = 0;
    while (!strata_message_receive(comm, &value, sizeof value, STRATA_ANY, STRATA_ANY, n < 4 ? SECONDS : 0.05, &message, &err))
        n++;
    return n == 4 ? strata_test_ok() : strata_test_bad("%d messages were left: %s", n, err.message);
}

Test(messages, are_chosen_by_sender_and_tag, .timeout = 300) {
    over_all(4, choose);
}

static strata_test_result to_self(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    strata_message message;
    int value = 7, got = 0;
    (void)user;
    TEST_TRY(strata_message_send(comm, &value, sizeof value, strata_communicator_rank(comm), 1, SECONDS, &err));
    TEST_TRY(strata_message_receive(comm, &got, sizeof got, STRATA_ANY, 1, SECONDS, &message, &err));
    return got == 7 && message.peer == strata_communicator_rank(comm) ? strata_test_ok() : strata_test_bad("it is %d", got);
}

Test(messages, to_oneself_come_too) {
    over_all(2, to_self);
}

/* ---- deadlines ---- */

static strata_test_result wait_in_vain(strata_communicator *comm, const void *user) {
    const int rank = strata_communicator_rank(comm);
    strata_error err = {0};
    strata_message message;
    int value = 0;
    (void)user;
    if (rank == 0) {
        const double began = now();
        strata_status status = strata_message_receive(comm, &value, sizeof value, 1, 3, 0.2, &message, &err);
        if (status != STRATA_TIMEOUT || !strstr(err.message, "rank 1")) return strata_test_bad("%d: %s", status, err.message);
        if (now() - began < 0.19) return strata_test_bad("it took %g s", now() - began);
        status = strata_message_receive(comm, &value, sizeof value, STRATA_ANY, 3, 0, NULL, &err);
        if (status != STRATA_TIMEOUT) return strata_test_bad("%d: %s", status, err.message);
        status = strata_message_probe(comm, STRATA_ANY, 3, 0, &message, &err);
        if (status != STRATA_TIMEOUT) return strata_test_bad("%d: %s", status, err.message);
    }
    TEST_TRY(strata_communicator_barrier(comm, &err));
    const int sent = 42;
    if (rank == 1) TEST_TRY(strata_message_send(comm, &sent, sizeof sent, 0, 3, SECONDS, &err));
    TEST_TRY(strata_communicator_barrier(comm, &err));
    if (rank) return strata_test_ok();
    if (value) return strata_test_bad("a receive that had ended was written to");
    TEST_TRY(strata_message_receive(comm, &value, sizeof value, 1, 3, SECONDS, &message, &err));
    return value == 42 ? strata_test_ok() : strata_test_bad("it is %d", value);
}

Test(messages, a_receive_ends_at_its_deadline_and_loses_nothing, .timeout = 300) {
    over_all(2, wait_in_vain);
}

static strata_test_result need_room(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    strata_message message;
    unsigned char room[64] = {0}, data[64];
    (void)user;
    fill(data, sizeof data, 1);
    if (strata_communicator_rank(comm)) {
        TEST_TRY(strata_message_send(comm, data, sizeof data, 0, 0, SECONDS, &err));
        TEST_TRY(strata_message_send(comm, data, sizeof data, 0, 1, SECONDS, &err));
        return strata_test_ok();
    }
    for (int64_t tag = 1; tag >= 0; tag--) { /* first a message for which the rank waits, then one that has already arrived */
        const strata_status status = strata_message_receive(comm, room, 63, 1, tag, SECONDS, &message, &err);
        if (status != STRATA_INVALID || !strstr(err.message, "64 bytes") || !strstr(err.message, "room for 63"))
            return strata_test_bad("%d: %s", status, err.message);
        TEST_TRY(strata_message_receive(comm, room, 64, 1, tag, SECONDS, &message, &err));
        if (!is_filled(room, 64, 1)) return strata_test_bad("other bytes");
    }
    return strata_test_ok();
}

Test(messages, a_message_without_room_says_so_and_stays) {
    over_all(2, need_room);
}

/* ---- requests ---- */

static strata_test_result exchange(strata_communicator *comm, const void *user) {
    const int rank = strata_communicator_rank(comm), other = 1 - rank;
    unsigned char *data = malloc(2 * LARGE), *room = data + LARGE;
    strata_request *sends[MANY] = {NULL}, *receives[MANY] = {NULL}, *never = NULL;
    strata_message messages[MANY], message;
    strata_error err = {0};
    strata_status status = STRATA_OK;
    const size_t bytes = LARGE / MANY;
    bool wrong = false, done = true;
    float sum = 1;
    (void)user;
    fill(data, LARGE, rank);
    if (!status) status = strata_message_start_receive(comm, room, bytes, other, MANY, &message, &never, &err);
    for (int i = 0; i < MANY && !status; i++)
        status =
            strata_message_start_receive(comm, room + (size_t)i * bytes, bytes, other, i, &messages[i], &receives[i], &err);
    for (int i = MANY - 1; i >= 0 && !status; i--)
        status = strata_message_start_send(comm, data + (size_t)i * bytes, bytes, other, i, &sends[i], &err);
    if (!status) status = strata_communicator_all_reduce(comm, &sum, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err);
    for (int i = 0; i < MANY && !status; i++) {
        status = strata_request_wait(sends[i], &err);
        if (!status) status = strata_request_wait(receives[i], &err);
        wrong |= messages[i].tag != i || messages[i].bytes != bytes || messages[i].peer != other;
    }
    if (!status) status = strata_request_wait_for(never, 0.01, &done, &err);
    wrong |= done || strata_request_test(never) || !strata_request_cancel(never) || sum != 2;
    wrong |= !is_filled(room, bytes * MANY, other);
    /* a rank that left early would end the other rank's request */
    if (!status) status = strata_communicator_barrier(comm, &err);
    free(data);
    if (status) return strata_test_bad("%s", err.message);
    return wrong ? strata_test_bad("wrong messages") : strata_test_ok();
}

Test(messages, requests_run_beside_each_other_and_a_collective, .timeout = 300) {
    over_all(2, exchange);
}

enum { CROWD = 200, CROWD_BYTES = 1 << 20 };

/* Sends more than a receiver stores. Further sends must wait until rank 1 receives, and must end at their deadlines. A
 * message of which a part has been sent must still arrive. */
static strata_test_result crowd(strata_communicator *comm, const void *user) {
    unsigned char *data = malloc(CROWD_BYTES);
    strata_error err = {0};
    strata_message message;
    int n_sent = 0, n = 0;
    strata_test_result result = strata_test_ok();
    (void)user;
    if (strata_communicator_rank(comm) == 0) {
        for (; n_sent < CROWD; n_sent++) {
            fill(data, CROWD_BYTES, n_sent);
            const strata_status status = strata_message_send(comm, data, CROWD_BYTES, 1, n_sent, 0.5, &err);
            if (status == STRATA_TIMEOUT) break;
            if (status) result = strata_test_bad("%s", err.message);
        }
        if (n_sent < 60 || n_sent > 120) result = strata_test_bad("%d MiB were taken before anyone received", n_sent);
        memset(data, 0, CROWD_BYTES); /* after the timeout the memory belongs to this rank again */
        if (result.ok && strata_communicator_barrier(comm, &err)) result = strata_test_bad("%s", err.message);
        if (result.ok && strata_message_send(comm, &n_sent, sizeof n_sent, 1, CROWD, SECONDS, &err))
            result = strata_test_bad("%s", err.message);
    } else {
        if (strata_communicator_barrier(comm, &err)) result = strata_test_bad("%s", err.message);
        for (; result.ok; n++) {
            if (strata_message_receive(comm, data, CROWD_BYTES, 0, STRATA_ANY, SECONDS, &message, &err))
                result = strata_test_bad("message %d: %s", n, err.message);
            if (result.ok && message.tag == CROWD) break;
            if (result.ok && (message.tag != n || !is_filled(data, CROWD_BYTES, n)))
                result = strata_test_bad("message %d has tag %lld", n, (long long)message.tag);
        }
        if (result.ok) memcpy(&n_sent, data, sizeof n_sent);
        if (result.ok && n != n_sent && n != n_sent + 1) result = strata_test_bad("%d of %d came", n, n_sent);
    }
    free(data);
    return result;
}

Test(messages, a_sender_waits_for_a_receiver_that_does_not_receive, .timeout = 300) {
    for (int t = 2; test_transport(t); t++) { /* threads without sockets have no limit, because they share all memory */
        strata_test_result r = test_ranks(test_transport(t), 2, NULL, crowd, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

/* A message that is larger than the memory for messages. The receiver must detect it, and get it when it receives. */
static strata_test_result send_huge(strata_communicator *comm, const void *user) {
    enum { HUGE_BYTES = 80 << 20 };
    unsigned char *data = malloc(HUGE_BYTES);
    strata_error err = {0};
    strata_message message = {0};
    strata_test_result result = strata_test_ok();
    strata_status status;
    (void)user;
    if (strata_communicator_rank(comm) == 0) {
        fill(data, HUGE_BYTES, 9);
        status = strata_message_send(comm, data, HUGE_BYTES, 1, 1, SECONDS, &err);
    } else {
        status = strata_message_probe(comm, STRATA_ANY, STRATA_ANY, SECONDS, &message, &err);
        if (!status && message.bytes != HUGE_BYTES) result = strata_test_bad("it is said to have %zu bytes", message.bytes);
        if (!status) status = strata_message_receive(comm, data, HUGE_BYTES, 0, 1, SECONDS, NULL, &err);
        if (!status && !is_filled(data, HUGE_BYTES, 9)) result = strata_test_bad("it has other bytes");
    }
    free(data);
    return status ? strata_test_bad("%s", err.message) : result;
}

Test(messages, one_of_more_bytes_than_are_kept_comes_too, .timeout = 300) {
    over_all(2, send_huge);
}

enum { SMALL_MESSAGES = 20000 };

/* Messages that are not received must not slow down later messages. */
static strata_test_result pile_up(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    int value = 0;
    (void)user;
    for (int i = 0; i < SMALL_MESSAGES && strata_communicator_rank(comm) == 0; i++)
        TEST_TRY(strata_message_send(comm, &i, sizeof i, 1, 0, SECONDS, &err));
    TEST_TRY(strata_communicator_barrier(comm, &err));
    for (int i = 0; i < SMALL_MESSAGES && strata_communicator_rank(comm) == 1; i++) {
        TEST_TRY(strata_message_receive(comm, &value, sizeof value, 0, 0, SECONDS, NULL, &err));
        if (value != i) return strata_test_bad("message %d is %d", i, value);
    }
    return strata_test_ok();
}

Test(messages, many_may_lie_unreceived, .timeout = 300) {
    over_all(2, pile_up);
}

/* ---- failures ---- */

static strata_test_result give_up(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    int value = 0;
    (void)user;
    if (strata_communicator_rank(comm) == 1) strata_communicator_abort(comm, "no more data");
    strata_status status = strata_message_receive(comm, &value, sizeof value, STRATA_ANY, 1, SECONDS, NULL, &err);
    if (status != STRATA_INTERRUPTED || !strstr(err.message, "no more data"))
        return strata_test_bad("%d: %s", status, err.message);
    status = strata_message_send(comm, &value, sizeof value, (strata_communicator_rank(comm) + 1) % 3, 1, SECONDS, &err);
    if (status != STRATA_INTERRUPTED || !strstr(err.message, "no more data"))
        return strata_test_bad("%d: %s", status, err.message);
    return strata_test_ok();
}

Test(messages, fail_when_a_rank_gives_the_communicator_up) {
    over_all(3, give_up);
}

/* Rank 1 leaves right after it has sent a message. */
static strata_test_result leave(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    int value = 5;
    (void)user;
    if (strata_communicator_rank(comm) == 1) {
        TEST_TRY(strata_message_send(comm, &value, sizeof value, 0, 1, SECONDS, &err));
        return strata_test_ok();
    }
    value = 0;
    TEST_TRY(strata_message_receive(comm, &value, sizeof value, 1, 1, SECONDS, NULL, &err));
    if (value != 5) return strata_test_bad("it is %d", value);
    strata_status status = strata_message_receive(comm, &value, sizeof value, 1, 1, SECONDS, NULL, &err);
    if (status != STRATA_PEER_LOST || !strstr(err.message, "rank 1")) return strata_test_bad("%d: %s", status, err.message);
    status = strata_message_receive(comm, &value, sizeof value, STRATA_ANY, 1, SECONDS, NULL, &err);
    if (status != STRATA_PEER_LOST) return strata_test_bad("from any: %d: %s", status, err.message);
    status = strata_message_send(comm, &value, sizeof value, 1, 1, SECONDS, &err);
    if (status != STRATA_PEER_LOST || !strstr(err.message, "rank 1")) return strata_test_bad("%d: %s", status, err.message);
    return strata_test_ok();
}

Test(messages, of_a_rank_that_left_still_come, .timeout = 300) {
    over_all(2, leave);
}

Test(messages, wrong_arguments_are_told) {
    strata_communicator *comms[2];
    strata_error err = {0};
    strata_message message;
    int x = 0;
    cr_assert_eq(strata_communicator_create_local(2, NULL, comms, &err), STRATA_OK, "%s", err.message);
    cr_expect_eq(strata_message_send(comms[0], &x, sizeof x, 2, 0, 1, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, "peer is 2"), "%s", err.message);
    cr_expect_eq(strata_message_send(comms[0], &x, sizeof x, STRATA_ANY, 0, 1, &err), STRATA_INVALID);
    cr_expect_eq(strata_message_send(comms[0], &x, sizeof x, 1, -1, 1, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, "tag is -1"), "%s", err.message);
    cr_expect_eq(strata_message_receive(comms[0], &x, sizeof x, 1, -2, 1, NULL, &err), STRATA_INVALID);
    cr_expect_eq(strata_message_receive(comms[0], &x, sizeof x, -2, 0, 1, NULL, &err), STRATA_INVALID);
    cr_expect_eq(strata_message_probe(comms[0], 9, 0, 1, &message, &err), STRATA_INVALID);
    cr_expect_eq(strata_message_send(comms[0], &x, SIZE_MAX, 1, 0, 1, &err), STRATA_INVALID);
    for (int r = 0; r < 2; r++) strata_communicator_destroy(comms[r]);
}

/* ---- communicators after the loss of a rank ---- */

static strata_test_result go_on(strata_communicator *comm, const void *user) {
    const int rank = strata_communicator_rank(comm), world = strata_communicator_world(comm);
    strata_communicator *pair = NULL, *few = NULL;
    strata_error err = {0};
    float x = 1;
    (void)user;
    TEST_TRY(strata_communicator_split(comm, rank < 2 ? 0 : 1, 0, &pair, &err));
    if (rank == world - 1) { /* this rank leaves */
        strata_communicator_destroy(pair);
        return strata_test_ok();
    }
    const strata_status status = strata_communicator_all_reduce(comm, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err);
    if (status != STRATA_PEER_LOST) return strata_test_bad("%d: %s", status, err.message);
    x = 1;
    if (rank < 2) TEST_TRY(strata_communicator_all_reduce(pair, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
    if (rank < 2 && x != 2) return strata_test_bad("two ranks count %g", (double)x);
    TEST_TRY(strata_communicator_shrink(comm, &few, &err));
    x = (float)(rank + 1);
    const bool fits = strata_communicator_world(few) == world - 1 && strata_communicator_rank(few) == rank;
    TEST_TRY(strata_communicator_all_reduce(few, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
    TEST_TRY(strata_communicator_barrier(few, &err));
    strata_communicator_destroy(few);
    strata_communicator_destroy(pair);
    return fits && x == (float)(world * (world - 1) / 2) ? strata_test_ok()
                                                         : strata_test_bad("the survivors sum %g", (double)x);
}

Test(messages, survivors_make_a_communicator_of_themselves, .timeout = 300) {
    over_all(4, go_on);
}

static strata_test_result fail_apart(strata_communicator *comm, const void *user) {
    strata_communicator *half = NULL;
    strata_error err = {0};
    const int rank = strata_communicator_rank(comm);
    float x = 1;
    (void)user;
    TEST_TRY(strata_communicator_split(comm, rank % 2, 0, &half, &err));
    if (rank == 0) strata_communicator_abort(half, "only this half");
    const strata_status status = strata_communicator_barrier(half, &err);
    const bool fits = rank % 2 ? !status : status == STRATA_INTERRUPTED && strstr(err.message, "only this half");
    if (!fits) return strata_test_bad("%d: %s", status, err.message);
    TEST_TRY(strata_communicator_all_reduce(comm, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
    strata_communicator_destroy(half);
    return x == 4 ? strata_test_ok() : strata_test_bad("the sum is %g", (double)x);
}

Test(messages, a_verdict_is_its_communicators_alone) {
    over_all(4, fail_apart);
}
