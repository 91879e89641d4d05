/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing .npy files. The parser accepts only the form of dict literals that NumPy writes. The size that the header
 * implies must be the size of the file. */
#include "core/data/format/npy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/base/file.h"
#include "core/data/format/stream.h"

static const char magic[] = "\x93NUMPY";
enum { MAGIC_BYTES = 6 };

/* For each type of elements: NumPy's descr without the byte order, Strata's name, the size of an element in the file in bytes,
 * and the dtype in memory. */
static const struct {
    const char *descr, *name;
    size_t bytes;
    strata_dtype dtype;
} types[] = {
    {"f4", "f32", 4, STRATA_DTYPE_F32},   {"f8", "f64", 8, STRATA_DTYPE_F32}, {"f2", "f16", 2, STRATA_DTYPE_F16},
    {"i4", "i32", 4, STRATA_DTYPE_I32},   {"i8", "i64", 8, STRATA_DTYPE_I64}, {"u1", "u8", 1, STRATA_DTYPE_U8},
    {"b1", "bool", 1, STRATA_DTYPE_BOOL},
};

/* ---- the dict literal ---- */

typedef struct npy_header {
    char descr[16];
    bool is_fortran;
    strata_shape shape;
} npy_header;

typedef struct literal {
    const char *name;
    const char *text;
    size_t n_bytes;
    size_t at;
    size_t file_offset; /* where the text begins in the file */
    strata_error *err;
} literal;

static strata_status malformed(const literal *l, const char *expected) {
    return strata_fail(l->err, STRATA_DATA, "%s: at byte %zu of the header: expected %s", l->name, l->file_offset + l->at,
                       expected);
}

static int peek(const literal *l) {
    return l->at < l->n_bytes ? (unsigned char)l->text[l->at] : -1;
}

static void skip_space(literal *l) {
    while (peek(l) > 0 && strchr(" \t\r\n", peek(l))) l->at++;
}

static bool take(literal *l, char byte) {
    skip_space(l);
    if (peek(l) != byte) return false;
    l->at++;
    return true;
}

static bool take_word(literal *l, const char *word) {
    size_t length = strlen(word);
    skip_space(l);
    if (l->n_bytes - l->at < length || memcmp(l->text + l->at, word, length) != 0) return false;
    l->at += length;
    return true;
}

/* Parses a string in single or double quotes, without escapes. A string longer than out is cut off. */
static strata_status parse_string(literal *l, char *out, size_t out_bytes, const char *expected) {
    skip_space(l);
    int quote = peek(l);
    if (quote != '\'' && quote != '"') return malformed(l, expected);
    l->at++;
    size_t n = 0;
    while (peek(l) != quote) {
        int byte = peek(l);
        if (byte < 0x20 || byte > 0x7E || byte == '\\') return malformed(l, "plain text and a closing quote");
        if (n + 1 < out_bytes) out[n++] = (char)byte;
        l->at++;
    }
    l->at++;
    out[n] = '\0';
    return STRATA_OK;
}

static strata_status parse_descr(literal *l, npy_header *header) {
    skip_space(l);
    if (peek(l) == '[')
        return strata_fail(l->err, STRATA_UNSUPPORTED, "%s: has structured elements; save plain numbers", l->name);
    return parse_string(l, header->descr, sizeof header->descr, "the descr as a string");
}

static strata_status parse_order(literal *l, npy_header *header) {
    header->is_fortran = take_word(l, "True");
    return header->is_fortran || take_word(l, "False") ? STRATA_OK : malformed(l, "True or False for fortran_order");
}

