/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox compared with published test vectors; random_uniform, random_normal and dropout compared with Python's results,
 * and the distributions of their numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "strata/philox.h"
#include "tests/op/op_case.h"

/* Test vectors from Random123's file kat_vectors, for philox4x32 with 10 rounds. */
Test(random, philox_gives_the_known_answers) {
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        strata_philox_block counter;
        memcpy(counter.words, known[i].counter, sizeof counter.words);
        strata_philox_block got = strata_philox(counter, known[i].key[0], known[i].key[1]);
        for (int w = 0; w < 4; w++) cr_assert_eq(got.words[w], known[i].want[w], "vector %zu, word %d", i, w);
    }
}

/* ---- the ops ---- */

typedef strata_tensor *(*generator)(strata_tensor *state, uint32_t stream, strata_shape shape);

typedef struct random_case {
    generator generate;
    uint32_t stream;
    int64_t n;
} random_case;

static strata_tensor *build(strata_tensor *const *x, const void *user) {
    const random_case *r = user;
    return r->generate(x[0], r->stream, STRATA_SHAPE(r->n));
}

typedef struct dropout_case {
    uint32_t stream;
    double rate;
} dropout_case;

static strata_tensor *build_dropout(strata_tensor *const *x, const void *user) {
    const dropout_case *d = user;
    return strata_dropout(x[0], x[1], d->stream, d->rate);
}

enum { STREAM = (int)0xC0FFEE42 };

static strata_array golden_of(const strata_golden *golden, const char *stem, const char *which) {
    char name[64];
    snprintf(name, sizeof name, "%s_%s", stem, which);
    return *strata_golden_get(golden, name);
}

Test(random, agrees_with_python_wherever_the_part_begins) {
    static const char *const firsts[] = {"0", "3", "carry"};
    const random_case uniform = {strata_random_uniform, (uint32_t)STREAM, 23},
                      normal = {strata_random_normal, (uint32_t)STREAM, 23};
    const dropout_case dropout = {(uint32_t)STREAM, 0.3};
    strata_golden *golden = strata_golden_load("random");
    for (int i = 0; i < 3; i++) {
        strata_array x[2] = {*strata_golden_get(golden, "x"), golden_of(golden, "state", firsts[i])};
        expect_same((op_case){build, &uniform, &x[1], 1}, golden_of(golden, "uniform", firsts[i]));
        strata_array want = golden_of(golden, "normal", firsts[i]);
        expect_golden((op_case){build, &normal, &x[1], 1}, &want);
        want = golden_of(golden, "dropout", firsts[i]);
        expect_golden((op_case){build_dropout, &dropout, x, 2}, &want);
    }
    strata_golden_destroy(golden);
}

static strata_array state_of(int32_t seed, int32_t step, int32_t first) {
    return strata_test_array(STRATA_DTYPE_I32, STRATA_SHAPE(STRATA_RNG_WORDS), (double[]){seed, 0, step, 0, first, 0, 0, 0});
}

static strata_array draw(random_case r, int32_t seed, int32_t step, int32_t first) {
    strata_array state = state_of(seed, step, first), y = evaluate((op_case){build, &r, &state, 1});
    strata_array_finish(&state);
    return y;
}

Test(random, parts_of_a_batch_are_the_whole) {
    const int cut = 37, n = 100;
    strata_array whole = draw((random_case){strata_random_normal, 1, n}, 5, 6, 0);
    strata_array head = draw((random_case){strata_random_normal, 1, cut}, 5, 6, 0);
    strata_array tail = draw((random_case){strata_random_normal, 1, n - cut}, 5, 6, cut);
    cr_assert_arr_eq(head.data, whole.data, cut * sizeof(float));
    cr_assert_arr_eq(tail.data, (float *)whole.data + cut, (n - cut) * sizeof(float));
    strata_array_finish(&whole);
    strata_array_finish(&head);
    strata_array_finish(&tail);
}

/* A part of a batch gets the same random numbers as these rows in the whole batch, whatever the shape of a row. */
Test(random, rows_of_a_batch_are_those_of_the_whole) {
    enum { ROWS = 9, FIRST = 4, ROW = 3 * 5 };
    strata_array ones = strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS, 3, 5), 1);
    strata_array part = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(ROWS - FIRST, 3, 5), ones.data);
    const dropout_case dropout = {2, 0.5};
    strata_array states[2] = {state_of(5, 6, 0), state_of(5, 6, FIRST)};
    strata_array whole = evaluate((op_case){build_dropout, &dropout, (strata_array[]){ones, states[0]}, 2});
    strata_array tail = evaluate((op_case){build_dropout, &dropout, (strata_array[]){part, states[1]}, 2});
    cr_assert_arr_eq(tail.data, (float *)whole.data + FIRST * ROW, (ROWS - FIRST) * ROW * sizeof(float));
    cr_assert(memcmp(tail.data, whole.data, (ROWS - FIRST) * ROW * sizeof(float)), "the same numbers from the first row on");
    strata_array_finish(&ones);
    strata_array_finish(&whole);
    strata_array_finish(&tail);
    for (int i = 0; i < 2; i++) strata_array_finish(&states[i]);
}

