/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing safetensors. All values of the header are checked against the file before any tensor can be read. A
 * header that is written is padded with spaces to 8 bytes. */
#include "core/data/format/safetensors.h"

#include <inttypes.h>

#include "core/base/bytes.h"
#include "strata/sha256.h"

enum { LENGTH_BYTES = 8 };

static const char metadata_key[] = "__metadata__";

/* The element types of the format. */
static const struct {
    const char *name;
    int bits;
    /* STRATA_DTYPE_COUNT: Strata does not have this type. */
    strata_dtype dtype;
} dtypes[] = {
    {"F32", 32, STRATA_DTYPE_F32},          {"F16", 16, STRATA_DTYPE_F16},      {"BF16", 16, STRATA_DTYPE_BF16},
    {"I32", 32, STRATA_DTYPE_I32},          {"I64", 64, STRATA_DTYPE_I64},      {"U8", 8, STRATA_DTYPE_U8},
    {"BOOL", 8, STRATA_DTYPE_BOOL},         {"F64", 64, STRATA_DTYPE_COUNT},    {"C64", 64, STRATA_DTYPE_COUNT},
    {"U64", 64, STRATA_DTYPE_COUNT},        {"U32", 32, STRATA_DTYPE_COUNT},    {"U16", 16, STRATA_DTYPE_COUNT},
    {"I16", 16, STRATA_DTYPE_COUNT},        {"I8", 8, STRATA_DTYPE_COUNT},      {"F8_E5M2", 8, STRATA_DTYPE_COUNT},
    {"F8_E4M3", 8, STRATA_DTYPE_COUNT},     {"F8_E8M0", 8, STRATA_DTYPE_COUNT}, {"F8_E5M2FNUZ", 8, STRATA_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, STRATA_DTYPE_COUNT}, {"F6_E2M3", 6, STRATA_DTYPE_COUNT}, {"F6_E3M2", 6, STRATA_DTYPE_COUNT},
    {"F4", 4, STRATA_DTYPE_COUNT},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

const char *strata_safetensors_dtype_name(strata_dtype dtype) {
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return NULL;
}

bool strata_safetensors_find_dtype(const char *name, strata_dtype *out_dtype, int *out_bits) {
    size_t i = 0;
    while (i < N_DTYPES && strcmp(name, dtypes[i].name)) i++;
    if (i == N_DTYPES) return false;
    *out_dtype = dtypes[i].dtype;
    *out_bits = dtypes[i].bits;
    return true;
}

/* ---- one entry of the header ---- */

static strata_status parse_dtype(const strata_json *entry, strata_safetensor *tensor, int *out_bits, strata_error *err) {
    STRATA_TRY(strata_json_get_string(entry, "dtype", STRATA_JSON_REQUIRED, &tensor->dtype_name, err));
    if (strata_safetensors_find_dtype(tensor->dtype_name, &tensor->dtype, out_bits)) return STRATA_OK;
    return strata_json_fail(entry, err, STRATA_DATA, "the format has no dtype \"%.40s\"", tensor->dtype_name);
}

static strata_status parse_shape(const strata_json *entry, strata_safetensor *tensor, strata_error *err) {
    const int64_t most_dim = (INT64_C(1) << 48) - 1;
    strata_json dims, dim;
    STRATA_TRY(strata_json_get_array(entry, "shape", &dims, err));
    tensor->shape.rank = 0;
    for (bool more = strata_json_first(&dims, &dim); more; more = strata_json_next(&dim)) {
        if (tensor->shape.rank == STRATA_MAX_RANK)
            return strata_json_fail(&dims, err, STRATA_DATA, "has rank %" PRId64 "; at most %d is possible",
                                    strata_json_length(&dims), STRATA_MAX_RANK);
        STRATA_TRY(strata_json_to_int(&dim, 0, most_dim, &tensor->shape.dims[tensor->shape.rank++], err));
    }
    strata_error why;
    if (strata_shape_check(tensor->shape, &why)) return strata_json_fail(&dims, err, STRATA_DATA, "%s", why.message);
    return STRATA_OK;
}

static strata_status parse_offsets(const strata_json *entry, int64_t n_data, int64_t *out_begin, int64_t *out_end,
                                   strata_error *err) {
    strata_json offsets, offset;
    STRATA_TRY(strata_json_get_array(entry, "data_offsets", &offsets, err));
    if (strata_json_length(&offsets) != 2)
        return strata_json_fail(&offsets, err, STRATA_DATA, "must be [begin, end], has %" PRId64 " elements",
                                strata_json_length(&offsets));
    strata_json_first(&offsets, &offset);
    STRATA_TRY(strata_json_to_int(&offset, 0, n_data, out_begin, err));
    strata_json_next(&offset);
    return strata_json_to_int(&offset, *out_begin, n_data, out_end, err);
}

static strata_status parse_entry(const strata_json *entry, const unsigned char *data, size_t n_data, strata_safetensor *tensor,
                                 strata_error *err) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    int bits = 0;
    int64_t begin = 0, end = 0;
    STRATA_TRY(strata_json_check_keys(entry, keys, 3, err));
    STRATA_TRY(parse_dtype(entry, tensor, &bits, err));
    STRATA_TRY(parse_shape(entry, tensor, err));
    STRATA_TRY(parse_offsets(entry, (int64_t)n_data, &begin, &end, err));
    int64_t elements = strata_shape_elements(tensor->shape), all_bits;
    if (__builtin_mul_overflow(elements, bits, &all_bits) || all_bits % 8 != 0 || all_bits / 8 != end - begin)
        return strata_json_fail(
            entry, err, STRATA_DATA,
            "%s %s has %" PRId64 " elements of %d bits, but data_offsets [%" PRId64 ", %" PRId64 "] have %" PRId64 " bytes",
            tensor->dtype_name, strata_shape_text(tensor->shape).text, elements, bits, begin, end, end - begin);
    tensor->name = entry->name;
    tensor->data = data + begin;
    tensor->n_bytes = (size_t)(end - begin);
    return STRATA_OK;
}

