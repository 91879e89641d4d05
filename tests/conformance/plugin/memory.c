/* SPDX-License-Identifier: Apache-2.0
 *
 * What `strata plugin-check` checks of a device's memory: buffers up to 64 MiB, copies, and what is left in use when calls are
 * repeated. */
#define _GNU_SOURCE /* mallinfo2 */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/plugin/plugin.h"
#include "core/base/clock.h"
#include "core/op/ops.h"
#include "strata/executable.h"
#include "strata/ops.h"
#include "tests/conformance/plugin/cases.h"
#include "tests/conformance/plugin/witness.h"

/* ---- one buffer ---- */

/* Fills n bytes with pattern number `which`. Its period is no multiple of a page or a block. */
static void fill(char *bytes, int64_t n, int which) {
    enum { PERIOD = 1021 };
    for (int64_t i = 0; i < n && i < PERIOD; i++) bytes[i] = (char)(i * 37 + i / 8 + 31 * which + 1);
    for (int64_t done = PERIOD; done < n; done *= 2) memcpy(bytes + done, bytes, (size_t)(n - done < done ? n - done : done));
}

/* The buffer's bytes as they should be, and what was read of them. */
typedef struct host_memory {
    char *wanted, *read;
} host_memory;

/* Reads n bytes of the buffer at `first`, and compares them. `when` is a part of the message. */
static strata_test_result try_read(strata_device *device, strata_buffer *buffer, const host_memory *m, int64_t first, int64_t n,
                                   const char *when) {
    strata_error err = {0};
    memset(m->read, 1, (size_t)n);
    if (device->api->download(device, buffer, first, m->read, n, &err))
        return strata_test_bad("reading %lld bytes at %lld %s: %s", (long long)n, (long long)first, when, err.message);
    if (!memcmp(m->read, m->wanted + first, (size_t)n)) return strata_test_ok();
    int64_t i = 0;
    while (m->read[i] == m->wanted[first + i]) i++;
    return strata_test_bad("byte %lld of a buffer is %d instead of %d %s (%lld bytes were read at %lld)",
                           (long long)(first + i), m->read[i] & 0xff, m->wanted[first + i] & 0xff, when, (long long)n,
                           (long long)first);
}

/* Writes n bytes at `first`, and compares all bytes. */
static strata_test_result try_write(strata_device *device, strata_buffer *buffer, const host_memory *m, int64_t bytes,
                                    int64_t first, int64_t n, int which) {
    strata_error err = {0};
    char when[96];
    snprintf(when, sizeof when, "after %lld bytes were written at %lld of %lld", (long long)n, (long long)first,
             (long long)bytes);
    fill(m->wanted + first, n, which);
    if (device->api->upload(device, buffer, first, m->wanted + first, n, &err))
        return strata_test_bad("writing %lld bytes at %lld: %s", (long long)n, (long long)first, err.message);
    return try_read(device, buffer, m, 0, bytes, when);
}

/* Checks that new buffers contain zeros, also where an earlier one was, and that they can be written and read. */
static strata_test_result try_memory(strata_device *device, int64_t bytes) {
    const strata_device_api *api = device->api;
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    const int64_t first = bytes / 3, n = bytes - first - bytes / 5;
    const host_memory m = {malloc((size_t)bytes), malloc((size_t)bytes)};
    for (int again = 0; again < 2 && result.ok; again++) {
        strata_buffer *buffer = NULL;
        if (!m.wanted || !m.read || api->buffer_create(device, bytes, &buffer, &err)) {
            result = strata_test_bad("a buffer of %lld bytes: %s", (long long)bytes, err.message);
            break;
        }
        memset(m.wanted, 0, (size_t)bytes);
        result = try_read(device, buffer, &m, 0, bytes,
                          again ? "in a new buffer, after one of the same size was destroyed" : "in a new buffer");
        if (result.ok && n > 0) result = try_write(device, buffer, &m, bytes, first, n, 0);
        if (result.ok) result = try_write(device, buffer, &m, bytes, 0, bytes, 1);
        if (result.ok && n > 0) result = try_write(device, buffer, &m, bytes, first, n, 2);
        if (result.ok && n > 0) result = try_read(device, buffer, &m, first, n, "in a part of it");
        api->buffer_destroy(device, buffer);
    }
    free(m.wanted);
    free(m.read);
    return result;
}

