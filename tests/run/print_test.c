/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes that show values, on the host: when they are part of a program, what they cost, in which order runs are shown. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/base/locale.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/support/restricted.h"

static const strata_dtype f32 = STRATA_DTYPE_F32;
static strata_device *device;
static strata_graph *graph;
static strata_tensor *x;
static char shown[4096];

static void note(const strata_printed *printed, void *user) {
    const size_t used = strlen(shown);
    strata_format(shown + used, sizeof shown - used, "%s%s %g", used ? ", " : "", printed->name, printed->mean);
    if (user) ++*(int *)user;
}

static void open(strata_print_callback on_print) {
    strata_error err = {0};
    cr_assert_eq(strata_device_open("host", &(strata_device_options){.on_print = on_print}, &device, &err), STRATA_OK, "%s",
                 err.message);
}

static void begin(void) {
    open(note);
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    x = strata_input(graph, "x", f32, STRATA_SHAPE(3));
}

static void end(void) {
    strata_graph_destroy(graph);
    strata_device_close(device);
}

TestSuite(run_print, .init = begin, .fini = end);

static strata_executable *compile(strata_tensor *const *outputs, int n, strata_tensor *const *updates, int n_updates) {
    strata_executable *exe = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_executable_create(device, outputs, n, updates, n_updates, NULL, &exe, &err), STRATA_OK, "%s",
                 err.message);
    return exe;
}

static void submit(strata_executable *exe, float value, int *out_slot) {
    cr_assert_eq(strata_executable_acquire(exe, out_slot, NULL), STRATA_OK);
    for (int i = 0; i < 3; i++) ((float *)strata_executable_input(exe, *out_slot, 0))[i] = value;
    cr_assert_eq(strata_executable_submit(exe, *out_slot, NULL), STRATA_OK);
}

static void run_once(strata_executable *exe, float value) {
    int slot;
    submit(exe, value, &slot);
    cr_assert_eq(strata_executable_wait(exe, slot, NULL), STRATA_OK);
}

static strata_tensor *named(strata_tensor *value, const char *name) {
    return strata_print(value, &(strata_print_options){.name = name});
}

static int count_nodes(bool printed) {
    strata_tensor *y = strata_square(x);
    if (printed) y = strata_print(y, NULL);
    y = strata_exp(strata_neg(y));
    strata_executable *exe = compile(&y, 1, NULL, 0);
    const int n = strata_executable_get_stats(exe).n_nodes;
    strata_executable_destroy(exe);
    return n;
}

Test(run_print, costs_nothing_where_nobody_takes_values) {
    strata_device_close(device);
    open(NULL);
    cr_assert_eq(count_nodes(true), count_nodes(false));
}

Test(run_print, other_nodes_are_fused_as_before) {
    cr_assert_eq(count_nodes(false), 1); /* a chain */
    cr_assert_eq(count_nodes(true), 3);  /* what is shown, its copy for the host, and a chain of the rest */
}

Test(run_print, shows_what_the_program_needs_alone) {
    strata_tensor *y = strata_neg(named(x, "needed"));
    named(strata_exp(x), "dead");
    strata_executable *exe = compile(&y, 1, NULL, 0);
    run_once(exe, 1);
    cr_assert_str_eq(shown, "needed 1");
    strata_executable_destroy(exe);
}

Test(run_print, an_update_keeps_it_alive) {
    strata_tensor *y = strata_neg(x), *kept[] = {named(strata_square(x), "kept"), named(x, "input")};
    strata_executable *exe = compile(&y, 1, kept, 2);
    run_once(exe, 3);
    cr_assert_str_eq(shown, "kept 9, input 3");
    strata_executable_destroy(exe);
}

