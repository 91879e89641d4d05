/* SPDX-License-Identifier: Apache-2.0
 *
 * sgd and adam: three steps compared with NumPy, the gate, and which operands they refuse. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/op/ops.h"
#include "tests/op/op_case.h"
#include "tests/support/eval.h"

enum { N = 11, N_SLOTS = 3 };

/* Parameters and up to two slots, a graph with one step, and the arrays with their values. */
typedef struct trainer {
    strata_graph *graph;
    strata_variable variables[N_SLOTS];
    strata_tensor *reads[N_SLOTS], *gradients, *step, *gate, *update;
    strata_array values[N_SLOTS], gradient_values, step_values, gate_value;
} trainer;

static void start(trainer *t, const strata_array *parameters) {
    static const char *const names[N_SLOTS] = {"parameters", "first", "second"};
    cr_assert_eq(strata_graph_create(&t->graph, NULL), STRATA_OK);
    for (int i = 0; i < N_SLOTS; i++) {
        t->variables[i] = strata_test_variable(names[i], STRATA_DTYPE_F32, STRATA_SHAPE(N));
        t->reads[i] = strata_variable_read(t->graph, &t->variables[i]);
        t->values[i] = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N), 0);
    }
    memcpy(t->values[0].data, parameters->data, N * sizeof(float));
    t->gradients = strata_input(t->graph, "gradients", STRATA_DTYPE_F32, STRATA_SHAPE(N));
    t->step = strata_input(t->graph, "step", STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS));
    t->gate = strata_input(t->graph, "gate", STRATA_DTYPE_F32, STRATA_SHAPE());
    /* the step may read only the learning rate */
    t->step_values = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(STRATA_STEP_WORDS), NAN);
    t->gate_value = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(), 0);
}

static void finish(trainer *t) {
    for (int i = 0; i < N_SLOTS; i++) strata_array_finish(&t->values[i]);
    strata_array_finish(&t->step_values);
    strata_array_finish(&t->gate_value);
    strata_graph_destroy(t->graph);
}

static void step(trainer *t, const strata_array *gradients, double learning_rate) {
    t->gradient_values = *gradients;
    ((float *)t->step_values.data)[STRATA_STEP_LEARNING_RATE] = (float)learning_rate;
    strata_test_feed feeds[] = {{&t->variables[0], &t->values[0]}, {&t->variables[1], &t->values[1]},
                                {&t->variables[2], &t->values[2]}, {t->gradients, &t->gradient_values},
                                {t->step, &t->step_values},        {t->gate, &t->gate_value}};
    strata_array result;
    strata_error err;
    strata_status status = strata_test_eval(&t->update, 1, feeds, 6, &result, &err);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    strata_test_result same = strata_test_same(&result, &t->values[0]);
    cr_assert(same.ok, "the result is not the new value: %s", same.text);
    strata_array_finish(&result);
}

static void expect(const strata_array *got, const strata_golden *golden, const char *name) {
    strata_test_result result = strata_test_compare(got, strata_golden_get(golden, name), (strata_test_tolerance){0x1p-23, 0});
    cr_assert(result.ok, "%s: %s", name, result.text);
}

static void build_sgd(trainer *t, double momentum, bool nesterov, bool gated) {
    t->update = strata_sgd(t->reads[0], momentum != 0 ? t->reads[1] : NULL, t->gradients, t->step, gated ? t->gate : NULL,
                           momentum, nesterov);
}

static void build_adam(trainer *t, bool gated) {
    t->update =
        strata_adam(t->reads[0], t->reads[1], t->reads[2], t->gradients, t->step, gated ? t->gate : NULL, 0.9, 0.999, 1e-7);
}

static const strata_array *gradients_of(const strata_golden *golden, int t) {
    char name[32];
    snprintf(name, sizeof name, "gradients_%d", t);
    return strata_golden_get(golden, name);
}

static double number(const strata_golden *golden, const char *name) {
    return strata_element_get(STRATA_DTYPE_F32, strata_golden_get(golden, name)->data, 0);
}

