/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing text and the nearest name. */
#include "core/base/text.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

Test(text, grows_as_it_is_added_to) {
    strata_text text = {0};
    for (int i = 0; i < 1000; i++) strata_text_add(&text, "%d,", i);
    strata_text_add_bytes(&text, "end", 3);
    char *string;
    size_t n_bytes;
    cr_assert_eq(strata_text_take(&text, &string, &n_bytes, NULL), STRATA_OK);
    cr_assert_eq(n_bytes, strlen(string));
    cr_assert_eq(n_bytes, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    cr_assert_str_eq(string + n_bytes - 7, "999,end");
    cr_assert_null(text.bytes);
    free(string);
}

Test(text, an_empty_text_is_an_empty_string) {
    strata_text text = {0};
    char *string;
    cr_assert_eq(strata_text_take(&text, &string, NULL, NULL), STRATA_OK);
    cr_assert_str_eq(string, "");
    free(string);
}

Test(text, remembers_that_memory_ran_out) {
    strata_text text = {0};
    strata_text_add(&text, "a");
    strata_text_add_bytes(&text, "", SIZE_MAX / 2);
    strata_text_add(&text, "b");
    char *string;
    strata_error err;
    cr_assert_eq(strata_text_take(&text, &string, NULL, &err), STRATA_OUT_OF_MEMORY);
    cr_assert_null(text.bytes);
    cr_assert(!text.failed);
}

Test(text, nearest_name_finds_what_was_meant) {
    static const char *const names[] = {"train", "evaluate", "predict", "devices", "bench", "help"};
    struct {
        const char *word, *nearest;
    } cases[] = {{"trian", "train"},
                 {"TRAIN", "train"},
                 {"tain", "train"},
                 {"eval", NULL},
                 {"evaluat", "evaluate"},
                 {"device", "devices"},
                 {"predcit", "predict"},
                 {"benhc", "bench"},
                 {"hlep", "help"},
                 {"xyzzy", NULL},
                 {"", NULL},
                 {"a", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *got = strata_nearest_name(cases[i].word, names, 6);
        cr_assert((!got && !cases[i].nearest) || (got && cases[i].nearest && strcmp(got, cases[i].nearest) == 0), "%s gives %s",
                  cases[i].word, got ? got : "nothing");
    }
    char longest[500];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cr_assert_null(strata_nearest_name(longest, names, 6));
}

/* UTF-8 as RFC 3629 encodes it, without a check: also of surrogates, and of numbers beyond Unicode. Returns the length. */
static size_t encode(uint32_t number, size_t length, unsigned char *out) {
    static const unsigned char first[] = {[1] = 0, [2] = 0xC0, [3] = 0xE0, [4] = 0xF0};
    for (size_t i = length; i-- > 1; number >>= 6) out[i] = (unsigned char)(0x80 | (number & 0x3F));
    out[0] = (unsigned char)(first[length] | number);
    return length;
}

Test(text, a_character_of_utf8_is_whole_and_of_the_shortest_form) {
    static const unsigned char wrong[] = {0x00, 0x7F, 0xC0, 0xFF};
    static const uint32_t below[] = {[1] = 0x80, [2] = 0x800, [3] = 0x10000, [4] = 0x110000};
    unsigned char bytes[4];
    for (uint32_t c = 0; c < 0x110000; c += c < 0x900 || (c > 0xD700 && c < 0xE100) ? 1 : 61) {
        const size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        encode(c, length, bytes);
        const bool surrogate = c >= 0xD800 && c < 0xE000;
        cr_assert_eq(strata_utf8_length(bytes, 4), surrogate ? 0 : length, "U+%04X", c);
        cr_assert_eq(strata_utf8_length(bytes, length - 1), 0, "U+%04X, cut off", c);
        for (size_t i = 1; i < length; i++)
            for (size_t k = 0; k < sizeof wrong; k++) {
                encode(c, length, bytes);
                bytes[i] = wrong[k];
                cr_assert_eq(strata_utf8_length(bytes, 4), 0, "U+%04X with byte %zu %02X", c, i, wrong[k]);
            }
    }
    for (size_t length = 2; length <= 4; length++) {
        encode(below[length - 1] - 1, length, bytes);
        cr_assert_eq(strata_utf8_length(bytes, 4), 0, "a longer form of U+%04X", below[length - 1] - 1);
    }
    encode(0x110000, 4, bytes);
    cr_assert_eq(strata_utf8_length(bytes, 4), 0, "beyond Unicode");
    for (int b = 0x80; b < 0xC2; b++) cr_assert_eq(strata_utf8_length(memset(bytes, b, 4), 4), 0, "begins with %02X", b);
    for (int b = 0xF5; b < 0x100; b++) cr_assert_eq(strata_utf8_length(memset(bytes, b, 4), 4), 0, "begins with %02X", b);
}