static strata_status parse_shape(literal *l, npy_header *header) {
    strata_shape shape = {0};
    if (!take(l, '(')) return malformed(l, "'(' of the shape");
    while (!take(l, ')')) {
        if (shape.rank == STRATA_MAX_RANK)
            return strata_fail(l->err, STRATA_DATA, "%s: its shape has more than %d dimensions", l->name, STRATA_MAX_RANK);
        skip_space(l);
        if (peek(l) < '0' || peek(l) > '9') return malformed(l, "a dimension or ')'");
        int64_t dim = 0;
        for (; peek(l) >= '0' && peek(l) <= '9'; l->at++) {
            if (__builtin_mul_overflow(dim, 10, &dim) || __builtin_add_overflow(dim, peek(l) - '0', &dim))
                return malformed(l, "a dimension below 2^63");
        }
        if (peek(l) == 'L') l->at++; /* Python 2 wrote an L after long integers */
        shape.dims[shape.rank++] = dim;
        if (!take(l, ',')) {
            if (shape.rank == 1 || !take(l, ')'))
                return malformed(l, shape.rank == 1 ? "',' after the only dimension" : "',' or ')'");
            break;
        }
    }
    strata_error why;
    if (strata_shape_check(shape, &why)) return strata_fail(l->err, STRATA_DATA, "%s: %s", l->name, why.message);
    header->shape = shape;
    return STRATA_OK;
}

static strata_status parse_literal(literal *l, npy_header *header) {
    static const struct {
        const char *key;
        strata_status (*parse)(literal *l, npy_header *header);
    } items[] = {{"descr", parse_descr}, {"fortran_order", parse_order}, {"shape", parse_shape}};
    unsigned seen = 0;
    if (!take(l, '{')) return malformed(l, "'{'");
    while (!take(l, '}')) {
        char key[32];
        STRATA_TRY(parse_string(l, key, sizeof key, "a key or '}'"));
        unsigned i = 0;
        while (i < 3 && strcmp(key, items[i].key) != 0) i++;
        if (i == 3 || (seen & 1u << i))
            return malformed(l, "each of descr, fortran_order and shape once, and nothing else, before here");
        seen |= 1u << i;
        if (!take(l, ':')) return malformed(l, "':'");
        STRATA_TRY(items[i].parse(l, header));
        if (!take(l, ',') && (skip_space(l), peek(l)) != '}') return malformed(l, "',' or '}'");
    }
    if (seen != 7) return malformed(l, "descr, fortran_order and shape, all three, before here");
    skip_space(l);
    return l->at == l->n_bytes ? STRATA_OK : malformed(l, "only spaces up to the end of the header");
}

/* ---- the file ---- */

/* Finds the dict literal, which is between the version and the elements. */
static strata_status find_literal(const char *name, const unsigned char *bytes, size_t n_bytes, literal *out_literal,
                                  strata_error *err) {
    if (n_bytes < MAGIC_BYTES + 2 || memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return strata_fail(err, STRATA_DATA, "%s: is no .npy file: it does not begin with \\x93NUMPY and a version", name);
    int version = bytes[MAGIC_BYTES];
    if (version < 1 || version > 3 || bytes[MAGIC_BYTES + 1] != 0)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: is .npy version %d.%d; 1.0, 2.0 and 3.0 can be read", name, version,
                           bytes[MAGIC_BYTES + 1]);
    size_t length_bytes = version == 1 ? 2 : 4, n_literal = 0, start = MAGIC_BYTES + 2 + length_bytes;
    if (n_bytes < start)
        return strata_fail(err, STRATA_DATA, "%s: has %zu bytes; the header begins at byte %zu", name, n_bytes, start);
    for (size_t i = length_bytes; i-- > 0;) n_literal = n_literal << 8 | bytes[MAGIC_BYTES + 2 + i];
    if (n_literal > STRATA_NPY_MAX_HEADER)
        return strata_fail(err, STRATA_DATA, "%s: says that its header has %zu bytes; at most %d are allowed", name, n_literal,
                           STRATA_NPY_MAX_HEADER);
    if (n_literal > n_bytes - start)
        return strata_fail(err, STRATA_DATA, "%s: says that its header has %zu bytes, but only %zu follow: it is cut off", name,
                           n_literal, n_bytes - start);
    *out_literal =
        (literal){.name = name, .text = (const char *)bytes + start, .n_bytes = n_literal, .file_offset = start, .err = err};
    return STRATA_OK;
}

