/* SPDX-License-Identifier: Apache-2.0
 *
 * A small classifier and its data for the tests of the model, on the host and on an OpenCL device where there is one. */
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

/* A test body that is given a device, as two tests: on the host, and on opencl:0 (skipped where there is none). */
#define TEST_ON_DEVICES(suite, name)         \
    static void name(strata_device *device); \
    Test(suite, name##_on_host) {            \
        test_on_device("host", name);        \
    }                                        \
    Test(suite, name##_on_opencl) {          \
        test_on_device("opencl:0", name);    \
    }                                        \
    static void name(strata_device *device)
/* The same on the host alone: for what does not depend on a device, as a driver takes seconds to compile each model. */
#define TEST_ON_HOST(suite, name)            \
    static void name(strata_device *device); \
    Test(suite, name) {                      \
        test_on_device("host", name);        \
    }                                        \
    static void name(strata_device *device)
void test_on_device(const char *which, void (*body)(strata_device *device));

enum { CASE_INPUTS = 6, CASE_HIDDEN = 5, CASE_CLASSES = 3 };

/* n elements of shape (2,3) in -1..1, whose label is the largest of three fixed linear scores. */
strata_dataset *case_dataset(int64_t n);
/* The same elements as memory of the caller's: x (n,2,3) f32 and y (n) i32, both to be finished. */
void case_arrays(int64_t n, strata_array *x, strata_array *y);
/* flatten, dense 5 tanh, dense 3. */
strata_model *case_model_uncompiled(void);
/* The same with states (batch_norm) and a mask that differs from step to step (dropout) before its last layer. */
strata_model *case_model_with_states(void);
strata_model *case_model(strata_device *device, strata_optimizer optimizer, uint64_t seed);
/* SHA-256 of its parameters; the last four stay valid. */
const char *case_sha(strata_model *model);

#endif
