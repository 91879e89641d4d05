/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0 waits for rank 1 without success. Its error must report the connections that it refused meanwhile: ranks with
 * another secret, another number of ranks or TLS, and connections that do not belong to the job. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/cluster/ranks.h"

static const char wrong_secret[] =
    "127.0.0.1: the other side does not know our secret: give all ranks the same one (STRATA_SECRET)";

/* Rank 0 of 2, which runs in its own thread. */
typedef struct waiting {
    pthread_t thread;
    test_address store;
    strata_status status;
    strata_error err;
    /* For the last test: the options of both ranks, and the status of rank 1. */
    const struct options_row *row;
    strata_status other;
} waiting;

static strata_communicator_options options_of(const waiting *w, int rank) {
    return (strata_communicator_options){
        .rank = rank, .world = 2, .store = w->store.text, .secret = "ours", .secret_bytes = 4, .connect_seconds = 8};
}

static void *wait_for_rank_1(void *user) {
    waiting *w = user;
    strata_communicator *comm;
    const strata_communicator_options opts = options_of(w, 0);
    w->status = strata_communicator_create(&opts, &comm, &w->err);
    if (!w->status) strata_communicator_destroy(comm);
    return NULL;
}

static void begin(waiting *w) {
    *w = (waiting){.store = test_free_address()};
    cr_assert_eq(pthread_create(&w->thread, NULL, wait_for_rank_1, w), 0);
}

/* Expects the error about rank 1, which ends with `text`. */
static void expect_end(waiting *w, const char *text) {
    pthread_join(w->thread, NULL);
    cr_assert_eq(w->status, STRATA_TIMEOUT, "%s", w->err.message);
    const char *told = strstr(w->err.message, "1 of 2 ranks did not come within 8 s: rank 1");
    cr_assert_not_null(told, "%s", w->err.message);
    const size_t n = strlen(w->err.message), n_text = strlen(text);
    cr_assert(n >= n_text && !strcmp(w->err.message + n - n_text, text), "%s", w->err.message);
}

static strata_status come(const strata_communicator_options *opts, strata_error *err) {
    strata_communicator *comm;
    const strata_status status = strata_communicator_create(opts, &comm, err);
    if (!status) strata_communicator_destroy(comm);
    return status;
}

static void come_with_another_secret(const waiting *w) {
    strata_error err = {0};
    strata_communicator_options opts = options_of(w, 1);
    opts.secret = "another";
    opts.secret_bytes = 7;
    cr_assert_eq(come(&opts, &err), STRATA_UNAVAILABLE, "%s", err.message);
}

/* Sends 64 bytes that begin with `word`. Returns when rank 0 has closed the connection. */
static void knock(const waiting *w, const char *word) {
    char bytes[64] = {0};
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)atoi(strchr(w->store.text, ':') + 1)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memcpy(bytes, word, strlen(word));
    int fd = -1, joined = -1;
    for (int i = 0; i < 2000 && joined; i++) { /* tries until rank 0 listens */
        if (fd >= 0) close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        joined = connect(fd, (const struct sockaddr *)&address, sizeof address);
        if (joined) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    cr_assert_eq(joined, 0);
    cr_assert_eq(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
}

Test(refused, nobody_came_and_nobody_is_told_of) {
    waiting w;
    begin(&w);
    expect_end(&w, ", which no other host reaches");
}

Test(refused, a_rank_with_another_secret_is_told_of_and_strangers_do_not_hide_it) {
    waiting w;
    begin(&w);
    come_with_another_secret(&w);
    for (int i = 0; i < 3; i++) knock(&w, "GET / HTTP/1.1\r\n");
    expect_end(&w, wrong_secret);
    cr_assert_not_null(strstr(w.err.message, "; connections refused: 5, the last from 127.0.0.1"), "%s", w.err.message);
}

Test(refused, strangers_alone_are_a_count) {
    waiting w;
    begin(&w);
    for (int i = 0; i < 30; i++) knock(&w, i % 2 ? "GET / HTTP/1.1\r\n" : "STRATA0\n");
    expect_end(&w, "; connections refused: 30, which did not speak as a Strata of this version");
}

Test(refused, a_rank_of_another_world_is_told_of) {
    waiting w;
    strata_error err = {0};
    begin(&w);
    strata_communicator_options opts = options_of(&w, 1);
    opts.world = 3;
    cr_assert_eq(come(&opts, &err), STRATA_INVALID, "%s", err.message);
    expect_end(
        &w,
        "; connections refused: 1, the last from 127.0.0.1: rank 1 of 3 came to a job of 2 ranks: all must give the same "
        "world");
}

Test(refused, a_rank_that_begins_tls_is_told_of) {
    waiting w;
    begin(&w);
    knock(&w, "\x16\x03\x01");
    expect_end(&w, "; connections refused: 1, the last from 127.0.0.1: it uses TLS and this process does not: all must");
}

/* ---- ranks with other options ---- */

typedef struct options_row {
    const char *transports[2], *algorithms[2];
    const char *text;
} options_row;

static void *come_as_rank_1(void *user) {
    waiting *w = user;
    strata_error err = {0};
    strata_communicator_options opts = options_of(w, 1);
    const options_row *row = w->row;
    opts.transport = row->transports[1];
    opts.algorithm = row->algorithms[1];
    w->other = come(&opts, &err);
    if (!strstr(err.message, row->text)) w->other = STRATA_OK;
    return NULL;
}

/* They would wait for each other, for minutes or until a collective. */
Test(refused, ranks_with_another_transport_or_algorithm_are_told_at_once) {
    static const options_row rows[] = {
        {{"shm", "tcp"}, {NULL}, "the transport is tcp on rank 1 ("},
        {{NULL, "tcp"}, {NULL}, ") and auto on rank 0 ("},
        {{"tcp", NULL}, {NULL}, "give all ranks the same (--transport, --engine)"},
        {{NULL}, {"ring", "two_shot"}, "the algorithm is two_shot on rank 1 ("},
        {{NULL}, {"ring", NULL}, ") and ring on rank 0 ("},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        waiting w = {.store = test_free_address(), .row = &rows[i]};
        strata_error err = {0};
        strata_communicator_options opts = options_of(&w, 0);
        opts.connect_seconds = 10 * TEST_PATIENCE;
        opts.transport = rows[i].transports[0];
        opts.algorithm = rows[i].algorithms[0];
        const double began = strata_clock_seconds();
        cr_assert_eq(pthread_create(&w.thread, NULL, come_as_rank_1, &w), 0);
        cr_assert_eq(come(&opts, &err), STRATA_INVALID, "%s", err.message);
        pthread_join(w.thread, NULL);
        cr_assert(strstr(err.message, rows[i].text), "%s", err.message);
        cr_assert_eq(w.other, STRATA_INVALID, "rank 1 has another error");
        cr_assert_lt(strata_clock_seconds() - began, TEST_PATIENCE);
    }
}
