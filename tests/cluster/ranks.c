/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs ranks as threads, over any transport. */
#include "tests/cluster/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/certificate.h"
#include "tests/support/ports.h"

typedef struct rank {
    pthread_t thread;
    strata_communicator_options opts;
    strata_communicator *comm; /* NULL: the thread creates it */
    /* All threads wait here after their communicator was created. So a rank that fails finds all others in their functions. */
    pthread_barrier_t *all;
    test_rank run;
    const void *user;
    strata_test_result result;
} rank;

const char *test_transport(int t) {
    static const char *const names[] = {
#define TRANSPORT(name, chosen) #name,
#include "cluster/transport/transports.def"
        "tls"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], "mpi") != 0 && t-- == 0) return names[i];
    return NULL;
}

test_address test_free_address(void) {
    static unsigned next;
    const uint16_t port = test_port(&next);
    test_address out = {"no free port"};
    if (port) snprintf(out.text, sizeof out.text, "127.0.0.1:%u", port);
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
    const test_address address = test_free_address();
    if (local && strata_communicator_create_local(world, opts, comms, &err)) return strata_test_bad("%s", err.message);
    pthread_barrier_t all;
    pthread_barrier_init(&all, NULL, (unsigned)world);
    for (int r = 0; r < world; r++) {
        ranks[r] = (rank){.comm = comms[r], .all = &all, .run = run, .user = user};
        if (opts) ranks[r].opts = *opts;
        if (!ranks[r].opts.heartbeat_seconds) ranks[r].opts.heartbeat_seconds = TEST_CALM_HEARTBEAT;
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
