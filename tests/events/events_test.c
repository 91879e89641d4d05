/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files: their records and checksums, adders in several threads, a file that cannot grow. */
#include "strata/events.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cluster/wire/crc32c.h"
#include "core/base/file.h"
#include "tests/support/folder.h"

TestSuite(events, .init = test_folder_make, .fini = test_folder_remove);

/* The bytes of the only file of a run's folder, which the caller frees. */
static unsigned char *read_run(const char *folder, size_t *out_n_bytes) {
    DIR *entries = opendir(folder);
    cr_assert(entries, "%s", folder);
    char path[1024] = "";
    for (struct dirent *e; (e = readdir(entries));) {
        if (*e->d_name == '.') continue;
        cr_assert(!*path, "a second file: %s", e->d_name);
        cr_assert(!strncmp(e->d_name, "events.out.tfevents.", 20), "%s", e->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    }
    closedir(entries);
    unsigned char *bytes = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_file_read(path, 1 << 26, &bytes, out_n_bytes, &err), STRATA_OK, "%s", err.message);
    return bytes;
}

static uint64_t word(const unsigned char *at, int n_bytes) {
    uint64_t value = 0;
    for (int i = n_bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

static bool crc_is(const unsigned char *at, size_t n_bytes, uint64_t wanted) {
    uint32_t crc = strata_crc32c(0, at, n_bytes);
    return (uint32_t)((crc >> 15 | crc << 17) + 0xA282EAD8u) == wanted;
}

/* How many whole records there are; *out_rest bytes of a cut one may follow. */
static int count_records(const unsigned char *bytes, size_t n_bytes, size_t *out_rest) {
    int n = 0;
    size_t at = 0;
    while (n_bytes - at >= 16) {
        uint64_t length = word(bytes + at, 8);
        cr_assert(crc_is(bytes + at, 8, word(bytes + at + 8, 4)), "the length of record %d", n);
        if (length > n_bytes - at - 16) break;
        cr_assert(crc_is(bytes + at + 12, length, word(bytes + at + 12 + length, 4)), "record %d", n);
        at += length + 16;
        n++;
    }
    *out_rest = n_bytes - at;
    return n;
}

Test(events, a_scalar_is_the_bytes_of_the_format) {
    strata_events *events = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_events_create(test_path("deep/run"), &events, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_events_scalar(events, "a", 300, 1, &err), STRATA_OK);
    strata_events_destroy(events);
    size_t n_bytes = 0;
    unsigned char *bytes = read_run(test_path("deep/run"), &n_bytes);
    /* version: 9 bytes of time and 15 of text; scalar: time, step 300 as a varint, summary {value {2: 1.0f, 1: "a"}} */
    static const unsigned char scalar[] = {0x10, 0xAC, 0x02, 0x2A, 10, 0x0A, 8, 0x15, 0, 0, 0x80, 0x3F, 0x0A, 1, 'a'};
    cr_assert_eq(n_bytes, (16 + 9 + 15) + (16 + 9 + sizeof scalar));
    cr_assert(!memcmp(bytes + 12 + 9,
                      "\x1A\x0D"
                      "brain.Event:2",
                      15));
    cr_assert(!memcmp(bytes + 40 + 12 + 9, scalar, sizeof scalar));
    free(bytes);
}

static bool contains(const unsigned char *bytes, size_t n_bytes, const void *part, size_t n_part) {
    for (size_t at = 0; at + n_part <= n_bytes; at++)
        if (!memcmp(bytes + at, part, n_part)) return true;
    return false;
}

/* As tensorboard/plugins/hparams/api.proto numbers its fields. */
Test(events, hyperparameters_are_the_bytes_of_the_format) {
    static const strata_hyperparameter parameters[] = {{.name = "rate", .number = 0.5}, {.name = "kind", .text = "adam"}};
    static const char *const tags[] = {"m"};
    /* Experiment: hparam_infos 4 {name 1, type 4: string 1, number 3}, metric_infos 5 {name 1 {tag 2}};
     * SessionStartInfo: hparams 1 {key 1, value 2 {number 2, string 3}}; HParamsPluginData: version 0, 2 or 3. */
    static const unsigned char experiment[] = {0x12, 27,  0x22, 8,   0x0A, 4, 'r',  'a', 't',  'e', 0x20, 3, 0x22, 8, 0x0A, 4,
                                               'k',  'i', 'n',  'd', 0x20, 1, 0x2A, 5,   0x0A, 3,   0x12, 1, 'm'};
    static const unsigned char session[] = {0x0A, 17,  0x0A, 4,    'r', 'a',  't',  'e',  0x12, 9,    0x11, 0,
                                            0,    0,   0,    0,    0,   0xE0, 0x3F, 0x0A, 14,   0x0A, 4,    'k',
                                            'i',  'n', 'd',  0x12, 6,   0x1A, 4,    'a',  'd',  'a',  'm',  0x29};
    strata_events *events = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_events_create(test_path("run"), &events, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_events_hyperparameters(events, parameters, 2, tags, 1, &err), STRATA_OK, "%s", err.message);
    strata_events_destroy(events);
    size_t n_bytes = 0, rest = 0;
    unsigned char *bytes = read_run(test_path("run"), &n_bytes);
    cr_expect_eq(count_records(bytes, n_bytes, &rest), 3);
    cr_expect(contains(bytes, n_bytes, experiment, sizeof experiment), "the experiment");
    cr_expect(contains(bytes, n_bytes, session, sizeof session), "the session");
    free(bytes);
}

static size_t put_doubles(unsigned char *out, int field, const double *values, int n) {
    size_t at = 0;
    out[at++] = (unsigned char)(field << 3 | 2);
    for (size_t rest = (size_t)n * 8; out[at] = (unsigned char)(rest & 127), rest >>= 7; at++) out[at] |= 128;
    memcpy(out + ++at, values, (size_t)n * 8);
    return at + (size_t)n * 8;
}

/* Buckets are between the smallest and the largest value. Where these are equal there is one bucket. */
Test(events, a_histogram_has_thirty_buckets_or_one) {
    static const float values[2][4] = {{0, 30, 15.5f, 15.75f}, {7, 7, 7, 7}};
    for (int equal = 0; equal < 2; equal++) {
        const int n = equal ? 1 : 30;
        const strata_array array = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(4), (void *)values[equal]);
        double limits[30] = {7}, counts[30] = {4};
        unsigned char expected[600];
        strata_events *events = NULL;
        strata_error err = {0};
        for (int b = 0; b < n && !equal; b++) limits[b] = b + 1, counts[b] = b == 0 || b == 29 ? 1 : b == 15 ? 2 : 0;
        size_t n_expected = put_doubles(expected, 6, limits, n), n_bytes = 0;
        n_expected += put_doubles(expected + n_expected, 7, counts, n);
        const char *folder = test_path(equal ? "equal" : "different");
        cr_assert_eq(strata_events_create(folder, &events, &err), STRATA_OK, "%s", err.message);
        cr_assert_eq(strata_events_histogram(events, "h", 0, &array, &err), STRATA_OK, "%s", err.message);
        strata_events_destroy(events);
        unsigned char *bytes = read_run(folder, &n_bytes);
        cr_expect(contains(bytes, n_bytes, expected, n_expected), "%d buckets", n);
        free(bytes);
    }
}

enum { N_THREADS = 4, N_EACH = 2000 };
static void *add_many(void *argument) {
    for (int i = 0; i < N_EACH; i++)
        if (strata_events_scalar(argument, "loss", i, i, NULL)) return argument;
    return NULL;
}

Test(events, adders_in_several_threads_leave_whole_records) {
    strata_events *events = NULL;
    cr_assert_eq(strata_events_create(test_path("run"), &events, NULL), STRATA_OK);
    pthread_t threads[N_THREADS];
    for (int t = 0; t < N_THREADS; t++) cr_assert(!pthread_create(&threads[t], NULL, add_many, events));
    for (int t = 0; t < N_THREADS; t++) {
        void *failed = NULL;
        pthread_join(threads[t], &failed);
        cr_assert(!failed);
    }
    cr_assert_eq(strata_events_flush(events, NULL), STRATA_OK);
    size_t n_bytes = 0, rest = 0;
    unsigned char *bytes = read_run(test_path("run"), &n_bytes);
    cr_assert_eq(count_records(bytes, n_bytes, &rest), 1 + N_THREADS * N_EACH);
    cr_assert_eq(rest, 0);
    free(bytes);
    strata_events_destroy(events);
}

Test(events, a_full_disk_is_reported_and_what_was_written_stays) {
    strata_events *events = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_events_create(test_path("run"), &events, NULL), STRATA_OK);
    for (int i = 0; i < 10; i++) cr_assert_eq(strata_events_scalar(events, "loss", i, i, NULL), STRATA_OK);
    cr_assert_eq(strata_events_flush(events, NULL), STRATA_OK);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, least = {.rlim_cur = 700};
    getrlimit(RLIMIT_FSIZE, &before);
    least.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &least);
    strata_status status = STRATA_OK;
    for (int i = 10; i < 100 && !status; i++) status = strata_events_scalar(events, "loss", i, i, &err);
    if (!status) status = strata_events_flush(events, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    cr_assert_eq(status, STRATA_OUT_OF_DISK, "%s", err.message);
    cr_assert(strstr(err.message, "events.out.tfevents."), "%s", err.message);
    cr_assert_eq(strata_events_scalar(events, "loss", 0, 0, NULL), STRATA_OUT_OF_DISK); /* and goes on failing */
    strata_events_destroy(events);
    size_t n_bytes = 0, rest = 0;
    unsigned char *bytes = read_run(test_path("run"), &n_bytes);
    cr_assert(count_records(bytes, n_bytes, &rest) >= 11);
    free(bytes);
}

