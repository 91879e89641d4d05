/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges of several replicas: gathers and scatters of uneven parts along any axis, messages of two devices, teams that
 * come in different orders, and groups whose nodes do not belong together. */
#include "core/run/exchange.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/trace.h"
#include "core/op/communication.h"
#include "core/op/element.h"
#include "core/run/group.h"
#include "strata/ops.h"

enum { MOST = 4, MANY = 130 };
static const strata_dtype f32 = STRATA_DTYPE_F32;

static strata_device *devices[MOST];
static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

static void open_devices(void) {
    for (int r = 0; r < MOST; r++) OK(strata_device_open("host", NULL, &devices[r], &err));
}
static void close_devices(void) {
    for (int r = 0; r < MOST; r++) strata_device_close(devices[r]);
}
TestSuite(exchange, .init = open_devices, .fini = close_devices);

static strata_graph *new_graph(void) {
    strata_graph *graph = NULL;
    OK(strata_graph_create(&graph, &err));
    return graph;
}

/* Destroys the graph. */
static strata_executable *compile(strata_graph *graph, int replica, strata_tensor *output, strata_tensor *update) {
    strata_executable *exe = NULL;
    OK(strata_executable_create_replica(devices[replica], &output, output != NULL, &update, update != NULL, NULL, NULL, &exe,
                                        &err));
    strata_graph_destroy(graph);
    return exe;
}

/* Element i of replica r's input. */
static float value(int r, int64_t i) {
    return (float)(100 * r + i) / 8;
}

/* One step of the replicas; replica r's input "x" has elements[r], which become value(). Returns the group, whose times are
 * parts of those of the step. */
static strata_group *run(strata_executable *const *replicas, int n, const int64_t *elements, const bool *contributes) {
    strata_group *group = NULL;
    int slot = 0;
    OK(strata_group_create(replicas, n, NULL, NULL, &group, &err));
    OK(strata_group_acquire(group, &slot, &err));
    for (int r = 0; r < n; r++) {
        strata_executable *exe = strata_group_replica(group, r);
        const int x = strata_executable_input_index(exe, "x");
        float *data = x < 0 ? NULL : strata_executable_input(exe, slot, x);
        for (int64_t i = 0; data && i < elements[r]; i++) data[i] = value(r, i);
    }
    const double began = strata_trace_now();
    OK(strata_group_start(group, slot, 0, &err));
    OK(strata_group_finish(group, slot, contributes, &err));
    OK(strata_group_wait(group, slot, &err));
    const double took = strata_trace_now() - began;
    const strata_group_counters c = strata_group_get_counters(group);
    cr_assert_eq(c.steps, 1);
    cr_assert(c.fold_seconds > 0 && c.wait_seconds >= 0 && c.fold_seconds + c.wait_seconds <= took,
              "exchanges took %g s, waits %g s of %g s", c.fold_seconds, c.wait_seconds, took);
    cr_assert(c.hidden_seconds >= 0 && c.hidden_seconds <= c.fold_seconds, "%g s of %g s", c.hidden_seconds, c.fold_seconds);
    return group;
}

/* Bytes of all replicas that the exchanges of a step read and wrote. */
static void expect_bytes(const strata_group *group, int64_t read, int64_t written) {
    const strata_group_counters c = strata_group_get_counters(group);
    cr_expect_eq(c.bytes_read, (uint64_t)read, "%llu bytes were read, not %lld", (unsigned long long)c.bytes_read,
                 (long long)read);
    cr_expect_eq(c.bytes_written, (uint64_t)written, "%llu bytes were written, not %lld", (unsigned long long)c.bytes_written,
                 (long long)written);
    cr_expect_eq(c.bytes_sent, 0);
}

static const float *output(strata_group *group, int replica) {
    return strata_executable_output(strata_group_replica(group, replica), 0, 0);
}

static strata_tensor *input(strata_graph *graph, strata_shape shape) {
    return strata_input(graph, "x", f32, shape);
}

