/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing manifest.json, and reading tensors by it, or from a single file. Everything that comes from a file is checked. */
#include "core/model/manifest.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/data/format/safetensors.h"

static const char NO_MEMORY[] = "checkpoint: no host memory for its manifest";
static const char FORMAT[] = "strata.checkpoint";
/* The text before and after the digits of the manifest's own hash, at the end of the manifest. */
static const char BEFORE_HASH[] = ",\"sha256\":\"", AFTER_HASH[] = "\"}\n";
enum { HASH_DIGITS = STRATA_SHA256_TEXT_BYTES - 1 };
enum { END_BYTES = sizeof BEFORE_HASH - 1 + HASH_DIGITS + sizeof AFTER_HASH - 1 };

struct strata_manifest_part {
    char *path;
    unsigned char *bytes;
    strata_safetensors file;
};

void strata_manifest_finish(strata_manifest *manifest) {
    if (!manifest) return;
    for (int i = 0; i < manifest->n_texts; i++) {
        free(manifest->texts[i].key);
        free(manifest->texts[i].text);
    }
    for (int i = 0; i < manifest->n_files; i++) free(manifest->files[i].name);
    for (int i = 0; i < manifest->n_tensors; i++) {
        free(manifest->tensors[i].name);
        free(manifest->tensors[i].pieces);
    }
    for (int i = 0; i < manifest->n_parts; i++) {
        strata_safetensors_finish(&manifest->parts[i].file);
        free(manifest->parts[i].bytes);
        free(manifest->parts[i].path);
    }
    free(manifest->texts);
    free(manifest->files);
    free(manifest->tensors);
    free(manifest->parts);
    *manifest = (strata_manifest){0};
}

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, NO_MEMORY);
}

strata_status strata_manifest_add_text(strata_manifest *manifest, const char *key, const char *text, strata_error *err) {
    strata_manifest_text *at = strata_grow(&manifest->texts, manifest->n_texts, sizeof *at);
    if (!at) return no_memory(err);
    manifest->n_texts++;
    at->key = strdup(key);
    at->text = strdup(text);
    return at->key && at->text ? STRATA_OK : no_memory(err);
}

strata_status strata_manifest_add_file(strata_manifest *manifest, const char *name, int64_t bytes, const char *sha256,
                                       strata_error *err) {
    strata_manifest_file *at = strata_grow(&manifest->files, manifest->n_files, sizeof *at);
    if (!at) return no_memory(err);
    manifest->n_files++;
    at->name = strdup(name);
    at->bytes = bytes;
    snprintf(at->sha256, sizeof at->sha256, "%s", sha256);
    return at->name ? STRATA_OK : no_memory(err);
}

strata_manifest_tensor *strata_manifest_find(const strata_manifest *manifest, const char *name) {
    /* The search begins with the last tensor, since the pieces of a tensor are usually added one after the other. */
    for (int i = manifest->n_tensors - 1; i >= 0; i--)
        if (manifest->tensors[i].name && !strcmp(manifest->tensors[i].name, name)) return &manifest->tensors[i];
    return NULL;
}

const char *strata_manifest_find_text(const strata_manifest *manifest, const char *key) {
    for (int i = 0; i < manifest->n_texts; i++)
        if (!strcmp(manifest->texts[i].key, key)) return manifest->texts[i].text;
    return NULL;
}

static strata_manifest_tensor *add_tensor(strata_manifest *manifest, const char *name, strata_dtype dtype, strata_shape shape) {
    strata_manifest_tensor *at = strata_grow(&manifest->tensors, manifest->n_tensors, sizeof *at);
    if (!at) return NULL;
    manifest->n_tensors++;
    *at = (strata_manifest_tensor){.name = strdup(name), .dtype = dtype, .shape = shape};
    return at->name ? at : NULL;
}

strata_status strata_manifest_add_piece(strata_manifest *manifest, const char *name, strata_dtype dtype, strata_shape shape,
                                        strata_manifest_piece piece, strata_error *err) {
    strata_manifest_tensor *at = strata_manifest_find(manifest, name);
    if (!at) at = add_tensor(manifest, name, dtype, shape);
    strata_manifest_piece *added = at ? strata_grow(&at->pieces, at->n_pieces, sizeof *added) : NULL;
    if (!added) return no_memory(err);
    *added = piece;
    at->n_pieces++;
    return STRATA_OK;
}

static bool is_whole(const strata_manifest_tensor *tensor, strata_manifest_piece piece) {
    return piece.begin == 0 && piece.end == strata_shape_elements(tensor->shape);
}

