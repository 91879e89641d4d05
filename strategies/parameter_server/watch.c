/* SPDX-License-Identifier: Apache-2.0
 *
 * The chief's view of the servers: which of them were lost, and which has which shards (the route). With replicas the chief
 * decides the route and sends it to the servers; workers get it from the chief of the fit, or from a server. */
#include "strategies/parameter_server/chief.h"

/* How often to check whether a server that is waited for has ended. It is long enough for a busy server to answer in. */
static const double LOOK_SECONDS = 5;

strata_status strata_ps_watch_make(strata_ps_watch *watch, strata_ps_fit *fit, strata_error *err) {
    const int n = watch->n = fit->plan.n_servers;
    watch->fit = fit;
    watch->clients = strata_memory_take(&watch->memory, n, sizeof(*watch->clients));
    watch->incarnations = strata_memory_take(&watch->memory, n, sizeof *watch->incarnations);
    watch->lost = strata_memory_take(&watch->memory, n, sizeof *watch->lost);
    watch->cut = strata_memory_take(&watch->memory, n, sizeof *watch->cut);
    return watch->memory.failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "fit: no host memory for %d servers", n) : STRATA_OK;
}

void strata_ps_watch_finish(strata_ps_watch *watch) {
    for (int s = 0; watch->clients && s < watch->n; s++) strata_rpc_client_destroy(watch->clients[s]);
    strata_memory_finish(&watch->memory);
}

/* No server has values yet, so a server that does not respond is waited for as long as one that is not running. */
strata_status strata_ps_watch_meet(strata_ps_watch *watch, strata_error *err) {
    const strata_ps_task *task = watch->fit->task;
    const double until = strata_clock_seconds() + task->connect_seconds;
    strata_status differs = STRATA_OK;
    strata_error difference = {0};
    for (int s = 0; s < watch->n; s++) {
        strata_status status;
        int code = 0;
        do {
            const double left = until - strata_clock_seconds();
            if (strata_ps_has_ended(STRATA_TASK_PS, s, &code))
                return strata_fail(err, STRATA_PEER_LOST, "fit: ps:%d ended (exit code %d) before the training began", s, code);
            status = strata_ps_connect(task, STRATA_TASK_PS, s, left < LOOK_SECONDS ? left : LOOK_SECONDS, 0,
                                       &watch->clients[s], err);
        } while (status == STRATA_TIMEOUT && strata_clock_seconds() < until);
        if (status == STRATA_TIMEOUT)
            strata_fail_in(err, status, "fit: ps:%d did not come in %.0f s", s, task->connect_seconds);
        if (status) return status;
        strata_ps_hello_reply reply = {0};
        do
            status =
                strata_ps_say_hello(watch->fit, watch->clients[s], task->connect_seconds, &reply, differs ? NULL : &difference);
        while (status == STRATA_PEER_LOST && strata_clock_seconds() < until);
        if (!differs) differs = status;
        /* the numbers of this chief are above those of an earlier one */
        if (reply.route.number > watch->fit->route.number) watch->fit->route.number = reply.route.number;
        if (reply.serial > watch->fit->serial) watch->fit->serial = reply.serial;
    }
    return differs ? strata_fail(err, differs, "%s", difference.message) : STRATA_OK;
}

/* Computes the route from the servers that were lost. If a bundle already continued with one holder, it keeps this holder,
 * since only this one has all changes. PEER_LOST when a bundle has no holder. */
static strata_status choose_holders(const strata_ps_watch *watch, strata_ps_route *out_route, strata_error *err) {
    *out_route = (strata_ps_route){.number = watch->fit->route.number + 1};
    for (int g = 0; g < watch->n && watch->fit->task->replicas; g++) {
        const bool owner = !watch->lost[g], copy = !watch->lost[strata_ps_copy_server(g, watch->n)] && !watch->cut[g];
        if (!owner && !copy)
            return strata_fail(err, STRATA_PEER_LOST, "ps:%d was lost, and no other server has all that its shards had", g);
        out_route->holders[g] = (uint8_t)(owner && copy ? STRATA_PS_BOTH : owner ? STRATA_PS_OWNER : STRATA_PS_COPY);
    }
    return STRATA_OK;
}

