/* SPDX-License-Identifier: Apache-2.0
 *
 * An OpenCL driver that computes wrong results or compiles slowly. It loads an installed driver, whose library the variable
 * STRATA_SHIM_DRIVER names, and replaces some of its functions. Its platform is named "Liar", which Strata does not know; so
 * Strata launches kernels one by one. These environment variables control it:
 *     STRATA_SHIM_LIE=strata_unary    changes some words of the results of kernels whose name is strata_unary, or begins with
 *                                     it and a number; strata_ stands for all kernels. It is read at each launch
 *     STRATA_SHIM_FICKLE=1            changes the words differently in each launch
 *     STRATA_SHIM_ABOVE=50            changes only words that are floats above 50 or below -50
 *     STRATA_SHIM_ITEMS=1000          lies only in launches of more than 1000 work-items
 *     STRATA_SHIM_GROUP=2             lies only in the results of work-group 2 (from 0): if a launch has n groups, these are
 *                                     words 2/n to 3/n of those that it has changed
 *     STRATA_SHIM_FIRST=9             launches of these kernels are counted from 1, and those before the 9th are right
 *     STRATA_SHIM_LAST=9              those after the 9th are right
 *     STRATA_SHIM_COMPILE_SECONDS=2   a program takes at least 2 s to compile; it is read at each compilation
 *     STRATA_SHIM_COMPILE_NTH=3       only the third compilation is slow
 *     STRATA_SHIM_HANG=clFinish       this function does not return. STRATA_SHIM_HANG_NTH=3: only the third call of
 *                                     clEnqueueNDRangeKernel does not
 *
 * Each object of a driver begins with a pointer to a table of functions, which the loader calls. The shim changes this table.
 * To find out what a kernel has written, it reads all buffers of the kernel before and after the launch. */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define _GNU_SOURCE
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/shims/hang.h"
#include "tests/shims/slow_compiler.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_KERNELS = 4096, MOST_BUFFERS = 16, MOST_PLATFORMS = 8, EVERY = 3, MOST_NAMES = 128, NAME_BYTES = 64 };
static const uint32_t FLIPPED = 0x00400000; /* flipping this bit changes a float by a quarter of its value, at least */

static struct _cl_icd_dispatch real;

/* A kernel, and its arguments that are buffers. */
typedef struct seen_kernel {
    cl_kernel kernel;
    cl_mem buffers[MOST_BUFFERS];
} seen_kernel;
static seen_kernel seen[MOST_KERNELS];
static int n_seen;

static seen_kernel *find(cl_kernel kernel) {
    int i = 0, room = 0;
    while (i < n_seen && seen[i].kernel != kernel) i++;
    if (i < n_seen) return &seen[i];
    while (room < n_seen && seen[room].kernel) room++;
    if (room == MOST_KERNELS) return NULL;
    if (room == n_seen) n_seen++;
    seen[room] = (seen_kernel){.kernel = kernel};
    return &seen[room];
}

/* Forgets the kernel: Strata has only one reference to each, so this call destroys it. */
static cl_int CL_API_CALL release_kernel(cl_kernel kernel) {
    for (int i = 0; i < n_seen; i++)
        if (seen[i].kernel == kernel) seen[i] = (seen_kernel){0};
    return real.clReleaseKernel(kernel);
}

static cl_int CL_API_CALL set_argument(cl_kernel kernel, cl_uint index, size_t bytes, const void *value) {
    seen_kernel *k = find(kernel);
    if (k && index < MOST_BUFFERS) {
        k->buffers[index] = NULL;
        /* An argument of the size of a pointer is a buffer, since scalar arguments have 4 bytes. */
        if (bytes == sizeof(cl_mem) && value) memcpy(&k->buffers[index], value, sizeof(cl_mem));
    }
    return real.clSetKernelArg(kernel, index, bytes, value);
}

/* The names of all kernels that were launched, without the numbers at their ends. Tests read this list. */
EXPORT extern char strata_shim_launched[MOST_NAMES][NAME_BYTES];
char strata_shim_launched[MOST_NAMES][NAME_BYTES];

static void note(cl_kernel kernel) {
    char name[NAME_BYTES] = "";
    if (real.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL)) return;
    char *number = strrchr(name, '_');
    if (number && number[1] >= '0' && number[1] <= '9') *number = 0;
    int i = 0;
    while (i < MOST_NAMES - 1 && strata_shim_launched[i][0] && strcmp(strata_shim_launched[i], name) != 0) i++;
    memcpy(strata_shim_launched[i], name, sizeof name);
}

