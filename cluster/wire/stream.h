/* SPDX-License-Identifier: Apache-2.0
 *
 * A connected socket, plain or under TLS 1.3. Functions that send and receive work in the same way for both. No function here
 * blocks. */
#ifndef STRATA_CLUSTER_WIRE_STREAM_H
#define STRATA_CLUSTER_WIRE_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "core/base/alloc.h"
#include "strata/cluster.h"

/* Room for an address as text. */
enum { STRATA_ADDRESS_BYTES = 72 };

typedef struct strata_tls_session strata_tls_session;

typedef struct strata_stream {
    /* Owned; -1: none. */
    int fd;
    /* Owned; NULL: the connection is not encrypted. */
    strata_tls_session *tls;
} strata_stream;

/* Like sendmsg and recvmsg: they return how many bytes were transferred, 0 if the other side has closed the connection, or -1
 * with errno. EAGAIN: the socket is not ready; a send must then be repeated with the same bytes. EPROTO: TLS has failed.
 * parts: at least one, none of them empty. */
ssize_t strata_stream_send(strata_stream *s, const struct iovec *parts, int n_parts);
ssize_t strata_stream_recv(strata_stream *s, const struct iovec *parts, int n_parts);
/* The events to poll for after EAGAIN; for a plain connection `otherwise`. A TLS handshake may have to send before it can
 * receive. */
short strata_stream_events(const strata_stream *s, short otherwise);
/* Why a call failed: strerror(error) or, for EPROTO, the reason that TLS reports. Valid as long as the stream. */
const char *strata_stream_problem(const strata_stream *s, int error);
void strata_stream_close(strata_stream *s); /* sets fd to -1; does nothing if it already is */

/* ---- TLS ---- */

/* The certificates and the key of this process, and the certificate authorities that it trusts. Threads: any, after it was
 * created. */
typedef struct strata_tls strata_tls;

/* *out_tls is NULL if opts names no certificate. Fails: INVALID or UNAVAILABLE if a file cannot be used; the message names
 * the file. */
STRATA_MUST_USE strata_status strata_tls_create(const strata_communicator_options *opts, strata_tls **out_tls,
                                                strata_error *err);
void strata_tls_destroy(strata_tls *tls); /* its streams must be closed before; NULL is fine */
/* Begins TLS on a new connection; the first sends and receives do the handshake. host: the host to which this side has
 * connected; NULL: the other side has connected to this one. */
STRATA_MUST_USE strata_status strata_tls_begin(const strata_tls *tls, strata_stream *s, const char *host, strata_error *err);
/* The alert "another protocol version, please". It is sent to a peer that does not use TLS; both a peer with TLS and one
 * without recognize it. */
enum { STRATA_TLS_ALERT_BYTES = 7 };
extern const unsigned char strata_tls_alert[STRATA_TLS_ALERT_BYTES];

#endif
