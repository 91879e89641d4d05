/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of the OpenCL backend alone, tested on every OpenCL device: its list of devices, its memory, tickets,
 * sub-devices of a CPU, kernels that are shared and cached, and the tiles of the GPU kernels, which the driver of a CPU
 * runs as well. tests/conformance tests that results are right. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#if STRATA_WITH_OPENCL
#include "backends/opencl/opencl.h"
#include "core/run/executable.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/support/check.h"
#include "tests/support/folder.h"

TestSuite(opencl, .init = test_folder_make, .fini = test_folder_remove);

/* Opens the first OpenCL device that can be opened. The test is skipped when there is none. */
static strata_device *open_device(const strata_device_options *opts) {
    strata_device_info *rows;
    strata_error err;
    int n;
    cr_assert_eq(strata_devices_list(&rows, &n, &err), STRATA_OK, "%s", err.message);
    strata_device *device = NULL;
    for (int i = 0; i < n && !device; i++) {
        if (strcmp(rows[i].backend, "opencl") || rows[i].skipped[0]) continue;
        cr_assert_eq(strata_device_open(rows[i].id, opts, &device, &err), STRATA_OK, "%s", err.message);
    }
    strata_devices_free(rows);
    if (!device) cr_skip_test("no OpenCL device");
    return device;
}

/* Runs the graph with inputs a and b and output y once. The caller finishes the result. */
static strata_array run(strata_device *device, strata_tensor *a, strata_tensor *b, strata_tensor *y) {
    strata_error err = {0};
    strata_executable *exe;
    cr_assert_eq(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    strata_array inputs[] = {strata_test_random(STRATA_DTYPE_F32, strata_tensor_shape(a), -1, 1, 1),
                             strata_test_random(STRATA_DTYPE_F32, strata_tensor_shape(b), -1, 1, 2)};
    strata_array result = strata_test_full(STRATA_DTYPE_F32, strata_tensor_shape(y), -1);
    const char *const names[] = {"a", "b"};
    cr_assert_eq(strata_executable_run(exe, names, inputs, 2, &result, 1, &err), STRATA_OK, "%s", err.message);
    strata_executable_destroy(exe);
    strata_array_finish(&inputs[0]);
    strata_array_finish(&inputs[1]);
    strata_graph_destroy(strata_tensor_graph(y));
    return result;
}

static strata_tensor *matrix(strata_graph *graph, const char *name, int64_t rows, int64_t columns) {
    return strata_input(graph, name, STRATA_DTYPE_F32, STRATA_SHAPE(rows, columns));
}

/* relu(a b) for a (m,k) and b (k,n). */
static strata_array product(strata_device *device, int64_t m, int64_t k, int64_t n) {
    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *a = matrix(graph, "a", m, k), *b = matrix(graph, "b", k, n);
    return run(device, a, b, strata_relu(strata_matmul(a, b, false, false)));
}

/* a^T b for a (k,m) and b (k,n). */
static strata_array plain_product(strata_device *device, int64_t m, int64_t k, int64_t n) {
    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *a = matrix(graph, "a", k, m), *b = matrix(graph, "b", k, n);
    return run(device, a, b, strata_matmul(a, b, true, false));
}

Test(opencl, an_id_that_is_no_device_is_refused) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true});
    strata_error err;
    opencl_found found;
    const char *const ids[] = {"opencl", "opencl:x", "opencl:99", "opencl:0.7", "opencl:-1"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        cr_assert_eq(strata_opencl_find(&((opencl_device *)device)->cl, ids[i], &found, &err), STRATA_UNAVAILABLE, "%s",
                     ids[i]);
    strata_device_close(device);
}