Test(exchange, all_gather_lays_uneven_parts_end_to_end) {
    const int64_t lengths[3] = {2, 0, 3}, outer = 2, inner = 3;
    for (int axis = 0; axis < 3; axis++) {
        strata_executable *replicas[3];
        strata_shape shapes[3];
        int64_t elements[3];
        for (int r = 0; r < 3; r++) {
            shapes[r] = STRATA_SHAPE(outer, inner, 2);
            shapes[r].dims[axis] = lengths[r];
            elements[r] = strata_shape_elements(shapes[r]);
            strata_graph *graph = new_graph();
            strata_tensor *all =
                strata_all_gather_parts(strata_neg(input(graph, shapes[r])), (strata_team){0}, axis, lengths, 3, r);
            replicas[r] = compile(graph, r, strata_neg(all), NULL);
        }
        strata_group *group = run(replicas, 3, elements, (bool[]){true, false, true});
        int64_t whole[3] = {outer, inner, 2}, before = 1, after = 1;
        whole[axis] = 5;
        for (int d = 0; d < axis; d++) before *= whole[d];
        for (int d = axis + 1; d < 3; d++) after *= whole[d];
        for (int r = 0; r < 3; r++) {
            const float *got = output(group, r);
            for (int64_t o = 0; o < before; o++)
                for (int64_t k = 0, at = 0; k < 3; at += lengths[k++])
                    for (int64_t i = 0; i < lengths[k] * after; i++)
                        cr_assert_eq(got[(o * 5 + at) * after + i], value((int)k, o * lengths[k] * after + i), "axis %d", axis);
        }
        expect_bytes(group, before * 5 * after * 4, 3 * before * 5 * after * 4); /* each part is read once */
        strata_group_destroy(group);
    }
}

Test(exchange, reduce_scatter_gives_each_replica_its_part_of_the_sum) {
    const int64_t lengths[4] = {1, 4, 0, 2};
    const int64_t elements[4] = {21, 21, 21, 21};
    const bool all[4] = {true, true, true, true}, some[4] = {true, false, true, true};
    for (int mean = 0; mean < 2; mean++)
        for (int left_out = 0; left_out < 2; left_out++) {
            strata_executable *replicas[4], *summing[4];
            for (int r = 0; r < 4; r++) {
                strata_graph *graph = new_graph(), *other = new_graph();
                strata_tensor *x = strata_exp(strata_mul(input(graph, STRATA_SHAPE(7, 3)), strata_scalar(graph, f32, 0.01)));
                strata_tensor *y = strata_exp(strata_mul(input(other, STRATA_SHAPE(7, 3)), strata_scalar(other, f32, 0.01)));
                replicas[r] =
                    compile(graph, r,
                            strata_neg(strata_reduce_scatter_parts(graph, x, f32, STRATA_SHAPE(7, 3), (strata_team){0},
                                                                   (strata_reduction)mean, false, lengths, 4, r)),
                            NULL);
                summing[r] = compile(other, r, strata_neg(strata_all_reduce(y, (strata_reduction)mean)), NULL);
            }
            strata_group *scattered = run(replicas, 4, elements, left_out ? some : all),
                         *summed = run(summing, 4, elements, left_out ? some : all);
            for (int64_t r = 0, first = 0; r < 4; first += lengths[r++]) {
                /* An empty part has no memory. */
                if (!lengths[r]) continue;
                cr_assert_arr_eq(output(scattered, (int)r), output(summed, 0) + 3 * first, (size_t)(3 * lengths[r]) * 4,
                                 "the bits are all_reduce's");
            }
            const int64_t n = left_out ? 3 : 4;
            expect_bytes(scattered, n * 21 * 4, 21 * 4);
            expect_bytes(summed, n * 21 * 4, 4 * 21 * 4);
            strata_group_destroy(scattered);
            strata_group_destroy(summed);
        }
}

Test(exchange, the_gradient_of_all_gather_sums_every_replicas_part) {
    const int64_t lengths[2] = {2, 3};
    strata_executable *replicas[2];
    for (int r = 0; r < 2; r++) {
        strata_graph *graph = new_graph();
        strata_tensor *x = input(graph, STRATA_SHAPE(2, lengths[r])), *dx;
        strata_tensor *all = strata_all_gather_parts(x, (strata_team){0}, 1, lengths, 2, r);
        /* The loss of replica r is (r + 1) sum of squares of all parts: dx = 2 x (1 + 2). */
        strata_tensor *loss =
            strata_reduce_sum(strata_mul(strata_square(all), strata_scalar(graph, f32, r + 1)), NULL, 0, false);
        strata_gradients(loss, NULL, &x, 1, &dx);
        replicas[r] = compile(graph, r, strata_mul(dx, strata_scalar(graph, f32, 1)), NULL);
    }
    strata_group *group = run(replicas, 2, (int64_t[]){4, 6}, NULL);
    for (int r = 0; r < 2; r++)
        for (int64_t i = 0; i < 2 * lengths[r]; i++) cr_assert_float_eq(output(group, r)[i], 6 * value(r, i), 1e-3);
    strata_group_destroy(group);
}

