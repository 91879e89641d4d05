/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of other programs as arrays: IDX, CIFAR-10, NumPy, safetensors, pictures and zip archives. dataset.h and
 * preprocessing.h make datasets of them; these functions show what is in a file.
 *
 * `name` is the file's name in messages. Files may be compressed with gzip or xz; their first bytes show it, not their names.
 * */
#ifndef STRATA_FORMATS_H
#define STRATA_FORMATS_H

#include "strata/file.h"
#include "strata/json.h"
#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- compressed files ---- */

/* Reads the first `wanted` bytes of a file, expanded, from which the caller finds the format. *out_n is smaller if the file is
 * shorter or damaged; the reader of the format then reports the damage. It is 0 for a pipe. */
STRATA_API STRATA_MUST_USE strata_status strata_stream_peek_file(const char *path, void *out_head, size_t wanted, size_t *out_n,
                                                                 strata_error *err);
/* Reads a whole file, expanded. The caller frees the bytes; *out_n_bytes does not count the NUL after them. Fails: UNAVAILABLE
 * if the file cannot be read; DATA if it is damaged or has more than max_bytes; OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_stream_read_file(const char *path, size_t max_bytes, unsigned char **out_bytes,
                                                                 size_t *out_n_bytes, strata_error *err);

/* ---- IDX: the files of MNIST ---- */

/* Reads an array of u8, i32 or f32 with 1 to 4 axes, which the caller finishes. Fails: DATA with the offset and the two numbers
 * that disagree; UNSUPPORTED for other types; UNAVAILABLE if the file cannot be read; OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_idx_read(const char *path, strata_array *out_array, strata_error *err);

/* ---- CIFAR-10: records of one label byte and three planes of 32x32 bytes (red, green, blue) ---- */

enum { STRATA_CIFAR10_SIDE = 32, STRATA_CIFAR10_CLASSES = 10, STRATA_CIFAR10_RECORD = 1 + 3 * 32 * 32 };

/* Parses records, which may be compressed with gzip or xz. The caller finishes the images, u8 (N,32,32,3), and the labels, u8
 * (N).
 * Fails: DATA with name, record and offset. */
STRATA_API STRATA_MUST_USE strata_status strata_cifar10_parse(const char *name, const void *bytes, size_t n_bytes,
                                                              strata_array *out_images, strata_array *out_labels,
                                                              strata_error *err);

/* ---- NumPy: .npy and .npz ---- */

/* Parses bytes[0..n_bytes) into an array that the caller finishes. It reads the versions 1 to 3, C order, little-endian, rank
 * at most 8. The types f4 f2 i4 i8 u1 b1 are kept; f8 is converted to f32, rounded to nearest, and a number that is too large
 * for f32 is an error. The size must be exactly that of the header.
 * Fails: DATA if the file is malformed, with offset and numbers; UNSUPPORTED for other types, Python objects, big-endian
 * numbers and Fortran order (the message explains how to save the array instead); OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_npy_parse(const char *name, const void *bytes, size_t n_bytes,
                                                          strata_array *out_array, strata_error *err);
/* Returns the type and the shape of the elements in the file, and how many bytes they have, without reading the elements. The
 * type is the one before the conversion: "f64" for elements that strata_npy_parse converts to f32. */
STRATA_API STRATA_MUST_USE strata_status strata_npy_describe(const char *name, const void *bytes, size_t n_bytes,
                                                             const char **out_type, strata_shape *out_shape, size_t *out_bytes,
                                                             strata_error *err);
/* Reads a file, which may be compressed with gzip or xz, and parses it. Fails as strata_npy_parse, and with UNAVAILABLE if the
 * file cannot be read. */
STRATA_API STRATA_MUST_USE strata_status strata_npy_read(const char *path, strata_array *out_array, strata_error *err);
/* The same, and *out_exact: the elements of an f8 array as doubles, which the caller frees; a number that is too large for f32
 * is then infinite in the array. NULL for other types, whose array is exact. */
