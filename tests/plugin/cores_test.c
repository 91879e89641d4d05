/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables "steps", "topology" and "collectives" of a plugin's device: they reach the device table, and one that breaks a
 * rule of strata/plugin.h is refused with the rule when the device is opened. The plugin here computes nothing. */
#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

#include "backends/plugin/plugin.h"

static strata_error err;

/* ---- a plugin ---- */

static struct tables {
    const strata_plugin_steps *steps;
    const strata_plugin_topology *topology;
    const strata_plugin_collectives *collectives;
} tables;
static int n_open;

struct strata_plugin_device {
    int unused;
};

static void close_device(strata_plugin_device *device) {
    (void)device;
    n_open--;
}
static strata_plugin_status buffer_create(strata_plugin_device *device, int64_t bytes, strata_plugin_buffer **out,
                                          strata_plugin_error *error) {
    (void)device, (void)bytes, (void)out, (void)error;
    return STRATA_PLUGIN_UNSUPPORTED;
}
static void buffer_destroy(strata_plugin_device *device, strata_plugin_buffer *buffer) {
    (void)device, (void)buffer;
}
static strata_plugin_status upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, strata_plugin_error *error) {
    (void)device, (void)buffer, (void)offset, (void)source, (void)bytes, (void)error;
    return STRATA_PLUGIN_UNSUPPORTED;
}
static strata_plugin_status download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, strata_plugin_error *error) {
    (void)device, (void)buffer, (void)offset, (void)target, (void)bytes, (void)error;
    return STRATA_PLUGIN_UNSUPPORTED;
}
static strata_plugin_support supports(strata_plugin_device *device, const strata_plugin_piece *piece, int32_t node,
                                      const char **out_reason) {
    (void)device, (void)piece, (void)node;
    *out_reason = "it computes nothing";
    return STRATA_PLUGIN_NO;
}
static strata_plugin_status compile(strata_plugin_device *device, const strata_plugin_piece *piece, strata_plugin_program **out,
                                    strata_plugin_error *error) {
    (void)device, (void)piece, (void)out, (void)error;
    return STRATA_PLUGIN_UNSUPPORTED;
}
static void program_destroy(strata_plugin_program *program) {
    (void)program;
}
static void *program_input(strata_plugin_program *program, int32_t slot) {
    (void)program, (void)slot;
    return NULL;
}
static const void *program_output(strata_plugin_program *program, int32_t slot) {
    (void)program, (void)slot;
    return NULL;
}
static strata_plugin_status run(strata_plugin_program *program, int32_t first, int32_t n, uint64_t *out_ticket,
                                strata_plugin_error *error) {
    (void)program, (void)first, (void)n, (void)out_ticket, (void)error;
    return STRATA_PLUGIN_UNSUPPORTED;
}
static strata_plugin_status wait_for(strata_plugin_device *device, uint64_t ticket, int64_t timeout_ns,
                                     strata_plugin_error *error) {
    (void)device, (void)ticket, (void)timeout_ns, (void)error;
    return STRATA_PLUGIN_OK;
}
static const void *table(strata_plugin_device *device, const char *name) {
    (void)device;
    if (!strcmp(name, "steps")) return tables.steps;
    if (!strcmp(name, "topology")) return tables.topology;
    return strcmp(name, "collectives") ? NULL : tables.collectives;
}

static strata_plugin_status start(const char *options, int32_t *out_n, strata_plugin_error *error) {
    (void)options, (void)error;
    *out_n = 1;
    return STRATA_PLUGIN_OK;
}
static const strata_plugin_device_info *device_info(int32_t index) {
    static const strata_plugin_device_info info = {.size = sizeof info, .name = "Board", .dtypes = 1};
    (void)index;
    return &info;
}
static strata_plugin_status device_open(int32_t index, strata_plugin_device **out_device,
                                        const strata_plugin_device_calls **out_calls, strata_plugin_error *error) {
    static strata_plugin_device device;
    static const strata_plugin_device_calls calls = {.size = sizeof calls,
                                                     .close = close_device,
                                                     .buffer_create = buffer_create,
                                                     .buffer_destroy = buffer_destroy,
                                                     .upload = upload,
                                                     .download = download,
                                                     .supports = supports,
                                                     .compile = compile,
                                                     .program_destroy = program_destroy,
                                                     .program_input = program_input,
                                                     .program_output = program_output,
                                                     .run = run,
                                                     .wait = wait_for,
                                                     .table = table};
    (void)index, (void)error;
    n_open++;
    *out_device = &device;
    *out_calls = &calls;
    return STRATA_PLUGIN_OK;
}

static strata_status open_device(struct tables given, strata_device **out_device) {
    static const strata_plugin all = {.size = sizeof all,
                                      .version_major = STRATA_PLUGIN_VERSION_MAJOR,
                                      .version_minor = STRATA_PLUGIN_VERSION_MINOR,
                                      .name = "board",
                                      .start = start,
                                      .device_info = device_info,
                                      .device_open = device_open};
    plugin loaded = {0};
    tables = given;
    cr_assert_eq(strata_bridge_start(&loaded, &all, &err), STRATA_OK, "%s", err.message);
    const strata_device_info row = strata_bridge_device_row(&loaded, 0);
    return strata_bridge_device_open(&loaded, &row, 0, &(strata_device_options){0}, out_device, &err);
}

