/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that are ranks, over any transport. */
#include "tests/cluster/ranks.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/certificate.h"

typedef struct rank {
    pthread_t thread;
    strata_communicator_options opts;
    strata_communicator *comm; /* NULL: made by the thread */
    pthread_barrier_t *all;    /* have been created: a failure that one makes then finds all of them in their function */
    test_rank run;
    const void *user;
    strata_test_result result;
} rank;

test_address test_free_address(const char *host) {
    const bool v6 = strchr(host, ':') != NULL;
    struct sockaddr_in v4_address = {.sin_family = AF_INET};
    struct sockaddr_in6 v6_address = {.sin6_family = AF_INET6};
    struct sockaddr *address = v6 ? (struct sockaddr *)&v6_address : (struct sockaddr *)&v4_address;
    socklen_t size = v6 ? sizeof v6_address : sizeof v4_address;
    inet_pton(address->sa_family, host, v6 ? (void *)&v6_address.sin6_addr : (void *)&v4_address.sin_addr);
    test_address out = {"no free port"};
    const int fd = socket(address->sa_family, SOCK_STREAM, 0);
    if (fd >= 0 && !bind(fd, address, size) && !getsockname(fd, address, &size))
        snprintf(out.text, sizeof out.text, v6 ? "[%s]:%d" : "%s:%d", host,
                 ntohs(v6 ? v6_address.sin6_port : v4_address.sin_port));
    if (fd >= 0) close(fd);
    return out;
}

static void *start(void *user) {
    rank *r = user;
    strata_error err = {0};
    r->result = strata_test_ok();
    const strata_status status = r->comm ? STRATA_OK : strata_communicator_create(&r->opts, &r->comm, &err);
    pthread_barrier_wait(r->all);
    if (status)
        r->result = strata_test_bad("create: %s", err.message);
    else
        r->result = r->run(r->comm, r->user);
    strata_communicator_destroy(r->comm);
    return NULL;
}

strata_test_result test_ranks(const char *transport, int world, const strata_communicator_options *opts, test_rank run,
                              const void *user) {
    static const char secret[] = "a secret of tests";
    strata_communicator *comms[TEST_MOST_RANKS] = {0};
    rank ranks[TEST_MOST_RANKS] = {0};
    strata_error err = {0};
    const bool local = !strcmp(transport, "inproc"), tls = !strcmp(transport, "tls");
    char certificate[TEST_CERTIFICATE_BYTES];
    if (tls) test_certificate_make(certificate);
    const test_address address = test_free_address("127.0.0.1");
    if (local && strata_communicator_create_local(world, opts, comms, &err)) return strata_test_bad("%s", err.message);
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)world);
    for (int r = 0; r < world; r++) {
        ranks[r] = (rank){.comm = comms[r], .all = &all, .run = run, .user = user};
        if (opts) ranks[r].opts = *opts;
        ranks[r].opts.rank = r;
        ranks[r].opts.world = world;
        ranks[r].opts.store = address.text;
        ranks[r].opts.transport = tls ? "tcp" : transport;
        ranks[r].opts.tls_cert = ranks[r].opts.tls_ca = tls ? certificate : NULL;
        ranks[r].opts.secret = secret;
        ranks[r].opts.secret_bytes = sizeof secret;
        if (pthread_create(&ranks[r].thread, NULL, start, &ranks[r])) return strata_test_bad("no thread for rank %d", r);
    }
    for (int r = 0; r < world; r++) pthread_join(ranks[r].thread, NULL);
    pthread_barrier_destroy(&all);
    if (tls) unlink(certificate);
    for (int r = 0; r < world; r++)
        if (!ranks[r].result.ok) return strata_test_bad("rank %d of %d: %s", r, world, ranks[r].result.text);
    return strata_test_ok();
}
