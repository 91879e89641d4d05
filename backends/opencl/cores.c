/* SPDX-License-Identifier: Apache-2.0
 *
 * The halves of a CPU as cores of one system: collectives inside of programs. The kernels of both halves run in one process and
 * share its memory. In a collective each half publishes the addresses of its operand and its result, waits for the other half,
 * computes its share, and waits again (shaders/cpu/cores.h, which has the layout of the memory). So a step is one call of the
 * driver for each half, and no other thread takes part.
 *
 * A program that waits occupies the threads of its half, so all halves must be able to run at the same time. This is so for
 * PoCL's driver with threads, where each half has threads of its own. Two connected pairs of halves of one CPU could wait for
 * each other crosswise, as they would share these threads. So a CPU's halves are connected only once in a process; for all
 * others the host performs the exchanges, with the same bits. The group submits the programs of all cores without those of
 * another thread in between (core/run/group.c). */
#include <stdio.h>

#include "backends/opencl/opencl.h"

/* Words of 32 bits (shaders/cpu/cores.h). */
enum { LINE = 16, LOST = 1, ALONE = LINE, SPENT = LINE + 2, LINES_OF_CORE = 3, CORES = 2, COUNT_UNIT = 16, TIMED = 17 };

struct opencl_meeting {
    /* Aligned to a page. */
    uint32_t *words;
    /* The CPU whose halves meet. */
    cl_device_id whole;
    int n_devices;
    /* When the devices were connected, and the time in collectives of core 0 that `spent` has returned. */
    opencl_moment connected;
    uint32_t returned;
    strata_device_collectives collectives;
    opencl_meeting *next;
};

/* The meetings of this process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static opencl_meeting *meetings;

static uint32_t *line_of(const opencl_device *device) {
    return device->meeting->words + (size_t)(1 + LINES_OF_CORE * device->topology.core) * LINE;
}

const strata_topology *strata_opencl_topology(strata_device *base) {
    const opencl_device *device = (const opencl_device *)base;
    return device->is_sub_device ? &device->topology : NULL;
}

const strata_device_collectives *strata_opencl_collectives(strata_device *base) {
    const opencl_device *device = (const opencl_device *)base;
    return device->meeting ? &device->meeting->collectives : NULL;
}

static uint64_t reached(strata_device *base) {
    return __atomic_load_n(line_of((opencl_device *)base), __ATOMIC_RELAXED) / 2;
}

/* Kernels count in 32 bits, so a call that comes after more than some ten seconds of collectives returns too little. */
static double take_seconds(strata_device *base) {
    opencl_device *device = (opencl_device *)base;
    opencl_meeting *meeting = device->meeting;
    const uint64_t counts = strata_opencl_read_counter() - meeting->connected.count;
    const uint32_t spent = __atomic_load_n(&line_of(device)[SPENT], __ATOMIC_RELAXED);
    const uint32_t more = spent - meeting->returned;
    meeting->returned = spent;
    return counts ? (double)more * COUNT_UNIT * TIMED * (strata_trace_now() - meeting->connected.seconds) / (double)counts : 0;
}

static void join(opencl_device *device, opencl_meeting *meeting) {
    device->meeting = meeting;
    device->limits.meeting = (uintptr_t)meeting->words;
    device->limits.core = (uint32_t)device->topology.core;
}

static bool can_meet(strata_device *const *devices, int n) {
    const opencl_device *first = (const opencl_device *)devices[0];
    if (n != CORES) return false;
    for (int i = 0; i < n; i++) {
        const opencl_device *device = (const opencl_device *)devices[i];
        if (!device->may_meet || device->meeting || device->whole != first->whole || device->topology.core != i) return false;
    }
    return true;
}

/* Adds a meeting to the list of this process, unless the CPU has one. */
static bool enter_list(opencl_meeting *meeting) {
    bool is_free = true;
    pthread_mutex_lock(&lock);
    for (const opencl_meeting *m = meetings; m; m = m->next) is_free = is_free && m->whole != meeting->whole;
    if (is_free) {
        meeting->next = meetings;
        meetings = meeting;
    }
    pthread_mutex_unlock(&lock);
    return is_free;
}

strata_status strata_opencl_connect(strata_device *const *devices, int n, strata_error *err) {
    const size_t bytes = (size_t)(1 + LINES_OF_CORE * n) * LINE * sizeof(uint32_t);
    if (!can_meet(devices, n)) return STRATA_OK;
    STRATA_FREED opencl_meeting *meeting = calloc(1, sizeof *meeting);
    STRATA_FREED void *words = NULL;
    if (!meeting || posix_memalign(&words, OPENCL_PAGE, bytes))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for collectives", devices[0]->info.id);
    memset(words, 0, bytes);
    *meeting = (opencl_meeting){
        .words = words,
        .whole = ((const opencl_device *)devices[0])->whole,
        .n_devices = n,
        .connected = {strata_opencl_read_counter(), strata_trace_now()},
        .collectives = {.sum_dtypes = 1u << STRATA_DTYPE_F32, .reached = reached, .take_seconds = take_seconds}};
    meeting->words[0] = (uint32_t)n;
    if (!enter_list(meeting)) return STRATA_OK;
    for (int i = 0; i < n; i++) join((opencl_device *)devices[i], meeting);
    words = meeting = NULL; /* they live as long as the devices are connected */
    return STRATA_OK;
}

void strata_opencl_disconnect(opencl_device *device) {
    opencl_meeting *meeting = device->meeting;
    device->meeting = NULL;
    if (!meeting) return;
    pthread_mutex_lock(&lock);
    const bool is_last = --meeting->n_devices == 0;
    for (opencl_meeting **m = &meetings; *m && is_last; m = &(*m)->next)
        if (*m == meeting) {
            *m = meeting->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (is_last) free(meeting->words);
    if (is_last) free(meeting);
}

bool strata_opencl_lost_core(const opencl_device *device) {
    return device->meeting && __atomic_load_n(&device->meeting->words[LOST], __ATOMIC_RELAXED);
}

void strata_opencl_lose_core(const opencl_device *device) {
    if (device->meeting) __atomic_store_n(&device->meeting->words[LOST], 1, __ATOMIC_RELAXED);
}

void strata_opencl_abandon(strata_device *base, const strata_error *why) {
    (void)why;
    strata_opencl_lose_core((const opencl_device *)base);
}

void strata_opencl_run_alone(opencl_device *device, bool alone) {
    if (!device->meeting) return;
    STRATA_DRIVER_RUNS(&device->base, WAIT, 1 + strata_opencl_runs_before(device, device->last_ticket));
    device->cl.Finish(device->queue);
    __atomic_store_n(&line_of(device)[ALONE], alone, __ATOMIC_RELAXED);
}
