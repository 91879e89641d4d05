/* SPDX-License-Identifier: Apache-2.0
 *
 * Which communication nodes the cores of one system perform themselves, as core/compile/collectives.h says. */
#include "core/compile/collectives.h"

#include <criterion/criterion.h>

#include "core/op/communication.h"
#include "strata/ops.h"

enum { N = 2 };
typedef enum kind { GATHER, SCATTER, SUM, MEAN, N_KINDS } kind;

/* Whether the pass lets the cores perform the node. Only f32 and f16 can be added up. */
static bool performs(kind which, strata_dtype dtype, bool spans_workers) {
    static const char *const names[] = {"all_gather", "reduce_scatter", "sum", "mean"};
    int64_t numbers[N] = {0, 1};
    const int64_t lengths[2 * N] = {2, 2, 2, 2};
    const int n_parts = spans_workers ? 2 * N : N;
    const strata_cores cores = {.n = N,
                                .numbers = numbers,
                                .sum_dtypes = 1u << STRATA_DTYPE_F32 | 1u << STRATA_DTYPE_F16,
                                .has_workers = spans_workers};
    const strata_core_place place = {.cores = &cores};
    const strata_team all = {0};
    const strata_reduction reduction = which == MEAN ? STRATA_REDUCE_MEAN : STRATA_REDUCE_SUM;
    strata_error err = {0};
    strata_graph *graph = NULL;
    bool found = false;
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    const strata_shape whole = STRATA_SHAPE(which == SCATTER ? 2 * n_parts : 2);
    strata_tensor *x = strata_input(graph, "x", dtype, whole);
    strata_tensor *y = which == GATHER ? strata_all_gather_parts(x, all, 0, lengths, n_parts, 0)
                       : which == SCATTER
                           ? strata_reduce_scatter_parts(graph, x, dtype, whole, all, reduction, false, lengths, n_parts, 0)
                           : strata_all_reduce(x, reduction);
    strata_draft draft;
    cr_assert_eq(strata_draft_begin(&draft, &y, 1, NULL, 0, &err), STRATA_OK);
    cr_assert_eq(strata_collectives_prepare(&place, &draft, &err), STRATA_OK, "%s of %s: %s", names[which],
                 strata_dtype_name(dtype), err.message);
    for (int id = 0; id < draft.graph->n_nodes; id++) found |= strata_is_collective(draft.graph->nodes[id]);
    strata_draft_finish(&draft);
    strata_graph_destroy(graph);
    return found;
}

Test(collectives, are_performed_by_the_cores_that_can) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16, STRATA_DTYPE_I32};
    for (kind which = GATHER; which < N_KINDS; which++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            for (int spans = 0; spans < 2; spans++) {
                if (which != GATHER && dtypes[d] == STRATA_DTYPE_I32) continue;
                const bool adds = dtypes[d] == STRATA_DTYPE_F32 || dtypes[d] == STRATA_DTYPE_F16;
                const bool wanted = which == GATHER    ? !spans
                                    : which == SCATTER ? adds && !spans
                                    : which == SUM     ? adds
                                                       : dtypes[d] == STRATA_DTYPE_F32 && !spans;
                cr_expect_eq(performs(which, dtypes[d], spans), wanted, "kind %d of %s, %s", (int)which,
                             strata_dtype_name(dtypes[d]), spans ? "over workers" : "of one worker");
            }
}