char *strata_manifest_piece_name(const strata_manifest_tensor *tensor, strata_manifest_piece piece) {
    if (is_whole(tensor, piece)) return strdup(tensor->name);
    const size_t room = strlen(tensor->name) + 48;
    char *name = malloc(room);
    if (name) snprintf(name, room, "%s[%lld:%lld]", tensor->name, (long long)piece.begin, (long long)piece.end);
    return name;
}

static int by_begin(const void *a, const void *b) {
    const strata_manifest_piece *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Checks that the pieces, in their order, are the whole tensor. A tensor without elements has one empty piece. */
static strata_status check_tensor(const strata_manifest *manifest, const strata_manifest_tensor *tensor, strata_status status,
                                  strata_error *err) {
    int64_t end = 0;
    const int64_t elements = strata_shape_elements(tensor->shape);
    for (int i = 0; i < tensor->n_pieces; i++) {
        const strata_manifest_piece *piece = &tensor->pieces[i];
        if (piece->file < 0 || piece->file >= manifest->n_files)
            return strata_fail(err, status, "tensor \"%.100s\" has a piece in file %d, of %d", tensor->name, piece->file,
                               manifest->n_files);
        if (piece->begin != end || piece->end < piece->begin)
            return strata_fail(err, status, "tensor \"%.100s\" has a piece [%lld, %lld) behind element %lld", tensor->name,
                               (long long)piece->begin, (long long)piece->end, (long long)end);
        end = piece->end;
    }
    if (end == elements && tensor->n_pieces) return STRATA_OK;
    return strata_fail(err, status, "the pieces of tensor \"%.100s\" end at element %lld of %lld", tensor->name, (long long)end,
                       (long long)elements);
}

/* ---- writing ---- */

static void write_tensor(strata_json_writer *w, const strata_manifest_tensor *tensor) {
    strata_json_begin_object(w);
    strata_json_put_string(w, "name", tensor->name);
    strata_json_put_string(w, "dtype", strata_safetensors_dtype_name(tensor->dtype));
    strata_json_put_shape(w, "shape", tensor->shape);
    strata_json_begin_array_at(w, "pieces");
    for (int i = 0; i < tensor->n_pieces; i++) {
        strata_json_begin_object(w);
        strata_json_put_int(w, "file", tensor->pieces[i].file);
        strata_json_put_int(w, "begin", tensor->pieces[i].begin);
        strata_json_put_int(w, "end", tensor->pieces[i].end);
        strata_json_end_object(w);
    }
    strata_json_end_array(w);
    strata_json_end_object(w);
}

static void write_body(strata_json_writer *w, const strata_manifest *manifest) {
    strata_json_put_string(w, "format", FORMAT);
    strata_json_put_int(w, "version", STRATA_MANIFEST_VERSION);
    const char *model = strata_manifest_find_text(manifest, STRATA_MODEL_METADATA);
    strata_json_put_string(w, "model", model ? model : "");
    strata_json_key(w, "texts");
    strata_json_begin_object(w);
    for (int i = 0; i < manifest->n_texts; i++)
        if (manifest->texts[i].text != model) strata_json_put_string(w, manifest->texts[i].key, manifest->texts[i].text);
    strata_json_end_object(w);
    strata_json_begin_array_at(w, "files");
    for (int i = 0; i < manifest->n_files; i++) {
        strata_json_begin_object(w);
        strata_json_put_string(w, "name", manifest->files[i].name);
        strata_json_put_int(w, "bytes", manifest->files[i].bytes);
        strata_json_put_string(w, "sha256", manifest->files[i].sha256);
        strata_json_end_object(w);
    }
    strata_json_end_array(w);
    strata_json_begin_array_at(w, "tensors");
    for (int i = 0; i < manifest->n_tensors; i++) write_tensor(w, &manifest->tensors[i]);
    strata_json_end_array(w);
}

static strata_status make_text(strata_manifest *manifest, char **out_text, size_t *out_n, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES] = "";
    strata_json_writer w = {0};
    for (int i = 0; i < manifest->n_tensors; i++) {
        strata_manifest_tensor *tensor = &manifest->tensors[i];
        qsort(tensor->pieces, (size_t)tensor->n_pieces, sizeof *tensor->pieces, by_begin);
        STRATA_TRY(check_tensor(manifest, tensor, STRATA_INVALID, err));
    }
    strata_json_begin_object(&w);
    write_body(&w, manifest);
    const strata_status status = w.text.failed ? STRATA_OK : strata_sha256_of(w.text.bytes, w.text.n_bytes, hash, err);
    strata_text_add(&w.text, "%s%s%s", BEFORE_HASH, hash, AFTER_HASH);
    if (!status) return strata_json_take(&w, out_text, out_n, err);
    strata_text_finish(&w.text);
    return status;
}