Test(events, bad_arguments_and_folders_are_told) {
    strata_events *events = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_file_write(test_path("file"), "x", 1, NULL), STRATA_OK);
    cr_assert_eq(strata_events_create(test_path("file/run"), &events, &err), STRATA_UNAVAILABLE);
    cr_assert(strstr(err.message, "cannot make the folder: Not a directory"), "%s", err.message);
    cr_assert_eq(strata_events_create("", &events, &err), STRATA_INVALID);
    cr_assert_eq(strata_events_create(test_path("run"), &events, &err), STRATA_OK);
    cr_assert_eq(strata_events_scalar(events, "", 0, 0, &err), STRATA_INVALID);
    cr_assert_eq(strata_events_scalar(events, "\xFF", 0, 0, &err), STRATA_INVALID);
    float pixels[4] = {0};
    strata_array wrong = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(2, 2), pixels);
    strata_array empty = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(0, 2, 1), pixels);
    cr_assert_eq(strata_events_image(events, "x", 0, &wrong, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "x is f32 (2,2)"), "%s", err.message);
    cr_assert_eq(strata_events_image(events, "x", 0, &empty, &err), STRATA_INVALID);
    cr_assert_eq(strata_events_histogram(events, "h", 0, &empty, &err), STRATA_OK); /* no elements are no error */
    strata_events_destroy(events);
    strata_events_destroy(NULL);
}

