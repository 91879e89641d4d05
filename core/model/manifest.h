/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a checkpoint folder, manifest.json. It lists the files of the checkpoint, and for each tensor the files that
 * contain its elements.
 *
 *     {"format": "strata.checkpoint", "version": 1,
 *      "model": "{\"input\":[28,28], ...}",
 *      "texts": {"tokenizer": "..."},
 *      "files": [{"name": "part-0.safetensors", "bytes": 4096, "sha256": "..."}],
 *      "tensors": [{"name": "dense/kernel", "dtype": "F32", "shape": [784, 128],
 *                   "pieces": [{"file": 0, "begin": 0, "end": 100352}]}],
 *      "sha256": "..."}
 *
 * A piece contains the elements [begin, end) of its tensor in row-major order. The pieces of a tensor are sorted by `begin`,
 * without gaps and overlaps. A piece that is the whole tensor has the tensor's name and shape in its file. Another piece has
 * the name "dense/kernel[0:50176]", with its begin and end, and the shape (end - begin). So each worker or server that owns a
 * part of a tensor writes a separate file, and a reader does not need to know who owned which part.
 *
 * The last field is the SHA-256 of all bytes of the text before `,"sha256"`. With the hashes of the files it detects each
 * changed byte of a checkpoint. A reader refuses versions that are newer than its own.
 *
 * Writing a checkpoint: write all files, then the manifest, into a folder with a temporary name; rename the folder; sync the
 * folder above it (core/model/checkpoint_folder.h). */
#ifndef STRATA_CORE_MODEL_MANIFEST_H
#define STRATA_CORE_MODEL_MANIFEST_H

#include "strata/sha256.h"
#include "strata/tensor.h"

#define STRATA_MANIFEST_NAME "manifest.json"
/* The key of the model's JSON among the texts, which are the metadata of a single file. */
#define STRATA_MODEL_METADATA "strata.model"
enum { STRATA_MANIFEST_VERSION = 1, STRATA_MANIFEST_MAX_BYTES = 64 << 20 };

typedef struct strata_manifest_file {
    /* The name of a file in the checkpoint's folder, without '/'. */
    char *name;
    int64_t bytes;
    char sha256[STRATA_SHA256_TEXT_BYTES];
} strata_manifest_file;

typedef struct strata_manifest_piece {
    /* The index of the file, and the elements [begin, end) of the tensor that the file contains. */
    int file;
    int64_t begin, end;
} strata_manifest_piece;

typedef struct strata_manifest_tensor {
    char *name;
    strata_dtype dtype;
    strata_shape shape;
    strata_manifest_piece *pieces;
    int n_pieces;
} strata_manifest_tensor;

typedef struct strata_manifest_text {
    char *key, *text;
} strata_manifest_text;

/* Zero-initialize it; free it with strata_manifest_finish. It owns everything that it contains. */
typedef struct strata_manifest {
    /* The model's JSON (strata_model_to_json), STRATA_MODEL_METADATA, and others. */
    strata_manifest_text *texts;
    int n_texts;
    strata_manifest_file *files;
    int n_files;
    strata_manifest_tensor *tensors;
    int n_tensors;
    /* What was read: the folder or the file, borrowed; and, if they were opened, the files in memory. */
    const char *path;
    struct strata_manifest_part *parts;
    int n_parts;
} strata_manifest;

void strata_manifest_finish(strata_manifest *manifest); /* NULL and a zeroed manifest are fine */

/* ---- writing: each of these copies its texts; OUT_OF_MEMORY is the only failure of the first three ---- */

STRATA_MUST_USE strata_status strata_manifest_add_text(strata_manifest *manifest, const char *key, const char *text,
                                                       strata_error *err);
/* Adds a file. Its index is then n_files - 1. */
STRATA_MUST_USE strata_status strata_manifest_add_file(strata_manifest *manifest, const char *name, int64_t bytes,
                                                       const char *sha256, strata_error *err);
/* Adds a piece to the tensor with this name, which is added if there is none yet. Pieces may be added in any order, since
 * strata_manifest_write sorts them. */
STRATA_MUST_USE strata_status strata_manifest_add_piece(strata_manifest *manifest, const char *name, strata_dtype dtype,
                                                        strata_shape shape, strata_manifest_piece piece, strata_error *err);
/* The name of the piece's tensor in its file; free with free(). NULL: no memory. */
char *strata_manifest_piece_name(const strata_manifest_tensor *tensor, strata_manifest_piece piece);
/* Writes folder/manifest.json through a temporary file. Fails: INVALID if pieces leave gaps, overlap or are outside of their
 * tensor; as strata_file_write. */
STRATA_MUST_USE strata_status strata_manifest_write(strata_manifest *manifest, const char *folder, strata_error *err);

/* ---- reading ---- */

/* Reads and checks folder/manifest.json. Fails: UNAVAILABLE if it cannot be read; DATA if its hash shows that it is damaged or
 * cut off, if it has another format or a newer version, or if its values contradict each other. */
STRATA_MUST_USE strata_status strata_manifest_read(const char *folder, strata_manifest *out_manifest, strata_error *err);
/* The same, and reads all files and compares their lengths and hashes. Borrows `folder`. Fails also: DATA, with the name of a
 * file that is missing, damaged or not a safetensors file. */
STRATA_MUST_USE strata_status strata_manifest_open(const char *folder, strata_manifest *out_manifest, strata_error *err);
/* Opens a model file or a checkpoint in one file, a safetensors file, as if it had a manifest. Borrows `path`. Fails as
 * strata_safetensors_read. */
STRATA_MUST_USE strata_status strata_manifest_open_file(const char *path, strata_manifest *out_manifest, strata_error *err);
/* Finds a tensor, or a text, by its name; NULL: there is none. */
strata_manifest_tensor *strata_manifest_find(const strata_manifest *manifest, const char *name);
const char *strata_manifest_find_text(const strata_manifest *manifest, const char *key);
/* Copies the pieces of a tensor to the caller's memory. dtype and shape are those that the caller expects. Fails: DATA if there
 * is no such tensor, if its dtype or shape is another, or if a file does not have the piece. */
STRATA_MUST_USE strata_status strata_manifest_copy(const strata_manifest *manifest, const char *name, strata_dtype dtype,
                                                   strata_shape shape, void *out_data, strata_error *err);

#endif