/* ---- several buffers ---- */

/* Checks that buffers that exist at one time do not share bytes. */
static strata_test_result try_several(strata_device *device) {
    enum { N = 9, BYTES = 40009 };
    strata_buffer *buffers[N] = {0};
    strata_error err = {0};
    strata_test_result result = strata_test_ok();
    const host_memory m = {malloc(BYTES), malloc(BYTES)};
    if (!m.wanted || !m.read) result = strata_test_bad("no host memory");
    for (int k = 0; k <= N && result.ok; k++) { /* at last, one is replaced while the others are in use */
        const int i = k < N ? k : N / 2;
        if (buffers[i]) device->api->buffer_destroy(device, buffers[i]);
        buffers[i] = NULL;
        fill(m.wanted, BYTES, i);
        if (device->api->buffer_create(device, BYTES, &buffers[i], &err) ||
            device->api->upload(device, buffers[i], 0, m.wanted, BYTES, &err))
            result = strata_test_bad("buffer %d of %d: %s", i, N, err.message);
    }
    for (int i = 0; i < N && result.ok; i++) {
        fill(m.wanted, BYTES, i);
        result = try_read(device, buffers[i], &m, 0, BYTES, "while there are others");
    }
    for (int i = 0; i < N; i++)
        if (buffers[i]) device->api->buffer_destroy(device, buffers[i]);
    free(m.wanted);
    free(m.read);
    return result;
}

/* ---- copies without waiting ---- */

static const strata_device_transfers *transfers_of(strata_device *device) {
    /* Every plugin's device has this function; it returns NULL if the plugin has no such table. */
    return device->api->transfers(device);
}

/* Checks the copies of the table "transfers": a copy must begin after the earlier copies, also without a wait between them.
 * other: a device of the same plugin, to which copies are made over the link between both; NULL: there is none. */
static strata_test_result try_transfers(strata_device *device, strata_device *other, int64_t bytes) {
    const strata_device_transfers *transfers = transfers_of(device);
    strata_device *last = other ? other : device;
    strata_error err = {0};
    strata_buffer *buffer = NULL, *copy = NULL;
    uint64_t ticket = 0;
    strata_test_result result = strata_test_ok();
    char *first = malloc((size_t)bytes), *second = malloc((size_t)bytes), *target = calloc(1, (size_t)bytes);
    if (first && second) fill(first, bytes, 0), fill(second, bytes, 1);
    if (!first || !second || !target || device->api->buffer_create(device, bytes, &buffer, &err) ||
        (other && other->api->buffer_create(other, bytes, &copy, &err)) ||
        transfers->upload(device, buffer, 0, first, bytes, &ticket, &err) ||
        transfers->upload(device, buffer, 0, second, bytes, &ticket, &err) ||
        (other && transfers->copy(other, copy, 0, device, buffer, 0, bytes, &err)) ||
        transfers->download(last, other ? copy : buffer, 0, target, bytes, &ticket, &err) ||
        last->api->wait(last, ticket, &err))
        result = strata_test_bad("copies of the table \"transfers\"%s%s: %s", other ? " to " : "",
                                 other ? strata_device_get_info(other)->id : "", err.message);
    for (int64_t i = 0; i < bytes && result.ok; i++)
        if (target[i] != second[i])
            result = strata_test_bad(
                "byte %lld of %lld is not that of the last of two uploads, after a %sdownload of the table "
                "\"transfers\"; copies must come in the order in which they were submitted",
                (long long)i, (long long)bytes, other ? "copy to another device and its " : "");
    if (buffer) device->api->buffer_destroy(device, buffer);
    if (copy) other->api->buffer_destroy(other, copy);
    free(first);
    free(second);
    free(target);
    return result;
}