static strata_status path_in(const char *folder, const char *name, char **out_path, strata_error *err) {
    strata_text path = {0};
    strata_text_add(&path, "%s/%s", folder, name);
    return strata_text_take(&path, out_path, NULL, err);
}

strata_status strata_manifest_write(strata_manifest *manifest, const char *folder, strata_error *err) {
    STRATA_FREED char *text = NULL, *path = NULL;
    size_t n = 0;
    STRATA_TRY(path_in(folder, STRATA_MANIFEST_NAME, &path, err));
    STRATA_TRY(make_text(manifest, &text, &n, err));
    return strata_file_write(path, text, n, err);
}

/* ---- reading ---- */

static strata_status check_hash(const char *path, const char *text, size_t n, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES];
    const char *end = n < END_BYTES ? text : text + n - END_BYTES;
    if (end == text || memcmp(end, BEFORE_HASH, sizeof BEFORE_HASH - 1) != 0 ||
        memcmp(text + n - (sizeof AFTER_HASH - 1), AFTER_HASH, sizeof AFTER_HASH - 1) != 0)
        return strata_fail(err, STRATA_DATA, "%s: is damaged: it does not end with its hash, as one that is half written",
                           path);
    STRATA_TRY(strata_sha256_of(text, n - END_BYTES, hash, err));
    if (!memcmp(hash, end + sizeof BEFORE_HASH - 1, HASH_DIGITS)) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: is damaged: its SHA-256 is not the one at its end", path);
}

static strata_status read_texts(const strata_json *root, strata_manifest *out, strata_error *err) {
    strata_json list, item;
    const char *text;
    STRATA_TRY(strata_json_get(root, "texts", &list, err));
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_OBJECT, err));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) {
        STRATA_TRY(strata_json_to_string(&item, &text, err));
        STRATA_TRY(strata_manifest_add_text(out, item.name, text, err));
    }
    return STRATA_OK;
}

static bool is_hash(const char *text) {
    return strlen(text) == HASH_DIGITS && strspn(text, "0123456789abcdef") == HASH_DIGITS;
}

static strata_status read_files(const strata_json *root, strata_manifest *out, strata_error *err) {
    strata_json list, item;
    STRATA_TRY(strata_json_get_array(root, "files", &list, err));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) {
        const char *name, *hash;
        int64_t bytes = 0;
        STRATA_TRY(strata_json_get_string(&item, "name", STRATA_JSON_REQUIRED, &name, err));
        STRATA_TRY(strata_json_get_string(&item, "sha256", STRATA_JSON_REQUIRED, &hash, err));
        STRATA_TRY(strata_json_get_int(&item, "bytes", STRATA_JSON_REQUIRED, 0, (int64_t)1 << 46, &bytes, err));
        if (!*name || *name == '.' || strchr(name, '/'))
            return strata_json_fail(&item, err, STRATA_DATA, "\"%.100s\" is no name of a file in the folder", name);
        if (!is_hash(hash)) return strata_json_fail(&item, err, STRATA_DATA, "\"%.70s\" is no SHA-256", hash);
        STRATA_TRY(strata_manifest_add_file(out, name, bytes, hash, err));
    }
    return STRATA_OK;
}

static strata_status read_dtype(const strata_json *item, strata_dtype *out, strata_error *err) {
    const char *name;
    int bits;
    STRATA_TRY(strata_json_get_string(item, "dtype", STRATA_JSON_REQUIRED, &name, err));
    if (strata_safetensors_find_dtype(name, out, &bits) && *out != STRATA_DTYPE_COUNT) return STRATA_OK;
    return strata_json_fail(item, err, STRATA_DATA, "\"%.20s\" is no dtype that Strata has", name);
}

static strata_status read_shape(const strata_json *item, strata_shape *out, strata_error *err) {
    strata_json list, dim;
    *out = (strata_shape){0};
    int64_t elements = 1;
    STRATA_TRY(strata_json_get_array(item, "shape", &list, err));
    for (bool more = strata_json_first(&list, &dim); more; more = strata_json_next(&dim)) {
        if (out->rank == STRATA_MAX_RANK)
            return strata_json_fail(&list, err, STRATA_DATA, "has more than %d dimensions", STRATA_MAX_RANK);
        STRATA_TRY(strata_json_to_int(&dim, 0, (int64_t)1 << 46, &out->dims[out->rank], err));
        const int64_t size = out->dims[out->rank++];
        if (__builtin_mul_overflow(elements, size ? size : 1, &elements) || elements > (int64_t)1 << 46)
            return strata_json_fail(&list, err, STRATA_DATA, "is of too many elements");
    }
    return STRATA_OK;
}

