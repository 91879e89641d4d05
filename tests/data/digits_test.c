/* SPDX-License-Identifier: Apache-2.0
 *
 * Generated digits: each is a function of (seed, index), the classes are equally frequent, images have the brightness of
 * ink on paper, and classes differ. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/data/set/image_set.h"

enum { PIXELS = STRATA_DIGIT_SIDE * STRATA_DIGIT_SIDE };

static strata_image_set make(uint64_t seed, uint64_t first, int64_t n) {
    strata_image_set set;
    cr_assert_eq(strata_digits_make(seed, first, n, &set, NULL), STRATA_OK);
    cr_assert(strata_shape_equal(set.images.shape, STRATA_SHAPE(n, 28, 28)));
    return set;
}

Test(digits, an_image_depends_on_seed_and_index_alone) {
    strata_image_set all = make(7, 1000, 50), part = make(7, 1030, 20), other = make(8, 1000, 50),
                     far = make(7, 1000 + (UINT64_C(1) << 32), 50);
    cr_assert_arr_eq((uint8_t *)all.images.data + 30 * PIXELS, part.images.data, 20 * PIXELS);
    cr_assert_arr_eq((uint8_t *)all.labels.data + 30, part.labels.data, 20);
    for (int i = 0; i < 50; i++) {
        const uint8_t *image = (uint8_t *)all.images.data + i * PIXELS;
        cr_assert_neq(memcmp(image, (uint8_t *)other.images.data + i * PIXELS, PIXELS), 0);
        cr_assert_neq(memcmp(image, (uint8_t *)far.images.data + i * PIXELS, PIXELS), 0);
    }
    strata_image_set_finish(&all);
    strata_image_set_finish(&part);
    strata_image_set_finish(&other);
    strata_image_set_finish(&far);
}

Test(digits, classes_are_even_and_every_image_has_ink_inside) {
    const int n = 5000;
    strata_image_set set = make(1, 0, n);
    int counts[10] = {0};
    for (int i = 0; i < n; i++) {
        const uint8_t *image = (uint8_t *)set.images.data + i * PIXELS;
        int n_ink = 0, n_edge = 0;
        for (int p = 0; p < PIXELS; p++) {
            int row = p / 28, column = p % 28;
            n_ink += image[p] > 110;
            n_edge += image[p] > 110 && (row == 0 || row == 27 || column == 0 || column == 27);
        }
        cr_assert(n_ink >= 10 && n_ink <= 300, "image %d has %d pixels of ink", i, n_ink);
        cr_assert_leq(n_edge, 12, "image %d runs over the edge", i);
        cr_assert_lt(((uint8_t *)set.labels.data)[i], 10);
        counts[((uint8_t *)set.labels.data)[i]]++;
    }
    for (int digit = 0; digit < 10; digit++)
        cr_assert(counts[digit] > 420 && counts[digit] < 580, "%d: %d", digit, counts[digit]);
    strata_image_set_finish(&set);
}

/* A classifier by the nearest class mean must classify most new digits correctly, which shows that labels match images. It
 * must also make errors, so that there is something to learn. */
Test(digits, class_means_tell_most_digits_apart) {
    const int n = 4000;
    strata_image_set train = make(3, 0, n), test = make(3, STRATA_DIGITS_TEST_FIRST, n);
    static double means[10][PIXELS];
    int counts[10] = {0}, n_right = 0;
    for (int i = 0; i < n; i++) {
        int label = ((uint8_t *)train.labels.data)[i];
        counts[label]++;
        for (int p = 0; p < PIXELS; p++) means[label][p] += ((uint8_t *)train.images.data)[i * PIXELS + p];
    }
    for (int i = 0; i < n; i++) {
        int best = -1;
        double least = 0;
        for (int digit = 0; digit < 10; digit++) {
            double distance = 0;
            for (int p = 0; p < PIXELS; p++) {
                double d = means[digit][p] / counts[digit] - ((uint8_t *)test.images.data)[i * PIXELS + p];
                distance += d * d;
            }
            if (best < 0 || distance < least) {
                best = digit;
                least = distance;
            }
        }
        n_right += best == ((uint8_t *)test.labels.data)[i];
    }
    cr_assert(n_right > n * 60 / 100 && n_right < n * 95 / 100, "%d of %d", n_right, n);
    strata_image_set_finish(&train);
    strata_image_set_finish(&test);
}

Test(digits, a_set_has_at_least_one_image) {
    strata_image_set set;
    strata_error err;
    cr_assert_eq(strata_digits_make(1, 0, 0, &set, &err), STRATA_INVALID);
    cr_assert_str_eq(err.message, "a set of 0 images; it must have at least 1");
    cr_assert_eq(strata_digits_make(1, 0, INT64_MAX, &set, &err), STRATA_INVALID);
    cr_assert_null(set.images.data);
}
