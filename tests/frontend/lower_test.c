/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of jaxlib as graphs: they compute what jaxlib computes on the CPU (fixtures.py), and what has no rule is refused
 * with the place in the Python program. */
#include "core/frontend/pjrt/lower.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strata/executable.h"
#include "tests/frontend/fixture.h"
#include "tests/support/check.h"

static const char *const lowered_names[] = {"binary",    "constants",      "conv",   "convs",      "donated",  "dots",
                                            "embedding", "gathers",        "half",   "integers",   "large",    "mlp",
                                            "nested",    "pool_gradients", "reduce", "reductions", "scatters", "shapes",
                                            "slices",    "unary",          "window", "windows"};
enum { N_LOWERED = sizeof lowered_names / sizeof lowered_names[0] };

/* Programs that are refused, and what the error names: the operation, its type, and the line in fixtures.py. */
static const struct {
    const char *name, *words[3];
} refused[] = {
    {"cond", {"vhlo.case (tensor<i32>)", "at fixtures.py:", "no rule"}},
    {"kinds", {"argument 1", "ui32", "convert"}},
    {"random", {"argument 0", "ui32", "convert"}},
    {"refused", {"complex", "at fixtures.py:", "convert"}},
    {"scan", {"vhlo.while", "at fixtures.py:", "no rule"}},
    {"sort", {"vhlo.sort", "tensor<7xf32>", "at fixtures.py:"}},
};

static strata_status lower_bytes(const unsigned char *bytes, size_t n_bytes, strata_lowered *out, strata_error *err) {
    strata_program *program = NULL;
    *out = (strata_lowered){0};
    strata_status status = strata_program_read(bytes, n_bytes, &program, err);
    if (!status) status = strata_lower(program, out, err);
    strata_program_destroy(program);
    return status;
}

static strata_lowered lower_fixture(const char *name) {
    size_t n_bytes = 0;
    strata_lowered lowered;
    strata_error err = {0};
    unsigned char *bytes = read_fixture(name, ".mlir.bc", &n_bytes);
    cr_assert_eq(lower_bytes(bytes, n_bytes, &lowered, &err), STRATA_OK, "%s: %s", name, err.message);
    free(bytes);
    return lowered;
}

/* The next bytes of a file of values, as an array of the tensor's dtype and shape. */
static strata_array next_array(const strata_tensor *tensor, const unsigned char *bytes, size_t n_bytes, size_t *at) {
    strata_array array;
    cr_assert_eq(strata_array_create(strata_tensor_dtype(tensor), strata_tensor_shape(tensor), &array, NULL), STRATA_OK);
    const size_t n = strata_array_bytes(&array);
    cr_assert(*at + n <= n_bytes);
    memcpy(array.data, bytes + *at, n);
    *at += n;
    return array;
}

/* Vulkan's tanh, and pow of an odd power, lose the sign of a zero. */
static bool loses_sign(const char *device, const char *program, int output) {
    if (strncmp(device, "vulkan", 6) != 0) return false;
    return (!strcmp(program, "unary") && (output == 5 || output == 17)) || (!strcmp(program, "binary") && output == 4);
}

/* The sign of a zero is compared too. Sums and products have a few terms, and functions such as exp a few units in the last
 * place: 4e-6 of f32's numbers is 32 units. f16 and bf16 are rounded once. */
static void compare(const char *device, const char *name, int output, const strata_array *got, const strata_array *want) {
    const strata_test_tolerance wide = {4e-6, 2e-6};
    const bool is_f32 = want->dtype == STRATA_DTYPE_F32;
    const strata_test_result result = strata_test_compare(got, want, is_f32 ? wide : strata_test_tolerance_of(want->dtype, 1));
    cr_expect(result.ok, "%s: %s: output %d: %s", device, name, output, result.text);
    const bool has_signs = strata_dtype_is_float(want->dtype) && !loses_sign(device, name, output);
    const int64_t n = has_signs ? strata_shape_elements(want->shape) : 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = strata_element_get(got->dtype, got->data, i), b = strata_element_get(want->dtype, want->data, i);
        cr_expect(a != 0 || b != 0 || signbit(a) == signbit(b), "%s: %s: output %d: element %d is %g instead of %g", device,
                  name, output, (int)i, a, b);
    }
}

