/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds free TCP ports for processes that start to listen later, or listen again after a restart. All ports are below the range
 * from which the kernel chooses ports of outgoing connections. Otherwise such a connection could take a port before a process
 * listens on it. The code is in a header because the programs of tests/threads do not link tests/support. */
#ifndef STRATA_TESTS_SUPPORT_PORTS_H
#define STRATA_TESTS_SUPPORT_PORTS_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TEST_FIRST_PORT = 10000, TEST_N_PORTS = 20000 };

/* Returns a port of 127.0.0.1 that is free now, and advances *in_out_next behind it. The caller sets *in_out_next to 0 before
 * its first call; the process id then determines where the search begins, so that processes rarely try the same ports. Returns
 * 0 where no port is free or no socket can be made. */
static inline uint16_t test_port(unsigned *in_out_next) {
    const int yes = 1;
    if (!*in_out_next) *in_out_next = 1 + (unsigned)getpid() * 61 % TEST_N_PORTS;
    for (int tries = 0; tries < 1000; tries++) {
        const uint16_t port = (uint16_t)(TEST_FIRST_PORT + (*in_out_next)++ % TEST_N_PORTS);
        const struct sockaddr_in at = {
            .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0) return 0;
        const int failed = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
                           bind(fd, (const struct sockaddr *)&at, sizeof at) || listen(fd, 1);
        close(fd);
        if (!failed) return port;
    }
    return 0;
}

/* Writes an address "127.0.0.1:PORT" for each of n tasks, with ports from test_port. Returns false where test_port fails. */
static inline bool test_addresses(unsigned *in_out_next, int n, char (*out)[32]) {
    for (int i = 0; i < n; i++) {
        const uint16_t port = test_port(in_out_next);
        if (!port) return false;
        snprintf(out[i], sizeof out[i], "127.0.0.1:%u", port);
    }
    return true;
}

#endif