Test(sgd, three_steps_agree_with_numpy_plain_with_momentum_and_nesterov) {
    static const struct {
        const char *name, *velocity;
        double momentum;
        bool nesterov;
    } forms[] = {
        {"sgd", NULL, 0, false}, {"momentum", "momentum_velocity", 0.9, false}, {"nesterov", "nesterov_velocity", 0.9, true}};
    strata_golden *golden = strata_golden_load("optimizer");
    for (int f = 0; f < 3; f++) {
        for (int gated = 0; gated < 2; gated++) {
            trainer t;
            start(&t, strata_golden_get(golden, "parameters"));
            build_sgd(&t, forms[f].momentum, forms[f].nesterov, gated);
            for (int i = 0; i < 3; i++) step(&t, gradients_of(golden, i), number(golden, "learning_rate"));
            expect(&t.values[0], golden, forms[f].name);
            if (forms[f].velocity) expect(&t.values[1], golden, forms[f].velocity);
            finish(&t);
        }
    }
    strata_golden_destroy(golden);
}

Test(adam, three_steps_agree_with_numpy) {
    strata_golden *golden = strata_golden_load("optimizer");
    for (int gated = 0; gated < 2; gated++) {
        trainer t;
        start(&t, strata_golden_get(golden, "parameters"));
        build_adam(&t, gated);
        for (int i = 0; i < 3; i++) {
            char name[32];
            snprintf(name, sizeof name, "adam_rate_%d", i);
            step(&t, gradients_of(golden, i), number(golden, name));
        }
        expect(&t.values[0], golden, "adam");
        expect(&t.values[1], golden, "adam_m");
        expect(&t.values[2], golden, "adam_v");
        finish(&t);
    }
    strata_golden_destroy(golden);
}

Test(optimizer, fewer_gradients_update_the_first_elements_alone) {
    enum { FEW = 4 };
    strata_golden *golden = strata_golden_load("optimizer");
    const strata_array *before = strata_golden_get(golden, "parameters");
    trainer whole, few;
    start(&whole, before);
    start(&few, before);
    build_adam(&whole, false);
    few.update = strata_adam(few.reads[0], few.reads[1], few.reads[2],
                             strata_slice(few.gradients, (int64_t[]){0}, (int64_t[]){FEW}), few.step, NULL, 0.9, 0.999, 1e-7);
    step(&whole, gradients_of(golden, 0), 0.1);
    step(&few, gradients_of(golden, 0), 0.1);
    for (int i = 0; i < N; i++)
        cr_assert_eq(((float *)few.values[0].data)[i], ((float *)(i < FEW ? whole.values[0].data : before->data))[i],
                     "element %d", i);
    finish(&whole);
    finish(&few);
    strata_golden_destroy(golden);
}

Test(optimizer, nothing_changes_while_the_gate_is_not_finite) {
    static const double gates[] = {NAN, INFINITY, -INFINITY};
    strata_golden *golden = strata_golden_load("optimizer");
    const strata_array *before = strata_golden_get(golden, "parameters");
    for (int g = 0; g < 3; g++) {
        for (int which = 0; which < 2; which++) {
            trainer t;
            start(&t, before);
            if (which)
                build_adam(&t, true);
            else
                build_sgd(&t, 0.9, false, true);
            strata_element_set(STRATA_DTYPE_F32, t.gate_value.data, 0, gates[g]);
            step(&t, gradients_of(golden, 0), 0.1);
            cr_assert_arr_eq(t.values[0].data, before->data, N * sizeof(float));
            for (int i = 0; i < N; i++) {
                cr_assert_eq(((float *)t.values[1].data)[i], 0);
                cr_assert_eq(((float *)t.values[2].data)[i], 0);
            }
            finish(&t);
        }
    }
    strata_golden_destroy(golden);
}

/* The op declares which operands, besides the first one, it writes. */
Test(optimizer, says_what_it_writes) {
    cr_assert_eq(strata_op_sgd.also_writes, 1u << 1);
    cr_assert_eq(strata_op_adam.also_writes, 1u << 1 | 1u << 2);
    cr_assert(strata_op_sgd.flags & STRATA_OP_UPDATE && strata_op_adam.flags & STRATA_OP_UPDATE);
}

