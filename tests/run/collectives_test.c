/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives inside of programs: every kind, dtype and reduction gives the bits of the exchange that the host makes, on cores
 * that count and on those that do not; what cores do not do stays the host's; programs that would wait for each other are
 * refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/op/communication.h"
#include "core/run/group.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/cores.h"

enum { CORES = 4, ROWS = 7, COLUMNS = 3, BYTES = ROWS * COLUMNS * 8 * CORES };

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static test_cores *board;
static strata_device *devices[CORES];
static strata_cores cores = {.n = CORES, .numbers = (int64_t[]){0, 1, 2, 3}, .sum_dtypes = UINT32_MAX};

static void open_board(void) {
    board = test_cores_create(&(test_cores_options){.n = CORES});
    for (int r = 0; r < CORES; r++) OK(test_cores_open(board, r, &devices[r], &err));
}
static void close_board(void) {
    for (int r = 0; r < CORES; r++) strata_device_close(devices[r]);
    test_cores_destroy(board);
}
TestSuite(collectives, .init = open_board, .fini = close_board);

/* ---- the same step, exchanged by the cores and by the host ---- */

typedef struct exchange {
    strata_tensor *(*build)(strata_tensor *x, int replica);
    strata_dtype dtype;
} exchange;

static const int64_t lengths[CORES] = {1, 4, 0, 2};

static strata_tensor *sum(strata_tensor *x, int replica) {
    (void)replica;
    return strata_all_reduce(x, STRATA_REDUCE_SUM);
}
static strata_tensor *mean(strata_tensor *x, int replica) {
    (void)replica;
    return strata_all_reduce(x, STRATA_REDUCE_MEAN);
}
static strata_tensor *scatter(strata_tensor *x, int replica) {
    return strata_reduce_scatter_parts(x->graph, x, x->dtype, x->shape, (strata_team){0}, STRATA_REDUCE_SUM, false, lengths,
                                       CORES, replica);
}
static strata_tensor *scatter_mean(strata_tensor *x, int replica) {
    return strata_reduce_scatter_parts(x->graph, x, x->dtype, x->shape, (strata_team){0}, STRATA_REDUCE_MEAN, false, lengths,
                                       CORES, replica);
}
/* The parts of x's rows that are the replica's. */
static strata_tensor *gather(strata_tensor *x, int replica) {
    int64_t first[2] = {0, 0}, size[2] = {lengths[replica], COLUMNS};
    for (int r = 0; r < replica; r++) first[0] += lengths[r];
    return strata_all_gather_parts(strata_slice(x, first, size), (strata_team){0}, 0, lengths, CORES, replica);
}
static strata_tensor *gather_columns(strata_tensor *x, int replica) {
    static const int64_t columns[CORES] = {COLUMNS, COLUMNS, COLUMNS, COLUMNS};
    return strata_all_gather_parts(x, (strata_team){0}, 1, columns, CORES, replica);
}

/* Two exchanges, one behind the other, with arithmetic around them. */
static strata_executable *compile(const exchange *what, int replica, const strata_core_place *place) {
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_input(graph, "x", what->dtype, STRATA_SHAPE(ROWS, COLUMNS));
    strata_tensor *y = what->build(strata_add(x, x), replica);
    y = strata_mul(y, y);
    strata_tensor *z = strata_all_reduce(strata_mul(x, x), STRATA_REDUCE_SUM);
    strata_tensor *outputs[2] = {y, strata_neg(z)};
    OK(strata_executable_create_replica(devices[replica], outputs, 2, NULL, 0, NULL, place, &exe, &err));
    strata_graph_destroy(graph);
    return exe;
}

typedef struct results {
    char bytes[CORES][2][BYTES];
    int n_exchanges;
} results;