/* Finds the index of the header's type in `types`. */
static strata_status find_type(const char *name, const npy_header *header, size_t *out_type, strata_error *err) {
    const char *descr = header->descr;
    size_t i = 0;
    while (i < sizeof types / sizeof types[0] && (descr[0] == '\0' || strcmp(descr + 1, types[i].descr) != 0)) i++;
    if (descr[0] && strchr("|<>=", descr[0]) && descr[1] == 'O')
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%s: contains Python objects, which are never loaded; save an array of numbers", name);
    if (i == sizeof types / sizeof types[0])
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: has dtype '%s'; <f4 <f8 <f2 <i4 <i8 |u1 |b1 can be read", name, descr);
    if (descr[0] != '<' && !(types[i].bytes == 1 && strchr("|=>", descr[0])))
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%s: has dtype '%s', which is not little-endian; save it with astype('<%s')", name, descr,
                           types[i].descr);
    if (header->is_fortran && header->shape.rank > 1)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: is in Fortran order; save numpy.ascontiguousarray of it", name);
    *out_type = i;
    return STRATA_OK;
}

/* exact: memory for the doubles; NULL: they are not needed. */
static strata_status convert_f64(const char *name, const unsigned char *data, strata_array *array, double *exact,
                                 strata_error *err) {
    float *out = array->data;
    int64_t n = strata_shape_elements(array->shape);
    for (int64_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, data + 8 * i, sizeof value);
        out[i] = (float)value;
        if (exact) {
            exact[i] = value;
        } else if (isinf(out[i]) && !isinf(value)) {
            return strata_fail(err, STRATA_DATA, "%s: element %" PRId64 " is %g, too large for f32", name, i, value);
        }
    }
    return STRATA_OK;
}

static strata_status check_bools(const char *name, const strata_array *array, strata_error *err) {
    const uint8_t *data = array->data;
    int64_t n = strata_shape_elements(array->shape);
    for (int64_t i = 0; i < n; i++) {
        if (data[i] > 1)
            return strata_fail(err, STRATA_DATA, "%s: element %" PRId64 " is %d; a bool must be 0 or 1", name, i, data[i]);
    }
    return STRATA_OK;
}

/* Parses the header. *out_type: an index into `types`; *out_begin: the offset of the elements. */
static strata_status read_header(const char *name, const void *bytes, size_t n_bytes, npy_header *out_header, size_t *out_type,
                                 size_t *out_begin, strata_error *err) {
    literal l;
    STRATA_TRY(find_literal(name, bytes, n_bytes, &l, err));
    STRATA_TRY(parse_literal(&l, out_header));
    *out_begin = l.file_offset + l.n_bytes;
    return find_type(name, out_header, out_type, err);
}

strata_status strata_npy_describe(const char *name, const void *bytes, size_t n_bytes, const char **out_type,
                                  strata_shape *out_shape, size_t *out_bytes, strata_error *err) {
    npy_header header = {0};
    size_t type = 0, begin = 0;
    STRATA_TRY(read_header(name, bytes, n_bytes, &header, &type, &begin, err));
    *out_type = types[type].name;
    *out_shape = header.shape;
    *out_bytes = n_bytes - begin;
    return STRATA_OK;
}