STRATA_API STRATA_MUST_USE strata_status strata_npy_read_exact(const char *path, strata_array *out_array, double **out_exact,
                                                               strata_error *err);

/* An array and its name in a file. */
typedef struct strata_named_array {
    const char *name;
    /* Borrowed. */
    strata_array array;
} strata_named_array;

/* Reads the array called `array_name` (with or without .npy), which the caller finishes.
 * Fails: DATA for a damaged archive, with the offset, for a wrong checksum, and if there is no such array (the message then
 * suggests the nearest name or lists all); UNSUPPORTED for other compression methods; as strata_npy_parse. */
STRATA_API STRATA_MUST_USE strata_status strata_npz_parse(const char *name, const void *bytes, size_t n_bytes,
                                                          const char *array_name, strata_array *out_array, strata_error *err);
/* The same, with *out_exact as in strata_npy_parse_exact. */
STRATA_API STRATA_MUST_USE strata_status strata_npz_parse_exact(const char *name, const void *bytes, size_t n_bytes,
                                                                const char *array_name, strata_array *out_array,
                                                                double **out_exact, strata_error *err);

/* An array of an archive, as strata_npy_describe describes it. */
typedef struct strata_npz_entry {
    /* Without .npy. Valid until the visitor returns. */
    const char *name;
    const char *type;
    strata_shape shape;
    size_t n_bytes;
} strata_npz_entry;
typedef void (*strata_npz_visitor)(const strata_npz_entry *entry, void *user);
/* Calls `visit` for each array, in the archive's order. All members are unpacked and their checksums compared before the first
 * call, so that no array of a damaged archive is visited. visit NULL: the archive is only checked. Fails as
 * strata_npz_parse. */
STRATA_API STRATA_MUST_USE strata_status strata_npz_list(const char *name, const void *bytes, size_t n_bytes,
                                                         strata_npz_visitor visit, void *user, strata_error *err);

enum { STRATA_ZIP_MOST_CONTENTS = 64 };
/* Writes an archive of n arrays, at most STRATA_ZIP_MOST_CONTENTS, without compression. Fails: UNSUPPORTED for bf16; as
 * strata_file_write. */
STRATA_API STRATA_MUST_USE strata_status strata_npz_write(const char *path, const strata_named_array *arrays, int n,
                                                          strata_error *err);

/* ---- safetensors ---- */

/* One tensor of a file. */
typedef struct strata_safetensor {
    const char *name;
    /* The name of the dtype in the file, for example "F32". */
    const char *dtype_name;
    /* STRATA_DTYPE_COUNT if Strata does not have the dtype ("F64"); reading such a tensor fails with UNSUPPORTED. */
    strata_dtype dtype;
    strata_shape shape;
    /* The data in the file's memory, which may be unaligned. */
    const unsigned char *data;
    size_t n_bytes;
} strata_safetensor;

/* A checked file. Tensors are in the order of their data. Names live as long as the file. */
typedef struct strata_safetensors {
    /* The name of the file, for messages; borrowed. */
    const char *name;
    strata_safetensor *tensors;
    size_t n_tensors;
    /* Pointers to the elements of `tensors`, sorted by name. */
    strata_safetensor **by_name;
    strata_json header;
    /* The file's bytes, if strata_safetensors_read read them; NULL: the bytes are the caller's. */
    unsigned char *owned;
} strata_safetensors;

/* Reads a whole file into memory and checks all of it; borrows `path`. Fails: DATA, with file, tensor and numbers, if it is
 * damaged; UNAVAILABLE if it cannot be read; OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_safetensors_read(const char *path, strata_safetensors *out_file,
                                                                 strata_error *err);
STRATA_API void strata_safetensors_finish(strata_safetensors *file); /* NULL and a zeroed file are fine */

