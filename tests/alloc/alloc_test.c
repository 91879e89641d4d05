/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes each allocation of a call fail in turn. The call must then return OUT_OF_MEMORY, or succeed with a right result
 * because it can do without that memory. It must not leak memory, and objects that existed before must stay usable. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/fallback/fallback.h"
#include "core/base/json.h"
#include "core/data/format/idx.h"
#include "core/data/format/npy.h"
#include "core/data/format/safetensors.h"
#include "core/model/layout_choose.h"
#include "core/model/mesh_spec.h"
#include "core/model/zero.h"
#include "core/run/cut.h"
#include "core/run/device.h"
#include "core/run/schedule.h"
#include "strata/strata.h"
#include "tests/alloc/scenario.h"
#include "tests/alloc/shim.h"
#include "tests/support/folder.h"
#include "tests/support/npy.h"

TestSuite(alloc, .init = test_folder_make, .fini = test_folder_remove);

static const strata_dtype f32 = STRATA_DTYPE_F32;

/* ---- graphs and executables ---- */

/* Builds the loss of a small net, and its gradients with respect to x, w and b. */
static void build_net(strata_graph *graph, strata_tensor *w, strata_tensor **out_loss, strata_tensor **out_gradients) {
    strata_tensor *x = strata_input(graph, "x", f32, STRATA_SHAPE(3, 4));
    strata_tensor *b = strata_tensor_set_name(strata_scalar(graph, f32, 0.5), "bias");
    strata_tensor *y = strata_print(strata_tanh(strata_add(strata_matmul(x, w, false, false), b)), NULL);
    strata_tensor *parts[] = {strata_slice(y, (int64_t[]){0, 0}, (int64_t[]){3, 1}), y};
    *out_loss = strata_reduce_mean(strata_concat(parts, 2, 1), NULL, 0, false);
    strata_gradients(*out_loss, NULL, (strata_tensor *[]){x, w, b}, 3, out_gradients);
}

static strata_status graph_scenario(strata_error *err) {
    strata_graph *graph = NULL;
    strata_tensor *loss, *gradients[3];
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_graph_set_scope(graph, "story");
    build_net(graph, strata_input(graph, "w", f32, STRATA_SHAPE(4, 2)), &loss, gradients);
    strata_tensor *many = gradients[1];
    /* Needs more than the graph's first block of memory and first table of nodes. */
    for (int i = 0; i < 100; i++) many = strata_neg(many);
    strata_status status = strata_graph_check(graph, err);
    strata_graph_destroy(graph);
    return status;
}

/* Runs a step that updates w twice. The bits of w must be right whether or not there was memory for fusion. */
static strata_status run_on(strata_device *device, strata_graph *graph, strata_variable *w, strata_error *err) {
    static const float x[12] = {1, -1, 2, 0.5f, 0, 1, -2, 1, 0.25f, 3, 1, -1};
    strata_tensor *loss, *gradients[3], *read = strata_variable_read(graph, w);
    strata_executable *exe = NULL;
    build_net(graph, read, &loss, gradients);
    strata_tensor *packed = strata_pack(gradients + 1, (int64_t[]){0, 16}, 2, 32);
    strata_tensor *update = strata_assign(read, strata_sub(read, gradients[1]));
    STRATA_TRY(strata_executable_create(device, (strata_tensor *[]){loss, packed}, 2, &update, 1, NULL, &exe, err));
    float first = 0, values[32];
    strata_array outputs[2] = {strata_array_view(f32, STRATA_SHAPE(), &first),
                               strata_array_view(f32, STRATA_SHAPE(32), values)};
    strata_array input = strata_array_view(f32, STRATA_SHAPE(3, 4), (void *)x);
    strata_status status = STRATA_OK;
    for (int i = 0; i < 2 && !status; i++)
        status = strata_executable_run(exe, (const char *[]){"x"}, &input, 1, outputs, 2, err);
    strata_executable_destroy(exe);
    if (!status && !(first < 0.45f && values[8] == 0 && values[16] != 0))
        return strata_fail(err, STRATA_INTERNAL, "loss %g, gap %g, gradient %g", first, values[8], values[16]);
    return status;
}

