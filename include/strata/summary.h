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
    const char *name, *kind; /* the model's: valid while it lives and no layer is added */
    strata_shape output;     /* of the batch */
    int64_t parameters;      /* numbers that are trained */
    double flops;            /* forward, of the batch */
} strata_layer_summary;

/* FLOPs are additions and multiplications, a multiply-add counting two. Zero-initialize; free with
 * strata_model_summary_finish. */
typedef struct strata_model_summary {
    int64_t batch;
    int n_layers;
    strata_layer_summary *layers; /* [n_layers] */
    int64_t parameters;
    double forward_flops; /* of a prediction */
    double step_flops;    /* of a training step: forward, gradients, update */
    double step_bytes;    /* read and written by a training step, when each op reads its inputs and writes its output once */
    int64_t step_memory_bytes; /* what a training step holds on the device besides parameters and optimizer state */
} strata_model_summary;

/* The model must be compiled: its device says what is folded together; "host" is always there. batch 0: 32.
 * Fails: INVALID for a model that is not compiled or a batch below 0; what compiling a step would fail with. */
STRATA_API STRATA_MUST_USE strata_status strata_model_summarize(strata_model *model, int64_t batch,
                                                                strata_model_summary *out_summary, strata_error *err);
STRATA_API void strata_model_summary_finish(strata_model_summary *summary);

/* Nodes of a training step that are alike: op, attributes, shapes of inputs and output. */
typedef struct strata_node_times {
    char op[96]; /* and what is folded in: "matmul bias relu" */
    strata_dtype dtype;
    strata_shape output;
    int count;
    double us; /* of one, run by itself on made-up numbers; 0: it does not run by itself, or moves nothing */
    double flops;
    double bytes; /* of one, read and written, when each tensor is read or written whole and once */
} strata_node_times;

/* Where a training step's time goes. Zero-initialize; free with strata_step_times_finish. */
typedef struct strata_step_times {
    int n_nodes;
    strata_node_times *nodes; /* [n_nodes], those that take most together first */
    double nodes_us;          /* sum of us * count */
    double step_us;           /* of whole steps on made-up examples, submitted one behind the other */
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