/* Finds a tensor by its name; NULL: there is none. */
STRATA_API const strata_safetensor *strata_safetensors_find(const strata_safetensors *file, const char *tensor_name);
/* A value of __metadata__; NULL: the key is missing. Lives as long as the file. */
STRATA_API const char *strata_safetensors_metadata(const strata_safetensors *file, const char *key);

/* Copies the elements of a tensor to out_data. dtype and shape are those that the caller expects.
 * Fails: DATA if there is no such tensor, if its dtype or shape is another, or if a bool is neither 0 nor 1; UNSUPPORTED if
 * Strata does not have the dtype. */
STRATA_API STRATA_MUST_USE strata_status strata_safetensors_copy(const strata_safetensors *file, const char *tensor_name,
                                                                 strata_dtype dtype, strata_shape shape, void *out_data,
                                                                 strata_error *err);
/* Copies a tensor to a new array, which the caller finishes. Fails as strata_safetensors_copy, and with OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_safetensors_load(const strata_safetensors *file, const char *tensor_name,
                                                                 strata_array *out_array, strata_error *err);

/* A text in __metadata__; borrowed. */
typedef struct strata_metadata {
    const char *key, *value;
} strata_metadata;

/* How a file is written; each field may be NULL. */
typedef struct strata_safetensors_writing {
    /* Reads the temporary file back before it is renamed. */
    const strata_file_check *check;
    /* Receive the SHA-256 and the length of the bytes that were written. */
    char *sha256;
    int64_t *bytes;
} strata_safetensors_writing;

/* Writes a temporary file and renames it (strata_file_write), so that `path` is always either the old or the new file. Tensors
 * are sorted by decreasing element size, then by name, as in the format's own library, so each is aligned to its elements. The
 * same content gives the same bytes. how: may be NULL.
 * Fails: INVALID for a duplicate or reserved name or key; OUT_OF_DISK, UNAVAILABLE, OUT_OF_MEMORY as strata_file_write. */
STRATA_API STRATA_MUST_USE strata_status strata_safetensors_write(const char *path, const strata_named_array *tensors,
                                                                  size_t n_tensors, const strata_metadata *metadata,
                                                                  size_t n_metadata, const strata_safetensors_writing *how,
                                                                  strata_error *err);

/* ---- pictures: PNG, JPEG, WebP, GIF, TIFF, BMP and netpbm (PBM, PGM, PPM) ---- */

/* Reads a picture as u8 (rows, columns, channels), which the caller finishes.
 *   channels  1: colours are converted to grey; 3: grey is copied to red, green and blue
 * Transparency is ignored. A picture is turned as its Exif data describe. The first picture of an animation, or of a file with
 * several pages, is read.
 * Fails: DATA for a damaged picture; UNSUPPORTED, with the name of the format, for other formats, and for those whose library
 * this build does not have. */
STRATA_API STRATA_MUST_USE strata_status strata_picture_parse(const char *name, const void *bytes, size_t n_bytes, int channels,
                                                              strata_array *out_pixels, strata_error *err);
/* Whether head[0..n), the first bytes of a file, are those of a picture, also of a format that is not read. n: at least 16, or
 * the whole file. */
STRATA_API bool strata_picture_matches(const void *head, size_t n);
typedef struct strata_picture_size {
    int64_t rows, columns;
    /* 1: grey, 3: colours. */
    int channels;
} strata_picture_size;
/* Reads only the picture's header; the size is that of the upright picture. Fails as strata_picture_parse. */
STRATA_API STRATA_MUST_USE strata_status strata_picture_measure(const char *name, const void *bytes, size_t n_bytes,
                                                                strata_picture_size *out_size, strata_error *err);
/* Resizes u8 (height, width, channels) to u8 (rows, columns, channels), which the caller finishes. Each pixel is a weighted
 * mean of the pixels around its position. The weights fall linearly with the distance and are 0 from max(1, old size / new
 * size) pixels on, in each direction. */