Test(exchange, a_message_goes_from_one_device_to_another) {
    strata_graph *first = new_graph(), *second = new_graph(), *third = new_graph();
    strata_tensor *sent = strata_send(strata_neg(input(first, STRATA_SHAPE(5))), 7, 0, 2);
    strata_tensor *got = strata_neg(strata_recv(third, f32, STRATA_SHAPE(5), 7, 0, 2));
    strata_executable *replicas[3] = {compile(first, 0, NULL, sent),
                                      compile(second, 1, strata_neg(input(second, STRATA_SHAPE(1))), NULL),
                                      compile(third, 2, got, NULL)};
    strata_group *group = run(replicas, 3, (int64_t[]){5, 1, 0}, NULL);
    for (int i = 0; i < 5; i++) cr_assert_eq(output(group, 2)[i], value(0, i));
    cr_assert_eq(output(group, 1)[0], -value(1, 0));
    expect_bytes(group, 5 * 4, 5 * 4);
    strata_group_destroy(group);
}

Test(exchange, a_broadcast_reaches_those_who_take_it) {
    strata_executable *replicas[3];
    for (int r = 0; r < 3; r++) {
        strata_graph *graph = new_graph();
        const strata_communication_attrs attrs = {
            .team = {.local = true}, .dtype = f32, .shape = STRATA_SHAPE(4), .takes = r != 1};
        strata_tensor *node = strata_broadcast(graph, r == 1 ? strata_neg(input(graph, STRATA_SHAPE(4))) : NULL, attrs);
        replicas[r] = r == 1 ? compile(graph, r, NULL, node) : compile(graph, r, strata_neg(node), NULL);
    }
    strata_group *group =
        run(replicas, 3, (int64_t[]){0, 4, 0}, (bool[]){true, false, true}); /* a giver without examples gives all the same */
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(output(group, 0)[i], value(1, i));
        cr_assert_eq(output(group, 2)[i], value(1, i));
    }
    expect_bytes(group, 4 * 4, 2 * 4 * 4);
    strata_group_destroy(group);
}

static strata_status pass_on(const strata_workers *workers, int to, int64_t tag, const void *data, size_t bytes,
                             strata_error *error) {
    (void)error;
    cr_expect(to == 1 && tag == 7 && bytes == 12);
    memcpy(workers->communicator, data, bytes);
    return STRATA_OK;
}

static strata_status take(const strata_workers *workers, int from, int64_t tag, void *data, size_t bytes, strata_error *error) {
    (void)error;
    cr_expect(from == 1 && tag == 7 && bytes == 12);
    memcpy(data, workers->communicator, bytes);
    return STRATA_OK;
}

Test(exchange, a_message_between_workers_is_read_by_one_and_written_by_the_other) {
    float message[3] = {0}, got[3] = {0};
    const float value[3] = {1, 2, 3};
    const strata_workers workers = {
        .rank = 0, .n = 2, .n_replicas = 2, .send = pass_on, .receive = take, .communicator = message};
    strata_graph *graph = new_graph();
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(3));
    strata_exchange_member sender = {.node = strata_send_to_worker(x, 7, 0, 1), .operand = value, .gives = true};
    strata_exchange_member receiver = {
        .node = strata_recv_from_worker(graph, f32, STRATA_SHAPE(3), 7, 0, 1), .result = got, .takes = true};
    const void *operand;
    void *result;
    strata_exchange_job job = {.members = &sender, .n = 1, .workers = &workers, .operands = &operand, .results = &result};
    OK(strata_exchange_run(&job, &err));
    cr_expect(job.read == 12 && job.written == 0, "a sender reads %d bytes and writes %d", (int)job.read, (int)job.written);
    job.members = &receiver;
    OK(strata_exchange_run(&job, &err));
    cr_expect(job.read == 12 && job.written == 12, "together they read %d bytes and write %d", (int)job.read, (int)job.written);
    cr_expect_arr_eq(got, value, sizeof got);
    strata_graph_destroy(graph);
}

/* Another worker with one value for the mean, which is 3 everywhere. */
static strata_status add_threes(const strata_workers *workers, strata_dtype dtype, strata_dtype wire, const void *own,
                                void *out_sum, int64_t elements, strata_error *error) {
    (void)workers, (void)wire, (void)error;
    const double other = dtype == f32 ? 1 : 3; /* f32: the number of values */
    for (int64_t i = 0; i < elements; i++) strata_element_set(dtype, out_sum, i, strata_element_get(dtype, own, i) + other);
    return STRATA_OK;
}

