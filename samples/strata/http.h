/* SPDX-License-Identifier: Apache-2.0
 *
 * A small server of HTTP/1.1 (RFC 9110, RFC 9112) for strata serve, with a thread for each connection. A request that could be
 * read in two ways is answered with 400, and its connection is closed: behind a proxy that reads it the other way, its bytes
 * could become a second request (request smuggling). */
#ifndef STRATA_SAMPLES_HTTP_H
#define STRATA_SAMPLES_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "strata/text.h"

enum { HTTP_LONGEST_HEAD = 32768, HTTP_LONGEST_METHOD = 20, HTTP_LONGEST_TARGET = 2048, HTTP_LONGEST_TYPE = 128 };

typedef struct http_request {
    char method[HTTP_LONGEST_METHOD];
    /* The path of the target, and what follows its "?". */
    char path[HTTP_LONGEST_TARGET], query[HTTP_LONGEST_TARGET];
    /* The value of Content-Type; "": there is none. */
    char type[HTTP_LONGEST_TYPE];
    /* 0 for HTTP/1.0. */
    int minor_version;
    /* The bytes of the body by Content-Length; with `chunked` they are not known. */
    int64_t length;
    bool chunked;
    /* The client waits for "100 Continue" before it sends the body. */
    bool expects_continue;
    bool keep_alive;
    strata_text body;
    /* When the head had arrived, in seconds. */
    double began;
    /* A request that cannot be answered: the code of the answer, and the reason. 0: it can. */
    unsigned code;
    const char *why;
    /* For the functions of http_functions. */
    void *user;
} http_request;

typedef struct http_answer {
    unsigned code;
    const char *type;
    /* The body, which the server frees; NULL: it is empty. */
    char *text;
} http_answer;

/* Threads of several connections call these functions at the same time. */
typedef struct http_functions {
    void *user;
    /* The head of a request has arrived. */
    void (*on_head)(void *user, http_request *request);
    /* The whole request has arrived, or request->code says why it cannot be answered. */
    void (*answer)(void *user, http_request *request, http_answer *out);
    /* Called once after each on_head, after the answer or when the connection has ended without one. */
    void (*on_end)(void *user, http_request *request);
} http_functions;

typedef struct http_options {
    /* An IPv4 or IPv6 address, or "localhost". */
    const char *host;
    /* 0: any free port. */
    int port;
    int connections;
    /* A connection that sends or accepts nothing for so long is closed. */
    double idle_seconds;
    size_t most_body_bytes;
} http_options;

/* ---- http_head.c ---- */

/* The length of the head at the beginning of n bytes, including the empty line at its end; 0: more bytes are needed; -1: it
 * cannot be a head, because of a byte that no line may have, or because of a line that does not end with CR LF. */
int64_t http_find_head(const char *bytes, size_t n);
/* Reads a head, whose length http_find_head has returned. If it is wrong, sets out->code and out->why. */
void http_read_head(const char *bytes, size_t n, http_request *out);
/* Reads the line before a chunk, of n bytes without its CR LF: the size in hexadecimal digits, and extensions, which are
 * ignored. Returns false if it is no such line. */
bool http_read_chunk_size(const char *line, size_t n, int64_t *out_bytes);
/* Whether a line after the last chunk, of n bytes without its CR LF, is a field that may be there. */
bool http_is_trailer(const char *line, size_t n);

/* ---- http.c ---- */

typedef struct http_server http_server;
/* Fails: INVALID if the host is no address; UNAVAILABLE if the port cannot be used. */
STRATA_MUST_USE strata_status http_server_start(const http_options *options, const http_functions *functions,
                                                http_server **out_server, strata_error *err);
int http_server_port(const http_server *server);
/* Accepts no more connections, answers the requests that are being read for at most `seconds`, and ends all threads. */
void http_server_stop(http_server *server, double seconds);

#endif
