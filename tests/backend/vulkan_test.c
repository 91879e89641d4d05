/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of the Vulkan backend alone: the validation layer, memory blocks, staging, tickets, the pipeline cache, and
 * the reasons why a device is skipped. Every test runs under the validation layer where it is installed. What every device
 * must do is tested in tests/conformance. */
#if STRATA_WITH_VULKAN
#include "backends/vulkan/vulkan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/registry.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/support/folder.h"
#include "tests/support/shims.h"

extern const strata_backend strata_backend_vulkan;

TestSuite(vulkan, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 1000 };

/* Opens the first device that can be opened. Returns NULL when there is none. */
static strata_device *open_any(void) {
    strata_error err = {0};
    strata_device_list list = {0};
    strata_device *device = NULL;
    cr_assert(!strata_backend_vulkan.list(&list, &err), "%s", err.message);
    strata_device_options opts = {.no_tune = true, .cache_dir = test_path("cache")};
    for (int i = 0; i < list.n && !device; i++) {
        if (list.rows[i].skipped[0]) continue;
        setenv("STRATA_VULKAN_VALIDATION", "1", 1);
        strata_status status = strata_backend_vulkan.open(&list.rows[i], &opts, &device, &err);
        if (status == STRATA_UNAVAILABLE) { /* the layer is not installed */
            unsetenv("STRATA_VULKAN_VALIDATION");
            status = strata_backend_vulkan.open(&list.rows[i], &opts, &device, &err);
        }
        cr_assert(!status, "%s", err.message);
    }
    strata_devices_free(list.rows);
    return device;
}

#define OPEN(device)                    \
    strata_device *device = open_any(); \
    if (!device) cr_skip_test("no Vulkan device")

#define OK(call) cr_assert_eq(call, STRATA_OK, "%s", err.message)

/* Closes the device. The validation layer must not have reported anything, and every object must have been destroyed. */
static void close_silently(strata_device *device) {
    vulkan_messages messages = {0};
    strata_vulkan_report_close(device, &messages);
    strata_device_close(device);
    cr_assert_eq(messages.n, 0, "%s", messages.first);
}

/* A program that computes total += x and y = 2 x. The total is read afterwards. */
typedef struct counting {
    strata_variable *total;
    strata_graph *graph;
    strata_executable *exe;
} counting;

static void counting_create(strata_device *device, counting *c) {
    strata_error err = {0};
    OK(strata_variable_create(device, "total", STRATA_DTYPE_F32, STRATA_SHAPE(N), &c->total, &err));
    OK(strata_graph_create(&c->graph, &err));
    strata_tensor *x = strata_input(c->graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N));
    strata_tensor *y = strata_mul(x, strata_scalar(c->graph, STRATA_DTYPE_F32, 2));
    strata_tensor *update = strata_assign_add(strata_variable_read(c->graph, c->total), x);
    OK(strata_executable_create(device, &y, 1, &update, 1, NULL, &c->exe, &err));
}

static void counting_destroy(counting *c) {
    strata_executable_destroy(c->exe);
    strata_graph_destroy(c->graph);
    strata_variable_destroy(c->total);
}

/* Makes n runs with x = 1, 2, ... n and checks every y and the total. */
static void counting_run(counting *c, int n) {
    strata_error err = {0};
    int value_in[8] = {0}, slot = 0;
    float total[N];
    for (int i = 1; i <= n + strata_executable_n_slots(c->exe); i++) {
        OK(strata_executable_acquire(c->exe, &slot, &err));
        const float *y = strata_executable_output(c->exe, slot, 0);
        for (int e = 0; e < N && value_in[slot]; e++) cr_assert_eq(y[e], 2 * (float)value_in[slot]);
        value_in[slot] = i <= n ? i : 0;
        if (i > n) continue;
        float *x = strata_executable_input(c->exe, slot, 0);
        for (int e = 0; e < N; e++) x[e] = (float)i;
        OK(strata_executable_submit(c->exe, slot, &err));
    }
    strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N), total);
    OK(strata_variable_get(c->total, &array, &err));
    for (int e = 0; e < N; e++) cr_assert_eq(total[e], (float)(n * (n + 1) / 2));
}