static strata_status read_tensor(const strata_json *item, strata_manifest *out, strata_error *err) {
    const char *name;
    strata_dtype dtype = STRATA_DTYPE_F32;
    strata_shape shape;
    strata_json list, at;
    STRATA_TRY(strata_json_get_string(item, "name", STRATA_JSON_REQUIRED, &name, err));
    STRATA_TRY(read_dtype(item, &dtype, err));
    STRATA_TRY(read_shape(item, &shape, err));
    if (strata_manifest_find(out, name))
        return strata_json_fail(item, err, STRATA_DATA, "there are two tensors \"%.100s\"", name);
    STRATA_TRY(strata_json_get_array(item, "pieces", &list, err));
    const int64_t most = strata_shape_elements(shape);
    for (bool more = strata_json_first(&list, &at); more; more = strata_json_next(&at)) {
        int64_t file = 0, begin = 0, end = 0;
        STRATA_TRY(strata_json_get_int(&at, "file", STRATA_JSON_REQUIRED, 0, INT32_MAX, &file, err));
        STRATA_TRY(strata_json_get_int(&at, "begin", STRATA_JSON_REQUIRED, 0, most, &begin, err));
        STRATA_TRY(strata_json_get_int(&at, "end", STRATA_JSON_REQUIRED, 0, most, &end, err));
        const strata_manifest_piece piece = {(int)file, begin, end};
        STRATA_TRY(strata_manifest_add_piece(out, name, dtype, shape, piece, err));
    }
    const strata_manifest_tensor *tensor = strata_manifest_find(out, name);
    if (!tensor) return strata_json_fail(item, err, STRATA_DATA, "tensor \"%.100s\" has no pieces", name);
    strata_error why;
    const strata_status status = check_tensor(out, tensor, STRATA_DATA, &why);
    return status ? strata_json_fail(item, err, status, "%s", why.message) : STRATA_OK;
}

static strata_status read_root(const strata_json *root, strata_manifest *out, strata_error *err) {
    const char *format = "", *model;
    int64_t version = 0;
    strata_json list, item;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_get_string(root, "format", STRATA_JSON_REQUIRED, &format, err));
    STRATA_TRY(strata_json_get_int(root, "version", STRATA_JSON_REQUIRED, 1, INT32_MAX, &version, err));
    if (strcmp(format, FORMAT) != 0)
        return strata_json_fail(root, err, STRATA_DATA, "is of the format \"%.50s\", not \"%s\"", format, FORMAT);
    if (version > STRATA_MANIFEST_VERSION)
        return strata_json_fail(root, err, STRATA_UNSUPPORTED,
                                "is of version %lld; this Strata reads checkpoints up to version %d. Go on with a newer Strata",
                                (long long)version, STRATA_MANIFEST_VERSION);
    STRATA_TRY(strata_json_get_string(root, "model", STRATA_JSON_REQUIRED, &model, err));
    STRATA_TRY(strata_manifest_add_text(out, STRATA_MODEL_METADATA, model, err));
    STRATA_TRY(read_texts(root, out, err));
    STRATA_TRY(read_files(root, out, err));
    STRATA_TRY(strata_json_get_array(root, "tensors", &list, err));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item))
        STRATA_TRY(read_tensor(&item, out, err));
    return STRATA_OK;
}

strata_status strata_manifest_read(const char *folder, strata_manifest *out_manifest, strata_error *err) {
    STRATA_FREED char *path = NULL;
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n = 0;
    STRATA_FINISHED(strata_json) root = {0};
    *out_manifest = (strata_manifest){.path = folder};
    STRATA_TRY(path_in(folder, STRATA_MANIFEST_NAME, &path, err));
    STRATA_TRY(strata_file_read(path, STRATA_MANIFEST_MAX_BYTES, &bytes, &n, err));
    STRATA_TRY(check_hash(path, (const char *)bytes, n, err));
    STRATA_TRY(strata_json_parse(path, bytes, n, STRATA_MANIFEST_MAX_BYTES, &root, err));
    const strata_status status = read_root(&root, out_manifest, err);
    if (status) strata_manifest_finish(out_manifest);
    return status;
}