static bool is_liar(cl_kernel kernel) {
    const char *wanted = getenv("STRATA_SHIM_LIE");
    char name[128] = "";
    if (!wanted || !*wanted || real.clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL)) return false;
    const size_t n = strlen(wanted);
    return !strncmp(name, wanted, n) &&
           (!strcmp(wanted, "strata_") || !name[n] || (name[n] == '_' && name[n + 1] >= '0' && name[n + 1] <= '9'));
}

static size_t size_of(cl_mem memory) {
    size_t bytes = 0;
    return real.clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) ? 0 : bytes;
}

static bool is_above(uint32_t word) {
    const char *least = getenv("STRATA_SHIM_ABOVE");
    float value;
    memcpy(&value, &word, sizeof value);
    return !least || value > (float)atof(least) || value < -(float)atof(least);
}

static long number_of(const char *variable, long otherwise) {
    const char *text = getenv(variable);
    return text ? atol(text) : otherwise;
}

/* Changes every third of the words that the kernel has changed and that are not 0: in the same way each time or, with
 * STRATA_SHIM_FICKLE, in another way each time. With STRATA_SHIM_GROUP all words of this group. */
static bool change(uint32_t *after, const uint32_t *before, size_t n_words, size_t n_groups) {
    static uint32_t times;
    const uint32_t flipped = getenv("STRATA_SHIM_FICKLE") ? FLIPPED ^ (++times & 255) : FLIPPED;
    const long group = number_of("STRATA_SHIM_GROUP", -1);
    size_t n_changed = 0, n_all = 0, seen = 0;
    for (size_t i = 0; i < n_words && group >= 0; i++) n_all += after[i] != before[i] && after[i];
    const size_t first = n_all * (size_t)(group < 0 ? 0 : group) / n_groups,
                 end = n_all * ((size_t)(group < 0 ? 0 : group) + 1) / n_groups;
    for (size_t i = 0; i < n_words; i++) {
        if (after[i] == before[i] || !after[i] || !is_above(after[i])) continue;
        const size_t at = seen++;
        if (group >= 0 ? at < first || at >= end : at % EVERY != 0) continue;
        after[i] ^= flipped;
        n_changed++;
    }
    return n_changed > 0;
}

/* Whether the n-th launch of a lying kernel, with so many work-items, lies. */
static bool lies_now(size_t n_items) {
    static long n_launches;
    n_launches++;
    return n_items > (size_t)number_of("STRATA_SHIM_ITEMS", 0) && n_launches >= number_of("STRATA_SHIM_FIRST", 1) &&
           n_launches <= number_of("STRATA_SHIM_LAST", n_launches);
}

static cl_int CL_API_CALL enqueue(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                  const size_t *global, const size_t *local, cl_uint n_events, const cl_event *events,
                                  cl_event *event) {
    static int calls;
    seen_kernel *k = find(kernel);
    note(kernel);
    strata_shim_count_call("clEnqueueNDRangeKernel", &calls);
    size_t n_items = 1, n_groups = 1;
    for (cl_uint d = 0; d < dimensions; d++) {
        n_items *= global[d];
        n_groups *= local ? global[d] / local[d] : 1;
    }
    if (!k || !is_liar(kernel) || !lies_now(n_items))
        return real.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, n_events, events, event);
    uint32_t *before[MOST_BUFFERS] = {NULL};
    for (int i = 0; i < MOST_BUFFERS; i++) {
        const size_t bytes = k->buffers[i] ? size_of(k->buffers[i]) : 0;
        before[i] = bytes ? malloc(bytes) : NULL;
        if (before[i]) real.clEnqueueReadBuffer(queue, k->buffers[i], CL_TRUE, 0, bytes, before[i], 0, NULL, NULL);
    }
    cl_int code = real.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, n_events, events, event);
    for (int i = 0; i < MOST_BUFFERS; i++) {
        const size_t bytes = before[i] ? size_of(k->buffers[i]) : 0;
        uint32_t *after = bytes ? malloc(bytes) : NULL;
        bool again = false; /* an earlier argument is the same buffer */
        for (int j = 0; j < i; j++) again = again || k->buffers[j] == k->buffers[i];
        if (after && !again) {
            real.clEnqueueReadBuffer(queue, k->buffers[i], CL_TRUE, 0, bytes, after, 0, NULL, NULL);
            if (change(after, before[i], bytes / sizeof *after, n_groups))
                real.clEnqueueWriteBuffer(queue, k->buffers[i], CL_TRUE, 0, bytes, after, 0, NULL, NULL);
        }
        free(after);
        free(before[i]);
    }
    real.clFinish(queue);
    return code;
}