static strata_status check_metadata(const strata_json *metadata, strata_error *err) {
    STRATA_TRY(strata_json_expect(metadata, STRATA_JSON_OBJECT, err));
    strata_json item;
    for (bool more = strata_json_first(metadata, &item); more; more = strata_json_next(&item))
        STRATA_TRY(strata_json_expect(&item, STRATA_JSON_STRING, err));
    return STRATA_OK;
}

/* ---- the whole file ---- */

static int by_offset(const void *a, const void *b) {
    const strata_safetensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    /* an empty tensor is sorted before the tensor that begins at the same position */
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

static int by_name(const void *a, const void *b) {
    const strata_safetensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Checks the tensors, which are sorted by offset: each must begin where the one before it ended, and the last must end with the
 * file. */
static strata_status check_offsets(const strata_safetensors *file, const unsigned char *data, size_t n_data,
                                   strata_error *err) {
    const unsigned char *end = data;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const strata_safetensor *tensor = &file->tensors[i];
        if (tensor->data != end)
            return strata_fail(err, STRATA_DATA,
                               "%s: tensor \"%.100s\" begins at data byte %td, but the one before it%s%.100s%s ends at %td: %s",
                               file->name, tensor->name, tensor->data - data, i ? " (\"" : "",
                               i ? file->tensors[i - 1].name : "", i ? "\")" : "", end - data,
                               tensor->data < end ? "they overlap" : "there is a gap");
        end = tensor->data + tensor->n_bytes;
    }
    if (end != data + n_data)
        return strata_fail(err, STRATA_DATA, "%s: the tensors end at data byte %td, but the file has %zu bytes of data",
                           file->name, end - data, n_data);
    return STRATA_OK;
}

static strata_status parse_entries(strata_safetensors *file, const unsigned char *data, size_t n_data, strata_error *err) {
    STRATA_TRY(strata_json_expect(&file->header, STRATA_JSON_OBJECT, err));
    size_t n_entries = (size_t)strata_json_length(&file->header);
    STRATA_TRY(STRATA_NEW(file->tensors, n_entries, err, "%s: no host memory for %zu tensors", file->name, n_entries));
    STRATA_TRY(STRATA_NEW(file->by_name, n_entries, err, "%s: no host memory for %zu tensors", file->name, n_entries));
    strata_json entry;
    for (bool more = strata_json_first(&file->header, &entry); more; more = strata_json_next(&entry)) {
        if (strcmp(entry.name, metadata_key) == 0) {
            STRATA_TRY(check_metadata(&entry, err));
        } else {
            STRATA_TRY(parse_entry(&entry, data, n_data, &file->tensors[file->n_tensors++], err));
        }
    }
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, by_offset);
    STRATA_TRY(check_offsets(file, data, n_data, err));
    for (size_t i = 0; i < file->n_tensors; i++) file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->n_tensors, sizeof *file->by_name, by_name);
    return STRATA_OK;
}