static void take_printed(const strata_printed *printed, void *user) {
    (void)printed, (void)user;
}

static strata_status device_scenario(const char *which, strata_error *err) {
    strata_device *device = NULL;
    strata_variable *w = NULL;
    strata_graph *graph = NULL;
    strata_device_options opts = {.no_cache = true, .no_tune = true, .on_print = take_printed};
    STRATA_TRY(strata_device_open(which, &opts, &device, err));
    strata_status status = strata_variable_create(device, "w", f32, STRATA_SHAPE(4, 2), &w, err);
    if (!status) status = strata_graph_create(&graph, err);
    if (!status) status = run_on(device, graph, w, err);
    strata_graph_destroy(graph);
    strata_variable_destroy(w);
    strata_device_close(device);
    return status;
}

static strata_status host_scenario(strata_error *err) {
    return device_scenario("host", err);
}

static strata_status opencl_scenario(strata_error *err) {
    return device_scenario("opencl:0", err);
}

Test(alloc, graphs_and_gradients) {
    fail_each_allocation("graph", graph_scenario, 1, 1, 10000);
}

Test(alloc, executables_on_the_host) {
    fail_each_allocation("executable", host_scenario, 1, 1, 10000);
}

Test(alloc, executables_on_opencl) {
    strata_device *device = NULL;
    strata_error err = {0};
    if (strata_device_open("opencl:0", NULL, &device, &err)) cr_skip_test("no OpenCL device");
    strata_device_close(device);
    fail_each_allocation("opencl", opencl_scenario, 3, 17, 14);
}

/* ---- a device that lacks ops: they are composed of other ops, or run on the host ---- */

static strata_device_api few_api;
static strata_support (*all_supports)(strata_device *device, const strata_tensor *node, const char **reason);
static bool helped;

static strata_support few_supports(strata_device *device, const strata_tensor *node, const char **reason) {
    static const char *const lacks[] = {"tanh", "sub", "reduce_mean", "concat", "pack", "chain", "tanh_grad", "sigmoid"};
    *reason = "the test took it away";
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
        if (!strcmp(lacks[i], node->op->name) || (helped && !strcmp("exp", node->op->name))) return STRATA_SUPPORT_NO;
    return all_supports(device, node, reason);
}

static strata_status few_ops_scenario(strata_error *err) {
    strata_device *device = NULL, *inner = NULL;
    strata_variable *w = NULL;
    strata_graph *graph = NULL;
    STRATA_TRY(strata_device_open("host", NULL, &inner, err));
    few_api = *inner->api;
    all_supports = few_api.supports;
    few_api.supports = few_supports;
    inner->api = &few_api;
    device = inner;
    strata_status status = helped ? strata_fallback_create(inner, &device, err) : STRATA_OK;
    if (!status) status = strata_variable_create(device, "w", f32, STRATA_SHAPE(4, 2), &w, err);
    if (!status) status = strata_graph_create(&graph, err);
    if (!status) status = run_on(device, graph, w, err);
    strata_graph_destroy(graph);
    strata_variable_destroy(w);
    strata_device_close(device);
    return status;
}

Test(alloc, executables_on_a_device_that_lacks_ops) {
    helped = false;
    fail_each_allocation("few ops", few_ops_scenario, 1, 1, 10000);
}

Test(alloc, executables_with_the_hosts_help) {
    helped = true;
    fail_each_allocation("the host's help", few_ops_scenario, 1, 1, 10000);
}

/* ---- device memory: the host's table with a buffer_create that fails ---- */
static const strata_device_api *host_api;
static int64_t buffers_made, buffer_fails_at;

static strata_status failing_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out, strata_error *err) {
    if (++buffers_made == buffer_fails_at)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: %lld bytes wanted, 0 free", device->info.id, (long long)bytes);
    return host_api->buffer_create(device, bytes, out, err);
}

