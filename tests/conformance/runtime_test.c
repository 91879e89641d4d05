/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device must do besides computing ops: memory, programs that run repeatedly, the order of updates, memory plans in
 * which values share bytes, counters, and errors with a reason. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/op/matmul.h"
#include "core/op/ops.h"
#include "strata/ops.h"
#include "strata/philox.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/run_case.h"

static const strata_device_options untuned = {.no_tune = true};
static const strata_dtype f32 = STRATA_DTYPE_F32;

#define OK(call)                                                                                     \
    do {                                                                                             \
        strata_error ok_err = {0}, *err = &ok_err;                                                   \
        strata_status ok_status = (call);                                                            \
        cr_assert_eq(ok_status, STRATA_OK, "%s: %s", strata_status_name(ok_status), ok_err.message); \
    } while (0)

/* ---- memory ---- */
static void use_memory(strata_device *device) {
    enum { BYTES = 1000 };
    const strata_device_api *api = device->api;
    unsigned char out[BYTES], in[BYTES];
    uint64_t before = device->counters.allocated_bytes;
    strata_buffer *buffer = NULL;
    strata_error failure = {0};
    OK(api->buffer_create(device, BYTES, &buffer, err));
    OK(api->download(device, buffer, 0, in, BYTES, err));
    for (int i = 0; i < BYTES; i++) cr_assert_eq(in[i], 0, "%s: byte %d of a new buffer is %d", device->info.id, i, in[i]);
    for (int i = 0; i < BYTES; i++) out[i] = (unsigned char)(i * 7 + 1);
    OK(api->upload(device, buffer, 0, out, BYTES, err));
    OK(api->upload(device, buffer, 13, out, 101, err));
    OK(api->download(device, buffer, 11, in, 105, err));
    cr_assert_arr_eq(in, out + 11, 2);
    cr_assert_arr_eq(in + 2, out, 101);
    cr_assert_arr_eq(in + 103, out + 114, 2);
    static const int64_t outside[][2] = {{0, BYTES + 1}, {BYTES, 1}, {-1, 4}, {4, -1}, {INT64_MAX, 4}, {990, 11}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        cr_expect_eq(api->upload(device, buffer, outside[i][0], out, outside[i][1], &failure), STRATA_INVALID,
                     "%s: upload of %lld at %lld", device->info.id, (long long)outside[i][1], (long long)outside[i][0]);
        cr_expect_eq(api->download(device, buffer, outside[i][0], in, outside[i][1], &failure), STRATA_INVALID,
                     "%s: download of %lld at %lld", device->info.id, (long long)outside[i][1], (long long)outside[i][0]);
        cr_expect(strstr(failure.message, "1000"), "the message does not name the size: %s", failure.message);
    }
    api->buffer_destroy(device, buffer);
    cr_expect_eq(device->counters.allocated_bytes, before, "%s: bytes are still counted", device->info.id);
}

Test(conformance_runtime, memory_is_zeroed_copied_by_offset_and_guarded) {
    conformance_each_device(&untuned, use_memory);
}

static void use_ranges(strata_device *device) {
    strata_variable *variable = NULL;
    strata_error failure = {0};
    float three[3] = {1, 2, 3}, got[7] = {9, 9, 9, 9, 9, 9, 9};
    strata_array part = strata_array_view(f32, STRATA_SHAPE(3), three), whole = strata_array_view(f32, STRATA_SHAPE(7), got);
    OK(strata_variable_create(device, "v", f32, STRATA_SHAPE(7), &variable, err));
    OK(strata_variable_set_range(variable, 16, &part, err));
    OK(strata_variable_get(variable, &whole, err));
    cr_assert_arr_eq(got, ((float[7]){0, 0, 0, 0, 1, 2, 3}), sizeof got);
    cr_expect_eq(strata_variable_set_range(variable, 20, &part, &failure), STRATA_INVALID);
    cr_expect_eq(strata_variable_set_range(variable, 2, &part, &failure), STRATA_INVALID);
    cr_expect_eq(strata_variable_get_range(variable, -4, &part, &failure), STRATA_INVALID);
    strata_variable_destroy(variable);
}

Test(conformance_runtime, parts_of_variables) {
    conformance_each_device(&untuned, use_ranges);
}

/* ---- repeated runs ---- */

/* y = relu(x w + b) (x w + b)' with a constant among the operands, and the update v <- v + sum y. */
typedef struct net {
    strata_variable *v;
    strata_graph *graph;
    strata_executable *exe;
    strata_array x, w;
} net;
enum { NET_M = 33, NET_K = 65, NET_N = 17 };

