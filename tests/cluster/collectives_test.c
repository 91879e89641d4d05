/* SPDX-License-Identifier: Apache-2.0
 *
 * Every collective against a scalar oracle: ranks, sizes, dtypes, reducers, algorithms, transports. */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/collective/algorithm.h"
#include "cluster/collective/fold.h"
#include "cluster/collective/narrow.h"
#include "cluster/communicator.h"
#include "tests/cluster/ranks.h"
#include "tests/support/folder.h"

static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F64, STRATA_DTYPE_F16, STRATA_DTYPE_BF16,
                                      STRATA_DTYPE_I32, STRATA_DTYPE_I64, STRATA_DTYPE_U8};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static const char *const transports[] = {"inproc", "shm", "tcp", "tls"};
enum { TRANSPORTS = sizeof transports / sizeof *transports };

/* ---- elements, one at a time ---- */

static double get(strata_dtype dtype, const void *data, size_t i) {
    return dtype == STRATA_DTYPE_F64 ? ((const double *)data)[i] : strata_element_get(dtype, data, (int64_t)i);
}

static void set(strata_dtype dtype, void *data, size_t i, double value) {
    if (dtype == STRATA_DTYPE_F64)
        ((double *)data)[i] = value;
    else
        strata_element_set(dtype, data, (int64_t)i, value);
}

/* Element i of rank r: for floats with fractions, so that the order of a sum shows; for integers small, so that products fit. */
static double value_of(strata_dtype dtype, int r, size_t i) {
    uint64_t state = (uint64_t)r * 1000003u + i;
    const uint64_t bits = strata_test_next(&state);
    if (dtype == STRATA_DTYPE_F64 || strata_dtype_is_float(dtype)) return (double)(bits % 2001) / 300.0 - 3.0;
    return (double)(bits % 4);
}

static void fill(strata_dtype dtype, int r, void *data, size_t n) {
    for (size_t i = 0; i < n; i++) set(dtype, data, i, value_of(dtype, r, i));
}

static double combine(strata_reducer reducer, double a, double b) {
    switch (reducer) {
        case STRATA_REDUCER_MAX:
            return a > b ? a : b;
        case STRATA_REDUCER_MIN:
            return a < b ? a : b;
        case STRATA_REDUCER_PROD:
            return a * b;
        default:
            return a + b;
    }
}

/* What folding element i in rank order gives, as bits of the dtype in out. */
static void oracle(strata_dtype dtype, strata_reducer reducer, int world, size_t i, uint64_t *out) {
    const bool in_f32 = strata_dtype_is_float(dtype);
    uint64_t stored = 0;
    double sum = 0;
    for (int r = 0; r < world; r++) {
        set(dtype, &stored, 0, value_of(dtype, r, i));
        const double value = get(dtype, &stored, 0);
        sum = r ? combine(reducer, sum, value) : value;
        if (in_f32) sum = (double)(float)sum;
    }
    if (dtype == STRATA_DTYPE_U8) sum = (double)((uint64_t)sum & 255);
    if (dtype == STRATA_DTYPE_I32) sum = (double)(int32_t)(uint32_t)(uint64_t)sum;
    if (reducer == STRATA_REDUCER_MEAN) sum = in_f32 ? (double)((float)sum / (float)world) : sum / world;
    *out = 0;
    set(dtype, out, 0, sum);
}

static strata_test_result expect(strata_dtype dtype, strata_reducer reducer, int world, const void *data, size_t first,
                                 size_t n) {
    const size_t size = strata_wire_dtype_bytes(dtype);
    for (size_t i = 0; i<n; i += n> 5000 ? 37 : 1) { /* of large ones a sample, and the last */
        uint64_t want;
        oracle(dtype, reducer, world, first + i, &want);
        if (memcmp((const char *)data + i * size, &want, size) != 0)
            return strata_test_bad("%s element %zu of %zu is %.9g, not %.9g", strata_wire_dtype_name(dtype), i, n,
                                   get(dtype, data, i), get(dtype, &want, 0));
    }
    return strata_test_ok();
}

#define TEST_EXPECT(result)                     \
    do {                                        \
        strata_test_result expected = (result); \
        if (!expected.ok) return expected;      \
    } while (0)