/* Sends the route to all servers that are connected, and marks servers that are lost meanwhile. */
static strata_status tell_route(strata_ps_watch *watch, strata_error *err) {
    const double patience = 10;
    strata_ps_route route;
    int s = 0;
    if (!watch->fit->task->replicas) return STRATA_OK;
    STRATA_TRY(choose_holders(watch, &route, err));
    while (s < watch->n) {
        const strata_rpc_ask ask = strata_ps_ask(STRATA_PS_ROUTE, &route, NULL, 0);
        const strata_status status =
            watch->lost[s] ? STRATA_OK : strata_rpc_client_call(watch->clients[s], &ask, NULL, patience, err);
        if (status && status != STRATA_PEER_LOST && status != STRATA_TIMEOUT) return status;
        if (!status) {
            s++;
            continue;
        }
        watch->lost[s] = true;
        STRATA_TRY(choose_holders(watch, &route, err));
        s = 0;
    }
    watch->on_route(watch->user, &route);
    return STRATA_OK;
}

strata_status strata_ps_watch_spread(strata_ps_watch *watch, int64_t serial, strata_error *err) {
    STRATA_TRY(tell_route(watch, err));
    STRATA_TRY(strata_ps_send_values(watch->fit, watch->clients, serial, err));
    for (int s = 0; s < watch->n; s++) watch->incarnations[s] = strata_rpc_client_server_incarnation(watch->clients[s]);
    return STRATA_OK;
}

/* Stores what a server has reported of its queues. */
static void note_queues(strata_ps_task *task, const strata_ps_hello_reply *reply) {
    STRATA_LOCKED(&task->lock);
    strata_ps_load_add_queue(&task->totals.training, reply);
    strata_ps_load_add_queue(&task->totals.epoch, reply);
}

strata_status strata_ps_watch_look(strata_ps_watch *watch, strata_error *err) {
    const strata_ps_task *task = watch->fit->task;
    bool changed = false;
    for (int s = 0; s < watch->n; s++) {
        strata_ps_hello_reply reply = {0};
        if (watch->lost[s]) continue;
        strata_status status = strata_ps_say_hello(watch->fit, watch->clients[s], task->connect_seconds, &reply, err);
        if (!status && strata_rpc_client_server_incarnation(watch->clients[s]) != watch->incarnations[s])
            status = strata_fail(err, STRATA_PEER_LOST, "ps:%d started again", s);
        if (status && (status != STRATA_PEER_LOST || !task->replicas)) return status;
        if (!status) note_queues(watch->fit->task, &reply);
        if (!status && (!reply.copy_failed || watch->fit->route.holders[s] != STRATA_PS_BOTH)) continue;
        changed = true;
        if (status) {
            watch->lost[s] = true;
            strata_ps_notice(watch->fit->task, "ps:%d was lost (%.200s); its shards go on from their copy on ps:%d", s,
                             err->message, strata_ps_copy_server(s, watch->n));
        } else {
            watch->cut[s] = true;
        }
    }
    return changed ? tell_route(watch, err) : STRATA_OK;
}

strata_status strata_ps_watch_take_back(strata_ps_watch *watch, int64_t serial, strata_error *err) {
    bool any = false;
    for (int s = 0; s < watch->n; s++) {
        any |= watch->cut[s];
        watch->cut[s] = false;
        if (!watch->lost[s] || !strata_rpc_client_connected(watch->clients[s])) continue;
        if (strata_ps_say_hello(watch->fit, watch->clients[s], 1, NULL, NULL)) continue;
        watch->lost[s] = false;
        any = true;
        strata_ps_notice(watch->fit->task, "ps:%d is there again, and gets its shards", s);
    }
    return any ? strata_ps_watch_spread(watch, serial, err) : STRATA_OK;
}

void strata_ps_watch_forget(strata_ps_watch *watch) {
    for (int s = 0; s < watch->n; s++) watch->lost[s] = watch->cut[s] = false;
}
