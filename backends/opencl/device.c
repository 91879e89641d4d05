/* SPDX-License-Identifier: Apache-2.0
 *
 * An opened OpenCL device: one context, one in-order queue, tickets and waiting. Its memory is in memory.c, its programs in
 * program.c. */
#include <stdio.h>
#include <time.h>

#include "backends/opencl/opencl.h"

enum {
    /* If the driver's wait would keep a core busy, the host sleeps this long first. */
    FIRST_NAP_NS = 20 * 1000,
    /* Each further sleep is twice as long, up to this. */
    LONGEST_NAP_NS = 500 * 1000,
    /* The longest time to wait until PoCL's threads release the queue (wait_for_workers). */
    WORKERS_LET_GO_NS = 1000 * 1000 * 1000,
    /* The default of strata_device_options.stall_seconds. */
    STALL_SECONDS = 600
};

/* ---- errors ---- */
static strata_status status_of(cl_int code) {
    switch (code) {
        case CL_MEM_OBJECT_ALLOCATION_FAILURE:
        case CL_OUT_OF_HOST_MEMORY:
            return STRATA_OUT_OF_MEMORY;
        case CL_OUT_OF_RESOURCES:
        case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST:
        case CL_DEVICE_NOT_AVAILABLE:
        case CL_INVALID_COMMAND_QUEUE:
        case CL_INVALID_CONTEXT:
            return STRATA_DEVICE_LOST;
        default:
            return STRATA_INTERNAL;
    }
}

static void lose(opencl_device *device, strata_status status) {
    device->lost = status;
    strata_opencl_lose_core(device);
}

strata_status strata_opencl_fail(opencl_device *device, cl_int code, const char *what, strata_error *err) {
    strata_status status = status_of(code);
    if (status == STRATA_DEVICE_LOST) lose(device, status);
    return strata_fail(err, status, "%s: %s failed: %s (%d)%s", device->base.info.id, what, strata_opencl_error_name(code),
                       (int)code, status == STRATA_DEVICE_LOST ? "; the driver gave up, start again" : "");
}

strata_status strata_opencl_check_alive(const opencl_device *device, strata_error *err) {
    if (!device->lost) return STRATA_OK;
    return strata_fail(err, device->lost, "%s: the device was lost earlier; start again", device->base.info.id);
}

/* ---- tickets ---- */
uint64_t strata_opencl_ticket(opencl_device *device, cl_event event) {
    uint64_t ticket = ++device->last_ticket;
    cl_event *place = &device->events[ticket % OPENCL_TICKETS];
    if (*place) device->cl.ReleaseEvent(*place);
    *place = event;
    return ticket;
}

/* Returns CL_COMPLETE, a positive number while the command runs, or a negative one if it has failed. */
static cl_int event_state(const opencl_device *device, cl_event event) {
    cl_int state = CL_COMPLETE;
    cl_int code = device->cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    return code == CL_SUCCESS ? state : code;
}

/* Returns the state, which is positive if the command still runs after `seconds`. */
static cl_int nap_until_done(const opencl_device *device, cl_event event, double seconds) {
    struct timespec nap = {.tv_nsec = FIRST_NAP_NS};
    for (double napped = 0;; napped += (double)nap.tv_nsec * 1e-9) {
        cl_int state = event_state(device, event);
        if (state <= CL_COMPLETE || napped > seconds) return state;
        nanosleep(&nap, NULL);
        nap.tv_nsec = nap.tv_nsec * 2 > LONGEST_NAP_NS ? LONGEST_NAP_NS : nap.tv_nsec * 2;
    }
}

int strata_opencl_runs_before(const opencl_device *device, uint64_t ticket) {
    const uint64_t n = ticket > device->done_ticket ? ticket - device->done_ticket : 1;
    return (int)(n < OPENCL_TICKETS ? n : OPENCL_TICKETS) * (device->longest_call > 1 ? device->longest_call : 1);
}

/* Waits for the command. Returns its state, which is positive if it still runs: only a wait by naps has a limit. */
static cl_int wait_event(opencl_device *device, cl_event *event, uint64_t ticket) {
    const int runs = strata_opencl_runs_before(device, ticket);
    STRATA_DRIVER_RUNS(&device->base, WAIT, runs);
    return device->waits_spin ? nap_until_done(device, *event, device->base.stall_seconds * runs)
                              : device->cl.WaitForEvents(1, event);
}

