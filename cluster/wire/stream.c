/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams. TLS is that of OpenSSL, with a BIO (its interface to the socket) of our own, because OpenSSL's BIO writes with
 * write(2), which raises SIGPIPE. */
#define _GNU_SOURCE
#include "cluster/wire/stream.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/locale.h"

enum { RECORD = 16 << 10 }; /* the most payload bytes of a TLS record */
/* The most bytes that are encrypted with one key. AES-GCM is safe for 2^24.5 records (RFC 8446, 5.5). */
static const uint64_t KEY_BYTES = (uint64_t)64 << 30;

struct strata_tls {
    SSL_CTX *context;
    BIO_METHOD *socket;
    char name[256]; /* the name that all certificates must have; "": the name of the host */
};

struct strata_tls_session {
    SSL *ssl;
    int fd;
    bool closed; /* the other side has closed the connection */
    bool broken; /* TLS has failed; `problem`: why */
    short events;
    uint64_t key_bytes;
    char problem[200];
};

/* a fatal alert: protocol_version */
const unsigned char strata_tls_alert[STRATA_TLS_ALERT_BYTES] = {0x15, 3, 3, 0, 2, 2, 70};

/* ---- the socket under OpenSSL ---- */

static int socket_write(BIO *bio, const char *bytes, int n) {
    const strata_tls_session *session = BIO_get_data(bio);
    const ssize_t done = send(session->fd, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return (int)done;
}

static int socket_read(BIO *bio, char *bytes, int n) {
    strata_tls_session *session = BIO_get_data(bio);
    const ssize_t done = recv(session->fd, bytes, (size_t)n, MSG_DONTWAIT);
    BIO_clear_retry_flags(bio);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    session->closed = !done;
    return (int)done;
}

static long socket_control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* ---- certificates ---- */

/* The reason of OpenSSL's last error, such as "no such file". Clears OpenSSL's queue of errors. */
static const char *reason(void) {
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    return text ? text : "OpenSSL does not say why";
}

static strata_status load(strata_tls *tls, const strata_communicator_options *opts, strata_error *err) {
    const char *key = opts->tls_key ? opts->tls_key : opts->tls_cert;
    SSL_CTX *c = tls->context;
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(c, opts->tls_cert) != 1)
        return strata_fail(err, STRATA_UNAVAILABLE, "the certificate in %s cannot be used: %s", opts->tls_cert, reason());
    if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1)
        return strata_fail(err, STRATA_UNAVAILABLE, "the key in %s cannot be used with the certificate in %s: %s", key,
                           opts->tls_cert, reason());
    if (SSL_CTX_load_verify_locations(c, opts->tls_ca, NULL) != 1)
        return strata_fail(err, STRATA_UNAVAILABLE, "the authorities in %s cannot be used: %s", opts->tls_ca, reason());
    return STRATA_OK;
}

strata_status strata_tls_create(const strata_communicator_options *opts, strata_tls **out_tls, strata_error *err) {
    *out_tls = NULL;
    if (!opts->tls_cert && !opts->tls_key && !opts->tls_ca && !opts->tls_name) return STRATA_OK;
    if (!opts->tls_cert || !opts->tls_ca)
        return strata_fail(err, STRATA_INVALID, "TLS needs a certificate and the authorities to believe: %s is missing",
                           opts->tls_cert ? "tls_ca" : "tls_cert");
    if (opts->tls_name && (!*opts->tls_name || strlen(opts->tls_name) > 255))
        return strata_fail(err, STRATA_INVALID, "tls_name has %zu bytes; it must have 1 to 255", strlen(opts->tls_name));
    strata_tls *tls = calloc(1, sizeof *tls);
    if (!tls) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for TLS");
    if (opts->tls_name) strcpy(tls->name, opts->tls_name);
    tls->context = SSL_CTX_new(TLS_method());
    tls->socket = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "strata");
    strata_status status = STRATA_OK;
    if (!tls->context || !tls->socket || SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION) != 1)
        status = strata_fail(err, STRATA_UNSUPPORTED, "this OpenSSL has no TLS 1.3: %s", reason());
    if (!status) {
        BIO_meth_set_write(tls->socket, socket_write);
        BIO_meth_set_read(tls->socket, socket_read);
        BIO_meth_set_ctrl(tls->socket, socket_control);
        SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        SSL_CTX_set_mode(tls->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_num_tickets(tls->context, 0); /* sessions are never resumed */
        status = load(tls, opts, err);
    }
    if (status)
        strata_tls_destroy(tls);
    else
        *out_tls = tls;
    return status;
}

