/* SPDX-License-Identifier: Apache-2.0
 *
 * The first packet of both sides of a connection between tasks: a greeting. */
#ifndef STRATA_CLUSTER_RPC_HELLO_H
#define STRATA_CLUSTER_RPC_HELLO_H

#include "cluster/memory/shared.h"
#include "strata/cluster.h"

enum { STRATA_RPC_HELLO_BYTES = 8 + 4 + 64 + STRATA_SHARED_NAME };
/* Writes a hello and returns its bytes. It has the incarnation, the milliseconds between heartbeats, the task's name, and after
 * a space the name of an area (NULL: none). The client sends the name of the area that it created; the server repeats it if it
 * has mapped the area. The client's packet has the sequence number of its next request. 0: it has sent no request yet, so the
 * server forgets those of an earlier client of the task. */
size_t strata_rpc_hello_encode(const char *task, uint64_t incarnation, double heartbeat, const char *area, unsigned char *out);
/* out_area: room for STRATA_SHARED_NAME bytes; "": none. */
STRATA_MUST_USE strata_status strata_rpc_hello_decode(const unsigned char *in, size_t n_bytes, char *out_task,
                                                      size_t most_task_bytes, uint64_t *out_incarnation, double *out_heartbeat,
                                                      char *out_area, strata_error *err);
/* Why a task's name cannot be one; NULL: it can. */
const char *strata_rpc_task_problem(const char *task);

#endif