static strata_status fail_stalled(opencl_device *device, double seconds, strata_error *err) {
    lose(device, STRATA_TIMEOUT);
    strata_fail(&device->base.given_up, STRATA_TIMEOUT,
                "%s: a run has not ended for %g s (stall_seconds): the device hangs, or a step takes longer. Allow more time: "
                "--stall-seconds, strata_device_options.stall_seconds",
                device->base.info.id, seconds);
    return strata_fail(err, STRATA_TIMEOUT, "%s", device->base.given_up.message);
}

static strata_status wait_ticket(strata_device *base, uint64_t ticket, strata_error *err) {
    opencl_device *device = (opencl_device *)base;
    STRATA_TRY(strata_opencl_check_alive(device, err));
    if (ticket > device->last_ticket)
        return strata_fail(err, STRATA_INVALID, "%s: ticket %llu has not been given; the last is %llu", base->info.id,
                           (unsigned long long)ticket, (unsigned long long)device->last_ticket);
    if (ticket + OPENCL_TICKETS <= device->last_ticket) ticket = device->last_ticket - OPENCL_TICKETS + 1;
    cl_event *event = &device->events[ticket % OPENCL_TICKETS];
    if (!*event) return STRATA_OK;

    cl_int code = event_state(device, *event);
    if (code > CL_COMPLETE) {
        base->counters.waits++;
        code = wait_event(device, event, ticket);
        if (code > CL_COMPLETE)
            return fail_stalled(device, base->stall_seconds * strata_opencl_runs_before(device, ticket), err);
    }
    device->cl.ReleaseEvent(*event);
    *event = NULL;
    device->done_ticket = ticket;
    if (device->timed) strata_opencl_time_collect(device, ticket);
    if (code == CL_COMPLETE && !strata_opencl_lost_core(device)) return STRATA_OK;
    lose(device, STRATA_DEVICE_LOST);
    if (code == CL_COMPLETE)
        return strata_fail(err, STRATA_DEVICE_LOST,
                           "%s: a core of its system was lost, whose values its run needs; start again", base->info.id);
    return strata_fail(err, STRATA_DEVICE_LOST, "%s: a run failed on the device: %s (%d); start again", base->info.id,
                       strata_opencl_error_name(code), (int)code);
}

/* ---- open, close ---- */
/* Returns when no other reference to the queue exists, or after a second. PoCL (3.1) releases events some time after clFinish
 * has returned. An event has a reference to its queue, but a queue has none to its sub-device, so a sub-device that is released
 * before would be used after it is freed. */
static void wait_for_workers(const opencl_device *device) {
    const struct timespec nap = {.tv_nsec = FIRST_NAP_NS};
    for (int64_t slept = 0; slept < WORKERS_LET_GO_NS; slept += FIRST_NAP_NS) {
        cl_uint holders = 1;
        cl_int code = device->cl.GetCommandQueueInfo(device->queue, CL_QUEUE_REFERENCE_COUNT, sizeof holders, &holders, NULL);
        if (code != CL_SUCCESS || holders <= 1) return;
        nanosleep(&nap, NULL);
    }
}

static void close_device(strata_device *base) {
    opencl_device *device = (opencl_device *)base;
    strata_tuner_destroy(device->tuner);
    strata_checks_destroy(device->limits.checks);
    if (base->given_up.status) return; /* a thread still runs in the driver: a leak is less harmful than freeing what it uses */
    if (base->trace) {
        const strata_status ended = strata_opencl_set_trace(base, NULL, 0, NULL);
        (void)ended;
    }
    if (device->queue) {
        device->cl.Finish(device->queue);
        for (int i = 0; i < OPENCL_TICKETS; i++)
            if (device->events[i]) device->cl.ReleaseEvent(device->events[i]);
        if (device->is_sub_device) wait_for_workers(device);
        device->cl.ReleaseCommandQueue(device->queue);
    }
    strata_opencl_disconnect(device);
    strata_opencl_clblast_close(device);
    for (int i = 0; i < device->n_built; i++) device->cl.ReleaseProgram(device->built[i].program);
    free(device->built);
    for (int i = 0; i < device->n_texts; i++) {
        device->cl.ReleaseProgram(device->texts[i].program);
        free(device->texts[i].source);
    }
    free(device->texts);
    if (device->context) device->cl.ReleaseContext(device->context);
    if (device->is_sub_device) device->cl.ReleaseDevice(device->id);
    strata_opencl_unload(&device->cl);
    free(device);
}

