/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of the layers that slide a window over their input: convolutions and pools. */
#ifndef STRATA_CORE_LAYER_WINDOW_H
#define STRATA_CORE_LAYER_WINDOW_H

#include "core/layer/layer.h"

/* The padding for "valid", "same" or "explicit"; NULL and "" are valid. Unknown names must be rejected by
 * strata_padding_check before. */
strata_padding strata_padding_of(const char *name);
/* Checks the name and the n numbers of explicit_padding, which may be other than 0 only for "explicit". */
STRATA_MUST_USE strata_status strata_padding_check(const char *name, const int64_t *explicit_padding, int n, strata_error *err);
/* The row for the option explicit_padding of a layer that slides along 1 or 2 axes. */
#define STRATA_LAYER_EXPLICIT_PADDING(type, axes) \
    { "explicit_padding", STRATA_OPTION_BORDER_##axes##D, offsetof(type, explicit_padding), 0, 1 << 20, false }

/* The value of an option whose default is 1: 0 means that it was not given. */
static inline int64_t strata_or_one(int64_t value) {
    return value ? value : 1;
}

#endif