Test(alloc, device_memory) {
    strata_device *device = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_device_open("host", NULL, &device, &err), STRATA_OK);
    host_api = device->api;
    strata_device_api api = *host_api;
    api.buffer_create = failing_buffer_create;
    device->api = &api;
    bool failed = true;
    for (int64_t k = 1; failed; k++) {
        strata_variable *w = NULL;
        strata_graph *graph = NULL;
        int64_t before = shim_live();
        buffers_made = 0;
        buffer_fails_at = k;
        err = (strata_error){0};
        strata_status status = strata_variable_create(device, "w", f32, STRATA_SHAPE(4, 2), &w, &err);
        if (!status) {
            cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
            status = run_on(device, graph, w, &err);
        }
        failed = buffers_made >= k;
        cr_assert_eq(status, failed ? STRATA_OUT_OF_MEMORY : STRATA_OK, "buffer %d: %s", (int)k, err.message);
        cr_assert(!failed || strstr(err.message, "bytes wanted"), "%s", err.message);
        strata_graph_destroy(graph);
        strata_variable_destroy(w);
        cr_assert_eq(device->counters.allocated_bytes, 0, "buffer %d failed: device memory leaks", (int)k);
        cr_assert_eq(shim_live(), before, "buffer %d failed: host memory leaks", (int)k);
    }
    cr_assert_gt(buffers_made, 2);
    device->api = host_api;
    strata_device_close(device);
}

/* ---- files and documents ---- */
static strata_status json_scenario(strata_error *err) {
    static const char text[] = "{\"a\": [1, 2.5, \"three\"], \"b\": {\"c\": true}}";
    strata_json root = {0}, a;
    const char *missing = NULL;
    STRATA_TRY(strata_json_parse("story", text, sizeof text - 1, 1 << 20, &root, err));
    strata_status status = strata_json_get(&root, "a", &a, err);
    if (!status) status = strata_json_get_string(&root, "nothing", STRATA_JSON_OPTIONAL, &missing, err);
    strata_json_finish(&root);
    strata_json_writer writer = {0};
    strata_json_begin_object(&writer);
    for (int i = 0; i < 40; i++) {
        strata_json_key(&writer, i % 2 ? "number with a long name" : "string");
        strata_json_write_string(&writer, "a string that makes the text grow");
    }
    strata_json_end_object(&writer);
    char *written = NULL;
    strata_status taken = strata_json_take(&writer, &written, NULL, status ? NULL : err);
    free(written);
    return status ? status : taken;
}

Test(alloc, json) {
    fail_each_allocation("json", json_scenario, 1, 1, 1000);
}

/* ---- layouts of parameters over a mesh ---- */

/* Places a kernel of two dimensions by rules, then as its layer, and its slots over data. */
static strata_status place_parameters(const strata_layout *layout, strata_memory *memory, strata_error *err) {
    const strata_parameter_spec kernel = {.name = "dense/kernel", .shape = STRATA_SHAPE(256, 256)};
    const strata_dense_options opts = {.units = 256};
    const strata_option fields[] = {{.name = NULL}};
    const strata_call calls[] = {{.kind = "input", .name = "x", .shape = STRATA_SHAPE(1, 256)},
                                 {.kind = "dense",
                                  .name = "dense",
                                  .options = &opts,
                                  .fields = fields,
                                  .first = 1,
                                  .n_inputs = 1,
                                  .shape = STRATA_SHAPE(1, 256)}};
    const strata_layout_model model = {
        .calls = calls, .n_calls = 2, .outputs = (int[]){1}, .n_outputs = 1, .parameters = &kernel, .n_parameters = 1};
    strata_mesh mesh;
    strata_placement placement;
    strata_zero_placements zero;
    const char *reason;
    STRATA_TRY(strata_mesh_read("data=2,tensor=2", 0, &mesh, err));
    STRATA_TRY(strata_layout_apply(layout, &mesh, &model, memory, &placement, &reason, err));
    STRATA_TRY(strata_layout_choose(&model, &mesh, 1, memory, &placement, &reason, err));
    STRATA_TRY(strata_zero_place(&mesh, 1, kernel.shape, &placement, memory, &zero, err));
    return zero.slot.dims[0].n_axes && zero.slot.dims[1].n_axes ? STRATA_OK
                                                                : strata_fail(err, STRATA_INTERNAL, "it is not divided");
}

