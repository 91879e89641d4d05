/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict JSON: what is rejected and where the message says it is, typed getters with their paths, and writing. */
#include "core/base/json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static strata_status parse(const char *text, strata_json *root, strata_error *err) {
    return strata_json_parse("t", text, strlen(text), 1 << 20, root, err);
}

static void rejects(const char *text, const char *message) {
    strata_json root;
    strata_error err = {0};
    cr_assert_eq(parse(text, &root, &err), STRATA_DATA, "accepted: %s", text);
    cr_assert_str_eq(err.message, message);
    cr_assert_null(root.node);
}

Test(json, rejects_what_is_not_json_and_says_where) {
    rejects("", "t:1:1: expected a value, found the end of the text");
    rejects("{\"a\":1,}", "t:1:8: expected a key in double quotes, found '}'");
    rejects("[1,]", "t:1:4: expected a value, found ']'");
    rejects("[1 2]", "t:1:4: expected ',' or ']', found '2'");
    rejects("{\"a\" 1}", "t:1:6: expected ':' after a key, found '1'");
    rejects("{a:1}", "t:1:2: expected a key in double quotes, found 'a'");
    rejects("{\"a\":1", "t:1:7: expected ',' or '}', found the end of the text");
    rejects("{} x", "t:1:4: expected nothing after the value, found 'x'");
    rejects("{\n \"a\": tru\n}", "t:2:7: expected a value, found 't'");
    rejects("nullx", "t:1:5: expected nothing after the value, found 'x'");
    rejects("[1]\f", "t:1:4: expected nothing after the value, found byte 0x0C");
    rejects("\xEF\xBB\xBF{}", "t:1:1: begins with a byte order mark; save it as UTF-8 without one");
    rejects("'a'", "t:1:1: expected a value, found '''");
}

Test(json, rejects_numbers_that_cjson_lets_pass) {
    rejects("01", "t:1:1: a number must not begin with 0");
    rejects("[-01]", "t:1:2: a number must not begin with 0");
    rejects("1.", "t:1:3: expected a digit after the point, found the end of the text");
    rejects(".5", "t:1:1: expected a value, found '.'");
    rejects("+1", "t:1:1: expected a value, found '+'");
    rejects("1e", "t:1:3: expected a digit in the exponent, found the end of the text");
    rejects("-", "t:1:2: expected a digit, found the end of the text");
    rejects("0x10", "t:1:2: expected nothing after the value, found 'x'");
    rejects("NaN", "t:1:1: expected a value, found 'N'");
    rejects("{\"a\":[1,\n -1e999]}", "t:2:2: this number is too large for a double");
    rejects("0.0000000000000000000000000000000000000000000000000000000000000001",
            "t:1:1: a number of 66 characters is too long; at most 60");
}

Test(json, rejects_bad_strings) {
    rejects("\"a", "t:1:1: this string has no closing quote");
    rejects("\"a\\", "t:1:4: expected one of \" \\ / b f n r t u after \\, found the end of the text");
    rejects("\"\\x41\"", "t:1:3: expected one of \" \\ / b f n r t u after \\, found 'x'");
    rejects("\"\\u00g0\"", "t:1:6: expected four hexadecimal digits after \\u, found 'g'");
    rejects("\"a\\u0000b\"", "t:1:3: \\u0000 is not allowed in a string");
    rejects("\"\\uD800\"", "t:1:2: \\uD800 is half of a surrogate pair, without its other half");
    rejects("\"\\uDC00\\uD800\"", "t:1:2: \\uDC00 is half of a surrogate pair, without its other half");
    rejects("\"\\uD83D\\u0041\"", "t:1:2: \\uD83D is half of a surrogate pair, without its other half");
    rejects("\"a\tb\"", "t:1:3: byte 0x09 in a string must be written as an escape");
    rejects("\"a\nb\"", "t:1:3: byte 0x0A in a string must be written as an escape");
    rejects("[\"\xE2\x82\xAC\", \"\xC0\xAF\"]", "t:1:8: byte 0xC0 is not valid UTF-8"); /* the euro sign is one column */
    rejects("\"\xED\xA0\x80\"", "t:1:2: byte 0xED is not valid UTF-8");
    rejects("\"\xF4\x90\x80\x80\"", "t:1:2: byte 0xF4 is not valid UTF-8");
    rejects("\"\xE0\x80\x80\"", "t:1:2: byte 0xE0 is not valid UTF-8");
    rejects("\"\xF0\x80\x80\x80\"", "t:1:2: byte 0xF0 is not valid UTF-8");
    rejects("\"\x80\"", "t:1:2: byte 0x80 is not valid UTF-8");
    rejects("\"\xE2\x82", "t:1:2: byte 0xE2 is not valid UTF-8");
}

