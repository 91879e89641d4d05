/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the programs of kernels from the embedded sources and their constants. A program is loaded from the disk cache
 * if it is there, otherwise it is compiled. The disk cache is not used if the driver has its own. A device keeps all
 * programs that it has built. */
#include <stdio.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "backends/opencl/opencl.h"

enum { LOG_LINES = 6, LOG_BYTES = 600, MAX_BINARY_BYTES = 256 << 20 };
/* Denormals are flushed to zero. Adam's moments decay to denormals if a unit gets no more gradients, and a CPU computes
 * 7 to 50 times more slowly with them. Warnings are off: PoCL prints their number, and `LOCAL_X == 1u || ...` causes a
 * warning if LOCAL_X is a constant. */
static const char options[] = "-cl-std=CL1.2 -cl-denorms-are-zero -w";

/* Options that the environment variable STRATA_OPENCL_OPTIONS adds, such as -cl-opt-disable; empty without it. */
static const char *users_options(void) {
    const char *added = getenv("STRATA_OPENCL_OPTIONS");
    return added ? added : "";
}

/* Shortens the log to its first lines and joins them into one line. */
static void first_lines(char *log) {
    int lines = 0;
    char *to = log;
    for (const char *from = log; *from && lines < LOG_LINES && to - log < LOG_BYTES; from++) {
        if (*from == '\n') {
            if (to > log && to[-1] != ' ') {
                lines++;
                *to++ = ' ';
            }
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
}

/* Returns the driver's messages, which the caller frees, or NULL. */
static char *log_of(opencl_device *device, cl_program program) {
    size_t bytes = 0;
    char *log = NULL;
    if (device->cl.GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) == CL_SUCCESS && bytes > 0 &&
        bytes < MAX_BINARY_BYTES)
        log = calloc(1, bytes + 1);
    if (log && device->cl.GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, log, NULL) != CL_SUCCESS)
        log[0] = '\0';
    return log;
}

/* what: the names of the kernels. */
static strata_status build_failed(opencl_device *device, cl_program program, const char *what, cl_int code, strata_error *err) {
    STRATA_FREED char *log = log_of(device, program);
    if (log) first_lines(log);
    return strata_fail(err, code == CL_OUT_OF_HOST_MEMORY ? STRATA_OUT_OF_MEMORY : STRATA_UNSUPPORTED,
                       "%s: the driver (%s) does not compile kernel %s: %s (%d); its log begins: %s", device->base.info.id,
                       device->base.info.driver, what, strata_opencl_error_name(code), (int)code,
                       log && log[0] ? log : "(empty)");
}

