/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs ranks as threads. Each thread calls the same function with its communicator. The function returns the result of its
 * checks, because assertions of the test framework work only in the caller's thread. */
#ifndef STRATA_TESTS_CLUSTER_RANKS_H
#define STRATA_TESTS_CLUSTER_RANKS_H

#include "strata/cluster.h"
#include "tests/support/check.h"
#include "tests/support/patience.h"

enum { TEST_MOST_RANKS = 16 };

typedef strata_test_result (*test_rank)(strata_communicator *comm, const void *user);

/* Transport t of those over which test_ranks runs ranks: those of cluster/transport/transports.def, of which "inproc" is the
 * first, and "tls", the last. That of MPI is missing, as it needs its launcher (tests/threads/mpi_main.c). NULL: there are no
 * more. */
const char *test_transport(int t);

/* Runs `world` ranks over the transport, or for "tls" over tcp under TLS, with a store on this host and a secret. `opts`
 * contains the algorithm and timeouts; NULL: defaults. Ranks send heartbeats so rarely that none is lost by its silence.
 * Returns the result of the first rank whose checks failed. Its text begins with the number of the rank. */
strata_test_result test_ranks(const char *transport, int world, const strata_communicator_options *opts, test_rank run,
                              const void *user);

/* The address of a free port of this host, such as "127.0.0.1:20000". */
typedef struct test_address {
    char text[64];
} test_address;
test_address test_free_address(void);

/* When the call fails, returns from the rank's function with the text of the error. */
#define TEST_TRY(call)                                                          \
    do {                                                                        \
        if (call) return strata_test_bad("line %d: %s", __LINE__, err.message); \
    } while (0)

#endif
