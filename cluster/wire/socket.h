/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses as text, and sockets that listen, connect and shake hands. IPv4 and IPv6. */
#ifndef STRATA_CLUSTER_WIRE_SOCKET_H
#define STRATA_CLUSTER_WIRE_SOCKET_H

#include "cluster/transport.h"
#include "cluster/wire/handshake.h"
#include "cluster/wire/stream.h"

/* What a process shows to the others. */
typedef struct strata_credentials {
    const void *secret;
    size_t secret_bytes;
    /* NULL: none. */
    const strata_tls *tls;
} strata_credentials;

/* Splits "host:port" or "[v6]:port". INVALID, with an example, for anything else. */
STRATA_MUST_USE strata_status strata_address_split(const char *address, char out_host[256], char out_port[8],
                                                   strata_error *err);

/* Listens on host and port ("0": any that is free); *out_beyond tells whether others than this host may come. Where the host's
 * address is not on this machine (a service's name) and `anywhere` is set, on all addresses. A host that nobody knows is asked
 * for again until the deadline.
 * Fails: UNAVAILABLE. */
STRATA_MUST_USE strata_status strata_socket_listen(const char *host, const char *port, bool anywhere, double deadline,
                                                   int *out_fd, bool *out_beyond, strata_error *err);
/* The address of an interface's name, or the text itself. UNAVAILABLE, with the names there are. */
STRATA_MUST_USE strata_status strata_interface_address(const char *name, char out_host[256], strata_error *err);
/* Where a socket is bound, as "host:port"; host alone when port is not wanted. */
void strata_socket_address(int fd, bool with_port, char out[STRATA_ADDRESS_BYTES]);
/* The host of a connection's other side, as a number; "?" where it is gone. */
void strata_socket_peer(int fd, char out[STRATA_ADDRESS_BYTES]);

/* Connects, under TLS where we have it, and shakes hands; tries again while nobody listens there, until `deadline`
 * (strata_clock_seconds). The socket does not block, and notices within 8 s that its other side is gone. Fails: TIMEOUT;
 * UNAVAILABLE, also when one side refuses the other. */
STRATA_MUST_USE strata_status strata_socket_connect(const char *address, const strata_hello *hello,
                                                    const strata_credentials *credentials, double deadline,
                                                    strata_stream *out_stream, strata_error *err);
/* As connect leaves it. */
void strata_socket_prepare(int fd);

#endif