void strata_tls_destroy(strata_tls *tls) {
    if (!tls) return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->socket);
    free(tls);
}

/* ---- a session ---- */

/* Sets the name or address that the other side's certificate must have. */
static bool expect_name(SSL *ssl, const char *name) {
    X509_VERIFY_PARAM *verify = SSL_get0_param(ssl);
    X509_VERIFY_PARAM_set_hostflags(verify, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_ip_asc(verify, name) || X509_VERIFY_PARAM_set1_host(verify, name, 0);
}

strata_status strata_tls_begin(const strata_tls *tls, strata_stream *s, const char *host, strata_error *err) {
    strata_tls_session *session = calloc(1, sizeof *session);
    SSL *ssl = session ? SSL_new(tls->context) : NULL;
    BIO *bio = ssl ? BIO_new(tls->socket) : NULL;
    const char *name = *tls->name ? tls->name : host;
    if (!bio || (name && !expect_name(ssl, name))) {
        BIO_free(bio);
        SSL_free(ssl);
        free(session);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a connection under TLS");
    }
    session->ssl = ssl;
    session->fd = s->fd;
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (host)
        SSL_set_connect_state(ssl);
    else
        SSL_set_accept_state(ssl);
    s->tls = session;
    return STRATA_OK;
}

/* Describes an alert that the other side has sent. OpenSSL's reason code for an alert is SSL_AD_REASON_OFFSET (1000) plus its
 * number. */
static const char *meaning_of(int alert) {
    switch (alert) {
        case SSL_AD_PROTOCOL_VERSION:
            return "it does not use TLS, or not version 1.3: all ranks must";
        case SSL_AD_BAD_CERTIFICATE:
        case SSL_AD_UNSUPPORTED_CERTIFICATE:
        case SSL_AD_CERTIFICATE_REVOKED:
        case SSL_AD_CERTIFICATE_EXPIRED:
        case SSL_AD_CERTIFICATE_UNKNOWN:
        case SSL_AD_UNKNOWN_CA:
        case SSL_AD_CERTIFICATE_REQUIRED:
            return "it does not accept this rank's certificate";
        default:
            return "it broke TLS off";
    }
}

static void note_problem(strata_tls_session *t) {
    const unsigned long code = ERR_peek_error();
    const int why = ERR_GET_REASON(code);
    const long verified = SSL_get_verify_result(t->ssl);
    const char *text = ERR_reason_error_string(code);
    if (!text) text = "OpenSSL does not say why";
    const bool plain = why == SSL_R_WRONG_VERSION_NUMBER || why == SSL_R_HTTP_REQUEST;
    if (verified != X509_V_OK)
        snprintf(t->problem, sizeof t->problem, "its certificate is not accepted: %s", X509_verify_cert_error_string(verified));
    else if (why > SSL_AD_REASON_OFFSET)
        snprintf(t->problem, sizeof t->problem, "%s (%s)", meaning_of(why - SSL_AD_REASON_OFFSET), text);
    else
        snprintf(t->problem, sizeof t->problem, plain ? "it does not use TLS: all ranks must" : "TLS: %s", text);
    if (plain && SSL_is_server(t->ssl)) /* OpenSSL sends no alert in this case */
        send(t->fd, strata_tls_alert, sizeof strata_tls_alert, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Handles a failed OpenSSL call, which returned `result` <= 0. Returns 0 if the other side has closed the connection, else -1
 * with errno. */
static ssize_t outcome(strata_tls_session *t, int result) {
    const int error = errno;
    switch (SSL_get_error(t->ssl, result)) {
        case SSL_ERROR_WANT_READ:
            t->events = POLLIN;
            errno = EAGAIN;
            return -1;
        case SSL_ERROR_WANT_WRITE:
            t->events = POLLOUT;
            errno = EAGAIN;
            return -1;
        case SSL_ERROR_ZERO_RETURN:
            return 0;
        case SSL_ERROR_SSL:
            note_problem(t);
            t->broken = true;
            errno = EPROTO;
            return -1;
        default:
            errno = error ? error : ECONNRESET;
            return t->closed ? 0 : -1;
    }
}

static ssize_t tls_recv(strata_tls_session *t, const struct iovec *parts, int n_parts) {
    size_t done = 0;
    for (int i = 0; i < n_parts; i++) {
        const size_t wanted = parts[i].iov_len;
        for (size_t at = 0; at < wanted;) {
            ERR_clear_error();
            const int n = SSL_read(t->ssl, (char *)parts[i].iov_base + at, wanted - at > RECORD ? RECORD : (int)(wanted - at));
            if (n <= 0) {
                const ssize_t ended = outcome(t, n);
                return done ? (ssize_t)done : ended;
            }
            at += (size_t)n;
            done += (size_t)n;
        }
    }
    return (ssize_t)done;
}

/* Requests a new key after KEY_BYTES bytes. OpenSSL on the other side changes its key without a call. */
static void count_bytes(strata_tls_session *t, size_t n) {
    t->key_bytes += n;
    if (t->key_bytes < KEY_BYTES) return;
    t->key_bytes = 0;
    SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
}

/* Sends at most one TLS record. A header and a small payload are copied together, so that they need only one record. */
static ssize_t tls_send(strata_tls_session *t, const struct iovec *parts, int n_parts) {
    char record[RECORD];
    const char *bytes = parts->iov_base;
    size_t n = parts->iov_len < RECORD ? parts->iov_len : RECORD;
    if (n_parts > 1 && n < RECORD) {
        memcpy(record, bytes, n);
        bytes = record;
        for (int i = 1; i < n_parts && n < RECORD; i++) {
            const size_t more = parts[i].iov_len < RECORD - n ? parts[i].iov_len : RECORD - n;
            memcpy(record + n, parts[i].iov_base, more);
            n += more;
        }
    }
    ERR_clear_error();
    const int done = SSL_write(t->ssl, bytes, (int)n);
    if (done > 0) {
        count_bytes(t, (size_t)done);
        return done;
    }
    if (outcome(t, done) < 0 && (errno == EAGAIN || errno == EPROTO)) return -1;
    /* The connection was closed. An alert with the reason may have been received; reading shows it. */
    char last;
    const int error = errno ? errno : EPIPE;
    ERR_clear_error();
    if (outcome(t, SSL_read(t->ssl, &last, 1)) >= 0 || errno != EPROTO) errno = error;
    return -1;
}

/* ---- plain connections and TLS ---- */

static bool is_broken(const strata_stream *s) {
    if (s->tls && s->tls->broken) errno = EPROTO;
    return s->tls && s->tls->broken;
}

ssize_t strata_stream_send(strata_stream *s, const struct iovec *parts, int n_parts) {
    if (is_broken(s)) return -1;
    if (s->tls) return tls_send(s->tls, parts, n_parts);
    const struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n_parts};
    return sendmsg(s->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t strata_stream_recv(strata_stream *s, const struct iovec *parts, int n_parts) {
    if (is_broken(s)) return -1;
    if (s->tls) return tls_recv(s->tls, parts, n_parts);
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n_parts};
    return recvmsg(s->fd, &message, MSG_DONTWAIT);
}

short strata_stream_events(const strata_stream *s, short otherwise) {
    return s->tls ? s->tls->events : otherwise;
}

const char *strata_stream_problem(const strata_stream *s, int error) {
    return s->tls && error == EPROTO ? s->tls->problem : error == ETIMEDOUT ? "its link is cut" : strata_errno_text(error);
}

void strata_stream_close(strata_stream *s) {
    if (s->tls) {
        SSL_free(s->tls->ssl);
        free(s->tls);
    }
    if (s->fd >= 0) close(s->fd);
    *s = (strata_stream){.fd = -1};
}