/* ---- reductions ---- */

typedef struct reduction {
    strata_dtype dtype;
    strata_reducer reducer;
    size_t count;
} reduction;

static strata_test_result all_reduce(strata_communicator *comm, const reduction *r) {
    strata_error err = {0};
    const size_t size = strata_wire_dtype_bytes(r->dtype), bytes = r->count * size;
    char *data = malloc(bytes + size + 1) + 0;
    fill(r->dtype, strata_communicator_rank(comm), data, r->count);
    strata_status status = strata_communicator_all_reduce(comm, data, r->count, r->dtype, r->reducer, &err);
    strata_test_result result = status ? strata_test_bad("%s", err.message)
                                       : expect(r->dtype, r->reducer, strata_communicator_world(comm), data, 0, r->count);
    free(data);
    return result;
}

static strata_test_result all_dtypes(strata_communicator *comm, const void *user) {
    const size_t *counts = user;
    for (int d = 0; d < DTYPES; d++)
        for (int op = 0; op < STRATA_REDUCER_COUNT; op++)
            for (int i = 0; counts[i] != SIZE_MAX; i++) {
                if (strata_fold_check(dtypes[d], op, NULL)) continue;
                TEST_EXPECT(all_reduce(comm, &(reduction){dtypes[d], op, counts[i]}));
            }
    return strata_test_ok();
}

/* f32 sums of sizes around what the algorithm cuts at. */
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

Test(collectives, all_reduce_folds_in_rank_order_by_every_algorithm) {
    static const size_t counts[] = {0, 1, 5, 64, 1001, SIZE_MAX};
    for (int a = 0; strata_algorithm_names[a]; a++)
        for (int world = 1; world <= 16; world += world < 9 ? 1 : 7) {
            const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
            strata_test_result r = test_ranks("inproc", world, &opts, all_dtypes, counts);
            cr_assert(r.ok, "%s: %s", strata_algorithm_names[a], r.text);
        }
}