static strata_status layout_scenario(strata_error *err) {
    const char *const text = "{\"dense(_[0-9]+)?/k.*\": [null, \"tensor\"]}";
    strata_layout layout;
    strata_memory memory = {0};
    STRATA_TRY(strata_layout_read("layout.json", text, strlen(text), &layout, err));
    const strata_status status = place_parameters(&layout, &memory, err);
    strata_memory_finish(&memory);
    strata_layout_finish(&layout);
    return status;
}

Test(alloc, layouts) {
    fail_each_allocation("layout", layout_scenario, 1, 1, 1000);
}

static strata_status npy_scenario(strata_error *err) {
    float values[6] = {1, 2, 3, 4, 5, 6};
    strata_array array = strata_array_view(f32, STRATA_SHAPE(2, 3), values), back = {0};
    STRATA_TRY(test_write_npy(test_path("story.npy"), &array, err));
    STRATA_TRY(strata_npy_read(test_path("story.npy"), &back, err));
    strata_array_finish(&back);
    return STRATA_OK;
}

static strata_status safetensors_scenario(strata_error *err) {
    float values[6] = {1, 2, 3, 4, 5, 6};
    strata_named_array arrays[] = {{"w", strata_array_view(f32, STRATA_SHAPE(2, 3), values)},
                                   {"b", strata_array_view(f32, STRATA_SHAPE(3), values)}};
    strata_metadata metadata = {"format", "story"};
    strata_safetensors file = {0};
    strata_array loaded = {0};
    STRATA_TRY(strata_safetensors_write(test_path("story.safetensors"), arrays, 2, &metadata, 1, NULL, err));
    STRATA_TRY(strata_safetensors_read(test_path("story.safetensors"), &file, err));
    strata_status status = strata_safetensors_load(&file, "b", &loaded, err);
    strata_array_finish(&loaded);
    strata_safetensors_finish(&file);
    return status;
}

static strata_status idx_scenario(strata_error *err) {
    static const unsigned char bytes[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    strata_array array = {0};
    STRATA_TRY(strata_idx_read(test_file("story.idx", bytes, sizeof bytes), &array, err));
    strata_array_finish(&array);
    return STRATA_OK;
}

static strata_status dataset_scenario(strata_error *err) {
    strata_dataset *dataset = NULL;
    strata_array features = {0}, labels = {0};
    float x[8], y[4];
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(4, 2), &features, err));
    strata_status status = strata_array_create(STRATA_DTYPE_I64, STRATA_SHAPE(4), &labels, err);
    if (status) {
        strata_array_finish(&features);
        return status;
    }
    memset(features.data, 1, strata_array_bytes(&features));
    memset(labels.data, 0, strata_array_bytes(&labels));
    STRATA_TRY(strata_dataset_take_arrays(&features, &labels, 1.0 / 255, &dataset, err));
    strata_order *order = NULL;
    status = strata_order_create(4, true, 1, 2, &order, err);
    if (!status) strata_dataset_fetch(dataset, order, 0, 4, x, y);
    strata_order_destroy(order);
    strata_dataset_destroy(dataset);
    return status;
}

