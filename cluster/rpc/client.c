/* SPDX-License-Identifier: Apache-2.0
 *
 * The client. A caller sends its request itself, and while it waits it also receives replies, for all requests. So a call needs
 * no switch of threads. There are two roles, the *sender* and the *receiver*; one thread at a time has each of them. A
 * background thread, the *keeper*, receives while no caller waits, sends heartbeats, and connects again after a connection was
 * lost.
 *
 * A connection that failed is shut down at once. When no thread has a role, the keeper closes it, connects again, and sends all
 * requests without a reply again, in their order. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cluster/rpc/client_parts.h"
#include "core/base/clock.h"
#include "core/base/locale.h"

/* The keeper's ticks while requests are pending: WATCH_TICK_MS if no other thread receives, BUSY_TICK_MS if one does. */
enum { BUSY_TICK_MS = 2, WATCH_TICK_MS = 20 };
static const double CONNECT_SECONDS = 60, RECONNECT_SECONDS = 10, AWAY_SECONDS = 1;

/* ---- small things ---- */

void strata_rpc_client_wake_keeper(strata_rpc_client *c) {
    const uint64_t one = 1;
    if (write(c->wake, &one, sizeof one) < 0) return;
}

void strata_rpc_client_wait_changed(strata_rpc_client *c, double until) {
    const struct timespec at = strata_clock_after(until - strata_clock_seconds() > 0 ? until - strata_clock_seconds() : 0);
    pthread_cond_timedwait(&c->changed, &c->lock, &at);
}

/* Marks the connection as failed. If this is called several times, the first reason counts. The caller has the lock. */
void strata_rpc_client_break_link(strata_rpc_client *c, const char *why) {
    if (!c->connected) return;
    c->connected = false;
    c->broke_at = strata_clock_seconds();
    snprintf(c->why, sizeof c->why, "%.299s", why);
    strata_connection_shut(&c->channel, false);
    pthread_cond_broadcast(&c->changed);
    strata_rpc_client_wake_keeper(c);
}

/* Removes a request that is over. The caller has the lock. */
void strata_rpc_client_unlink_request(strata_rpc_client *c, strata_rpc_request *r) {
    strata_rpc_request *before = NULL;
    for (strata_rpc_request *at = c->first; at && at != r; at = at->next) before = at;
    *(before ? &before->next : &c->first) = r->next;
    if (c->last == r) c->last = before;
    r->done = true;
}

void strata_rpc_client_fail_request(strata_rpc_client *c, strata_rpc_request *r, strata_status status, const char *why) {
    strata_fail(&r->error, status, "%s at %s: %s failed: %s", c->server, c->address, r->what, why);
    strata_rpc_client_unlink_request(c, r);
    pthread_cond_broadcast(&c->changed);
}

/* Fails the connection if nothing was received from the server for too long. The caller has the lock. */
void strata_rpc_client_check_silence(strata_rpc_client *c) {
    const double limit = strata_pulse_limit(c->heartbeat, c->server_heartbeat), now = strata_clock_seconds();
    char why[96];
    /* the keeper calls this at least four times in each heartbeat */
    strata_pulse_check(&c->pulse, now, 2 * c->heartbeat + AWAY_SECONDS);
    if (!c->connected || !strata_pulse_is_lost(&c->pulse, now, atomic_load(&c->channel.received), limit)) return;
    strata_format(why, sizeof why, "no sign of life for %.3g s", limit);
    strata_rpc_client_break_link(c, why);
}

/* ---- the keeper ---- */

static void watch(strata_rpc_client *c) {
    strata_rpc_client_check_silence(c);
    if (c->connected && !c->has_sender && strata_clock_seconds() - atomic_load(&c->channel.sent) > c->heartbeat)
        strata_rpc_client_send_beat(c);
}

/* Called while the connection works: receives if no other thread does, and waits for something to do. The caller has the
 * lock. */
static void keep(strata_rpc_client *c) {
    uint64_t count;
    if (!c->has_receiver) {
        strata_rpc_client_take_receiver(c, NULL);
        pthread_mutex_unlock(&c->lock);
        strata_rpc_client_receive(c);
        strata_rpc_client_leave_receiver(c);
    }
    if (c->connected) watch(c);
    if (!c->connected) return;
    /* Without a pending request only the end of the connection is polled for; heartbeats are read at each tick. If memory is
     * shared, the end is always polled for, since a thread that waits for replies does not see it. */
    const bool busy = c->first != NULL, watches = busy && !c->has_receiver, shares = strata_connection_needs_poll(&c->channel);
    struct pollfd fds[2] = {{.fd = c->wake, .events = POLLIN},
                            {.fd = busy && !watches && !shares ? -1 : c->channel.stream.fd,
                             .events = watches && !shares ? strata_connection_events(&c->channel, POLLIN) : POLLRDHUP}};
    c->keeper_sleeps = !busy;
    const int ms = watches ? WATCH_TICK_MS : busy ? BUSY_TICK_MS : (int)(c->heartbeat * 250) + 1;
    pthread_mutex_unlock(&c->lock);
    if (watches && shares) strata_connection_wait(&c->channel, POLLIN, ms, false);
    poll(fds, 2, watches && shares ? 0 : ms);
    if (fds[0].revents && read(c->wake, &count, sizeof count) < 0) count = 0;
    if (shares && fds[1].revents) strata_connection_note_end(&c->channel);
    pthread_mutex_lock(&c->lock);
    c->keeper_sleeps = false;
}