static void run_program(strata_device *device, const char *name) {
    size_t n_bytes = 0, at = 0;
    unsigned char *bytes = read_fixture(name, ".values", &n_bytes);
    strata_lowered lowered = lower_fixture(name);
    strata_executable *executable = NULL;
    strata_error err = {0};
    strata_array inputs[8], outputs[32], wanted[32];
    const char *names[8];
    int n_used = 0;
    cr_assert(lowered.n_inputs <= 8 && lowered.n_outputs <= 32);
    cr_assert_eq(strata_executable_create(device, lowered.outputs, lowered.n_outputs, NULL, 0, NULL, &executable, &err),
                 STRATA_OK, "%s: %s", name, err.message);
    for (int i = 0; i < lowered.n_inputs; i++) {
        const strata_array value = next_array(lowered.inputs[i], bytes, n_bytes, &at);
        names[n_used] = strata_tensor_name(lowered.inputs[i]);
        inputs[n_used] = value;
        if (strata_executable_input_index(executable, names[n_used]) >= 0)
            n_used++;
        else
            strata_array_finish(&inputs[n_used]);
    }
    for (int i = 0; i < lowered.n_outputs; i++) {
        wanted[i] = next_array(lowered.outputs[i], bytes, n_bytes, &at);
        cr_assert_eq(strata_array_create(wanted[i].dtype, wanted[i].shape, &outputs[i], NULL), STRATA_OK);
    }
    cr_expect_eq(at, n_bytes, "%s has other values", name);
    cr_assert_eq(strata_executable_run(executable, names, inputs, n_used, outputs, lowered.n_outputs, &err), STRATA_OK,
                 "%s: %s", name, err.message);
    for (int i = 0; i < lowered.n_outputs; i++) compare(strata_device_get_info(device)->id, name, i, &outputs[i], &wanted[i]);
    for (int i = 0; i < n_used; i++) strata_array_finish(&inputs[i]);
    for (int i = 0; i < lowered.n_outputs; i++) strata_array_finish(&outputs[i]), strata_array_finish(&wanted[i]);
    strata_executable_destroy(executable);
    strata_lowered_finish(&lowered);
    free(bytes);
}

/* Whether STRATA_TEST_DEVICES, a list of the beginnings of names, is empty or has one of this device's. */
static bool is_wanted(const char *id) {
    const char *list = getenv("STRATA_TEST_DEVICES");
    size_t n = 0;
    for (const char *at = list ? list : ""; *at; at += n + (at[n] == ',')) {
        n = strcspn(at, ",");
        if (n && !strncmp(id, at, n)) return true;
    }
    return !list || !*list;
}

/* Compilers of devices would take a minute for the kernels of all programs. The conformance tests compare each op; these
 * programs are those whose results depend on the bits of NaN and zeros, or on several ops. */
static bool is_on_devices(const char *name) {
    static const char *const names[] = {"binary", "gathers", "half", "mlp", "reductions", "scatters"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

Test(lower, programs_compute_what_jax_computes) {
    strata_device_info *rows = NULL;
    strata_error err = {0};
    int n = 0;
    cr_assert_eq(strata_devices_list(&rows, &n, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < n; i++) {
        strata_device *device = NULL;
        if (rows[i].skipped[0] || strchr(rows[i].id, '.') || !is_wanted(rows[i].id)) continue;
        const strata_device_options options = {.no_tune = true, .trust = true};
        cr_assert_eq(strata_device_open(rows[i].id, &options, &device, &err), STRATA_OK, "%s", err.message);
        for (int k = 0; k < N_LOWERED; k++)
            if (!strcmp(rows[i].id, "host") || is_on_devices(lowered_names[k])) run_program(device, lowered_names[k]);
        strata_device_close(device);
    }
    strata_devices_free(rows);
}

Test(lower, what_has_no_rule_is_refused_with_its_type_and_line) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        size_t n_bytes = 0;
        strata_lowered lowered;
        strata_error err = {0};
        unsigned char *bytes = read_fixture(refused[i].name, ".mlir.bc", &n_bytes);
        cr_expect_eq(lower_bytes(bytes, n_bytes, &lowered, &err), STRATA_UNSUPPORTED, "%s: %s", refused[i].name, err.message);
        for (int k = 0; k < 3; k++)
            cr_expect(strstr(err.message, refused[i].words[k]), "%s: no \"%s\" in: %s", refused[i].name, refused[i].words[k],
                      err.message);
        strata_lowered_finish(&lowered);
        free(bytes);
    }
}

Test(lower, inputs_have_numbers_as_names_and_donated_ones_the_output_that_may_take_their_memory) {
    strata_lowered lowered = lower_fixture("donated");
    cr_assert_eq(lowered.n_inputs, 2);
    cr_assert_eq(lowered.n_outputs, 2);
    cr_assert_str_eq(strata_tensor_name(lowered.inputs[1]), "1");
    cr_assert_eq(lowered.aliases[0], -1);
    cr_assert_eq(lowered.aliases[1], 0);
    strata_lowered_finish(&lowered);
}

/* A changed byte may give another program, which then is lowered, or refused with a message. */
Test(lower, a_changed_byte_gives_a_graph_or_an_error) {
    for (int i = 0; i < N_LOWERED; i++) {
        size_t n_bytes = 0;
        unsigned char *bytes = read_fixture(lowered_names[i], ".mlir.bc", &n_bytes);
        for (size_t n = 0; n < n_bytes; n += 1 + n_bytes / 500) {
            strata_lowered lowered;
            strata_error err = {0};
            const unsigned char before = bytes[n];
            bytes[n] ^= (unsigned char)(n % 3 ? 1 << n % 8 : 0xFF);
            const strata_status status = lower_bytes(bytes, n_bytes, &lowered, &err);
            cr_assert((status == STRATA_OK) == (lowered.graph != NULL));
            cr_assert(status != STRATA_INTERNAL && status != STRATA_INVALID, "%s: %s", lowered_names[i], err.message);
            cr_assert(!status || err.message[0]);
            strata_lowered_finish(&lowered);
            bytes[n] = before;
        }
        free(bytes);
    }
}
