/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading IDX from memory, through a stream that decompresses the file if it is compressed. */
#include "core/data/format/idx.h"

#include <inttypes.h>

#include "core/base/bytes.h"
#include "core/base/file.h"
#include "core/data/format/stream.h"

enum { LARGEST_RANK = 4 };

typedef struct source {
    const char *name;
    /* The size of the file, which may be compressed. */
    size_t n_bytes;
    strata_stream *stream;
    strata_error *err;
} source;

/* ---- the header ---- */

typedef struct idx_header {
    strata_dtype dtype;
    strata_shape shape;
    size_t header_bytes;
    uint64_t data_bytes;
} idx_header;

static const struct {
    unsigned char code;
    const char *name;
    strata_dtype dtype; /* STRATA_DTYPE_COUNT: known, but not read */
} types[] = {
    {0x08, "u8", STRATA_DTYPE_U8},   {0x09, "i8", STRATA_DTYPE_COUNT}, {0x0B, "i16", STRATA_DTYPE_COUNT},
    {0x0C, "i32", STRATA_DTYPE_I32}, {0x0D, "f32", STRATA_DTYPE_F32},  {0x0E, "f64", STRATA_DTYPE_COUNT},
};

static strata_status read_exactly(source *s, void *out, size_t wanted, const char *what) {
    size_t n;
    STRATA_TRY(strata_stream_read(s->stream, out, wanted, &n, s->err));
    if (n == wanted) return STRATA_OK;
    return strata_fail(s->err, STRATA_DATA, "%s: ends at byte %zu, within %s; %zu bytes are missing", s->name,
                       strata_stream_offset(s->stream), what, wanted - n);
}

static strata_status read_type(source *s, const unsigned char magic[4], strata_dtype *out_dtype) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].code != magic[2]) continue;
        *out_dtype = types[i].dtype;
        if (types[i].dtype != STRATA_DTYPE_COUNT) return STRATA_OK;
        return strata_fail(s->err, STRATA_UNSUPPORTED,
                           "%s: has elements of type %s (0x%02X at byte 2); u8, i32 and f32 can be read", s->name,
                           types[i].name, magic[2]);
    }
    return strata_fail(s->err, STRATA_DATA, "%s: the type at byte 2 is 0x%02X; IDX has 0x08, 0x09 and 0x0B to 0x0E", s->name,
                       magic[2]);
}

static strata_status read_header(source *s, idx_header *out_header) {
    const int64_t most_elements = INT64_C(1) << 40;
    unsigned char magic[4], dims[4 * LARGEST_RANK];
    STRATA_TRY(read_exactly(s, magic, sizeof magic, "the magic number"));
    if (magic[0] != 0 || magic[1] != 0)
        return strata_fail(s->err, STRATA_DATA, "%s: begins with bytes %02X %02X %02X %02X; an IDX file begins with 00 00",
                           s->name, magic[0], magic[1], magic[2], magic[3]);
    idx_header header = {.shape.rank = magic[3], .header_bytes = sizeof magic + (size_t)magic[3] * 4};
    STRATA_TRY(read_type(s, magic, &header.dtype));
    if (magic[3] < 1 || magic[3] > LARGEST_RANK)
        return strata_fail(s->err, STRATA_DATA, "%s: the rank at byte 3 is %d; it must be 1 to %d", s->name, magic[3],
                           LARGEST_RANK);
    STRATA_TRY(read_exactly(s, dims, (size_t)magic[3] * 4, "the dimensions"));
    int64_t elements = 1;
    for (int i = 0; i < header.shape.rank; i++) {
        header.shape.dims[i] = (int64_t)strata_big_endian(dims + 4 * i, 4);
        if (header.shape.dims[i] == 0)
            return strata_fail(s->err, STRATA_DATA, "%s: dimension %d (byte %d) is 0; there is no data", s->name, i, 4 + 4 * i);
        if (__builtin_mul_overflow(elements, header.shape.dims[i], &elements) || elements > most_elements)
            return strata_fail(s->err, STRATA_DATA,
                               "%s: dimension %d (byte %d) is %" PRId64 ", which makes more than 2^40 elements", s->name, i,
                               4 + 4 * i, header.shape.dims[i]);
    }
    header.data_bytes = (uint64_t)elements * strata_dtype_bytes(header.dtype);
    *out_header = header;
    return STRATA_OK;
}