/* ---- tests ---- */

static const int32_t dims[] = {2, 4}, coordinates[] = {1, 2};
static const strata_plugin_topology sound = {
    .size = sizeof sound, .system = "board 0", .n_cores = 8, .core = 6, .rank = 2, .dims = dims, .coordinates = coordinates};

static int64_t reached(strata_plugin_device *device) {
    (void)device;
    return 7;
}

Test(plugin_cores, tables_reach_the_device_table) {
    static const strata_plugin_steps any = {.size = sizeof any}, nine = {.size = sizeof nine, .most = 9};
    static const strata_plugin_collectives sums = {.size = sizeof sums, .sum_dtypes = 5, .reached = reached};
    strata_device *device = NULL;
    cr_assert_eq(open_device((struct tables){&nine, &sound, &sums}, &device), STRATA_OK, "%s", err.message);
    const strata_topology *topology = strata_device_get_topology(device);
    cr_assert(topology && !strcmp(topology->system, "board 0") && topology->n_cores == 8 && topology->core == 6);
    cr_assert(topology->rank == 2 && topology->dims[1] == 4 && topology->coordinates[1] == 2);
    cr_assert_eq(strata_device_most_runs(device), 9);
    const strata_device_collectives *collectives = device->api->collectives(device);
    cr_assert(collectives && collectives->sum_dtypes == 5 && collectives->reached(device) == 7);
    strata_device_close(device);
    cr_assert_eq(open_device((struct tables){.steps = &any}, &device), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_device_most_runs(device), INT_MAX);
    cr_assert_null(strata_device_get_topology(device));
    cr_assert_null(device->api->collectives(device));
    strata_device_close(device);
    cr_assert_eq(open_device((struct tables){0}, &device), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_device_most_runs(device), 1);
    strata_device_close(device);
    cr_assert_eq(n_open, 0);
}

/* A plugin of version 1.0 before the field was appended. */
Test(plugin_cores, a_smaller_table_has_none_of_what_came_later) {
    static const strata_plugin_collectives early = {
        .size = offsetof(strata_plugin_collectives, reached), .sum_dtypes = 1, .reached = reached};
    strata_device *device = NULL;
    cr_assert_eq(open_device((struct tables){.topology = &sound, .collectives = &early}, &device), STRATA_OK, "%s",
                 err.message);
    cr_assert_null(device->api->collectives(device)->reached);
    strata_device_close(device);
}

Test(plugin_cores, a_core_that_is_abandoned_is_lost) {
    strata_device *device = NULL;
    strata_error why = {0};
    cr_assert_eq(open_device((struct tables){.topology = &sound}, &device), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_fail(&why, STRATA_TIMEOUT, "board:3 hangs"), STRATA_TIMEOUT);
    device->api->abandon(device, &why);
    cr_assert_eq(device->api->wait(device, 0, &err), STRATA_DEVICE_LOST);
    cr_assert(strstr(err.message, "board:3 hangs"), "%s", err.message);
    strata_device_close(device);
}

static void expect_refused(struct tables given, const char *words) {
    strata_device *device = NULL;
    cr_assert_eq(open_device(given, &device), STRATA_INTERNAL, "%s was not noticed", words);
    cr_assert(strstr(err.message, words) && strstr(err.message, "board:0"), "\"%s\" is not in: %s", words, err.message);
    cr_assert_eq(n_open, 0, "the device was not given back");
}

Test(plugin_cores, tables_that_break_a_rule_are_refused) {
    static const strata_plugin_steps negative = {.size = sizeof negative, .most = -1}, tiny = {.size = 2};
    static const strata_plugin_collectives sums = {.size = sizeof sums, .sum_dtypes = 1};
    expect_refused((struct tables){.steps = &negative}, "\"steps\" says -1 runs");
    expect_refused((struct tables){.steps = &tiny}, "\"steps\" says size 2");
    expect_refused((struct tables){.collectives = &sums}, "no \"topology\"");
    strata_plugin_topology t = sound;
    t.core = 8;
    expect_refused((struct tables){.topology = &t}, "core 8 of 8");
    t = sound;
    t.system = NULL;
    expect_refused((struct tables){.topology = &t}, "is NULL");
    t.system = "a name of a system that is longer than the sixty-three bytes that there are";
    expect_refused((struct tables){.topology = &t}, "is longer");
    t = sound;
    t.rank = 5;
    expect_refused((struct tables){.topology = &t}, "rank 5");
    t = sound;
    t.coordinates = NULL;
    expect_refused((struct tables){.topology = &t}, "without its arrays");
    t = sound;
    t.dims = coordinates;
    expect_refused((struct tables){.topology = &t}, "coordinate 1 of 1 in dimension 0");
}