static strata_test_result check_transfers(const checker *c) {
    enum { SMALL = 70001, LARGE = 5000011 };
    strata_device *other = NULL;
    strata_error err = {0};
    if (!transfers_of(c->device)) return strata_test_ok();
    strata_test_result result = try_transfers(c->device, NULL, SMALL);
    if (result.ok && !c->options->quick) result = try_transfers(c->device, NULL, LARGE);
    if (!result.ok || !transfers_of(c->device)->copy || !c->other[0]) return result;
    if (strata_device_open(c->other, NULL, &other, &err)) return strata_test_bad("%s", err.message);
    result = try_transfers(c->device, other, SMALL);
    if (result.ok && !c->options->quick) result = try_transfers(c->device, other, LARGE);
    strata_device_close(other);
    return result;
}

strata_test_result check_memory(const checker *c, void (*begin)(const checker *c, int index), int *out_n_right) {
    static const int64_t sizes[] = {1, 4, 255, 4096, 100003, (1 << 20) + 4097, 64 << 20};
    const strata_device_info *info = strata_device_get_info(c->device);
    const uint64_t most =
        info->memory_bytes && info->memory_bytes < info->max_allocation_bytes ? info->memory_bytes : info->max_allocation_bytes;
    strata_test_result result = strata_test_ok();
    *out_n_right = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && result.ok; i++) {
        if ((uint64_t)sizes[i] > most || (c->options->quick && sizes[i] > 2 << 20)) continue;
        begin(c, *out_n_right);
        result = try_memory(c->device, sizes[i]);
        *out_n_right += result.ok;
    }
    if (!result.ok) return result;
    begin(c, *out_n_right);
    result = try_several(c->device);
    *out_n_right += result.ok;
    return result.ok ? check_transfers(c) : result;
}

/* ---- what is left in use ---- */

typedef struct usage {
    /* Bytes of the heap; bytes of all mappings; the threads and open files of this process. */
    double heap, mapped, threads, files;
} usage;

static double count_entries(const char *path) {
    DIR *folder = opendir(path);
    int n = 0;
    if (!folder) return 0;
    while (readdir(folder)) n++;
    closedir(folder);
    return n;
}

static usage measure(void) {
    usage u = {0};
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lld", &pages) == 1) u.mapped = (double)pages * (double)sysconf(_SC_PAGESIZE);
    if (file) fclose(file);
    u.mapped -= (double)witness_bytes();
#if defined(__GLIBC__)
    const struct mallinfo2 heap = mallinfo2();
    u.heap = (double)heap.uordblks + (double)heap.hblkhd;
#endif
    u.threads = count_entries("/proc/self/task");
    u.files = count_entries("/proc/self/fd");
    return u;
}

/* Something that is repeated. It leaves nothing in use. */
typedef struct action {
    const checker *c;
    strata_status (*run)(struct action *self, strata_error *err);
    const char *what;
    strata_buffer *buffer;
    strata_graph *graph;
    strata_tensor *y;
    strata_executable *exe;
} action;

/* Repeats the action in WINDOWS windows of n. If the use of something grows with each action, in all windows, it is left. */
static strata_test_result repeat(action *a, int n) {
    enum { WINDOWS = 3 };
    static const double least[] = {16, 4096, 0.5, 0.5};
    static const char *const what[] = {"bytes of memory", "bytes of mapped memory", "threads", "open files"};
    strata_error err = {0};
    double growth[4] = {1e300, 1e300, 1e300, 1e300};
    usage before = {0};
    for (int w = 0; w <= WINDOWS; w++) { /* the first window is not measured */
        for (int i = 0; i < n; i++)
            if (a->run(a, &err)) return strata_test_bad("%s: %s", a->what, err.message);
        const usage after = measure();
        const double grown[] = {after.heap - before.heap, after.mapped - before.mapped, after.threads - before.threads,
                                after.files - before.files};
        for (int k = 0; k < 4 && w > 0; k++)
            if (grown[k] / n < growth[k]) growth[k] = grown[k] / n;
        before = after;
    }
    for (int k = 0; k < 4; k++)
        if (growth[k] >= least[k])
            return strata_test_bad("%s: each leaves %.0f %s in use (%d of them, %d times)", a->what, growth[k] + 0.5, what[k],
                                   n, WINDOWS);
    return strata_test_ok();
}

static strata_status make_buffer(action *a, strata_error *err) {
    strata_device *device = a->c->device;
    strata_buffer *buffer = NULL;
    STRATA_TRY(device->api->buffer_create(device, 65536, &buffer, err));
    device->api->buffer_destroy(device, buffer);
    return STRATA_OK;
}

