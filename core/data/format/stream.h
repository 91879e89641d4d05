/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a file that lies in memory, expanded on the way when they are gzip (zlib) or xz (liblzma); which is seen from
 * the first bytes, not from the name. Every reader of data files reads through this, so all of them take all three. */
#ifndef STRATA_CORE_DATA_STREAM_H
#define STRATA_CORE_DATA_STREAM_H

#include <stdbool.h>

#include "core/base/export.h"
#include "strata/status.h"

STRATA_EXPORT_BEGIN

typedef struct strata_stream strata_stream;

/* Over bytes[0..n_bytes), borrowed; `name`, borrowed too, stands in messages. Fails: UNSUPPORTED for xz in a build without
 * liblzma; OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_stream_create(const char *name, const void *bytes, size_t n_bytes,
                                                   strata_stream **out_stream, strata_error *err);
void strata_stream_destroy(strata_stream *stream); /* NULL is fine */

/* Gives up to `wanted` bytes; fewer only at the end. Members one after the other are one stream. Fails: DATA with the offset in
 * the compressed file where it is damaged or cut off. */
STRATA_MUST_USE strata_status strata_stream_read(strata_stream *stream, void *out, size_t wanted, size_t *out_n,
                                                 strata_error *err);
/* Bytes given out so far: the offset in the expanded file. */
size_t strata_stream_offset(const strata_stream *stream);
bool strata_stream_is_plain(const strata_stream *stream);
/* The most bytes that the whole can expand to, from its size and format alone; exact when it is plain. */
size_t strata_stream_bound(const strata_stream *stream);

/* All the rest into memory that the caller frees; a NUL follows and isn't counted. Fails also: DATA when it is longer than
 * max_bytes. */
STRATA_MUST_USE strata_status strata_stream_read_all(strata_stream *stream, size_t max_bytes, unsigned char **out_bytes,
                                                     size_t *out_n_bytes, strata_error *err);
/* The first bytes of a file, expanded, by which its format is told; fewer where it is shorter or damaged, which its reader then
 * says. */
STRATA_MUST_USE strata_status strata_stream_peek_file(const char *path, void *out_head, size_t wanted, size_t *out_n,
                                                      strata_error *err);
/* The whole of a file, expanded. */
STRATA_MUST_USE strata_status strata_stream_read_file(const char *path, size_t max_bytes, unsigned char **out_bytes,
                                                      size_t *out_n_bytes, strata_error *err);

STRATA_EXPORT_END

#endif
