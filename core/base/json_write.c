/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON: compact, in the order of the calls, and always valid UTF-8, even if the strings are not. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/locale.h"

/* Called before each value and each key. */
static void separate(strata_json_writer *writer) {
    if (writer->needs_comma) strata_text_add_bytes(&writer->text, ",", 1);
    writer->needs_comma = true;
}

static void begin(strata_json_writer *writer, const char *bracket) {
    separate(writer);
    strata_text_add_bytes(&writer->text, bracket, 1);
    writer->needs_comma = false;
}

static void end(strata_json_writer *writer, const char *bracket) {
    strata_text_add_bytes(&writer->text, bracket, 1);
    writer->needs_comma = true;
}

void strata_json_begin_object(strata_json_writer *writer) {
    begin(writer, "{");
}
void strata_json_end_object(strata_json_writer *writer) {
    end(writer, "}");
}
void strata_json_begin_array(strata_json_writer *writer) {
    begin(writer, "[");
}
void strata_json_end_array(strata_json_writer *writer) {
    end(writer, "]");
}

static void add_string(strata_text *text, const char *string) {
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    strata_text_add_bytes(text, "\"", 1);
    const unsigned char *at = (const unsigned char *)string;
    for (size_t n_left = strlen(string); n_left > 0;) {
        size_t length = strata_utf8_length(at, n_left);
        const char *escape = strchr(escaped, *at);
        if (length == 0) {
            strata_text_add_bytes(text, "\xEF\xBF\xBD", 3);
        } else if (escape) {
            strata_text_add(text, "\\%c", letters[escape - escaped]);
        } else if (*at < 0x20) {
            strata_text_add(text, "\\u%04x", *at);
        } else {
            strata_text_add_bytes(text, at, length);
        }
        at += length ? length : 1;
        n_left -= length ? length : 1;
    }
    strata_text_add_bytes(text, "\"", 1);
}

strata_json_writer *strata_json_key(strata_json_writer *writer, const char *key) {
    separate(writer);
    add_string(&writer->text, key);
    strata_text_add_bytes(&writer->text, ":", 1);
    writer->needs_comma = false;
    return writer;
}

void strata_json_write_string(strata_json_writer *writer, const char *string) {
    separate(writer);
    add_string(&writer->text, string);
}

void strata_json_write_int(strata_json_writer *writer, int64_t value) {
    separate(writer);
    strata_text_add(&writer->text, "%" PRId64, value);
}

void strata_json_write_ints(strata_json_writer *writer, const int64_t *values, int n) {
    strata_json_begin_array(writer);
    for (int i = 0; i < n; i++) strata_json_write_int(writer, values[i]);
    strata_json_end_array(writer);
}

static void write_digits(strata_json_writer *writer, const char *format, double value) {
    if (!isfinite(value)) {
        strata_json_write_null(writer);
        return;
    }
    separate(writer);
    char digits[64];
    const int n = strata_format(digits, sizeof digits, format, value);
    strata_text_add_bytes(&writer->text, digits, (size_t)n);
}

void strata_json_write_number(strata_json_writer *writer, double value) {
    write_digits(writer, "%.9g", value);
}

void strata_json_write_double(strata_json_writer *writer, double value) {
    write_digits(writer, "%.17g", value);
}

void strata_json_write_any_number(strata_json_writer *writer, double value) {
    if (isfinite(value))
        strata_json_write_number(writer, value);
    else
        strata_json_write_string(writer, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

void strata_json_write_bool(strata_json_writer *writer, bool value) {
    separate(writer);
    strata_text_add(&writer->text, "%s", value ? "true" : "false");
}

void strata_json_write_null(strata_json_writer *writer) {
    separate(writer);
    strata_text_add(&writer->text, "null");
}

strata_status strata_json_take(strata_json_writer *writer, char **out_text, size_t *out_n_bytes, strata_error *err) {
    strata_status status = strata_text_take(&writer->text, out_text, out_n_bytes, err);
    *writer = (strata_json_writer){0};
    return status;
}