static strata_status dataset_file_scenario(strata_error *err) {
    static const unsigned char bytes[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    strata_dataset *dataset = NULL;
    STRATA_TRY(strata_dataset_from_file(test_file("rows.idx", bytes, sizeof bytes), STRATA_SHAPE(3), &dataset, err));
    strata_dataset_destroy(dataset);
    return STRATA_OK;
}

static strata_status mnist_scenario(strata_error *err) {
    static unsigned char images[16 + 2 * 784] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 3};
    strata_dataset *dataset = NULL;
    test_file("t10k-images-idx3-ubyte", images, sizeof images);
    test_file("t10k-labels-idx1-ubyte", labels, sizeof labels);
    STRATA_TRY(strata_dataset_mnist(test_folder(), "test", 0, &dataset, err));
    strata_dataset_destroy(dataset);
    return STRATA_OK;
}

/* All kinds of records, in a folder of their own, since a file in the same folder needs another name. After each record the
 * thread that writes it is idle. */
static strata_status events_scenario(strata_error *err) {
    static int n_runs;
    char folder[32];
    static const float values[] = {0, 0.5f, 1, 0.25f};
    static const char *const inputs[] = {"x"};
    const strata_array picture = strata_array_view(f32, STRATA_SHAPE(2, 2, 1), (void *)values);
    const strata_hyperparameter rate = {.name = "rate", .number = 0.1}, strategy = {.name = "strategy", .text = "mirrored"};
    const strata_event_node nodes[] = {{.name = "x", .op = "input", .dtype = f32, .shape = STRATA_SHAPE(2)},
                                       {.name = "y", .op = "neg", .inputs = inputs, .n_inputs = 1, .device = "host"}};
    strata_events *events = NULL;
    snprintf(folder, sizeof folder, "events%d", n_runs++);
    STRATA_TRY(strata_events_create(test_path(folder), &events, err));
    strata_status status = strata_events_scalar(events, "loss", 1, 0.5, err);
    if (!status) status = strata_events_flush(events, err);
    if (!status) status = strata_events_histogram(events, "weights", 1, &picture, err);
    if (!status) status = strata_events_flush(events, err);
    if (!status) status = strata_events_image(events, "picture", 1, &picture, err);
    if (!status) status = strata_events_flush(events, err);
    if (!status) status = strata_events_text(events, "note", 1, "text", err);
    if (!status) status = strata_events_flush(events, err);
    if (!status)
        status = strata_events_hyperparameters(events, (strata_hyperparameter[]){rate, strategy}, 2, (const char *[]){"loss"},
                                               1, err);
    if (!status) status = strata_events_flush(events, err);
    if (!status) status = strata_events_graph(events, nodes, 2, err);
    strata_events_destroy(events);
    return status;
}

Test(alloc, records_of_events) {
    fail_each_allocation("events", events_scenario, 1, 1, 1000);
}

Test(alloc, files) {
    fail_each_allocation("npy", npy_scenario, 1, 1, 1000);
    fail_each_allocation("safetensors", safetensors_scenario, 1, 1, 1000);
    fail_each_allocation("idx", idx_scenario, 1, 1, 1000);
}

Test(alloc, datasets) {
    fail_each_allocation("dataset", dataset_scenario, 1, 1, 1000);
    fail_each_allocation("dataset from file", dataset_file_scenario, 1, 1, 1000);
    fail_each_allocation("mnist", mnist_scenario, 1, 1, 1000);
}

/* ---- tables, text and pipelines ---- */
static strata_status csv_scenario(strata_error *err) {
    static const char text[] = "a,b,kind\n1,\"2\",x\n3,4,y\n";
    strata_dataset *dataset = NULL;
    STRATA_TRY(
        strata_dataset_csv(test_file("t.csv", text, sizeof text - 1), &(strata_csv_options){.label = "kind"}, &dataset, err));
    strata_dataset_destroy(dataset);
    return STRATA_OK;
}

static strata_status cifar10_scenario(strata_error *err) {
    static unsigned char records[2 * 3073];
    strata_dataset *dataset = NULL;
    test_file("data_batch_1.bin", records, sizeof records);
    STRATA_TRY(strata_dataset_cifar10(test_folder(), "train", &dataset, err));
    strata_dataset_destroy(dataset);
    return STRATA_OK;
}

