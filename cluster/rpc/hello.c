/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/rpc/hello.h"

#include <string.h>

#include "cluster/rpc/rpc.h"

size_t strata_rpc_hello_encode(const char *task, uint64_t incarnation, double heartbeat, const char *area, unsigned char *out) {
    const uint32_t ms = heartbeat > 4e6 ? 4000000000u : (uint32_t)(heartbeat * 1000);
    const size_t n = strlen(task);
    memcpy(out, &incarnation, 8);
    memcpy(out + 8, &ms, 4);
    memcpy(out + 12, task, n);
    if (!area || !*area) return 12 + n;
    const size_t n_area = strlen(area);
    out[12 + n] = ' ';
    memcpy(out + 13 + n, area, n_area);
    return 13 + n + n_area;
}

strata_status strata_rpc_hello_decode(const unsigned char *in, size_t n_bytes, char *out_task, size_t most_task_bytes,
                                      uint64_t *out_incarnation, double *out_heartbeat, char *out_area, strata_error *err) {
    const unsigned char *space = n_bytes > 12 ? memchr(in + 12, ' ', n_bytes - 12) : NULL;
    const size_t end = space ? (size_t)(space - in) : n_bytes, n_area = space ? n_bytes - end - 1 : 0;
    if (end < 12 || end - 12 >= most_task_bytes || n_area >= STRATA_SHARED_NAME || memchr(in + 12, 0, n_bytes - 12))
        return strata_fail(err, STRATA_DATA, "a task's greeting of %zu bytes does not contain what it says", n_bytes);
    uint32_t ms;
    memcpy(out_incarnation, in, 8);
    memcpy(&ms, in + 8, 4);
    *out_heartbeat = ms / 1000.0;
    memcpy(out_task, in + 12, end - 12);
    out_task[end - 12] = 0;
    if (n_area) memcpy(out_area, space + 1, n_area);
    out_area[n_area] = 0;
    const char *problem = strata_rpc_task_problem(out_task);
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