static cl_int CL_API_CALL build(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                                void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
    static atomic_int n_failed;
    const char *failing = getenv("STRATA_SHIM_BUILDS_FAIL");
    strata_shim_compile_slowly();
    if (failing && atomic_fetch_add(&n_failed, 1) < atoi(failing)) return CL_BUILD_PROGRAM_FAILURE;
    return real.clBuildProgram(program, n, devices, options, notify, user);
}

static cl_int CL_API_CALL platform_info(cl_platform_id platform, cl_platform_info what, size_t bytes, void *out,
                                        size_t *out_bytes) {
    static const char name[] = "Liar";
    if (what != CL_PLATFORM_NAME) return real.clGetPlatformInfo(platform, what, bytes, out, out_bytes);
    if (out_bytes) *out_bytes = sizeof name;
    if (out && bytes < sizeof name) return CL_INVALID_VALUE;
    if (out) memcpy(out, name, sizeof name);
    return CL_SUCCESS;
}

/* ---- the functions that the loader requires of a driver ---- */

static void *of_driver(const char *name) {
    static void *driver;
    const char *path = getenv("STRATA_SHIM_DRIVER");
    if (!driver && path) driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return driver ? dlsym(driver, name) : NULL;
}

static cl_int CL_API_CALL hang(void) {
    strata_shim_hang();
    return CL_SUCCESS;
}

static void replace_hanging(struct _cl_icd_dispatch *table) {
#define REPLACE(name)                                         \
    if (strata_shim_hangs("cl" #name)) {                      \
        void *function = (void *)hang;                        \
        memcpy(&table->cl##name, &function, sizeof function); \
    }
    REPLACE(GetDeviceIDs)
    REPLACE(CreateContext)
    REPLACE(CreateCommandQueue)
    REPLACE(CreateBuffer)
    REPLACE(CreateKernel)
    REPLACE(EnqueueWriteBuffer)
    REPLACE(EnqueueReadBuffer)
    REPLACE(WaitForEvents)
    REPLACE(Finish)
    REPLACE(ReleaseMemObject)
    REPLACE(ReleaseContext)
#undef REPLACE
}

static void replace(cl_platform_id platform) {
    struct _cl_icd_dispatch *table = *(struct _cl_icd_dispatch **)platform;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)table / page * page;
    if (real.clGetPlatformInfo) return;
    real = *table;
    if (mprotect((void *)begin, (uintptr_t)(table + 1) - begin, PROT_READ | PROT_WRITE)) return;
    table->clSetKernelArg = set_argument;
    table->clReleaseKernel = release_kernel;
    table->clEnqueueNDRangeKernel = enqueue;
    table->clBuildProgram = build;
    table->clGetPlatformInfo = platform_info;
    replace_hanging(table);
}

EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *out, cl_uint *out_n) {
    void *(CL_API_CALL * extension)(const char *) = of_driver("clGetExtensionFunctionAddress");
    cl_int(CL_API_CALL * get)(cl_uint, cl_platform_id *, cl_uint *) = extension ? extension("clIcdGetPlatformIDsKHR") : NULL;
    cl_platform_id all[MOST_PLATFORMS];
    cl_uint n_all = 0;
    if (!get || get(MOST_PLATFORMS, all, &n_all)) return -1001; /* CL_PLATFORM_NOT_FOUND_KHR */
    for (cl_uint i = 0; i < n_all && i < MOST_PLATFORMS; i++) replace(all[i]);
    for (cl_uint i = 0; i < n && i < n_all; i++) out[i] = all[i];
    if (out_n) *out_n = n_all;
    return CL_SUCCESS;
}

EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
    if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return (void *)clIcdGetPlatformIDsKHR;
    void *(CL_API_CALL * get)(const char *) = of_driver("clGetExtensionFunctionAddress");
    return get ? get(name) : NULL;
}

EXPORT cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info what, size_t bytes, void *out,
                                            size_t *out_bytes) {
    return real.clGetPlatformInfo ? platform_info(platform, what, bytes, out, out_bytes) : CL_INVALID_PLATFORM;
}