static strata_status tokenizer_scenario(strata_tokenizer_kind kind, strata_error *err) {
    static const char text[] = "the low lower lowest, the new newer newest\nlow low the\n";
    strata_texts *texts = NULL;
    strata_tokenizer *tokenizer = NULL, *back = NULL;
    strata_dataset *dataset = NULL;
    char *json = NULL;
    strata_status status;
    STRATA_TRY_GOTO(strata_texts_lines(test_file("t.txt", text, sizeof text - 1), &texts, err));
    STRATA_TRY_GOTO(
        strata_tokenizer_train(texts, &(strata_tokenizer_options){.kind = kind, .vocabulary = 20}, &tokenizer, err));
    STRATA_TRY_GOTO(strata_tokenizer_to_json(tokenizer, &json, err));
    STRATA_TRY_GOTO(strata_tokenizer_from_json(json, strlen(json), "story", &back, err));
    STRATA_TRY_GOTO(strata_dataset_from_texts(texts, back, 5, &dataset, err));
    strata_dataset_destroy(dataset);
    dataset = NULL;
    STRATA_TRY_GOTO(strata_dataset_from_text("low new", back, 5, &dataset, err));
cleanup:
    strata_dataset_destroy(dataset);
    strata_tokenizer_destroy(back);
    strata_tokenizer_destroy(tokenizer);
    strata_texts_destroy(texts);
    free(json);
    return status;
}

static strata_status words_scenario(strata_error *err) {
    return tokenizer_scenario(STRATA_TOKENIZER_WORDS, err);
}
static strata_status subwords_scenario(strata_error *err) {
    return tokenizer_scenario(STRATA_TOKENIZER_SUBWORDS, err);
}

static strata_status imdb_scenario(strata_error *err) {
    static const char text[] = "review,sentiment\ngood,positive\nbad,negative\n";
    strata_texts *texts = NULL;
    test_file("imdb_test.csv", text, sizeof text - 1);
    STRATA_TRY(strata_texts_imdb(test_folder(), "test", &texts, err));
    strata_texts_destroy(texts);
    return STRATA_OK;
}

static strata_status image_folder_scenario(strata_error *err) {
    strata_dataset *dataset = NULL;
    mkdir(test_path("cat"), 0777);
    test_file("cat/1.pgm", "P5 1 1 255\nx", 12);
    test_file("cat/2.pgm", "P5 1 1 255\ny", 12);
    STRATA_TRY(strata_dataset_image_folder(test_folder(), 1, &dataset, err));
    strata_dataset_destroy(dataset);
    return STRATA_OK;
}

static strata_status npz_scenario(strata_error *err) {
    strata_dataset *dataset = NULL;
    STRATA_TRY(strata_dataset_npz(STRATA_TEST_SOURCE_DIR "/tests/fuzz/corpus/npz/stored", "x", "y", &dataset, err));
    strata_dataset_destroy(dataset);
    return STRATA_OK;
}

static strata_status document_scenario(strata_error *err) {
    strata_texts *texts = NULL;
    strata_tokenizer *tokenizer = NULL;
    strata_dataset *d = NULL;
    strata_iterator *it = NULL;
    strata_element element = {0};
    const strata_element_spec spec = {.n_parts = 1, .parts = {{STRATA_DTYPE_I32, STRATA_SHAPE(-1)}}};
    bool more;
    strata_status status;
    STRATA_TRY_GOTO(strata_texts_lines(test_file("d.txt", "a b\nc\n", 6), &texts, err));
    STRATA_TRY_GOTO(strata_tokenizer_train(texts, NULL, &tokenizer, err));
    STRATA_TRY_GOTO(strata_dataset_take_texts(&texts, &d, err));
    strata_tokenize options = {.tokenizer = tokenizer};
    STRATA_TRY_GOTO(strata_dataset_map(&d, strata_map_tokenize, &options, &(strata_map_options){.spec = &spec}, err));
    STRATA_TRY_GOTO(strata_dataset_padded_batch(&d, 2, false, NULL, NULL, err));
    STRATA_TRY_GOTO(strata_iterator_create(d, 0, 0, 0, &it, err));
    STRATA_TRY_GOTO(strata_iterator_next(it, &element, &more, err));
cleanup:
    strata_element_finish(&element);
    strata_iterator_destroy(it);
    strata_dataset_destroy(d);
    strata_tokenizer_destroy(tokenizer);
    strata_texts_destroy(texts);
    return status;
}