/* Returns freed memory to the system. Without this, glibc would keep tens of MiB after a compilation in this process. */
static void return_freed_memory(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

typedef struct build_call {
    cl_int(CL_API_CALL *build)(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                               void(CL_CALLBACK *notify)(cl_program program, void *user), void *user);
    cl_program program;
    cl_device_id device;
    char options[256];
    cl_int code;
} build_call;

static void make_build_call(void *data) {
    build_call *call = data;
    call->code = call->build(call->program, 1, &call->device, call->options, NULL, NULL);
}

/* Runs the driver's compiler with the limits of strata_driver_compile_run. */
static strata_status build_program(opencl_device *device, cl_program program, const char *what, int n_kernels, cl_int *out_code,
                                   strata_error *err) {
    build_call call = {device->cl.BuildProgram, program, device->id, "", CL_SUCCESS};
    char name[128];
    if (snprintf(call.options, sizeof call.options, "%s %s", options, users_options()) >= (int)sizeof call.options)
        return strata_fail(err, STRATA_INVALID, "STRATA_OPENCL_OPTIONS has %zu bytes; at most 200 are allowed",
                           strlen(users_options()));
    if (n_kernels > 1)
        snprintf(name, sizeof name, "kernel %s and %d others", what, n_kernels - 1);
    else
        snprintf(name, sizeof name, "kernel %s", what);
    STRATA_TRY(strata_driver_compile_run(&device->base, name, n_kernels, make_build_call, &call, sizeof call, err));
    *out_code = call.code;
    return STRATA_OK;
}

/* *out_code: whether the driver compiled it. The caller releases *out_program in both cases. */
static strata_status compile_once(opencl_device *device, const char *source, const char *what, int n_kernels,
                                  cl_program *out_program, cl_int *out_code, strata_error *err) {
    cl_program program = device->cl.CreateProgramWithSource(device->context, 1, &source, NULL, out_code);
    if (*out_code != CL_SUCCESS) return strata_opencl_fail(device, *out_code, "making a program", err);
    STRATA_TRY(build_program(device, program, what, n_kernels, out_code, err));
    return_freed_memory();
    *out_program = program;
    return STRATA_OK;
}

/* Whether the compiler failed without an error in the source. PoCL does so now and then while other processes compile. */
static bool failed_by_chance(opencl_device *device, cl_program program, cl_int code) {
    if (code != CL_BUILD_PROGRAM_FAILURE) return false;
    STRATA_FREED char *log = log_of(device, program);
    return !log || !strstr(log, "error");
}

static strata_status compile_source(opencl_device *device, const char *source, const char *what, int n_kernels,
                                    cl_program *out_program, strata_error *err) {
    cl_int code;
    cl_program program = NULL;
    STRATA_TRY(compile_once(device, source, what, n_kernels, &program, &code, err));
    if (failed_by_chance(device, program, code)) {
        device->cl.ReleaseProgram(program);
        STRATA_TRY(compile_once(device, source, what, n_kernels, &program, &code, err));
    }
    if (code != CL_SUCCESS) {
        strata_status status = build_failed(device, program, what, code, err);
        device->cl.ReleaseProgram(program);
        return status;
    }
    device->base.counters.compilations++;
    *out_program = program;
    return STRATA_OK;
}

/* ---- the disk cache; its key is the source, so it is not used with users_options ---- */
/* *out_program is NULL if the cache has no binary, or if the driver rejects it. */
static strata_status load_binary(opencl_device *device, const char *source, const char *what, int n_kernels,
                                 cl_program *out_program, strata_error *err) {
    size_t bytes = 0;
    STRATA_FREED unsigned char *binary = strata_cache_load(&device->cache, source, strlen(source), &bytes);
    *out_program = NULL;
    if (!binary) return STRATA_OK;
    const unsigned char *const binaries[] = {binary};
    cl_int code, loaded = CL_SUCCESS;
    cl_program program = device->cl.CreateProgramWithBinary(device->context, 1, &device->id, &bytes,
                                                            (const unsigned char **)binaries, &loaded, &code);
    if (code != CL_SUCCESS) return STRATA_OK;
    if (loaded == CL_SUCCESS) STRATA_TRY(build_program(device, program, what, n_kernels, &loaded, err));
    if (loaded == CL_SUCCESS)
        *out_program = program;
    else
        device->cl.ReleaseProgram(program);
    return STRATA_OK;
}

/* Some drivers compile only when a kernel object is created, and only then have a complete binary. So this creates an
 * object of each kernel first. */
static void store_binary(opencl_device *device, cl_program program, const char *source, const char *const *entries, int n) {
    STRATA_DRIVER_CALL(&device->base, COMPILE);
    for (int i = 0; i < n; i++) {
        cl_int code;
        cl_kernel kernel = device->cl.CreateKernel(program, entries[i], &code);
        if (code == CL_SUCCESS) device->cl.ReleaseKernel(kernel);
    }
    size_t bytes = 0;
    if (device->cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != CL_SUCCESS) return;
    if (bytes == 0 || bytes > MAX_BINARY_BYTES) return;
    STRATA_FREED unsigned char *binary = malloc(bytes);
    if (binary && device->cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
        strata_cache_store(&device->cache, source, strlen(source), binary, bytes);
}

/* ---- what the device has built ---- */
static int find_built(const opencl_device *device, const strata_kernel *kernel) {
    bool trying = strata_tuner_is_trying(device->tuner);
    for (int i = 0; i < device->n_built; i++) {
        const strata_kernel *other = &device->built[i].kernel;
        if (device->built[i].trial && !trying) continue;
        if (other->shader == kernel->shader && !memcmp(other->constants, kernel->constants, sizeof kernel->constants)) return i;
    }
    return -1;
}

static strata_status reserve(opencl_device *device, int n, strata_error *err) {
    if (device->n_built + n <= device->built_capacity) return STRATA_OK;
    int capacity = 2 * (device->n_built + n);
    opencl_built *built = realloc(device->built, (size_t)capacity * sizeof *built);
    if (!built)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %d kernels", device->base.info.id, capacity);
    device->built = built;
    device->built_capacity = capacity;
    return STRATA_OK;
}

static strata_status build_cached(opencl_device *device, const char *source, const char *what, const char *const *entries,
                                  int n_entries, int n_kernels, cl_program *out_program, strata_error *err) {
    const bool trying = strata_tuner_is_trying(device->tuner);
    if (!trying) strata_device_report_compile(&device->base, false, 0, n_kernels);
    bool use_cache = !device->driver_caches && device->cache.dir[0] && !users_options()[0];
    cl_program program = NULL;
    if (use_cache) STRATA_TRY(load_binary(device, source, what, n_kernels, &program, err));
    if (!program) {
        STRATA_TRY(compile_source(device, source, what, n_kernels, &program, err));
        if (use_cache) store_binary(device, program, source, entries, n_entries);
    }
    if (!trying) strata_device_report_compile(&device->base, false, n_kernels, n_kernels);
    *out_program = program;
    return STRATA_OK;
}

/* Builds n kernels as one program and adds them to the device. */
static strata_status build_together(opencl_device *device, const strata_kernel *const *kernels, int n, strata_error *err) {
    STRATA_TRY(reserve(device, n, err));
    opencl_built *built = device->built + device->n_built;
    STRATA_FINISHED(strata_text) text = {0};
    STRATA_FREED char *source = NULL;
    char what[96];
    for (int i = 0; i < n; i++) {
        char suffix[16];
        snprintf(suffix, sizeof suffix, "_%d", i);
        built[i].kernel = *kernels[i];
        STRATA_TRY(strata_opencl_source_add(&text, kernels[i], suffix, "", built[i].entry, err));
    }
    STRATA_TRY(strata_text_take(&text, &source, NULL, err));
    snprintf(what, sizeof what, "%s %s", kernels[0]->shader->stem, kernels[0]->shader->variant);

    cl_program program = NULL;
    const char *entries[1] = {built[0].entry};
    STRATA_TRY(build_cached(device, source, what, entries, 1, n, &program, err));
    for (int i = 0; i < n; i++) {
        built[i].program = program;
        built[i].trial = strata_tuner_is_trying(device->tuner);
        if (i > 0) device->cl.RetainProgram(program);
    }
    device->n_built += n;
    return STRATA_OK;
}

strata_status strata_opencl_build(opencl_device *device, const strata_kernel *kernels, int n, int *out_built,
                                  strata_error *err) {
    STRATA_FREED const strata_kernel **missing = NULL;
    STRATA_TRY(STRATA_NEW(missing, n, err, "%s: no host memory for %d kernels", device->base.info.id, n));
    int n_missing = 0;
    for (int i = 0; i < n; i++)
        if (kernels[i].shader->opencl.bytes && find_built(device, &kernels[i]) < 0) missing[n_missing++] = &kernels[i];
    strata_status status = n_missing ? build_together(device, missing, n_missing, err) : STRATA_OK;
    /* to find out which kernel the driver rejects, build them one by one */
    if (status == STRATA_UNSUPPORTED && n_missing > 1) {
        status = STRATA_OK;
        for (int i = 0; i < n_missing && !status; i++) status = build_together(device, &missing[i], 1, err);
    }
    for (int i = 0; i < n && !status; i++) out_built[i] = find_built(device, &kernels[i]);
    return status;
}

strata_status strata_opencl_build_text(opencl_device *device, const char *source, const char *entry, int n_kernels,
                                       cl_program *out_program, strata_error *err) {
    for (int i = 0; i < device->n_texts; i++) {
        if (strcmp(device->texts[i].source, source)) continue;
        *out_program = device->texts[i].program;
        return STRATA_OK;
    }
    opencl_text *text = strata_grow(&device->texts, device->n_texts, sizeof *text);
    STRATA_FREED char *copy = text ? strdup(source) : NULL;
    if (!copy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for a program's text", device->base.info.id);
    STRATA_TRY(build_cached(device, source, entry, &entry, 1, n_kernels, out_program, err));
    *text = (opencl_text){strata_released(&copy), *out_program};
    device->n_texts++;
    return STRATA_OK;
}