strata_status strata_npy_parse_exact(const char *name, const void *bytes, size_t n_bytes, strata_array *out_array,
                                     double **out_exact, strata_error *err) {
    STRATA_FINISHED(strata_array) array = {0};
    STRATA_FREED double *exact = NULL;
    npy_header header = {0};
    *out_array = array;
    if (out_exact) *out_exact = NULL;
    size_t type = 0, begin = 0;
    STRATA_TRY(read_header(name, bytes, n_bytes, &header, &type, &begin, err));
    const unsigned char *data = (const unsigned char *)bytes + begin;
    size_t n_data = n_bytes - begin;
    /* This cannot overflow, since strata_shape_check allows 2^61 bytes at most. */
    size_t wanted = (size_t)strata_shape_elements(header.shape) * types[type].bytes;
    if (n_data != wanted)
        return strata_fail(err, STRATA_DATA, "%s: has %zu bytes of elements, but its header %s %s needs %zu: it is %s", name,
                           n_data, header.descr, strata_shape_text(header.shape).text, wanted,
                           n_data < wanted ? "cut off" : "too long");
    STRATA_TRY(strata_array_create(types[type].dtype, header.shape, &array, err));
    if (types[type].bytes == 8 && types[type].dtype == STRATA_DTYPE_F32) {
        if (out_exact && !(exact = malloc(n_data + 1)))
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for %zu bytes", name, n_data);
        STRATA_TRY(convert_f64(name, data, &array, exact, err));
    } else {
        memcpy(array.data, data, n_data);
        if (types[type].dtype == STRATA_DTYPE_BOOL) STRATA_TRY(check_bools(name, &array, err));
    }
    *out_array = array;
    array.owned = NULL;
    if (out_exact) *out_exact = strata_released(&exact);
    return STRATA_OK;
}

strata_status strata_npy_parse(const char *name, const void *bytes, size_t n_bytes, strata_array *out_array,
                               strata_error *err) {
    return strata_npy_parse_exact(name, bytes, n_bytes, out_array, NULL, err);
}

strata_status strata_npy_read_exact(const char *path, strata_array *out_array, double **out_exact, strata_error *err) {
    *out_array = (strata_array){0};
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_stream_read_file(path, STRATA_BYTES_LIMIT(46), &bytes, &n_bytes, err));
    return strata_npy_parse_exact(path, bytes, n_bytes, out_array, out_exact, err);
}

strata_status strata_npy_read(const char *path, strata_array *out_array, strata_error *err) {
    return strata_npy_read_exact(path, out_array, NULL, err);
}

/* ---- writing ---- */

strata_status strata_npy_header(const char *path, const strata_array *array, char header[STRATA_NPY_MOST_HEADER],
                                size_t *out_n_bytes, strata_error *err) {
    const size_t alignment = 64, prefix = MAGIC_BYTES + 4;
    const char *descr = NULL;
    for (size_t i = 0; i < sizeof types / sizeof types[0] && !descr; i++) {
        if (types[i].dtype == array->dtype) descr = types[i].descr;
    }
    if (!descr)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: NumPy has no dtype %s; convert it to f32", path,
                           strata_dtype_name(array->dtype));
    char shape[256] = "";
    int n_shape = 0;
    memset(header, 0, STRATA_NPY_MOST_HEADER);
    memcpy(header, "\x93NUMPY\x01", 7);
    for (int i = 0; i < array->shape.rank; i++)
        n_shape += snprintf(shape + n_shape, sizeof shape - (size_t)n_shape, "%s%" PRId64, i ? ", " : "", array->shape.dims[i]);
    snprintf(shape + n_shape, sizeof shape - (size_t)n_shape, "%s", array->shape.rank == 1 ? "," : "");
    int length =
        snprintf(header + prefix, STRATA_NPY_MOST_HEADER - prefix, "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
                 strata_dtype_bytes(array->dtype) == 1 ? '|' : '<', descr, shape);
    size_t used = prefix + (size_t)length + 1, total = (used + alignment - 1) / alignment * alignment;
    memset(header + used - 1, ' ', total - used);
    header[total - 1] = '\n';
    header[prefix - 2] = (char)((total - prefix) & 0xFF);
    header[prefix - 1] = (char)((total - prefix) >> 8);
    *out_n_bytes = total;
    return STRATA_OK;
}