static void net_make(net *net, strata_device *device, int n_slots) {
    *net = (struct net){0};
    net->x = strata_test_random(f32, STRATA_SHAPE(NET_M, NET_K), -1, 1, 1);
    net->w = strata_test_random(f32, STRATA_SHAPE(NET_K, NET_N), -1, 1, 2);
    OK(strata_graph_create(&net->graph, err));
    OK(strata_variable_create(device, "v", f32, STRATA_SHAPE(), &net->v, err));
    strata_tensor *x = strata_input(net->graph, "x", f32, net->x.shape), *w = strata_constant(net->graph, &net->w);
    strata_tensor *y = strata_relu(strata_matmul(x, w, false, false));
    strata_tensor *z = strata_softmax(strata_matmul(y, y, false, true));
    strata_tensor *update = strata_assign_add(strata_variable_read(net->graph, net->v), strata_reduce_sum(y, NULL, 0, false));
    OK(strata_executable_create(device, &z, 1, &update, 1, &(strata_executable_options){.n_slots = n_slots}, &net->exe, err));
}

static void net_finish(net *net) {
    strata_executable_destroy(net->exe);
    strata_variable_destroy(net->v);
    strata_graph_destroy(net->graph);
    strata_array_finish(&net->x);
    strata_array_finish(&net->w);
}

static float net_sum(const net *net) {
    float sum = 0;
    strata_array view = strata_array_view(f32, STRATA_SHAPE(), &sum);
    OK(strata_variable_get(net->v, &view, err));
    return sum;
}

static void net_submit(net *net, int *out_slot) {
    OK(strata_executable_acquire(net->exe, out_slot, err));
    memcpy(strata_executable_input(net->exe, *out_slot, 0), net->x.data, strata_array_bytes(&net->x));
    OK(strata_executable_submit(net->exe, *out_slot, err));
}

static void replay(strata_device *device) {
    enum { RUNS = 12, SLOTS = 3, BYTES = NET_M * NET_M * 4 };
    static float first[NET_M * NET_M];
    net net;
    int slot = 0;
    net_make(&net, device, SLOTS);
    net_submit(&net, &slot);
    OK(strata_executable_wait(net.exe, slot, err));
    memcpy(first, strata_executable_output(net.exe, slot, 0), BYTES);
    float sum = net_sum(&net);
    strata_device_counters before = strata_device_get_counters(device);
    for (int i = 1; i < RUNS; i++) net_submit(&net, &slot);
    for (int i = 0; i < SLOTS; i++) OK(strata_executable_wait(net.exe, i, err));
    strata_device_counters after = strata_device_get_counters(device);
    cr_expect_eq(after.allocations, before.allocations, "%s: a replay allocates", device->info.id);
    cr_expect_eq(after.compilations, before.compilations, "%s: a replay compiles", device->info.id);
    cr_expect_eq(after.submissions, before.submissions + RUNS - 1, "%s: %llu submissions for %d runs", device->info.id,
                 (unsigned long long)(after.submissions - before.submissions), RUNS - 1);
    cr_expect_gt(after.launches, before.launches);
    for (int i = 0; i < SLOTS; i++)
        cr_expect_eq(memcmp(first, strata_executable_output(net.exe, i, 0), BYTES), 0, "%s: slot %d has other bits",
                     device->info.id, i);
    float want = sum;
    for (int i = 1; i < RUNS; i++) want += sum;
    cr_expect_float_eq(net_sum(&net), want, 1e-4 * want, "%s: the updates of %d runs give %g, not %g", device->info.id, RUNS,
                       net_sum(&net), want);
    cr_expect_eq(strata_executable_submit(net.exe, SLOTS, NULL), STRATA_INVALID);
    cr_expect_null(strata_executable_input(net.exe, 0, 1));
    net_finish(&net);

    static float again[NET_M * NET_M]; /* another executable of the same program gives the same bits */
    net_make(&net, device, 1);
    net_submit(&net, &slot);
    OK(strata_executable_wait(net.exe, slot, err));
    memcpy(again, strata_executable_output(net.exe, slot, 0), BYTES);
    cr_expect_eq(memcmp(first, again, BYTES), 0, "%s: compiled once more, the program gives other bits", device->info.id);
    net_finish(&net);
}

Test(conformance_runtime, replays_give_the_same_bits_and_neither_allocate_nor_compile) {
    conformance_each_device(&untuned, replay);
}