static void run(const exchange *what, const bool *counts, bool inside, results *out) {
    strata_executable *replicas[CORES];
    strata_group *group = NULL;
    int slot = 0;
    *out = (results){0};
    for (int r = 0; r < CORES; r++) {
        const strata_core_place place = {&cores, r, counts};
        replicas[r] = compile(what, r, inside ? &place : NULL);
    }
    OK(strata_group_create(replicas, CORES, NULL, NULL, &group, &err));
    out->n_exchanges = strata_group_n_exchanges(group);
    for (int step = 0; step < 3; step++) {
        OK(strata_group_acquire(group, &slot, &err));
        for (int r = 0; r < CORES; r++) {
            strata_array x = strata_test_random(what->dtype, STRATA_SHAPE(ROWS, COLUMNS), -9, 9, (uint64_t)(10 * step + r));
            void *given = strata_executable_input(strata_group_replica(group, r), slot, 0);
            if (given) memcpy(given, x.data, strata_array_bytes(&x)); /* a core that does not count may not need it */
            strata_array_finish(&x);
        }
        OK(strata_group_start(group, slot, step, &err));
        OK(strata_group_finish(group, slot, counts, &err));
        OK(strata_group_wait(group, slot, &err));
    }
    for (int r = 0; r < CORES; r++)
        for (int i = 0; i < 2; i++) {
            const size_t dtype = strata_dtype_bytes(what->dtype);
            const size_t elements = i                                                       ? ROWS * COLUMNS
                                    : what->build == scatter || what->build == scatter_mean ? (size_t)lengths[r] * COLUMNS
                                    : what->build == gather_columns                         ? ROWS * COLUMNS * CORES
                                                                                            : ROWS * COLUMNS;
            const void *bytes = strata_executable_output(strata_group_replica(group, r), slot, i);
            if (elements) memcpy(out->bytes[r][i], bytes, elements * dtype);
        }
    strata_group_destroy(group);
}

static void expect_same(exchange what, const bool *counts, int left_to_the_host) {
    static results host, own;
    run(&what, counts, false, &host);
    run(&what, counts, true, &own);
    cr_assert_eq(host.n_exchanges, 2);
    cr_assert_eq(own.n_exchanges, left_to_the_host);
    for (int r = 0; r < CORES; r++)
        for (int i = 0; i < 2; i++)
            cr_assert(!memcmp(host.bytes[r][i], own.bytes[r][i], BYTES), "output %d of core %d, %s", i, r,
                      strata_dtype_name(what.dtype));
}

static const bool some[CORES] = {false, true, true, false}, none[CORES] = {false}, first[CORES] = {true};

Test(collectives, sums_have_the_bits_of_the_hosts) {
    const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32, STRATA_DTYPE_I64};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        expect_same((exchange){sum, dtypes[d]}, NULL, 0);
        expect_same((exchange){sum, dtypes[d]}, some, 0);
        expect_same((exchange){scatter, dtypes[d]}, NULL, 0);
        expect_same((exchange){scatter, dtypes[d]}, first, 0);
        expect_same((exchange){gather, dtypes[d]}, some, 0);
        expect_same((exchange){gather_columns, dtypes[d]}, NULL, 0);
    }
    expect_same((exchange){sum, STRATA_DTYPE_F32}, none, 0);
}

Test(collectives, means_count_those_that_give) {
    expect_same((exchange){mean, STRATA_DTYPE_F32}, NULL, 0);
    expect_same((exchange){mean, STRATA_DTYPE_F32}, some, 0);
    expect_same((exchange){mean, STRATA_DTYPE_F32}, none, 0);
    expect_same((exchange){scatter_mean, STRATA_DTYPE_F32}, first, 0);
}

/* A mean of f16 would be rounded twice; the cores of a board may not add up every dtype; two of them are not in the team. */
static strata_tensor *by_the_host(strata_tensor *x, int replica) {
    return strata_cast(mean(strata_cast(x, STRATA_DTYPE_F16), replica), STRATA_DTYPE_F32);
}

Test(collectives, what_cores_do_not_do_stays_the_hosts) {
    expect_same((exchange){mean, STRATA_DTYPE_F16}, NULL, 1);
    expect_same((exchange){by_the_host, STRATA_DTYPE_F32}, NULL, 1);
    cores.sum_dtypes = 1u << STRATA_DTYPE_F32;
    expect_same((exchange){sum, STRATA_DTYPE_BF16}, NULL, 2);
    expect_same((exchange){gather, STRATA_DTYPE_BF16}, NULL, 1);
    cores.sum_dtypes = UINT32_MAX;
}