Test(json, rejects_a_nul_in_the_text) {
    strata_json root;
    strata_error err;
    cr_assert_eq(strata_json_parse("t", "[1]\0", 4, 100, &root, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t:1:4: expected nothing after the value, found byte 0x00");
    cr_assert_eq(strata_json_parse("t", "\"a\0b\"", 5, 100, &root, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t:1:3: byte 0x00 in a string must be written as an escape");
}

Test(json, rejects_duplicate_keys_also_when_escaped) {
    rejects("{\"a\":1,\n \"b\":[{}, {\"x\":2}],\n \"a\":3}", "t:3:2: key \"a\" is given twice in one object");
    rejects("{\"ab\":1,\"\\u0061b\":2}", "t:1:9: key \"ab\" is given twice in one object");
    rejects("[{\"k\":{\"z\":0,\"y\":0,\"z\":0,\"y\":1}}]", "t:1:20: key \"z\" is given twice in one object");
    strata_json root;
    cr_assert_eq(parse("{\"a\":{\"a\":1},\"A\":{\"a\":2},\"\":0}", &root, NULL), STRATA_OK);
    strata_json_finish(&root);
}

Test(json, nesting_is_bounded) {
    char text[100];
    strata_json root;
    strata_error err;
    for (int depth = 31; depth <= 33; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        cr_assert_eq(parse(text, &root, &err), depth <= 32 ? STRATA_OK : STRATA_DATA);
        strata_json_finish(&root);
    }
    cr_assert_str_eq(err.message, "t:1:33: nested deeper than 32 levels");
}

Test(json, the_size_is_bounded) {
    strata_json root;
    strata_error err;
    cr_assert_eq(strata_json_parse("t", "[1,2]", 5, 4, &root, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: has 5 bytes; at most 4 are allowed");
    cr_assert_eq(strata_json_parse("t", "[1,2]", 5, 5, &root, &err), STRATA_OK);
    strata_json_finish(&root);
    strata_json_finish(&root);
    strata_json_finish(NULL);
}

Test(json, accepts_what_is_json) {
    const char *texts[] = {"0",       "-0",
                           "1.5e-3",  "1E+5",
                           "true",    " [ ] ",
                           "{ }",     "\"\"",
                           "\"\\/\"", "\"\\ud83d\\ude00 \xF0\x9F\x98\x80 \x7F\"",
                           "[[],{}]", "\t\r\n null \n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        strata_json root;
        strata_error err = {0};
        cr_assert_eq(parse(texts[i], &root, &err), STRATA_OK, "%s: %s", texts[i], err.message);
        strata_json_finish(&root);
    }
}

Test(json, getters_give_values_and_say_where_they_are_wrong) {
    strata_json root, layers, layer;
    strata_error err;
    cr_assert_eq(
        parse("{\"layers\":[{\"units\":128,\"rate\":0.5,\"bias\":true,\"name\":\"a\\u00e9\"},{\"units\":\"x\"}]}", &root, &err),
        STRATA_OK);
    cr_assert_eq(strata_json_get(&root, "layers", &layers, &err), STRATA_OK);
    cr_assert_eq(strata_json_length(&layers), 2);
    cr_assert(strata_json_first(&layers, &layer));
    int64_t units = 0;
    double rate = 0;
    bool bias = false;
    const char *name = NULL;
    cr_assert_eq(strata_json_get_int(&layer, "units", STRATA_JSON_REQUIRED, 1, 1 << 20, &units, &err), STRATA_OK);
    cr_assert_eq(strata_json_get_number(&layer, "rate", STRATA_JSON_REQUIRED, 0, 1, &rate, &err), STRATA_OK);
    cr_assert_eq(strata_json_get_bool(&layer, "bias", STRATA_JSON_REQUIRED, &bias, &err), STRATA_OK);
    cr_assert_eq(strata_json_get_string(&layer, "name", STRATA_JSON_REQUIRED, &name, &err), STRATA_OK);
    cr_assert(units == 128 && rate == 0.5 && bias && strcmp(name, "a\xC3\xA9") == 0);
    cr_assert_eq(strata_json_get_int(&layer, "seed", STRATA_JSON_OPTIONAL, 0, 9, &units, &err), STRATA_OK);
    cr_assert_eq(units, 128);

    cr_assert_eq(strata_json_get_int(&layer, "Units", STRATA_JSON_REQUIRED, 0, 9, &units, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: layers[0]: \"Units\" is missing");
    cr_assert_eq(strata_json_get_int(&layer, "rate", STRATA_JSON_REQUIRED, 0, 9, &units, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: layers[0].rate: must be an integer 0..9, is 0.5");
    cr_assert_eq(strata_json_get_number(&layer, "rate", STRATA_JSON_OPTIONAL, 0, 0.25, &rate, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: layers[0].rate: must be 0 to 0.25, is 0.5");
    cr_assert_eq(strata_json_get_bool(&layer, "name", STRATA_JSON_REQUIRED, &bias, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: layers[0].name: must be true or false, is \"a\xC3\xA9\"");
    cr_assert_eq(strata_json_get_string(&root, "layers", STRATA_JSON_REQUIRED, &name, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: layers: must be a string, is an array");
    cr_assert_eq(strata_json_get_int(&layers, "x", STRATA_JSON_OPTIONAL, 0, 9, &units, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: layers: must be an object, is an array");
    cr_assert(strata_json_next(&layer));
    cr_assert_eq(strata_json_get_int(&layer, "units", STRATA_JSON_REQUIRED, 1, 1048576, &units, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: layers[1].units: must be an integer 1..1048576, is \"x\"");
    cr_assert(!strata_json_next(&layer));
    strata_json_finish(&root);
}

Test(json, integers_beyond_2_to_the_53_are_refused) {
    strata_json root;
    strata_error err;
    int64_t value = 0;
    cr_assert_eq(parse("9007199254740991", &root, NULL), STRATA_OK);
    cr_assert_eq(strata_json_to_int(&root, INT64_MIN, INT64_MAX, &value, NULL), STRATA_OK);
    cr_assert_eq(value, INT64_C(9007199254740991));
    strata_json_finish(&root);
    cr_assert_eq(parse("9007199254740993", &root, NULL), STRATA_OK);
    cr_assert_eq(strata_json_to_int(&root, 0, INT64_MAX, &value, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: must be an integer 0..9007199254740991, is 9007199254740992");
    strata_json_finish(&root);
}

Test(json, unknown_keys_are_named_with_the_nearest) {
    static const char *const known[] = {"type", "units", "activation"};
    strata_json root;
    strata_error err;
    cr_assert_eq(parse("{\"type\":1,\"activaton\":2}", &root, NULL), STRATA_OK);
    cr_assert_eq(strata_json_check_keys(&root, known, 3, &err), STRATA_DATA);
    cr_assert_str_eq(err.message,
                     "t: key \"activaton\" is not known; did you mean \"activation\"; known are: type, units, activation");
    strata_json_finish(&root);
    cr_assert_eq(parse("{\"zzzzzz\":2}", &root, NULL), STRATA_OK);
    cr_assert_eq(strata_json_check_keys(&root, known, 3, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "t: key \"zzzzzz\" is not known; known are: type, units, activation");
    strata_json_finish(&root);
    cr_assert_eq(parse("{\"units\":2}", &root, NULL), STRATA_OK);
    cr_assert_eq(strata_json_check_keys(&root, known, 3, &err), STRATA_OK);
    strata_json_finish(&root);
}

static char *written_sample(void) {
    strata_json_writer w = {0};
    strata_json_begin_object(&w);
    strata_json_key(&w, "a\"\\\n\x01");
    strata_json_write_string(&w, "\xE2\x82\xAC \xFF\x7F");
    strata_json_key(&w, "list");
    strata_json_begin_array(&w);
    strata_json_write_int(&w, -5);
    strata_json_write_number(&w, 0.1f);
    strata_json_write_number(&w, NAN);
    strata_json_write_bool(&w, false);
    strata_json_begin_object(&w);
    strata_json_end_object(&w);
    strata_json_write_null(&w);
    strata_json_end_array(&w);
    strata_json_key(&w, "z");
    strata_json_write_number(&w, 1e30);
    strata_json_end_object(&w);
    char *text = NULL;
    cr_assert_eq(strata_json_take(&w, &text, NULL, NULL), STRATA_OK);
    return text;
}

static const char sample[] =
    "{\"a\\\"\\\\\\n\\u0001\":\"\xE2\x82\xAC \xEF\xBF\xBD\x7F\",\"list\":[-5,0.100000001,null,false,{},null],\"z\":1e+30}";

Test(json, writes_compact_text_that_it_reads_again) {
    char *text = written_sample();
    cr_assert_str_eq(text, sample);
    strata_json root;
    cr_assert_eq(parse(text, &root, NULL), STRATA_OK);
    strata_json_finish(&root);
    free(text);
}

Test(json, every_f32_comes_back_from_its_text) {
    uint32_t bits = 12345;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 1664525u + 1013904223u;
        float value;
        memcpy(&value, &bits, 4);
        if (!isfinite(value)) continue;
        strata_json_writer w = {0};
        strata_json_write_number(&w, value);
        char *text;
        cr_assert_eq(strata_json_take(&w, &text, NULL, NULL), STRATA_OK);
        strata_json root;
        double back = 0;
        cr_assert_eq(parse(text, &root, NULL), STRATA_OK);
        cr_assert_eq(strata_json_to_number(&root, -INFINITY, INFINITY, &back, NULL), STRATA_OK);
        cr_assert_eq((float)back, value, "%s", text);
        strata_json_finish(&root);
        free(text);
    }
}

Test(json, reads_a_file_and_names_it) {
    char path[] = "/tmp/strata_json_XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fputs("{\"a\": [1,\n2}", file);
    fclose(file);
    strata_json root;
    strata_error err;
    cr_assert_eq(strata_json_read(path, 100, &root, &err), STRATA_DATA);
    char wanted[200];
    snprintf(wanted, sizeof wanted, "%s:2:2: expected ',' or ']', found '}'", path);
    cr_assert_str_eq(err.message, wanted);
    remove(path);
    cr_assert_eq(strata_json_read(path, 100, &root, &err), STRATA_UNAVAILABLE);
}
