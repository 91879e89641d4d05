/* SPDX-License-Identifier: Apache-2.0
 *
 * An OpenCL driver that computes wrongly over one that does not (STRATA_SHIM_DRIVER, a driver's library). It calls itself
 * "Liar", so that Strata takes it for one that it does not know and launches kernels one by one.
 *     STRATA_SHIM_LIE=strata_unary    of what kernel functions whose name begins so have written, words are changed behind
 *                                     them; read at each launch. strata_: of all of them
 *     STRATA_SHIM_FICKLE=1            each time they are changed otherwise
 *     STRATA_SHIM_COMPILE_SECONDS=2   what a program takes to compile, at least; read at each
 *     STRATA_SHIM_COMPILE_NTH=3       only the third one
 *     STRATA_SHIM_ABOVE=50            only words that are floats beyond this, or beyond its negative, are changed
 *
 * Objects of a driver begin with a pointer to its table of functions, which the loader calls: so that table is changed. What a
 * kernel has written is found by reading all of its buffers before and after it. */
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

#include "tests/shims/slow_compiler.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_KERNELS = 4096, MOST_BUFFERS = 16, MOST_PLATFORMS = 8, EVERY = 3, MOST_NAMES = 128, NAME_BYTES = 64 };
static const uint32_t FLIPPED = 0x00400000; /* of a float: its value changes by a quarter, at least */

static struct _cl_icd_dispatch real;

/* The buffers among a kernel's arguments. */
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

/* Strata keeps one reference to each kernel. */
static cl_int CL_API_CALL release_kernel(cl_kernel kernel) {
    for (int i = 0; i < n_seen; i++)
        if (seen[i].kernel == kernel) seen[i] = (seen_kernel){0};
    return real.clReleaseKernel(kernel);
}

static cl_int CL_API_CALL set_argument(cl_kernel kernel, cl_uint index, size_t bytes, const void *value) {
    seen_kernel *k = find(kernel);
    if (k && index < MOST_BUFFERS) {
        k->buffers[index] = NULL;
        /* A word has 4 bytes. */
        if (bytes == sizeof(cl_mem) && value) memcpy(&k->buffers[index], value, sizeof(cl_mem));
    }
    return real.clSetKernelArg(kernel, index, bytes, value);
}

/* The names of all kernel functions that were launched, less their numbers, for a test to read. */
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

/* Some of the words that differ, and are not 0, are changed once more: always alike or, with STRATA_SHIM_FICKLE, each time
 * otherwise. */
static bool change(uint32_t *after, const uint32_t *before, size_t n_words) {
    static uint32_t times;
    const uint32_t flipped = getenv("STRATA_SHIM_FICKLE") ? FLIPPED ^ (++times & 255) : FLIPPED;
    size_t n_changed = 0;
    for (size_t i = 0; i < n_words; i++)
        if (after[i] != before[i] && after[i] && is_above(after[i]) && n_changed++ % EVERY == 0) after[i] ^= flipped;
    return n_changed > 0;
}

static cl_int CL_API_CALL enqueue(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                  const size_t *global, const size_t *local, cl_uint n_events, const cl_event *events,
                                  cl_event *event) {
    seen_kernel *k = find(kernel);
    note(kernel);
    if (!k || !is_liar(kernel))
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
        bool again = false; /* the same memory as a buffer before */
        for (int j = 0; j < i; j++) again = again || k->buffers[j] == k->buffers[i];
        if (after && !again) {
            real.clEnqueueReadBuffer(queue, k->buffers[i], CL_TRUE, 0, bytes, after, 0, NULL, NULL);
            if (change(after, before[i], bytes / sizeof *after))
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
    strata_shim_compile_slowly();
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

/* ---- what the loader asks a driver for ---- */

static void *of_driver(const char *name) {
    static void *driver;
    const char *path = getenv("STRATA_SHIM_DRIVER");
    if (!driver && path) driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return driver ? dlsym(driver, name) : NULL;
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
}

EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *out, cl_uint *out_n) {
    void *(CL_API_CALL * extension)(const char *) = of_driver("clGetExtensionFunctionAddress");
    cl_int(CL_API_CALL * get)(cl_uint, cl_platform_id *, cl_uint *) = extension ? extension("clIcdGetPlatformIDsKHR") : NULL;
    cl_platform_id all[MOST_PLATFORMS];
    cl_uint n_all = 0;
    if (!get || get(MOST_PLATFORMS, all, &n_all)) return -1001; /* no platform: CL_PLATFORM_NOT_FOUND_KHR */
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
