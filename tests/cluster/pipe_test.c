/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipes and bells, which transport remote calls between processes of one machine (cluster/memory/pipe.h): wrapping around,
 * full pipes, sleeping and waking, closing, and another process that writes random bytes to the shared memory. Whole
 * connections are tested by rpc_test.c and tests/threads/rpc_main.c. */
#define _GNU_SOURCE
#include "cluster/memory/pipe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/check.h"

enum { SIZE = STRATA_PIPE_BYTES };

typedef struct ends {
    unsigned char *memory;
    strata_pipes client, server;
} ends;

static ends *open_ends(void) {
    ends *e = calloc(1, sizeof *e);
    e->memory = aligned_alloc(4096, STRATA_PIPES_BYTES);
    memset(e->memory, 0, STRATA_PIPES_BYTES);
    strata_pipes_begin(&e->client, e->memory, true);
    strata_pipes_begin(&e->server, e->memory, false);
    return e;
}

static void close_ends(ends *e) {
    free(e->memory);
    free(e);
}

static ssize_t send_bytes(strata_pipes *p, void *bytes, size_t n) {
    const struct iovec parts[3] = {{bytes, n / 3}, {NULL, 0}, {(char *)bytes + n / 3, n - n / 3}};
    return strata_pipes_send(p, parts, 3);
}

static ssize_t recv_bytes(strata_pipes *p, void *bytes, size_t n) {
    const struct iovec parts[3] = {{bytes, n / 2}, {NULL, 0}, {(char *)bytes + n / 2, n - n / 2}};
    return strata_pipes_recv(p, parts, 3);
}

Test(pipe, bytes_arrive_in_order_in_both_directions_and_past_the_end_of_the_memory) {
    ends *e = open_ends();
    strata_pipes *ways[2][2] = {{&e->client, &e->server}, {&e->server, &e->client}};
    unsigned char *data = malloc(SIZE), *got = malloc(SIZE);
    uint64_t random = 5, n_sent[2] = {0}, n_got[2] = {0};
    for (int i = 0; i < 20000; i++) {
        const int w = i % 2;
        const size_t n = strata_test_next(&random) % (i % 100 ? 300 : SIZE + 1);
        for (size_t k = 0; k < n; k++) data[k] = (unsigned char)((n_sent[w] + k) * 7 >> 3);
        const ssize_t sent = send_bytes(ways[w][0], data, n);
        cr_assert(sent >= 0 || errno == EAGAIN);
        n_sent[w] += sent > 0 ? (uint64_t)sent : 0;
        cr_assert_eq(strata_pipes_unread(ways[w][1]), n_sent[w] - n_got[w]);
        cr_assert_eq(strata_pipes_unsent(ways[w][0]), n_sent[w] - n_got[w]);
        const ssize_t there = recv_bytes(ways[w][1], got, strata_test_next(&random) % 400);
        cr_assert(there >= 0 || errno == EAGAIN);
        for (ssize_t k = 0; k < there; k++) cr_assert_eq(got[k], (unsigned char)((n_got[w] + (uint64_t)k) * 7 >> 3));
        n_got[w] += there > 0 ? (uint64_t)there : 0;
    }
    cr_assert_gt(n_got[0], 20 * SIZE);
    free(data);
    free(got);
    close_ends(e);
}

Test(pipe, positions_wrap_after_four_gigabytes, .timeout = 300) {
    ends *e = open_ends();
    uint64_t *data = malloc(SIZE), *got = malloc(SIZE), total = 0;
    memset(data, 3, SIZE);
    for (uint64_t i = 0; total < ((uint64_t)1 << 32) + 10 * SIZE; i++) {
        const size_t n = SIZE - 8 * (i % 5);
        data[0] = i;
        cr_assert_eq(send_bytes(&e->client, data, n), (ssize_t)n);
        cr_assert_eq(recv_bytes(&e->server, got, SIZE), (ssize_t)n);
        cr_assert_eq(got[0], i);
        total += n;
    }
    cr_assert_eq(recv_bytes(&e->server, got, SIZE), -1);
    cr_assert_eq(errno, EAGAIN);
    free(data);
    free(got);
    close_ends(e);
}

Test(pipe, a_full_pipe_takes_nothing_until_bytes_were_received) {
    ends *e = open_ends();
    unsigned char *data = calloc(2, SIZE);
    cr_assert_eq(send_bytes(&e->client, data, 2 * SIZE), SIZE);
    cr_assert_eq(send_bytes(&e->client, data, 1), -1);
    cr_assert_eq(errno, EAGAIN);
    cr_assert_eq(strata_pipes_wait(&e->client, POLLOUT, 1, false), 0);
    cr_assert_eq(strata_pipes_wait(&e->client, POLLIN, 0, true), 0);
    cr_assert_eq(recv_bytes(&e->server, data, 10), 10);
    cr_assert_eq(strata_pipes_wait(&e->client, POLLIN | POLLOUT, -1, false), POLLOUT);
    cr_assert_eq(send_bytes(&e->client, data, 100), 10);
    free(data);
    close_ends(e);
}

/* One side of a pipe. It sends n numbers and receives n. It has sent at most `ahead` more numbers than it has received. */
typedef struct player {
    strata_pipes *pipes;
    uint32_t n, ahead;
    bool may_spin, wrong;
} player;

static void *play(void *user) {
    player *p = user;
    uint32_t sent = 0, got = 0, value = 0;
    while ((got < p->n || sent < p->n) && !p->wrong) {
        while (sent < p->n && sent < got + p->ahead && send_bytes(p->pipes, &sent, sizeof sent) == sizeof sent) sent++;
        ssize_t n;
        while ((n = recv_bytes(p->pipes, &value, sizeof value)) == sizeof value) {
            if (value != got++) p->wrong = true;
        }
        if (n >= 0 || errno != EAGAIN) p->wrong = true;
        if (got < p->n && (sent == p->n || sent >= got + p->ahead)) strata_pipes_wait(p->pipes, POLLIN, -1, p->may_spin);
    }
    return NULL;
}

