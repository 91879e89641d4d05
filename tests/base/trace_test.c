/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces: slices of a track lie beside or within each other whatever was added, in ascending order, and the text is JSON. */
#include "core/base/trace.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "tests/support/folder.h"

TestSuite(trace, .init = test_folder_make, .fini = test_folder_remove);

static strata_error err;

#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

typedef struct seen {
    double began, took, track;
    char name[64];
} seen;

/* Writes the trace, reads it back. */
static int read_slices(strata_trace *trace, const char *path, seen *out, int most) {
    char *text = NULL;
    size_t bytes = 0;
    int n = 0;
    strata_json root, events, event, value;
    OK(strata_trace_events(trace, &text, &bytes, &err));
    OK(strata_trace_write(trace, (const char *const[]){text}, 1, &err));
    free(text);
    OK(strata_json_read(path, 1 << 20, &root, &err));
    OK(strata_json_get(&root, "traceEvents", &events, &err));
    for (bool more = strata_json_first(&events, &event); more; more = strata_json_next(&event)) {
        const char *phase = NULL, *name = NULL;
        OK(strata_json_get(&event, "ph", &value, &err));
        OK(strata_json_to_string(&value, &phase, &err));
        if (strcmp(phase, "X") != 0) continue;
        cr_assert_lt(n, most);
        const char *const keys[] = {"ts", "dur", "tid"};
        double *const numbers[] = {&out[n].began, &out[n].took, &out[n].track};
        for (int i = 0; i < 3; i++) {
            OK(strata_json_get(&event, keys[i], &value, &err));
            OK(strata_json_to_number(&value, 0, 1e15, numbers[i], &err));
        }
        OK(strata_json_get(&event, "name", &value, &err));
        OK(strata_json_to_string(&value, &name, &err));
        snprintf(out[n++].name, sizeof out->name, "%s", name);
    }
    strata_json_finish(&root);
    return n;
}

static const char *own_path(const char *name) {
    return test_path(name);
}

Test(trace, slices_nest_and_ascend) {
    const char *path = own_path("nested.json");
    strata_trace *trace = NULL;
    seen slices[8];
    OK(strata_trace_create(path, 0, NULL, &trace, &err));
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "inner", 1, 2, 3);
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "reaches out", 1, 4, 6);
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "outer", 1, 1, 5);
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "same", 1, 1, 5);
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "later", 1, 7, 6.5);
    cr_assert_eq(read_slices(trace, path, slices, 8), 5);
    const seen wanted[] = {{1e6, 4e6, 100, "same"},
                           {1e6, 4e6, 100, "outer"},
                           {2e6, 1e6, 100, "inner"},
                           {4e6, 1e6, 100, "reaches out"},
                           {7e6, 0, 100, "later"}};
    for (int i = 0; i < 5; i++) {
        cr_expect_str_eq(slices[i].name, wanted[i].name, "%d: %s", i, slices[i].name);
        cr_expect(slices[i].began == wanted[i].began && slices[i].took == wanted[i].took, "%s: %g + %g", slices[i].name,
                  slices[i].began, slices[i].took);
    }
    strata_trace_destroy(trace);
}

Test(trace, a_devices_slices_do_not_overlap) {
    const char *path = own_path("device.json");
    strata_trace *trace = NULL;
    seen slices[4];
    OK(strata_trace_create(path, 3, NULL, &trace, &err));
    const int track = strata_trace_add_track(trace, "a \"device\"\\ of\ttabs");
    cr_assert_gt(track, STRATA_TRACE_HOST);
    const strata_trace_label *label = strata_trace_add_label(trace, "matmul (2,3)", "\"op\":\"matmul\"", 4e9, 8e9);
    strata_trace_add(trace, track, label, 0, 1, 3);
    strata_trace_add(trace, track, label, 0, 2, 4);
    strata_trace_add(trace, track, label, 0, 3, 3.5);
    strata_trace_add(trace, track, NULL, 0, 3, 3.5);
    strata_trace_add(NULL, track, label, 0, 3, 3.5);
    cr_assert_eq(read_slices(trace, path, slices, 4), 3);
    for (int i = 1; i < 3; i++) cr_expect_geq(slices[i].began, slices[i - 1].began + slices[i - 1].took);
    cr_expect(slices[1].began == 3e6 && slices[1].took == 1e6);
    /* What is left of nothing is a nanosecond long: a slice without a length would lie in the one behind it. */
    cr_expect(slices[2].began == 4e6 && slices[2].took > 0 && slices[2].took < 0.01);
    cr_expect_eq(slices[0].track, 401, "%g", slices[0].track);
    strata_trace_destroy(trace);
}

