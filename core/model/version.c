/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of the loaded library, and the sizes of its public structs. */
#include <string.h>

#include "strata/strata.h"

const char *strata_version(void) {
    return STRATA_VERSION;
}

/* The build lists the structs and enums of the public headers: a row STRATA_STRUCT(strata_fit_options) for each. */
static const struct {
    const char *name;
    size_t bytes;
} structs[] = {
#define STRATA_STRUCT(name) {#name, sizeof(name)},
#include "generated/structs.def"
#undef STRATA_STRUCT
};

size_t strata_struct_bytes(const char *name) {
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++)
        if (!strcmp(structs[i].name, name)) return structs[i].bytes;
    return 0;
}
