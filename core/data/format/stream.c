/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of three decoders: gzip, xz and plain. The first whose magic bytes are those of the file reads it. */
#include "core/data/format/stream.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zlib.h>
#if STRATA_WITH_XZ
#include <lzma.h>
#endif

#include "core/base/file.h"

typedef struct decoder {
    const char *name;
    unsigned char magic[6];
    size_t n_magic;
    /* A file cannot expand to more than this times its size. The limit of DEFLATE is 1032. LZMA has no exact limit; the largest
     * ratio that is known is below 7000. */
    size_t most_expansion;
    strata_status (*open)(strata_stream *s, strata_error *err); /* (optional) */
    strata_status (*read)(strata_stream *s, unsigned char *out, size_t wanted, size_t *out_n, strata_error *err);
    void (*close)(strata_stream *s); /* (optional) */
} decoder;

struct strata_stream {
    const char *name;
    const unsigned char *bytes;
    size_t n_bytes;
    size_t n_read; /* how many expanded bytes were read */
    size_t at;     /* the next byte of a plain file */
    const decoder *decoder;
    z_stream z;
#if STRATA_WITH_XZ
    lzma_stream xz;
    bool xz_ended;
#endif
};

static strata_status no_memory(const strata_stream *s, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory to expand it", s->name);
}

static strata_status cut_off(const strata_stream *s, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "%s: the %s data is cut off at byte %zu, after %zu expanded bytes", s->name,
                       s->decoder->name, s->n_bytes, s->n_read);
}

static strata_status corrupt(const strata_stream *s, size_t near, const char *why, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "%s: the %s data is corrupt near byte %zu of %zu: %s", s->name, s->decoder->name, near,
                       s->n_bytes, why);
}

/* ---- plain ---- */

static strata_status plain_read(strata_stream *s, unsigned char *out, size_t wanted, size_t *out_n, strata_error *err) {
    (void)err;
    size_t n = s->n_bytes - s->at < wanted ? s->n_bytes - s->at : wanted;
    if (n) memcpy(out, s->bytes + s->at, n);
    s->at += n;
    s->n_read += n;
    *out_n = n;
    return STRATA_OK;
}

/* ---- gzip ---- */

static strata_status gzip_open(strata_stream *s, strata_error *err) {
    s->z.next_in = (unsigned char *)s->bytes; /* zlib does not write to next_in */
    return inflateInit2(&s->z, 15 + 16) == Z_OK ? STRATA_OK : no_memory(s, err);
}

static size_t gzip_at(const strata_stream *s) {
    return (size_t)(s->z.next_in - s->bytes);
}

static strata_status gzip_failed(const strata_stream *s, int result, strata_error *err) {
    if (result == Z_MEM_ERROR) return no_memory(s, err);
    if (result == Z_BUF_ERROR) return cut_off(s, err);
    return corrupt(s, gzip_at(s), s->z.msg ? s->z.msg : "unknown fault", err);
}

static strata_status gzip_read(strata_stream *s, unsigned char *out, size_t wanted, size_t *out_n, strata_error *err) {
    const size_t most_at_once = (size_t)1 << 30; /* zlib's counters have 32 bits */
    size_t n = 0;
    while (n < wanted) {
        size_t left = s->n_bytes - gzip_at(s), room = wanted - n;
        s->z.avail_in = (uInt)(left < most_at_once ? left : most_at_once);
        s->z.avail_out = (uInt)(room < most_at_once ? room : most_at_once);
        s->z.next_out = out + n;
        size_t offered = s->z.avail_out;
        int result = inflate(&s->z, Z_NO_FLUSH);
        n += offered - s->z.avail_out;
        s->n_read += offered - s->z.avail_out;
        if (result == Z_STREAM_END) {
            if (gzip_at(s) == s->n_bytes) break;
            if (inflateReset(&s->z) != Z_OK)
                return gzip_failed(s, Z_DATA_ERROR, err); /* bytes that follow must be another member */
        } else if (result != Z_OK) {
            return gzip_failed(s, result, err);
        }
    }
    *out_n = n;
    return STRATA_OK;
}

static void gzip_close(strata_stream *s) {
    inflateEnd(&s->z);
}

/* ---- xz ---- */

#if STRATA_WITH_XZ
static strata_status xz_open(strata_stream *s, strata_error *err) {
    const uint64_t most_memory = UINT64_C(1) << 30; /* for the dictionary; files of xz -9 need 65 MiB */
    s->xz = (lzma_stream)LZMA_STREAM_INIT;
    s->xz.next_in = s->bytes;
    s->xz.avail_in = s->n_bytes;
    return lzma_stream_decoder(&s->xz, most_memory, LZMA_CONCATENATED) == LZMA_OK ? STRATA_OK : no_memory(s, err);
}

static strata_status xz_failed(const strata_stream *s, lzma_ret result, strata_error *err) {
    if (result == LZMA_MEM_ERROR) return no_memory(s, err);
    if (result == LZMA_BUF_ERROR) return cut_off(s, err);
    const char *why = result == LZMA_MEMLIMIT_ERROR  ? "its dictionary needs more than 1 GiB"
                      : result == LZMA_OPTIONS_ERROR ? "it uses a filter that liblzma does not know"
                      : result == LZMA_FORMAT_ERROR  ? "the bytes that follow are not an xz stream"
                      : s->xz.avail_in < s->n_bytes  ? "its contents or checksum are wrong"
                                                     : "unknown fault";
    return corrupt(s, s->n_bytes - s->xz.avail_in, why, err);
}