Test(exchange, a_mean_over_workers_may_be_of_a_short_float) {
    const strata_workers workers = {.rank = 0, .n = 2, .n_replicas = 2, .sum = add_threes};
    for (strata_dtype dtype = STRATA_DTYPE_F16; dtype <= STRATA_DTYPE_BF16; dtype++) {
        uint16_t value[3] = {0}, got[3] = {0};
        const void *operand;
        void *result;
        strata_graph *graph = new_graph();
        strata_tensor *x = strata_input(graph, "x", dtype, STRATA_SHAPE(3));
        for (int i = 0; i < 3; i++) strata_element_set(dtype, value, i, i + 1);
        strata_exchange_member member = {.node = strata_all_reduce(x, STRATA_REDUCE_MEAN),
                                         .operand = value,
                                         .gives = true,
                                         .result = got,
                                         .takes = true,
                                         .counts = true};
        strata_exchange_job job = {.members = &member,
                                   .n = 1,
                                   .workers = &workers,
                                   .over_workers = true,
                                   .operands = &operand,
                                   .results = &result,
                                   .reads_results = true};
        OK(strata_exchange_run(&job, &err));
        for (int i = 0; i < 3; i++) cr_expect_eq(strata_element_get(dtype, got, i), (i + 1 + 3) / 2.0);
        strata_graph_destroy(graph);
    }
}

/* The sum over the devices [first, first + n) in this team; n 0: over all. */
static strata_tensor *sum_in(strata_tensor *x, int64_t team, int64_t first, int n) {
    const int64_t members[] = {first, first + 1, first + 2};
    const strata_communication_attrs common = {
        .team = strata_team_make(x->graph, team, members, n), .dtype = x->dtype, .shape = x->shape};
    return strata_all_reduce_among(x->graph, x, (strata_all_reduce_attrs){.common = common});
}

/* Pairs (0, 1), (1, 2) and all three: each replica has the nodes of its teams only, in an order of its own. */
Test(exchange, teams_may_come_in_different_orders) {
    strata_graph *graphs[3];
    strata_tensor *x[3];
    for (int r = 0; r < 3; r++) {
        graphs[r] = new_graph();
        x[r] = input(graphs[r], STRATA_SHAPE(3));
    }
    strata_tensor *a = sum_in(strata_neg(sum_in(strata_neg(x[0]), 1, 0, 2)), 0, 0, 0);
    strata_tensor *b = sum_in(strata_neg(sum_in(strata_neg(x[1]), 1, 0, 2)), 0, 0, 0);
    b = strata_add(b, sum_in(strata_neg(x[1]), 2, 1, 2));
    strata_tensor *c = sum_in(strata_neg(x[2]), 0, 0, 0);
    c = strata_add(c, sum_in(strata_neg(x[2]), 2, 1, 2));
    strata_executable *replicas[3] = {compile(graphs[0], 0, strata_neg(a), NULL), compile(graphs[1], 1, strata_neg(b), NULL),
                                      compile(graphs[2], 2, strata_neg(c), NULL)};
    strata_group *group = run(replicas, 3, (int64_t[]){3, 3, 3}, NULL);
    for (int i = 0; i < 3; i++) {
        const float v0 = value(0, i), v1 = value(1, i), v2 = value(2, i), all = 2 * (v0 + v1) - v2;
        cr_assert_eq(output(group, 0)[i], -all);
        cr_assert_eq(output(group, 1)[i], -all + v1 + v2);
        cr_assert_eq(output(group, 2)[i], -all + v1 + v2);
    }
    cr_assert_eq(strata_group_n_exchanges(group), 3);
    strata_group_destroy(group);
}

/* Device d sums with the other device of its pair, then with those of all pairs that have the same place in their pair, and the
 * first device sends a value to the last. */
