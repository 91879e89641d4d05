/* SPDX-License-Identifier: Apache-2.0
 *
 * all_reduce compared with a scalar oracle, for numbers of ranks, sizes, dtypes, reducers, algorithms and transports; which
 * algorithm is chosen; and compression. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"
#include "cluster/communicator.h"
#include "core/base/narrow.h"
#include "tests/cluster/oracle.h"
#include "tests/cluster/ranks.h"
#include "tests/support/folder.h"

typedef struct reduction {
    strata_dtype dtype;
    strata_reducer reducer;
    size_t count;
} reduction;

static strata_test_result all_reduce(strata_communicator *comm, const reduction *r) {
    strata_error err = {0};
    const size_t size = strata_wire_dtype_bytes(r->dtype), bytes = r->count * size;
    char *data = malloc(bytes + size + 1) + 0;
    test_fill(r->dtype, strata_communicator_rank(comm), data, r->count);
    strata_status status = strata_communicator_all_reduce(comm, data, r->count, r->dtype, r->reducer, &err);
    strata_test_result result = status ? strata_test_bad("%s", err.message)
                                       : test_expect(r->dtype, r->reducer, strata_communicator_world(comm), data, 0, r->count);
    free(data);
    return result;
}

static strata_test_result all_dtypes(strata_communicator *comm, const void *user) {
    const size_t *counts = user;
    for (int d = 0; d < TEST_DTYPES; d++)
        for (int op = 0; op < STRATA_REDUCER_COUNT; op++)
            for (int i = 0; counts[i] != SIZE_MAX; i++) {
                if (strata_fold_check(test_dtypes[d], op, NULL)) continue;
                TEST_EXPECT(all_reduce(comm, &(reduction){test_dtypes[d], op, counts[i]}));
            }
    return strata_test_ok();
}

/* Sums of f32. The sizes are next to those at which the algorithms divide the data. */
static strata_test_result awkward_sizes(strata_communicator *comm, const void *user) {
    const size_t segment = comm->segment_bytes / sizeof(float), world = (size_t)comm->world;
    const size_t counts[] = {world - 1, world,       world + 1,           1023,
                             segment,   segment + 1, world * segment + 1, 2 * world * segment + 3};
    (void)user;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        TEST_EXPECT(all_reduce(comm, &(reduction){STRATA_DTYPE_F32, STRATA_REDUCER_SUM, counts[i]}));
        if (i < 5) TEST_EXPECT(all_reduce(comm, &(reduction){STRATA_DTYPE_BF16, STRATA_REDUCER_MEAN, counts[i]}));
    }
    return strata_test_ok();
}

Test(all_reduce, all_reduce_folds_in_rank_order_by_every_algorithm) {
    static const size_t counts[] = {0, 1, 5, 64, 1001, SIZE_MAX};
    for (int a = 0; strata_algorithm_names[a]; a++)
        for (int world = 1; world <= 16; world += world < 9 ? 1 : 7) {
            const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
            strata_test_result r = test_ranks("inproc", world, &opts, all_dtypes, counts);
            cr_assert(r.ok, "%s: %s", strata_algorithm_names[a], r.text);
        }
}

Test(all_reduce, all_reduce_takes_sizes_on_both_sides_of_a_segment) {
    for (int a = 0; strata_algorithm_names[a]; a++)
        for (int world = 2; world <= 9; world += world < 5 ? 1 : 4) {
            const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
            strata_test_result r = test_ranks("inproc", world, &opts, awkward_sizes, NULL);
            cr_assert(r.ok, "%s: %s", strata_algorithm_names[a], r.text);
        }
}