/* What a field of a message holds, a length before it; NULL: there is none. */
static const unsigned char *field_of(const unsigned char *at, size_t n_bytes, int field, size_t *out_n_bytes) {
    for (size_t i = 0; i < n_bytes;) {
        uint64_t values[2] = {0}; /* the key, and a value or a length */
        for (int v = 0; v < 2; v++)
            for (int shift = 0; i < n_bytes; shift += 7) {
                values[v] |= (uint64_t)(at[i] & 0x7F) << shift;
                if (!(at[i++] & 0x80)) break;
            }
        cr_assert((values[0] & 7) == 0 || (values[0] & 7) == 2, "a number or what has a length");
        if ((values[0] & 7) == 0) continue;
        if (values[0] >> 3 == (uint64_t)field) return *out_n_bytes = (size_t)values[1], at + i;
        i += values[1];
    }
    return NULL;
}

Test(events, a_trace_becomes_a_profile) {
    static const char trace[] =
        "{\"traceEvents\":["
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":100,\"args\":{\"name\":\"worker 0\"}},"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":100,\"args\":{\"name\":\"host thread\"}},"
        "{\"name\":\"submit\",\"cat\":\"host\",\"ph\":\"X\",\"ts\":5,\"dur\":2,\"pid\":1,\"tid\":100,\"args\":{\"step\":3}}]}";
    strata_error err = {0};
    unsigned char *bytes = NULL;
    size_t n_bytes = 0, n = 0;
    cr_assert_eq(strata_file_write(test_path("t.json"), trace, sizeof trace - 1, NULL), STRATA_OK);
    cr_assert_eq(strata_events_profile(test_path("board"), "first", test_path("t.json"), &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(strata_file_read(test_path("board/plugins/profile/first/worker_0.xplane.pb"), 1 << 20, &bytes, &n_bytes, &err),
                 STRATA_OK, "%s", err.message);
    const unsigned char *host = field_of(bytes, n_bytes, 4, &n);
    cr_assert(host && n == 8 && !memcmp(host, "worker_0", n));
    const unsigned char *plane = field_of(bytes, n_bytes, 1, &n_bytes), *name = field_of(plane, n_bytes, 2, &n);
    cr_assert(name && n == 9 && !memcmp(name, "/host:CPU", n));
    const unsigned char *line = field_of(plane, n_bytes, 3, &n_bytes), *event = field_of(line, n_bytes, 4, &n);
    const unsigned char wanted[] = {0x08, 1, 0x10, 0, 0x18, 0x80, 0x89, 0x7A}; /* name 1, after 0 ps, of 2,000,000 ps */
    cr_assert(event && n > sizeof wanted && !memcmp(event, wanted, sizeof wanted));
    free(bytes);

    cr_assert_eq(strata_events_profile(test_path("board"), "", test_path("t.json"), &err), STRATA_INVALID);
    cr_assert_eq(strata_events_profile(test_path("t.json"), "x", test_path("t.json"), &err), STRATA_UNAVAILABLE);
    cr_assert_eq(strata_events_profile(test_path("board"), "x", test_path("none.json"), &err), STRATA_UNAVAILABLE);
    static const char *const wrong[] = {"{}", "{\"traceEvents\":[]}", "{\"traceEvents\":[{\"ph\":\"X\"}]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert_eq(strata_file_write(test_path("t.json"), wrong[i], strlen(wrong[i]), NULL), STRATA_OK);
        cr_assert_eq(strata_events_profile(test_path("board"), "x", test_path("t.json"), &err), STRATA_DATA, "%s", wrong[i]);
    }
}
