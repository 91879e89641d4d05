/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of integers, and the first difference of two JSON values. The public header, strata/json.h, has the reader and the
 * writer. The nodes of a tree are cJSON's. */
#ifndef STRATA_CORE_JSON_H
#define STRATA_CORE_JSON_H

#include "core/base/text.h"
#include "strata/json.h"
#include "strata/tensor.h"

/* Writes an array of integers. */
void strata_json_write_ints(strata_json_writer *writer, const int64_t *values, int n);

/* The first difference of two values: its path, "layers[1].units", and the shortened text of both sides, "nothing" where a side
 * has no such value. */
typedef struct strata_json_change {
    char path[256], left[80], right[80];
} strata_json_change;
/* Compares two texts. *out_change: where they differ. */
typedef enum strata_json_comparison { STRATA_JSON_EQUAL, STRATA_JSON_DIFFERS, STRATA_JSON_UNREADABLE } strata_json_comparison;
strata_json_comparison strata_json_compare(const char *a, size_t a_bytes, const char *b, size_t b_bytes,
                                           strata_json_change *out_change);

/* A member that is an array. */
STRATA_MUST_USE static inline strata_status strata_json_get_array(const strata_json *object, const char *key, strata_json *out,
                                                                  strata_error *err) {
    STRATA_TRY(strata_json_get(object, key, out, err));
    return strata_json_expect(out, STRATA_JSON_ARRAY, err);
}

/* Writing a member of an object: its key, and its value. */
static inline void strata_json_put_string(strata_json_writer *w, const char *key, const char *value) {
    strata_json_key(w, key);
    strata_json_write_string(w, value);
}
static inline void strata_json_put_int(strata_json_writer *w, const char *key, int64_t value) {
    strata_json_key(w, key);
    strata_json_write_int(w, value);
}
static inline void strata_json_begin_array_at(strata_json_writer *w, const char *key) {
    strata_json_key(w, key);
    strata_json_begin_array(w);
}
static inline void strata_json_put_shape(strata_json_writer *w, const char *key, strata_shape shape) {
    strata_json_begin_array_at(w, key);
    for (int i = 0; i < shape.rank; i++) strata_json_write_int(w, shape.dims[i]);
    strata_json_end_array(w);
}

#endif