/* ---- programs ---- */
Test(vulkan, drivers_stay_mapped_when_their_instance_ends) {
    vulkan_instance instance;
    strata_error err = {0};
    int mapped[2];
    const int before = strata_vulkan_count_libraries();
    for (int i = 0; i < 2; i++) {
        if (strata_vulkan_instance_create(false, &instance, &err)) cr_skip_test("%s", err.message);
        strata_vulkan_instance_destroy(&instance);
        mapped[i] = strata_vulkan_count_libraries();
    }
    cr_assert_gt(mapped[0], before + 1, "the loader, and no driver");
    cr_assert_eq(mapped[1], mapped[0]);
}

Test(vulkan, replays_in_silence) {
    OPEN(device);
    counting c;
    counting_create(device, &c);
    counting_run(&c, 100);
    cr_assert_eq(strata_vulkan_validation_messages(device), 0);
    counting_destroy(&c);
    close_silently(device);
}

/* A product that takes the device longer than the limit of 1 ms. */
Test(vulkan, a_submission_that_does_not_end_in_time_is_a_timeout) {
    enum { SIDE = 1024 };
    OPEN(device);
    if (device->info.device_class > STRATA_DEVICE_CPU) cr_skip_test("%s may be faster than the limit", device->info.name);
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    strata_error err = {0};
    int slot = 0, n_timeouts = 0, n_lost = 0;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *y = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(SIDE, SIDE));
    for (int i = 0; i < 4; i++) y = strata_matmul(y, y, false, false);
    OK(strata_executable_create(device, &y, 1, NULL, 0, &(strata_executable_options){.n_slots = 1}, &exe, &err));
    ((vulkan_device *)device)->stall_seconds = 1e-3;
    for (int i = 0; i < 3; i++) {
        strata_status status = strata_executable_acquire(exe, &slot, &err);
        if (!status) status = strata_executable_submit(exe, slot, &err);
        if (status == STRATA_TIMEOUT && strstr(err.message, "stall_seconds")) n_timeouts++;
        if (status == STRATA_DEVICE_LOST) n_lost++;
    }
    cr_assert_eq(n_timeouts, 1, "%s", err.message);
    cr_assert_eq(n_lost, 1, "%s", err.message);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    close_silently(device);
}

Test(vulkan, a_limit_that_makes_no_sense_is_refused) {
    OPEN(device);
    char id[sizeof device->info.id];
    memcpy(id, device->info.id, sizeof id);
    strata_device_close(device);
    for (int i = 0; i < 3; i++) {
        strata_error err = {0};
        const strata_device_options opts = {.stall_seconds = ((double[]){-1, 1e-9, 1e10})[i]};
        cr_assert_eq(strata_device_open(id, &opts, &device, &err), STRATA_INVALID);
        cr_assert(strstr(err.message, "stall_seconds"), "%s", err.message);
    }
}

Test(vulkan, memory_that_is_not_unified_is_staged) {
    OPEN(device);
    device->info.unified_memory = false; /* as on a discrete GPU, whatever this device is */
    counting c;
    counting_create(device, &c);
    c.total->buffer->mapped = NULL;
    counting_run(&c, 20);
    counting_destroy(&c);
    close_silently(device);
}

Test(vulkan, gives_more_tickets_than_it_has_fences) {
    OPEN(device);
    strata_error err = {0};
    vulkan_device *vulkan = (vulkan_device *)device;
    uint64_t first = vulkan->last_ticket + 1, ticket = 0;
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    cr_assert(!vulkan->instance.vk.BeginCommandBuffer(vulkan->transfer_commands, &info));
    cr_assert(!vulkan->instance.vk.EndCommandBuffer(vulkan->transfer_commands));
    for (uint64_t i = 0; i < 3 * VULKAN_TICKETS; i++) {
        OK(strata_vulkan_submit(vulkan, vulkan->transfer_commands, &ticket, &err));
        cr_assert_eq(ticket, first + i);
    }
    OK(device->api->wait(device, first, &err));
    OK(device->api->wait(device, ticket, &err));
    cr_assert_eq(device->api->wait(device, ticket + 1, &err), STRATA_INVALID);
    close_silently(device);
}

