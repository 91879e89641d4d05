/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop's thread, and the member that uses it. */
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cluster/message/link.h"
#include "cluster/store/loop.h"
#include "cluster/wire/socket.h"
#include "core/base/clock.h"

strata_status strata_loop_watch(strata_loop *loop, int fd, strata_source *source, strata_error *err) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    if (!epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event)) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "the kernel cannot watch another descriptor");
}

void strata_loop_forget(strata_loop *loop, int fd) {
    if (fd >= 0) epoll_ctl(loop->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void strata_loop_want_output(strata_loop *loop, int fd, strata_source *source, bool output) {
    struct epoll_event event = {.events = EPOLLIN | (output ? EPOLLOUT : 0), .data.ptr = source};
    epoll_ctl(loop->epoll, EPOLL_CTL_MOD, fd, &event);
}

/* ---- the thread ---- */

/* By so much may requests end after their deadlines. */
static const double MOST_TICK_SECONDS = 0.25;

static void on_wake(strata_loop *loop, strata_source *source) {
    uint64_t count;
    (void)source;
    if (read(loop->wake, &count, sizeof count) < 0) return;
    strata_links_resume(loop);
}

static void *run(void *user) {
    strata_loop *loop = user;
    const double tick = loop->heartbeat / 4 < MOST_TICK_SECONDS ? loop->heartbeat / 4 : MOST_TICK_SECONDS;
    const int tick_ms = (int)(1000 * tick) + 1;
    struct epoll_event event;
    pthread_mutex_lock(&loop->lock);
    double last = loop->pulse.checked_at = strata_clock_seconds();
    while (!loop->leaving) {
        pthread_mutex_unlock(&loop->lock);
        /* One event at a time: handling it may end what another event of the same call would point to. */
        const int n = epoll_wait(loop->epoll, &event, 1, tick_ms);
        pthread_mutex_lock(&loop->lock);
        const double now = strata_clock_seconds();
        if (loop->leaving) break;
        /* a longer time than two heartbeats: this process did not run */
        loop->awake += now - last > 2 * loop->heartbeat ? tick_ms / 1000.0 : now - last;
        last = now;
        if (n > 0) {
            strata_source *source = event.data.ptr;
            source->ready(loop, source);
        }
        if (now - loop->pulse.checked_at < tick_ms / 1000.0) continue;
        strata_pulse_check(&loop->pulse, now, 2 * loop->heartbeat);
        strata_loop_drop_late(loop, now);
        strata_links_resume(loop);
        if (loop->sessions)
            strata_loop_check_sessions(loop, now);
        else
            strata_loop_check_control(loop, now);
    }
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

bool strata_loop_take_event(strata_loop *loop, strata_event_kind kind, uint32_t subject, strata_status status,
                            const char *text) {
    if (!strata_roster_add(loop->member.roster, kind, subject, status, text)) return false;
    if (kind == STRATA_EVENT_LOST || kind == STRATA_EVENT_STORE_LOST) strata_links_rank_lost(loop, (int)subject, text);
    if (kind == STRATA_EVENT_LEFT) strata_links_rank_left(loop, (int)subject, text);
    strata_links_drop_ended(loop);
    pthread_cond_broadcast(&loop->changed);
    return true;
}

/* ---- the member ---- */

static void wake(strata_loop *loop) {
    const uint64_t one = 1;
    if (write(loop->wake, &one, sizeof one) < 0) return; /* the counter is at its maximum, so the loop wakes anyway */
}

/* A receive may have freed memory of stored messages: wakes the loop to read paused connections again. */
static void received(strata_member *member) {
    strata_loop *loop = (strata_loop *)member;
    if (atomic_load(&loop->paused)) wake(loop);
}

strata_status strata_member_connect_link(strata_member *member, uint32_t communicator, const char *address, double seconds,
                                         strata_stream *out_stream, strata_error *err) {
    const strata_loop *loop = (strata_loop *)member;
    const strata_hello hello = {STRATA_FOR_LINK, communicator, (uint32_t)member->rank, (uint32_t)member->world};
    const double deadline = strata_clock_seconds() + seconds;
    return strata_socket_connect(address, &hello, &loop->credentials, deadline, out_stream, err);
}

static void destroy(strata_member *member) {
    strata_loop *loop = (strata_loop *)member;
    pthread_mutex_lock(&loop->lock);
    if (loop->has_thread) strata_links_flush(loop, STRATA_MISSED_BEATS * loop->heartbeat);
    if (loop->sessions && loop->has_thread) strata_loop_finish_serving(loop);
    if (!loop->sessions && loop->has_thread)
        strata_loop_finish_following(loop);
    else /* creating the member failed after it connected: rank 0 must see it as lost, not wait for it */
        strata_control_close(loop, &loop->rank0.control);
    loop->leaving = true;
    pthread_mutex_unlock(&loop->lock);
    if (loop->has_thread) {
        wake(loop);
        pthread_join(loop->thread, NULL);
    }
    strata_loop_finish_accepting(loop);
    strata_links_destroy(loop);
    if (loop->epoll >= 0) close(loop->epoll);
    if (loop->wake >= 0) close(loop->wake);
    strata_board_release(loop->board);
    pthread_cond_destroy(&loop->changed);
    pthread_mutex_destroy(&loop->lock);
    strata_credentials_finish(&loop->credentials);
    strata_memory memory = loop->memory; /* the loop itself is part of it */
    strata_memory_finish(&memory);
}

static strata_loop *allocate(const strata_communicator_options *opts, strata_error *err) {
    strata_memory memory = {0};
    const bool is_first = opts->rank == 0;
    strata_loop *loop = strata_memory_take(&memory, 1, sizeof *loop);
    strata_session *sessions = is_first ? strata_memory_take(&memory, opts->world, sizeof *sessions) : NULL;
    if (memory.failed || strata_board_create(opts->world, &loop->board, err)) {
        strata_memory_finish(&memory);
        strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a job of %d ranks", opts->world);
        return NULL;
    }
    loop->memory = memory;
    loop->sessions = sessions;
    loop->heartbeat = opts->heartbeat_seconds > 0 ? opts->heartbeat_seconds : STRATA_HEARTBEAT_SECONDS;
    loop->epoll = loop->wake = loop->listener = loop->rank0.control.connection.stream.fd = -1;
    for (int r = 0; r < opts->world && is_first; r++) loop->sessions[r].control.connection.stream.fd = -1;
    pthread_mutex_init(&loop->lock, NULL);
    strata_clock_cond_init(&loop->changed);
    loop->member = (strata_member){.references = 1,
                                   .rank = opts->rank,
                                   .world = opts->world,
                                   .roster = strata_board_roster(loop->board),
                                   .store = is_first ? strata_loop_serve : strata_loop_send_request,
                                   .report = is_first ? strata_loop_decide_failure : strata_loop_report_failure,
                                   .send_message = strata_links_send,
                                   .withdraw_message = strata_links_withdraw,
                                   .received = received,
                                   .destroy = destroy};
    return loop;
}

/* Listens for links: rank 0 at the store's address, another rank at the address of its interface or, without one, at the local
 * address of its connection to the store. */
static strata_status listen_for_links(strata_loop *loop, const strata_communicator_options *opts,
                                      char out_address[STRATA_ADDRESS_BYTES], strata_error *err) {
    char host[256], port[8], local[STRATA_ADDRESS_BYTES] = "";
    STRATA_TRY(strata_address_split(opts->rank && opts->address ? opts->address : opts->store, host, port, err));
    if (opts->rank) {
        strata_socket_address(loop->rank0.control.connection.stream.fd, false, local);
        strcpy(host, local);
        if (!opts->address) strcpy(port, "0");
    }
    const double deadline = strata_clock_seconds() + (opts->rank ? 0 : opts->connect_seconds);
    STRATA_TRY(strata_socket_listen(opts, host, port, opts->rank ? STRATA_LISTEN_HOST : STRATA_LISTEN_NAME, deadline,
                                    &loop->listener, err));
    strata_socket_address(loop->listener, true, out_address);
    snprintf(loop->listens, sizeof loop->listens, "%s", out_address);
    if (!opts->rank)
        snprintf(out_address, STRATA_ADDRESS_BYTES, "%s", opts->store);
    else if (!strncmp(out_address, "0.0.0.0:", 8) || !strncmp(out_address, "[::]:", 5)) /* the others need one of them */
        snprintf(out_address, STRATA_ADDRESS_BYTES, strchr(local, ':') ? "[%.60s]:%s" : "%.60s:%s", local,
                 strrchr(loop->listens, ':') + 1);
    loop->listener_source.ready = strata_loop_accept;
    return strata_loop_watch(loop, loop->listener, &loop->listener_source, err);
}

strata_status strata_member_create_remote(const strata_communicator_options *opts, strata_member **out_member,
                                          char out_address[STRATA_ADDRESS_BYTES], strata_error *err) {
    *out_member = NULL;
    strata_loop *loop = allocate(opts, err);
    if (!loop) return STRATA_OUT_OF_MEMORY;
    strata_status status = STRATA_OK;
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->wake_source.ready = on_wake;
    if (loop->epoll < 0 || loop->wake < 0)
        status = strata_fail(err, STRATA_UNAVAILABLE, "the process has no descriptors left (ulimit -n)");
    if (!status) status = strata_loop_watch(loop, loop->wake, &loop->wake_source, err);
    if (!status) status = strata_links_create(loop, err);
    if (!status) status = strata_credentials_init(&loop->credentials, opts, err);
    if (!status && opts->rank) status = strata_loop_connect_rank0(loop, opts, err);
    if (!status) status = listen_for_links(loop, opts, out_address, err);
    if (!status) {
        loop->has_thread = !pthread_create(&loop->thread, NULL, run, loop);
        if (!loop->has_thread) status = strata_fail(err, STRATA_UNAVAILABLE, "no thread could be made for the connections");
    }
    if (status)
        strata_member_release(&loop->member);
    else
        *out_member = &loop->member;
    return status;
}