static strata_test_result some_dtypes(strata_communicator *comm, const void *user) {
    static const reduction reductions[] = {
        {STRATA_DTYPE_F32, STRATA_REDUCER_SUM, 1001},   {STRATA_DTYPE_F32, STRATA_REDUCER_SUM, 0},
        {STRATA_DTYPE_F32, STRATA_REDUCER_SUM, 400001}, {STRATA_DTYPE_BF16, STRATA_REDUCER_MEAN, 70001},
        {STRATA_DTYPE_F64, STRATA_REDUCER_PROD, 77},    {STRATA_DTYPE_I64, STRATA_REDUCER_MAX, 1}};
    (void)user;
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) TEST_EXPECT(all_reduce(comm, &reductions[i]));
    return strata_test_ok();
}

/* Between processes: every algorithm, but few sizes. */
Test(all_reduce, all_reduce_has_the_same_bits_over_shm_and_tcp) {
    for (int t = 1; test_transport(t); t++)
        for (int a = 0; strata_algorithm_names[a]; a++)
            for (int world = 2; world <= 5; world += a ? 3 : 1) {
                const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
                strata_test_result r = test_ranks(test_transport(t), world, &opts, some_dtypes, NULL);
                cr_assert(r.ok, "%s, %s: %s", test_transport(t), strata_algorithm_names[a], r.text);
            }
}

Test(all_reduce, a_communicator_of_one_needs_no_store) {
    strata_communicator *comm;
    strata_error err = {0};
    cr_assert_eq(strata_communicator_create(&(strata_communicator_options){0}, &comm, &err), STRATA_OK, "%s", err.message);
    static const size_t counts[] = {0, 1, 1000, SIZE_MAX};
    cr_assert(all_dtypes(comm, counts).ok);
    strata_communicator_destroy(comm);
}

static strata_test_result sixteen_mebibytes(strata_communicator *comm, const void *user) {
    (void)user;
    return all_reduce(comm, &(reduction){STRATA_DTYPE_F32, STRATA_REDUCER_SUM, 4 << 20});
}

/* Without TLS, which would take as long as all other transports together. */
Test(all_reduce, all_reduce_takes_16_mebibytes) {
    for (int t = 0; test_transport(t) && strcmp(test_transport(t), "tls") != 0; t++)
        for (int a = 0; strata_algorithm_names[a]; a++)
            for (int world = 2; world <= 4; world++) {
                const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
                strata_test_result r = test_ranks(test_transport(t), world, &opts, sixteen_mebibytes, NULL);
                cr_assert(r.ok, "%s, %s: %s", test_transport(t), strata_algorithm_names[a], r.text);
            }
}

/* A broadcast whose root continues with the next sums while other ranks have not yet read its data. The root reuses memory,
 * but not the part that is still to be read. */
static strata_test_result many_sizes(strata_communicator *comm, const void *user) {
    const int world = strata_communicator_world(comm), rank = strata_communicator_rank(comm);
    enum { MOST = 150000 };
    strata_error err = {0};
    uint32_t state = 1;
    (void)user;
    float *data = malloc(MOST * sizeof *data);
    strata_test_result result = strata_test_ok();
    for (int i = 0; i < 40 && result.ok; i++) {
        state = state * 1664525u + 1013904223u;
        const size_t count = 1 + (state >> 8) % (i % 3 ? MOST : 20000);
        const int root = i % world;
        result = all_reduce(comm, &(reduction){STRATA_DTYPE_F32, STRATA_REDUCER_SUM, count});
        test_fill(STRATA_DTYPE_F32, root, data, rank == root ? count : 0);
        if (strata_communicator_broadcast(comm, data, count, STRATA_DTYPE_F32, root, &err))
            result = strata_test_bad("broadcast %d: %s", i, err.message);
        for (size_t e = 0; e < count && result.ok; e += 61) {
            float want;
            test_set(STRATA_DTYPE_F32, &want, 0, test_value(STRATA_DTYPE_F32, root, e));
            if (data[e] != want) result = strata_test_bad("broadcast %d, element %zu is %g, not %g", i, e, data[e], want);
        }
    }
    free(data);
    return result;
}

