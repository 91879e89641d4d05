/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 against the examples of FIPS 180-4. */
#include "strata/sha256.h"

#include <criterion/criterion.h>
#include <string.h>

Test(sha256, gives_the_published_digests) {
    char text[STRATA_SHA256_TEXT_BYTES];
    cr_assert_eq(strata_sha256_of("", 0, text, NULL), STRATA_OK);
    cr_assert_str_eq(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    cr_assert_eq(strata_sha256_of("abc", 3, text, NULL), STRATA_OK);
    cr_assert_str_eq(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

Test(sha256, pieces_give_the_same_as_the_whole) {
    static char bytes[10000];
    char whole[STRATA_SHA256_TEXT_BYTES], pieces[STRATA_SHA256_TEXT_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 7);
    cr_assert_eq(strata_sha256_of(bytes, sizeof bytes, whole, NULL), STRATA_OK);
    strata_sha256 sha;
    cr_assert_eq(strata_sha256_init(&sha, NULL), STRATA_OK);
    for (size_t i = 0, n; i < sizeof bytes; i += n) {
        n = i % 61 + 1 < sizeof bytes - i ? i % 61 + 1 : sizeof bytes - i;
        cr_assert_eq(strata_sha256_update(&sha, bytes + i, n, NULL), STRATA_OK);
    }
    cr_assert_eq(strata_sha256_final(&sha, pieces, NULL), STRATA_OK);
    strata_sha256_finish(&sha);
    strata_sha256_finish(&sha);
    cr_assert_str_eq(whole, pieces);
}
