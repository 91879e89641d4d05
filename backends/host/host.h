/* SPDX-License-Identifier: Apache-2.0
 *
 * The internal header of the host backend: the device, and the table of ops that have a loop which is faster than the
 * reference. */
#ifndef STRATA_BACKENDS_HOST_H
#define STRATA_BACKENDS_HOST_H

#include "core/run/device.h"

/* Opens a host device; returns a buffer's memory. Both are for backends/fallback/. */
STRATA_MUST_USE strata_status strata_host_open(strata_device **out_device, strata_error *err);
void *strata_host_buffer_memory(strata_buffer *buffer);
/* Allocates zeroed memory, aligned as the plan's places are; NULL: there is none. */
void *strata_host_allocate(int64_t bytes);

/* Rows of tables that an optimizer's op updates in place: row ids[i] of the n_rows rows of `row` elements is updated with row i
 * of the gradients. An id out of range is ignored. */
typedef struct host_rows {
    const int32_t *ids;
    int64_t n, row, n_rows;
} host_rows;

/* The operands of one node, and scratch memory of the thread, of the size that the row's `scratch_bytes` returned. */
typedef struct host_call {
    strata_op_call call;
    void *scratch;
    /* The node is computed in n_parts parts, which different threads may compute; this call computes part `part`, 0 .. n_parts
     * - 1. */
    int part, n_parts;
    /* For an optimizer's op: it updates only these rows of its ranges, which are whole tables. NULL: it updates the whole
     * ranges. */
    const host_rows *rows;
} host_call;

/* HOST_LOOP defines the function `name` with the body name##_loop, which is compiled for each processor and for those that have
 * AVX2 and fused multiply-adds. features: which of these are used, "avx2" or "avx2,fma". names: the parameters, (a, b). */
#define HOST_INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__)
#define HOST_LOOP(name, features, parameters, names)                         \
    __attribute__((target(features))) static void name##_wide parameters {   \
        name##_loop names;                                                   \
    }                                                                        \
    static void name##_plain parameters {                                    \
        name##_loop names;                                                   \
    }                                                                        \
    static void name parameters {                                            \
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) \
            name##_wide names;                                               \
        else                                                                 \
            name##_plain names;                                              \
    }
#else
#define HOST_LOOP(name, features, parameters, names) \
    static void name parameters {                    \
        name##_loop names;                           \
    }
#endif

/* Elements first .. end - 1 of what a node computes. */
typedef struct host_share {
    int64_t first, end;
} host_share;

/* This part's share of n elements, in whole units of `unit` elements. */
host_share strata_host_share(const host_call *call, int64_t n, int64_t unit);

typedef struct host_fast_op {
    const strata_op *op;                                 /* NULL: `takes` compares it */
    bool (*takes)(const strata_tensor *node);            /* whether the loop supports the node's dtype and shapes */
    int64_t (*scratch_bytes)(const strata_tensor *node); /* NULL: none */
    void (*run)(const host_call *call);
    /* The approximate number of elements that are read and written. Nodes with much work are shared among threads. NULL: one
     * thread computes the node. */
    int64_t (*work)(const strata_tensor *node);
} host_fast_op;

/* The row for the node, or NULL: the reference is used. */
const host_fast_op *strata_host_fast_find(const strata_tensor *node);

/* A node with operands of 16 bits that a loop computes in f32 (widen.c). */
enum { HOST_WIDE_INPUTS = 8 };
typedef struct host_wide {
    const strata_tensor *narrow;
    /* The same node with f32 operands, their values, and its loop. */
    strata_tensor node, tensors[HOST_WIDE_INPUTS], *inputs[HOST_WIDE_INPUTS];
    const void *values[HOST_WIDE_INPUTS];
    const host_fast_op *fast;
    /* Bytes of scratch memory for the f32 operands and result. */
    int64_t bytes;
} host_wide;
/* NULL: no operand has 16 bits, or no loop computes the node. The caller frees it. */
host_wide *strata_host_widen(const strata_tensor *node);
/* Converts the operands to `values`, and returns the memory for the result of the loop. strata_host_wide_end converts the
 * result. */
void *strata_host_wide_begin(host_wide *wide, const void *const *inputs, void *output, char *scratch);
void strata_host_wide_end(const host_wide *wide, const void *result, void *output);
/* Whether the dtype is f16 or bf16. strata_host_to_f32 converts n elements and returns true if it is. strata_host_from_f32
 * rounds to nearest even. */
bool strata_host_is_narrow(strata_dtype dtype);
bool strata_host_to_f32(strata_dtype dtype, const void *from, float *to, int64_t n);
void strata_host_from_f32(strata_dtype dtype, const float *from, void *to, int64_t n);

/* Whether the node and its operands are f32; the loops support only f32. */
bool strata_host_is_f32(const strata_tensor *node);

/* A product of matrices in memory, for ops that compute one: c = epilogue(a b). The sum over K is computed by fma in ascending
 * order, beginning with 0. Strides are in elements. */
typedef struct host_product {
    int64_t m, n, k;
    /* a[m * a_row + k * a_k]. */
    int64_t a_row, a_k;
    /* b[k * b_k + n * b_col]. */
    int64_t b_k, b_col;
    /* c[m * c_row + n]. */
    int64_t c_row;
    /* (N) or NULL. */
    const float *bias;
    /* Has the layout of c, and may be c itself; or NULL. */
    const float *aux;
    int64_t activation, aux_form;
} host_product;

enum { HOST_PANEL = 32 }; /* columns of b that are packed together */
/* panel: (k + 1) HOST_PANEL floats. Computes part 0 .. n_parts - 1 of c. */
void strata_host_multiply(const host_product *p, const float *a, const float *b, float *c, float *panel, int part, int n_parts);

/* The value of an activation of epilogue.h at v. */
float strata_host_activate(int64_t activation, float v);

/* The rows of each file; each list ends with an empty row. Those of depthwise.c are before those of conv2d.c, since the first
 * row that takes a node is used. */
extern const host_fast_op strata_host_matmuls[], strata_host_cross_entropies[], strata_host_reductions[],
    strata_host_depthwise[], strata_host_conv2ds[], strata_host_pools[], strata_host_recurrent[], strata_host_casts[],
    strata_host_fma_chains[], strata_host_updates[], strata_host_elementwise[];
/* The work of a node that reads and writes each of its elements once. */
int64_t strata_host_elementwise_work(const strata_tensor *node);

/* rows.c: whether node `at` of the piece updates rows that are gathered from variables and scattered back, so that it can
 * update them in place (host_call.rows). strata_host_moves_rows is true of these gathers and scatters. *out_n_ranges: how many
 * of the node's inputs are such ranges. */
bool strata_host_updates_rows(const strata_piece *piece, int at, int *out_n_ranges);
bool strata_host_moves_rows(const strata_tensor *node, const strata_tensor *update, int n_ranges);
/* Finds the next ids, from position *at on, that select neighbouring rows. Returns their number; 0: there are no more.
 * *at becomes the position of the first of these ids, and *out_row its row. */
int64_t strata_host_next_rows(const host_rows *rows, int64_t *at, int64_t *out_row);

#endif