Test(all_reduce, memory_that_is_used_again_keeps_what_is_still_to_be_read) {
    for (int t = 0; t < 2; t++)
        for (int world = 2; world <= 8; world += 3) {
            strata_test_result r = test_ranks(t ? "shm" : "inproc", world, NULL, many_sizes, NULL);
            cr_assert(r.ok, "%s, %d ranks: %s", t ? "shm" : "inproc", world, r.text);
        }
}

/* ---- with a table of the user ---- */

static strata_test_result follow_the_table(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    strata_communicator *half = NULL;
    (void)user;
    if (strcmp(strata_communicator_algorithm(comm, 100), "ring") != 0 ||
        strcmp(strata_communicator_algorithm(comm, 101), "two_shot") != 0)
        return strata_test_bad("%s up to 100 bytes", strata_communicator_algorithm(comm, 100));
    TEST_EXPECT(all_reduce(comm, &(reduction){STRATA_DTYPE_F32, STRATA_REDUCER_SUM, 25}));
    TEST_TRY(strata_communicator_split(comm, comm->rank % 2, 0, &half, &err));
    const bool ok = !strcmp(strata_communicator_algorithm(half, 100), "halving_doubling");
    strata_communicator_destroy(half);
    return ok ? strata_test_ok() : strata_test_bad("the table of a split");
}

