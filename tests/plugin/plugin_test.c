/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads plugins that follow the rules of strata/plugin.h, and plugins that break one. Each broken rule must cause an error
 * that names it, and nothing may crash, hang or leak. Each test case is a process of its own, so each can load the same
 * file again. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "strata/executable.h"
#include "strata/ops.h"
#include "strata/strata.h"
#include "tests/support/folder.h"

#define PLUGIN(name) STRATA_TEST_PLUGINS "/libstrata_" name "_plugin.so"

TestSuite(plugin, .init = test_folder_make, .fini = test_folder_remove);

static strata_status load(const char *fault, strata_error *err) {
    setenv("STRATA_FAULTY", fault, 1);
    return strata_plugin_load(PLUGIN("faulty"), err);
}

static strata_device *open_device(const char *id, double stall_seconds) {
    strata_device *device = NULL;
    strata_error err = {0};
    strata_status status = strata_device_open(id, &(strata_device_options){.stall_seconds = stall_seconds}, &device, &err);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return device;
}

static strata_device *open_faulty(const char *fault) {
    strata_error err = {0};
    cr_assert_eq(load(fault, &err), STRATA_OK, "%s", err.message);
    return open_device("faulty:0", 0);
}

static void expect(strata_status status, strata_status wanted, const strata_error *err, const char *part) {
    cr_assert_eq(status, wanted, "%s instead of %s: %s", strata_status_name(status), strata_status_name(wanted), err->message);
    cr_assert(strstr(err->message, part), "\"%s\" does not contain \"%s\"", err->message, part);
}

/* ---- a computation on the device ---- */

enum { N = 8 };

static strata_status run_graph(strata_device *device, strata_variable *w, float *out_sums, strata_error *err) {
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    float x[N * N], y[N * N] = {0};
    strata_array input = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, N), x),
                 output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, N), y);
    const char *name = "x";
    for (int i = 0; i < N * N; i++) x[i] = (float)i;
    STRATA_TRY(strata_graph_create(&graph, err));
    strata_tensor *product = strata_matmul(strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N, N)),
                                           strata_variable_read(graph, w), false, false);
    strata_tensor *sum = strata_add(product, strata_scalar(graph, STRATA_DTYPE_F32, 1));
    strata_status status = strata_executable_create(device, &sum, 1, NULL, 0, NULL, &exe, err);
    for (int i = 0; i < 4 && !status; i++) status = strata_executable_run(exe, &name, &input, 1, &output, 1, err);
    for (int i = 0; i < N * N && !status; i++) *out_sums += y[i];
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    return status;
}

/* Computes x w + 1 four times, where w is the identity matrix. */
static strata_status work(strata_device *device, float *out_sum, strata_error *err) {
    strata_variable *w = NULL;
    float unit[N * N] = {0}, back[N * N];
    strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, N), unit),
                 read = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, N), back);
    for (int i = 0; i < N; i++) unit[i * N + i] = 1;
    *out_sum = 0;
    STRATA_TRY(strata_variable_create(device, "w", STRATA_DTYPE_F32, STRATA_SHAPE(N, N), &w, err));
    strata_status status = strata_variable_set(w, &value, err);
    if (!status) status = run_graph(device, w, out_sum, err);
    if (!status) status = strata_variable_get(w, &read, err);
    if (!status && memcmp(unit, back, sizeof unit)) status = strata_fail(err, STRATA_INTERNAL, "w has changed");
    strata_variable_destroy(w);
    return status;
}

static void expect_works(strata_device *device) {
    strata_error err = {0};
    float sum = 0;
    cr_assert_eq(work(device, &sum, &err), STRATA_OK, "%s", err.message);
    cr_assert_float_eq(sum, 64 * 63 / 2 + 64, 1e-3);
}

static void expect_failing(const char *fault, strata_status wanted, const char *part) {
    strata_device *device = open_faulty(fault);
    strata_error err = {0};
    float sum = 0;
    strata_status status = work(device, &sum, &err);
    strata_device_close(device);
    expect(status, wanted, &err, part);
}

/* ---- plugins without faults ---- */