/* Expects that building the graph of `t` failed with these words. */
static void expect_refused(trainer *t, const char *words) {
    strata_error err = {0};
    cr_assert_eq(strata_graph_check(t->graph, &err), STRATA_INVALID, "it was not refused: %s", words);
    cr_assert(strstr(err.message, words), "the message is \"%s\"; it should say \"%s\"", err.message, words);
    finish(t);
}

typedef void (*mistake)(trainer *t);

static void momentum_without_velocity(trainer *t) {
    strata_sgd(t->reads[0], NULL, t->gradients, t->step, NULL, 0.9, false);
}
static void velocity_without_momentum(trainer *t) {
    strata_sgd(t->reads[0], t->reads[1], t->gradients, t->step, NULL, 0, false);
}
static void nesterov_without_momentum(trainer *t) {
    strata_sgd(t->reads[0], NULL, t->gradients, t->step, NULL, 0, true);
}
static void negative_momentum(trainer *t) {
    strata_sgd(t->reads[0], t->reads[1], t->gradients, t->step, NULL, -1, false);
}
static void parameters_not_a_variable(trainer *t) {
    strata_sgd(strata_neg(t->reads[0]), NULL, t->gradients, t->step, NULL, 0, false);
}
static void one_variable_twice(trainer *t) {
    strata_adam(t->reads[0], t->reads[1], t->reads[1], t->gradients, t->step, NULL, 0.9, 0.999, 1e-7);
}
static void long_gradients(trainer *t) {
    strata_tensor *g = strata_input(t->graph, "g", STRATA_DTYPE_F32, STRATA_SHAPE(N + 1));
    strata_adam(t->reads[0], t->reads[1], t->reads[2], g, t->step, NULL, 0.9, 0.999, 1e-7);
}
static void half_gradients(trainer *t) {
    strata_tensor *g = strata_cast(t->gradients, STRATA_DTYPE_F16);
    strata_adam(t->reads[0], t->reads[1], t->reads[2], g, t->step, NULL, 0.9, 0.999, 1e-7);
}
static void short_step(trainer *t) {
    strata_adam(t->reads[0], t->reads[1], t->reads[2], t->gradients, t->gate, NULL, 0.9, 0.999, 1e-7);
}
static void long_gate(trainer *t) {
    strata_adam(t->reads[0], t->reads[1], t->reads[2], t->gradients, t->step, t->gradients, 0.9, 0.999, 1e-7);
}
static void beta_of_one(trainer *t) {
    strata_adam(t->reads[0], t->reads[1], t->reads[2], t->gradients, t->step, NULL, 0.9, 1, 1e-7);
}

Test(optimizer, refuses_what_does_not_fit_and_says_why) {
    static const struct {
        mistake make;
        const char *words;
    } mistakes[] = {
        {momentum_without_velocity, "sgd: velocity is NULL; with momentum 0.9 it must be a variable"},
        {velocity_without_momentum, "sgd: velocity is given; with momentum 0 it must be NULL"},
        {nesterov_without_momentum, "nesterov needs momentum"},
        {negative_momentum, "momentum is -1; it must be at least 0"},
        {parameters_not_a_variable, "parameters is the result of neg; it is changed in place"},
        {one_variable_twice, "m and v are one variable; they must be two"},
        {long_gradients, "adam: parameters is (11), gradients is (12); they must be equal"},
        {half_gradients, "gradients is f16; it must be f32"},
        {short_step, "step is (); it must be (8)"},
        {long_gate, "gate is (11); it must be one number"},
        {beta_of_one, "beta1 is 0.9, beta2 is 1; they must be at least 0 and below 1"},
    };
    strata_array parameters = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(N), 1);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        trainer t;
        start(&t, &parameters);
        mistakes[i].make(&t);
        expect_refused(&t, mistakes[i].words);
    }
    strata_array_finish(&parameters);
}
