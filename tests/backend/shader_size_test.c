/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits the number of instructions of each kernel's SPIR-V as the Vulkan driver gets it, that is with its specialization
 * constants and without the branches that these constants make unreachable (shaders/specialize.c). A simple driver takes
 * minutes to compile a module of many thousands of instructions. */
#if STRATA_WITH_VULKAN
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shaders/shaders.h"
#include "shaders/specialize.h"
#include "tests/support/folder.h"

TestSuite(shader_size, .init = test_folder_make, .fini = test_folder_remove, .timeout = 300);

enum { BUDGET = 1000 };

/* Kernels that may be larger than BUDGET, and why. */
static const struct {
    const char *stem;
    size_t most;
    /* The higher limit applies only to work-groups of one work-item, which no real GPU uses. */
    bool alone;
    const char *reason;
} larger[] = {
    {"channel_parts", 8900, true, "16 channels by 4 rows, unrolled into vectors; each f16 is converted by integers"},
    {"chain", 3500, false, "16 steps, each of any operation until its constant is known; a chain has as many as it needs"},
    {"reduce", 1300, true, "16 columns, unrolled into vectors; each f16 is converted by integers"},
    {"matrix_units/conv2d", 1300, false,
     "pairs of channels that may be of two taps, whose places are found for both directions"},
    {"matrix_units/matmul", 1100, false, "both operands in either order, and sums that each f16 is rounded to by integers"},
    {"conv2d_tiles", 1100, false, "a tile of 8 by 8 in registers; each f16 is converted by integers"},
};

static size_t budget_of(const char *stem, uint32_t local) {
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++)
        if (!strcmp(larger[i].stem, stem) && (local == 1 || !larger[i].alone)) return larger[i].most;
    return BUDGET;
}

static strata_error err;

static uint32_t *load(const strata_shader *shader, const strata_shader_code *code) {
    void *words = NULL;
    cr_assert_eq(strata_shader_load(shader, code, &words, &err), STRATA_OK, "%s", err.message);
    return words;
}

/* Returns the kernel's module with these constants. The caller frees it. */
static uint32_t *specialize(const strata_shader *shader, const uint32_t *words, size_t n_words, const uint32_t *values,
                            size_t *out_words) {
    uint32_t *module = strata_shader_specialize(words, n_words, values, shader->n_constants, out_words);
    cr_assert(module, "%s %s is not specialized", shader->stem, shader->variant);
    cr_expect_leq(strata_shader_count_instructions(module, *out_words), strata_shader_count_instructions(words, n_words));
    return module;
}

static size_t count(const strata_shader *shader, const uint32_t *words, size_t n_words, const uint32_t *values) {
    size_t n = 0;
    uint32_t *module = specialize(shader, words, n_words, values, &n);
    n = strata_shader_count_instructions(module, n);
    free(module);
    return n;
}

/* Returns the largest number of instructions when all constants have their defaults but one, which takes some other values.
 * Each constant in turn is this one. */
static size_t count_most(const strata_shader *shader, const strata_shader_code *code, uint32_t local) {
    uint32_t values[STRATA_SHADER_MAX_CONSTANTS], *words = load(shader, code);
    const size_t n_words = code->bytes / sizeof *words;
    for (int i = 0; i < shader->n_constants; i++) values[i] = shader->constants[i].value;
    values[0] = local;
    size_t most = count(shader, words, n_words, values);
    for (int i = 1; i < shader->n_constants; i++) {
        const uint32_t before = values[i];
        for (values[i] = 1; values[i] <= 4; values[i] += values[i]) {
            const size_t n = count(shader, words, n_words, values);
            if (n > most) most = n;
        }
        values[i] = before;
    }
    free(words);
    return most;
}

Test(shader_size, every_kernel_stays_within_its_budget) {
    for (size_t k = 0; k < strata_shader_count(); k++) {
        const strata_shader *shader = strata_shader_at(k);
        const strata_shader_code *codes[] = {&shader->spirv, &shader->fetch};
        for (int c = 0; c < 2 && codes[c]->bytes; c++)
            for (uint32_t local = 1; local <= 64; local *= 64) {
                const size_t n = count_most(shader, codes[c], local), most = budget_of(shader->stem, local);
                cr_expect_leq(n, most, "%s %s has %zu instructions with LOCAL_X %u: the budget is %zu", shader->stem,
                              shader->variant, n, local, most);
            }
    }
}

/* The code for a work-group of several work-items does not contain the loops that a single work-item runs over vectors. */
Test(shader_size, constants_drop_the_branches_that_they_decide_against) {
    const strata_shader *shader = strata_shader_find("channel_parts", "f32_f32");
    uint32_t *words = load(shader, &shader->spirv);
    const size_t n_words = shader->spirv.bytes / sizeof *words;
    for (uint32_t gradient = 0; gradient < 2; gradient++) {
        const size_t alone = count(shader, words, n_words, (const uint32_t[]){1, gradient});
        const size_t group = count(shader, words, n_words, (const uint32_t[]){64, gradient});
        cr_expect_lt(5 * group, alone, "%zu instructions in a group, %zu alone", group, alone);
    }
    free(words);
}

Test(shader_size, what_is_no_module_is_left_alone) {
    const strata_shader *shader = strata_shader_find("unary", "f32");
    const uint32_t values[] = {64, 0};
    uint32_t *words = load(shader, &shader->spirv);
    size_t n = 0;
    const size_t n_words = shader->spirv.bytes / sizeof *words;
    cr_expect_null(strata_shader_specialize(words, 4, values, 2, &n));
    cr_expect_null(strata_shader_specialize(words, n_words - 1, values, 2, &n));
    words[0] = 0;
    cr_expect_null(strata_shader_specialize(words, n_words, values, 2, &n));
    cr_expect_eq(strata_shader_count_instructions(words, n_words), 0);
    free(words);
}

/* Runs the SPIR-V project's validator where it is installed. */
Test(shader_size, specialized_modules_are_valid) {
    if (system("command -v spirv-val >/dev/null 2>&1")) cr_skip_test("spirv-val is not there (spirv-tools)");
    for (size_t k = 0; k < strata_shader_count(); k++) {
        const strata_shader *shader = strata_shader_at(k);
        const strata_shader_code *code = k % 2 && shader->fetch.bytes ? &shader->fetch : &shader->spirv;
        uint32_t values[STRATA_SHADER_MAX_CONSTANTS];
        char line[1200], name[32];
        size_t n_words = 0;
        if (!code->bytes) continue;
        for (int i = 0; i < shader->n_constants; i++) values[i] = shader->constants[i].value;
        if (k % 3 == 0) values[0] = 1;
        uint32_t *words = load(shader, code);
        uint32_t *module = specialize(shader, words, code->bytes / sizeof *words, values, &n_words);
        snprintf(name, sizeof name, "%zu.spv", k);
        snprintf(line, sizeof line, "spirv-val --target-env vulkan1.1 '%s'",
                 test_file(name, (const char *)module, n_words * sizeof *module));
        cr_expect_eq(system(line), 0, "%s %s", shader->stem, shader->variant);
        free(module);
        free(words);
    }
}
#endif