/* Reads the length of the header, and checks that the header ends within the file and begins with '{'. */
static strata_status parse_length(const char *name, const unsigned char *bytes, size_t n_bytes, size_t *out_n_header,
                                  strata_error *err) {
    if (n_bytes < LENGTH_BYTES)
        return strata_fail(err, STRATA_DATA, "%s: has %zu bytes; a safetensors file begins with %d bytes of length", name,
                           n_bytes, LENGTH_BYTES);
    const uint64_t n_header = strata_little_endian(bytes, LENGTH_BYTES);
    if (n_header > STRATA_SAFETENSORS_MAX_HEADER)
        return strata_fail(err, STRATA_DATA, "%s: says that its header has %" PRIu64 " bytes; at most %d are allowed", name,
                           n_header, STRATA_SAFETENSORS_MAX_HEADER);
    if (n_header > n_bytes - LENGTH_BYTES)
        return strata_fail(err, STRATA_DATA,
                           "%s: says that its header has %" PRIu64 " bytes, but only %zu follow: it is cut off", name, n_header,
                           n_bytes - LENGTH_BYTES);
    if (n_header == 0 || bytes[LENGTH_BYTES] != '{')
        return strata_fail(err, STRATA_DATA, "%s: its header of %" PRIu64 " bytes does not begin with '{'", name, n_header);
    *out_n_header = (size_t)n_header;
    return STRATA_OK;
}

strata_status strata_safetensors_parse(const char *name, const void *bytes, size_t n_bytes, strata_safetensors *out_file,
                                       strata_error *err) {
    STRATA_FINISHED(strata_safetensors) file = {.name = name};
    *out_file = (strata_safetensors){0};
    const unsigned char *header = (const unsigned char *)bytes + LENGTH_BYTES;
    size_t n_header = 0;
    STRATA_TRY(parse_length(name, bytes, n_bytes, &n_header, err));
    STRATA_TRY(strata_json_parse(name, header, n_header, STRATA_SAFETENSORS_MAX_HEADER, &file.header, err));
    STRATA_TRY(parse_entries(&file, header + n_header, n_bytes - LENGTH_BYTES - n_header, err));
    *out_file = file;
    file = (strata_safetensors){0};
    return STRATA_OK;
}

strata_status strata_safetensors_read(const char *path, strata_safetensors *out_file, strata_error *err) {
    *out_file = (strata_safetensors){0};
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(46), &bytes, &n_bytes, err));
    const strata_status status = strata_safetensors_parse(path, bytes, n_bytes, out_file, err);
    STRATA_TRY(strata_file_explain(path, bytes, n_bytes, STRATA_FILE_UNKNOWN, status, err));
    out_file->owned = strata_released(&bytes);
    return STRATA_OK;
}

void strata_safetensors_finish(strata_safetensors *file) {
    if (!file) return;
    strata_json_finish(&file->header);
    free(file->by_name);
    free(file->tensors);
    free(file->owned);
    *file = (strata_safetensors){0};
}

/* ---- reading tensors ---- */

static int name_of_tensor(const void *key, const void *element) {
    const strata_safetensor *const *tensor = element;
    return strcmp(key, (*tensor)->name);
}

const strata_safetensor *strata_safetensors_find(const strata_safetensors *file, const char *tensor_name) {
    if (file->n_tensors == 0) return NULL;
    strata_safetensor **found = bsearch(tensor_name, file->by_name, file->n_tensors, sizeof *file->by_name, name_of_tensor);
    return found ? *found : NULL;
}

const char *strata_safetensors_metadata(const strata_safetensors *file, const char *key) {
    strata_json metadata, value;
    const char *text = NULL;
    if (!strata_json_find(&file->header, metadata_key, &metadata) || !strata_json_find(&metadata, key, &value)) return NULL;
    return strata_json_to_string(&value, &text, NULL) ? NULL : text;
}

static strata_status get_tensor(const strata_safetensors *file, const char *tensor_name, const strata_safetensor **out_tensor,
                                strata_error *err) {
    const strata_safetensor *tensor = strata_safetensors_find(file, tensor_name);
    if (!tensor)
        return strata_fail(err, STRATA_DATA, "%s: has no tensor \"%.100s\" among its %zu", file->name, tensor_name,
                           file->n_tensors);
    if (tensor->dtype == STRATA_DTYPE_COUNT)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "%s: tensor \"%.100s\" has dtype %s, which Strata does not have; convert it to F32", file->name,
                           tensor_name, tensor->dtype_name);
    *out_tensor = tensor;
    return STRATA_OK;
}