/* ---- programs that do not belong together ---- */

static strata_executable *of(strata_tensor *output, int replica) {
    const strata_core_place place = {&cores, replica, NULL};
    strata_executable *exe = NULL;
    OK(strata_executable_create_replica(devices[replica], &output, 1, NULL, 0, NULL, &place, &exe, &err));
    strata_graph_destroy(output->graph);
    return exe;
}

static strata_tensor *input(void) {
    strata_graph *graph = NULL;
    OK(strata_graph_create(&graph, &err));
    return strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(5));
}

static void expect_refused(strata_executable *const *replicas, const char *words) {
    strata_group *group = NULL;
    cr_assert_eq(strata_group_create(replicas, CORES, NULL, NULL, &group, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, words), "%s", err.message);
}

Test(collectives, cores_with_different_collectives_are_refused) {
    strata_executable *replicas[CORES];
    for (int r = 0; r < CORES; r++) {
        strata_tensor *x = input();
        replicas[r] = of(r == 2 ? strata_neg(x) : strata_neg(sum(x, r)), r);
    }
    expect_refused(replicas, "replicas 0 and 2");
    for (int r = 0; r < CORES; r++) {
        strata_tensor *x = input();
        if (r == 3) x = strata_concat((strata_tensor *[]){x, x}, 2, 0);
        replicas[r] = of(strata_reduce_sum(sum(x, r), NULL, 0, false), r);
    }
    expect_refused(replicas, "collective 0 of replicas 0 and 3");
}

/* Core 0 sums before the host's exchange, the others behind it: the host would wait for core 0, and core 0 for the others. */
Test(collectives, an_order_in_which_cores_would_wait_for_ever_is_refused) {
    strata_executable *replicas[CORES];
    for (int r = 0; r < CORES; r++) {
        strata_tensor *x = input(), *y;
        if (r)
            y = sum(by_the_host(strata_exp(x), r), r);
        else
            y = by_the_host(strata_exp(sum(x, r)), r);
        replicas[r] = of(strata_neg(y), r);
    }
    expect_refused(replicas, "replica 0 makes collective");
}

/* ---- what cores compute between their exchanges ---- */

Test(collectives, a_core_that_computes_wrongly_is_found_before_its_program_meets_others) {
    test_cores *liars = test_cores_create(&(test_cores_options){.n = CORES, .checked = true, .liar = 1});
    for (int r = 0; r < 2; r++) {
        const strata_core_place place = {&cores, r, NULL};
        strata_device *device = NULL;
        strata_executable *exe = NULL;
        strata_tensor *x = input(), *y = strata_exp(sum(strata_mul(x, x), r));
        OK(test_cores_open(liars, r, &device, &err));
        const strata_status status = strata_executable_create_replica(device, &y, 1, NULL, 0, NULL, &place, &exe, &err);
        cr_expect_eq(status, r ? STRATA_UNSUPPORTED : STRATA_OK, "core %d: %s", r, err.message);
        cr_expect(!r || strstr(err.message, "computes wrongly"), "%s", err.message);
        strata_executable_destroy(exe);
        strata_graph_destroy(x->graph);
        strata_device_close(device);
    }
    test_cores_destroy(liars);
}

/* The first compilation is that of the core's program, the second one that of the form that is compared. */
Test(collectives, a_core_whose_comparison_is_interrupted_has_no_program) {
    for (int at = 1; at <= 2; at++) {
        test_cores *checked =
            test_cores_create(&(test_cores_options){.n = CORES, .checked = true, .liar = -1, .interrupted_at = at});
        const strata_core_place place = {&cores, 0, NULL};
        strata_device *device = NULL;
        strata_executable *exe = NULL;
        strata_tensor *x = input(), *y = strata_exp(sum(strata_mul(x, x), 0));
        OK(test_cores_open(checked, 0, &device, &err));
        cr_expect_eq(strata_executable_create_replica(device, &y, 1, NULL, 0, NULL, &place, &exe, &err), STRATA_INTERRUPTED,
                     "compilation %d", at);
        strata_executable_destroy(exe);
        strata_graph_destroy(x->graph);
        strata_device_close(device);
        test_cores_destroy(checked);
    }
}