static strata_status read_part(const strata_manifest_file *file, const char *folder, struct strata_manifest_part *part,
                               strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES];
    size_t n = 0;
    STRATA_TRY(path_in(folder, file->name, &part->path, err));
    STRATA_TRY(strata_file_read(part->path, STRATA_BYTES_LIMIT(46), &part->bytes, &n, err));
    if ((int64_t)n != file->bytes)
        return strata_fail(err, STRATA_DATA, "%s: is damaged: it has %zu bytes, of %lld that were written", part->path, n,
                           (long long)file->bytes);
    STRATA_TRY(strata_sha256_of(part->bytes, n, hash, err));
    if (strcmp(hash, file->sha256) != 0)
        return strata_fail(err, STRATA_DATA, "%s: is damaged: its SHA-256 is %.12s..., it was written with %.12s...",
                           part->path, hash, file->sha256);
    return strata_safetensors_parse(part->path, part->bytes, n, &part->file, err);
}

static strata_status read_parts(strata_manifest *manifest, strata_error *err) {
    STRATA_TRY(STRATA_NEW(manifest->parts, manifest->n_files, err, NO_MEMORY));
    manifest->n_parts = manifest->n_files;
    for (int i = 0; i < manifest->n_parts; i++)
        STRATA_TRY(read_part(&manifest->files[i], manifest->path, &manifest->parts[i], err));
    return STRATA_OK;
}

strata_status strata_manifest_open(const char *folder, strata_manifest *out_manifest, strata_error *err) {
    STRATA_TRY(strata_manifest_read(folder, out_manifest, err));
    const strata_status status = read_parts(out_manifest, err);
    if (status) strata_manifest_finish(out_manifest);
    return status;
}

/* Takes the texts and the tensors of the only file. */
static strata_status take_file(strata_manifest *manifest, const strata_safetensors *file, strata_error *err) {
    strata_json metadata, item;
    const char *text;
    bool more = strata_json_find(&file->header, "__metadata__", &metadata) && strata_json_first(&metadata, &item);
    for (; more; more = strata_json_next(&item)) {
        STRATA_TRY(strata_json_to_string(&item, &text, err));
        STRATA_TRY(strata_manifest_add_text(manifest, item.name, text, err));
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        const strata_safetensor *tensor = &file->tensors[i];
        strata_manifest_tensor *at = add_tensor(manifest, tensor->name, tensor->dtype, tensor->shape);
        if (!at) return no_memory(err);
    }
    return STRATA_OK;
}

strata_status strata_manifest_open_file(const char *path, strata_manifest *out_manifest, strata_error *err) {
    *out_manifest = (strata_manifest){.path = path};
    STRATA_TRY(STRATA_NEW(out_manifest->parts, 1, err, NO_MEMORY));
    out_manifest->n_parts = 1;
    strata_status status = strata_safetensors_read(path, &out_manifest->parts[0].file, err);
    if (!status) status = take_file(out_manifest, &out_manifest->parts[0].file, err);
    if (status) strata_manifest_finish(out_manifest);
    return status;
}

static strata_status copy_piece(const strata_manifest *manifest, const strata_manifest_tensor *tensor,
                                strata_manifest_piece piece, void *out_data, strata_error *err) {
    STRATA_FREED char *name = strata_manifest_piece_name(tensor, piece);
    if (!name) return no_memory(err);
    const strata_shape shape = is_whole(tensor, piece) ? tensor->shape : STRATA_SHAPE(piece.end - piece.begin);
    void *out = (char *)out_data + (size_t)piece.begin * strata_dtype_bytes(tensor->dtype);
    return strata_safetensors_copy(&manifest->parts[piece.file].file, name, tensor->dtype, shape, out, err);
}

strata_status strata_manifest_copy(const strata_manifest *manifest, const char *name, strata_dtype dtype, strata_shape shape,
                                   void *out_data, strata_error *err) {
    const strata_manifest_tensor *tensor = strata_manifest_find(manifest, name);
    if (!manifest->n_files) return strata_safetensors_copy(&manifest->parts[0].file, name, dtype, shape, out_data, err);
    if (!tensor) return strata_fail(err, STRATA_DATA, "%s: there is no tensor \"%.100s\"", manifest->path, name);
    if (tensor->dtype != dtype || !strata_shape_equal(tensor->shape, shape))
        return strata_fail(err, STRATA_DATA, "%s: tensor \"%.100s\" is %s of %s, not %s of %s", manifest->path, name,
                           strata_shape_text(tensor->shape).text, strata_dtype_name(tensor->dtype),
                           strata_shape_text(shape).text, strata_dtype_name(dtype));
    for (int i = 0; i < tensor->n_pieces; i++)
        if (tensor->pieces[i].end > tensor->pieces[i].begin || tensor->n_pieces == 1)
            STRATA_TRY(copy_piece(manifest, tensor, tensor->pieces[i], out_data, err));
    return STRATA_OK;
}