STRATA_API STRATA_MUST_USE strata_status strata_picture_resize(const strata_array *pixels, int64_t rows, int64_t columns,
                                                               strata_array *out_pixels, strata_error *err);
/* What is read, for messages. */
#define STRATA_PICTURE_FORMATS "PNG, JPEG, WebP, GIF, TIFF, BMP, PBM, PGM, PPM"
/* The endings of strata_picture_is_named, for messages. */
#define STRATA_PICTURE_ENDINGS ".png, .jpg, .jpeg, .webp, .gif, .tif, .tiff, .bmp, .pbm, .pgm, .ppm"
/* Whether the path ends in one of these, or in .jpe, .jfif, .dib, .apng or .pnm, in lower or upper case. */
STRATA_API bool strata_picture_is_named(const char *path);

/* ---- zip archives ----
 * In memory, with members that are stored or deflated. The source of the format is PKWARE's APPNOTE. Encryption, several disks
 * and archives of more than 4 GiB are not supported. */

enum { STRATA_ZIP_LONGEST_NAME = 256 };

typedef struct strata_zip_member {
    char name[STRATA_ZIP_LONGEST_NAME];
    /* 0: stored, 8: deflated. */
    unsigned method;
    uint32_t crc;
    /* The size in the archive, and decompressed, in bytes. */
    size_t packed, size;
    /* The offset of its local header. */
    size_t local;
} strata_zip_member;

typedef struct strata_zip {
    /* The archive's name in messages; borrowed. */
    const char *name;
    const unsigned char *bytes;
    size_t n_bytes;
    strata_zip_member *members;
    int n_members;
    strata_error *err;
} strata_zip;

/* Reads the directory. name, bytes and err are borrowed until finish. Fails: DATA, with the offset of the damage; UNSUPPORTED
 * for a member of more than 4 GiB. */
STRATA_API STRATA_MUST_USE strata_status strata_zip_open(const char *name, const void *bytes, size_t n_bytes, strata_zip *out,
                                                         strata_error *err);
STRATA_API void strata_zip_finish(strata_zip *zip);
/* NULL: there is no such member. */
STRATA_API const strata_zip_member *strata_zip_find(const strata_zip *zip, const char *name);
/* *out_bytes: the member->size bytes of a member, after comparing their checksum. The bytes of a stored member are in the
 * archive. Those of a deflated member are in *out_expanded, which the caller frees, also on failure. Fails: DATA for a damaged
 * member; UNSUPPORTED for other compression methods. */
STRATA_API STRATA_MUST_USE strata_status strata_zip_unpack(const strata_zip *zip, const strata_zip_member *member,
                                                           const unsigned char **out_bytes, unsigned char **out_expanded);

/* A member to write; name and bytes are borrowed. */
typedef struct strata_zip_content {
    const char *name;
    const void *bytes;
    size_t n_bytes;
} strata_zip_content;
/* Writes n members, at most STRATA_ZIP_MOST_CONTENTS, without compression, through a temporary file (strata_file_write),
 * which `check` (NULL: none) reads back before it is renamed. The same members give the same bytes. Fails: UNSUPPORTED for
 * more than 4 GiB; as strata_file_write. */
STRATA_API STRATA_MUST_USE strata_status strata_zip_write(const char *path, const strata_zip_content *members, int n,
                                                          const strata_file_check *check, strata_error *err);

/* ---- files of other programs ---- */

/* Kinds of files that the library reads; UNKNOWN: a model file of strata. */
typedef enum strata_file_kind { STRATA_FILE_UNKNOWN, STRATA_FILE_KERAS, STRATA_FILE_ONNX } strata_file_kind;

/* Called when a file could not be read as a file of the kind `expected`. Returns `status`, but if the file is of another kind
 * it fails with DATA, what the file is, and how to convert it. */
STRATA_API strata_status strata_file_explain(const char *path, const unsigned char *bytes, size_t n_bytes,
                                             strata_file_kind expected, strata_status status, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
