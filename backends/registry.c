/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all backends, from backends.def, and the files in STRATA_PLUGINS. */
#include "backends/registry.h"

#include <stdlib.h>
#include <string.h>

const strata_backend *const strata_backends[] = {
#define STRATA_BACKEND(name) &strata_backend_##name,
#include "backends/backends.def"
    NULL};

strata_status strata_plugins_next(const char **at, bool is_pjrt, char **out_path, strata_error *err) {
    bool after_pjrt = false;
    *out_path = NULL;
    while (*at && **at) {
        const char *part = *at;
        const size_t n = strcspn(part, ":");
        const bool is_word = !after_pjrt && n == 4 && !strncmp(part, "pjrt", n),
                   wanted = n && !is_word && after_pjrt == is_pjrt;
        *at += n + (part[n] == ':');
        after_pjrt = is_word;
        if (!wanted) continue;
        *out_path = strndup(part, n);
        return *out_path ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "plugins: no host memory");
    }
    return STRATA_OK;
}