Test(plugin, that_keeps_to_the_rules_computes) {
    strata_device *device = open_faulty("");
    cr_assert_eq(strata_device_get_info(device)->device_class, STRATA_DEVICE_ACCELERATOR);
    expect_works(device);
    const strata_device_counters counters = strata_device_get_counters(device);
    cr_assert_eq(counters.allocated_bytes, 0);
    cr_assert_eq(counters.submissions, 4);
    cr_assert_eq(counters.compilations, 1);
    strata_device_close(device);
}

Test(plugin, of_a_newer_minor_version_with_larger_structs_computes) {
    strata_error err = {0};
    strata_device *device = open_faulty("size-large");
    expect_works(device);
    strata_device_close(device);
    cr_assert_eq(load("size-large", &err), STRATA_OK, "%s", err.message); /* loading it again does nothing */
}

Test(plugin, of_minor_version_9_loads) {
    strata_error err = {0};
    cr_assert_eq(load("minor-9", &err), STRATA_OK, "%s", err.message);
}

Test(plugin, built_against_header_1_0_computes) {
    strata_error err = {0};
    cr_assert_eq(strata_plugin_load(PLUGIN("v1_0"), &err), STRATA_OK, "%s", err.message);
    strata_device *device = open_device("acme:0", 0);
    expect_works(device);
    strata_device_close(device);
}

/* Returns how many nodes one run of tanh(x w) launches. */
static int count_launches(strata_device *device) {
    strata_error err = {0};
    strata_graph *graph = NULL;
    strata_executable *exe = NULL;
    float x[N * N] = {0}, y[N * N];
    strata_array input = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, N), x),
                 output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(N, N), y);
    const char *name = "x";
    cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
    strata_tensor *in = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(N, N));
    strata_tensor *out = strata_tanh(strata_matmul(in, in, false, false));
    cr_assert_eq(strata_executable_create(device, &out, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_executable_run(exe, &name, &input, 1, &output, 1, &err), STRATA_OK, "%s", err.message);
    strata_executable_destroy(exe);
    strata_graph_destroy(graph);
    return (int)strata_device_get_counters(device).launches;
}

static void expect_launches(const char *plugin, int n) {
    strata_error err = {0};
    cr_assert_eq(strata_plugin_load(plugin, &err), STRATA_OK, "%s", err.message);
    strata_device *device = open_device("host-plugin:0", 0);
    cr_assert_eq(count_launches(device), n);
    strata_device_close(device);
}

Test(plugin, that_runs_fused_nodes_gets_them) {
    expect_launches(PLUGIN("host"), 1);
}

Test(plugin, that_prefers_their_parts_gets_these) {
    expect_launches(PLUGIN("host") ",fused=no", 2);
}

/* ---- errors of the file ---- */

Test(plugin, without_entry_symbol_is_refused) {
    strata_error err = {0};
    expect(strata_plugin_load(PLUGIN("empty"), &err), STRATA_INVALID, &err, "exports no symbol strata_plugin_v1");
}

Test(plugin, of_a_newer_major_version_is_refused_with_both_versions) {
    strata_error err = {0};
    expect(strata_plugin_load(PLUGIN("newer"), &err), STRATA_UNSUPPORTED, &err,
           "version 2 of the plugin interface; this Strata has version 1.0");
}

Test(plugin, that_is_not_there_is_unavailable) {
    strata_error err = {0};
    expect(strata_plugin_load("/nowhere/libx.so", &err), STRATA_UNAVAILABLE, &err, "/nowhere/libx.so: there is no such file");
}

Test(plugin, that_is_no_library_is_refused) {
    strata_error err = {0};
    expect(strata_plugin_load(STRATA_TEST_SOURCE_DIR "/README.md", &err), STRATA_INVALID, &err, "cannot be loaded");
    expect(strata_plugin_load(STRATA_TEST_SOURCE_DIR, &err), STRATA_INVALID, &err, "no regular file");
    expect(strata_plugin_load("", &err), STRATA_INVALID, &err, "a file is needed");
    expect(strata_plugin_load(NULL, &err), STRATA_INVALID, &err, "a file is needed");
}

static void copy_plugin(const char *name, char *out_path, size_t bytes) {
    char command[1200];
    snprintf(out_path, bytes, "%s", test_path(name));
    snprintf(command, sizeof command, "cp '%s' '%s'", PLUGIN("faulty"), out_path);
    cr_assert_eq(system(command), 0);
}

