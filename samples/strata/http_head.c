/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the head of a request and the lines between chunks, strictly: each line ends with CR LF, a field is on one line, and
 * only one field says how long the body is. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http.h"

static bool is_token(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A part of the head. */
typedef struct span {
    const char *at;
    size_t n;
} span;

static bool equals(span s, const char *word) {
    return s.n == strlen(word) && !strncasecmp(s.at, word, s.n);
}

static span trim(span s) {
    while (s.n && (*s.at == ' ' || *s.at == '\t')) s.at++, s.n--;
    while (s.n && (s.at[s.n - 1] == ' ' || s.at[s.n - 1] == '\t')) s.n--;
    return s;
}

static bool copy(span s, char *out, size_t room) {
    if (s.n >= room) return false;
    memcpy(out, s.at, s.n);
    out[s.n] = 0;
    return true;
}

int64_t http_find_head(const char *bytes, size_t n) {
    size_t line = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if ((c < 0x20 && c != '\t' && c != '\r' && c != '\n') || c == 0x7f) return -1;
        if (c == '\r' && i + 1 < n && bytes[i + 1] != '\n') return -1;
        if (c != '\n') continue;
        if (!i || bytes[i - 1] != '\r') return -1;
        if (i - line == 1 && i > 1) return (int64_t)i + 1; /* an empty line before the first one is skipped */
        line = i + 1;
    }
    return 0;
}

static void fail(http_request *r, unsigned code, const char *why) {
    if (r->code) return;
    r->code = code;
    r->why = why;
}

/* ---- the first line ---- */

static void read_version(span version, http_request *r) {
    if (version.n != 8 || memcmp(version.at, "HTTP/", 5) != 0 || !is_digit(version.at[5]) || version.at[6] != '.' ||
        !is_digit(version.at[7])) {
        fail(r, 400, "the request's first line must be METHOD TARGET HTTP/1.1, with one blank between them");
        return;
    }
    if (version.at[5] != '1') fail(r, 505, "the server speaks HTTP/1.1");
    r->minor_version = version.at[7] - '0';
    r->keep_alive = r->minor_version > 0;
}

/* A target is a path with a query, or the same after http://HOST. */
static void read_target(span target, http_request *r) {
    if (target.n > 7 && !strncasecmp(target.at, "http://", 7)) {
        const char *slash = memchr(target.at + 7, '/', target.n - 7);
        target = slash ? (span){slash, target.n - (size_t)(slash - target.at)} : (span){"/", 1};
    }
    const char *mark = memchr(target.at, '?', target.n);
    const span path = {target.at, mark ? (size_t)(mark - target.at) : target.n};
    const span query = mark ? (span){mark + 1, target.n - path.n - 1} : (span){"", 0};
    if (!path.n || (*path.at != '/' && !equals(path, "*"))) fail(r, 400, "the request's target must be a path");
    if (!copy(path, r->path, sizeof r->path) || !copy(query, r->query, sizeof r->query))
        fail(r, 414, "the request's target is too long");
}

static void read_first_line(span line, http_request *r) {
    const char *first = memchr(line.at, ' ', line.n);
    const span method = {line.at, first ? (size_t)(first - line.at) : 0};
    const span rest = first ? (span){first + 1, line.n - method.n - 1} : (span){line.at, 0};
    const char *second = memchr(rest.at, ' ', rest.n);
    const span target = {rest.at, second ? (size_t)(second - rest.at) : 0};
    bool is_method = method.n > 0 && copy(method, r->method, sizeof r->method);
    for (size_t i = 0; i < method.n; i++) is_method = is_method && is_token(method.at[i]);
    bool is_ascii = true;
    for (size_t i = 0; i < line.n; i++) is_ascii = is_ascii && line.at[i] >= ' ' && (unsigned char)line.at[i] < 0x80;
    if (!is_method || !target.n || !is_ascii) {
        fail(r, 400, "the request's first line must be METHOD TARGET HTTP/1.1, with one blank between them");
        return;
    }
    read_version((span){second + 1, rest.n - target.n - 1}, r);
    read_target(target, r);
}

/* ---- fields ---- */

typedef struct field_counts {
    int host, length, encoding, other_encodings, type, expect;
} field_counts;

/* Divides "Name: value". The name is directly before the colon. */
static bool divide(span line, span *out_name, span *out_value) {
    const char *colon = memchr(line.at, ':', line.n);
    *out_name = (span){line.at, colon ? (size_t)(colon - line.at) : 0};
    if (!out_name->n) return false;
    for (size_t i = 0; i < out_name->n; i++)
        if (!is_token(line.at[i])) return false;
    *out_value = trim((span){colon + 1, line.n - out_name->n - 1});
    return true;
}

static void read_length(span value, http_request *r) {
    r->length = 0;
    bool digits = value.n > 0;
    for (size_t i = 0; i < value.n; i++) digits = digits && is_digit(value.at[i]);
    if (!digits) {
        fail(r, 400, "Content-Length must be one whole number");
        return;
    }
    for (size_t i = 0; i < value.n; i++) {
        if (r->length > (INT64_MAX - 9) / 10) {
            fail(r, 413, "the request is too large");
            return;
        }
        r->length = r->length * 10 + (value.at[i] - '0');
    }
}