static strata_support supports(strata_device *base, const strata_tensor *node, const char **reason) {
    return strata_kernel_supports(&((opencl_device *)base)->limits, node, reason);
}

static const strata_device_api api = {
    .close = close_device,
    .buffer_create = strata_opencl_buffer_create,
    .buffer_destroy = strata_opencl_buffer_destroy,
    .upload = strata_opencl_upload,
    .download = strata_opencl_download,
    .supports = supports,
    .compile = strata_opencl_compile,
    .program_destroy = strata_opencl_program_destroy,
    .program_input = strata_opencl_program_input,
    .program_output = strata_opencl_program_output,
    .run = strata_opencl_run,
    .most_runs = strata_opencl_most_runs,
    .run_many = strata_opencl_run_many,
    .wait = wait_ticket,
    .check = strata_opencl_check,
    .set_trace = strata_opencl_set_trace,
    .topology = strata_opencl_topology,
    .collectives = strata_opencl_collectives,
    .connect = strata_opencl_connect,
    .abandon = strata_opencl_abandon,
};

static void fill_limits(opencl_device *device, const strata_device_options *opts) {
    const strata_device_info *info = &device->base.info;
    size_t sizes[8] = {1, 1, 1};
    if (device->cl.GetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL) != CL_SUCCESS)
        sizes[0] = sizes[1] = 1;
    device->limits = (strata_kernel_limits){
        .device_class = info->device_class,
        .opencl_c = true,
        .fast = opts->fast,
        .direct = opts->direct,
        .dtypes = info->dtypes,
        .max_workgroup = info->max_workgroup > 0 ? info->max_workgroup : 1,
        .max_local = {(uint32_t)sizes[0], (uint32_t)sizes[1]},
        .max_groups = {UINT32_MAX, UINT32_MAX},
        .local_bytes = info->local_bytes,
        .cache_bytes = info->local_bytes,
        .compute_units = info->compute_units > 0 ? info->compute_units : 1,
        .vector_width = info->vector_width,
        .max_range_bytes = info->max_range_bytes,
    };
}

/* Whether kernels read and write the host's memory of a CL_MEM_USE_HOST_PTR buffer directly. A driver may use a copy instead,
 * as Oclgrind does; kernels then do not see what the host writes after the buffer was created. */
static bool shares_host_memory(opencl_device *device) {
    void *host = NULL;
    if (posix_memalign(&host, OPENCL_PAGE, OPENCL_PAGE)) return false;
    memset(host, 0, OPENCL_PAGE);
    bool shares = false;
    cl_int code;
    cl_mem memory = device->cl.CreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, OPENCL_PAGE, host, &code);
    if (code == CL_SUCCESS) {
        const cl_uint there = 0x5eed;
        cl_uint back = 0, here = 0xca11;
        memcpy(host, &here, sizeof here);
        code = device->cl.EnqueueReadBuffer(device->queue, memory, CL_TRUE, 0, sizeof back, &back, 0, NULL, NULL);
        if (code == CL_SUCCESS)
            code = device->cl.EnqueueWriteBuffer(device->queue, memory, CL_TRUE, 4, sizeof there, &there, 0, NULL, NULL);
        device->cl.Finish(device->queue); /* a blocking write may return as soon as its source has been copied */
        memcpy(&here, (char *)host + 4, sizeof here);
        shares = code == CL_SUCCESS && back == 0xca11 && here == there;
        device->cl.ReleaseMemObject(memory);
    }
    free(host);
    return shares;
}

/* Bytes of a core's second-level cache. Intel's runtime reports it as the global memory cache. PoCL reports the third level as
 * that, and the size of the second level as the size of local memory. */
static uint64_t global_cache(const opencl_device *device) {
    cl_ulong bytes = 0;
    cl_int code = device->cl.GetDeviceInfo(device->id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof bytes, &bytes, NULL);
    return code == CL_SUCCESS && bytes > 0 ? bytes : device->base.info.local_bytes;
}