/* Writes `byte` at `at` of the file, and cuts it to `bytes` bytes; -1: neither. */
static void damage(const char *path, long at, int byte, long bytes) {
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    if (at >= 0) cr_assert(!fseek(file, at, SEEK_SET) && fputc(byte, file) == byte);
    cr_assert_eq(fclose(file), 0);
    if (bytes >= 0) cr_assert_eq(truncate(path, bytes), 0);
}

Test(plugin, that_is_truncated_is_refused_with_the_bytes) {
    static const long bytes[] = {17, 64, 300, 4096, 20000};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        strata_error err = {0};
        char path[512], name[32];
        snprintf(name, sizeof name, "short%d.so", (int)i);
        copy_plugin(name, path, sizeof path);
        damage(path, -1, 0, bytes[i]);
        expect(strata_plugin_load(path, &err), STRATA_INVALID, &err, "it is truncated");
    }
}

Test(plugin, of_another_processor_is_refused_with_both_names) {
    strata_error err = {0};
    char path[512];
    copy_plugin("other.so", path, sizeof path);
    damage(path, 18, 22, -1); /* e_machine: s390 */
    damage(path, 19, 0, -1);
    expect(strata_plugin_load(path, &err), STRATA_INVALID, &err, "it was built for s390x (ELF machine 22), and this process");
}

Test(plugin, that_every_user_may_write_is_refused) {
    strata_error err = {0};
    char path[512];
    copy_plugin("writable.so", path, sizeof path);
    cr_assert_eq(chmod(path, 0757), 0);
    expect(strata_plugin_load(path, &err), STRATA_INVALID, &err, "may be written by every user");
}

