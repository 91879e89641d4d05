/* SPDX-License-Identifier: Apache-2.0
 *
 * A connected socket, plain or under TLS 1.3. Whoever sends and receives does not see which; nothing here blocks. */
#ifndef STRATA_CLUSTER_WIRE_STREAM_H
#define STRATA_CLUSTER_WIRE_STREAM_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "strata/cluster.h"

typedef struct strata_tls_session strata_tls_session;

typedef struct strata_stream {
    /* Owned; -1: none. */
    int fd;
    /* Owned; NULL: plain. */
    strata_tls_session *tls;
} strata_stream;

/* As sendmsg and recvmsg: how many bytes were moved, 0 from a side that closed, or -1 with errno: EAGAIN; EPROTO where TLS
 * ended it. A send that met EAGAIN is tried again with the same bytes. parts: at least one, none empty. */
ssize_t strata_stream_send(strata_stream *s, const struct iovec *parts, int n_parts);
ssize_t strata_stream_recv(strata_stream *s, const struct iovec *parts, int n_parts);
/* What to poll for after EAGAIN; `otherwise` for plain ones. A TLS handshake may have to send before it can receive. */
short strata_stream_events(const strata_stream *s, short otherwise);
/* Why a call failed: strerror(error), or what TLS says where it is EPROTO. Valid while the stream is. */
const char *strata_stream_problem(const strata_stream *s, int error);
void strata_stream_close(strata_stream *s); /* leaves -1; one of -1 is fine */

/* ---- TLS ---- */

/* Certificates and key of this process, and whose others it believes. Threads: any, once made. */
typedef struct strata_tls strata_tls;

/* *out_tls is NULL where opts names no certificate. Fails: INVALID, UNAVAILABLE, with the file, for what cannot be used. */
STRATA_MUST_USE strata_status strata_tls_create(const strata_communicator_options *opts, strata_tls **out_tls,
                                                strata_error *err);
void strata_tls_destroy(strata_tls *tls); /* after its streams; NULL is fine */
/* Puts a fresh connection under TLS; the handshake is done by the first sends and receives. host: the one that was dialled,
 * NULL: we were. */
STRATA_MUST_USE strata_status strata_tls_begin(const strata_tls *tls, strata_stream *s, const char *host, strata_error *err);
/* The alert that a side which wants TLS and one which does not understand alike: "another protocol, please". */
enum { STRATA_TLS_ALERT_BYTES = 7 };
extern const unsigned char strata_tls_alert[STRATA_TLS_ALERT_BYTES];

#endif