/* Some parts of the pack begin at an offset at which no binding may begin. Their bindings begin earlier, so they overlap. */
Test(vulkan, neighbours_in_a_pack_are_written_in_silence) {
    enum { PART = 5 };
    OPEN(device);
    strata_error err = {0};
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *parts[3];
    const char *names[3] = {"a", "b", "c"};
    float in[3][PART], out[3 * PART];
    strata_array inputs[3], output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(3 * PART), out);
    for (int i = 0; i < 3; i++) {
        parts[i] = strata_exp(strata_input(graph, names[i], STRATA_DTYPE_F32, STRATA_SHAPE(PART)));
        inputs[i] = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(PART), in[i]);
        for (int e = 0; e < PART; e++) in[i][e] = i ? 0 : -1e9f;
    }
    strata_tensor *y = strata_neg(strata_pack(parts, (int64_t[]){0, PART, 2 * PART}, 3, 3 * PART));
    OK(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err));
    OK(strata_executable_run(exe, names, inputs, 3, &output, 1, &err));
    for (int e = 0; e < 3 * PART; e++) cr_assert_eq(out[e], e < PART ? 0 : -1);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    close_silently(device);
}

/* lavapipe ends the loops of a work-item after 65,535 iterations in all, without an error. Here each work-item computes so
 * many blocks of the product that it comes close to this limit. */
Test(vulkan, a_product_of_many_blocks_is_whole) {
    enum { M = 3600, K = 8, SAMPLE = 997 };
    OPEN(device);
    strata_error err = {0};
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    int slot = 0;
    OK(strata_graph_create(&graph, &err));
    strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(K, M)), *y = strata_matmul(x, x, true, false);
    OK(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err));
    OK(strata_executable_acquire(exe, &slot, &err));
    float *in = strata_executable_input(exe, slot, 0);
    for (int i = 0; i < K * M; i++) in[i] = (float)(i % 7 + 1);
    OK(strata_executable_submit(exe, slot, &err));
    OK(strata_executable_wait(exe, slot, &err));
    const float *out = strata_executable_output(exe, slot, 0);
    /* SAMPLE is prime, so the elements lie at all places of the blocks */
    for (int64_t i = 0; i < (int64_t)M * M; i += SAMPLE) {
        float sum = 0;
        for (int k = 0; k < K; k++) sum += in[k * M + i / M] * in[k * M + i % M];
        cr_assert_eq(out[i], sum, "element %lld", (long long)i);
    }
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    close_silently(device);
}

/* ---- validation ---- */
/* The test causes a message of the layer on purpose, so the layer must not write it where tests/run.sh would count it as a
 * failure. Each test case is a process of its own. */
static void only_the_device_hears_the_layer(void) {
    unsetenv("VK_INSTANCE_LAYERS");
    setenv("VK_LAYER_SETTINGS_PATH", "/nonexistent", 1);
}

Test(vulkan, a_missing_barrier_fails_the_wait, .init = only_the_device_hears_the_layer) {
    OPEN(device);
    vulkan_device *vulkan = (vulkan_device *)device;
    if (!vulkan->instance.messages) cr_skip_test("the validation layer is not installed");
    strata_error err = {0};
    strata_buffer *buffer = NULL;
    uint64_t ticket = 0;
    OK(device->api->buffer_create(device, 4096, &buffer, &err));
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    cr_assert(!vulkan->instance.vk.BeginCommandBuffer(vulkan->transfer_commands, &info));
    for (uint32_t i = 0; i < 2; i++) /* two writes to the same bytes without a barrier */
        vulkan->instance.vk.CmdFillBuffer(vulkan->transfer_commands, buffer->handle, 0, VK_WHOLE_SIZE, i);
    cr_assert(!vulkan->instance.vk.EndCommandBuffer(vulkan->transfer_commands));
    OK(strata_vulkan_submit(vulkan, vulkan->transfer_commands, &ticket, &err));
    cr_assert_eq(device->api->wait(device, ticket, &err), STRATA_INTERNAL);
    cr_assert(strstr(err.message, "SYNC-HAZARD"), "%s", err.message);
    cr_assert_gt(strata_vulkan_validation_messages(device), 0);
    device->api->buffer_destroy(device, buffer);
    device->api->close(device);
}

Test(vulkan, a_lost_device_refuses_to_run_and_closes) {
    OPEN(device);
    strata_error err = {0};
    counting c;
    counting_create(device, &c);
    counting_run(&c, 2);
    ((vulkan_device *)device)->lost = true;
    int slot = 0;
    OK(strata_executable_acquire(c.exe, &slot, &err));
    cr_assert_eq(strata_executable_submit(c.exe, slot, &err), STRATA_DEVICE_LOST);
    cr_assert(strstr(err.message, device->info.id) && strstr(err.message, "LOST"), "%s", err.message);
    counting_destroy(&c);
    close_silently(device);
}