Test(plugin, in_a_folder_that_every_user_may_write_is_refused) {
    strata_error err = {0};
    char path[512], folder[512];
    copy_plugin("library.so", path, sizeof path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    cr_assert_eq(chmod(folder, 0777), 0);
    strata_status status = strata_plugin_load(path, &err);
    chmod(folder, 0700);
    expect(status, STRATA_INVALID, &err, "its folder");
}

/* ---- errors of the plugin's table ---- */

static const struct {
    const char *fault;
    strata_status status;
    const char *part;
} bad_tables[] = {
    {"entry-null", STRATA_INVALID, "returned NULL"},
    {"size-small", STRATA_INVALID, "size 16"},
    {"major-0", STRATA_UNSUPPORTED, "version 0.0 of the plugin interface; this Strata has version 1.0"},
    {"major-2", STRATA_UNSUPPORTED, "version 2.0 of the plugin interface; this Strata has version 1.0"},
    {"no-start", STRATA_INVALID, "required slot start"},
    {"no-device-info", STRATA_INVALID, "required slot device_info"},
    {"no-device-open", STRATA_INVALID, "required slot device_open"},
    {"name-long", STRATA_INVALID, "its name is \"a-name-of-many-letters\""},
    {"name-host", STRATA_INVALID, "Strata's own"},
    {"start-fails", STRATA_UNAVAILABLE, "no chip on board 3"},
    {"start-many", STRATA_INTERNAL, "-5 devices"},
};
enum { BAD_TABLES = sizeof bad_tables / sizeof *bad_tables };

/* Each case needs a process of its own, because a file is loaded only once. */
#define BAD_TABLE(i)                                                                                            \
    Test(plugin, with_bad_table_##i) {                                                                          \
        strata_error err = {0}, again = {0};                                                                    \
        expect(load(bad_tables[i].fault, &err), bad_tables[i].status, &err, bad_tables[i].part);                \
        setenv("STRATA_FAULTY", "start-crash", 1); /* its function start must not be called again */            \
        expect(strata_plugin_load(PLUGIN("faulty"), &again), bad_tables[i].status, &again, bad_tables[i].part); \
    }
BAD_TABLE(0)
BAD_TABLE(1)
BAD_TABLE(2)
BAD_TABLE(3)
BAD_TABLE(4)
BAD_TABLE(5)
BAD_TABLE(6)
BAD_TABLE(7)
BAD_TABLE(8)
BAD_TABLE(9)
BAD_TABLE(10)
_Static_assert(BAD_TABLES == 11, "each row has a case");

Test(plugin, with_options_that_it_does_not_know_reports_them) {
    strata_error err = {0};
    setenv("STRATA_FAULTY", "", 1);
    expect(strata_plugin_load(PLUGIN("faulty") ",cores", &err), STRATA_INVALID, &err, "\"cores\" is not of the form key=value");
    expect(strata_plugin_load(PLUGIN("faulty") ",cores=2", &err), STRATA_INVALID, &err, "acme has no options");
}

/* ---- errors of a device ---- */

static void expect_no_device(const char *fault, strata_status wanted, const char *part) {
    strata_error err = {0};
    strata_device *device = NULL;
    setenv("STRATA_FAULTY", fault, 1);
    strata_status status = strata_device_open("faulty:0", NULL, &device, &err);
    expect(status, wanted, &err, part);
}

Test(plugin, devices_with_bad_tables_cannot_be_opened) {
    strata_error err = {0};
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    expect_no_device("info-null", STRATA_UNAVAILABLE, "is NULL");
    expect_no_device("info-small", STRATA_UNAVAILABLE, "size 24");
    expect_no_device("skipped", STRATA_UNAVAILABLE, "the board has no power");
    expect_no_device("fail:device_open:1", STRATA_OUT_OF_MEMORY, "faulty:0: injected");
}

/* Each number of device_info at the ends of its range and beyond them. Numbers are written without a decimal point, since the
 * suites run in a locale that writes a comma. */
Test(plugin, numbers_of_device_info_are_in_their_ranges) {
    static const struct {
        const char *field, *accepted[4], *refused[4];
    } rows[] = {
        {"memory_bytes", {"0", "65536", "1125899906842624"}, {"-5", "65535", "1125899906842625", "9223372036854774784"}},
        {"max_buffer_bytes", {"0", "1"}, {"-1"}},
        {"compute_units", {"0", "16777216"}, {"-2", "16777217"}},
        {"dtypes", {"1", "127"}, {"0", "128", "129", "4294967295"}},
        {"unified_memory", {"0", "1"}, {"-1", "2", "3"}},
        {"wants_arenas", {"0"}, {"-1", "2"}},
        {"stall_seconds", {"0", "1e-3", "1000000000"}, {"-1", "9e-4", "1000000001", "nan"}},
        {"product_dtype", {"0", "1", "2"}, {"-1", "3"}},
    };
    strata_error err = {0};
    _Static_assert(STRATA_DTYPE_COUNT == 7, "127 are all dtypes");
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int k = 0; k < 8; k++) {
            const char *value = k < 4 ? rows[r].accepted[k] : rows[r].refused[k - 4];
            char fault[64];
            if (!value) continue;
            snprintf(fault, sizeof fault, "%s=%s", rows[r].field, value);
            if (k >= 4) {
                expect_no_device(fault, STRATA_UNAVAILABLE, rows[r].field);
                continue;
            }
            setenv("STRATA_FAULTY", fault, 1);
            strata_device_close(open_device("faulty:0", 0));
        }
}

Test(plugin, devices_with_null_in_a_required_slot_cannot_be_opened) {
    static const char *const slots[] = {"close",    "buffer_create", "buffer_destroy",  "upload",        "download",
                                        "supports", "compile",       "program_destroy", "program_input", "program_output",
                                        "run",      "wait"};
    strata_error err = {0};
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        char fault[64], part[64];
        snprintf(fault, sizeof fault, "null:%s", slots[i]);
        snprintf(part, sizeof part, "required slot %s", slots[i]);
        expect_no_device(fault, STRATA_INTERNAL, part);
    }
    expect_no_device("calls-small", STRATA_INTERNAL, "required slot run");
    expect_no_device("calls-null", STRATA_INTERNAL, "its calls are NULL");
    expect_no_device("open-null", STRATA_INTERNAL, "its device is NULL");
}

/* ---- calls that fail ---- */

