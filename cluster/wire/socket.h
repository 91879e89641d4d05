/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses as text, and sockets that listen, connect and do the handshake. They support IPv4 and IPv6. */
#ifndef STRATA_CLUSTER_WIRE_SOCKET_H
#define STRATA_CLUSTER_WIRE_SOCKET_H

#include "cluster/wire/handshake.h"
#include "cluster/wire/stream.h"

/* What a process uses to prove its identity to others. */
typedef struct strata_credentials {
    const void *secret;
    size_t secret_bytes;
    /* NULL: connections are not encrypted. */
    const strata_tls *tls;
} strata_credentials;

/* Splits "host:port" or "[v6]:port". For any other text it fails with INVALID; the message has an example. */
STRATA_MUST_USE strata_status strata_address_split(const char *address, char out_host[256], char out_port[8],
                                                   strata_error *err);

/* On which addresses a socket listens. */
typedef enum strata_listen {
    /* The first address of the host. */
    STRATA_LISTEN_HOST,
    /* The first address of the host, or all addresses if that is not one of this machine, since it is the name of a service. */
    STRATA_LISTEN_SERVICE,
    /* All addresses, unless the host is an address or "localhost". On other hosts a name may stand for another address than on
     * this one, whose own name is often 127.0.1.1. */
    STRATA_LISTEN_NAME
} strata_listen;

/* Listens on host and port ("0": any that is free). *out_beyond: whether other hosts can connect. A host name that cannot be
 * resolved is tried again until the deadline. Fails: INVALID if the port is in use or may not be used, or if the address is not
 * one of this host; UNAVAILABLE. */
STRATA_MUST_USE strata_status strata_socket_listen(const char *host, const char *port, strata_listen where, double deadline,
                                                   int *out_fd, bool *out_beyond, strata_error *err);
/* Finds the address of the network interface with this name. If `name` is an address, it is copied. Fails: UNAVAILABLE; the
 * message lists the interfaces. */
STRATA_MUST_USE strata_status strata_interface_address(const char *name, char out_host[256], strata_error *err);
/* The local address of a socket as "host:port", or only the host if with_port is false. */
void strata_socket_address(int fd, bool with_port, char out[STRATA_ADDRESS_BYTES]);
/* The numerical address of a connection's other side; "?" if it is not connected any more. */
void strata_socket_peer(int fd, char out[STRATA_ADDRESS_BYTES]);

/* Connects, under TLS if the credentials have it, and does the handshake. If nobody listens there, tries again until
 * `deadline` (strata_clock_seconds). The socket does not block, and reports within 8 s that its other side is lost. Fails:
 * TIMEOUT; UNAVAILABLE, also when one side refuses the other. */
STRATA_MUST_USE strata_status strata_socket_connect(const char *address, const strata_hello *hello,
                                                    const strata_credentials *credentials, double deadline,
                                                    strata_stream *out_stream, strata_error *err);
/* Sets the same socket options as strata_socket_connect. */
void strata_socket_prepare(int fd);

#endif
