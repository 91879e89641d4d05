/* SPDX-License-Identifier: Apache-2.0
 *
 * All other collectives compared with the scalar oracle; requests, splits, the store; calls that differ between ranks, and
 * ranks that leave. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/collective/fold.h"
#include "cluster/communicator.h"
#include "tests/cluster/oracle.h"
#include "tests/cluster/ranks.h"

static strata_test_result reduce_everywhere(strata_communicator *comm, size_t count) {
    strata_error err = {0};
    float *data = malloc(count * sizeof *data + 1), *before = malloc(count * sizeof *data + 1);
    strata_test_result result = strata_test_ok();
    for (int root = 0; root < comm->world && result.ok; root++) {
        test_fill(STRATA_DTYPE_F32, comm->rank, data, count);
        test_fill(STRATA_DTYPE_F32, comm->rank, before, count);
        if (strata_communicator_reduce(comm, data, count, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, root, &err))
            result = strata_test_bad("%s", err.message);
        else if (comm->rank == root)
            result = test_expect(STRATA_DTYPE_F32, STRATA_REDUCER_SUM, comm->world, data, 0, count);
        else if (memcmp(data, before, count * sizeof *data) != 0)
            result = strata_test_bad("reduce to %d changed this rank's data", root);
    }
    free(data);
    free(before);
    return result;
}

static strata_test_result broadcast_everywhere(strata_communicator *comm, size_t count) {
    strata_error err = {0};
    uint8_t *data = malloc(count + 1);
    strata_test_result result = strata_test_ok();
    for (int root = 0; root < comm->world && result.ok; root++) {
        for (size_t i = 0; i < count; i++) data[i] = comm->rank == root ? (uint8_t)(i * 31 + (size_t)root) : 0xEE;
        if (strata_communicator_broadcast(comm, data, count, STRATA_DTYPE_U8, root, &err))
            result = strata_test_bad("%s", err.message);
        for (size_t i = 0; i < count && result.ok; i++)
            if (data[i] != (uint8_t)(i * 31 + (size_t)root)) result = strata_test_bad("byte %zu from %d differs", i, root);
    }
    free(data);
    return result;
}

/* Rank r has base + r elements, but rank 1 has none. Element j of rank r is 100 r + j. */
static strata_test_result uneven(strata_communicator *comm, size_t base) {
    strata_error err = {0};
    size_t counts[TEST_MOST_RANKS], total = 0, first = 0;
    for (int r = 0; r < comm->world; r++) {
        if (r == comm->rank) first = total;
        counts[r] = (size_t)r == 1 ? 0 : base + (size_t)r;
        total += counts[r];
    }
    const size_t own = counts[comm->rank];
    int64_t *all = malloc(total * sizeof *all + 1), *in = malloc(own * sizeof *in + 1);
    strata_test_result result = strata_test_ok();
    for (int round = 0; round < 3 && result.ok; round++) { /* round 0: all_gather, 1: in place, 2: gather to the last rank */
        const int root = comm->world - 1;
        memset(all, 0xFF, total * sizeof *all);
        for (size_t j = 0; j < own; j++) in[j] = comm->rank * 100 + (int64_t)j;
        if (round == 1) memcpy(all + first, in, own * sizeof *in);
        strata_status status =
            round == 2 ? strata_communicator_gather(comm, in, all, 0, counts, STRATA_DTYPE_I64, root, &err)
                       : strata_communicator_all_gather(comm, round ? NULL : in, all, 0, counts, STRATA_DTYPE_I64, &err);
        if (status) result = strata_test_bad("%s", err.message);
        size_t i = 0;
        for (int r = 0; r < comm->world && result.ok && (round < 2 || comm->rank == root); r++)
            for (size_t j = 0; j < counts[r]; j++, i++)
                if (all[i] != r * 100 + (int64_t)j) result = strata_test_bad("round %d: element %zu of rank %d", round, j, r);
    }
    for (int root = 0; root < comm->world && result.ok; root++) { /* scatter distributes them again */
        for (size_t i = 0; i < total; i++) all[i] = (int64_t)i + root;
        memset(in, 0xFF, own * sizeof *in);
        if (strata_communicator_scatter(comm, all, in, 0, counts, STRATA_DTYPE_I64, root, &err))
            result = strata_test_bad("%s", err.message);
        for (size_t j = 0; j < own && result.ok; j++)
            if (in[j] != (int64_t)(first + j) + root) result = strata_test_bad("scatter from %d: element %zu", root, j);
    }
    float *whole = malloc(total * sizeof *whole + 1), *sums = malloc(own * sizeof *sums + 1);
    test_fill(STRATA_DTYPE_F32, comm->rank, whole, total);
    if (result.ok &&
        strata_communicator_reduce_scatter(comm, whole, sums, 0, counts, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err))
        result = strata_test_bad("%s", err.message);
    if (result.ok) result = test_expect(STRATA_DTYPE_F32, STRATA_REDUCER_SUM, comm->world, sums, first, own);
    free(whole);
    free(sums);
    free(all);
    free(in);
    return result;
}