static strata_status xz_read(strata_stream *s, unsigned char *out, size_t wanted, size_t *out_n, strata_error *err) {
    s->xz.next_out = out;
    s->xz.avail_out = wanted;
    while (s->xz.avail_out && !s->xz_ended) {
        size_t before = s->xz.avail_out;
        lzma_ret result = lzma_code(&s->xz, LZMA_FINISH);
        s->n_read += before - s->xz.avail_out;
        s->xz_ended = result == LZMA_STREAM_END;
        if (result != LZMA_OK && result != LZMA_STREAM_END) return xz_failed(s, result, err);
    }
    *out_n = wanted - s->xz.avail_out;
    return STRATA_OK;
}

static void xz_close(strata_stream *s) {
    lzma_end(&s->xz);
}
#else
static strata_status xz_open(strata_stream *s, strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "%s: is xz-compressed, and this build has no liblzma; expand it with: xz -d, or build with liblzma-dev",
                       s->name);
}
#define xz_read  plain_read
#define xz_close NULL
#endif

/* The last decoder has no magic bytes and reads every other file. */
static const decoder decoders[] = {
    {"gzip", {0x1F, 0x8B}, 2, 1032, gzip_open, gzip_read, gzip_close},
    {"xz", {0xFD, '7', 'z', 'X', 'Z', 0}, 6, 16384, xz_open, xz_read, xz_close},
    {"plain", {0}, 0, 1, NULL, plain_read, NULL},
};

static const decoder *decoder_of(const void *bytes, size_t n_bytes) {
    const decoder *d = decoders;
    while (n_bytes < d->n_magic || (d->n_magic && memcmp(bytes, d->magic, d->n_magic))) d++;
    return d;
}

strata_status strata_stream_create(const char *name, const void *bytes, size_t n_bytes, strata_stream **out_stream,
                                   strata_error *err) {
    STRATA_FREED strata_stream *s = NULL;
    STRATA_TRY(STRATA_NEW(s, 1, err, "%s: no host memory", name));
    *s = (strata_stream){.name = name, .bytes = bytes, .n_bytes = n_bytes, .decoder = decoder_of(bytes, n_bytes)};
    if (s->decoder->open) STRATA_TRY(s->decoder->open(s, err));
    *out_stream = strata_released(&s);
    return STRATA_OK;
}

void strata_stream_destroy(strata_stream *stream) {
    if (!stream) return;
    if (stream->decoder->close) stream->decoder->close(stream);
    free(stream);
}

strata_status strata_stream_read(strata_stream *stream, void *out, size_t wanted, size_t *out_n, strata_error *err) {
    return stream->decoder->read(stream, out, wanted, out_n, err);
}

size_t strata_stream_offset(const strata_stream *stream) {
    return stream->n_read;
}

bool strata_stream_is_plain(const strata_stream *stream) {
    return stream->decoder->n_magic == 0;
}

size_t strata_stream_bound(const strata_stream *stream) {
    size_t bound;
    return __builtin_mul_overflow(stream->n_bytes, stream->decoder->most_expansion, &bound) ? SIZE_MAX : bound;
}

strata_status strata_stream_expand(const char *name, const void *bytes, size_t n_bytes, size_t max_bytes,
                                   unsigned char **out_bytes, size_t *out_n_bytes, strata_error *err) {
    STRATA_OWNED(strata_stream) *stream = NULL;
    STRATA_FREED unsigned char *expanded = NULL;
    STRATA_TRY(strata_stream_create(name, bytes, n_bytes, &stream, err));
    size_t capacity = strata_stream_is_plain(stream) ? n_bytes : n_bytes * 4, n = 0, got;
    for (bool ended = false; !ended; capacity *= 2) {
        if (capacity > max_bytes) capacity = max_bytes;
        unsigned char *larger = realloc(expanded, capacity + 2); /* one byte to notice that more follow, one for the NUL */
        if (!larger) return no_memory(stream, err);
        expanded = larger;
        STRATA_TRY(strata_stream_read(stream, expanded + n, capacity + 1 - n, &got, err));
        ended = got < capacity + 1 - n;
        n += got;
        if (n > max_bytes)
            return strata_fail(err, STRATA_DATA, "%s: has more than %zu bytes when expanded; at most so many can be read", name,
                               max_bytes);
    }
    expanded[n] = 0;
    *out_bytes = strata_released(&expanded);
    *out_n_bytes = n;
    return STRATA_OK;
}

strata_status strata_stream_peek_file(const char *path, void *out_head, size_t wanted, size_t *out_n, strata_error *err) {
    unsigned char bytes[4096];
    STRATA_OWNED(strata_stream) *stream = NULL;
    struct stat info;
    *out_n = 0;
    if (!stat(path, &info) && S_ISFIFO(info.st_mode)) return STRATA_OK; /* bytes of a pipe cannot be read again later */
    FILE *file = fopen(path, "rb");
    if (!file) return strata_file_fail(err, errno, path, "open");
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    const int problem = ferror(file) ? errno : 0;
    fclose(file);
    if (problem) return strata_file_fail(err, problem, path, "read");
    if (!strata_stream_create(path, bytes, n, &stream, NULL) && strata_stream_read(stream, out_head, wanted, out_n, NULL))
        *out_n = 0;
    return STRATA_OK;
}

strata_status strata_stream_read_file(const char *path, size_t max_bytes, unsigned char **out_bytes, size_t *out_n_bytes,
                                      strata_error *err) {
    STRATA_FREED unsigned char *file = NULL;
    size_t n_file;
    STRATA_TRY(strata_file_read(path, max_bytes, &file, &n_file, err));
    if (decoder_of(file, n_file)->n_magic)
        return strata_stream_expand(path, file, n_file, max_bytes, out_bytes, out_n_bytes, err);
    *out_bytes = strata_released(&file);
    *out_n_bytes = n_file;
    return STRATA_OK;
}