/* Each field of a slice. A rate is that of the whole time, also where the slice is shortened. */
Test(trace, a_slice_says_what_ran_when_and_how_fast) {
    strata_trace *trace = NULL;
    char *text = NULL;
    size_t bytes = 0;
    OK(strata_trace_create(own_path("slice.json"), 3, NULL, &trace, &err));
    const int track = strata_trace_add_track(trace, "device");
    strata_trace_add(trace, track, strata_trace_add_label(trace, "matmul", "\"op\":\"matmul\"", 4e9, 8e9), 5, 1, 3);
    strata_trace_add(trace, track, strata_trace_add_label(trace, "copy", "", 0, 6e9), 6, 2, 5.000001);
    strata_trace_add(trace, track, strata_trace_add_label(trace, "at once", "", 7, 0), 7, 6, 6.000000001);
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "submit", 8, 9, 9.5);
    strata_trace_add_named(trace, STRATA_TRACE_HOST, "submit", strata_trace_microbatch(9, 0), 10, 11);
    OK(strata_trace_events(trace, &text, &bytes, &err));
    static const char *const slices[] = {
        "{\"name\":\"matmul\",\"cat\":\"device\",\"ph\":\"X\",\"ts\":1000000.000,\"dur\":2000000.000,\"pid\":4,\"tid\":401,"
        "\"args\":{\"step\":5,\"op\":\"matmul\",\"GFLOP/s\":2,\"GB/s\":4}}",
        "{\"name\":\"copy\",\"cat\":\"device\",\"ph\":\"X\",\"ts\":3000000.000,\"dur\":2000001.000,\"pid\":4,\"tid\":401,"
        "\"args\":{\"step\":6,\"GB/s\":2}}",
        "{\"name\":\"at once\",\"cat\":\"device\",\"ph\":\"X\",\"ts\":6000000.000,\"dur\":0.001,\"pid\":4,\"tid\":401,"
        "\"args\":{\"step\":7,\"GFLOP/s\":7}}",
        "{\"name\":\"submit\",\"cat\":\"host\",\"ph\":\"X\",\"ts\":9000000.000,\"dur\":500000.000,\"pid\":4,\"tid\":400,"
        "\"args\":{\"step\":8}}",
        "{\"name\":\"submit\",\"cat\":\"host\",\"ph\":\"X\",\"ts\":10000000.000,\"dur\":1000000.000,\"pid\":4,\"tid\":400,"
        "\"args\":{\"step\":9,\"microbatch\":0}}"};
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
        cr_expect(strstr(text, slices[i]), "%s\nis not in %s", slices[i], text);
    free(text);
    strata_trace_destroy(trace);
}

Test(trace, a_track_that_there_is_not_takes_nothing) {
    const char *path = own_path("tracks.json");
    strata_trace *trace = NULL;
    seen slices[4];
    OK(strata_trace_create(path, 0, NULL, &trace, &err));
    const int track = strata_trace_add_track(trace, "device"), others[] = {-1, -1000000, track + 1, 1000000};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) strata_trace_add_named(trace, others[i], "lost", 0, 1, 2);
    strata_trace_add_named(trace, track, "kept", 0, 1, 2);
    cr_assert_eq(read_slices(trace, path, slices, 4), 1);
    cr_expect_str_eq(slices[0].name, "kept");
    strata_trace_destroy(trace);
}

Test(trace, a_file_that_cannot_be_written_is_told) {
    strata_trace *trace = NULL;
    cr_assert_eq(strata_trace_create("/no-such-folder/trace", 0, NULL, &trace, &err), STRATA_DATA);
    cr_assert_not_null(strstr(err.message, "trace: "));
}

Test(trace, counters_and_threads_have_their_places) {
    const char *path = own_path("counters.json");
    strata_trace *trace = NULL;
    seen slices[4];
    char text[4000] = "";
    OK(strata_trace_create(path, 6, "ps:0", &trace, &err));
    const int track = strata_trace_thread_track(trace, "worker:1");
    cr_assert_eq(strata_trace_thread_track(trace, "worker:1"), track);
    cr_assert_neq(strata_trace_thread_track(trace, "worker:2"), track);
    cr_assert_eq(strata_trace_thread_track(trace, "host thread"), STRATA_TRACE_HOST);
    strata_trace_add_counter(trace, "queue depth", 2.5, 3);
    strata_trace_add_named(trace, track, "pull", 7, 1, 4);
    strata_trace_add_named(trace, track, "within", 7, 2, 3);
    strata_trace_add_counter(trace, "queue depth", 1, 2);
    strata_trace_add_counter(NULL, "queue depth", 1, 2);
    cr_assert_eq(read_slices(trace, path, slices, 4), 2);
    cr_expect(slices[0].began == 1e6 && slices[0].took == 3e6 && slices[0].track == 700 + track);
    cr_expect(slices[1].began == 2e6 && slices[1].took == 1e6);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    fclose(file);
    cr_expect_not_null(strstr(text, "\"process_name\",\"ph\":\"M\",\"pid\":7,\"tid\":700,\"args\":{\"name\":\"ps:0\"}"), "%s",
                       text);
    const char *first = strstr(text, "\"ph\":\"C\",\"ts\":2000000.000,\"pid\":7,\"tid\":700,\"args\":{\"value\":1}"),
               *second = strstr(text, "\"ph\":\"C\",\"ts\":3000000.000,\"pid\":7,\"tid\":700,\"args\":{\"value\":2.5}");
    cr_expect(first && second && first < second, "%s", text);
    strata_trace_destroy(trace);
}