/* If the last coding is not chunked, the length of the body is not known (RFC 9112 6.3). */
static void read_encoding(span value, http_request *r, field_counts *counts) {
    while (value.n && memchr(value.at, ',', value.n)) {
        counts->other_encodings++;
        const size_t used = (size_t)((const char *)memchr(value.at, ',', value.n) - value.at) + 1;
        value = trim((span){value.at + used, value.n - used});
    }
    if (!equals(value, "chunked")) fail(r, 400, "Transfer-Encoding must be chunked");
}

static void read_host(span value, http_request *r) {
    for (size_t i = 0; i < value.n; i++)
        if (!is_token(value.at[i]) && !strchr(":[](),;=", value.at[i]))
            fail(r, 400, "Host must be the name or the address of the server");
}

static void read_connection(span value, http_request *r) {
    while (value.n) {
        const char *comma = memchr(value.at, ',', value.n);
        const span word = {value.at, comma ? (size_t)(comma - value.at) : value.n};
        if (equals(trim(word), "close")) r->keep_alive = false;
        if (equals(trim(word), "keep-alive") && !r->minor_version) r->keep_alive = true;
        const size_t used = word.n + (comma ? 1 : 0);
        value = (span){value.at + used, value.n - used};
    }
}

static void read_field(span line, http_request *r, field_counts *counts) {
    span name, value;
    if (*line.at == ' ' || *line.at == '\t') {
        fail(r, 400, "a header field must not be continued on the next line");
    } else if (!divide(line, &name, &value)) {
        fail(r, 400, "a header field must be \"Name: value\", without a blank before the colon");
    } else if (equals(name, "Host")) {
        counts->host++;
        read_host(value, r);
    } else if (equals(name, "Content-Length")) {
        counts->length++;
        read_length(value, r);
    } else if (equals(name, "Transfer-Encoding")) {
        counts->encoding++;
        r->chunked = true;
        read_encoding(value, r, counts);
    } else if (equals(name, "Content-Type")) {
        counts->type++;
        if (!copy(value, r->type, sizeof r->type)) fail(r, 400, "Content-Type is too long");
    } else if (equals(name, "Expect")) {
        counts->expect++;
        r->expects_continue = true;
        if (!equals(value, "100-continue")) fail(r, 417, "the only Expect that the server knows is 100-continue");
    } else if (equals(name, "Connection")) {
        read_connection(value, r);
    }
}

static void check_fields(http_request *r, const field_counts *counts) {
    if (counts->length > 1) fail(r, 400, "there is more than one Content-Length");
    if (counts->encoding > 1) fail(r, 400, "there is more than one Transfer-Encoding");
    if (counts->length && counts->encoding) fail(r, 400, "give Content-Length or Transfer-Encoding, not both");
    if (counts->encoding && !r->minor_version) fail(r, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (counts->other_encodings) fail(r, 501, "the only Transfer-Encoding that the server reads is chunked");
    if (counts->host > 1) fail(r, 400, "there is more than one Host");
    if (!counts->host && r->minor_version) fail(r, 400, "a request of HTTP/1.1 needs a Host");
    if (counts->type > 1) fail(r, 400, "there is more than one Content-Type");
    if (counts->expect > 1) fail(r, 400, "there is more than one Expect");
}

void http_read_head(const char *bytes, size_t n, http_request *r) {
    field_counts counts = {0};
    bool first = true;
    const char *end = bytes + n;
    if (n > 2 && *bytes == '\r') bytes += 2; /* RFC 9112 2.2: an empty line before the request is skipped */
    while (bytes + 2 < end) {
        const char *cr = memchr(bytes, '\r', (size_t)(end - bytes));
        const span line = {bytes, (size_t)(cr - bytes)};
        if (first)
            read_first_line(line, r);
        else
            read_field(line, r, &counts);
        first = false;
        bytes = cr + 2;
    }
    if (first) fail(r, 400, "the request is empty");
    check_fields(r, &counts);
    if (r->code) r->keep_alive = false;
}

/* ---- chunks ---- */

bool http_read_chunk_size(const char *line, size_t n, int64_t *out_bytes) {
    enum { MOST_DIGITS = 15 };
    size_t i = 0;
    *out_bytes = 0;
    for (; i < n && i < MOST_DIGITS; i++) {
        const char c = line[i];
        const int digit = is_digit(c)              ? c - '0'
                          : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                          : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                   : -1;
        if (digit < 0) break;
        *out_bytes = *out_bytes * 16 + digit;
    }
    return i > 0 && (i == n || line[i] == ';');
}

bool http_is_trailer(const char *line, size_t n) {
    static const char *const forbidden[] = {"Host", "Content-Length", "Transfer-Encoding", "Content-Type", "Trailer"};
    span name, value;
    if (!n || !divide((span){line, n}, &name, &value)) return false;
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (equals(name, forbidden[i])) return false;
    return true;
}