Test(collectives, all_reduce_takes_sizes_on_both_sides_of_a_segment) {
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

/* Over links of processes: every algorithm, few sizes. */
Test(collectives, all_reduce_has_the_same_bits_over_shm_and_tcp) {
    for (int t = 1; t < TRANSPORTS; t++)
        for (int a = 0; strata_algorithm_names[a]; a++)
            for (int world = 2; world <= 5; world += a ? 3 : 1) {
                const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
                strata_test_result r = test_ranks(transports[t], world, &opts, some_dtypes, NULL);
                cr_assert(r.ok, "%s, %s: %s", transports[t], strata_algorithm_names[a], r.text);
            }
}

Test(collectives, a_communicator_of_one_needs_no_store) {
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

Test(collectives, all_reduce_takes_16_mebibytes) {
    for (int a = 0; strata_algorithm_names[a]; a++) {
        const strata_communicator_options opts = {.algorithm = strata_algorithm_names[a]};
        strata_test_result r = test_ranks("inproc", 3, &opts, sixteen_mebibytes, NULL);
        cr_assert(r.ok, "%s: %s", strata_algorithm_names[a], r.text);
    }
}

/* ---- the user's table ---- */

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

Test(collectives, all_ranks_follow_rank_0s_table) {
    strata_error err = {0};
    test_folder_make();
    const char *path = test_path("allreduce.table");
    for (int t = 1; t < TRANSPORTS; t++) {
        const strata_algorithm_choice four[] = {{transports[t], 4, 100, "ring"}, {transports[t], 4, UINT64_MAX, "two_shot"}};
        const strata_algorithm_choice two[] = {{transports[t], 2, UINT64_MAX, "halving_doubling"}};
        cr_assert_eq(strata_algorithm_table_save(path, four, 2, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_algorithm_table_save(path, two, 1, &err), STRATA_OK, "%s", err.message);
        const strata_communicator_options opts = {.table = path};
        strata_test_result r = test_ranks(transports[t], 4, &opts, follow_the_table, NULL);
        cr_assert(r.ok, "%s: %s", transports[t], r.text);
        const strata_algorithm_choice wrong[] = {{transports[t], 4, 100, "ring"}, {transports[t], 4, 100, "two_shot"}};
        cr_assert_eq(strata_algorithm_table_save(path, wrong, 2, &err), STRATA_INVALID);
    }
    test_folder_remove();
}

/* ---- the choice without a table ---- */

Test(collectives, the_choice_depends_on_ranks_bytes_and_hosts) {
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

/* Says that the upper half of the ranks is on another machine: halves are then on one, and what takes of both is on two. */
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

Test(collectives, a_split_knows_whether_its_ranks_share_a_host) {
    strata_test_result r = test_ranks("tcp", 8, NULL, split_over_two_machines, NULL);
    cr_assert(r.ok, "%s", r.text);
}

/* ---- compression: 54 ---- */

/* Every f16 and bf16, and f32s around what rounds up, down and to even, at all places of a vector. */
Test(collectives, rows_are_rounded_as_single_numbers_are) {
    enum { N = 1 << 16 };
    static uint16_t bits[N], back[N];
    static float wide[N];
    for (int d = 1; d <= 2; d++) {
        const strata_dtype dtype = d == 1 ? STRATA_DTYPE_F16 : STRATA_DTYPE_BF16;
        for (int i = 0; i < N; i++) bits[i] = (uint16_t)i;
        strata_widen_row(dtype, bits, N, wide);
        for (int i = 0; i < N; i++) {
            const float one = d == 1 ? strata_f16_to_f32((uint16_t)i) : strata_bf16_to_f32((uint16_t)i);
            cr_assert_eq(memcmp(&one, &wide[i], sizeof one), 0, "%s %04x", strata_dtype_name(dtype), i);
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

/* f32 that travels as `user`'s dtype: the bits are those of the fold of rounded parts, rounded; the bytes are half. */
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
            fill(STRATA_DTYPE_F32, rank, data, counts[c]);
            TEST_TRY(strata_communicator_run(comm, &what, &err));
            sent[pass] = strata_communicator_bytes_sent(comm) - before; /* of the largest */
            for (size_t i = 0; i < counts[c] && !pass; i++) {
                uint64_t bits;
                oracle(wire, what.reducer, world, i, &bits);
                if ((double)data[i] != get(wire, &bits, 0))
                    return strata_test_bad("element %zu of %zu is %.9g, not %.9g", i, counts[c], (double)data[i],
                                           get(wire, &bits, 0));
            }
        }
    /* Sums that a ring carries from rank to rank stay f32. */
    if (comm->algorithm < 0 && 2 * sent[0] != sent[1])
        return strata_test_bad("%llu bytes were sent, %llu without compression", (unsigned long long)sent[0],
                               (unsigned long long)sent[1]);
    return strata_test_ok();
}

Test(collectives, f32_may_travel_rounded_with_the_same_bits_for_all) {
    static const strata_dtype wires[] = {STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    for (int w = 0; w < 2; w++) {
        for (int t = 0; t < TRANSPORTS; t++) {
            strata_test_result r = test_ranks(transports[t], 3, NULL, narrow, &wires[w]);
            cr_assert(r.ok, "%s: %s", transports[t], r.text);
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

Test(collectives, ranks_that_compress_differently_are_told_so) {
    strata_test_result r = test_ranks("tcp", 3, NULL, differ_in_compression, NULL);
    cr_assert(r.ok, "%s", r.text);
}

Test(collectives, only_an_all_reduce_of_f32_can_be_compressed) {
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

/* ---- the others ---- */

static strata_test_result reduce_everywhere(strata_communicator *comm, size_t count) {
    strata_error err = {0};
    float *data = malloc(count * sizeof *data + 1), *before = malloc(count * sizeof *data + 1);
    strata_test_result result = strata_test_ok();
    for (int root = 0; root < comm->world && result.ok; root++) {
        fill(STRATA_DTYPE_F32, comm->rank, data, count);
        fill(STRATA_DTYPE_F32, comm->rank, before, count);
        if (strata_communicator_reduce(comm, data, count, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, root, &err))
            result = strata_test_bad("%s", err.message);
        else if (comm->rank == root)
            result = expect(STRATA_DTYPE_F32, STRATA_REDUCER_SUM, comm->world, data, 0, count);
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

/* Rank r has `base` + r elements: the value of element j of rank r is 100 r + j. */
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
    for (int round = 0; round < 3 && result.ok; round++) { /* all_gather; in place; gather to the last */
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
    for (int root = 0; root < comm->world && result.ok; root++) { /* back again */
        for (size_t i = 0; i < total; i++) all[i] = (int64_t)i + root;
        memset(in, 0xFF, own * sizeof *in);
        if (strata_communicator_scatter(comm, all, in, 0, counts, STRATA_DTYPE_I64, root, &err))
            result = strata_test_bad("%s", err.message);
        for (size_t j = 0; j < own && result.ok; j++)
            if (in[j] != (int64_t)(first + j) + root) result = strata_test_bad("scatter from %d: element %zu", root, j);
    }
    float *whole = malloc(total * sizeof *whole + 1), *sums = malloc(own * sizeof *sums + 1);
    fill(STRATA_DTYPE_F32, comm->rank, whole, total);
    if (result.ok &&
        strata_communicator_reduce_scatter(comm, whole, sums, 0, counts, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err))
        result = strata_test_bad("%s", err.message);
    if (result.ok) result = expect(STRATA_DTYPE_F32, STRATA_REDUCER_SUM, comm->world, sums, first, own);
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

/* Round the ring: each number visits every rank. */
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
    for (int t = 0; t < TRANSPORTS; t++) {
        strata_test_result r = test_ranks(transports[t], 4, NULL, other_collectives, large);
        cr_assert(r.ok, "%s: %s", transports[t], r.text);
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

Test(collectives, requests_run_in_order_beside_the_caller) {
    for (int t = 0; t < TRANSPORTS; t++) {
        strata_test_result r = test_ranks(transports[t], 4, NULL, many_requests, NULL);
        cr_assert(r.ok, "%s: %s", transports[t], r.text);
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
    for (int t = 0; t < TRANSPORTS; t++) {
        strata_test_result r = test_ranks(transports[t], 5, NULL, split_and_sum, NULL);
        cr_assert(r.ok, "%s: %s", transports[t], r.text);
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
    for (int t = 0; t < TRANSPORTS; t++) {
        strata_test_result r = test_ranks(transports[t], 4, NULL, use_store, NULL);
        cr_assert(r.ok, "%s: %s", transports[t], r.text);
    }
}

/* ---- mismatches ---- */

typedef struct mistake {
    const char *name;
    strata_collective right, wrong; /* `wrong` is what rank 1 calls */
    const char *texts[2];           /* both sides, as the message tells them */
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
     {"of 10 f32, root", "rank 1"} /* told at the next call where both sides only send */},
    {"another order", {STRATA_ALL_REDUCE, .count = 10}, {STRATA_BARRIER, .count = 0}, {"all_reduce 0", "barrier 0"}},
};

Test(collectives, a_call_that_differs_fails_on_every_rank_with_both_sides) {
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        for (int world = 2; world <= 4; world += 2) {
            strata_test_result r = test_ranks(transports[i % TRANSPORTS], world, NULL, make_mistake, &mistakes[i]);
            cr_assert(r.ok, "%s", r.text);
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
    for (int t = 0; t < TRANSPORTS; t++) {
        strata_test_result r = test_ranks(transports[t], 4, NULL, give_up, NULL);
        cr_assert(r.ok, "%s: %s", transports[t], r.text);
    }
}

static strata_test_result wait_in_vain(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    float x = 0;
    (void)user;
    if (comm->rank == 0) { /* computes something, for long */
        while (!strata_member_failed(comm->member)) sched_yield();
        return strata_test_ok();
    }
    const strata_status status = strata_communicator_all_reduce(comm, &x, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err);
    return status == STRATA_TIMEOUT && strstr(err.message, "rank 0") ? strata_test_ok() : strata_test_bad("%s", err.message);
}

Test(collectives, no_call_waits_for_ever) {
    const strata_communicator_options opts = {.stall_seconds = 0.3};
    for (int t = 0; t < TRANSPORTS; t++) {
        strata_test_result r = test_ranks(transports[t], 3, &opts, wait_in_vain, NULL);
        cr_assert(r.ok, "%s: %s", transports[t], r.text);
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
