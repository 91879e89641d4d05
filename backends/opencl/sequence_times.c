/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures when each launch of a sequence ran, for a trace. The sequence remains one kernel. Its workers read the
 * processor's time-stamp counter before their first task of a launch (after waiting for its dependencies) and after
 * their last one. This counter advances at a constant rate, the same on all cores. The host reads it together with its
 * own clock before a run is queued and after the run has been waited for, and converts counts to times by linear
 * interpolation.
 *
 * Launches overlap: when a launch has no more tasks, a worker begins the next one. A track of a trace cannot show
 * overlapping slices, and the sum of overlapping times would exceed the time of the step. So the time of a launch is
 * defined as its share of the device: while k workers compute, each of them adds 1/k of that time to the launch for
 * which it computes. If only one launch runs, this is the elapsed time; if two launches run at once, each gets its
 * part. Time in which no worker computes belongs to no launch. A slice begins when the first worker began the launch;
 * if the slice before it ends later, it begins at that end. */
#include "backends/opencl/opencl.h"

struct opencl_counts {
    /* [runs][n_workers][n_launches][2] Written by the kernel: the counts at which each worker began and ended each
     * launch; 0 if it had no task. */
    uint64_t *counts;
    cl_mem memory;
    int64_t bytes;
    int n_workers, n_launches;
    /* The counts of one run. From here on, the members are working memory of strata_opencl_counts_add. */
    const uint64_t *of_run;
    /* [n_workers] The worker's next begin or end, as a count and as its position in `of_run`. */
    uint64_t *next;
    int *places;
    /* [n_workers] The value of `done` (see compute_shares) when the worker began its launch. */
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
    counts->bytes = (int64_t)(2 * sizeof(uint64_t) * w * n * OPENCL_RUNS_IN_A_CALL);
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

/* Advances the worker to its next begin or end of a launch in which it had tasks. */
static void advance(opencl_counts *c, int worker) {
    const int row = 2 * c->n_launches * worker, end = row + 2 * c->n_launches;
    int place = c->places[worker];
    while (place < end && !c->of_run[place]) place++;
    c->places[worker] = place;
    c->next[worker] = place < end ? c->of_run[place] : UINT64_MAX;
}

/* Fills begins, shares and order; returns how many launches ran. */
static int compute_shares(opencl_counts *c) {
    int n_busy = 0, n = 0;
    uint64_t now = 0;
    double done = 0; /* the time that a worker which always computes would have been credited so far */
    for (int l = 0; l < c->n_launches; l++) c->begins[l] = 0, c->shares[l] = 0;
    for (int w = 0; w < c->n_workers; w++) {
        c->places[w] = 2 * c->n_launches * w;
        advance(c, w);
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
        advance(c, first);
    }
}

void strata_opencl_counts_add(opencl_counts *c, int run, strata_trace *trace, int track,
                              const strata_trace_label *const *labels, int64_t step, opencl_moment queued, opencl_moment over) {
    if (over.count <= queued.count) return; /* the two reads were on cores whose counters differ */
    const double last = (double)(over.count - queued.count), seconds_a_count = (over.seconds - queued.seconds) / last;
    /* In counts since the run was queued, like the following variables. */
    double at = 0;
    c->of_run = c->counts + (size_t)run * 2 * (size_t)c->n_workers * (size_t)c->n_launches;
    const int n = compute_shares(c);
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
