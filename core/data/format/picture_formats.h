/* SPDX-License-Identifier: Apache-2.0
 *
 * A reader for each file format of pictures: each picture_<format>.c has one. picture.c chooses the reader by a file's first
 * bytes. A reader returns the pixels as the file stores them: picture.c turns them upright and converts grey and colours. */
#ifndef STRATA_CORE_DATA_PICTURE_FORMATS_H
#define STRATA_CORE_DATA_PICTURE_FORMATS_H

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "core/data/format/tree.h"
#include "strata/formats.h"

enum { STRATA_PICTURE_MOST_SIDE = 1 << 15, STRATA_PICTURE_MOST_PIXELS = 1 << 26 };

typedef struct strata_picture_file {
    /* The picture's name in messages. */
    const char *name;
    const unsigned char *bytes;
    size_t n_bytes;
} strata_picture_file;

/* pixels NULL: reads the header and sets *size: rows and columns before the picture is turned, channels 1 or 3. Otherwise
 * writes `pixels`, u8 (rows, columns, channels) of the size that was measured. */
typedef strata_status strata_picture_reader(const strata_picture_file *file, strata_picture_size *size, uint8_t *pixels,
                                            strata_error *err);
strata_picture_reader strata_picture_read_bmp, strata_picture_read_netpbm;
/* Only in builds with their library. */
strata_picture_reader strata_picture_read_gif, strata_picture_read_jpeg, strata_picture_read_png, strata_picture_read_tiff,
    strata_picture_read_webp;
/* Whether head[0..n), the first bytes of a file, are those of this format. */
bool strata_picture_is_bmp(const unsigned char *head, size_t n);
bool strata_picture_is_netpbm(const unsigned char *head, size_t n);

/* Fails with DATA: "<name>: its <what> is damaged or cut off: <reason>". what: for example "PNG header". reason may be NULL. */
strata_status strata_picture_damaged(const strata_picture_file *file, const char *what, const char *reason, strata_error *err);
/* Converts n pixels of 4 bytes, cyan, magenta, yellow and black (0: no ink), to red, green and blue: the product of what the
 * colour's and the black ink let through. */
void strata_picture_from_cmyk(const uint8_t *cmyk, int64_t n, uint8_t *rgb);

/* exif.c: the body of the first chunk of a PNG or RIFF file with this name of 4 bytes; NULL: there is none. */
const unsigned char *strata_picture_chunk(const unsigned char *bytes, size_t n_bytes, bool png, const char *name,
                                          size_t *out_n);
/* Whether the path ends as pictures of a format do that is not read, such as .heic. */
bool strata_picture_is_foreign(const char *path);

/* ---- exif.c: the Exif data of a JPEG, PNG or WebP, and a TIFF (tag Orientation, 0x0112; Exif 2.32, section 4.6.4) ---- */

/* The orientation, 1 to 8, in Exif's numbering. 1 means that the picture should be shown as it is stored, and is also returned
 * if the file has no Exif data or damaged ones. From 5 on, rows and columns are exchanged. */
int strata_exif_orientation(const unsigned char *picture, size_t n_bytes);
/* Rotates or mirrors u8 pixels (rows, columns, channels) to the orientation in which the picture should be shown. Fails:
 * OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_exif_turn(const char *name, int orientation, strata_array *pixels, strata_error *err);

/* ---- picture_folder.c: visits the pictures of a folder, and counts what it leaves out. All that read folders of pictures use
 * it, so that training, evaluation and prediction use the same files ---- */

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
