/* SPDX-License-Identifier: Apache-2.0
 *
 * Visits the pictures of a folder, and counts what it leaves out. All that read folders of pictures use it, so that training,
 * evaluation and prediction use the same files. */
#ifndef STRATA_CORE_DATA_PICTURE_FOLDER_H
#define STRATA_CORE_DATA_PICTURE_FOLDER_H

#include "core/base/text.h"
#include "core/data/format/tree.h"

/* Why an entry of a folder is no picture that is read. */
typedef enum strata_picture_left_out {
    STRATA_PICTURE_BROKEN_LINK,
    STRATA_PICTURE_AGAIN,
    STRATA_PICTURE_OUTSIDE,
    STRATA_PICTURE_FOREIGN,
    STRATA_PICTURE_OTHER,
    STRATA_PICTURE_HIDDEN,
    STRATA_PICTURE_SYSTEM,
    STRATA_PICTURE_N_LEFT_OUT
} strata_picture_left_out;

typedef struct strata_picture_folder {
    /* Whether each picture must be in the folder of its class, at any depth. Otherwise pictures directly in the folder are
     * visited, too. */
    bool classes;
    strata_tree_take take;
    void *user;
    /* The number of pictures that were visited, and of each kind of those that were left out, with the first of their names. */
    int64_t n;
    struct {
        int64_t n;
        char first[64];
    } left_out[STRATA_PICTURE_N_LEFT_OUT];
    /* The folders of classes, and whether there are pictures in them. */
    struct strata_picture_class {
        char *name;
        bool filled;
    } * found;
    int n_found;
    bool no_memory;
} strata_picture_folder;

/* Visits all files that are called as pictures are, in no particular order, behind links and in folders at any depth. Start
 * from a zeroed struct. Fails: UNAVAILABLE if there are none; DATA for the folder of a class without pictures; with the status
 * that `take` returned. */
STRATA_MUST_USE strata_status strata_picture_folder_visit(const char *path, strata_picture_folder *folder, strata_error *err);
/* Adds a list such as "left out 1 broken link (cats/1.png), 2 hidden files (.DS_Store, ...)"; nothing if nothing was. */
void strata_picture_folder_describe(const strata_picture_folder *folder, strata_text *out);

#endif
