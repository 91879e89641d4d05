/* SPDX-License-Identifier: Apache-2.0
 *
 * Work is divided into more parts than there are threads, and each thread takes the next part when it is free, so that a thread
 * that is delayed by other programs does not delay the others. Threads wait for work by polling a counter: the nodes of a step
 * follow each other within microseconds, and waking a sleeping thread takes longer than most nodes. A thread without work polls
 * for SPIN_SECONDS, yielding its core in between, and then sleeps. */
#define _GNU_SOURCE
#include "backends/host/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_THREADS = 64, PARTS_A_THREAD = 4 };
/* The number of polls between two yields. It is small, since two threads of a run may share a core while other programs
 * run. */
enum { POLLS = 64 };
#define SPIN_SECONDS 5e-4

typedef struct pool_thread {
    host_pool *pool;
    pthread_t id;
    int index;
} pool_thread;

struct host_pool {
    int n_threads, n_parts;
    pool_thread threads[MOST_THREADS];
    /* The part that is taken next. From n_parts on, all parts have been taken. */
    _Alignas(64) atomic_int next;
    /* Parts that are not finished. */
    _Alignas(64) atomic_int left;
    atomic_int sleeping;
    atomic_bool closed;
    host_pool_work *work;
    void *user;
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    /* The thread whose work the pool computes has it. */
    pthread_mutex_t in_use;
};

int strata_host_cores(void) {
    cpu_set_t cores;
    int n = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
    return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool is_idle(host_pool *pool) {
    return atomic_load(&pool->next) >= pool->n_parts && !atomic_load(&pool->closed);
}

/* Returns when there are parts to take, or when the pool is closed. */
static void await_work(host_pool *pool) {
    const double began = seconds();
    do {
        for (int i = 0; i < POLLS; i++, pause_briefly())
            if (!is_idle(pool)) return;
        sched_yield();
    } while (seconds() - began < SPIN_SECONDS);
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleeping, 1);
    while (is_idle(pool)) pthread_cond_wait(&pool->woken, &pool->mutex);
    atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void wake(host_pool *pool) {
    if (atomic_load(&pool->sleeping) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->woken);
    pthread_mutex_unlock(&pool->mutex);
}

/* Takes and computes parts until there are none. A thread that was delayed since an earlier run takes a part of the present
 * run. It reads the run's work after taking the part, which is safe, because the run does not end before this part is
 * finished. */
static void work_on(host_pool *pool, int thread) {
    while (atomic_load(&pool->next) < pool->n_parts) {
        const int part = atomic_fetch_add(&pool->next, 1);
        if (part >= pool->n_parts) return;
        pool->work(pool->user, thread, part, pool->n_parts);
        atomic_fetch_sub(&pool->left, 1);
    }
}

static void *thread_main(void *user) {
    pool_thread *self = user;
    while (!atomic_load(&self->pool->closed)) {
        await_work(self->pool);
        work_on(self->pool, self->index);
    }
    return NULL;
}

host_pool *strata_host_pool_create(int n_threads) {
    host_pool *pool = aligned_alloc(64, (sizeof(host_pool) + 63) / 64 * 64);
    if (!pool) return NULL;
    if (n_threads > MOST_THREADS) n_threads = MOST_THREADS;
    *pool = (host_pool){.n_threads = 1, .n_parts = PARTS_A_THREAD * n_threads};
    atomic_store(&pool->next, pool->n_parts);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->woken, NULL);
    pthread_mutex_init(&pool->in_use, NULL);
    while (pool->n_threads < n_threads) {
        pool_thread *thread = &pool->threads[pool->n_threads];
        *thread = (pool_thread){.pool = pool, .index = pool->n_threads};
        if (pthread_create(&thread->id, NULL, thread_main, thread)) break;
        pool->n_threads++;
    }
    if (pool->n_threads > 1) return pool;
    strata_host_pool_destroy(pool);
    return NULL;
}

void strata_host_pool_destroy(host_pool *pool) {
    if (!pool) return;
    atomic_store(&pool->closed, true);
    wake(pool);
    for (int i = 1; i < pool->n_threads; i++) pthread_join(pool->threads[i].id, NULL);
    pthread_mutex_destroy(&pool->in_use);
    pthread_cond_destroy(&pool->woken);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

void strata_host_pool_run(host_pool *pool, host_pool_work *work, void *user) {
    if (pthread_mutex_trylock(&pool->in_use)) { /* another thread's work occupies the cores */
        for (int part = 0; part < pool->n_parts; part++) work(user, 0, part, pool->n_parts);
        return;
    }
    pool->work = work;
    pool->user = user;
    atomic_store(&pool->left, pool->n_parts);
    atomic_store(&pool->next, 0);
    wake(pool);
    work_on(pool, 0);
    for (int i = 0; atomic_load(&pool->left) > 0; i++, pause_briefly())
        if (i == POLLS) sched_yield(), i = 0;
    pthread_mutex_unlock(&pool->in_use);
}
