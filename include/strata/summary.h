/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model consists of and what its training step costs, before it is trained. */
#ifndef STRATA_SUMMARY_H
#define STRATA_SUMMARY_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_layer_summary {
    /* The layer's name and kind; valid while the model lives and no layer is added. */
    const char *name, *kind;
    /* The shape of its outputs for the batch. */
    strata_shape output;
    /* Numbers that are trained. */
    int64_t parameters;
    /* Floating-point operations of the forward pass of the batch. */
    double flops;
} strata_layer_summary;

/* FLOPs are additions and multiplications, a multiply-add counting two. Zero-initialize; free with
 * strata_model_summary_finish. */
typedef struct strata_model_summary {
    int64_t batch;
    int n_layers;
    /* [n_layers]. */
    strata_layer_summary *layers;
    int64_t parameters;
    /* Floating-point operations of a prediction of the batch. */
    double forward_flops;
    /* Floating-point operations of a training step: forward pass, gradients, update. */
    double step_flops;
    /* Bytes that a training step reads and writes, when each op reads its inputs and writes its output once. */
    double step_bytes;
    /* Bytes that a training step needs on the device besides parameters and optimizer state. */
    int64_t step_memory_bytes;
} strata_model_summary;

/* The model must be compiled: its device says what is folded together; "host" is always there. batch 0: 32.
 * Fails: INVALID for a model that is not compiled or a batch below 0; what compiling a step would fail with. */
STRATA_API STRATA_MUST_USE strata_status strata_model_summarize(strata_model *model, int64_t batch,
                                                                strata_model_summary *out_summary, strata_error *err);
STRATA_API void strata_model_summary_finish(strata_model_summary *summary);

/* Nodes of a training step that are alike: op, attributes, shapes of inputs and output. */
typedef struct strata_node_times {
    /* And what is folded in: "matmul bias relu". */
    char op[96];
    strata_dtype dtype;
    strata_shape output;
    int count;
    /* Of one, run by itself on made-up numbers; 0: it does not run by itself, or moves nothing. */
    double us;
    double flops;
    /* Of one, read and written, when each tensor is read or written whole and once. */
    double bytes;
    /* Of all of them in a step, by the device's own account and in its own time: cycles from the first to the last thing that
     * it does for the node, bytes read from and written to its main memory, and the share (0..1) of its matrix units'
     * multiply-adds that were used in these cycles. Nodes overlap. 0: the device does not say. */
    double cycles, device_bytes, utilisation;
} strata_node_times;

/* Where a training step's time goes. Zero-initialize; free with strata_step_times_finish. */
typedef struct strata_step_times {
    int n_nodes;
    /* [n_nodes], those that take most together first. */
    strata_node_times *nodes;
    /* Sum of us * count. */
    double nodes_us;
    /* Of whole steps on made-up examples, submitted one behind the other. */
    double step_us;
    /* Of a step by the device's own account, as of a node. */
    double device_us, cycles, device_bytes, utilisation;
} strata_step_times;

/* Measures a step of `batch` (0: 32) on the model's device. Meanwhile it trains on made-up examples at a rate of 0: what its
 * optimizer and its layers remember (Adam's means, batch normalisation's statistics) is of no use afterwards.
 * Fails: as strata_model_summarize; UNSUPPORTED where the model has several devices; DEVICE_LOST. */
STRATA_API STRATA_MUST_USE strata_status strata_model_time_step(strata_model *model, int64_t batch,
                                                                strata_step_times *out_times, strata_error *err);
STRATA_API void strata_step_times_finish(strata_step_times *times);

#ifdef __cplusplus
}
#endif
#endif
