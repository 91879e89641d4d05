/* SPDX-License-Identifier: Apache-2.0
 *
 * Downloads a file and checks its hash; an earlier unfinished attempt is continued. */
#ifndef STRATA_SAMPLES_DOWNLOAD_H
#define STRATA_SAMPLES_DOWNLOAD_H

#include <stdbool.h>

#include "strata/status.h"

typedef struct download {
    const char *name;   /* the file's name in the folder, without a path */
    const char *url;    /* http or https */
    const char *sha256; /* 64 lower-case hexadecimal digits */
    int64_t bytes;      /* the expected size; 0: not known */
} download;

/* Called from time to time while bytes arrive; `total` is 0 if the server does not send the size. Returning true ends the
 * download, which can be continued later. */
typedef bool (*download_progress)(const download *file, int64_t received, int64_t total, void *user);

/* Downloads to <folder>/<name>. Bytes are written to <name>.part. If the connection breaks, this file remains, and the next
 * call continues it. It is renamed to <name> if its hash is right. *out_present: the complete file existed already.
 * Fails: UNAVAILABLE if the server or the file cannot be reached; TIMEOUT if no bytes arrive for a minute; DATA if the hash is
 * wrong (the part is removed) or a file of that name has other content (which is kept); OUT_OF_DISK; INTERRUPTED by the
 * callback; UNSUPPORTED in a build without libcurl. */
STRATA_MUST_USE strata_status download_file(const download *file, const char *folder, download_progress progress, void *user,
                                            bool *out_present, strata_error *err);

#endif