static strata_status make_copies(action *a, strata_error *err) {
    strata_device *device = a->c->device;
    char bytes[4096] = {0};
    STRATA_TRY(device->api->upload(device, a->buffer, 0, bytes, sizeof bytes, err));
    return device->api->download(device, a->buffer, 0, bytes, sizeof bytes, err);
}

static strata_status make_run(action *a, strata_error *err) {
    static float x[2][32 * 32], y[32 * 32];
    const char *names[] = {"a", "b"};
    const strata_array inputs[] = {strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(32, 32), x[0]),
                                   strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(32, 32), x[1])};
    strata_array output = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(32, 32), y);
    return strata_executable_run(a->exe, names, inputs, a->y->n_inputs, &output, 1, err);
}

static strata_status make_program(action *a, strata_error *err) {
    const strata_executable_options opts = {.no_fusion = true, .n_slots = 2};
    STRATA_TRY(strata_executable_create(a->c->device, &a->y, 1, NULL, 0, &opts, &a->exe, err));
    const strata_status status = make_run(a, err);
    strata_executable_destroy(a->exe);
    a->exe = NULL;
    return status;
}

/* Builds y, an op of the device for f32 (32, 32); NULL: it has none of those that are tried. */
static strata_tensor *find_op(const checker *c, strata_graph *graph) {
    static const strata_op *const ops[] = {&strata_op_add, &strata_op_mul,  &strata_op_relu,
                                           &strata_op_neg, &strata_op_tanh, &strata_op_square};
    strata_tensor *x[] = {strata_input(graph, "a", STRATA_DTYPE_F32, STRATA_SHAPE(32, 32)),
                          strata_input(graph, "b", STRATA_DTYPE_F32, STRATA_SHAPE(32, 32))};
    const char *reason;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        strata_tensor *y = strata_node(NULL, ops[i], ops[i]->n_inputs, x, NULL);
        if (c->device->api->supports(c->device, y, &reason)) return y;
    }
    strata_tensor *y = strata_matmul(x[0], x[1], false, false);
    return c->device->api->supports(c->device, y, &reason) ? y : NULL;
}

strata_test_result check_counts(const checker *c) {
    enum { MANY = 64, SOME = 16 };
    strata_error err = {0};
    action a = {.c = c};
    if (!(strata_device_get_info(c->device)->dtypes >> STRATA_DTYPE_F32 & 1)) return strata_test_ok();
    if (strata_graph_create(&a.graph, &err) || c->device->api->buffer_create(c->device, 4096, &a.buffer, &err)) {
        strata_graph_destroy(a.graph);
        return strata_test_bad("%s", err.message);
    }
    a.run = make_buffer, a.what = "creating and destroying buffers";
    strata_test_result result = repeat(&a, MANY);
    a.run = make_copies, a.what = "uploads and downloads";
    if (result.ok) result = repeat(&a, MANY);
    a.y = find_op(c, a.graph);
    a.run = make_program, a.what = "compiling, running and destroying programs";
    if (result.ok && a.y) result = repeat(&a, SOME);
    a.run = make_run, a.what = "runs";
    if (result.ok && a.y && strata_executable_create(c->device, &a.y, 1, NULL, 0, NULL, &a.exe, &err))
        result = strata_test_bad("%s", err.message);
    if (result.ok && a.y) result = repeat(&a, MANY);
    strata_executable_destroy(a.exe);
    c->device->api->buffer_destroy(c->device, a.buffer);
    strata_graph_destroy(a.graph);
    return result;
}

static strata_status open_and_close(action *a, strata_error *err) {
    strata_device *device = NULL;
    STRATA_TRY(strata_device_open(a->c->id, NULL, &device, err));
    strata_device_close(device);
    return STRATA_OK;
}

strata_test_result check_openings(const checker *c) {
    const double slow_s = 1;
    strata_error err = {0};
    action a = {.c = c, .run = open_and_close, .what = "opening and closing the device"};
    const double begin = strata_clock_seconds();
    if (open_and_close(&a, &err)) return strata_test_bad("opening the device again after it was closed: %s", err.message);
    return strata_clock_seconds() - begin > slow_s ? strata_test_ok() : repeat(&a, 3);
}
