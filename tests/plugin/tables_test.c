/* SPDX-License-Identifier: Apache-2.0
 *
 * The optional tables "steps", "topology", "collectives", "transfers" and "spaces" of a plugin's device. Strata must copy
 * them to its own device table, and must refuse to open a device whose table breaks a rule of strata/plugin.h, with a
 * message that names the rule. The plugin in this file copies bytes but computes nothing. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/plugin/plugin.h"

static strata_error err;

/* ---- a plugin ---- */

static struct tables {
    const strata_plugin_steps *steps;
    const strata_plugin_topology *topology;
    const strata_plugin_collectives *collectives;
    const strata_plugin_transfers *transfers;
    const strata_plugin_spaces *spaces;
    const strata_plugin_costs *costs;
} tables;
static int n_open;

struct strata_plugin_device {
    int unused;
};

static void close_device(strata_plugin_device *device) {
    (void)device;
    n_open--;
}
struct strata_plugin_buffer {
    char bytes[64];
};

static strata_plugin_status buffer_create(strata_plugin_device *device, int64_t bytes, strata_plugin_buffer **out,
                                          strata_plugin_error *error) {
    (void)device, (void)error;
    *out = bytes <= (int64_t)sizeof(*out)->bytes ? calloc(1, sizeof(**out)) : NULL;
    return *out ? STRATA_PLUGIN_OK : STRATA_PLUGIN_OUT_OF_MEMORY;
}
static void buffer_destroy(strata_plugin_device *device, strata_plugin_buffer *buffer) {
    (void)device;
    free(buffer);
}
static strata_plugin_status upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                   const void *source, int64_t bytes, strata_plugin_error *error) {
    (void)device, (void)buffer, (void)offset, (void)source, (void)bytes, (void)error;
    return STRATA_PLUGIN_UNSUPPORTED; /* the functions of the table "transfers" must be called instead */
}
static strata_plugin_status download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset, void *target,
                                     int64_t bytes, strata_plugin_error *error) {
    (void)device, (void)buffer, (void)offset, (void)target, (void)bytes, (void)error;
    return STRATA_PLUGIN_UNSUPPORTED;
}

/* Copies that are carried out, oldest first, when someone waits for them. */
enum { MOST_COPIES = 64 };
static struct {
    void *to;
    const void *from;
    int64_t bytes;
} copies[MOST_COPIES];
static uint64_t n_copies, n_done, largest_backlog;
static bool hangs, forgets_to_count;

