/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks that know when the process was forked. A child of fork has only the thread that called fork, so a lock that another
 * thread had taken is never released there, and a driver's threads are missing. Taking such a lock fails instead of waiting
 * for ever. A thread may take a lock several times and releases it as often. */
#ifndef STRATA_CORE_LOCK_H
#define STRATA_CORE_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* How many forks lie between the process in which the library was loaded and this one. */
unsigned strata_forks(void);

typedef struct strata_lock {
    pthread_mutex_t mutex;
    /* strata_forks() of the process that may take the lock. */
    atomic_uint forks;
    /* How often it is taken. */
    int depth;
} strata_lock;

void strata_lock_init(strata_lock *lock);
void strata_lock_finish(strata_lock *lock);
/* Whether the lock was made, or adopted, by this process and not by one that was forked. */
bool strata_lock_is_own(const strata_lock *lock);
/* Makes the lock one of this process, a child of fork, after it has called adopt(user) (NULL: nothing). Returns false if a
 * thread of the parent had taken it at the fork. */
bool strata_lock_adopt(strata_lock *lock, void (*adopt)(void *user), void *user);
/* The lock must be this process' own. */
void strata_lock_take(strata_lock *lock);
void strata_lock_release(strata_lock *lock);

#endif