static strata_status copy_elements(const strata_safetensors *file, const strata_safetensor *tensor, void *out_data,
                                   strata_error *err) {
    for (size_t i = 0; tensor->dtype == STRATA_DTYPE_BOOL && i < tensor->n_bytes; i++) {
        if (tensor->data[i] > 1)
            return strata_fail(err, STRATA_DATA, "%s: element %zu of tensor \"%.100s\" is %d; a bool must be 0 or 1",
                               file->name, i, tensor->name, tensor->data[i]);
    }
    if (tensor->n_bytes) memcpy(out_data, tensor->data, tensor->n_bytes);
    return STRATA_OK;
}

strata_status strata_safetensors_copy(const strata_safetensors *file, const char *tensor_name, strata_dtype dtype,
                                      strata_shape shape, void *out_data, strata_error *err) {
    const strata_safetensor *tensor = NULL;
    STRATA_TRY(get_tensor(file, tensor_name, &tensor, err));
    if (tensor->dtype != dtype || !strata_shape_equal(tensor->shape, shape))
        return strata_fail(err, STRATA_DATA, "%s: tensor \"%.100s\" is %s %s, but %s %s is needed", file->name, tensor_name,
                           strata_dtype_name(tensor->dtype), strata_shape_text(tensor->shape).text, strata_dtype_name(dtype),
                           strata_shape_text(shape).text);
    return copy_elements(file, tensor, out_data, err);
}

strata_status strata_safetensors_load(const strata_safetensors *file, const char *tensor_name, strata_array *out_array,
                                      strata_error *err) {
    *out_array = (strata_array){0};
    const strata_safetensor *tensor = NULL;
    STRATA_FINISHED(strata_array) array = {0};
    STRATA_TRY(get_tensor(file, tensor_name, &tensor, err));
    STRATA_TRY(strata_array_create(tensor->dtype, tensor->shape, &array, err));
    STRATA_TRY(copy_elements(file, tensor, array.data, err));
    *out_array = array;
    array.owned = NULL;
    return STRATA_OK;
}

/* ---- writing ---- */