static strata_plugin_status put(void *to, const void *from, int64_t bytes, uint64_t *out_ticket) {
    copies[n_copies % MOST_COPIES].to = to;
    copies[n_copies % MOST_COPIES].from = from;
    copies[n_copies++ % MOST_COPIES].bytes = bytes;
    if (n_copies - n_done > largest_backlog) largest_backlog = n_copies - n_done;
    *out_ticket = forgets_to_count ? 1 : n_copies;
    return STRATA_PLUGIN_OK;
}
static strata_plugin_status begin_upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                         const void *source, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    (void)device, (void)error;
    return put(buffer->bytes + offset, source, bytes, out_ticket);
}
static strata_plugin_status begin_download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                           void *target, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    (void)device, (void)error;
    return put(target, buffer->bytes + offset, bytes, out_ticket);
}
static strata_plugin_status begin_copy(strata_plugin_device *to, strata_plugin_buffer *to_buffer, int64_t to_offset,
                                       strata_plugin_device *from, strata_plugin_buffer *from_buffer, int64_t from_offset,
                                       int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    (void)to, (void)from, (void)error;
    return put(to_buffer->bytes + to_offset, from_buffer->bytes + from_offset, bytes, out_ticket);
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
    (void)device, (void)timeout_ns, (void)error;
    if (hangs) return STRATA_PLUGIN_TIMEOUT;
    for (; n_done < n_copies && n_done < ticket; n_done++)
        memcpy(copies[n_done % MOST_COPIES].to, copies[n_done % MOST_COPIES].from, (size_t)copies[n_done % MOST_COPIES].bytes);
    return STRATA_PLUGIN_OK;
}
static const void *table(strata_plugin_device *device, const char *name) {
    (void)device;
    if (!strcmp(name, "steps")) return tables.steps;
    if (!strcmp(name, "topology")) return tables.topology;
    if (!strcmp(name, "transfers")) return tables.transfers;
    if (!strcmp(name, "spaces")) return tables.spaces;
    if (!strcmp(name, "costs")) return tables.costs;
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

Test(plugin_tables, tables_reach_the_device_table) {
    static const strata_plugin_steps any = {.size = sizeof any}, nine = {.size = sizeof nine, .most = 9};
    static const strata_plugin_collectives sums = {.size = sizeof sums, .sum_dtypes = 5, .reached = reached};
    strata_device *device = NULL;
    cr_assert_eq(open_device((struct tables){.steps = &nine, .topology = &sound, .collectives = &sums}, &device), STRATA_OK,
                 "%s", err.message);
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

/* A plugin that was compiled before version 1.0 got the last field of this table. */
Test(plugin_tables, a_smaller_table_has_none_of_what_came_later) {
    static const strata_plugin_collectives early = {
        .size = offsetof(strata_plugin_collectives, reached), .sum_dtypes = 1, .reached = reached};
    strata_device *device = NULL;
    cr_assert_eq(open_device((struct tables){.topology = &sound, .collectives = &early}, &device), STRATA_OK, "%s",
                 err.message);
    cr_assert_null(device->api->collectives(device)->reached);
    strata_device_close(device);
}

Test(plugin_tables, a_core_that_is_abandoned_is_lost) {
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

/* ---- spaces ---- */

static const strata_plugin_space hbm = {.size = sizeof hbm, .name = "HBM", .bytes = 1 << 20, .buffers = 1},
                                 chip = {.size = sizeof chip, .name = "on-chip", .bytes = 4096, .bytes_per_second = 2e9};

Test(plugin_tables, memory_spaces_are_features_of_the_device) {
    static const strata_plugin_space *const both[] = {&hbm, &chip};
    static const strata_plugin_spaces spaces = {.size = sizeof spaces, .n = 2, .spaces = both};
    strata_device *device = NULL;
    cr_assert_eq(open_device((struct tables){.spaces = &spaces}, &device), STRATA_OK, "%s", err.message);
    const strata_device_features f = strata_device_get_features(device);
    cr_assert(f.n_spaces == 2 && f.spaces[0].buffers && f.spaces[0].bytes == 1 << 20 && f.spaces[0].bytes_per_second == 0);
    cr_assert(!strcmp(f.spaces[1].name, "on-chip") && !f.spaces[1].buffers && f.spaces[1].bytes_per_second == 2e9);
    cr_assert(!f.transfers && !f.device_copies && !f.collectives && f.steps_per_call == 1);
    strata_device_close(device);
}

Test(plugin_tables, a_name_of_a_space_is_kept_whole_or_refused) {
    static char name[sizeof((strata_memory_space *)0)->name + 1];
    static strata_plugin_space space = {.size = sizeof space, .name = name, .bytes = 1};
    static const strata_plugin_space *const one[] = {&space};
    static const strata_plugin_spaces spaces = {.size = sizeof spaces, .n = 1, .spaces = one};
    for (size_t n = sizeof name - 3; n < sizeof name; n++) {
        memset(name, 'm', n);
        name[n] = 0;
        strata_device *device = NULL;
        if (n + 1 >= sizeof name) {
            expect_refused((struct tables){.spaces = &spaces}, "has no name of 1 to 31 bytes");
            continue;
        }
        cr_assert_eq(open_device((struct tables){.spaces = &spaces}, &device), STRATA_OK, "%zu: %s", n, err.message);
        cr_expect_str_eq(strata_device_get_features(device).spaces[0].name, name);
        strata_device_close(device);
    }
}

/* ---- transfers ---- */

static const strata_plugin_transfers all_copies = {
    .size = sizeof all_copies, .upload = begin_upload, .download = begin_download, .copy = begin_copy};

static strata_variable *variable_on(strata_device *device) {
    strata_variable *variable = NULL;
    cr_assert_eq(strata_variable_create(device, "v", STRATA_DTYPE_F32, STRATA_SHAPE(4), &variable, &err), STRATA_OK, "%s",
                 err.message);
    return variable;
}

Test(plugin_tables, copies_are_the_tables_where_there_is_one) {
    strata_device *device = NULL;
    float given[4] = {1, 2, 3, 4}, back[4] = {0};
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4), given),
                 read = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4), back);
    cr_assert_eq(open_device((struct tables){.transfers = &all_copies}, &device), STRATA_OK, "%s", err.message);
    cr_assert(strata_device_get_features(device).transfers && strata_device_get_features(device).device_copies);
    strata_variable *v = variable_on(device);
    cr_assert_eq(strata_variable_set(v, &value, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_variable_get(v, &read, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(memcmp(given, back, sizeof given), 0);
    cr_assert_eq(strata_device_get_counters(device).upload_bytes, sizeof given);
    cr_assert_eq(strata_device_get_counters(device).download_bytes, sizeof given);
    cr_assert_eq(n_done, 2, "a copy was not waited for");
    strata_variable_destroy(v);
    strata_device_close(device);
}

/* There are more copies than places for their tickets. */
Test(plugin_tables, copies_that_nobody_waits_for_end_by_themselves) {
    strata_device *device = NULL;
    float given[4] = {1, 2, 3, 4};
    uint64_t ticket = 0, before = 0;
    cr_assert_eq(open_device((struct tables){.transfers = &all_copies}, &device), STRATA_OK, "%s", err.message);
    strata_variable *v = variable_on(device);
    const strata_device_transfers *transfers = strata_device_get_transfers(device);
    for (int i = 0; i < 200; i++, before = ticket) {
        given[0] = (float)i;
        cr_assert_eq(transfers->upload(device, v->buffer, 0, given, sizeof given, &ticket, &err), STRATA_OK, "%s", err.message);
        cr_assert_gt(ticket, before);
    }
    cr_assert(largest_backlog > 1 && largest_backlog < MOST_COPIES, "%d copies at one time", (int)largest_backlog);
    cr_assert_eq(device->api->wait(device, ticket, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(n_done, 200);
    cr_assert_eq(transfers->upload(device, v->buffer, 60, given, 8, &ticket, &err), STRATA_INVALID);
    strata_variable_destroy(v);
    strata_device_close(device);
}

/* The first device receives the value from the host, and the second one from the first. */
Test(plugin_tables, values_of_several_devices_come_over_their_link) {
    strata_device *devices[2] = {NULL};
    strata_variable *v[2];
    float given[4] = {5, 6, 7, 8}, back[4] = {0};
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4), given),
                 read = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4), back);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(open_device((struct tables){.transfers = &all_copies}, &devices[i]), STRATA_OK, "%s", err.message);
        v[i] = variable_on(devices[i]);
    }
    cr_assert_eq(strata_variable_set_as(v[0], NULL, &value, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_variable_set_as(v[1], v[0], &value, &err), STRATA_OK, "%s", err.message);
    const strata_device_counters counters = strata_device_get_counters(devices[1]);
    cr_assert_eq(counters.device_copy_bytes, sizeof given);
    cr_assert_eq(counters.upload_bytes, 0);
    cr_assert_eq(strata_variable_get(v[1], &read, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(memcmp(given, back, sizeof given), 0);
    for (int i = 0; i < 2; i++) {
        strata_variable_destroy(v[i]);
        strata_device_close(devices[i]);
    }
}

static strata_status set_on(const strata_plugin_transfers *transfers, double stall_seconds) {
    strata_device *device = NULL;
    float given[4] = {0};
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4), given);
    cr_assert_eq(open_device((struct tables){.transfers = transfers}, &device), STRATA_OK, "%s", err.message);
    ((plugin_device *)device)->stall_seconds = stall_seconds;
    strata_variable *v = variable_on(device);
    strata_status status = strata_variable_set(v, &value, &err);
    if (!status) status = strata_variable_set(v, &value, &err);
    strata_variable_destroy(v);
    strata_device_close(device);
    return status;
}

