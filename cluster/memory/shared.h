/* SPDX-License-Identifier: Apache-2.0
 *
 * A file in /dev/shm that several processes map. Its name cannot be guessed, and is removed when all have mapped it, so that a
 * killed process leaves nothing behind. */
#ifndef STRATA_CLUSTER_MEMORY_SHARED_H
#define STRATA_CLUSTER_MEMORY_SHARED_H

#include <stdbool.h>
#include <stddef.h>

#include "strata/status.h"

/* Room for a name. */
enum { STRATA_SHARED_NAME = 48 };

typedef struct strata_shared {
    /* "": this process did not create the file, or its name was removed. */
    char name[STRATA_SHARED_NAME];
    /* The mapping, zero at first; NULL: none. */
    unsigned char *memory;
    size_t bytes;
} strata_shared;

/* Creates the file. Its memory is reserved now, since otherwise the first access without memory would raise a signal. Fails:
 * UNSUPPORTED if there is too little memory; UNAVAILABLE. */
STRATA_MUST_USE strata_status strata_shared_make(strata_shared *shared, size_t bytes, strata_error *err);
/* Maps a file that another process created. Fails: UNAVAILABLE if there is none, or if its size is not within the limits. */
STRATA_MUST_USE strata_status strata_shared_open(strata_shared *shared, const char *name, size_t least_bytes, size_t most_bytes,
                                                 strata_error *err);
/* Removes the name. Existing mappings stay valid. */
void strata_shared_hide(strata_shared *shared);
void strata_shared_close(strata_shared *shared);

#endif
