/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: checks for each node whether the device supports it, and reports all nodes that it does not
 * support in one error. */
#include "core/run/node_support.h"

#include <stdio.h>

static strata_support ask(void *device, const strata_tensor *node) {
    const char *reason = NULL;
    return strata_device_supports(device, node, &reason);
}

strata_device_query strata_node_support_query(strata_device *device) {
    return (strata_device_query){.supports = ask, .user = device};
}

/* "the device does not have it; nor what it is made of: exp" */
static strata_node_support place(strata_device *device, const strata_tensor *node) {
    const char *reason = NULL;
    strata_node_support p = {.node = node, .support = strata_device_supports(device, node, &reason)};
    if (p.support == STRATA_SUPPORT_YES || p.support == STRATA_SUPPORT_PARTS) return p;
    const strata_device_query query = strata_node_support_query(device);
    const char *obstacle = strata_decompose_obstacle(node, &query);
    snprintf(p.reason, sizeof p.reason, "%s%s%s", reason ? reason : "the device does not have it",
             obstacle ? "; nor does it have all that it is made of: " : "", obstacle ? obstacle : "");
    return p;
}

strata_status strata_node_support_each(strata_device *device, const strata_tensor *const *nodes, int n,
                                       strata_node_support_visit *visit, void *user, strata_error *err) {
    for (int i = 0; i < n; i++) {
        const strata_node_support p = place(device, nodes[i]);
        STRATA_TRY(visit(&p, user, err));
    }
    return STRATA_OK;
}

/* The lines of a report, as far as they fit into a message. */
typedef struct report {
    char lines[STRATA_ERROR_MESSAGE_BYTES];
    size_t used;
    int n_refused, n_shown;
    bool host_runs_all;
} report;

static strata_status add_line(const strata_node_support *p, void *user, strata_error *err) {
    enum { ROOM_FOR_REST = 400 }; /* bytes of the message for its first and last line */
    report *r = user;
    (void)err;
    if (p->support != STRATA_SUPPORT_NO) return STRATA_OK;
    r->n_refused++;
    r->host_runs_all = r->host_runs_all && p->node->op->reference;
    if (r->n_shown < r->n_refused - 1) return STRATA_OK;
    char line[512];
    const bool named = p->node->name != NULL;
    const int n =
        snprintf(line, sizeof line, "\n  %s%s%s %s %s: %s", named ? p->node->name : "", named ? ": " : "", p->node->op->name,
                 strata_dtype_name(p->node->dtype), strata_shape_text(p->node->shape).text, p->reason);
    if (n < 0 || (size_t)n >= sizeof line || r->used + (size_t)n > sizeof r->lines - ROOM_FOR_REST) return STRATA_OK;
    memcpy(r->lines + r->used, line, (size_t)n + 1);
    r->used += (size_t)n;
    r->n_shown++;
    return STRATA_OK;
}

strata_status strata_node_support_check(strata_device *device, const strata_tensor *const *nodes, int n, strata_error *err) {
    report r = {.host_runs_all = true};
    char rest[64] = "";
    STRATA_TRY(strata_node_support_each(device, nodes, n, add_line, &r, err));
    if (!r.n_refused) return STRATA_OK;
    if (r.n_shown < r.n_refused) snprintf(rest, sizeof rest, "\n  and %d more", r.n_refused - r.n_shown);
    return strata_fail(
        err, STRATA_UNSUPPORTED, "%s cannot run %d of %d nodes%s.%s%s", device->info.id, r.n_refused, n,
        r.host_runs_all
            ? ". The host can: --allow-fallback host (fallback_to_host in C). strata summary --placement lists all of "
              "them, and the devices that run them"
            : "",
        r.lines, rest);
}