/* Compares the size in the header with that of the file before memory is allocated. The size of a plain file must be equal; a
 * compressed file cannot expand to more than a bound. */
static strata_status check_size(const source *s, const idx_header *header) {
    const size_t bound = strata_stream_bound(s->stream);
    const bool is_plain = strata_stream_is_plain(s->stream);
    const uint64_t wanted = header->header_bytes + header->data_bytes;
    const strata_shape_string shape = strata_shape_text(header->shape);
    if (is_plain && s->n_bytes != wanted)
        return strata_fail(s->err, STRATA_DATA, "%s: has %zu bytes, but its header %s %s needs %" PRIu64 ": it is %s", s->name,
                           s->n_bytes, strata_dtype_name(header->dtype), shape.text, wanted,
                           s->n_bytes < wanted ? "cut off" : "too long");
    if (!is_plain && wanted > bound)
        return strata_fail(s->err, STRATA_DATA,
                           "%s: its header %s %s needs %" PRIu64 " bytes, but %zu compressed bytes expand to %zu at most",
                           s->name, strata_dtype_name(header->dtype), shape.text, wanted, s->n_bytes, bound);
    return STRATA_OK;
}

/* ---- the elements ---- */

static void convert_big_endian(unsigned char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += 4) {
        const uint32_t word = (uint32_t)strata_big_endian(bytes + i, 4);
        memcpy(bytes + i, &word, sizeof word);
    }
}

static strata_status read_elements(source *s, const idx_header *header, strata_array *array) {
    size_t n;
    unsigned char after;
    STRATA_TRY(strata_stream_read(s->stream, array->data, (size_t)header->data_bytes, &n, s->err));
    if (n < header->data_bytes)
        return strata_fail(s->err, STRATA_DATA,
                           "%s: ends at expanded byte %zu, but its header %s %s needs %" PRIu64 ": it is cut off", s->name,
                           strata_stream_offset(s->stream), strata_dtype_name(header->dtype),
                           strata_shape_text(header->shape).text, header->header_bytes + header->data_bytes);
    STRATA_TRY(strata_stream_read(s->stream, &after, 1, &n, s->err)); /* this call also compares the checksum */
    if (n != 0)
        return strata_fail(s->err, STRATA_DATA,
                           "%s: continues after expanded byte %" PRIu64 ", where its header %s %s ends: it is too long",
                           s->name, header->header_bytes + header->data_bytes, strata_dtype_name(header->dtype),
                           strata_shape_text(header->shape).text);
    if (strata_dtype_bytes(header->dtype) == 4) convert_big_endian(array->data, (size_t)header->data_bytes);
    return STRATA_OK;
}

strata_status strata_idx_parse(const char *name, const void *bytes, size_t n_bytes, strata_array *out_array,
                               strata_error *err) {
    *out_array = (strata_array){0};
    STRATA_OWNED(strata_stream) *stream = NULL;
    STRATA_FINISHED(strata_array) array = {0};
    idx_header header = {0};
    STRATA_TRY(strata_stream_create(name, bytes, n_bytes, &stream, err));
    source s = {.name = name, .n_bytes = n_bytes, .stream = stream, .err = err};
    STRATA_TRY(read_header(&s, &header));
    STRATA_TRY(check_size(&s, &header));
    STRATA_TRY(strata_array_create(header.dtype, header.shape, &array, err));
    STRATA_TRY(read_elements(&s, &header, &array));
    *out_array = array;
    array.owned = NULL;
    return STRATA_OK;
}

strata_status strata_idx_read(const char *path, strata_array *out_array, strata_error *err) {
    *out_array = (strata_array){0};
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(43), &bytes, &n_bytes, err));
    return strata_idx_parse(path, bytes, n_bytes, out_array, err);
}
