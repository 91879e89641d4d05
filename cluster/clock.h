/* SPDX-License-Identifier: Apache-2.0
 *
 * The monotonic clock, in seconds. Deadlines and heartbeats use it, because the time of day may be set back. */
#ifndef STRATA_CLUSTER_CLOCK_H
#define STRATA_CLUSTER_CLOCK_H

#include <time.h>

static inline double strata_clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The same clock, but up to some milliseconds old. It is cheaper to read, for functions that run for each message. */
static inline double strata_clock_coarse_seconds(void) {
#ifdef CLOCK_MONOTONIC_COARSE
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#else
    return strata_clock_seconds();
#endif
}

/* The time `seconds` from now, in the form that pthread_cond_timedwait needs. */
static inline struct timespec strata_clock_after(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    if (seconds > 1e8) seconds = 1e8;
    at.tv_sec += (time_t)seconds;
    at.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

#endif