Test(opencl, a_new_buffer_is_zero_and_bytes_come_back) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true});
    strata_error err;
    strata_buffer *buffer;
    unsigned char bytes[1001], back[1001];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
    cr_assert_eq(device->api->buffer_create(device, sizeof bytes, &buffer, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(device->api->download(device, buffer, 0, back, sizeof back, &err), STRATA_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof back; i++) cr_assert_eq(back[i], 0);
    cr_assert_eq(device->api->upload(device, buffer, 3, bytes, sizeof bytes - 3, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(device->api->download(device, buffer, 3, back, sizeof back - 3, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(memcmp(bytes, back, sizeof bytes - 3), 0);
    cr_assert_eq(device->api->upload(device, buffer, 999, bytes, 3, &err), STRATA_INVALID);
    device->api->buffer_destroy(device, buffer);
    cr_assert_eq(device->counters.allocated_bytes, 0);
    strata_device_close(device);
}

Test(opencl, more_memory_than_there_is_says_how_much_there_is) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true});
    strata_error err;
    strata_buffer *buffer;
    cr_assert_eq(device->api->buffer_create(device, INT64_C(1) << 60, &buffer, &err), STRATA_OUT_OF_MEMORY);
    cr_assert(strstr(err.message, "1152921504606846976 bytes wanted"), "%s", err.message);
    cr_assert(strstr(err.message, "free"), "%s", err.message);
    /* A buffer that is larger than the device allows is refused before host memory is touched, even if the host has enough. */
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    const int64_t too_much = (int64_t)device->info.max_allocation_bytes + 1;
    cr_assert_eq(device->api->buffer_create(device, too_much, &buffer, &err), STRATA_OUT_OF_MEMORY);
    getrusage(RUSAGE_SELF, &after);
    cr_assert_leq(after.ru_maxrss - before.ru_maxrss, too_much / 2048, "KiB");
    strata_device_close(device);
}

Test(opencl, a_ticket_that_was_not_given_is_refused) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true, .no_tune = true});
    strata_array result = product(device, 3, 4, 5);
    strata_error err;
    uint64_t last = ((opencl_device *)device)->last_ticket;
    cr_assert_eq(device->api->wait(device, last, &err), STRATA_OK);
    cr_assert_eq(device->api->wait(device, 0, &err), STRATA_OK, "older than any");
    cr_assert_eq(device->api->wait(device, last + 1, &err), STRATA_INVALID);
    strata_array_finish(&result);
    strata_device_close(device);
}

Test(opencl, pieces_share_their_kernels) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true, .no_tune = true});
    strata_array first = product(device, 8, 16, 32);
    uint64_t compiled = device->counters.compilations;
    strata_array second = product(device, 8, 16, 32);
    cr_assert_eq(device->counters.compilations, compiled);
    cr_assert(strata_test_same(&first, &second).ok);
    strata_array_finish(&first);
    strata_array_finish(&second);
    strata_device_close(device);
}

/* The check of a program's kernels runs the same program that the driver compiles for training, also when a node reads an
 * output. So the driver compiles once. */
Test(opencl, a_program_is_compiled_once_with_its_check) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true, .no_tune = true});
    strata_graph *graph = NULL;
    strata_variable *total = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    cr_assert_eq(strata_variable_create(device, "total", STRATA_DTYPE_F32, STRATA_SHAPE(5), &total, &err), STRATA_OK);
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(3, 5));
    strata_tensor *sums = strata_reduce_sum(x, (int[]){0}, 1, false);
    strata_tensor *update = strata_assign_add(strata_variable_read(graph, total), sums);
    const uint64_t before = device->counters.compilations;
    cr_assert_eq(strata_executable_create(device, &sums, 1, &update, 1, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(device->counters.compilations - before, 1);
    strata_executable_destroy(exe);
    strata_variable_destroy(total);
    strata_graph_destroy(graph);
    strata_device_close(device);
}

Test(opencl, the_next_start_takes_kernels_from_the_disk) {
    strata_device_options opts = {.cache_dir = test_path("cache"), .no_tune = true};
    strata_array results[2];
    for (int start = 0; start < 2; start++) {
        strata_device *device = open_device(&opts);
        ((opencl_device *)device)->driver_caches = false;
        results[start] = product(device, 8, 16, 32);
        cr_assert_eq(device->counters.compilations, start == 0 ? 1 : 0);
        strata_device_close(device);
    }
    cr_assert(strata_test_same(&results[0], &results[1]).ok);
    strata_array_finish(&results[0]);
    strata_array_finish(&results[1]);
}

Test(opencl, halves_of_a_cpu_have_half_its_cores) {
    strata_device_info *rows;
    strata_error err;
    int n, n_halves = 0;
    cr_assert_eq(strata_devices_list(&rows, &n, &err), STRATA_OK, "%s", err.message);
    uint32_t whole = 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].backend, "opencl") || rows[i].skipped[0]) continue;
        if (!strchr(rows[i].id, '.')) {
            whole = rows[i].compute_units;
            continue;
        }
        cr_assert_eq(rows[i].compute_units, whole / 2);
        strata_device *device;
        cr_assert_eq(strata_device_open(rows[i].id, &(strata_device_options){.no_cache = true, .no_tune = true}, &device, &err),
                     STRATA_OK, "%s", err.message);
        strata_array result = product(device, 3, 4, 5);
        strata_array_finish(&result);
        strata_device_close(device);
        n_halves++;
    }
    strata_devices_free(rows);
    if (!n_halves) cr_skip_test("no OpenCL CPU of two cores");
}

