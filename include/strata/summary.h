/* SPDX-License-Identifier: Apache-2.0
 *
 * The layers of a model, and the time and memory that its training step needs. */
#ifndef STRATA_SUMMARY_H
#define STRATA_SUMMARY_H

#include "strata/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { STRATA_MAX_SUMMARY_INPUTS = 8 };
/* A call of a layer; in a sequential model each layer is called once. */
typedef struct strata_layer_summary {
    /* The name of the call, and the kind of the layer. The first call has the layer's name; further calls have that name and a
     * number. The texts are valid while the model lives and no layer is added. */
    const char *name, *kind;
    /* The shape of the layer's outputs for the batch. */
    strata_shape output;
    /* The number of trained values. If a layer is called several times, they are counted in its first call. */
    int64_t parameters;
    /* Floating-point operations of the forward pass of the batch. */
    double flops;
    /* The names of the layer's inputs in a functional model, at most STRATA_MAX_SUMMARY_INPUTS of them. n_inputs 0: the model
     * is sequential, and the layer's input is the output of the layer before it. */
    int n_inputs;
    const char *inputs[STRATA_MAX_SUMMARY_INPUTS];
} strata_layer_summary;

/* FLOPs are additions and multiplications; a multiply-add counts as two. Zero-initialize; free with
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
    /* Bytes that a training step reads and writes if each op reads its inputs and writes its output once. */
    double step_bytes;
    /* Bytes that a training step needs on the device besides parameters and optimizer state. */
    int64_t step_memory_bytes;
} strata_model_summary;

/* The model must be compiled, because its device decides which ops are fused; the device "host" is always available. batch 0:
 * 32.
 * Fails: INVALID for a model that is not compiled or a batch below 0; with the errors of compiling a step. */
STRATA_API STRATA_MUST_USE strata_status strata_model_summarize(strata_model *model, int64_t batch,
                                                                strata_model_summary *out_summary, strata_error *err);
STRATA_API void strata_model_summary_finish(strata_model_summary *summary);

/* Nodes of a training step that have the same op, attributes and shapes of inputs and output. */
typedef struct strata_node_times {
    /* The op and what is fused into it: "matmul bias relu". */
    char op[96];
    strata_dtype dtype;
    strata_shape output;
    int count;
    /* The time of one node, measured when it runs alone on generated values, in microseconds; 0: it cannot run alone, or does
     * not access memory. */
    double us;
    double flops;
    /* Bytes that one node reads and writes if it reads or writes each tensor once and completely. */
    double bytes;
    /* Of all these nodes in a step, as reported by the device: the cycles from the beginning to the end of the device's work
     * for a node, the bytes read from and written to its main memory, and the share (0..1) of its matrix units' multiply-adds
     * that were used in these cycles. The cycles of different nodes may overlap. 0: the device does not report the value. */
    double cycles, device_bytes, utilisation;
} strata_node_times;

/* The time of a training step, by nodes. Zero-initialize; free with strata_step_times_finish. */
typedef struct strata_step_times {
    int n_nodes;
    /* [n_nodes], sorted by us * count, the largest first. */
    strata_node_times *nodes;
    /* Sum of us * count. */
    double nodes_us;
    /* The time of a step in microseconds, measured over whole steps on generated examples that are submitted without
     * waiting. */
    double step_us;
    /* Of a step, as reported by the device; see strata_node_times. device_us is in microseconds. */
    double device_us, cycles, device_bytes, utilisation;
    /* The largest number of bytes of temporaries at one time, if the device plans them itself; 0: not known. */
    double work_bytes;
} strata_step_times;

/* Measures a step of `batch` (0: 32) on the model's device. The model is trained on generated examples with a learning rate of
 * 0. This changes the states of its optimizer and its layers (Adam's means, batch normalisation's statistics), so do not use
 * them afterwards.
 * Fails: as strata_model_summarize; UNSUPPORTED where the model has several devices; DEVICE_LOST. */
STRATA_API STRATA_MUST_USE strata_status strata_model_time_step(strata_model *model, int64_t batch,
                                                                strata_step_times *out_times, strata_error *err);
STRATA_API void strata_step_times_finish(strata_step_times *times);

/* Which of a model's programs: a training step, or a batch of an evaluation or a prediction. */
typedef enum strata_model_part { STRATA_PART_TRAINING = 0, STRATA_PART_EVALUATION, STRATA_PART_PREDICTION } strata_model_part;

typedef enum strata_placed {
    /* The device runs the node. */
    STRATA_PLACED_DEVICE = 0,
    /* The host runs the node for the device, which was opened with fallback_to_host. */
    STRATA_PLACED_HOST,
    /* Neither runs the node: compiling the program would fail. */
    STRATA_PLACED_NOWHERE
} strata_placed;

/* A node of a program, and where it runs. Ops that the device lacks have already been replaced by compositions of ops that it
 * has. */
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
    /* How many of the nodes the host runs, and how many neither the device nor the host runs. */
    int n_host, n_nowhere;
} strata_model_places;

/* Lists where the nodes of a program for `batch` examples (0: 32) run on the device of this replica (0: the first). Nothing is
 * compiled, and a node that runs nowhere is not an error.
 * others: at most 32 further devices; strata_node_place.others says which of them could run the nodes that the device does not
 * run. NULL where n_others is 0.
 * Fails: INVALID for a model that is not compiled, a batch below 0, or a replica that does not exist. */
