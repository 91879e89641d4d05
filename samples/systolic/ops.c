/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds ops in the table for this processor. Also reads attributes by name, and has functions for dtypes and for memory and
 * messages of programs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "systolic.h"

/* ---- choosing a copy of kernels.c ---- */

extern const op ops_portable[];
#if defined(__x86_64__)
extern const op ops_avx2[], ops_avx512[];
#endif

static bool always(void) {
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}
#endif

/* The copies of kernels.c; the best one is first. */
static const struct form {
    const char *name;
    const op *ops;
    bool (*fits)(void);
} forms[] = {
#if defined(__x86_64__)
    {"avx512", ops_avx512, has_avx512},
    {"avx2", ops_avx2, has_avx2},
#endif
    {"portable", ops_portable, always}};

/* Set when the plugin starts. */
static const struct form *the_form;

bool op_choose(const char *name) {
    the_form = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms && !the_form; i++)
        if ((!name || !strcmp(forms[i].name, name)) && forms[i].fits()) the_form = &forms[i];
    return the_form != NULL;
}

const op *op_find(const char *name) {
    for (const op *op = the_form->ops; op->name; op++)
        if (!strcmp(op->name, name)) return op;
    return NULL;
}

const char *op_form(void) {
    return the_form->name;
}

/* ---- attributes ---- */

const strata_plugin_attribute *attribute_find(const step *step, const char *name) {
    for (int i = 0; i < step->n_attributes; i++)
        if (!strcmp(step->attributes[i]->name, name)) return step->attributes[i];
    return NULL;
}

int64_t attribute_int(const step *step, const char *name, int64_t otherwise) {
    const strata_plugin_attribute *a = attribute_find(step, name);
    return a && a->type == STRATA_PLUGIN_INTS && a->n > 0 ? a->ints[0] : otherwise;
}

double attribute_float(const step *step, const char *name, double otherwise) {
    const strata_plugin_attribute *a = attribute_find(step, name);
    return a && a->type == STRATA_PLUGIN_FLOATS && a->n > 0 ? a->floats[0] : otherwise;
}

const char *attribute_text(const step *step, const char *name, const char *otherwise) {
    const strata_plugin_attribute *a = attribute_find(step, name);
    return a && a->type == STRATA_PLUGIN_TEXT && a->text ? a->text : otherwise;
}

int attribute_ints(const step *step, const char *name, int64_t *out, int most) {
    const strata_plugin_attribute *a = attribute_find(step, name);
    const int n = a && a->type == STRATA_PLUGIN_INTS ? a->n : 0;
    for (int i = 0; i < n && i < most; i++) out[i] = a->ints[i];
    return n;
}

/* ---- dtypes ---- */

int64_t dtype_bytes(strata_plugin_dtype dtype) {
    static const int8_t bytes[] = {4, 2, 2, 4, 8, 1, 1};
    return dtype >= 0 && dtype <= STRATA_PLUGIN_BOOL ? bytes[dtype] : 0;
}

bool dtype_is_float(strata_plugin_dtype dtype) {
    return dtype == STRATA_PLUGIN_F32 || dtype == STRATA_PLUGIN_F16 || dtype == STRATA_PLUGIN_BF16;
}

bool dtype_is_index(strata_plugin_dtype dtype) {
    return dtype == STRATA_PLUGIN_I32 || dtype == STRATA_PLUGIN_I64;
}

/* ---- memory and messages ---- */

enum { ALIGNMENT = 64 };

struct pool_block {
    struct pool_block *next;
};

void *pool_take(pool *pool, int64_t bytes) {
    if (bytes < 0 || bytes > INT64_MAX / 2) return NULL;
    const size_t room = ALIGNMENT + ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct pool_block *block = aligned_alloc(ALIGNMENT, room);
    if (!block) return NULL;
    memset(block, 0, room);
    block->next = pool->blocks;
    pool->blocks = block;
    return (char *)block + ALIGNMENT;
}

void pool_free(pool *pool) {
    while (pool->blocks) {
        struct pool_block *next = pool->blocks->next;
        free(pool->blocks);
        pool->blocks = next;
    }
}

strata_plugin_status fail(strata_plugin_error *error, strata_plugin_status status, const char *format, ...) {
    va_list arguments;
    if (!error || error->size <= offsetof(strata_plugin_error, message)) return status;
    const size_t room = error->size - offsetof(strata_plugin_error, message);
    va_start(arguments, format);
    vsnprintf(error->message, room < sizeof error->message ? room : sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}