static strata_test_result all_to_all(strata_communicator *comm, size_t count) {
    strata_error err = {0};
    const size_t world = (size_t)comm->world, n = world * count;
    int32_t *in = malloc(n * sizeof *in + 1), *out = malloc(n * sizeof *out + 1);
    for (size_t i = 0; i < n; i++) in[i] = (int32_t)((size_t)comm->rank * n + i);
    strata_status status = strata_communicator_all_to_all(comm, in, out, count, STRATA_DTYPE_I32, &err);
    strata_test_result result = status ? strata_test_bad("%s", err.message) : strata_test_ok();
    for (size_t i = 0; i < n && result.ok; i++)
        if (out[i] != (int32_t)(i / (count ? count : 1) * n + (size_t)comm->rank * count + i % (count ? count : 1)))
            result = strata_test_bad("all_to_all: element %zu is %d", i, out[i]);
    free(in);
    free(out);
    return result;
}

/* Passes numbers around a ring, so that each number visits every rank. */
static strata_test_result pass_on(strata_communicator *comm, size_t count) {
    strata_error err = {0};
    const int next = (comm->rank + 1) % comm->world, before = (comm->rank + comm->world - 1) % comm->world;
    double *data = calloc(count + 1, sizeof *data);
    strata_test_result result = strata_test_ok();
    for (size_t i = 0; i < count && comm->rank == 0; i++) data[i] = (double)i;
    strata_status status = STRATA_OK;
    if (comm->world > 1) {
        if (comm->rank) status = strata_communicator_recv(comm, data, count, STRATA_DTYPE_F64, before, &err);
        for (size_t i = 0; i < count; i++) data[i] += 1;
        if (!status) status = strata_communicator_send(comm, data, count, STRATA_DTYPE_F64, next, &err);
        if (!status && !comm->rank) status = strata_communicator_recv(comm, data, count, STRATA_DTYPE_F64, before, &err);
        for (size_t i = 0; i < count && !status && !comm->rank; i++)
            if (data[i] != (double)i + comm->world) result = strata_test_bad("element %zu came back as %g", i, data[i]);
    }
    if (status) result = strata_test_bad("%s", err.message);
    free(data);
    return result;
}

static strata_test_result other_collectives(strata_communicator *comm, const void *user) {
    const size_t *counts = user;
    strata_error err = {0};
    for (int i = 0; counts[i] != SIZE_MAX; i++) {
        TEST_EXPECT(reduce_everywhere(comm, counts[i]));
        TEST_EXPECT(broadcast_everywhere(comm, counts[i]));
        TEST_EXPECT(uneven(comm, counts[i]));
        TEST_EXPECT(all_to_all(comm, counts[i]));
        TEST_EXPECT(pass_on(comm, counts[i]));
        TEST_TRY(strata_communicator_barrier(comm, &err));
    }
    return strata_test_ok();
}

