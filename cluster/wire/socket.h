/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses as text, and sockets that listen, connect and do the handshake. They support IPv4 and IPv6. */
#ifndef STRATA_CLUSTER_WIRE_SOCKET_H
#define STRATA_CLUSTER_WIRE_SOCKET_H

#include "cluster/wire/handshake.h"
#include "cluster/wire/stream.h"

/* What a process uses to prove its identity to others. */
typedef struct strata_credentials {
    /* Owned. */
    char *secret;
    size_t secret_bytes;
    /* Owned; NULL: connections are not encrypted. */
    strata_tls *tls;
} strata_credentials;

/* Copies the secret and reads the TLS files of the options. Also checks heartbeat_seconds and connect_seconds. Fails: INVALID;
 * UNAVAILABLE if a file cannot be used; then there is nothing to finish. */
STRATA_MUST_USE strata_status strata_credentials_init(strata_credentials *credentials, const strata_communicator_options *opts,
                                                      strata_error *err);
void strata_credentials_finish(strata_credentials *credentials);

/* Splits "host:port" or "[v6]:port". For any other text it fails with INVALID; the message has an example. */
STRATA_MUST_USE strata_status strata_address_split(const char *address, char out_host[256], char out_port[8],
                                                   strata_error *err);

/* On which addresses a socket listens. */
typedef enum strata_listen {
    /* The first address of the host. */
    STRATA_LISTEN_HOST,
    /* The first address of the host, or all addresses if that is not one of this machine, since it is the name of a service. */
    STRATA_LISTEN_SERVICE,
    /* With a secret or `insecure`: all addresses, unless the host is an address or "localhost". On other hosts a name may stand
     * for another address than on this one, whose own name is often 127.0.1.1. Otherwise as SERVICE. */
    STRATA_LISTEN_NAME
} strata_listen;

/* Listens on the host, or on the interface of the options, and the port ("0": any that is free). A host name that cannot be
 * resolved is tried again until the deadline. Fails: INVALID if the port is in use or may not be used, if the address is not
 * one of this host, or if other hosts can connect and the options have neither a secret nor `insecure`; UNAVAILABLE. */
STRATA_MUST_USE strata_status strata_socket_listen(const strata_communicator_options *opts, const char *host, const char *port,
                                                   strata_listen where, double deadline, int *out_fd, strata_error *err);
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
/* A handshake on a new connection, which does not wait. */
typedef struct strata_shaking {
    strata_handshake handshake;
    unsigned char in[STRATA_HANDSHAKE_BYTES], out[STRATA_HANDSHAKE_BYTES];
    size_t n_in, n_out, n_sent;
} strata_shaking;

/* Begins TLS, if the credentials (borrowed) have it, and the handshake. A client passes its hello and the host that it connects
 * to, a server NULL for both. */
STRATA_MUST_USE strata_status strata_shaking_begin(strata_shaking *shaking, strata_stream *stream, const strata_hello *hello,
                                                   const char *host, const strata_credentials *credentials, strata_error *err);
/* Sends and receives what is possible now. *out_events: what to poll for before the next call; 0: it is done. Fails: PEER_LOST
 * when the connection ended; UNAVAILABLE when one side refuses the other; DATA if the other side does not speak Strata's
 * protocol. */
STRATA_MUST_USE strata_status strata_shaking_continue(strata_shaking *shaking, strata_stream *stream, short *out_events,
                                                      strata_error *err);
/* Sets the same socket options as strata_socket_connect. */
void strata_socket_prepare(int fd);

#endif