/* Inputs and outputs can reach kernels in three ways. All give the same result. The test overrides the way that the device
 * would choose. */
Test(opencl, shared_mapped_and_staged_memory_agree) {
    strata_array results[3];
    for (int way = 0; way < 3; way++) {
        strata_device *device = open_device(&(strata_device_options){.no_cache = true, .no_tune = true});
        opencl_device *opened = (opencl_device *)device;
        if (way != OPENCL_HOST_SHARED || opened->host_memory == OPENCL_HOST_SHARED)
            opened->host_memory = (opencl_host_memory)way;
        results[way] = product(device, 17, 33, 9);
        cr_assert_eq(device->counters.allocated_bytes, 0, "all is given back");
        cr_assert_eq(device->counters.upload_bytes > 0, way == OPENCL_HOST_STAGED);
        strata_device_close(device);
    }
    cr_assert(strata_test_same(&results[0], &results[1]).ok);
    cr_assert(strata_test_same(&results[0], &results[2]).ok);
    for (int way = 0; way < 3; way++) strata_array_finish(&results[way]);
}

/* Treats the device as a GPU: the kernels with local memory and barriers must give, with every tile, the bits of the CPU
 * kernel. */
Test(opencl, every_gpu_tile_gives_the_same_bits, .timeout = 300) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true, .no_tune = true});
    opencl_device *opened = (opencl_device *)device;
    strata_array want = product(device, 67, 35, 130);
    opened->limits.device_class = STRATA_DEVICE_DISCRETE_GPU;
    const uint32_t units[] = {1000, 3, 2}; /* from small tiles to large ones */
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        opened->limits.compute_units = units[i];
        strata_array got = product(device, 67, 35, 130);
        strata_test_result same = strata_test_same(&got, &want);
        cr_assert(same.ok, "%s", same.text);
        strata_array_finish(&got);
    }
    strata_array_finish(&want);
    strata_device_close(device);
}

/* Treats the device as a GPU. The tuning file says that the tuner chose CLBlast for this product. */
Test(opencl, a_choice_of_clblast_is_obeyed_with_options_fast_only, .timeout = 300) {
    strata_array results[3];
    /* first without `fast`, which creates the file; then with `fast`; then without it again */
    for (int start = 0; start < 3; start++) {
        strata_device *device = open_device(&(strata_device_options){.cache_dir = test_path("cache"), .fast = start == 1});
        opencl_device *opened = (opencl_device *)device;
        opened->limits.device_class = STRATA_DEVICE_DISCRETE_GPU;
        strata_opencl_clblast_open(opened);
        if (!opened->clblast) {
            strata_device_close(device);
            cr_skip_test("CLBlast is not installed");
        }
        results[start] = plain_product(device, 67, 35, 130);
        cr_assert_eq(device->counters.compilations == 0, start == 1, "our kernels are built unless CLBlast multiplies");
        strata_device_close(device);
        char command[1024];
        snprintf(command, sizeof command, "sed -i 's/\\t[^\\t]*\\t/\\tlibrary\\t/' '%s'/*.tune", test_path("cache"));
        if (start == 0) cr_assert_eq(system(command), 0);
    }
    strata_test_result close = strata_test_compare(&results[1], &results[0], strata_test_tolerance_of(STRATA_DTYPE_F32, 35));
    strata_test_result same = strata_test_same(&results[2], &results[0]);
    cr_assert(close.ok, "%s", close.text);
    cr_assert(same.ok, "%s", same.text);
    for (int start = 0; start < 3; start++) strata_array_finish(&results[start]);
}

/* Computes sum_i softmax(relu(a b)) and other nodes several times while a variable changes. Some launches depend on each
 * other, others do not. */