Test(collectives, every_other_collective_moves_the_right_elements) {
    static const size_t counts[] = {0, 1, 7, 1000, SIZE_MAX}, large[] = {100000, SIZE_MAX};
    for (int world = 1; world <= 9; world += world < 5 ? 1 : 2) {
        strata_test_result r = test_ranks("inproc", world, NULL, other_collectives, counts);
        cr_assert(r.ok, "%s", r.text);
    }
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 4, NULL, other_collectives, large);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

/* Messages of 16 MiB. TLS is left out, because it would take as long as all other transports together. */
static strata_test_result sixteen_mebibytes(strata_communicator *comm, const void *user) {
    const size_t bytes = 16 << 20;
    (void)user;
    TEST_EXPECT(reduce_everywhere(comm, bytes / sizeof(float)));
    TEST_EXPECT(broadcast_everywhere(comm, bytes));
    TEST_EXPECT(uneven(comm, bytes / sizeof(int64_t)));
    TEST_EXPECT(all_to_all(comm, bytes / sizeof(int32_t)));
    TEST_EXPECT(pass_on(comm, bytes / sizeof(double)));
    return strata_test_ok();
}

Test(collectives, every_other_collective_takes_16_mebibytes) {
    for (int t = 0; test_transport(t) && strcmp(test_transport(t), "tls") != 0; t++) {
        strata_test_result r = test_ranks(test_transport(t), 3, NULL, sixteen_mebibytes, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

/* reduce to each rank, and reduce_scatter, for every dtype and every reducer. */
static strata_test_result fold_parts(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    const size_t part = *(const size_t *)user, n = part * (size_t)comm->world;
    uint8_t *whole = malloc(n * sizeof(double)), *own = malloc(part * sizeof(double));
    strata_test_result result = strata_test_ok();
    for (int i = 0; i < TEST_DTYPES * STRATA_REDUCER_COUNT && result.ok; i++) {
        const strata_dtype dtype = test_dtypes[i / STRATA_REDUCER_COUNT];
        const strata_reducer reducer = i % STRATA_REDUCER_COUNT;
        const int root = i % comm->world;
        if (strata_fold_check(dtype, reducer, NULL)) continue;
        test_fill(dtype, comm->rank, whole, n);
        if (strata_communicator_reduce_scatter(comm, whole, own, part, NULL, dtype, reducer, &err) ||
            strata_communicator_reduce(comm, whole, n, dtype, reducer, root, &err)) {
            result = strata_test_bad("%s", err.message);
            break;
        }
        result = test_expect(dtype, reducer, comm->world, own, part * (size_t)comm->rank, part);
        if (result.ok && comm->rank == root) result = test_expect(dtype, reducer, comm->world, whole, 0, n);
    }
    free(whole);
    free(own);
    return result;
}

Test(collectives, reduce_and_reduce_scatter_fold_every_dtype_in_rank_order) {
    for (int t = 0; test_transport(t); t++)
        for (int world = 1; world <= 5; world += 2) {
            static const size_t part = 501;
            strata_test_result r = test_ranks(test_transport(t), world, NULL, fold_parts, &part);
            cr_assert(r.ok, "%s, %d ranks: %s", test_transport(t), world, r.text);
        }
}

/* ---- requests ---- */

enum { REQUESTS = 20 };

static strata_test_result many_requests(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    strata_request *requests[REQUESTS];
    float data[REQUESTS][100], more = (float)comm->rank;
    (void)user;
    for (int i = 0; i < REQUESTS; i++) {
        for (int j = 0; j < 100; j++) data[i][j] = (float)(i * comm->rank + j);
        const strata_collective what = {STRATA_ALL_REDUCE, .out = data[i], .count = 100, .dtype = STRATA_DTYPE_F32};
        TEST_TRY(strata_communicator_start(comm, &what, &requests[i], &err));
    }
    TEST_TRY(strata_communicator_all_reduce(comm, &more, 1, STRATA_DTYPE_F32, STRATA_REDUCER_MAX, &err));
    for (int i = 0; i < REQUESTS; i++) {
        if (!strata_request_test(requests[i])) return strata_test_bad("request %d is not done after a later call was", i);
        TEST_TRY(strata_request_wait(requests[i], &err));
        const float ranks = (float)(comm->world * (comm->world - 1) / 2);
        for (int j = 0; j < 100; j++)
            if (data[i][j] != (float)i * ranks + (float)(comm->world * j))
                return strata_test_bad("request %d, element %d", i, j);
    }
    return more == (float)(comm->world - 1) ? strata_test_ok() : strata_test_bad("the blocking call got %g", (double)more);
}

/* Rank 1 sends only after rank 0 has reported, through the store, that its deadline has passed. */
static strata_test_result late_message(strata_communicator *comm, const void *user) {
    (void)user;
    strata_error err = {0};
    strata_request *request;
    int32_t value = strata_communicator_rank(comm) ? 17 : 0;
    const bool sends = value != 0;
    if (sends) {
        void *told;
        size_t n_told;
        TEST_TRY(strata_communicator_get(comm, "late", 30, &told, &n_told, &err));
        free(told);
        TEST_TRY(strata_communicator_send(comm, &value, 1, STRATA_DTYPE_I32, 0, &err));
        return strata_test_ok();
    }
    const strata_collective what = {STRATA_RECV, .out = &value, .count = 1, .dtype = STRATA_DTYPE_I32, .root = 1};
    bool done = true;
    TEST_TRY(strata_communicator_start(comm, &what, &request, &err));
    for (int i = 0; i < 3; i++) {
        TEST_TRY(strata_request_wait_for(request, i == 2 ? 0.02 : -i, &done, &err));
        if (done) return strata_test_bad("a message was received before it was sent");
    }
    TEST_TRY(strata_communicator_set(comm, "late", "1", 1, &err));
    TEST_TRY(strata_request_wait_for(request, 30, &done, &err));
    if (!done || value != 17) return strata_test_bad("done is %d, the message %d; they must be 1 and 17", done, value);
    TEST_TRY(strata_request_wait_for(NULL, 1, &done, &err));
    return strata_test_ok();
}

Test(collectives, a_deadline_leaves_its_request_running) {
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 2, NULL, late_message, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

Test(collectives, requests_run_in_order_beside_the_caller) {
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 4, NULL, many_requests, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

/* ---- splits ---- */

static strata_test_result split_and_sum(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    strata_communicator *half = NULL, *alone = NULL;
    int32_t sum = comm->rank, whole = 1;
    (void)user;
    TEST_TRY(strata_communicator_split(comm, comm->rank % 2, -comm->rank, &half, &err));
    TEST_TRY(strata_communicator_split(half, half->rank == 0 ? 0 : -1, 0, &alone, &err));
    strata_status status = strata_communicator_all_reduce(half, &sum, 1, STRATA_DTYPE_I32, STRATA_REDUCER_SUM, &err);
    if (!status) status = strata_communicator_all_reduce(comm, &whole, 1, STRATA_DTYPE_I32, STRATA_REDUCER_SUM, &err);
    strata_test_result result = status ? strata_test_bad("%s", err.message) : strata_test_ok();
    const int n = (comm->world + 1 - comm->rank % 2) / 2, first = comm->rank % 2;
    if (result.ok && (sum != n * first + n * (n - 1) || whole != comm->world || half->world != n))
        result = strata_test_bad("%d ranks summed to %d, all to %d", half->world, sum, whole);
    if (result.ok && half->rank != n - 1 - comm->rank / 2) result = strata_test_bad("key orders this rank at %d", half->rank);
    if (result.ok && (alone != NULL) != (half->rank == 0)) result = strata_test_bad("a negative color joins none");
    strata_communicator_destroy(alone);
    strata_communicator_destroy(half);
    return result;
}

Test(collectives, a_split_orders_ranks_by_key_and_works_beside_its_parent) {
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 5, NULL, split_and_sum, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

/* ---- the store ---- */

static strata_test_result use_store(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    int64_t sum = 0;
    bool swapped = false;
    void *value = NULL;
    size_t n = 0;
    (void)user;
    TEST_TRY(strata_communicator_add(comm, "tickets", 3, &sum, &err));
    if (sum % 3 || sum < 3 || sum > 3 * comm->world) return strata_test_bad("add gave %lld", (long long)sum);
    TEST_TRY(strata_communicator_compare_and_set(comm, "leader", NULL, 0, "me", 2, &swapped, &err));
    if (swapped) TEST_TRY(strata_communicator_set(comm, "won", &comm->rank, sizeof comm->rank, &err));
    TEST_TRY(strata_communicator_get(comm, "won", 10, &value, &n, &err));
    const bool agree = n == sizeof comm->rank && (swapped == !memcmp(value, &comm->rank, n));
    free(value);
    if (!agree) return strata_test_bad("the leader is not who swapped first");
    TEST_TRY(strata_communicator_compare_and_set(comm, "leader", "you", 3, "them", 4, &swapped, &err));
    if (swapped) return strata_test_bad("swapped what was not there");
    if (strata_communicator_get(comm, "never", 0.05, &value, &n, &err) != STRATA_TIMEOUT || !strstr(err.message, "never"))
        return strata_test_bad("a key that never comes: %s", err.message);
    TEST_TRY(strata_communicator_barrier(comm, &err));
    return strata_test_ok();
}

Test(collectives, the_store_sets_gets_adds_and_swaps) {
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 4, NULL, use_store, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

/* ---- mismatches ---- */

typedef struct mistake {
    const char *name;
    strata_collective right, wrong; /* rank 1 calls `wrong`, all others call `right` */
    const char *texts[2];           /* the texts in the message that describe both calls */
} mistake;

static strata_test_result make_mistake(strata_communicator *comm, const void *user) {
    const mistake *m = user;
    float data[64] = {0}, out[64 * 4];
    strata_error err = {0}, again = {0};
    strata_collective what = comm->rank == 1 ? m->wrong : m->right;
    what.in = what.kind == STRATA_ALL_REDUCE ? NULL : data;
    what.out = what.kind == STRATA_BROADCAST ? data : out;
    strata_status status = STRATA_OK;
    for (int i = 0; i < 3 && !status; i++) status = strata_communicator_run(comm, &what, &err);
    if (!status) status = strata_communicator_barrier(comm, &err);
    if (status != STRATA_INVALID)
        return strata_test_bad("%s gave status %s: %s", m->name, strata_status_name(status), err.message);
    for (int i = 0; i < 2; i++)
        if (!strstr(err.message, m->texts[i]))
            return strata_test_bad("%s: \"%s\" lacks \"%s\"", m->name, err.message, m->texts[i]);
    if (strata_communicator_barrier(comm, &again) != status || strcmp(again.message, err.message) != 0)
        return strata_test_bad("%s: a later call says \"%s\"", m->name, again.message);
    return strata_test_ok();
}

static const mistake mistakes[] = {
    {"another count",
     {STRATA_ALL_REDUCE, .count = 10},
     {STRATA_ALL_REDUCE, .count = 11},
     {"all_reduce 0 of 10 f32 (sum)", "all_reduce 0 of 11 f32 (sum)"}},
    {"another dtype",
     {STRATA_ALL_REDUCE, .count = 10},
     {STRATA_ALL_REDUCE, .count = 10, .dtype = STRATA_DTYPE_I32},
     {"of 10 f32", "of 10 i32"}},
    {"another reducer",
     {STRATA_ALL_REDUCE, .count = 10},
     {STRATA_ALL_REDUCE, .count = 10, .reducer = STRATA_REDUCER_MAX},
     {"(sum)", "(max)"}},
    {"another collective",
     {STRATA_ALL_REDUCE, .count = 10},
     {STRATA_ALL_GATHER, .count = 10},
     {"all_reduce 0", "all_gather 0"}},
    {"another root",
     {STRATA_BROADCAST, .count = 10},
     {STRATA_BROADCAST, .count = 10, .root = 1},
     {"of 10 f32, root", "rank 1"} /* where both sides only send, the next call detects it */},
    {"another order", {STRATA_ALL_REDUCE, .count = 10}, {STRATA_BARRIER, .count = 0}, {"all_reduce 0", "barrier 0"}},
};

Test(collectives, a_call_that_differs_fails_on_every_rank_with_both_sides) {
    int t = 0;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++, t++) {
        if (!test_transport(t)) t = 0;
        for (int world = 2; world <= 4; world += 2) {
            strata_test_result r = test_ranks(test_transport(t), world, NULL, make_mistake, &mistakes[i]);
            cr_assert(r.ok, "%s", r.text);
        }
    }
}

static strata_test_result give_up(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    (void)user;
    if (comm->rank == 2) strata_communicator_abort(comm, "no data for this shard");
    const strata_status status = strata_communicator_barrier(comm, &err);
    if (status != STRATA_INTERRUPTED || !strstr(err.message, "rank 2") || !strstr(err.message, "no data for this shard"))
        return strata_test_bad("%s: %s", strata_status_name(status), err.message);
    return strata_test_ok();
}

Test(collectives, a_rank_that_gives_up_ends_the_call_of_all) {
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 4, NULL, give_up, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

static strata_test_result leave_early(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    float x = 1;
    (void)user;
    TEST_TRY(strata_communicator_all_reduce(comm, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
    if (comm->rank == 1) return strata_test_ok();
    const strata_status status = strata_communicator_all_reduce(comm, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err);
    if (status == STRATA_PEER_LOST && strstr(err.message, "rank 1")) return strata_test_ok();
    return strata_test_bad("%s: %s", strata_status_name(status), err.message);
}

/* The error must come long before stall_seconds have passed. */
Test(collectives, a_rank_that_leaves_is_missed_by_those_who_need_it, .timeout = 300) {
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 3, NULL, leave_early, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

static strata_test_result wait_in_vain(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    float x = 0;
    (void)user;
    if (comm->rank == 0) { /* rank 0 computes instead of calling all_reduce */
        while (!strata_seat_failed(comm->seat)) sched_yield();
        return strata_test_ok();
    }
    const strata_status status = strata_communicator_all_reduce(comm, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err);
    return status == STRATA_TIMEOUT && strstr(err.message, "rank 0") ? strata_test_ok() : strata_test_bad("%s", err.message);
}

Test(collectives, no_call_waits_for_ever) {
    const strata_communicator_options opts = {.stall_seconds = 1};
    for (int t = 0; test_transport(t); t++) {
        strata_test_result r = test_ranks(test_transport(t), 3, &opts, wait_in_vain, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
    }
}

Test(collectives, wrong_arguments_are_told_before_anything_is_sent) {
    strata_communicator *comms[2];
    strata_error err = {0};
    float x[4] = {0};
    cr_assert_eq(strata_communicator_create_local(2, NULL, comms, &err), STRATA_OK, "%s", err.message);
    cr_expect_eq(strata_communicator_broadcast(comms[0], x, 4, STRATA_DTYPE_F32, 2, &err), STRATA_INVALID);
    cr_expect(strstr(err.message, "root is 2"), "%s", err.message);
    cr_expect_eq(strata_communicator_send(comms[0], x, 4, STRATA_DTYPE_F32, 0, &err), STRATA_INVALID);
    cr_expect_eq(strata_communicator_all_reduce(comms[0], x, 4, STRATA_DTYPE_BOOL, STRATA_REDUCER_SUM, &err), STRATA_INVALID);
    cr_expect_eq(strata_communicator_all_reduce(comms[0], x, 4, STRATA_DTYPE_I32, STRATA_REDUCER_MEAN, &err), STRATA_INVALID);
    cr_expect_eq(strata_communicator_all_gather(comms[0], x, x, SIZE_MAX / 2, NULL, STRATA_DTYPE_F32, &err), STRATA_INVALID);
    for (int r = 0; r < 2; r++) strata_communicator_destroy(comms[r]);
    cr_expect_eq(strata_communicator_create_local(2, &(strata_communicator_options){.algorithm = "tree"}, comms, &err),
                 STRATA_INVALID);
    cr_expect_eq(strata_communicator_create_local(0, NULL, comms, &err), STRATA_INVALID);
}