STRATA_API STRATA_MUST_USE strata_status strata_model_list_places(strata_model *model, strata_model_part part, int64_t batch,
                                                                  int replica, strata_device *const *others, int n_others,
                                                                  strata_model_places *out_places, strata_error *err);
STRATA_API void strata_model_places_finish(strata_model_places *places);

/* How a value of a training step is placed on a mesh of devices. */
typedef struct strata_value_placement {
    /* What the layers call it, cut where it is too long; "": nothing. */
    char name[64];
    /* Static memory. */
    const char *op;
    strata_dtype dtype;
    strata_shape shape;
    /* For example "(64 over data: 32 32, 10), partial over tensor". */
    char placement[256];
} strata_value_placement;

/* An exchange between devices of a mesh. */
typedef struct strata_mesh_exchange {
    /* Static memory: "all_reduce", "reduce_scatter" or "all_gather". */
    const char *op;
    /* The value that is exchanged, and the axes of the mesh along which, separated by commas. */
    char value[64], axes[128];
    /* The op that needs the result. Static memory. NULL: the step ends with it. */
    const char *reader;
    /* The bytes of the result on one device. */
    int64_t bytes;
} strata_mesh_exchange;

/* Zero-initialize; free with strata_model_mesh_finish. */
typedef struct strata_model_mesh {
    int n_devices;
    /* [n_values] In the order in which they are computed. */
    strata_value_placement *values;
    int n_values;
    strata_mesh_exchange *exchanges;
    int n_exchanges;
    /* [n_parameters] The parameters that are trained; op is "read". */
    strata_value_placement *parameters;
    int n_parameters;
    /* [n_devices] The bytes of a device's parts of the parameters, with their optimizer slots, and of the states. */
    int64_t *device_bytes;
    /* [n_devices] The other bytes that a device needs for its part of a step: those of temporaries, inputs, outputs and
     * constants, as the model's own device would plan them. NULL: there are several micro-batches. */
    int64_t *step_bytes;
    /* Of a mesh with several stages: the part of a step in which a stage waits, on average, if all stages need the same time
     * and messages need none; and the actions of each stage, a line for each ("stage 0: F0 F1 B0 B1"). NULL: there is one
     * stage. */
    double bubble;
    char *schedule;
} strata_model_mesh;

/* Divides a training step for `batch` examples (0: 32) among the devices of a mesh, as the strategy model_parallel does it, and
 * lists where the values are and what is exchanged. Nothing is compiled, and no other device and no memory for parameters is
 * needed.
 * strategy: its mesh, layout, microbatches and schedule are used, as they are for training.
 * Fails: INVALID for a model that is not compiled, a batch below 0, a mesh that is not written so or has more than 4096
 * devices, more stages than layers, and a layout or a schedule that is wrong. */
STRATA_API STRATA_MUST_USE strata_status strata_model_list_mesh(strata_model *model, int64_t batch,
                                                                const strata_strategy_options *strategy,
                                                                strata_model_mesh *out_mesh, strata_error *err);
STRATA_API void strata_model_mesh_finish(strata_model_mesh *mesh);

/* Finds the smallest pipeline of the machine's devices that trains the model with batches of this size (0: 32), for a model
 * that needs more memory than its only device has. The devices are the accelerators, each once, and then the best CPU.
 *   *out_text   the options of the command, and the bytes (device_bytes and step_bytes) of each device: "--strategy
 *               model_parallel --mesh stage=2 --devices opencl:0,vulkan:1, which need 812.4 MiB, 640.2 MiB"; the caller frees
 *               it. NULL: there are not enough devices, or the model cannot be cut so; it is on several devices, or accumulates
 *               gradients
 * It lists the devices (strata_devices_list), and takes no memory on them.
 * Fails: INVALID for a model that is not compiled, or a batch below 0. */
STRATA_API STRATA_MUST_USE strata_status strata_model_suggest_mesh(strata_model *model, int64_t batch, char **out_text,
                                                                   strata_error *err);

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

/* The contents of memory at the moment when a program needs the most memory. Zero-initialize; free with
 * strata_model_memory_finish. */
typedef struct strata_model_memory {
    /* [n_values] The temporaries that are in memory at that moment, the largest first; peak_bytes is the sum of their bytes. */
    strata_value_memory *values;
    int n_values;
    int64_t peak_bytes;
    /* The name and the op of the node that runs at that moment. */
    char at[64];
    const char *at_op;
    /* Bytes of the parameters with their optimizer slots and states, on one device. */
    int64_t parameter_bytes, slot_bytes, state_bytes;
} strata_model_memory;

/* Describes the memory of a program for `batch` examples (0: 32) on the first replica's device. Nothing is compiled.
 * Fails: INVALID for a model that is not compiled, a batch below 0, or a part that does not exist. */
STRATA_API STRATA_MUST_USE strata_status strata_model_list_memory(strata_model *model, strata_model_part part, int64_t batch,
                                                                  strata_model_memory *out_memory, strata_error *err);
STRATA_API void strata_model_memory_finish(strata_model_memory *memory);

#ifdef __cplusplus
}
#endif
#endif
