/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model consists of and what its training step costs, before it is trained. */
#ifndef STRATA_SUMMARY_H
#define STRATA_SUMMARY_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_MAX_SUMMARY_INPUTS = 8 };
/* A call of a layer; in a sequential model each layer is called once. */
typedef struct strata_layer_summary {
    /* The call's name, which is the layer's, or of further calls that and a number; and the layer's kind. Valid while the model
     * lives and no layer is added. */
    const char *name, *kind;
    /* The shape of its outputs for the batch. */
    strata_shape output;
    /* Numbers that are trained; those of a layer that is called several times are in its first call. */
    int64_t parameters;
    /* Floating-point operations of the forward pass of the batch. */
    double flops;
    /* The names of what it takes, in a functional model; of more than STRATA_MAX_SUMMARY_INPUTS the first. 0: the model is
     * sequential, and the layer takes what the one before it gives. */
    int n_inputs;
    const char *inputs[STRATA_MAX_SUMMARY_INPUTS];
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
    /* The most bytes of temporaries at one time, where the device plans them by itself; 0: not known. */
    double work_bytes;
} strata_step_times;

/* Measures a step of `batch` (0: 32) on the model's device. Meanwhile it trains on made-up examples at a rate of 0: what its
 * optimizer and its layers remember (Adam's means, batch normalisation's statistics) is of no use afterwards.
 * Fails: as strata_model_summarize; UNSUPPORTED where the model has several devices; DEVICE_LOST. */
STRATA_API STRATA_MUST_USE strata_status strata_model_time_step(strata_model *model, int64_t batch,
                                                                strata_step_times *out_times, strata_error *err);
STRATA_API void strata_step_times_finish(strata_step_times *times);

/* Which of a model's programs: a training step, or a batch of an evaluation or a prediction. */
typedef enum strata_model_part { STRATA_PART_TRAINING = 0, STRATA_PART_EVALUATION, STRATA_PART_PREDICTION } strata_model_part;

typedef enum strata_placed {
    /* By the device. */
    STRATA_PLACED_DEVICE = 0,
    /* By the host for the device, which was opened with fallback_to_host. */
    STRATA_PLACED_HOST,
    /* By nobody: the program would be an error. */
    STRATA_PLACED_NOWHERE
} strata_placed;

/* A node of a program, and who runs it. Ops that the device lacks are replaced by compositions of those that it has before. */
typedef struct strata_node_place {
    /* What the layers call it, cut where it is too long; "": nothing. */
    char name[64];
    /* Static memory. */
    const char *op;
    strata_dtype dtype;
    strata_shape output;
    strata_placed placed;
    /* Why the device does not run it; "" where it does. */
    char reason[256];
    /* Bit i: others[i] runs it. */
    uint32_t others;
} strata_node_place;

/* Zero-initialize; free with strata_model_places_finish. */
typedef struct strata_model_places {
    int n_nodes;
    /* [n_nodes], in the order in which they run. */
    strata_node_place *nodes;
    /* How many of them the host runs, and how many nobody does. */
    int n_host, n_nowhere;
} strata_model_places;

/* Where the nodes of a program for `batch` examples (0: 32) run, on the device of this replica (0: the first). Nothing is
 * compiled, and a node that nobody runs is no error.
 *   others  at most 32 devices that are asked whether they run what the device does not, besides; NULL where n_others is 0
 * Fails: INVALID for a model that is not compiled, a batch below 0, a replica that there is not. */
STRATA_API STRATA_MUST_USE strata_status strata_model_list_places(strata_model *model, strata_model_part part, int64_t batch,
                                                                  int replica, strata_device *const *others, int n_others,
                                                                  strata_model_places *out_places, strata_error *err);
STRATA_API void strata_model_places_finish(strata_model_places *places);

/* A temporary of a program. */
typedef struct strata_value_memory {
    /* What the layers call it, cut where it is too long; "": nothing. */
    char name[64];
    /* Static memory. */
    const char *op;
    strata_dtype dtype;
    strata_shape output;
    int64_t bytes;
} strata_value_memory;

/* What is in memory at the moment when a program needs most of it. Zero-initialize; free with strata_model_memory_finish. */
typedef struct strata_model_memory {
    /* [n_values] The temporaries that are alive then, the largest first; and their sum. */
    strata_value_memory *values;
    int n_values;
    int64_t peak_bytes;
    /* The node that runs then. */
    char at[64];
    const char *at_op;
    /* Bytes of the parameters with their optimizer slots and states, on one device. */
    int64_t parameter_bytes, slot_bytes, state_bytes;
} strata_model_memory;

/* Of a program for `batch` examples (0: 32) on the first replica's device. Nothing is compiled.
 * Fails: INVALID for a model that is not compiled, a batch below 0, a part that there is not. */
STRATA_API STRATA_MUST_USE strata_status strata_model_list_memory(strata_model *model, strata_model_part part, int64_t batch,
                                                                  strata_model_memory *out_memory, strata_error *err);
STRATA_API void strata_model_memory_finish(strata_model_memory *memory);

#ifdef __cplusplus
}
#endif
#endif
