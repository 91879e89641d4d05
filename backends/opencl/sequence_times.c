/* SPDX-License-Identifier: Apache-2.0
 *
 * When each launch of a sequence ran, for a trace. The sequence stays one kernel: its workers read the processor's time-stamp
 * counter before their first task of a launch, behind the wait for what it depends on, and after their last one. That counter
 * advances evenly, and alike on all cores. The host reads it together with its own clock before a run is queued and after
 * somebody has waited for the run; a count in between is a time in between.
 *
 * Launches overlap: a worker that finds no more tasks of one begins the next. A track of a trace cannot show that, and the sum
 * of overlapping times would exceed the step's. So the time of a launch is its share of the device: a moment in which k workers
 * compute adds 1/k of it to the launch of each of them. A launch that all workers compute, or that runs alone, takes as long as
 * by the clock; of two that run beside each other each gets its part. Moments in which no worker computes belong to none. A
 * slice begins when the launch's first worker began; where the slice before lasts longer, it begins at that one's end. */
#include <stdlib.h>

#include "backends/opencl/opencl.h"

struct opencl_counts {
    /* [n_workers][n_launches][2] Begin and end of each worker in each launch, 0 where it had no task: written by the kernel. */
    uint64_t *counts;
    cl_mem memory;
    int64_t bytes;
    int n_workers, n_launches;
    /* The rest is room for strata_opencl_counts_add. [n_workers] What the worker passes next, as a count and as its place in
     * `counts`. */
    uint64_t *next;
    int *places;
    /* [n_workers] What a worker that computes alone all the time would have done when the worker began. */
    double *marks;
    /* [n_launches] The first worker's count, the time, and the launches in the order in which they began. */
    uint64_t *begins;
    double *shares;
    int *order;
};

bool strata_opencl_has_counter(void) {
#if defined(__x86_64__)
    return true;
#else
    return false;
#endif
}

uint64_t strata_opencl_read_counter(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

strata_status strata_opencl_counts_create(opencl_device *device, uint32_t n_workers, int n_launches, opencl_counts **out_counts,
                                          strata_error *err) {
    const size_t w = n_workers, n = (size_t)n_launches;
    const size_t room = sizeof(opencl_counts) + w * (sizeof(uint64_t) + sizeof(double) + sizeof(int)) +
                        n * (sizeof(uint64_t) + sizeof(double) + sizeof(int));
    opencl_counts *counts = calloc(1, room);
    if (!counts)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for the times of %d launches", device->base.info.id,
                           n_launches);
    counts->n_workers = (int)n_workers;
    counts->n_launches = n_launches;
    counts->bytes = (int64_t)(2 * sizeof(uint64_t) * w * n);
    counts->next = (uint64_t *)(counts + 1);
    counts->begins = counts->next + w;
    counts->marks = (double *)(counts->begins + n);
    counts->shares = counts->marks + w;
    counts->places = (int *)(counts->shares + n);
    counts->order = counts->places + w;
    void *host = NULL;
    const strata_status status = strata_opencl_allocate_shared(device, counts->bytes, &host, &counts->memory, err);
    counts->counts = host;
    if (status)
        free(counts);
    else
        *out_counts = counts;
    return status;
}

void strata_opencl_counts_destroy(opencl_device *device, opencl_counts *counts) {
    if (!counts) return;
    strata_opencl_release(device, counts->memory, counts->bytes);
    free(counts->counts);
    free(counts);
}

cl_mem strata_opencl_counts_memory(const opencl_counts *counts) {
    return counts->memory;
}

/* Moves the worker on to what it passes next, from its place on: the begin or the end of a launch that it had tasks of. */
static void pass(opencl_counts *c, int worker) {
    const int row = 2 * c->n_launches * worker, end = row + 2 * c->n_launches;
    int place = c->places[worker];
    while (place < end && !c->counts[place]) place++;
    c->places[worker] = place;
    c->next[worker] = place < end ? c->counts[place] : UINT64_MAX;
}

/* Fills begins, shares and order; returns how many launches ran. */
static int share(opencl_counts *c) {
    int n_busy = 0, n = 0;
    uint64_t now = 0;
    double done = 0; /* by a worker that computes, so far */
    for (int l = 0; l < c->n_launches; l++) c->begins[l] = 0, c->shares[l] = 0;
    for (int w = 0; w < c->n_workers; w++) {
        c->places[w] = 2 * c->n_launches * w;
        pass(c, w);
    }
    for (;;) {
        int first = 0;
        for (int w = 1; w < c->n_workers; w++)
            if (c->next[w] < c->next[first]) first = w;
        const uint64_t at = c->next[first];
        if (at == UINT64_MAX) return n;
        if (n_busy && at > now) done += (double)(at - now) / n_busy;
        if (at > now) now = at;
        const int place = c->places[first]++, launch = place / 2 % c->n_launches;
        if (place % 2) {
            n_busy--;
            c->shares[launch] += done - c->marks[first];
        } else {
            n_busy++;
            c->marks[first] = done;
            if (!c->begins[launch]) {
                c->begins[launch] = now;
                c->order[n++] = launch;
            }
        }
        pass(c, first);
    }
}

void strata_opencl_counts_add(opencl_counts *c, strata_trace *trace, int track, const strata_trace_label *const *labels,
                              int64_t step, opencl_moment queued, opencl_moment over) {
    const double seconds_a_count = (over.seconds - queued.seconds) / (double)(over.count - queued.count);
    const double last = (double)(over.count - queued.count);
    double at = 0; /* counts since the run was queued, as all from here on */
    if (over.count <= queued.count) return;
    const int n = share(c);
    for (int i = 0; i < n; i++) {
        const int l = c->order[i];
        const double began = c->begins[l] > queued.count ? (double)(c->begins[l] - queued.count) : 0;
        if (began > at) at = began;
        if (at > last) at = last;
        const double ended = at + c->shares[l] < last ? at + c->shares[l] : last;
        strata_trace_add(trace, track, labels[l], step, queued.seconds + at * seconds_a_count,
                         queued.seconds + ended * seconds_a_count);
        at = ended;
    }
}
