/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/lock.h"

#include <limits.h>
#include <sched.h>

enum { ADOPTING = UINT_MAX };

static atomic_uint n_forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void count(void) {
    atomic_fetch_add(&n_forks, 1);
}

static void register_count(void) {
    (void)pthread_atfork(NULL, NULL, count);
}

unsigned strata_forks(void) {
    (void)pthread_once(&once, register_count);
    return atomic_load_explicit(&n_forks, memory_order_relaxed);
}

static void init_mutex(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void strata_lock_init(strata_lock *lock) {
    init_mutex(&lock->mutex);
    lock->depth = 0;
    atomic_store(&lock->forks, strata_forks());
}

void strata_lock_finish(strata_lock *lock) {
    if (strata_lock_is_own(lock)) pthread_mutex_destroy(&lock->mutex);
}

bool strata_lock_is_own(const strata_lock *lock) {
    return atomic_load_explicit(&lock->forks, memory_order_acquire) == strata_forks();
}

bool strata_lock_adopt(strata_lock *lock, void (*adopt)(void *user), void *user) {
    unsigned parent = atomic_load(&lock->forks);
    if (lock->depth) return false;
    while (parent == (unsigned)ADOPTING) { /* another thread of the child adopts it */
        sched_yield();
        parent = atomic_load(&lock->forks);
    }
    if (parent == strata_forks()) return true;
    if (!atomic_compare_exchange_strong(&lock->forks, &parent, (unsigned)ADOPTING)) return strata_lock_adopt(lock, adopt, user);
    init_mutex(&lock->mutex); /* the mutex of the parent is not destroyed, since its state is not known */
    if (adopt) adopt(user);
    atomic_store_explicit(&lock->forks, strata_forks(), memory_order_release);
    return true;
}

void strata_lock_take(strata_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
    lock->depth++;
}

void strata_lock_release(strata_lock *lock) {
    lock->depth--;
    pthread_mutex_unlock(&lock->mutex);
}