/* ---- order of reads and updates ---- */
static void update_in_order(strata_device *device) {
    strata_graph *graph = NULL;
    strata_variable *v = NULL;
    strata_executable *exe = NULL;
    OK(strata_graph_create(&graph, err));
    OK(strata_variable_create(device, "v", f32, STRATA_SHAPE(4), &v, err));
    strata_tensor *old = strata_variable_read(graph, v), *one = strata_scalar(graph, f32, 1);
    strata_tensor *tail = strata_slice(old, (int64_t[]){2}, (int64_t[]){2}), *flat = strata_reshape(old, STRATA_SHAPE(2, 2));
    strata_tensor *added = strata_assign_add(old, strata_broadcast_to(one, STRATA_SHAPE(4)));
    strata_tensor *fresh = strata_variable_read(graph, v);
    strata_tensor *doubled = strata_assign(fresh, strata_mul(fresh, strata_scalar(graph, f32, 2)));
    strata_tensor *outputs[] = {strata_neg(old), strata_neg(tail), strata_neg(flat), strata_neg(fresh), doubled, old, one};
    enum { N = sizeof outputs / sizeof *outputs };
    OK(strata_graph_check(graph, err));
    OK(strata_executable_create(device, outputs, N, (strata_tensor *[]){added, doubled}, 2, NULL, &exe, err));
    float value = 0;
    for (int run = 0; run < 4; run++) {
        float data[N][4] = {0}, wanted[N] = {-value, -value, -value, -(value + 1), 2 * (value + 1), value, 1};
        strata_array arrays[N];
        for (int i = 0; i < N; i++) arrays[i] = strata_array_view(f32, strata_tensor_shape(outputs[i]), data[i]);
        OK(strata_executable_run(exe, NULL, NULL, 0, arrays, N, err));
        for (int i = 0; i < N; i++)
            for (int64_t e = 0; conformance_computes(device) && e < strata_shape_elements(arrays[i].shape); e++)
                cr_expect_float_eq(data[i][e], wanted[i], 1e-6, "%s: run %d, output %d, element %d is %g, not %g",
                                   device->info.id, run, i, (int)e, data[i][e], wanted[i]);
        value = 2 * (value + 1);
    }
    strata_executable_destroy(exe);
    strata_variable_destroy(v);
    strata_graph_destroy(graph);
}

/* After the update only a slice of the old value is read. The slice is a view of the variable's memory. */
static void slice_before_update(strata_device *device) {
    strata_graph *graph = NULL;
    strata_variable *v = NULL;
    strata_executable *exe = NULL;
    float got[2] = {0};
    strata_array array = strata_array_view(f32, STRATA_SHAPE(2), got);
    OK(strata_graph_create(&graph, err));
    OK(strata_variable_create(device, "v", f32, STRATA_SHAPE(4), &v, err));
    strata_tensor *old = strata_variable_read(graph, v);
    strata_tensor *tail = strata_slice(old, (int64_t[]){2}, (int64_t[]){2});
    strata_tensor *one = strata_broadcast_to(strata_scalar(graph, f32, 1), STRATA_SHAPE(4));
    strata_tensor *added = strata_assign_add(old, one), *y = strata_neg(tail);
    OK(strata_executable_create(device, &y, 1, &added, 1, NULL, &exe, err));
    for (int run = 0; run < 3; run++) {
        OK(strata_executable_run(exe, NULL, NULL, 0, &array, 1, err));
        const int wanted = conformance_computes(device) ? -run : 0;
        cr_expect(got[0] == wanted && got[1] == wanted, "%s: run %d: %g %g, not %d", device->info.id, run, got[0], got[1],
                  wanted);
    }
    strata_executable_destroy(exe);
    strata_variable_destroy(v);
    strata_graph_destroy(graph);
}

Test(conformance_runtime, a_read_sees_the_updates_before_it_and_none_after) {
    conformance_each_device(&untuned, update_in_order);
    conformance_each_device(&untuned, slice_before_update);
}