Test(plugin_tables, a_copy_that_never_ends_is_a_timeout) {
    hangs = true;
    cr_assert_eq(set_on(&all_copies, 0.05), STRATA_TIMEOUT);
    cr_assert(strstr(err.message, "has not ended for 0.05 s"), "%s", err.message);
}

Test(plugin_tables, a_copy_whose_ticket_does_not_grow_breaks_a_rule) {
    forgets_to_count = true;
    cr_assert_eq(set_on(&all_copies, 1), STRATA_INTERNAL);
    cr_assert(strstr(err.message, "upload gave the ticket 1 after 1"), "%s", err.message);
}

/* ---- costs ---- */

static strata_plugin_status strange_cost(strata_plugin_program *program, strata_plugin_cost *out_cost,
                                         strata_plugin_error *error) {
    (void)program, (void)error;
    out_cost->seconds = -1;
    out_cost->cycles = 1000;
    out_cost->utilisation = 7;
    out_cost->work_bytes = 4096;
    return STRATA_PLUGIN_OK;
}
static strata_plugin_status node_cost(strata_plugin_program *program, int node, strata_plugin_cost *out_cost,
                                      strata_plugin_error *error) {
    (void)program, (void)error;
    out_cost->cycles = 10 + node;
    return STRATA_PLUGIN_OK;
}
static strata_plugin_status no_cost(strata_plugin_program *program, strata_plugin_cost *out_cost, strata_plugin_error *error) {
    (void)program, (void)out_cost;
    snprintf(error->message, sizeof error->message, "nobody counted");
    return STRATA_PLUGIN_UNAVAILABLE;
}

