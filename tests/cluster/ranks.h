/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as threads: each runs the same function with its communicator. What a rank finds wrong it returns; assertions belong to
 * the caller. */
#ifndef STRATA_TESTS_CLUSTER_RANKS_H
#define STRATA_TESTS_CLUSTER_RANKS_H

#include "strata/cluster.h"
#include "tests/support/check.h"

enum { TEST_MOST_RANKS = 16 };

typedef strata_test_result (*test_rank)(strata_communicator *comm, const void *user);

/* Over "inproc", or over "shm", "tcp" or "tls" (tcp under TLS) through a store on this host with a secret. opts (NULL:
 * defaults) gives algorithm and seconds. The text of the first rank that found something begins with its number. */
strata_test_result test_ranks(const char *transport, int world, const strata_communicator_options *opts, test_rank run,
                              const void *user);

/* A port of this host that nobody listens on, as "127.0.0.1:20000". */
typedef struct test_address {
    char text[64];
} test_address;
test_address test_free_address(void);

/* Fails the rank's function with the error's text. */
#define TEST_TRY(call)                                                          \
    do {                                                                        \
        if (call) return strata_test_bad("line %d: %s", __LINE__, err.message); \
    } while (0)

#endif
