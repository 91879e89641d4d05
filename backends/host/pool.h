/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads that share a node's work on the host backend. There is one for each core, and the caller is one of them. */
#ifndef STRATA_BACKENDS_HOST_POOL_H
#define STRATA_BACKENDS_HOST_POOL_H

typedef struct host_pool host_pool;

/* Computes part 0 .. n_parts - 1 of the work, in thread 0 .. n_threads - 1. */
typedef void host_pool_work(void *user, int thread, int part, int n_parts);

/* Cores that this process may use, at most 64. */
int strata_host_cores(void);
/* Creates n_threads - 1 threads, which work together with the caller. NULL: there is no memory, or no thread could be
 * created. */
host_pool *strata_host_pool_create(int n_threads);
void strata_host_pool_destroy(host_pool *pool);
/* Calls `work` for each part, in whichever thread is free, and returns when all are finished. While the pool works for
 * another caller, the caller computes all parts itself, as thread 0. */
void strata_host_pool_run(host_pool *pool, host_pool_work *work, void *user);

#endif