static bool contains(const char *text, const char *part) {
    return strstr(text, part) != NULL;
}

/* The names of PoCL's devices begin with the name of the driver. The drivers without threads compute a kernel in the call that
 * submits it. The drivers with threads have one for each core, and give halves of a CPU those of their cores. */
static bool begins(const char *name, const char *driver) {
    return !strncmp(name, driver, strlen(driver));
}

static bool runs_without_threads(const char *name) {
    return begins(name, "basic-") || begins(name, "cpu-minimal-");
}

static bool has_threads(const char *name) {
    return begins(name, "pthread-") || (begins(name, "cpu-") && !begins(name, "cpu-minimal-") && !begins(name, "cpu-tbb-"));
}

static void close_at(opencl_device **device) {
    if (*device) close_device(&(*device)->base);
}

strata_status strata_opencl_open(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                                 strata_error *err) {
    STRATA_FINISHED_BY(close_at) opencl_device *device = NULL;
    STRATA_TRY(STRATA_NEW(device, 1, err, "%s: no host memory to open it", info->id));
    device->base.api = &api;
    opencl_found found;
    cl_int code;
    device->base.stall_seconds = opts->stall_seconds > 0 ? opts->stall_seconds : STALL_SECONDS;
    STRATA_TRY(strata_opencl_load(&device->cl, err));
    STRATA_TRY(strata_opencl_find(&device->cl, info->id, &found, err));
    device->base.info = found.info;
    device->id = found.device;
    device->is_sub_device = found.is_sub_device;
    device->whole = found.whole;
    device->topology = (strata_topology){.n_cores = 2, .core = found.half};
    snprintf(device->topology.system, sizeof device->topology.system, "%.*s", (int)strcspn(info->id, "."), info->id);

    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)found.platform, 0};
    device->context = device->cl.CreateContext(properties, 1, &device->id, NULL, NULL, &code);
    if (code == CL_SUCCESS) device->queue = device->cl.CreateCommandQueue(device->context, device->id, 0, &code);
    if (code != CL_SUCCESS)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s: the driver (%s) does not open it: %s (%d)", info->id,
                           found.info.driver, strata_opencl_error_name(code), (int)code);
    fill_limits(device, opts);
    device->host_memory = OPENCL_HOST_STAGED;
    if (found.info.unified_memory) device->host_memory = OPENCL_HOST_MAPPED;
    if (found.info.unified_memory && found.info.device_class == STRATA_DEVICE_CPU && shares_host_memory(device))
        device->host_memory = OPENCL_HOST_SHARED;
    device->base.reads_outputs = device->host_memory == OPENCL_HOST_SHARED;

    const bool cpu = found.info.device_class == STRATA_DEVICE_CPU, nvidia = contains(found.info.vendor, "NVIDIA"),
               pocl = contains(found.info.driver, "Portable Computing Language"),
               intel = contains(found.info.driver, "Intel(R) OpenCL");
    if (!cpu && contains(found.info.vendor, "Intel")) device->limits.item_registers = STRATA_INTEL_ITEM_REGISTERS;
    if (cpu && intel) device->limits.cache_bytes = global_cache(device);
    device->makes_sequences = cpu && (pocl || intel) && device->host_memory == OPENCL_HOST_SHARED;
    device->limits.cheap_groups = device->makes_sequences;
    device->base.runs_at_once = pocl && runs_without_threads(found.info.name);
    device->may_meet = device->is_sub_device && device->makes_sequences && pocl && has_threads(found.info.name);
    device->waits_spin = nvidia;
    device->is_oclgrind = contains(found.info.driver, "Oclgrind");
    device->driver_caches = nvidia || pocl;
    strata_cache_open(&device->cache, opts, &device->base.info);
    if (opts->fast && found.info.device_class != STRATA_DEVICE_CPU) strata_opencl_clblast_open(device);
    device->tuner = strata_tuner_create(&device->base, &device->limits, &device->cache, opts);
    device->limits.checks = strata_checks_create(&device->base, &device->cache, opts);
    *out_device = strata_released(&device); /* its first member is the base */
    return STRATA_OK;
}