/* ---- memory ---- */
Test(vulkan, small_buffers_share_memory_and_keep_their_bytes) {
    enum { BUFFERS = 300 };
    OPEN(device);
    strata_error err = {0};
    strata_buffer *buffers[BUFFERS] = {NULL};
    unsigned char bytes[BUFFERS * 7 + 1], read[BUFFERS * 7 + 1];
    for (int round = 0; round < 2; round++) { /* the second round fills the gaps that the first one left */
        for (int i = 0; i < BUFFERS; i++) {
            if (buffers[i]) continue;
            int64_t n = 1 + i * 7;
            OK(device->api->buffer_create(device, n, &buffers[i], &err));
            OK(device->api->download(device, buffers[i], 0, read, n, &err));
            for (int64_t b = 0; b < n; b++) cr_assert_eq(read[b], 0);
            memset(bytes, i % 251 + 1, (size_t)n);
            OK(device->api->upload(device, buffers[i], 0, bytes, n, &err));
        }
        for (int i = 0; i < BUFFERS; i++) {
            int64_t n = 1 + i * 7;
            OK(device->api->download(device, buffers[i], 0, read, n, &err));
            for (int64_t b = 0; b < n; b++) cr_assert_eq(read[b], i % 251 + 1);
        }
        for (int i = round ? 0 : 1; i < BUFFERS; i += round ? 1 : 3) {
            device->api->buffer_destroy(device, buffers[i]);
            buffers[i] = NULL;
        }
    }
    cr_assert_leq(strata_vulkan_count_blocks((vulkan_device *)device), 2);
    cr_assert_eq(device->counters.allocated_bytes, 0);
    close_silently(device);
}

Test(vulkan, a_large_buffer_gives_its_memory_back) {
    OPEN(device);
    strata_error err = {0};
    strata_buffer *buffer = NULL;
    int before = strata_vulkan_count_blocks((vulkan_device *)device);
    OK(device->api->buffer_create(device, 20 << 20, &buffer, &err));
    cr_assert_eq(strata_vulkan_count_blocks((vulkan_device *)device), before + 1);
    device->api->buffer_destroy(device, buffer);
    cr_assert_eq(strata_vulkan_count_blocks((vulkan_device *)device), before);
    close_silently(device);
}

Test(vulkan, staging_copies_more_than_its_buffer_holds) {
    enum { BYTES = (9 << 20) + 5 };
    OPEN(device);
    strata_error err = {0};
    strata_buffer *buffer = NULL;
    unsigned char *bytes = malloc(BYTES), *read = calloc(1, BYTES);
    cr_assert(bytes && read);
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 31 + i / 4096);
    OK(device->api->buffer_create(device, BYTES, &buffer, &err));
    buffer->mapped = NULL; /* the host cannot access the memory, as on a discrete GPU */
    OK(strata_vulkan_clear((vulkan_device *)device, buffer, &err));
    OK(device->api->upload(device, buffer, 1, bytes, BYTES - 1, &err));
    OK(device->api->download(device, buffer, 0, read, BYTES, &err));
    cr_assert_eq(read[0], 0);
    cr_assert(!memcmp(read + 1, bytes, BYTES - 1));
    cr_assert_eq(device->api->upload(device, buffer, 1, bytes, BYTES, &err), STRATA_INVALID);
    device->api->buffer_destroy(device, buffer);
    free(bytes);
    free(read);
    close_silently(device);
}

Test(vulkan, a_buffer_beyond_the_limit_names_the_limit) {
    OPEN(device);
    strata_error err = {0};
    strata_buffer *buffer = NULL;
    char limit[32];
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)device->info.max_allocation_bytes);
    cr_assert_eq(device->api->buffer_create(device, (int64_t)device->info.max_allocation_bytes + 1, &buffer, &err),
                 STRATA_OUT_OF_MEMORY);
    cr_assert(strstr(err.message, limit), "%s", err.message);
    close_silently(device);
}

/* ---- the pipeline cache ---- */
Test(vulkan, pipelines_of_another_device_or_driver_are_refused) {
    OPEN(device);
    const vulkan_device *vulkan = (vulkan_device *)device;
    const VkPhysicalDeviceProperties *properties = &vulkan->physical.properties;
    uint32_t data[10] = {32, VK_PIPELINE_CACHE_HEADER_VERSION_ONE, properties->vendorID, properties->deviceID};
    memcpy(data + 4, properties->pipelineCacheUUID, VK_UUID_SIZE);
    cr_assert(strata_vulkan_pipeline_data_fits(vulkan, data, sizeof data));
    for (size_t word = 0; word < 8; word++) {
        data[word] ^= 0x40;
        cr_expect_not(strata_vulkan_pipeline_data_fits(vulkan, data, sizeof data), "word %zu", word);
        data[word] ^= 0x40;
    }
    cr_assert_not(strata_vulkan_pipeline_data_fits(vulkan, data, 31));
    close_silently(device);
}

