/* SPDX-License-Identifier: Apache-2.0
 *
 * The strict check of a JSON text before it becomes a tree. For core/base/json.c only. */
#ifndef STRATA_CORE_JSON_SCAN_H
#define STRATA_CORE_JSON_SCAN_H

#include "strata/status.h"

/* Accepts exactly RFC 8259 with valid UTF-8, no \u0000, numbers of at most 60 characters and STRATA_JSON_MAX_DEPTH levels of
 * arrays and objects. Two kinds of errors are not found here, because finding them needs the tree: duplicate keys and
 * numbers beyond a double.
 * Fails: DATA with "name:line:column: ...". */
STRATA_MUST_USE strata_status strata_json_scan(const char *name, const char *text, size_t n_bytes, strata_error *err);

/* Returns the byte offset of the token with this ordinal, in a text that passed the scan. The ordinals number keys and
 * values from 0 in the order of the text; a container comes before its contents. */
size_t strata_json_scan_offset(const char *text, size_t n_bytes, size_t ordinal);

/* Fails with DATA and "name:line:column: message" for a position in the text. Lines and columns count from 1; columns
 * count characters. */
strata_status strata_json_scan_fail(strata_error *err, const char *name, const char *text, size_t offset, const char *format,
                                    ...) STRATA_PRINTF(5, 6);

#endif