static void *run_keeper(void *user) {
    strata_rpc_client *c = user;
    int pause_ms = 0;
    uint64_t random = c->incarnation;
    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        if (c->connected) {
            pause_ms = 0;
            keep(c);
        } else if (c->refused) {
            while (c->first) strata_rpc_client_fail_request(c, c->first, STRATA_INVALID, c->why);
            strata_rpc_client_wait_changed(c, strata_clock_seconds() + 1);
        } else {
            pause_ms = strata_rpc_client_reconnect(c, pause_ms, &random);
            const double until = strata_clock_seconds() + pause_ms / 1000.0;
            while (pause_ms && !c->closing && strata_clock_seconds() < until) strata_rpc_client_wait_changed(c, until);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- life ---- */

static strata_status check_options(const strata_rpc_client_options *opts, strata_error *err) {
    char host[256], port[8];
    const char *problem = strata_rpc_task_problem(opts->task);
    if (problem) return strata_fail(err, STRATA_INVALID, "a client's task name %s", problem);
    problem = strata_rpc_task_problem(opts->server);
    if (problem) return strata_fail(err, STRATA_INVALID, "a server's task name %s", problem);
    if (!(opts->reconnect_seconds >= 0))
        return strata_fail(err, STRATA_INVALID, "reconnect_seconds is %g; it must be at least 0", opts->reconnect_seconds);
    return strata_address_split(opts->address, host, port, err);
}

static void free_client(strata_rpc_client *c) {
    if (c->open) strata_connection_finish(&c->channel);
    if (c->wake >= 0) close(c->wake);
    strata_credentials_finish(&c->credentials);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

strata_status strata_rpc_client_create(const strata_rpc_client_options *opts, strata_rpc_client **out_client,
                                       strata_error *err) {
    static const strata_communicator_options defaults = {0};
    const strata_communicator_options *cluster = opts->cluster ? opts->cluster : &defaults;
    *out_client = NULL;
    STRATA_TRY(check_options(opts, err));
    strata_rpc_client *c = calloc(1, sizeof *c);
    if (!c) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a client");
    strcpy(c->task, opts->task);
    strcpy(c->server, opts->server);
    snprintf(c->address, sizeof c->address, "%s", opts->address);
    c->incarnation = opts->incarnation ? opts->incarnation : strata_rpc_incarnation();
    c->heartbeat = cluster->heartbeat_seconds > 0 ? cluster->heartbeat_seconds : STRATA_HEARTBEAT_SECONDS;
    c->shared_bytes = opts->shared_bytes;
    c->reconnect_seconds = opts->reconnect_seconds > 0 ? opts->reconnect_seconds : RECONNECT_SECONDS;
    strata_clock_cond_init(&c->changed);
    pthread_mutex_init(&c->lock, NULL);
    c->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

    const double seconds = cluster->connect_seconds > 0 ? cluster->connect_seconds : CONNECT_SECONDS;
    strata_connection channel;
    strata_rpc_greeting g = {0};
    strata_status status = STRATA_OK;
    if (c->wake < 0) status = strata_fail(err, STRATA_UNAVAILABLE, "no descriptor for a client: %s", strata_errno_text(errno));
    if (!status) status = strata_credentials_init(&c->credentials, cluster, err);
    if (!status) {
        status = strata_rpc_client_connect_once(c, strata_clock_seconds() + seconds, &channel, &g, err);
        if (status) strata_fail_in(err, status, "%s at %s", c->server, c->address);
    }
    if (!status) {
        strata_rpc_client_use_channel(c, &channel, &g);
        if (pthread_create(&c->keeper, NULL, run_keeper, c))
            status = strata_fail(err, STRATA_UNAVAILABLE, "no thread could be made for a client");
    }
    if (status)
        free_client(c);
    else
        *out_client = c;
    return status;
}

static strata_status refuse_to_wait(void *user, short events, strata_error *err) {
    (void)user, (void)events;
    return strata_fail(err, STRATA_UNAVAILABLE, "the socket is full");
}

void strata_rpc_client_destroy(strata_rpc_client *c) {
    static const strata_packet leave = {.type = STRATA_FRAME_LEAVE};
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    strata_rpc_client_wake_keeper(c); /* it does not wait in a pipe, as there is no request */
    pthread_join(c->keeper, NULL);
    /* if this cannot be sent, the server sees that the connection closes */
    if (c->connected && strata_connection_send(&c->channel, &leave, NULL, 0, refuse_to_wait, NULL, NULL)) c->connected = false;
    free_client(c);
}

uint64_t strata_rpc_client_server_incarnation(strata_rpc_client *c) {
    pthread_mutex_lock(&c->lock);
    const uint64_t incarnation = c->server_incarnation;
    pthread_mutex_unlock(&c->lock);
    return incarnation;
}

bool strata_rpc_client_connected(strata_rpc_client *c) {
    pthread_mutex_lock(&c->lock);
    const bool connected = c->connected;
    pthread_mutex_unlock(&c->lock);
    return connected;
}