Test(all_reduce, all_ranks_follow_rank_0s_table) {
    strata_error err = {0};
    test_folder_make();
    const char *path = test_path("allreduce.table");
    for (int t = 1; test_transport(t); t++) {
        const strata_algorithm_choice four[] = {{test_transport(t), 4, 100, "ring"},
                                                {test_transport(t), 4, UINT64_MAX, "two_shot"}};
        const strata_algorithm_choice two[] = {{test_transport(t), 2, UINT64_MAX, "halving_doubling"}};
        cr_assert_eq(strata_algorithm_table_save(path, four, 2, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_algorithm_table_save(path, two, 1, &err), STRATA_OK, "%s", err.message);
        const strata_communicator_options opts = {.table = path};
        strata_test_result r = test_ranks(test_transport(t), 4, &opts, follow_the_table, NULL);
        cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
        const strata_algorithm_choice wrong[] = {{test_transport(t), 4, 100, "ring"}, {test_transport(t), 4, 100, "two_shot"}};
        cr_assert_eq(strata_algorithm_table_save(path, wrong, 2, &err), STRATA_INVALID);
    }
    test_folder_remove();
}

/* ---- the choice of the algorithm without a table ---- */

Test(all_reduce, the_choice_depends_on_ranks_bytes_and_hosts) {
    static const struct {
        int world;
        size_t n_bytes;
        const char *one_host, *several_hosts;
    } rows[] = {
        {2, 16 << 10, "one_shot", "one_shot"}, {2, 256 << 20, "two_shot", "two_shot"},
        {8, 8 << 10, "one_shot", "one_shot"},  {8, 32 << 10, "two_shot", "halving_doubling"},
        {16, 1 << 20, "two_shot", "two_shot"}, {17, 4, "halving_doubling", "halving_doubling"},
        {24, 512 << 10, "ring", "two_shot"},   {32, 128 << 10, "halving_doubling", "halving_doubling"},
        {32, 400 << 10, "ring", "two_shot"},   {1000, 1 << 20, "ring", "halving_doubling"},
        {1000, 256 << 20, "ring", "two_shot"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int several = 0; several < 2; several++) {
            const strata_communicator comm = {
                .world = rows[i].world, .several_hosts = several, .transport = &strata_transport_tcp, .algorithm = -1};
            cr_assert_str_eq(strata_algorithms[strata_algorithm_choose(&comm, rows[i].n_bytes)].name,
                             several ? rows[i].several_hosts : rows[i].one_host, "%d ranks, %zu bytes", rows[i].world,
                             rows[i].n_bytes);
        }
}

/* Pretends that the upper half of the ranks is on another machine. Each half is then on one machine, and groups with ranks
 * of both halves are on two. */
static strata_test_result split_over_two_machines(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    (void)user;
    if (comm->several_hosts) return strata_test_bad("ranks of one process are on several hosts");
    for (int r = comm->world / 2; r < comm->world; r++) strcpy(comm->peers[r].machine, "another");
    for (int crossing = 0; crossing < 2; crossing++) {
        strata_communicator *half;
        TEST_TRY(strata_communicator_split(comm, crossing ? comm->rank % 2 : comm->rank / (comm->world / 2), 0, &half, &err));
        const bool right = half->several_hosts == crossing;
        strata_test_result sum = all_reduce(half, &(reduction){STRATA_DTYPE_F32, STRATA_REDUCER_SUM, 3000});
        strata_communicator_destroy(half);
        TEST_EXPECT(sum);
        if (!right) return strata_test_bad("half %d is not where it is", crossing);
    }
    return strata_test_ok();
}

Test(all_reduce, a_split_knows_whether_its_ranks_share_a_host) {
    strata_test_result r = test_ranks("tcp", 8, NULL, split_over_two_machines, NULL);
    cr_assert(r.ok, "%s", r.text);
}

/* ---- compression ---- */

/* The bits of a float. A signalling NaN becomes a quiet one, because the x87 unit changes it when a function returns it. */
static uint32_t quiet_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return isnan(x) ? bits | 1u << 22 : bits;
}

/* Tests every f16 and bf16, and f32 numbers next to those that are rounded up, down and to even, at all positions in a
 * vector. */
Test(all_reduce, rows_are_rounded_as_single_numbers_are) {
    enum { N = 1 << 16 };
    static uint16_t bits[N], back[N];
    static float wide[N];
    for (int d = 1; d <= 2; d++) {
        const strata_dtype dtype = d == 1 ? STRATA_DTYPE_F16 : STRATA_DTYPE_BF16;
        for (int i = 0; i < N; i++) bits[i] = (uint16_t)i;
        strata_widen_row(dtype, bits, N, wide);
        for (int i = 0; i < N; i++) {
            const float one = d == 1 ? strata_f16_to_f32((uint16_t)i) : strata_bf16_to_f32((uint16_t)i);
            cr_assert_eq(quiet_bits(one), quiet_bits(wide[i]), "%s %04x", strata_dtype_name(dtype), i);
        }
        for (int round = 0; round < 40; round++) {
            uint64_t state = (uint64_t)round;
            for (int i = 0; i < N; i++) {
                const uint32_t random = (uint32_t)strata_test_next(&state) ^ (uint32_t)(strata_test_next(&state) << 16);
                const uint32_t word = round % 2 ? random : (random & 0xFFFF0000u) | 0x8000u | (random & 1);
                memcpy(&wide[i], &word, sizeof word);
            }
            strata_narrow_row(dtype, wide, N - 3, back);
            for (int i = 0; i < N - 3; i++) {
                const uint16_t one = d == 1 ? strata_f16_from_f32(wide[i]) : strata_bf16_from_f32(wide[i]);
                cr_assert_eq(one, back[i], "%s of %a: %04x, not %04x", strata_dtype_name(dtype), (double)wide[i], back[i], one);
            }
        }
    }
}

/* Sends f32 as the dtype *user. The bits must be those of a sum of rounded parts which is rounded again, and half as many
 * bytes must be sent. */
static strata_test_result narrow(strata_communicator *comm, const void *user) {
    const strata_dtype wire = *(const strata_dtype *)user;
    const size_t counts[] = {0, 1, 7, 5000, 100003};
    const int world = strata_communicator_world(comm), rank = strata_communicator_rank(comm);
    static _Thread_local float data[100003];
    strata_error err = {0};
    uint64_t sent[2] = {0};
    for (int pass = 0; pass < 2; pass++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const strata_collective what = {.kind = STRATA_ALL_REDUCE,
                                            .out = data,
                                            .count = counts[c],
                                            .reducer = c % 2 ? STRATA_REDUCER_MEAN : STRATA_REDUCER_SUM,
                                            .wire = pass ? STRATA_DTYPE_F32 : wire};
            const uint64_t before = strata_communicator_bytes_sent(comm);
            test_fill(STRATA_DTYPE_F32, rank, data, counts[c]);
            TEST_TRY(strata_communicator_run(comm, &what, &err));
            sent[pass] = strata_communicator_bytes_sent(comm) - before; /* those of the last, largest count */
            for (size_t i = 0; i < counts[c] && !pass; i++) {
                uint64_t bits;
                test_fold(wire, what.reducer, world, i, &bits);
                if ((double)data[i] != test_get(wire, &bits, 0))
                    return strata_test_bad("element %zu of %zu is %.9g, not %.9g", i, counts[c], (double)data[i],
                                           test_get(wire, &bits, 0));
            }
        }
    /* A ring passes partial sums from rank to rank in f32. */
    if (comm->algorithm < 0 && 2 * sent[0] != sent[1])
        return strata_test_bad("%llu bytes were sent, %llu without compression", (unsigned long long)sent[0],
                               (unsigned long long)sent[1]);
    return strata_test_ok();
}

Test(all_reduce, f32_may_travel_rounded_with_the_same_bits_for_all) {
    static const strata_dtype wires[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    for (int w = 0; w < 2; w++) {
        for (int t = 0; test_transport(t); t++) {
            strata_test_result r = test_ranks(test_transport(t), 3, NULL, narrow, &wires[w]);
            cr_assert(r.ok, "%s: %s", test_transport(t), r.text);
        }
        for (int a = 0; strata_algorithm_names[a]; a++) {
            const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
            strata_test_result r = test_ranks("inproc", 5, &opts, narrow, &wires[w]);
            cr_assert(r.ok, "%s: %s", strata_algorithm_names[a], r.text);
        }
    }
}

static strata_test_result differ_in_compression(strata_communicator *comm, const void *user) {
    float data[100] = {0};
    strata_error err = {0};
    const strata_collective what = {.kind = STRATA_ALL_REDUCE,
                                    .out = data,
                                    .count = 100,
                                    .wire = strata_communicator_rank(comm) == 1 ? STRATA_DTYPE_BF16 : STRATA_DTYPE_F32};
    (void)user;
    if (strata_communicator_run(comm, &what, &err) != STRATA_INVALID || !strstr(err.message, "bf16") ||
        !strstr(err.message, "100 f32"))
        return strata_test_bad("%s", err.message);
    return strata_test_ok();
}

Test(all_reduce, ranks_that_compress_differently_are_told_so) {
    strata_test_result r = test_ranks("tcp", 3, NULL, differ_in_compression, NULL);
    cr_assert(r.ok, "%s", r.text);
}

Test(all_reduce, only_an_all_reduce_of_f32_can_be_compressed) {
    strata_communicator *comms[2];
    strata_error err = {0};
    double x = 0;
    cr_assert_eq(strata_communicator_create_local(2, NULL, comms, &err), STRATA_OK);
    strata_collective what = {
        .kind = STRATA_ALL_REDUCE, .out = &x, .count = 1, .dtype = STRATA_DTYPE_F64, .wire = STRATA_DTYPE_BF16};
    cr_assert_eq(strata_communicator_run(comms[0], &what, &err), STRATA_INVALID);
    what = (strata_collective){.kind = STRATA_BROADCAST, .out = &x, .count = 1, .wire = STRATA_DTYPE_BF16};
    cr_assert_eq(strata_communicator_run(comms[0], &what, &err), STRATA_INVALID);
    what = (strata_collective){.kind = STRATA_ALL_REDUCE, .out = &x, .count = 1, .wire = STRATA_DTYPE_I32};
    cr_assert_eq(strata_communicator_run(comms[0], &what, &err), STRATA_INVALID);
    for (int r = 0; r < 2; r++) strata_communicator_destroy(comms[r]);
}