/* ---- memory plans in which values share bytes ---- */
static void share_bytes(strata_device *device) {
    const strata_test_tolerance tolerance = strata_test_tolerance_of(f32, 64);
    run_case run;
    int wrong = 0;
    run_case_begin(&run, device);
    run.fusion = true;
    strata_tensor *x = run_case_leaf(&run, strata_test_random(f32, STRATA_SHAPE(64), 0.1, 1, 1), false);
    strata_tensor *y = strata_exp(x), *head = strata_slice(y, (int64_t[]){0}, (int64_t[]){1});
    strata_tensor *once = strata_log(x), *first = strata_slice(once, (int64_t[]){0}, (int64_t[]){1});
    strata_tensor *sum = strata_add(once, first); /* must not be computed in place, because every element needs the first one */
    run_case_output(&run, strata_neg(sum), tolerance);
    strata_tensor *chain = x;
    for (int i = 0; i < 6; i++) chain = strata_add(strata_tanh(chain), x);
    run_case_output(&run, chain, tolerance);
    strata_tensor *square = strata_reshape(strata_exp(chain), STRATA_SHAPE(8, 8));
    run_case_output(&run, strata_matmul(square, strata_transpose(square, NULL), false, false), tolerance);
    strata_tensor *parts[3] = {strata_slice(square, (int64_t[]){2, 0}, (int64_t[]){3, 8}), strata_exp(head),
                               strata_tanh(square)};
    strata_tensor *packed = strata_pack(parts, (int64_t[]){0, 30, 64}, 3, 200);
    run_case_output(&run, strata_add(packed, strata_scalar(run.graph, f32, 0)), tolerance);
    run_case_output(&run, strata_pack((strata_tensor *[]){y, y}, (int64_t[]){1, 100}, 2, 170), tolerance);
    run_case_output(&run, strata_reshape(square, STRATA_SHAPE(4, 16)),
                    tolerance); /* outputs may be a view, an input, or the same value twice */
    run_case_output(&run, x, tolerance);
    run_case_output(&run, chain, tolerance);
    strata_test_result result = run_case_check(&run, &wrong);
    cr_expect(result.ok, "%s: output %d: %s", device->info.id, wrong, result.text);
    run_case_end(&run);
}

Test(conformance_runtime, values_that_share_bytes_stay_right) {
    conformance_each_device(&untuned, share_bytes);
}

/* ---- refusals ---- */
static void refuse(strata_device *device) {
    static const strata_op nameless = {.name = "teleport", .n_inputs = 1};
    strata_op op = nameless;
    op.shape = strata_op_neg.shape;
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_error err_text = {0};
    OK(strata_graph_create(&graph, err));
    strata_tensor *y = strata_node(NULL, &op, 1, (strata_tensor *[]){strata_input(graph, "x", f32, STRATA_SHAPE(3))}, NULL);
    strata_status status = strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err_text);
    cr_expect_eq(status, STRATA_UNSUPPORTED, "%s: %s", device->info.id, strata_status_name(status));
    cr_expect(strstr(err_text.message, "teleport") && strstr(err_text.message, device->info.id), "%s", err_text.message);
    strata_graph_destroy(graph);

    uint64_t limit = device->info.max_range_bytes < device->info.max_allocation_bytes ? device->info.max_range_bytes
                                                                                      : device->info.max_allocation_bytes;
    if (limit > (uint64_t)1 << 40) return;
    OK(strata_graph_create(&graph, err));
    strata_tensor *large = strata_broadcast_to(strata_scalar(graph, f32, 1), STRATA_SHAPE((int64_t)(limit / 4) + 64));
    y = strata_reduce_sum(strata_tensor_set_name(strata_exp(large), "giant"), NULL, 0, false);
    status = strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err_text);
    cr_expect(status == STRATA_UNSUPPORTED || status == STRATA_OUT_OF_MEMORY, "%s: %s", device->info.id,
              strata_status_name(status));
    strata_graph_destroy(graph);
}

Test(conformance_runtime, what_it_cannot_run_is_unsupported_with_a_reason) {
    conformance_each_device(&untuned, refuse);
}

Test(conformance_runtime, a_device_that_is_not_there_is_unavailable_and_the_message_lists_those_that_are) {
    strata_device *device = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_device_open("no such device", NULL, &device, &err), STRATA_UNAVAILABLE);
    cr_expect(strstr(err.message, "no such device") && strstr(err.message, "host"), "%s", err.message);
    cr_expect_null(device);
}