static strata_status leave(strata_element *element, void *user, strata_error *err) {
    (void)element, (void)user, (void)err;
    return STRATA_OK;
}
static strata_status keep(const strata_element *element, void *user, bool *out_keep, strata_error *err) {
    (void)element, (void)user, (void)err;
    *out_keep = true;
    return STRATA_OK;
}
static strata_status again(const strata_element *element, void *user, strata_dataset **out_dataset, strata_error *err) {
    (void)user;
    strata_array view = strata_array_view(f32, STRATA_SHAPE(1, 2, 2, 1), element->parts[0].data), copy = {0};
    STRATA_TRY(strata_array_create(f32, view.shape, &copy, err));
    memcpy(copy.data, view.data, strata_array_bytes(&copy));
    return strata_dataset_take_arrays(&copy, NULL, 0, out_dataset, err);
}

/* Adds every stage that runs in the caller's thread, because the shim counts the allocations of one thread only. */
static strata_status put_stages(strata_dataset **d, strata_error *err) {
    static strata_flip_crop crop = {.flip = true, .padding = 1};
    STRATA_TRY(strata_dataset_map(d, strata_augment_flip_crop, &crop, NULL, err));
    STRATA_TRY(strata_dataset_shuffle(d, NULL, err));
    STRATA_TRY(strata_dataset_interleave(
        d, again, NULL, &(strata_interleave_options){2, 1, {.n_parts = 1, .parts = {{f32, STRATA_SHAPE(2, 2, 1)}}}}, err));
    STRATA_TRY(strata_dataset_shuffle(d, &(strata_shuffle_options){.buffer = 3}, err));
    STRATA_TRY(strata_dataset_filter(d, keep, NULL, err));
    STRATA_TRY(strata_dataset_cache(d, err));
    STRATA_TRY(strata_dataset_repeat(d, 2, err));
    STRATA_TRY(strata_dataset_skip(d, 1, err));
    STRATA_TRY(strata_dataset_take(d, 8, err));
    STRATA_TRY(strata_dataset_shard(d, 2, 0, err));
    STRATA_TRY(strata_dataset_map(d, leave, NULL, NULL, err));
    strata_dataset *both[2] = {*d, strata_dataset_retain(*d)};
    strata_status status = strata_dataset_zip(both, 2, d, err);
    if (status) strata_dataset_destroy(both[1]);
    STRATA_TRY(status);
    return strata_dataset_padded_batch(d, 3, false, NULL, NULL, err);
}

static strata_status pipeline_scenario(strata_error *err) {
    static float pixels[5 * 4];
    strata_array x = strata_array_view(f32, STRATA_SHAPE(5, 2, 2, 1), pixels);
    strata_dataset *d = NULL;
    strata_iterator *it = NULL;
    STRATA_TRY(strata_dataset_from_arrays(&x, NULL, 0, &d, err));
    strata_status status = put_stages(&d, err);
    if (!status) status = strata_iterator_create(d, 1, 0, 0, &it, err);
    for (bool more = true; !status && more;) {
        strata_element element;
        status = strata_iterator_next(it, &element, &more, err);
        strata_element_finish(&element);
    }
    strata_iterator_destroy(it);
    strata_dataset_destroy(d);
    return status;
}