Test(vulkan, a_kernel_is_built_once) {
    OPEN(device);
    counting c;
    counting_create(device, &c);
    uint64_t built = device->counters.compilations;
    cr_assert_gt(built, 0);
    counting_destroy(&c);
    counting_create(device, &c);
    cr_assert_eq(device->counters.compilations, built);
    counting_run(&c, 2);
    counting_destroy(&c);
    close_silently(device);
}

/* ---- drivers and devices that cannot be used ---- */
Test(vulkan, no_driver_is_a_row_with_the_reason) {
    strata_error err = {0};
    strata_device_list list = {0};
    setenv("VK_ICD_FILENAMES", "/nonexistent/driver.json", 1);
    setenv("VK_DRIVER_FILES", "/nonexistent/driver.json", 1);
    OK(strata_backend_vulkan.list(&list, &err));
    cr_assert_eq(list.n, 1);
    cr_assert_str_eq(list.rows[0].id, "vulkan");
    cr_assert_str_neq(list.rows[0].skipped, "");
    strata_devices_free(list.rows);
}

static void use_shim(void) {
    const char *missing = test_use_vulkan_shim();
    if (missing) cr_skip_test("%s", missing);
}

/* Returns the row of vulkan:0 in the list of all devices. */
static strata_device_info listed(void) {
    strata_error err = {0};
    strata_device_info *rows = NULL, row = {0};
    int n = 0;
    OK(strata_devices_list(&rows, &n, &err));
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].id, "vulkan:0")) row = rows[i];
    strata_devices_free(rows);
    cr_assert_str_eq(row.id, "vulkan:0");
    return row;
}

static void cannot_be_used(const char *reason) {
    strata_error err = {0};
    strata_device *device = NULL;
    const strata_device_info row = listed();
    cr_assert(row.skipped[0] && strstr(row.skipped, reason), "\"%s\"", row.skipped);
    const strata_status status = strata_device_open("vulkan:0", NULL, &device, &err);
    cr_assert(status == STRATA_UNAVAILABLE || status == STRATA_OUT_OF_MEMORY || status == STRATA_INTERNAL, "%s: %s",
              strata_status_name(status), err.message);
    OK(strata_device_open(NULL, NULL, &device, &err));
    cr_assert_str_neq(strata_device_get_info(device)->backend, "vulkan");
    strata_device_close(device);
}

Test(vulkan, a_device_whose_opening_fails_closes_and_is_listed_with_the_reason) {
    static const char *const functions[] = {"vkCreateFence", "vkCreateCommandPool", "vkAllocateMemory", "vkCreateDevice"};
    use_shim();
    cr_assert_str_eq(listed().skipped, "");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        setenv("STRATA_SHIM_FAIL", functions[i], 1);
        cannot_be_used(i == 2 ? "no memory" : functions[i]);
    }
}

Test(vulkan, a_device_without_memory_is_listed_with_the_reason) {
    use_shim();
    setenv("STRATA_SHIM_NO_MEMORY", "1", 1);
    cannot_be_used("no memory");
}

Test(vulkan, mesas_device_without_hardware_is_listed_with_the_reason) {
    const char *manifest = "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json";
    char driver[512];
    test_vulkan_library(manifest, driver);
    if (!driver[0]) cr_skip_test("%s is not there (Debian: mesa-vulkan-drivers)", manifest);
    setenv("RADV_FORCE_FAMILY", "navi21", 1);
    test_use_vulkan_driver(manifest);
    cannot_be_used("");
}

Test(vulkan, a_device_that_went_away_is_said_so) {
    OPEN(device);
    strata_error err = {0};
    strata_device_info info = device->info;
    snprintf(info.id, sizeof info.id, "vulkan:57");
    strata_device *other = NULL;
    cr_assert_eq(strata_backend_vulkan.open(&info, NULL, &other, &err), STRATA_UNAVAILABLE);
    cr_assert(strstr(err.message, "vulkan:57"), "%s", err.message);
    close_silently(device);
}
#endif
