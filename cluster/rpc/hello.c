/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/rpc/hello.h"

#include <stdio.h>
#include <string.h>

strata_rpc_hello strata_rpc_hello_of(const char *task, uint64_t incarnation, double heartbeat, const char *area) {
    strata_rpc_hello h = {.incarnation = incarnation, .heartbeat = heartbeat};
    snprintf(h.task, sizeof h.task, "%s", task);
    if (area) snprintf(h.area, sizeof h.area, "%s", area);
    return h;
}

strata_status strata_rpc_hello_read(const void *in, size_t n_bytes, strata_rpc_hello *out, strata_error *err) {
    if (n_bytes == sizeof *out) memcpy(out, in, sizeof *out);
    if (n_bytes != sizeof *out || !memchr(out->area, 0, sizeof out->area) || !(out->heartbeat >= 0))
        return strata_fail(err, STRATA_DATA, "a task's greeting of %zu bytes does not contain what it says", n_bytes);
    const char *problem = strata_rpc_task_problem(out->task);
    return problem ? strata_fail(err, STRATA_DATA, "a task's greeting has a name that %s", problem) : STRATA_OK;
}

const char *strata_rpc_task_problem(const char *task) {
    const size_t n = task ? strnlen(task, STRATA_RPC_TASK_BYTES) : 0;
    if (!n) return "is empty; tasks are named as \"worker:1\"";
    if (n == STRATA_RPC_TASK_BYTES) return "is longer than 63 bytes";
    for (size_t i = 0; i < n; i++)
        if (task[i] <= ' ' || task[i] > '~') return "has a character that is no visible ASCII";
    return NULL;
}
