/* SPDX-License-Identifier: Apache-2.0
 *
 * The first packet of both sides of a connection between tasks: a greeting. */
#ifndef STRATA_CLUSTER_RPC_HELLO_H
#define STRATA_CLUSTER_RPC_HELLO_H

#include "cluster/memory/shared.h"
#include "cluster/rpc/rpc.h"

/* As it is sent. The client's packet has the sequence number of its next request. 0: it has sent no request yet, so the server
 * forgets those of an earlier client of the task. */
typedef struct strata_rpc_hello {
    uint64_t incarnation;
    /* Seconds between heartbeats. */
    double heartbeat;
    char task[STRATA_RPC_TASK_BYTES];
    /* The name of the area that the client created; the server repeats it if it has mapped the area. "": none. */
    char area[STRATA_SHARED_NAME];
} strata_rpc_hello;

/* area may be NULL. */
strata_rpc_hello strata_rpc_hello_of(const char *task, uint64_t incarnation, double heartbeat, const char *area);
STRATA_MUST_USE strata_status strata_rpc_hello_read(const void *in, size_t n_bytes, strata_rpc_hello *out, strata_error *err);
/* Why a task's name cannot be one; NULL: it can. */
const char *strata_rpc_task_problem(const char *task);

#endif
