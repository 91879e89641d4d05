/* SPDX-License-Identifier: Apache-2.0
 *
 * moving_average: rates, the gate, and which operands it refuses. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/op/op_case.h"
#include "tests/support/eval.h"

/* Writes the new state for the state {1, 2, 3, -inf}, the value {5, 9, 7, -inf} and the rates {0.25, 1, 0, 0}. */
static void run(double gate, double *out_state) {
    strata_error err = {0};
    strata_graph *graph = NULL;
    strata_variable variable = strata_test_variable("state", STRATA_DTYPE_F32, STRATA_SHAPE(4));
    strata_array state = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){1, 2, 3, -INFINITY}), result;
    strata_array value = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){5, 9, 7, -INFINITY});
    strata_array rates = strata_test_array(STRATA_DTYPE_F32, STRATA_SHAPE(4), (double[]){0.25, 1, 0, 0});
    strata_array gate_value = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), gate);
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *v = strata_input(graph, "value", STRATA_DTYPE_F32, STRATA_SHAPE(4));
    strata_tensor *r = strata_input(graph, "rates", STRATA_DTYPE_F32, STRATA_SHAPE(4));
    strata_tensor *g = strata_input(graph, "gate", STRATA_DTYPE_F32, STRATA_SHAPE());
    strata_tensor *y = strata_moving_average(strata_variable_read(graph, &variable), v, r, g);
    strata_test_feed feeds[] = {{&variable, &state}, {v, &value}, {r, &rates}, {g, &gate_value}};
    cr_assert_eq(strata_test_eval(&y, 1, feeds, 4, &result, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < 4; i++) out_state[i] = (double)((float *)state.data)[i];
    strata_graph_destroy(graph);
    strata_array *all[] = {&state, &value, &rates, &gate_value, &result};
    for (int i = 0; i < 5; i++) strata_array_finish(all[i]);
}

Test(moving_average, moves_each_element_by_its_rate) {
    double state[4];
    run(1, state);
    cr_assert_arr_eq(state, ((double[]){2, 9, 3, -INFINITY}), sizeof state);
}

Test(moving_average, changes_nothing_behind_a_closed_gate) {
    const double closed[] = {(double)NAN, (double)INFINITY};
    for (int i = 0; i < 2; i++) {
        double state[4];
        run(closed[i], state);
        cr_assert_arr_eq(state, ((double[]){1, 2, 3, -INFINITY}), sizeof state);
    }
}

static strata_tensor *average(strata_tensor *const *x, const void *user) {
    (void)user;
    return strata_moving_average(x[0], x[1], x[2], NULL);
}

Test(moving_average, rejects_a_state_that_is_no_variable) {
    strata_array x = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(3), 0);
    expect_rejected((op_case){average, NULL, (strata_array[]){x, x, x}, 3}, "it must come from strata_variable_read");
    strata_array_finish(&x);
}