static strata_array replayed(strata_device *device, int runs) {
    strata_graph *graph;
    strata_variable *count;
    strata_executable *exe;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    cr_assert_eq(strata_variable_create(device, "count", STRATA_DTYPE_F32, STRATA_SHAPE(70), &count, &err), STRATA_OK);
    strata_tensor *a = matrix(graph, "a", 50, 70), *b = matrix(graph, "b", 70, 40), *read = strata_variable_read(graph, count);
    strata_tensor *product = strata_matmul(strata_add(a, read), b, false, false), *rows = strata_softmax(strata_tanh(product));
    strata_tensor *update = strata_assign_add(read, strata_reduce_mean(a, (int[]){0}, 1, false));
    strata_tensor *y = strata_concat((strata_tensor *[]){rows, strata_exp(product)}, 2, 0);
    cr_assert_eq(strata_executable_create(device, &y, 1, &update, 1, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    strata_array inputs[] = {strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(50, 70), -1, 1, 1),
                             strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(70, 40), -0.1, 0.1, 2)};
    strata_array result = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(100, 40), -1);
    for (int run = 0; run < runs; run++)
        cr_assert_eq(strata_executable_run(exe, (const char *const[]){"a", "b"}, inputs, 2, &result, 1, &err), STRATA_OK);
    strata_executable_destroy(exe);
    strata_variable_destroy(count);
    strata_graph_destroy(graph);
    strata_array_finish(&inputs[0]);
    strata_array_finish(&inputs[1]);
    return result;
}

enum { RUNS = 200 };

/* Computes x = x tanh(a) + a and y = exp(x) in each of RUNS runs, each with another `a`. Submits counts[0] runs in the
 * first call, counts[1] in the second one, and so on, and starts again at counts[0] after the last one. Writes the mean of
 * each run's y to `means`. Returns the number of submissions. */
static uint64_t submitted_in_calls(strata_device *device, const int *counts, int n_counts, float means[RUNS]) {
    strata_graph *graph;
    strata_variable *x;
    strata_executable *exe;
    strata_error err = {0};
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    cr_assert_eq(strata_variable_create(device, "x", STRATA_DTYPE_F32, STRATA_SHAPE(50, 70), &x, &err), STRATA_OK);
    strata_tensor *a = matrix(graph, "a", 50, 70), *read = strata_variable_read(graph, x);
    strata_tensor *next = strata_assign(read, strata_add(strata_mul(read, strata_tanh(a)), a));
    strata_tensor *mean = strata_reduce_mean(strata_exp(strata_matmul(read, a, true, false)), (int[]){0, 1}, 2, false);
    const strata_executable_options opts = {.n_slots = 2 * OPENCL_RUNS_IN_A_CALL};
    cr_assert_eq(strata_executable_create(device, &mean, 1, &next, 1, &opts, &exe, &err), STRATA_OK, "%s", err.message);
    const uint64_t before = device->counters.submissions;
    int slots[OPENCL_RUNS_IN_A_CALL];
    for (int run = 0, call = 0, n; run < RUNS; run += n, call++) {
        n = counts[call % n_counts] < RUNS - run ? counts[call % n_counts] : RUNS - run;
        for (int i = 0; i < n; i++) {
            strata_array values = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(50, 70), -0.1, 0.1, (uint32_t)(run + i));
            cr_assert_eq(strata_executable_acquire(exe, &slots[i], &err), STRATA_OK);
            strata_executable_feed(exe, slots[i], "a", values.data, sizeof(float[50 * 70]));
            strata_array_finish(&values);
        }
        cr_assert_eq(strata_executable_submit_segment(exe, slots[0], n, 0, &err), STRATA_OK, "%s", err.message);
        for (int i = 0; i < n; i++) {
            cr_assert_eq(strata_executable_wait(exe, slots[i], &err), STRATA_OK, "%s", err.message);
            means[run + i] = *(const float *)strata_executable_output(exe, slots[i], 0);
        }
    }
    const uint64_t submissions = device->counters.submissions - before;
    strata_executable_destroy(exe);
    strata_variable_destroy(x);
    strata_graph_destroy(graph);
    return submissions;
}

Test(opencl, several_runs_in_one_call_have_the_bits_of_single_runs, .timeout = 300) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true, .no_tune = true});
    if (strata_device_most_runs(device) == 1) {
        strata_device_close(device);
        cr_skip_test("the device gets one run in a call");
    }
    const int single[] = {1}, mixed[] = {4, 1, 3, 2, 4, 4};
    float want[RUNS], got[RUNS];
    cr_assert_eq(submitted_in_calls(device, single, 1, want), RUNS);
    cr_assert_lt(submitted_in_calls(device, mixed, 6, got), RUNS / 2, "runs go together in one call");
    cr_assert_arr_eq(got, want, sizeof want);
    ((opencl_device *)device)->makes_sequences = false;
    submitted_in_calls(device, single, 1, got);
    cr_assert_arr_eq(got, want, sizeof want, "separate launches");
    strata_device_close(device);
}