Test(alloc, tables_and_text) {
    fail_each_allocation("csv", csv_scenario, 1, 1, 1000);
    fail_each_allocation("cifar10", cifar10_scenario, 1, 1, 1000);
    fail_each_allocation("words", words_scenario, 1, 1, 5000);
    fail_each_allocation("subwords", subwords_scenario, 1, 1, 5000);
    fail_each_allocation("imdb", imdb_scenario, 1, 1, 1000);
    fail_each_allocation("image folder", image_folder_scenario, 1, 1, 1000);
    fail_each_allocation("npz", npz_scenario, 1, 1, 1000);
    fail_each_allocation("documents", document_scenario, 1, 1, 1000);
}

Test(alloc, pipelines) {
    fail_each_allocation("pipeline", pipeline_scenario, 1, 1, 5000);
}

/* ---- resolving the cluster specification ---- */

static const char *variable_of(void *context, const char *name) {
    const size_t n = strlen(name);
    for (const char *const *row = context; *row; row++)
        if (!strncmp(*row, name, n) && (*row)[n] == '=') return *row + n + 1;
    return NULL;
}

static strata_status cluster_scenario(strata_error *err) {
    static const char *const cases[][6] = {
        {"TF_CONFIG={\"cluster\":{\"chief\":[\"a:1\"],\"worker\":[\"b:1\",\"c:1\"]},"
         "\"task\":{\"type\":\"worker\",\"index\":1}}"},
        {"STRATA_CLUSTER=chief=a:1;worker=b:1,c:1,d:1", "STRATA_TASK=worker:2"},
        {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=3", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_TASKS_PER_NODE=2,1",
         "SLURM_LOCALID=1"},
        {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=1"},
        {"JOB_COMPLETION_INDEX=1", "HOSTNAME=j-1", "STRATA_WORLD_SIZE=3"},
        {"JOB_COMPLETION_INDEX=1", "HOSTNAME=j-1", "STRATA_WORLD_SIZE=3", "STRATA_ROLES=chief=1,ps=1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_cluster_options opts = {.environment = {variable_of, (void *)cases[i]}};
        strata_cluster_spec spec;
        STRATA_TRY(strata_cluster_spec_resolve(&opts, &spec, err));
        strata_cluster_spec_finish(&spec);
    }
    return STRATA_OK;
}

Test(alloc, clusters) {
    fail_each_allocation("cluster", cluster_scenario, 1, 1, 1000);
}

static strata_status list_scenario(strata_error *err) {
    strata_device_info *rows = NULL;
    int n = 0;
    STRATA_TRY(strata_devices_list(&rows, &n, err));
    strata_devices_free(rows);
    return STRATA_OK;
}

Test(alloc, lists_of_devices) {
    fail_each_allocation("devices", list_scenario, 1, 1, 100);
}

/* ---- schedules of pipelines ---- */

static strata_status schedule_scenario(strata_error *err) {
    static const double seconds[] = {1, 2, 3};
    static const int64_t bytes[] = {1, 2, 3};
    const strata_chain_calls chain = {3, 2, seconds, bytes, bytes, .limits = NULL};
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL, *again = NULL;
    STRATA_FINISHED(strata_text) text = {0};
    STRATA_FREED char *string = NULL;
    STRATA_FREED strata_action *actions = NULL;
    strata_pipeline_prediction prediction;
    int first[2], n;
    STRATA_TRY(strata_chain_cut(&chain, first, err));
    STRATA_TRY(strata_pipeline_schedule_create("1f1b", 2, 3, &schedule, err));
    strata_pipeline_schedule_write(schedule, &text);
    STRATA_TRY(strata_text_take(&text, &string, NULL, err));
    STRATA_TRY(strata_pipeline_schedule_read(string, &again, err));
    STRATA_TRY(strata_pipeline_schedule_order(again, NULL, &actions, &n, err));
    STRATA_TRY(strata_pipeline_schedule_simulate(again, NULL, &prediction, err));
    free(prediction.stages);
    return STRATA_OK;
}

Test(alloc, schedules_of_pipelines) {
    fail_each_allocation("schedule", schedule_scenario, 1, 1, 1000);
}