Test(pipe, no_wakeup_is_lost_between_two_threads_that_sleep_and_spin, .timeout = 300) {
    for (int way = 0; way < 6; way++) {
        ends *e = open_ends();
        pthread_t thread;
        player a = {&e->client, 20000, way / 2 ? way / 2 * 8 : 1, way % 2, false},
               b = {&e->server, 20000, way / 2 ? way / 2 * 8 : 1, way % 2, false};
        pthread_create(&thread, NULL, play, &a);
        play(&b);
        pthread_join(thread, NULL);
        cr_assert(!a.wrong && !b.wrong, "way %d", way);
        close_ends(e);
    }
}

/* Receives n bytes in small pieces. */
static void *drain(void *user) {
    player *p = user;
    char bytes[3000];
    for (uint64_t left = (uint64_t)p->n * SIZE; left;) {
        const ssize_t n = recv_bytes(p->pipes, bytes, sizeof bytes);
        if (n > 0)
            left -= (uint64_t)n;
        else
            strata_pipes_wait(p->pipes, POLLIN, -1, left % 2);
    }
    return NULL;
}

Test(pipe, a_thread_that_waits_for_room_is_woken, .timeout = 300) {
    ends *e = open_ends();
    unsigned char *data = calloc(1, SIZE);
    player reader = {.pipes = &e->server, .n = 200};
    pthread_t thread;
    pthread_create(&thread, NULL, drain, &reader);
    for (uint64_t left = (uint64_t)reader.n * SIZE; left;) {
        const ssize_t n = send_bytes(&e->client, data, left < SIZE ? left : SIZE);
        if (n > 0)
            left -= (uint64_t)n;
        else
            strata_pipes_wait(&e->client, POLLOUT, -1, false);
    }
    pthread_join(thread, NULL);
    free(data);
    close_ends(e);
}

static void *sleep_on_pipe(void *user) {
    player *p = user;
    strata_pipes_wait(p->pipes, POLLIN, -1, false);
    return NULL;
}

Test(pipe, ends_wake_all_threads_that_wait, .timeout = 300) {
    for (int way = 0; way < 4; way++) {
        enum { THREADS = 3 };
        ends *e = open_ends();
        player p = {.pipes = &e->client};
        pthread_t threads[THREADS];
        char byte;
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, sleep_on_pipe, &p);
        if (way % 2) usleep(20000); /* in half of the cases all threads sleep by now; otherwise they may just be starting */
        if (way < 2)
            strata_pipes_shut(&e->client, false);
        else
            strata_pipes_close(&e->client);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        cr_assert_eq(recv_bytes(&e->client, &byte, 1), 0);
        cr_assert_eq(send_bytes(&e->client, "x", 1), -1);
        cr_assert_eq(errno, EPIPE);
        close_ends(e);
    }
}

Test(pipe, what_was_sent_before_the_other_side_closed_is_received) {
    ends *e = open_ends();
    char bytes[8] = "";
    cr_assert_eq(send_bytes(&e->client, "leave", 6), 6);
    strata_pipes_close(&e->server);
    cr_assert_eq(strata_pipes_wait(&e->server, POLLIN, 0, false), POLLIN);
    cr_assert_eq(recv_bytes(&e->server, bytes, sizeof bytes), 6);
    cr_assert_str_eq(bytes, "leave");
    cr_assert_eq(recv_bytes(&e->server, bytes, sizeof bytes), 0);
    strata_pipes_shut(&e->client, true);
    cr_assert_eq(recv_bytes(&e->client, bytes, sizeof bytes), 0);
    cr_assert_eq(send_bytes(&e->client, "still", 6), 6); /* only receiving has ended */
    close_ends(e);
}

/* The other process may write anything to the shared memory at any time. No call may access memory outside of the pipes or
 * block, and an impossible position must be an error. */
Test(pipe, garbage_of_the_other_side_is_an_error_at_most, .timeout = 300) {
    unsigned char *data = malloc(SIZE);
    uint64_t random = 11;
    int n_damaged = 0;
    for (int round = 0; round < 3000; round++) {
        ends *e = open_ends();
        for (int step = 0; step < 8; step++) {
            const size_t at = strata_test_next(&random) % 512 / 4 * 4; /* the positions and bells are in the first 512 bytes */
            const uint64_t value = strata_test_next(&random) >> (strata_test_next(&random) % 64);
            memcpy(e->memory + at, &value, sizeof(uint32_t));
            if (round % 3 == 0) memset(e->memory, (int)value, 4096);
            const ssize_t sent = send_bytes(&e->server, data, strata_test_next(&random) % SIZE + 1);
            cr_assert(sent > 0 || errno == EAGAIN || errno == EBADMSG);
            n_damaged += sent < 0 && errno == EBADMSG;
            const ssize_t got = recv_bytes(&e->server, data, strata_test_next(&random) % SIZE + 1);
            cr_assert(got > 0 || errno == EAGAIN || errno == EBADMSG);
            n_damaged += got < 0 && errno == EBADMSG;
            strata_pipes_wait(&e->server, POLLIN | POLLOUT, 0, step % 2);
            cr_assert_leq(strata_pipes_unread(&e->server), SIZE);
            cr_assert_leq(strata_pipes_unsent(&e->server), SIZE);
        }
        close_ends(e);
    }
    cr_assert_gt(n_damaged, 1000);
    free(data);
}
