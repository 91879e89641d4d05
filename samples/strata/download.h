/* SPDX-License-Identifier: Apache-2.0
 *
 * Downloads a file and checks its hash; an earlier unfinished attempt is continued. */
#ifndef STRATA_SAMPLES_DOWNLOAD_H
#define STRATA_SAMPLES_DOWNLOAD_H

#include <stdbool.h>

#include "strata/status.h"

typedef struct download {
    const char *name;   /* of the file in the folder: no path */
    const char *url;    /* http or https */
    const char *sha256; /* 64 lower-case hexadecimal digits */
    int64_t bytes;      /* what it should have; 0: not known */
} download;

/* Called from time to time while bytes arrive; `total` is 0 if the server does not send the size. Returning true ends the
 * download, which can be continued later. */
typedef bool (*download_progress)(const download *file, int64_t received, int64_t total, void *user);

/* Makes <folder>/<name>. Bytes go to <name>.part, which stays when the connection breaks and is continued by the next call; the
 * file gets its name when its hash is right. *out_present: it was there already, whole.
 * Fails: UNAVAILABLE when the server or the file can't be reached; TIMEOUT when nothing comes for a minute; DATA for another
 * hash (the part is removed) or a file of that name with other content (which stays); OUT_OF_DISK; INTERRUPTED by progress;
 * UNSUPPORTED in a build without libcurl. */
STRATA_MUST_USE strata_status download_file(const download *file, const char *folder, download_progress progress, void *user,
                                            bool *out_present, strata_error *err);

#endif