Test(random, seed_step_and_stream_each_give_other_numbers) {
    const random_case r = {strata_random_uniform, 1, 64}, other_stream = {strata_random_uniform, 2, 64};
    strata_array all[4] = {draw(r, 1, 1, 0), draw(r, 2, 1, 0), draw(r, 1, 2, 0), draw(other_stream, 1, 1, 0)};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            for (int e = 0; e < 64; e++)
                cr_assert_neq(((float *)all[i].data)[e], ((float *)all[j].data)[e], "%d and %d, element %d", i, j, e);
    for (int i = 0; i < 4; i++) strata_array_finish(&all[i]);
}

enum { MANY = 100000 };

/* Returns the mean of x^power. For the powers used here its standard deviation over n numbers is at most 4 / sqrt(n). */
static double moment(const strata_array *x, int power) {
    double sum = 0;
    for (int i = 0; i < MANY; i++) sum += pow(((float *)x->data)[i], power);
    return sum / MANY;
}

Test(random, uniform_is_uniform) {
    strata_array x = draw((random_case){strata_random_uniform, 0, MANY}, 1, 0, 0);
    int bins[16] = {0};
    for (int i = 0; i < MANY; i++) {
        float v = ((float *)x.data)[i];
        cr_assert(v >= 0 && v < 1, "element %d is %.9g", i, v);
        bins[(int)(v * 16)]++;
    }
    double chi_squared = 0, expected = MANY / 16.0;
    for (int b = 0; b < 16; b++) chi_squared += (bins[b] - expected) * (bins[b] - expected) / expected;
    /* the seed is fixed, so the test does not fail at random */
    cr_assert_lt(chi_squared, 37.7, "15 degrees of freedom: one in a thousand is above");
    strata_array_finish(&x);
}

Test(random, normal_has_the_moments_of_a_normal) {
    strata_array x = draw((random_case){strata_random_normal, 0, MANY}, 1, 0, 0);
    double tolerance = 4 * 4 / sqrt(MANY);
    cr_assert_float_eq(moment(&x, 1), 0, tolerance);
    cr_assert_float_eq(moment(&x, 2), 1, tolerance);
    cr_assert_float_eq(moment(&x, 3), 0, tolerance);
    cr_assert_float_eq(moment(&x, 4), 3, 3 * tolerance);
    strata_array_finish(&x);
}

/* ---- dropout ---- */

Test(dropout, keeps_the_share_and_scales_it_and_its_gradient_has_the_same_mask) {
    const dropout_case d = {9, 0.25};
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(MANY), 3), state_of(4, 2, 0)};
    strata_array y = evaluate((op_case){build_dropout, &d, x, 2});
    int n_kept = 0;
    for (int i = 0; i < MANY; i++) {
        float v = ((float *)y.data)[i];
        cr_assert(v == 0 || v == 4, "element %d is %g", i, v);
        n_kept += v != 0;
    }
    cr_assert_float_eq(n_kept / (double)MANY, 0.75, 4 * sqrt(0.75 * 0.25 / MANY));
    strata_array_finish(&x[0]);
    strata_array_finish(&y);

    x[0] = strata_test_random(STRATA_DTYPE_F32, STRATA_SHAPE(3, 5), -1, 1, 1);
    expect_gradient((op_case){build_dropout, &d, x, 2});
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
}

Test(dropout, keeps_an_element_whose_number_is_the_rate) {
    strata_array state = state_of(4, 2, 0), u = draw((random_case){strata_random_uniform, 9, 20}, 4, 2, 0);
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(20), 1), state};
    for (int e = 0; e < 20; e++) {
        const dropout_case d = {9, ((float *)u.data)[e]};
        strata_array y = evaluate((op_case){build_dropout, &d, x, 2});
        for (int i = 0; i < 20; i++) cr_assert_eq(((float *)y.data)[i] != 0, ((float *)u.data)[i] >= ((float *)u.data)[e]);
        strata_array_finish(&y);
    }
    strata_array_finish(&x[0]);
    strata_array_finish(&state);
    strata_array_finish(&u);
}

Test(dropout, of_rate_zero_is_the_identity_for_every_float) {
    const dropout_case d = {9, 0};
    for (int i = 0; i < 3; i++) {
        strata_array x[2] = {strata_test_random(float_dtypes[i], STRATA_SHAPE(7, 3), -1, 1, 1), state_of(4, 2, 0)};
        expect_same((op_case){build_dropout, &d, x, 2}, x[0]);
        strata_array_finish(&x[0]);
        strata_array_finish(&x[1]);
    }
}

Test(random, rejects_what_is_no_state_and_no_rate_and_says_why) {
    strata_array x[2] = {strata_test_full(STRATA_DTYPE_F32, STRATA_SHAPE(4), 1), state_of(1, 1, 0)};
    const random_case uniform = {strata_random_uniform, 0, 4};
    strata_array short_state = strata_test_full(STRATA_DTYPE_I32, STRATA_SHAPE(2), 0);
    expect_rejected((op_case){build, &uniform, x, 1}, "random_uniform: state is f32; it must be i32");
    expect_rejected((op_case){build, &uniform, &short_state, 1}, "state is (2); it must be (8)");
    expect_rejected((op_case){build, &(random_case){strata_random_normal, 0, -1}, &x[1], 1}, "negative");
    expect_rejected((op_case){build_dropout, &(dropout_case){0, 1}, x, 2},
                    "dropout: rate is 1; it must be at least 0 and below 1");
    expect_rejected((op_case){build_dropout, &(dropout_case){0, NAN}, x, 2}, "rate is nan");
    strata_array_finish(&x[0]);
    strata_array_finish(&x[1]);
    strata_array_finish(&short_state);
}
