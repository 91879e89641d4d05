/* SPDX-License-Identifier: Apache-2.0
 *
 * Many files at once: a folder with its folders, or a tar archive (plain, gzip, xz) that holds the same. What is in a file is
 * for the visitor to say. */
#ifndef STRATA_CORE_DATA_TREE_H
#define STRATA_CORE_DATA_TREE_H

#include <stdbool.h>

#include "strata/status.h"

typedef struct strata_tree_visitor {
    /* Whether the file of this name, relative to the root and with '/', is wanted. */
    bool (*wants)(const char *name, void *user);
    /* Receives a wanted file. `place` names it in messages; `bytes` are followed by a NUL and belong to the callee, who frees
     * them, on failure too. */
    strata_status (*take)(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                          strata_error *err);
    void *user;
    /* Levels of folders below the root that are looked into; of no matter for a tar. */
    int depth;
} strata_tree_visitor;

/* Whether `path` is a folder. */
bool strata_tree_is_folder(const char *path);

/* Files below a folder, in no particular order, as they are (not expanded). Links to folders are not followed. Fails:
 * UNAVAILABLE, DATA when it is no folder; what `take` returned. */
STRATA_MUST_USE strata_status strata_tree_visit_folder(const char *path, const strata_tree_visitor *visitor, strata_error *err);
/* All files of a tar (ustar, GNU long names, pax paths), in its order. Fails: DATA with the offset in the expanded archive;
 * what `take` returned. */
STRATA_MUST_USE strata_status strata_tree_visit_tar(const char *path, const strata_tree_visitor *visitor, strata_error *err);
STRATA_MUST_USE strata_status strata_tree_visit_tar_bytes(const char *name, const void *bytes, size_t n_bytes,
                                                          const strata_tree_visitor *visitor, strata_error *err);

#endif
