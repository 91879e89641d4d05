/* SPDX-License-Identifier: Apache-2.0
 *
 * The element types of safetensors files, for the reader and the writer. */
#ifndef STRATA_CORE_DATA_SAFETENSORS_DTYPES_H
#define STRATA_CORE_DATA_SAFETENSORS_DTYPES_H

#include "strata/tensor.h"

static const struct {
    const char *name;
    int bits;
    /* STRATA_DTYPE_COUNT: Strata does not have this type. */
    strata_dtype dtype;
} safetensors_dtypes[] = {
    {"F32", 32, STRATA_DTYPE_F32},          {"F16", 16, STRATA_DTYPE_F16},      {"BF16", 16, STRATA_DTYPE_BF16},
    {"I32", 32, STRATA_DTYPE_I32},          {"I64", 64, STRATA_DTYPE_I64},      {"U8", 8, STRATA_DTYPE_U8},
    {"BOOL", 8, STRATA_DTYPE_BOOL},         {"F64", 64, STRATA_DTYPE_COUNT},    {"C64", 64, STRATA_DTYPE_COUNT},
    {"U64", 64, STRATA_DTYPE_COUNT},        {"U32", 32, STRATA_DTYPE_COUNT},    {"U16", 16, STRATA_DTYPE_COUNT},
    {"I16", 16, STRATA_DTYPE_COUNT},        {"I8", 8, STRATA_DTYPE_COUNT},      {"F8_E5M2", 8, STRATA_DTYPE_COUNT},
    {"F8_E4M3", 8, STRATA_DTYPE_COUNT},     {"F8_E8M0", 8, STRATA_DTYPE_COUNT}, {"F8_E5M2FNUZ", 8, STRATA_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, STRATA_DTYPE_COUNT}, {"F6_E2M3", 6, STRATA_DTYPE_COUNT}, {"F6_E3M2", 6, STRATA_DTYPE_COUNT},
    {"F4", 4, STRATA_DTYPE_COUNT},
};

enum { N_SAFETENSORS_DTYPES = sizeof safetensors_dtypes / sizeof safetensors_dtypes[0] };

#endif
