/* SPDX-License-Identifier: Apache-2.0
 *
 * Identifies the peer of a connection by its greeting, and finds the session of its task, which one connection at a time
 * owns. */
#include <stdlib.h>
#include <string.h>

#include "cluster/rpc/server_parts.h"
#include "core/base/clock.h"

static strata_rpc_session *find_session(strata_rpc_server *s, const char *task) {
    strata_rpc_session *at = s->sessions;
    while (at && strcmp(at->task, task) != 0) at = at->next;
    return at;
}

/* Removes the oldest session that no connection owns or waits for. While there is none, waits for connections that are about to
 * release theirs. Called with the lock. */
static void forget_oldest(strata_rpc_server *s) {
    for (;;) {
        strata_rpc_session **oldest = NULL;
        bool wait = false;
        for (strata_rpc_session **at = &s->sessions; *at; at = &(*at)->next) {
            const strata_rpc_connection *owner = (*at)->owner;
            if (!owner && !(*at)->n_waiting) oldest = at;
            if (owner && (atomic_load(&owner->ended) || atomic_load(&owner->left))) wait = true;
        }
        if (!oldest && wait) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        if (!oldest) return;
        strata_rpc_session *gone = *oldest;
        *oldest = gone->next;
        strata_rpc_session_drop_replies(gone);
        free(gone);
        s->n_sessions--;
        s->forgot = true;
        return;
    }
}

/* Makes a session for a task that has none. Called with the lock. */
static strata_status make_session(strata_rpc_server *s, const char *task, uint64_t incarnation, bool begins,
                                  strata_rpc_session **out, strata_error *err) {
    if (s->forgot && !begins)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s no longer knows which requests of %s it has executed", s->task, task);
    if (s->n_sessions == s->most_peers) {
        forget_oldest(s);
        if ((*out = find_session(s, task))) return STRATA_OK; /* another connection of the task made it meanwhile */
    }
    if (s->n_sessions == s->most_peers)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s has %d tasks, as many as it takes", s->task, s->n_sessions);
    strata_rpc_session *own = *out = calloc(1, sizeof *own);
    if (!own) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for the requests of %s", s->task, task);
    strcpy(own->task, task);
    own->incarnation = incarnation;
    own->next = s->sessions;
    s->sessions = own;
    s->n_sessions++;
    return STRATA_OK;
}

/* Whether a later incarnation of the task has replaced this one. Called with the lock. */
static bool is_old(const strata_rpc_session *own, uint64_t incarnation) {
    const int64_t n = own->n_old < STRATA_RPC_OLD ? own->n_old : STRATA_RPC_OLD;
    for (int64_t i = 0; i < n; i++)
        if (own->old[i] == incarnation) return true;
    return false;
}

/* Makes the connection the owner of the task's session; waits until an earlier connection of the task has ended. begins: the
 * client has sent no request yet, so the session's requests and replies are those of an earlier client. Fails if the task is
 * refused. */
static strata_status take_session(strata_rpc_connection *c, const char *task, uint64_t incarnation, bool begins,
                                  strata_error *err) {
    strata_rpc_server *s = c->server;
    strata_status status = STRATA_OK;
    pthread_mutex_lock(&s->lock);
    strata_rpc_session *own = find_session(s, task);
    if (!own) status = make_session(s, task, incarnation, begins, &own, err);
    if (!status && incarnation != own->incarnation && !is_old(own, incarnation)) { /* the task was started again */
        own->old[own->n_old++ % STRATA_RPC_OLD] = own->incarnation;
        own->incarnation = incarnation;
        own->replaced = true;
    }
    while (!status) {
        if (atomic_load(&c->ended)) {
            status = strata_fail(err, STRATA_UNAVAILABLE, "%s", c->why);
        } else if (incarnation != own->incarnation) {
            status =
                strata_fail(err, STRATA_INVALID,
                            "%s was started again, so requests of its earlier process are refused: is it started twice?", task);
        } else if (own->owner) {
            strata_rpc_connection_end_locked(own->owner, "it connected again");
            own->n_waiting++;
            pthread_cond_wait(&s->changed, &s->lock);
            own->n_waiting--;
        } else {
            break;
        }
    }
    const bool again = !status && (own->replaced || begins);
    if (!status) {
        own->owner = c;
        own->replaced = false;
        c->session = own;
        c->incarnation = incarnation;
    }
    pthread_mutex_unlock(&s->lock);
    if (again) {
        strata_rpc_session_drop_replies(own);
        own->next_sequence = own->unkept = 0;
    }
    return status;
}

void strata_rpc_connection_leave_session(strata_rpc_connection *c) {
    pthread_mutex_lock(&c->server->lock);
    c->session->owner = NULL;
    pthread_cond_broadcast(&c->server->changed);
    pthread_mutex_unlock(&c->server->lock);
}

/* Handles the peer's greeting. */
strata_status strata_rpc_connection_greet(strata_rpc_connection *c, const strata_packet *m, strata_error *err) {
    strata_rpc_server *s = c->server;
    char task[STRATA_RPC_TASK_BYTES];
    uint64_t incarnation;
    double heartbeat;
    unsigned char own[STRATA_RPC_HELLO_BYTES];
    char name[STRATA_SHARED_NAME];
    STRATA_TRY(strata_rpc_hello_decode(c->head, m->head_bytes, task, sizeof task, &incarnation, &heartbeat, name, err));
    atomic_store(&c->heartbeat, heartbeat > s->heartbeat ? heartbeat : s->heartbeat);
    atomic_store(&c->activity, STRATA_RPC_HANDLING);
    strata_error why = {0};
    const strata_status refused = take_session(c, task, incarnation, !m->sequence, &why);
    strata_area *area = refused || !*name || c->channel.stream.tls ? NULL : strata_area_open(name);
    const size_t n = refused ? strnlen(why.message, sizeof why.message)
                             : strata_rpc_hello_encode(s->task, s->incarnation, s->heartbeat, area ? name : NULL, own);
    const strata_packet reply = {.type = STRATA_FRAME_HELLO, .status = refused, .head_bytes = n};
    const struct iovec part = {refused ? (void *)why.message : own, n};
    if (!refused) {
        if (s->on_peer) s->on_peer(s->user, STRATA_RPC_CONNECTED, task, incarnation, "");
        pthread_mutex_lock(&s->lock);
        c->known = true;
        pthread_mutex_unlock(&s->lock);
    }
    const strata_status status = strata_rpc_connection_send(c, &reply, &part, 1, area, err);
    if (!refused) return status;
    strata_rpc_server_count_refused(s, c->from, why.message);
    return strata_fail(err, refused, "%s", why.message);
}
