/* SPDX-License-Identifier: Apache-2.0
 *
 * A small classifier and its data, for tests of models on the host and on an OpenCL device. */
#ifndef STRATA_TESTS_MODEL_CASE_H
#define STRATA_TESTS_MODEL_CASE_H

#include <criterion/criterion.h>

#include "strata/strata.h"

/* Ends the test with the error's message unless `call`, which fills `err`, is OK. */
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)
/* `call` must fail with this status and a message that contains the text. */
#define FAILS(call, wanted, text)                                                                                            \
    do {                                                                                                                     \
        err = (strata_error){0};                                                                                             \
        strata_status fails_status = (call);                                                                                 \
        cr_assert_eq(fails_status, (wanted), "%s, not %s: %s", strata_status_name(fails_status), strata_status_name(wanted), \
                     err.message);                                                                                           \
        cr_assert_not_null(strstr(err.message, (text)), "\"%s\" lacks \"%s\"", err.message, (text));                         \
    } while (0)

/* Defines two tests with one body, which gets a device: on the host, and on opencl:0, which is skipped where there is none. */
#define TEST_ON_DEVICES(suite, name)         \
    static void name(strata_device *device); \
    Test(suite, name##_on_host) {            \
        test_on_device("host", name);        \
    }                                        \
    Test(suite, name##_on_opencl) {          \
        test_on_device("opencl:0", name);    \
    }                                        \
    static void name(strata_device *device)
/* Defines such a test on the host only. Use it for everything that does not depend on the device, because an OpenCL driver
 * takes seconds to compile a model. */
#define TEST_ON_HOST(suite, name)            \
    static void name(strata_device *device); \
    Test(suite, name) {                      \
        test_on_device("host", name);        \
    }                                        \
    static void name(strata_device *device)
void test_on_device(const char *which, void (*body)(strata_device *device));

enum { CASE_INPUTS = 6, CASE_HIDDEN = 5, CASE_CLASSES = 3 };

/* n examples of shape (2,3) with values from -1 to 1. The label is the index of the largest of three fixed linear functions. */
strata_dataset *case_dataset(int64_t n);
/* The same examples as arrays: x (n,2,3) f32 and y (n) i32. The caller finishes them. */
void case_arrays(int64_t n, strata_array *x, strata_array *y);
/* A model of the layers flatten, dense with 5 units and tanh, and dense with 3 units. */
strata_model *case_model_uncompiled(void);
/* The same model with batch_norm, which has states, and dropout, whose mask differs in each step, before its last layer. */
strata_model *case_model_with_states(void);
strata_model *case_model(strata_device *device, strata_optimizer optimizer, uint64_t seed);
/* SHA-256 of the model's parameters. The results of the last four calls stay valid. */
const char *case_sha(strata_model *model);

#endif
