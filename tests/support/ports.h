/* SPDX-License-Identifier: Apache-2.0
 *
 * Ports for processes that listen later, or again. They lie below those that the kernel gives to outgoing connections, one of
 * which could take a port while nobody listens on it. In a header, as the programs of tests/threads link nothing of
 * tests/support. */
#ifndef STRATA_TESTS_SUPPORT_PORTS_H
#define STRATA_TESTS_SUPPORT_PORTS_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TEST_FIRST_PORT = 10000, TEST_N_PORTS = 20000 };

/* A port of 127.0.0.1 that is free now, from *in_out_next on, which the caller sets to 0 before the first; 0: there are no
 * sockets here. Processes begin in different places. */
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

/* "127.0.0.1:PORT" for each of n tasks, with ports as test_port gives them; false: there are no sockets here. */
static inline bool test_addresses(unsigned *in_out_next, int n, char (*out)[32]) {
    for (int i = 0; i < n; i++) {
        const uint16_t port = test_port(in_out_next);
        if (!port) return false;
        snprintf(out[i], sizeof out[i], "127.0.0.1:%u", port);
    }
    return true;
}

#endif
