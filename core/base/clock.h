/* SPDX-License-Identifier: Apache-2.0
 *
 * The monotonic clock, in seconds. Deadlines and heartbeats use it, because the time of day may be set back or forward. All
 * conditions on which a thread waits with a deadline are made by strata_clock_cond_init. */
#ifndef STRATA_BASE_CLOCK_H
#define STRATA_BASE_CLOCK_H

#include <pthread.h>
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

/* Makes a condition whose pthread_cond_timedwait takes times of this clock, as strata_clock_after returns them. */
static inline void strata_clock_cond_init(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
