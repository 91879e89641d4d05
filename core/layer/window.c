/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of paddings, and their check (window.h). */
#include "core/layer/window.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    strata_padding padding;
} paddings[] = {{"valid", STRATA_PADDING_VALID}, {"same", STRATA_PADDING_SAME}, {"explicit", STRATA_PADDING_EXPLICIT}};
enum { N_PADDINGS = sizeof paddings / sizeof *paddings };

strata_padding strata_padding_of(const char *name) {
    for (int i = 0; name && i < N_PADDINGS; i++)
        if (!strcmp(paddings[i].name, name)) return paddings[i].padding;
    return STRATA_PADDING_VALID;
}

/* Fails if there is explicit_padding but the padding is not "explicit", since it would have no effect. */
static strata_status check_explicit(const char *name, const int64_t *explicit_padding, int n, strata_error *err) {
    for (int i = 0; i < n; i++)
        if (explicit_padding[i] && strata_padding_of(name) != STRATA_PADDING_EXPLICIT)
            return strata_fail(err, STRATA_INVALID, "explicit_padding is for padding \"explicit\", not \"%s\"",
                               name && *name ? name : "valid");
    return STRATA_OK;
}

strata_status strata_padding_check(const char *name, const int64_t *explicit_padding, int n, strata_error *err) {
    bool known = !name || !*name;
    for (int i = 0; i < N_PADDINGS && !known; i++) known = !strcmp(paddings[i].name, name);
    if (known) return check_explicit(name, explicit_padding, n, err);
    return strata_fail(err, STRATA_INVALID, "there is no padding \"%s\"; there are: valid, same, explicit", name);
}