Test(opencl, a_sequence_gives_the_bits_of_separate_launches, .timeout = 300) {
    strata_array results[2];
    for (int way = 0; way < 2; way++) {
        strata_device *device = open_device(&(strata_device_options){.no_cache = true, .no_tune = true});
        opencl_device *opened = (opencl_device *)device;
        if (!opened->makes_sequences) {
            strata_device_close(device);
            cr_skip_test("the device takes launches one by one");
        }
        opened->makes_sequences = way == 1;
        results[way] = replayed(device, 200);
        cr_assert_eq(opened->n_texts, way, "a program is %s", way ? "one sequence" : "launches");
        cr_assert_eq(device->counters.allocated_bytes, 0);
        strata_device_close(device);
    }
    strata_test_result same = strata_test_same(&results[0], &results[1]);
    cr_assert(same.ok, "%s", same.text);
    strata_array_finish(&results[0]);
    strata_array_finish(&results[1]);
}

/* Results have the same bits with and without tuning. */
Test(opencl, tuning_does_not_change_a_bit, .timeout = 300) {
    strata_array results[2];
    for (int tuned = 0; tuned < 2; tuned++) {
        strata_device *device = open_device(&(strata_device_options){.cache_dir = test_path("cache"), .no_tune = !tuned});
        results[tuned] = product(device, 128, 200, 96);
        strata_device_close(device);
    }
    strata_test_result same = strata_test_same(&results[0], &results[1]);
    cr_assert(same.ok, "%s", same.text);
    strata_array_finish(&results[0]);
    strata_array_finish(&results[1]);
}

Test(opencl, a_kernel_that_does_not_compile_is_named_with_the_log) {
    strata_device *device = open_device(&(strata_device_options){.no_cache = true});
    static const char source[] = "__kernel void strata_broken() { nonsense; }";
    strata_shader broken = {.stem = "broken",
                            .variant = "f32",
                            .opencl = {.plain = source, .bytes = sizeof source - 1},
                            .opencl_entry = "strata_broken"};
    strata_kernel kernels[] = {{.shader = strata_shader_find("unary", "f32")}, {.shader = &broken}};
    for (int i = 0; i < kernels[0].shader->n_constants; i++) kernels[0].constants[i] = kernels[0].shader->constants[i].value;
    strata_error err;
    int built[2];
    cr_assert_eq(strata_opencl_build((opencl_device *)device, kernels, 2, built, &err), STRATA_UNSUPPORTED);
    cr_assert(strstr(err.message, "broken f32"), "%s", err.message);
    cr_assert(strstr(err.message, "nonsense"), "%s", err.message);
    cr_assert_eq(strata_opencl_build((opencl_device *)device, kernels, 1, built, &err), STRATA_OK, "the device still works");
    strata_device_close(device);
}

Test(opencl_source, functions_of_several_kernels_do_not_meet) {
    static const char code[] =
        "#pragma OPENCL FP_CONTRACT OFF\n"
        "uint helper(uint a) {\n    return inner(a) + N;\n}\n"
        "__kernel __attribute__((reqd_work_group_size(N, 1, 1))) void strata_x(uint n) {\n"
        "    if (helper(n)) {\n    }\n}\n";
    strata_shader shader = {.stem = "x",
                            .opencl_entry = "strata_x",
                            .opencl = {.plain = code, .bytes = sizeof code - 1},
                            .n_constants = 1,
                            .constants = (const strata_shader_constant[]){{"N", 1}}};
    strata_kernel kernel = {.shader = &shader, .constants = {64}};
    strata_text text = {0};
    char entry[64], *source;
    cr_assert_eq(strata_opencl_source_add(&text, &kernel, "_5", "uint task, ", entry, NULL), STRATA_OK);
    cr_assert_eq(strata_text_take(&text, &source, NULL, NULL), STRATA_OK);
    cr_assert_str_eq(entry, "strata_x_5");
    cr_assert(strstr(source, "#define N 64u\n"));
    cr_assert(strstr(source, "#define helper helper_5\n"));
    cr_assert(strstr(source, "#define strata_x strata_x_5\n"));
    cr_assert(strstr(source, "#undef helper\n"));
    cr_assert(strstr(source, "#undef N\n"));
    cr_assert_null(strstr(source, "#define inner"));
    cr_assert_null(strstr(source, "#define if"));
    cr_assert(strstr(source, "void strata_x(uint task, uint n) {"));
    free(source);
}
#else
Test(opencl, opencl) {
    cr_skip_test("built without OpenCL");
}
#endif