/* with: further faults that are active, each followed by '+'; "" for none. */
static void expect_each_kth_call_fails(const char *with) {
    static const char *const calls[] = {"buffer_create", "upload", "download", "compile", "run", "wait"};
    strata_device *device = open_faulty(with);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        int k = 1;
        for (strata_status status = STRATA_INTERNAL; status; k++) {
            char fault[64];
            strata_error err = {0};
            float sum = 0;
            snprintf(fault, sizeof fault, "%sfail:%s:%d", with, calls[c], k);
            setenv("STRATA_FAULTY", fault, 1);
            status = work(device, &sum, &err);
            if (status) expect(status, STRATA_OUT_OF_MEMORY, &err, "faulty:0: injected");
            cr_assert_eq(strata_device_get_counters(device).allocated_bytes, 0, "%s", fault);
            cr_assert(k < 50);
        }
        cr_assert(k > 2, "%s was never called", calls[c]);
    }
    strata_device_close(device);
}

Test(plugin, the_kth_call_that_fails_is_an_error_and_nothing_leaks) {
    expect_each_kth_call_fails("");
}

Test(plugin, the_kth_call_that_fails_of_a_device_that_copies_without_waiting_is_an_error) {
    expect_each_kth_call_fails("copies+");
}

Test(plugin, a_lost_device_stays_lost_and_is_left_alone) {
    static const char *const calls[] = {"buffer_create", "upload", "download", "compile", "run", "wait"};
    strata_error err = {0};
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        char fault[64];
        float sum = 0;
        strata_device *device = open_device("faulty:0", 0);
        snprintf(fault, sizeof fault, "lost:%s:%d", calls[c], strcmp(calls[c], "run") ? 1 : 3);
        setenv("STRATA_FAULTY", fault, 1);
        strata_status status = work(device, &sum, &err);
        expect(status, STRATA_DEVICE_LOST, &err, "faulty:0: the chip does not answer");
        status = work(device, &sum, &err);
        expect(status, STRATA_DEVICE_LOST, &err, "was lost before: faulty:0: the chip does not answer");
        strata_device_close(device);
    }
}

/* Whatever comes first after the loss. The plugin ends the process if it is called. */
Test(plugin, every_call_of_a_lost_device_is_refused_without_asking_it) {
    enum { CREATE, SET, GET, COMPILE, RUN, N_CALLS };
    strata_error err = {0};
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    for (int call = 0; call < N_CALLS; call++) {
        strata_device *device = open_device("faulty:0", 0);
        strata_variable *w = NULL, *lost = NULL;
        strata_graph *graph = NULL;
        strata_executable *exe = NULL, *other = NULL;
        float numbers[4] = {1, 2, 3, 4};
        strata_array value = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4), numbers);
        const char *name = "x";
        cr_assert_eq(strata_variable_create(device, "w", STRATA_DTYPE_F32, STRATA_SHAPE(4), &w, &err), STRATA_OK);
        cr_assert_eq(strata_variable_set(w, &value, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_graph_create(&graph, &err), STRATA_OK);
        strata_tensor *x = strata_input(graph, "x", STRATA_DTYPE_F32, STRATA_SHAPE(4)), *y = strata_add(x, x);
        cr_assert_eq(strata_executable_create(device, &y, 1, NULL, 0, NULL, &exe, &err), STRATA_OK, "%s", err.message);
        char fault[64];
        snprintf(fault, sizeof fault, "again%d+lost:buffer_create:1", call); /* calls are counted from a new text on */
        setenv("STRATA_FAULTY", fault, 1);
        expect(strata_variable_create(device, "lost", STRATA_DTYPE_F32, STRATA_SHAPE(4), &lost, &err), STRATA_DEVICE_LOST, &err,
               "the chip does not answer");
        strata_status status = STRATA_OK;
        if (call == CREATE) status = strata_variable_create(device, "v", STRATA_DTYPE_F32, STRATA_SHAPE(4), &lost, &err);
        if (call == SET) status = strata_variable_set(w, &value, &err);
        if (call == GET) status = strata_variable_get(w, &value, &err);
        if (call == COMPILE) status = strata_executable_create(device, &y, 1, NULL, 0, NULL, &other, &err);
        if (call == RUN) status = strata_executable_run(exe, &name, &value, 1, &value, 1, &err);
        cr_expect(status == STRATA_DEVICE_LOST && strstr(err.message, "was lost before: faulty:0: the chip does not answer"),
                  "call %d: %s", call, status ? err.message : "no error");
        strata_executable_destroy(exe);
        strata_graph_destroy(graph);
        strata_variable_destroy(w);
        strata_device_close(device);
        unsetenv("STRATA_FAULTY");
    }
}

