/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict JSON (RFC 8259): a reader with typed getters, whose messages name the position of an error, and a writer. Texts that
 * many parsers accept although they are wrong (duplicate keys, trailing text, invalid UTF-8, 01, 1e999, \\u0000, any nesting)
 * are refused. */
#ifndef STRATA_JSON_H
#define STRATA_JSON_H

#include <stdbool.h>

#include "strata/text.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cJSON;

enum { STRATA_JSON_MAX_DEPTH = 32 };

/* A value and its position in the document. A value borrows its parent, which must outlive it, because messages name
 * the whole path, as in `model.json: layers[2].units: must be an integer 1..1048576, is "x"`. Small; copy it freely. */
typedef struct strata_json {
    const struct cJSON *node;
    /* NULL for the root. */
    const struct strata_json *parent;
    /* The document's name for the root, the key in an object, NULL in an array. */
    const char *name;
    /* The index in its array. */
    int64_t index;
} strata_json;

typedef enum strata_json_kind {
    STRATA_JSON_NULL,
    STRATA_JSON_BOOL,
    STRATA_JSON_NUMBER,
    STRATA_JSON_STRING,
    STRATA_JSON_ARRAY,
    STRATA_JSON_OBJECT
} strata_json_kind;

/* ---- reading a document ---- */

/* Parses text[0..n_bytes), which need not end in a NUL and is not used afterwards. `name` is the document's name in
 * messages ("model.json"); it is borrowed. The root owns the tree: finish it after the last use of any value in it.
 * Fails: DATA with name:line:column, also when there are more than max_bytes; OUT_OF_MEMORY. */
STRATA_API STRATA_MUST_USE strata_status strata_json_parse(const char *name, const void *text, size_t n_bytes, size_t max_bytes,
                                                           strata_json *out_root, strata_error *err);
/* Like strata_json_parse, for the text in a file. The document's name is `path`, which is borrowed. */
STRATA_API STRATA_MUST_USE strata_status strata_json_read(const char *path, size_t max_bytes, strata_json *out_root,
                                                          strata_error *err);
STRATA_API void strata_json_finish(strata_json *root); /* a zeroed root is fine */

/* ---- walking ---- */

STRATA_API strata_json_kind strata_json_kind_of(const strata_json *value);
/* False when `object` is not an object or has no such key (case matters). */
STRATA_API bool strata_json_find(const strata_json *object, const char *key, strata_json *out_member);
/* DATA when the key is missing. */
STRATA_API STRATA_MUST_USE strata_status strata_json_get(const strata_json *object, const char *key, strata_json *out_member,
                                                         strata_error *err);
/* Iterate over an array's elements or an object's members in the order of the text:
 * for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) */
STRATA_API bool strata_json_first(const strata_json *list, strata_json *out_item);
STRATA_API bool strata_json_next(strata_json *item);
STRATA_API int64_t strata_json_length(const strata_json *list); /* 0 for values that have no items */

/* ---- typed values: DATA, with path and value, for a wrong kind or range ---- */

STRATA_API STRATA_MUST_USE strata_status strata_json_to_int(const strata_json *value, int64_t least, int64_t most, int64_t *out,
                                                            strata_error *err); /* |value| < 2^53 in any case */
/* JSON has no infinities and no NaN. Where the range is -HUGE_VAL..HUGE_VAL, the strings "inf", "-inf" and "nan" are these
 * numbers, as strata_json_write_any_number writes them. */
STRATA_API STRATA_MUST_USE strata_status strata_json_to_number(const strata_json *value, double least, double most, double *out,
                                                               strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_json_to_bool(const strata_json *value, bool *out, strata_error *err);
/* The string lives as long as the document. */
STRATA_API STRATA_MUST_USE strata_status strata_json_to_string(const strata_json *value, const char **out, strata_error *err);
/* Checks that the value is of this kind; mostly used for objects and arrays. */
STRATA_API STRATA_MUST_USE strata_status strata_json_expect(const strata_json *value, strata_json_kind kind, strata_error *err);

/* The same for a member. An OPTIONAL member that is missing leaves *out as it was: put the default there first. */
typedef enum strata_json_presence { STRATA_JSON_REQUIRED, STRATA_JSON_OPTIONAL } strata_json_presence;

STRATA_API STRATA_MUST_USE strata_status strata_json_get_int(const strata_json *object, const char *key,
                                                             strata_json_presence presence, int64_t least, int64_t most,
                                                             int64_t *out, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_json_get_number(const strata_json *object, const char *key,
                                                                strata_json_presence presence, double least, double most,
                                                                double *out, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_json_get_bool(const strata_json *object, const char *key,
                                                              strata_json_presence presence, bool *out, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_json_get_string(const strata_json *object, const char *key,
                                                                strata_json_presence presence, const char **out,
                                                                strata_error *err);

/* DATA when the object has a key that is not in `known`; the message names the most similar known key. */
STRATA_API STRATA_MUST_USE strata_status strata_json_check_keys(const strata_json *object, const char *const *known,
                                                                size_t n_known, strata_error *err);

/* Fails with "<document>: <path>: <message>", for rules that only the caller knows. */
STRATA_API strata_status strata_json_fail(const strata_json *value, strata_error *err, strata_status status, const char *format,
                                          ...) STRATA_PRINTF(4, 5);

/* Whether two values differ. out_text: where, "layers[1].units is 64, not 128". */
STRATA_API bool strata_json_difference(const strata_json *a, const strata_json *b, char *out_text, size_t room);

/* ---- writing ---- */

/* Writes compact text in the order of the calls; the same calls write the same bytes. Start from a zeroed struct. If
 * memory runs out, strata_json_take reports it. In an object, write each key, then its value. */
typedef struct strata_json_writer {
    strata_text text;
    bool needs_comma;
} strata_json_writer;

STRATA_API void strata_json_begin_object(strata_json_writer *writer);
STRATA_API void strata_json_end_object(strata_json_writer *writer);
STRATA_API void strata_json_begin_array(strata_json_writer *writer);
STRATA_API void strata_json_end_array(strata_json_writer *writer);
/* Returns the writer, so that one statement can write both: strata_json_write_int(strata_json_key(w, "n"), 5). */
STRATA_API strata_json_writer *strata_json_key(strata_json_writer *writer, const char *key);
STRATA_API void strata_json_write_string(strata_json_writer *writer,
                                         const char *string); /* bytes that aren't UTF-8 become U+FFFD */
STRATA_API void strata_json_write_int(strata_json_writer *writer, int64_t value);
STRATA_API void strata_json_write_number(strata_json_writer *writer,
                                         double value); /* %.9g, exact for an f32; null for NaN and infinity */
STRATA_API void strata_json_write_double(strata_json_writer *writer,
                                         double value); /* %.17g, exact; null for NaN and infinity */
/* Like strata_json_write_number, with the strings "inf", "-inf" and "nan" for what JSON's numbers do not include. */
STRATA_API void strata_json_write_any_number(strata_json_writer *writer, double value);
STRATA_API void strata_json_write_bool(strata_json_writer *writer, bool value);
STRATA_API void strata_json_write_null(strata_json_writer *writer);
/* The text is the caller's to free; the writer is zeroed, on failure too. n_bytes (without the NUL) may be NULL. */
STRATA_API STRATA_MUST_USE strata_status strata_json_take(strata_json_writer *writer, char **out_text, size_t *out_n_bytes,
                                                          strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
