/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the bytes of a file that is in memory, and decompresses them if they are gzip (zlib) or xz (liblzma). The first bytes
 * of the file show whether it is compressed, not its name. All readers of data files use these functions, so each of them reads
 * plain and compressed files. */
#ifndef STRATA_CORE_DATA_STREAM_H
#define STRATA_CORE_DATA_STREAM_H

#include "core/base/alloc.h"
#include "strata/formats.h"

typedef struct strata_stream strata_stream;

/* Borrows bytes[0..n_bytes) and `name`, which is used in messages. Fails: UNSUPPORTED for xz in a build without liblzma;
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_stream_create(const char *name, const void *bytes, size_t n_bytes,
                                                   strata_stream **out_stream, strata_error *err);
void strata_stream_destroy(strata_stream *stream); /* NULL is fine */
STRATA_OWNER(strata_stream)

/* Reads `wanted` bytes, or fewer at the end of the file. gzip members that follow each other are read as one stream. Fails:
 * DATA if the file is damaged or cut off, with the offset in the compressed file. */
STRATA_MUST_USE strata_status strata_stream_read(strata_stream *stream, void *out, size_t wanted, size_t *out_n,
                                                 strata_error *err);
/* The offset in the expanded file: how many bytes were read. */
size_t strata_stream_offset(const strata_stream *stream);
bool strata_stream_is_plain(const strata_stream *stream);
/* An upper bound of the expanded size, computed from the format and the size of the file; the exact size of a plain file. */
size_t strata_stream_bound(const strata_stream *stream);

/* Reads all of bytes[0..n_bytes). The caller frees them; *out_n_bytes does not count the NUL after them. Fails as
 * strata_stream_create and strata_stream_read, and with DATA if there are more than max_bytes. */
STRATA_MUST_USE strata_status strata_stream_expand(const char *name, const void *bytes, size_t n_bytes, size_t max_bytes,
                                                   unsigned char **out_bytes, size_t *out_n_bytes, strata_error *err);

#endif
