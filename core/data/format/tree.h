/* SPDX-License-Identifier: Apache-2.0
 *
 * Visits all files of a folder and the folders in it, or of a tar archive (plain, gzip or xz). The visitor parses the files. */
#ifndef STRATA_CORE_DATA_TREE_H
#define STRATA_CORE_DATA_TREE_H

#include <stdbool.h>

#include "strata/status.h"

typedef enum strata_tree_skip {
    /* A link whose target does not exist. */
    STRATA_TREE_BROKEN_LINK,
    /* A link to a folder that was visited before: each folder is visited once below each entry of the root. */
    STRATA_TREE_AGAIN,
    /* A socket, a pipe or a device. */
    STRATA_TREE_NO_FILE
} strata_tree_skip;

/* Called for each file that is wanted. `place` is the file's name in messages. A NUL follows the bytes; the callee takes them,
 * and frees them also if it fails. */
typedef strata_status (*strata_tree_take)(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                                          strata_error *err);

typedef struct strata_tree_visitor {
    /* Whether the file of this name, relative to the root and with '/', is wanted. */
    bool (*wants)(const char *name, void *user);
    strata_tree_take take;
    void *user;
    /* How many levels of folders below the root are visited. A tar archive is always visited as a whole. */
    int depth;
    /* (optional) Whether the folder of this name is visited. */
    bool (*enters)(const char *name, void *user);
    /* (optional) Called for what cannot be visited. */
    void (*skips)(const char *name, strata_tree_skip why, void *user);
} strata_tree_visitor;

/* Whether `path` is a folder. */
bool strata_tree_is_folder(const char *path);

/* Visits the files of a folder, in no particular order. The files are not decompressed. Links to files and folders are
 * followed. Fails: UNAVAILABLE if the folder or a file cannot be read; DATA if the path is not a folder; with the status that
 * `take` returned. */
STRATA_MUST_USE strata_status strata_tree_visit_folder(const char *path, const strata_tree_visitor *visitor, strata_error *err);
/* Visits the files of a tar archive (ustar, GNU's long names, pax paths), in its order. Fails: UNAVAILABLE if it cannot be
 * read; DATA with the offset in the expanded archive; with the status that `take` returned. */
STRATA_MUST_USE strata_status strata_tree_visit_tar(const char *path, const strata_tree_visitor *visitor, strata_error *err);
STRATA_MUST_USE strata_status strata_tree_visit_tar_bytes(const char *name, const void *bytes, size_t n_bytes,
                                                          const strata_tree_visitor *visitor, strata_error *err);

/* Compares two visited names for sorting. The files of a folder follow each other, and folders are in the order of their names:
 * "cat/1.png" is before "cat-big/1.png", although '-' is before '/'. */
int strata_tree_compare_names(const char *a, const char *b);

#endif
