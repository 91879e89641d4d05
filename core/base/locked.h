/* SPDX-License-Identifier: Apache-2.0
 *
 * A mutex that is locked until the end of a block, however the block ends, and waiting with it for a condition of
 * strata_clock_cond_init. */
#ifndef STRATA_BASE_LOCKED_H
#define STRATA_BASE_LOCKED_H

#include "core/base/clock.h"

static inline pthread_mutex_t *strata_locked(pthread_mutex_t *mutex) {
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void strata_unlock_at(pthread_mutex_t *const *mutex) {
    pthread_mutex_unlock(*mutex);
}

/* A declaration: the mutex is locked from here to the end of the block, of which there is one such line. */
#define STRATA_LOCKED(mutex) \
    __attribute__((cleanup(strata_unlock_at), unused)) pthread_mutex_t *const locked_until_the_end = strata_locked(mutex)

/* Waits for the condition, at most `seconds`. The caller has the mutex. Returns whether the time is over. */
static inline bool strata_wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, double seconds) {
    const struct timespec until = strata_clock_after(seconds);
    return pthread_cond_timedwait(condition, mutex, &until) != 0;
}

/* The same for the next part of the patience's time. */
static inline void strata_wait_patiently(pthread_cond_t *condition, pthread_mutex_t *mutex, const strata_patience *patience) {
    const struct timespec until = strata_patience_step(patience);
    pthread_cond_timedwait(condition, mutex, &until);
}

#endif