Test(run_print, may_be_an_output_itself_and_shows_a_value_twice) {
    strata_tensor *y = named(named(x, "a"), "b");
    strata_executable *exe = compile(&y, 1, NULL, 0);
    int slot;
    submit(exe, 2, &slot);
    cr_assert_eq(strata_executable_wait(exe, slot, NULL), STRATA_OK);
    cr_assert_str_eq(shown, "a 2, b 2");
    cr_assert_eq(((const float *)strata_executable_output(exe, slot, 0))[0], 2);
    cr_assert_null(strata_executable_output(exe, slot, 1), "what is shown is no output of the caller's");
    strata_executable_destroy(exe);
}

Test(run_print, a_variables_value_is_that_before_its_update) {
    strata_variable *v = NULL;
    cr_assert_eq(strata_variable_create(device, "v", f32, STRATA_SHAPE(3), &v, NULL), STRATA_OK);
    strata_tensor *read = named(strata_variable_read(graph, v), "before");
    strata_tensor *added = strata_assign_add(strata_variable_read(graph, v), x), *after = named(added, "after");
    strata_tensor *y = strata_add(strata_neg(read), after);
    strata_executable *exe = compile(&y, 1, &added, 1);
    run_once(exe, 1);
    run_once(exe, 1);
    cr_assert_str_eq(shown, "before 0, after 1, before 1, after 2");
    strata_executable_destroy(exe);
    strata_variable_destroy(v);
}

Test(run_print, runs_are_shown_in_their_order_whatever_is_waited_for_first) {
    strata_tensor *y = strata_neg(named(x, "x"));
    strata_executable *exe = compile(&y, 1, NULL, 0);
    int slots[3];
    for (int i = 0; i < 3; i++) submit(exe, (float)i, &slots[i]);
    cr_assert_str_eq(shown, "");
    cr_assert_eq(strata_executable_wait(exe, slots[1], NULL), STRATA_OK);
    cr_assert_str_eq(shown, "x 0, x 1");
    cr_assert_eq(strata_executable_wait(exe, slots[0], NULL), STRATA_OK);
    strata_executable_destroy(exe); /* which waits */
    cr_assert_str_eq(shown, "x 0, x 1, x 2");
}

Test(run_print, empty_values_have_no_numbers) {
    strata_tensor *empty = strata_input(graph, "empty", f32, STRATA_SHAPE(0, 4));
    strata_tensor *y = strata_neg(named(empty, "none"));
    strata_executable *exe = compile(&y, 1, NULL, 0);
    int slot;
    cr_assert_eq(strata_executable_acquire(exe, &slot, NULL), STRATA_OK);
    cr_assert_eq(strata_executable_submit(exe, slot, NULL), STRATA_OK);
    cr_assert_eq(strata_executable_wait(exe, slot, NULL), STRATA_OK);
    cr_assert_str_eq(shown, "none 0");
    strata_executable_destroy(exe);
}

Test(run_print, a_device_with_the_hosts_help_shows_them_too) {
    int n = 0;
    strata_error err = {0};
    strata_device_close(device);
    const strata_device_options opts = {.on_print = note, .fallback_to_host = true, .user = &n};
    cr_assert_eq(strata_device_open("host", &opts, &device, &err), STRATA_OK, "%s", err.message);
    strata_tensor *y = strata_neg(named(x, "x"));
    strata_executable *exe = compile(&y, 1, NULL, 0);
    run_once(exe, 1);
    cr_assert_eq(n, 1);
    strata_executable_destroy(exe);
}

Test(run_print, a_graph_with_a_mistake_is_refused_with_its_message) {
    strata_tensor *shown_value = strata_print(x, NULL);
    strata_tensor *wrong = strata_add(shown_value, strata_input(graph, "y", f32, STRATA_SHAPE(4)));
    strata_executable *exe = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_executable_create(device, (strata_tensor *[]){shown_value, wrong}, 2, NULL, 0, NULL, &exe, &err),
                 STRATA_INVALID);
    cr_assert(strstr(err.message, "(4)"), "%s", err.message);
}