static int in_file_order(const void *a, const void *b) {
    const strata_named_array *const *x = a, *const *y = b;
    size_t x_bytes = strata_dtype_bytes((*x)->array.dtype), y_bytes = strata_dtype_bytes((*y)->array.dtype);
    if (x_bytes != y_bytes) return x_bytes > y_bytes ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static int by_key(const void *a, const void *b) {
    const strata_metadata *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static void add_metadata(strata_json_writer *writer, const strata_metadata *const *sorted, size_t n_metadata) {
    if (n_metadata == 0) return;
    strata_json_begin_object(strata_json_key(writer, metadata_key));
    for (size_t i = 0; i < n_metadata; i++) strata_json_write_string(strata_json_key(writer, sorted[i]->key), sorted[i]->value);
    strata_json_end_object(writer);
}

static size_t add_tensor(strata_json_writer *writer, const strata_named_array *tensor, size_t begin) {
    size_t end = begin + strata_array_bytes(&tensor->array);
    strata_json_begin_object(strata_json_key(writer, tensor->name));
    strata_json_put_string(writer, "dtype", strata_safetensors_dtype_name(tensor->array.dtype));
    strata_json_put_shape(writer, "shape", tensor->array.shape);
    strata_json_write_ints(strata_json_key(writer, "data_offsets"), (int64_t[]){(int64_t)begin, (int64_t)end}, 2);
    strata_json_end_object(writer);
    return end;
}

static strata_status check_names(const char *path, const strata_named_array *const *tensors, size_t n_tensors,
                                 const strata_metadata *const *metadata, size_t n_metadata, strata_error *err) {
    for (size_t i = 0; i < n_metadata; i++) {
        if (!strata_utf8_valid(metadata[i]->key) || !strata_utf8_valid(metadata[i]->value))
            return strata_fail(err, STRATA_INVALID, "%s: metadata \"%.100s\" is not valid UTF-8", path, metadata[i]->key);
    }
    for (size_t i = 0; i < n_tensors; i++) {
        const char *name = tensors[i]->name;
        if (strcmp(name, metadata_key) == 0)
            return strata_fail(err, STRATA_INVALID, "%s: a tensor can't be named \"%s\"; the format uses that name", path,
                               name);
        if (!strata_utf8_valid(name))
            return strata_fail(err, STRATA_INVALID, "%s: the name \"%.100s\" of a tensor is not valid UTF-8", path, name);
        if (!strata_safetensors_dtype_name(tensors[i]->array.dtype))
            return strata_fail(err, STRATA_INVALID, "%s: tensor \"%.100s\" has dtype %d, which is not known", path, name,
                               (int)tensors[i]->array.dtype);
    }
    return STRATA_OK;
}

/* Makes the 8 bytes of length and the padded header. The caller frees the text. */
static strata_status make_header(const char *path, const strata_named_array *const *tensors, size_t n_tensors,
                                 const strata_metadata *const *metadata, size_t n_metadata, char **out_text,
                                 size_t *out_n_bytes, strata_error *err) {
    strata_json_writer writer = {0};
    strata_text_add_bytes(&writer.text, "........", 8); /* room for the length */
    strata_json_begin_object(&writer);
    add_metadata(&writer, metadata, n_metadata);
    size_t end = 0;
    for (size_t i = 0; i < n_tensors; i++) end = add_tensor(&writer, tensors[i], end);
    strata_json_end_object(&writer);
    strata_text_add_bytes(&writer.text, "       ", (8 - writer.text.n_bytes % 8) % 8);
    STRATA_TRY(strata_json_take(&writer, out_text, out_n_bytes, err));
    uint64_t n_header = *out_n_bytes - 8;
    if (n_header > STRATA_SAFETENSORS_MAX_HEADER)
        return strata_fail(err, STRATA_INVALID, "%s: names, shapes and metadata need %llu bytes; at most %d are possible", path,
                           (unsigned long long)n_header, STRATA_SAFETENSORS_MAX_HEADER);
    for (int i = 0; i < 8; i++) (*out_text)[i] = (char)(n_header >> 8 * i & 0xFF);
    return STRATA_OK;
}

/* Parses the header as a reader will, so that no file is written that a reader would refuse, for example because of two equal
 * names. */
static strata_status check_header(const char *path, const char *header, size_t n_header, strata_error *err) {
    STRATA_FINISHED(strata_json) root = {0};
    strata_error why;
    strata_status status = strata_json_parse("header", header + 8, n_header - 8, STRATA_SAFETENSORS_MAX_HEADER, &root, &why);
    if (status == STRATA_DATA) status = STRATA_INVALID;
    return status ? strata_fail(err, status, "%s: can't be written: %s", path, why.message) : STRATA_OK;
}

static strata_status write_all(const char *path, const char *header, size_t n_header, const strata_named_array *const *tensors,
                               size_t n_tensors, const strata_safetensors_writing *how, strata_error *err) {
    STRATA_OWNED(strata_file_writer) *file = NULL;
    STRATA_FINISHED(strata_sha256) sha = {0};
    int64_t n_written = 0;
    STRATA_TRY(strata_file_writer_create(path, &file, err));
    if (how->sha256) STRATA_TRY(strata_sha256_init(&sha, err));
    for (size_t i = 0; i <= n_tensors; i++) {
        const void *bytes = i ? tensors[i - 1]->array.data : header;
        const size_t n_bytes = i ? strata_array_bytes(&tensors[i - 1]->array) : n_header;
        if (how->sha256) STRATA_TRY(strata_sha256_update(&sha, bytes, n_bytes, err));
        STRATA_TRY(strata_file_writer_add(file, bytes, n_bytes, err));
        n_written += (int64_t)n_bytes;
    }
    if (how->sha256) STRATA_TRY(strata_sha256_final(&sha, how->sha256, err));
    if (how->bytes) *how->bytes = n_written;
    return strata_file_writer_commit(file, how->check, err);
}

strata_status strata_safetensors_write(const char *path, const strata_named_array *tensors, size_t n_tensors,
                                       const strata_metadata *metadata, size_t n_metadata,
                                       const strata_safetensors_writing *how, strata_error *err) {
    STRATA_FREED char *header = NULL;
    size_t n_header = 0;
    STRATA_FREED const strata_named_array **sorted = NULL;
    STRATA_FREED const strata_metadata **sorted_metadata = NULL;
    STRATA_TRY(STRATA_NEW(sorted, n_tensors, err, "%s: no host memory to write %zu tensors", path, n_tensors));
    STRATA_TRY(STRATA_NEW(sorted_metadata, n_metadata, err, "%s: no host memory to write %zu tensors", path, n_tensors));
    for (size_t i = 0; i < n_tensors; i++) sorted[i] = &tensors[i];
    for (size_t i = 0; i < n_metadata; i++) sorted_metadata[i] = &metadata[i];
    qsort(sorted, n_tensors, sizeof *sorted, in_file_order);
    qsort(sorted_metadata, n_metadata, sizeof *sorted_metadata, by_key);
    STRATA_TRY(check_names(path, sorted, n_tensors, sorted_metadata, n_metadata, err));
    STRATA_TRY(make_header(path, sorted, n_tensors, sorted_metadata, n_metadata, &header, &n_header, err));
    STRATA_TRY(check_header(path, header, n_header, err));
    return write_all(path, header, n_header, sorted, n_tensors, how ? how : &(strata_safetensors_writing){0}, err);
}