/* ---- random numbers are the same on all devices ---- */
static void draw(strata_device *device) {
    run_case run;
    strata_error failure = {0};
    strata_array got[2];
    run_case_begin(&run, device);
    strata_array words = strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS), (double[8]){42, 7, 3, 0, 5});
    strata_tensor *state = run_case_leaf(&run, words, false);
    strata_tensor *ones = run_case_leaf(&run, strata_test_full(f32, STRATA_SHAPE(1031), 1), false);
    run_case_output(&run, strata_random_uniform(state, 9, STRATA_SHAPE(1031)), (strata_test_tolerance){0});
    run_case_output(&run, strata_dropout(ones, state, 9, 0.5), (strata_test_tolerance){0});
    cr_assert_eq(run_case_on_device(&run, got, &failure), STRATA_OK, "%s", failure.message);
    const float *uniform = got[0].data, *kept = got[1].data;
    for (uint32_t i = 0; i < 1031 && conformance_computes(device); i++) {
        uint32_t e = 5 + i; /* the element's index in the whole batch, whose rows have one element */
        strata_philox_block block = strata_philox((strata_philox_block){{e / 4, 0, 9, 3}}, 42, 7);
        float want = (float)(block.words[e % 4] >> 8) * 0x1p-24f;
        cr_assert_eq(uniform[i], want, "%s: element %u is %a, not %a", device->info.id, i, uniform[i], want);
        cr_assert_eq(kept[i], want < 0.5f ? 0 : 2, "%s: dropout's element %u is %g where the number is %g", device->info.id, i,
                     kept[i], want);
    }
    strata_array_finish(&got[0]);
    strata_array_finish(&got[1]);
    run_case_end(&run);
}

Test(conformance_runtime, random_numbers_are_the_same_bits_everywhere) {
    conformance_each_device(&untuned, draw);
}

/* ---- conversions of f16 are exact ---- */
static uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static void convert_halves(strata_device *device) {
    enum { HALVES = 1 << 16, NEAR = 5 };
    if (!(device->info.dtypes >> STRATA_DTYPE_F16 & 1) || !conformance_computes(device)) return;
    run_case run;
    strata_error failure = {0};
    strata_array got[2];
    strata_array halves = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(HALVES), 0);
    strata_array floats = strata_test_full(f32, STRATA_SHAPE(HALVES * NEAR), 0);
    strata_array want = strata_test_full(STRATA_DTYPE_F16, STRATA_SHAPE(HALVES * NEAR), 0);
    for (int i = 0; i < HALVES; i++) ((uint16_t *)halves.data)[i] = (uint16_t)i;
    /* for each f16: itself, the midpoint to the next f16, the two neighbours of the midpoint, and 0.75 times the midpoint */
    for (int i = 0; i < HALVES; i++) {
        const float number = (float)strata_element_get(STRATA_DTYPE_F16, halves.data, i);
        const float next =
            (i & 0x7fff) < 0x7bff ? (float)strata_element_get(STRATA_DTYPE_F16, halves.data, i + 1) : copysignf(65536, number);
        const float middle = isfinite(number) ? (number + next) / 2 : number;
        const float near[NEAR] = {number, middle, nextafterf(middle, 0), nextafterf(middle, next), middle * 0.75f};
        for (int k = 0; k < NEAR; k++) {
            ((float *)floats.data)[i * NEAR + k] = near[k];
            strata_element_set(STRATA_DTYPE_F16, want.data, i * NEAR + k, near[k]);
        }
    }
    run_case_begin(&run, device);
    strata_tensor *h = run_case_leaf(&run, halves, false), *f = run_case_leaf(&run, floats, false);
    run_case_output(&run, strata_cast(h, f32), (strata_test_tolerance){0});
    run_case_output(&run, strata_cast(f, STRATA_DTYPE_F16), (strata_test_tolerance){0});
    cr_assert_eq(run_case_on_device(&run, got, &failure), STRATA_OK, "%s", failure.message);
    for (int i = 0; i < HALVES; i++) {
        const float number = (float)strata_element_get(STRATA_DTYPE_F16, halves.data, i), is = ((float *)got[0].data)[i];
        cr_assert(isnan(number) ? isnan(is) : bits_of(is) == bits_of(number), "%s: %#x is %a, not %a", device->info.id, i, is,
                  number);
    }
    for (int i = 0; i < HALVES * NEAR; i++) {
        const float from = ((float *)floats.data)[i];
        const unsigned is = ((uint16_t *)got[1].data)[i], bits = ((uint16_t *)want.data)[i];
        cr_assert(isnan(from) ? (is & 0x7fff) > 0x7c00 : is == bits, "%s: %a is rounded to %#x, not %#x", device->info.id, from,
                  is, bits);
    }
    strata_array_finish(&got[0]);
    strata_array_finish(&got[1]);
    strata_array_finish(&want);
    run_case_end(&run);
}

Test(conformance_runtime, halves_are_converted_exactly) {
    conformance_each_device(&untuned, convert_halves);
}
