/* SPDX-License-Identifier: Apache-2.0
 *
 * On which addresses and ports the ranks of a job listen. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/wire/socket.h"
#include "core/base/clock.h"
#include "strata/cluster.h"
#include "tests/support/patience.h"

/* Binds a port of the loopback address. Returns the socket; -1: the port is in use. */
static int bind_port(int *port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)*port)};
    socklen_t n = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, n) || getsockname(fd, (struct sockaddr *)&address, &n)) {
        close(fd);
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

static int free_port(void) {
    int port = 0;
    close(bind_port(&port));
    return port;
}

typedef struct rank {
    strata_communicator_options opts;
    strata_communicator *comm;
    strata_error err;
    strata_status status;
} rank;

static void *join(void *user) {
    rank *r = user;
    r->status = strata_communicator_create(&r->opts, &r->comm, &r->err);
    return NULL;
}

Test(listen, each_rank_listens_at_its_listed_port) {
    const int ports[] = {free_port(), free_port()};
    char addresses[2][32];
    pthread_t threads[2];
    rank ranks[2];
    for (int r = 0; r < 2; r++) snprintf(addresses[r], sizeof addresses[r], "127.0.0.1:%d", ports[r]);
    for (int r = 0; r < 2; r++) {
        ranks[r] = (rank){.opts = {.rank = r, .world = 2, .store = addresses[0], .address = addresses[r], .transport = "tcp"}};
        pthread_create(&threads[r], NULL, join, &ranks[r]);
    }
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        int port = ports[r];
        cr_assert_eq(ranks[r].status, STRATA_OK, "%s", ranks[r].err.message);
        cr_assert_eq(bind_port(&port), -1, "nobody listens at the port of rank %d", r);
    }
    for (int r = 1; r >= 0; r--) strata_communicator_destroy(ranks[r].comm);
}

/* The host's own name is often 127.0.1.1 on this host and another address on the others. */
Test(listen, a_name_listens_on_all_addresses_and_an_address_on_itself) {
    static const struct {
        const char *host;
        strata_listen where;
        const char *begins;
        bool beyond;
    } rows[] = {
        {"a.name.that.nobody.knows", STRATA_LISTEN_NAME, "[::]:", true},
        {"127.0.0.1", STRATA_LISTEN_NAME, "127.0.0.1:", false},
        {"127.0.0.1", STRATA_LISTEN_SERVICE, "127.0.0.1:", false},
        {"192.0.2.1", STRATA_LISTEN_SERVICE, "[::]:", true}, /* of a service (RFC 5737: not of this machine) */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char address[STRATA_ADDRESS_BYTES];
        strata_error err = {0};
        int fd = -1;
        const strata_communicator_options opts = {.insecure = true}, closed = {0};
        cr_assert_eq(strata_socket_listen(&opts, rows[i].host, "0", rows[i].where, strata_clock_seconds(), &fd, &err),
                     STRATA_OK, "%s: %s", rows[i].host, err.message);
        strata_socket_address(fd, true, address);
        const bool everywhere = !strncmp(address, "[::]:", 5) || !strncmp(address, "0.0.0.0:", 8);
        cr_assert(!strncmp(address, rows[i].begins, strlen(rows[i].begins)) || (rows[i].beyond && everywhere), "%s: %s",
                  rows[i].host, address);
        close(fd);
        const strata_status without =
            strata_socket_listen(&closed, rows[i].host, "0", rows[i].where, strata_clock_seconds(), &fd, &err);
        cr_assert_eq(without == STRATA_OK, !rows[i].beyond, "%s: %s", rows[i].host, err.message);
        if (!without) close(fd);
    }
}

Test(listen, a_rank_0_for_which_others_wait_in_vain_says_where_it_listens) {
    char address[32];
    strata_error err = {0};
    strata_communicator *comm = NULL;
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
    const strata_communicator_options opts = {.world = 2, .store = address, .connect_seconds = 1};
    cr_assert_eq(strata_communicator_create(&opts, &comm, &err), STRATA_TIMEOUT);
    cr_assert_not_null(strstr(err.message, address), "%s", err.message);
    cr_assert_not_null(strstr(err.message, "which no other host reaches"), "%s", err.message);
}

/* What the user has to change is said: the port, or the address. */
Test(listen, a_port_in_use_and_an_address_of_another_host_are_errors_of_the_user) {
    char address[32];
    strata_error err = {0};
    strata_communicator *comm = NULL;
    int port = 0;
    const int taken = bind_port(&port);
    listen(taken, 1);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    const strata_communicator_options opts = {.world = 2, .store = address, .connect_seconds = TEST_PATIENCE};
    cr_assert_eq(strata_communicator_create(&opts, &comm, &err), STRATA_INVALID, "%s", err.message);
    cr_assert_not_null(strstr(err.message, address), "%s", err.message);
    cr_assert_not_null(strstr(err.message, "another process listens there"), "%s", err.message);
    close(taken);
    int fd = -1;
    const strata_communicator_options any = {.insecure = true};
    const double now = strata_clock_seconds();
    cr_assert_eq(strata_socket_listen(&any, "192.0.2.1", "0", STRATA_LISTEN_HOST, now, &fd, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "no interface of this host"), "%s", err.message);
}