static strata_status cost_of(const strata_plugin_costs *costs, int node, strata_device_cost *out_cost) {
    strata_device *device = NULL;
    cr_assert_eq(open_device((struct tables){.costs = costs}, &device), STRATA_OK, "%s", err.message);
    const strata_status status = strata_bridge_cost((plugin_device *)device, NULL, node, out_cost, &err);
    strata_device_close(device);
    return status;
}

Test(plugin_tables, costs_that_cannot_be_are_not_known) {
    static const strata_plugin_costs strange = {.size = sizeof strange, .program = strange_cost};
    strata_device_cost cost;
    cr_assert_eq(cost_of(&strange, -1, &cost), STRATA_OK, "%s", err.message);
    cr_assert(cost.seconds == 0 && cost.cycles == 1000 && cost.utilisation == 0 && cost.work_bytes == 4096);
    cr_assert_eq(cost_of(&strange, 3, &cost), STRATA_OK, "%s", err.message);
    cr_assert_eq(cost.cycles, 0, "there is no call for a node");
    cr_assert_eq(cost_of(NULL, -1, &cost), STRATA_OK, "%s", err.message);
    /* The node -1 stands for the program; the first node is 0. */
    static const strata_plugin_costs both = {.size = sizeof both, .program = strange_cost, .node = node_cost};
    for (int node = -1; node < 4; node++) {
        cr_assert_eq(cost_of(&both, node, &cost), STRATA_OK, "%s", err.message);
        cr_assert_eq(cost.cycles, node < 0 ? 1000 : 10 + node, "node %d: %g", node, cost.cycles);
    }
}

Test(plugin_tables, costs_that_break_a_rule_or_fail_are_errors) {
    static const strata_plugin_costs tiny = {.size = 2}, empty = {.size = sizeof empty},
                                     failing = {.size = sizeof failing, .program = no_cost};
    strata_device_cost cost;
    cr_assert_eq(cost_of(&tiny, -1, &cost), STRATA_INTERNAL);
    cr_assert(strstr(err.message, "\"costs\" says size 2"), "%s", err.message);
    cr_assert_eq(cost_of(&empty, -1, &cost), STRATA_INTERNAL);
    cr_assert(strstr(err.message, "NULL in the required slot program"), "%s", err.message);
    cr_assert_eq(cost_of(&failing, -1, &cost), STRATA_UNAVAILABLE);
    cr_assert(strstr(err.message, "board:0: nobody counted"), "%s", err.message);
}

/* ---- rules ---- */

Test(plugin_tables, tables_that_break_a_rule_are_refused) {
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
    strata_plugin_transfers copying = all_copies;
    copying.download = NULL;
    expect_refused((struct tables){.transfers = &copying}, "\"transfers\" has NULL in the required slot download");
    strata_plugin_space space = hbm;
    const strata_plugin_space *list[] = {&space};
    strata_plugin_spaces spaces = {.size = sizeof spaces, .n = 9, .spaces = list};
    expect_refused((struct tables){.spaces = &spaces}, "has 9 spaces; there may be 0 to 8");
    spaces.n = 1;
    space.name = "a name of a memory that is longer than it may be";
    expect_refused((struct tables){.spaces = &spaces}, "has no name of 1 to 31 bytes");
    space = hbm;
    space.bytes = -1;
    expect_refused((struct tables){.spaces = &spaces}, "its memory space \"HBM\" has -1 bytes");
    list[0] = NULL;
    expect_refused((struct tables){.spaces = &spaces}, "space 0 of its table \"spaces\" is NULL");
}