Test(plugin, a_run_that_never_ends_is_a_timeout_and_the_device_lost) {
    strata_error err = {0};
    float sum = 0;
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    strata_device *device = open_device("faulty:0", 0.05);
    setenv("STRATA_FAULTY", "hang", 1);
    strata_status status = work(device, &sum, &err);
    expect(status, STRATA_TIMEOUT, &err, "a run has not ended for 0.05 s");
    status = work(device, &sum, &err);
    expect(status, STRATA_DEVICE_LOST, &err, "was lost before");
    strata_device_close(device);
}

Test(plugin, answers_that_break_a_rule_are_errors_that_name_it) {
    strata_error err = {0};
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    expect_failing("status", STRATA_INTERNAL, "status 77, which plugin.h does not have");
    expect_failing("silent", STRATA_UNAVAILABLE, "gives no reason");
    expect_failing("support", STRATA_UNSUPPORTED, "a number that plugin.h does not have");
    expect_failing("ticket", STRATA_INTERNAL, "tickets must grow");
    expect_failing("no-ticket", STRATA_INTERNAL, "run gave the ticket 0 after 0");
    expect_failing("copies+no-ticket", STRATA_INTERNAL, "upload gave the ticket 0 after 0");
    expect_failing("input-null", STRATA_INTERNAL, "program_input of slot 0");
    expect_failing("input-odd", STRATA_INTERNAL, "aligned to 64");
    expect_failing("output-null", STRATA_INTERNAL, "program_output of slot 0");
    expect_failing("program-null", STRATA_INTERNAL, "its program is NULL");
    expect_failing("buffer-null", STRATA_INTERNAL, "its buffer is NULL");
}

/* ---- the folders and variables that name plugins ---- */

static bool is_listed(const char *id, char *out_reason, size_t bytes) {
    strata_device_info *rows = NULL;
    strata_error err = {0};
    int n = 0;
    bool found = false;
    cr_assert_eq(strata_devices_list(&rows, &n, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < n; i++) {
        if (strcmp(rows[i].id, id) != 0) continue;
        found = true;
        snprintf(out_reason, bytes, "%s", rows[i].skipped);
    }
    strata_devices_free(rows);
    return found;
}

Test(plugin, is_found_by_the_environment) {
    char reason[256] = "";
    setenv("STRATA_FAULTY", "", 1);
    setenv("STRATA_PLUGINS", PLUGIN("empty") ":" PLUGIN("faulty"), 1);
    cr_assert(is_listed("faulty:0", reason, sizeof reason));
    cr_assert_str_empty(reason);
    cr_assert(is_listed("plugin", reason, sizeof reason), "the other one is a row with its reason");
    cr_assert(strstr(reason, "empty"), "%s", reason);
    strata_device *device = open_device("faulty:0", 0);
    expect_works(device);
    strata_device_close(device);
}

Test(plugin, is_found_in_the_users_folder) {
    char path[600], folder[512], command[1400], reason[256];
    snprintf(folder, sizeof folder, "%s", test_path("data"));
    snprintf(path, sizeof path, "%s/strata/plugins", folder);
    snprintf(command, sizeof command, "mkdir -p '%s' && cp '%s' '%s/'", path, PLUGIN("faulty"), path);
    cr_assert_eq(system(command), 0);
    setenv("XDG_DATA_HOME", folder, 1);
    setenv("STRATA_FAULTY", "", 1);
    cr_assert(is_listed("faulty:0", reason, sizeof reason));
    cr_assert_str_empty(reason);
}

Test(plugin, of_a_name_that_another_has_is_refused) {
    strata_error err = {0};
    char path[512];
    copy_plugin("second.so", path, sizeof path);
    cr_assert_eq(load("", &err), STRATA_OK, "%s", err.message);
    expect(strata_plugin_load(path, &err), STRATA_INVALID, &err, "its name is \"faulty\"");
}