Test(exchange, teams_list_devices_of_any_number) {
    strata_device *many[MANY];
    strata_executable *replicas[MANY];
    strata_group *group = NULL;
    int slot = 0;
    int64_t every_second[MANY / 2];
    for (int d = 0; d < MANY; d++) {
        strata_graph *graph = new_graph();
        const int64_t pair[] = {d / 2 * 2, d / 2 * 2 + 1};
        OK(strata_device_open("host", NULL, &many[d], &err));
        for (int i = 0; i < MANY / 2; i++) every_second[i] = 2 * i + d % 2;
        strata_tensor *x = strata_neg(input(graph, STRATA_SHAPE(1)));
        strata_all_reduce_attrs attrs = {.common = {.dtype = f32, .shape = STRATA_SHAPE(1)}};
        attrs.common.team = strata_team_make(graph, 1 + d / 2, pair, 2);
        x = strata_neg(strata_all_reduce_among(graph, x, attrs));
        attrs.common.team = strata_team_make(graph, MANY + d % 2, every_second, MANY / 2);
        strata_tensor *sum = strata_all_reduce_among(graph, x, attrs), *sent = NULL;
        if (d == 0) sent = strata_send(x, 2 * MANY, 0, MANY - 1);
        if (d == MANY - 1) sum = strata_add(sum, strata_recv(graph, f32, STRATA_SHAPE(1), 2 * MANY, 0, MANY - 1));
        strata_tensor *y = strata_neg(sum);
        OK(strata_executable_create_replica(many[d], &y, 1, &sent, sent != NULL, NULL, NULL, &replicas[d], &err));
        strata_graph_destroy(graph);
    }
    OK(strata_group_create(replicas, MANY, NULL, NULL, &group, &err));
    cr_assert_eq(strata_group_n_exchanges(group), MANY / 2 + 3);
    OK(strata_group_acquire(group, &slot, &err));
    for (int d = 0; d < MANY; d++) *(float *)strata_executable_input(replicas[d], slot, 0) = (float)d;
    OK(strata_group_start(group, slot, 0, &err));
    OK(strata_group_finish(group, slot, NULL, &err));
    OK(strata_group_wait(group, slot, &err));
    /* The sum of 0 to MANY - 1; the first pair's sum is 1. */
    const float sum = MANY * (MANY - 1) / 2;
    for (int d = 0; d < MANY; d++)
        cr_assert_eq(*(const float *)strata_executable_output(replicas[d], slot, 0), -sum - (d == MANY - 1 ? 1 : 0));
    strata_group_destroy(group);
    for (int d = 0; d < MANY; d++) strata_device_close(many[d]);
}

static void expect_refused(strata_executable *a, strata_executable *b, const char *words) {
    strata_group *group = NULL;
    cr_assert_eq(strata_group_create((strata_executable *[]){a, b}, 2, NULL, NULL, &group, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
}

static strata_executable *with_sums(int replica, int64_t first, int64_t second) {
    strata_graph *graph = new_graph();
    strata_tensor *x = strata_neg(sum_in(strata_neg(input(graph, STRATA_SHAPE(2))), first, 0, 2));
    return compile(graph, replica, strata_neg(sum_in(x, second, 0, 2)), NULL);
}

static strata_executable *gathering(int replica, int64_t first, int64_t second) {
    strata_graph *graph = new_graph();
    const int64_t lengths[2] = {first, second};
    strata_tensor *x = strata_neg(input(graph, STRATA_SHAPE(lengths[replica])));
    return compile(graph, replica, strata_neg(strata_all_gather_parts(x, (strata_team){0}, 0, lengths, 2, replica)), NULL);
}

Test(exchange, what_does_not_belong_together_is_refused) {
    expect_refused(with_sums(0, 1, 2), with_sums(1, 2, 1), "same communications in the same order");
    expect_refused(gathering(0, 2, 3), gathering(1, 1, 3), "(5)");
    strata_graph *graph = new_graph();
    strata_tensor *sent = strata_send(strata_neg(input(graph, STRATA_SHAPE(2))), 1, 0, 1);
    strata_graph *other = new_graph();
    expect_refused(compile(graph, 0, NULL, sent), compile(other, 1, strata_neg(input(other, STRATA_SHAPE(2))), NULL),
                   "has nothing there");
    graph = new_graph();
    sent = strata_send(strata_neg(input(graph, STRATA_SHAPE(2))), 1, 0, 1);
    other = new_graph();
    strata_tensor *got = strata_recv(other, f32, STRATA_SHAPE(3), 1, 0, 1);
    expect_refused(compile(graph, 0, NULL, sent), compile(other, 1, strata_neg(got), NULL), "(3)");
}

Test(exchange, wrong_parts_poison_the_graph) {
    strata_graph *graph = new_graph();
    strata_tensor *x = input(graph, STRATA_SHAPE(2, 3));
    strata_all_gather_parts(x, (strata_team){0}, 1, (const int64_t[]){3, 4}, 2, 1);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "part 1 of 2"), "%s", err.message);
    strata_graph_destroy(graph);
    graph = new_graph();
    x = input(graph, STRATA_SHAPE(6, 3));
    strata_reduce_scatter_parts(graph, x, f32, STRATA_SHAPE(6, 3), (strata_team){0}, STRATA_REDUCE_SUM, false,
                                (const int64_t[]){3, 4}, 2, 0);
    cr_assert_eq(strata_graph_check(graph, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "7 rows"), "%s", err.message);
    strata_graph_destroy(graph);
}
