/* SPDX-License-Identifier: Apache-2.0
 *
 * A model, its variables on each device, and its programs. The public header is strata/model.h; the other subjects have headers
 * of their own, which README.md lists in reading order. All parameters are stored one after the other in one f32 variable, the
 * *flat range*, each at an offset that is a multiple of STRATA_PARAMETER_ALIGNMENT elements. Gradients and optimizer slots have
 * the same layout, so that one kernel updates all parameters. If the flat range is larger than the buffer range that the
 * devices can bind, it is divided into *blocks*, each with its own variables and its own update. */
#ifndef STRATA_CORE_MODEL_H
#define STRATA_CORE_MODEL_H

#include "core/base/alloc.h"
#include "core/base/json.h"
#include "core/data/batches.h"
#include "core/data/format/safetensors.h"
#include "core/layer/context.h"
#include "core/loss/loss.h"
#include "core/metric/metric.h"
#include "core/model/zero.h"
#include "core/optimizer/optimizer.h"
#include "core/run/group.h"
#include "core/run/strategy.h"
#include "strata/callbacks.h"
#include "strata/distribute.h"

_Static_assert(STRATA_PARAMETER_ALIGNMENT % STRATA_SEGMENT_CHUNK == 0, "a chunk belongs to one parameter");

/* The implementation of training for a strategy whose workers do not run steps together (parameter_server). */
struct strata_manifest;
struct strata_trainer {
    /* Called by strata_model_fit after it checked model, data and options. Defaults are set in opts, and the arrays of history
     * are allocated. */
    strata_status (*fit)(strata_model *model, const strata_dataset *dataset, const strata_fit_options *opts,
                         strata_history *history, strata_error *err);
    /* Called before a model is saved in a callback of fit. Waits until the workers have finished their batches, and writes the
     * position in the epoch, the sums and the count of updates to the model; with `values` also parameters, states and slots.
     * Training continues when the callback returns. Does nothing outside of fit. NULL: the model always has these values. */
    strata_status (*settle)(strata_model *model, bool values, strata_error *err);
    /* Called after settle: the tasks that own parameters, states and slots write them to files in the folder, and add these
     * files and their contents to the manifest. *out_written false: nothing was written, since the model has all values. NULL:
     * always false. */
    strata_status (*write_parts)(strata_model *model, const char *folder, struct strata_manifest *manifest, bool *out_written,
                                 strata_error *err);
    /* Takes bucket k of the gradients of a worker's program (strata_gradient_layout) as soon as the device has computed it. The
     * gradients are placed at the servers, which are no devices of the program. NULL: no gradients are placed there. */
    strata_receive *take;
};

/* A variable with a copy on each replica's device. */
struct strata_distributed_variable {
    strata_strategy *strategy;
    /* No other variable of the strategy has it, not even a destroyed one, whose address a new one may have. */
    int64_t number;
    strata_synchronization synchronization;
    strata_aggregation aggregation;
    /* [strategy->n_replicas] Under a mesh: the devices' parts of it; NULL: the device has none. */
    strata_variable **copies;
    /* A variable of the shape of the whole value, with a name. Under a mesh it stands for the parts in the graph of a function.
     * */
    strata_variable *whole;
    /* For a block of a model's parameters: the model, and the index of the block. NULL: another variable. */
    strata_model *model;
    int block;
    strata_owned owned;
};

/* A value of the model: one of its inputs, or the result of a call of a layer. */
struct strata_value {
    const strata_model *model;
    char *name;
    /* The index of the layer in the model's list; -1: the value is an input. */
    int layer;
    /* For an input: its index. For a call: 1 for the first call of the layer, 2 for the second, and so on. */
    int number;
    /* The stage of a pipeline that computes it; 0 where there is none. */
    int stage;
    /* [n_inputs] Indices of the values that are the inputs of the call. */
    int *inputs;
    int n_inputs;
    /* It is the input of a call, or an output. */
    bool used;
};

typedef struct strata_input_spec {
    /* The shape and the type of one example. */
    strata_shape shape;
    strata_dtype dtype;
    /* Integers must be below this number; 0: no layer limits them. Known once the layers are declared. */
    int64_t n_tokens;
    /* The index of its value. */
    int value;
} strata_input_spec;

/* An output, with its loss and metrics. */
typedef struct strata_output_spec {
    /* NULL: the output has the name of its value. */
    char *name;
    /* The index of its value. */
    int value;
    /* The shape of one example; known once the layers are declared. */
    strata_shape shape;
    /* In predictions all elements are probabilities, since the layers end in softmax or sigmoid; known once they are
     * declared. */
    bool probabilities;
    /* "softmax" or "sigmoid" if the layers end in it; NULL: they do not. Known once they are declared. */
    const char *ending;
    /* NULL: the model has no loss, until JSON, strata_model_output or compile sets one. Its predictions are its outputs. */
    const strata_loss *loss;
    strata_loss_options loss_options;
    /* The factor of its loss in the model's loss. */
    double weight;
    /* The names of its metrics, "auc,precision"; NULL: there are none. */
    char *metrics;
} strata_output_spec;

/* Which parts of a dataset's elements feed the model's inputs and are compared with its outputs. */
typedef struct strata_model_feed {
    int inputs[STRATA_MAX_INPUTS], targets[STRATA_MAX_OUTPUTS];
} strata_model_feed;

/* A metric besides loss and accuracy. */
typedef struct strata_model_metric {
    char name[STRATA_MAX_PART_NAME + 32];
    int output;
    const strata_metric_kind *kind;
    strata_metric_case c;
    /* The index of its first number in the model's sums. */
    int64_t first;
} strata_model_metric;

typedef enum strata_program_kind {
    /* Computes a batch and makes an update. */
    STRATA_PROGRAM_TRAIN,
    /* Computes a batch and adds its gradients, sums and new states to the replica's accumulated_... variables. */
    STRATA_PROGRAM_ACCUMULATE,
    /* Makes an update from the accumulated gradients; it reads no batch. */
    STRATA_PROGRAM_APPLY,
    /* Averages the parameters and states of replicas that have their own (strata_strategy.average); it reads no batch. */
    STRATA_PROGRAM_AVERAGE,
    /* Computes a batch; gradients, sums and changes of states are outputs, and nothing is updated. */
    STRATA_PROGRAM_GRADIENTS,
    STRATA_PROGRAM_EVALUATE,
    STRATA_PROGRAM_PREDICT
} strata_program_kind;

/* Whether its program reads no batch. */
static inline bool strata_program_is_without_batch(strata_program_kind kind) {
    return kind == STRATA_PROGRAM_APPLY || kind == STRATA_PROGRAM_AVERAGE;
}

/* Whether its program changes nothing. */
static inline bool strata_program_computes_only(strata_program_kind kind) {
    return kind == STRATA_PROGRAM_EVALUATE || kind == STRATA_PROGRAM_PREDICT;
}

/* How the update is divided among replicas. Without shards, each device that makes updates updates the whole flat range. */
typedef struct strata_shards {
    /* The number of replicas of all workers, each of which owns one shard; 0: there are no shards. */
    int n;
    /* [n + 1] Shard r is elements [begins[r], begins[r + 1]) of the flat range. */
    int64_t *begins;
} strata_shards;

/* One block of the parameters' flat range on one device. */
typedef struct strata_model_block {
    strata_variable *flat;
    /* On a device that updates: the elements [begin, end) of the flat range that it updates. The slots have as many elements.
     * */
    int64_t begin, end;
    strata_variable *slots[STRATA_MAX_OPTIMIZER_SLOTS];
    /* With shards: a copy of the elements [begin, end), which the optimizer updates. NULL: the optimizer updates `flat`. */
    strata_variable *shard;
    /* On a device that computes gradients, with gradient accumulation: the sum of the gradients so far, f32. */
    strata_variable *accumulated;
} strata_model_block;

/* The model on one device of its strategy. */
typedef struct strata_model_replica {
    strata_device *device;
    /* [parameters.n_blocks] The blocks of the flat range on this device. */
    strata_model_block *blocks;
    /* The states of all layers; NULL if no layer has states. */
    strata_variable *state;
    /* On a device that makes updates, f32 (n_sums): the epoch's sums so far: of the losses, of the correct predictions,
     * and of the other metrics. */
    strata_variable *metrics;
    /* On a device that computes gradients, with gradient accumulation, f32: the batches' contributions to the epoch's sums, and
     * the sum of their new states (NULL: there are no states). */
    strata_variable *accumulated_sums, *accumulated_states;
    /* How many of the accumulated batches had examples for this replica, and how many examples. */
    int64_t n_accumulated, accumulated_examples;
} strata_model_replica;

/* A replica's part of a program: examples [first, first + n) of the batch. If n is 0, the executable is compiled for one
 * example, whose results are ignored. */
typedef struct strata_program_part {
    /* Borrowed from the program's group. */
    strata_executable *executable;
    int64_t first, n;
    /* The indices of the executable's inputs; -1: it has no such input. */
    int x[STRATA_MAX_INPUTS], y[STRATA_MAX_OUTPUTS], weights, example_weights, step, rng, share, examples, state_share;
    /* The index of the output with the scores of the part's examples; -1: no metric needs them. */
    int scores;
} strata_program_part;

/* The format of the batches of a program. */
typedef struct strata_batch_form {
    bool weighted;
    /* The features are u8 and are multiplied by this; 0: they have the model's type. */
    float byte_scale;
    /* The smallest number of slots, so that the host can prepare that many batches before it reads a result. 0: the
     * executable's default. */
    int n_slots;
} strata_batch_form;

/* The most buckets in which the gradients of a block are exchanged. */
enum { STRATA_MOST_BUCKETS = 8 };

/* The outputs of a program of the kind GRADIENTS, in this order:
 *   the batch's sums;
 *   for each block its gradients, of which the first (dense_end - begin) elements are those of its dense parameters, in their
 *   layout;
 *   if the model has states, their changes, which are added to them, and then the rates of their moving averages;
 *   for each sparse parameter the indices of the rows that the batch uses (i32, each index once, then -1). This output is
 *   missing if the gradients are those of all rows and the elements of an input of the model are the indices of the used
 *   rows. */
typedef struct strata_gradient_layout {
    /* [n_sparse] One for each sparse parameter. */
    struct strata_sparse_gradient {
        int parameter;
        /* The output with the rows' indices (-1: there is none, and the gradients are those of all rows in their order), and
         * the number of rows of the gradients. */
        int ids;
        int64_t n_ids;
        /* The block of the parameter, and the element of the block's gradients at which the gradients of these rows
         * begin. */
        int block;
        int64_t place;
        /* The elements of this input of the model are the indices of the rows; -1: there is no such input. */
        int input;
        /* The input's elements are used only as these indices, so the rows may be renumbered: if the input has other indices
         * and the table has the rows at these indices, the program computes the same, and the gradients are at the new
         * indices. */
        bool renumbers;
    } * sparse;
    int n_sparse;
    /* If gradients are placed at devices of other tasks (strata_trainer.take): exchange k gives elements [begin, end) of the
     * gradients of the only block, as soon as the backward pass has computed them. There is then no output with them. 0
     * buckets: the gradients are outputs. */
    struct strata_gradient_bucket {
        int64_t begin, end;
    } buckets[STRATA_MOST_BUCKETS];
    int n_buckets;
} strata_gradient_layout;

/* A compiled step for one batch size. The model owns it until the model is destroyed. */
typedef struct strata_model_program {
    strata_program_kind kind;
    /* The number of examples of this worker's replicas. 0: the kind is APPLY, or all examples belong to other workers. */
    int64_t batch;
    strata_batch_form form;
    strata_group *group;
    int n_parts;
    strata_program_part *parts;
    /* [n_parts] Until it is compiled: the graphs of its parts. */
    struct strata_step *steps;
    /* [n_parts] Whether the part has examples. For the kind APPLY, fit sets whether the part had examples in an accumulated
     * batch. For the kind AVERAGE: true. */
    bool *contributes;
    /* The examples of one step were divided (divide.c), so that random numbers are counted from the first example of this
     * worker's replicas, not of the part. */
    bool divided;
    /* How long its comparison with references took, before its first run. */
    double compared_seconds;
    /* Only for the kind GRADIENTS; in the memory of the graph. */
    strata_gradient_layout layout;
    strata_graph *graph;
    struct strata_model_program *next;
} strata_model_program;

enum { STRATA_WHOLE_MODEL = -1 };

/* What a step's graph is built for. */
typedef struct strata_step_options {
    /* The replica whose variables it reads and changes; STRATA_WHOLE_MODEL: those that stand for all devices' variables. */
    int replica;
    int64_t batch;
    strata_batch_form form;
    /* It is divided among several devices (divide.c): all_reduces say where values must be complete, and numbers of which each
     * device has its own are inputs. */
    bool divided;
    /* Several devices have examples. */
    bool has_replicas;
    /* [calls of layers] Receives the cost of each; NULL: not needed. */
    strata_layer_cost *layers;
} strata_step_options;

/* A step's graph. Everything in it lives until strata_graph_destroy(graph). */
typedef struct strata_step {
    strata_graph *graph;
    /* [parameters.n_blocks] The reads of the parameters. */
    strata_tensor **blocks;
    /* [n_outputs] For the kind GRADIENTS, as described at strata_gradient_layout. Else the sums or predictions, if there are
     * any, and `scores`. In training with a loss scale the sums have one more number: 0 if the gradients were finite. */
    strata_tensor **outputs;
    int n_outputs;
    /* Except for the kind GRADIENTS: what exact metrics need of each example (strata_model_metric_scores); NULL: nothing. */
    strata_tensor *scores;
    strata_gradient_layout layout;
    strata_tensor **updates;
    int n_updates, most_updates;
} strata_step;

/* The epoch with the best validation loss, in the current fit or in the checkpoint from which it continues. */
typedef struct strata_model_best {
    /* Its number, counted from 1; 0: there is no best epoch yet. */
    int64_t epochs;
    double loss;
    /* (all_size) A copy of the parameters and states after that epoch; NULL: there is no copy. */
    float *values;
} strata_model_best;

/* The position in an epoch at which a fit was stopped or a checkpoint was written. */
typedef struct strata_model_position {
    /* How many steps of the epoch were done; 0: the position is between two epochs. */
    int64_t steps;
    int64_t examples;
    /* How many workers read separate batches (strata_auto_shard other than DATA); 0: all read the same batches. */
    int64_t readers;
} strata_model_position;

struct strata_model {
    /* The inputs and the outputs. A sequential model has one of each. */
    strata_input_spec inputs[STRATA_MAX_INPUTS];
    strata_output_spec outputs[STRATA_MAX_OUTPUTS];
    int n_inputs, n_outputs;
    /* True: inputs, calls of layers and outputs were defined one by one. False: the model is sequential. */
    bool functional;
    /* [n_values] The values in the order of computation. For a sequential model they are created when the layers are
     * declared. */
    strata_value **values;
    int n_values;
    /* The program's own layers, losses, metrics and activations; NULL: none. */
    strata_registry *registry;
    /* The kind of the model's data, for the command, for example "mnist". */
    char *label;

    strata_layer_list list;
    /* Used while layers are added. */
    struct {
        /* The open branches, the outermost first. Each belongs to the last layer of its list. */
        int open[STRATA_MAX_NESTING], n_open;
        strata_error error;
    } building;

    /* Texts that are saved in the model's file. */
    struct {
        struct strata_model_note {
            /* The key in the file's metadata, for example "strata.tokenizer". */
            char *key, *text;
        } * items;
        int n;
    } notes;
    /* The description of the training (agree.h) of the last fit, and of the checkpoint that was loaded, until a fit has
     * begun. NULL: there is none, or it was not needed yet. */
    char *training, *continued;
    /* What the fit that runs trains with; borrowed from it. NULL: no fit runs. */
    struct {
        const strata_dataset *dataset;
        const strata_fit_options *opts;
    } fitted;

    /* The optimizer; its name is NULL until JSON or compile names it. */
    strata_optimizer optimizer;
    const strata_optimizer_kind *optimizer_kind;
    /* The seed of initial parameters and of dropout. */
    uint64_t seed;
    /* The type of activations and gradients: f32, f16 or bf16. */
    strata_dtype precision;
    /* Which layers gradients compute again: as in the options of compile (NULL: none); and for "auto" how many bytes a device's
     * part of a program may need (0: layers are named). */
    struct {
        char *text;
        int64_t most_bytes;
    } recompute;

    strata_parameter_set parameters;
    /* [parameters.n_blocks] The positions of the parameters in each block; created when the model is compiled. */
    strata_segments *segments;
    strata_shards shards;
    /* (flat_size + state_size) The parameters and states that were loaded from a file, until the model is compiled; NULL: none.
     * */
    float *loaded;

    /* The strategy whose devices the model is on; NULL until compile or build. */
    strata_strategy *strategy;
    /* The model's entry in the list of objects that the strategy destroys. */
    strata_owned owned;
    /* The strategy of a model that is compiled for a device, and that device. */
    struct {
        strata_strategy strategy;
        strata_device *device;
    } own;
    /* The model was compiled, so it has an optimizer and a loss; else it was only built. */
    bool trains;
    /* [strategy->n_devices] The model on each device. */
    strata_model_replica *replicas;
    /* What stands for these variables in a graph that is written for all devices: they have the shapes of the whole values,
     * and no memory. */
    strata_model_replica whole;
    /* Under a mesh: [parameters.n_blocks] which part of each block, its gradient and its slots each device has. NULL: every
     * device has all of it. */
    strata_zero_placements *placements;
    /* Of a pipeline: [stages] how long the schedules of the last fit ran on the devices of each stage, and how long these
     * waited meanwhile, in seconds. NULL: no fit has begun. */
    struct strata_stage_times {
        double all, waited;
    } * stages;
    /* Memory of `whole`, `placements` and `stages`. */
    strata_memory memory;
    /* Replicas with parameters of their own have made updates since the last average. */
    bool apart;
    /* What they had when a fit was stopped within an epoch, before its last average, so that it can go on as if it had not been
     * stopped (strata_model_gather_own); NULL: nothing. */
    float *interrupted;
    /* The parameters as variables for custom loops: [parameters.n_blocks], and their addresses. The copies of a variable are
     * the replicas' `flat`. */
    struct {
        strata_distributed_variable *variables, **list;
    } custom;

    struct {
        strata_model_metric extra[STRATA_MAX_METRICS];
        int n_extra;
        /* [n_sums] The sums of the newest evaluation or epoch, in host memory. */
        int64_t n_sums;
        double *sums;
    } metrics;
    int64_t optimizer_steps;
    struct {
        /* The rate that strata_model_set_learning_rate has set, instead of the schedule's; below 0: the schedule's is used. */
        double own;
        /* Steps with the current rate are already submitted, so it cannot be set now. */
        bool locked;
    } rate;
    struct {
        /* f16 gradients are multiplied by this until the update; 0 for other types. */
        double value;
        /* The number of steps since it was changed. */
        int64_t steps;
    } scale;
    strata_model_best best;
    struct {
        strata_callback items[STRATA_MAX_CALLBACKS];
        int n;
    } callbacks;
    /* strata_model_set_poll, and when it was called last, in seconds. */
    struct {
        strata_poll_callback call;
        void *user;
        double last;
    } poll;
    bool fitting;
    /* If it is not 0, the devices contain the sums of the steps of the epoch that were done. */
    strata_model_position position;
    /* The output of a step has an additional number: the sum of the squares of its gradients. */
    bool measures_norm;
    strata_model_program *programs;
    /* The communication of programs that were destroyed. */
    strata_group_totals communicated;
};

STRATA_OWNER(strata_model)
void strata_model_free_notes(strata_model *model);
/* The variables of a replica of this worker, or those that stand for all. */
static inline const strata_model_replica *strata_model_replica_of(const strata_model *model, int replica) {
    return replica == STRATA_WHOLE_MODEL ? &model->whole : &model->replicas[replica];
}
/* strata_model_all_size: the number of elements of both ranges, the parameters followed by the states.
 * strata_model_place: the index of a parameter's first element among them. */
int64_t strata_model_all_size(const strata_model *model);
int64_t strata_model_place(const strata_model *model, const strata_parameter_spec *parameter);
/* Reads all parameters and states from the devices: of replicas that are apart, the mean over those of this worker. values:
 * (all_size). */
STRATA_MUST_USE strata_status strata_model_read_all(strata_model *model, float *values, strata_error *err);
/* Under a mesh of several workers, all of which call it: reads a slot of the optimizer from the devices that have parts of it.
 * values: (flat_size). */
STRATA_MUST_USE strata_status strata_model_read_slot_parts(const strata_model *model, int slot, float *values,
                                                           strata_error *err);
/* Fails with UNSUPPORTED during a fit under a mesh of several workers, where `call` would wait for the others. */
STRATA_MUST_USE strata_status strata_model_check_idle(const strata_model *model, const char *call, strata_error *err);
STRATA_MUST_USE strata_status strata_model_write_all(strata_model *model, const float *values, strata_error *err);
/* What a device has: parameters followed by states, (all_size); or, (flat_size), the shard that it updates, or a slot 0, 1. */
enum { STRATA_VALUES_ALL = -2, STRATA_VALUES_SHARD = -1 };
/* Reads or sets what a device of this worker has of these values, from or to their places. */
STRATA_MUST_USE strata_status strata_model_copy(const strata_model *model, int replica, int what, bool set, float *values,
                                                strata_error *err);

/* Of replicas with parameters of their own (strata_strategy_has_own). strata_model_own_size: the number of elements of a
 * replica's values: parameters, states, slots, the epoch's sums and the loss scale. strata_model_gather_own returns those of
 * all replicas of all workers, (replicas, size), which the caller frees; every worker must call it. strata_model_write_own sets
 * them. */
int64_t strata_model_own_size(const strata_model *model);
STRATA_MUST_USE strata_status strata_model_gather_own(strata_model *model, float **out_values, strata_error *err);
STRATA_MUST_USE strata_status strata_model_write_own(strata_model *model, const float *values, strata_error *err);
void strata_model_forget_interrupted(strata_model *model);

/* step.c: builds the graph of a step. The caller destroys step->graph. */
STRATA_MUST_USE strata_status strata_step_build(strata_step *step, strata_model *model, strata_program_kind kind,
                                                const strata_step_options *opts, strata_error *err);
/* Whether every device needs the gradients of all parameters: to compute their norm, to check whether all are finite, or
 * because they are sent in a smaller dtype, which only all_reduce supports. */
bool strata_step_needs_all_gradients(const strata_model *model);
/* The buckets in which a step gives gradients away, in the order in which it computes them. Returns 0 if they are too small, or
 * are not those of one block without sparse parameters. */
int strata_model_list_buckets(const strata_model *model, struct strata_gradient_bucket out_buckets[STRATA_MOST_BUCKETS]);

/* divide.c: builds the steps of a program, whose kind, batch, form and parts are set, and sets `divided`. layers: as in
 * strata_step_options, of the examples of all parts. */
STRATA_MUST_USE strata_status strata_model_divide(strata_model *model, strata_model_program *program, strata_layer_cost *layers,
                                                  strata_error *err);

struct strata_partition;
/* The same without the steps of the parts: the whole step, whose graph the caller destroys, and how it is divided. */
STRATA_MUST_USE strata_status strata_model_partition(strata_model *model, const strata_model_program *program,
                                                     strata_step *out_step, struct strata_partition **out_partition,
                                                     strata_error *err);

/* programs.c: returns the program for this many examples on this worker's replicas, which is compiled at its first use. batch
 * 0: other workers have the whole batch. */
STRATA_MUST_USE strata_status strata_model_get_program(strata_model *model, strata_program_kind kind, int64_t batch,
                                                       strata_batch_form form, strata_model_program **out_program,
                                                       strata_error *err);
/* Builds the graph of a replica's step of that program without compiling it. The caller destroys step->graph. layers: receives
 * the cost of each call of a layer; NULL: not needed. */
STRATA_MUST_USE strata_status strata_model_build_step(strata_model *model, strata_program_kind kind, int64_t batch, int replica,
                                                      strata_layer_cost *layers, strata_step *out_step, strata_error *err);
void strata_program_find_inputs(const strata_model *model, strata_program_part *part);
/* Returns the memory of a part's inputs, [n_inputs], and labels, [n_outputs], in a slot. The memory of an input that no node of
 * the program uses is NULL. */
void strata_model_slots(const strata_model *model, const strata_program_part *part, int slot, void **out_inputs,
                        void **out_labels);
/* Checks that the program for this batch size fits in the devices' free memory. Fails: OUT_OF_MEMORY, with the needed and free
 * bytes and a batch size that fits. */
STRATA_MUST_USE strata_status strata_model_check_batch(strata_model *model, strata_program_kind kind, int64_t batch,
                                                       strata_error *err);
void strata_model_free_programs(strata_model *model);
void strata_model_count(const strata_model *model, const strata_model_program *program, strata_group_totals *totals);

/* compile.c */
/* Creates a slot of an optimizer with its initial values. */
STRATA_MUST_USE strata_status strata_optimizer_make_slot(const strata_optimizer_kind *kind, const strata_optimizer *settings,
                                                         int slot, strata_device *device, strata_shape shape,
                                                         strata_variable **out_slot, strata_error *err);
/* The number of slots of the model's optimizer; 0: the model was only built. */
int strata_model_n_slots(const strata_model *model);
int strata_model_root(const strata_model *model);
/* In how many micro-batches a step computes each batch. */
static inline int strata_model_n_microbatches(const strata_model *model) {
    return model->strategy->microbatches > 1 ? model->strategy->microbatches : 1;
}
/* The number of batches or micro-batches whose gradients are accumulated for an update. */
int64_t strata_model_accumulates(const strata_model *model);
/* Chooses how the parameters are divided among the devices of the strategy, and makes model->whole. */
STRATA_MUST_USE strata_status strata_model_make_whole(strata_model *model, strata_error *err);
void strata_model_free_variables(strata_model *model);

/* evaluate.c: computes the sums of the current batch of `batches`, which has n examples, for a model on a single device.
 * out_sums: (n_sums). */
STRATA_MUST_USE strata_status strata_model_evaluate_batch(strata_model *model, const strata_dataset *dataset,
                                                          const strata_model_feed *feed, strata_batches *batches, int64_t n,
                                                          float *out_sums, strata_error *err);
/* Calls the function of strata_model_set_poll about 20 times a second. */
STRATA_MUST_USE strata_status strata_model_poll(strata_model *model, strata_error *err);

/* callbacks.c: calls the callbacks. event is a strata_event. progress NULL: outside of a fit. Fails with the status of the
 * first callback that fails, and its name. */
STRATA_MUST_USE strata_status strata_callbacks_call(strata_model *model, int event, const strata_progress *progress,
                                                    strata_error *err);
/* strata_callbacks_state_bytes: the number of bytes of the callbacks' states in a checkpoint, where they are
 * concatenated. */
size_t strata_callbacks_state_bytes(const strata_model *model);

/* json.c: writes an optimizer's settings as a JSON object. */
void strata_optimizer_write(strata_json_writer *writer, const strata_optimizer *settings, const strata_optimizer_kind *kind);

/* fit.c: adds a track for each device; the devices then add what they run. *out_tracks: [devices], which the caller
 * frees, also on failure. strata_group_set_trace adds the host's slices of a program. */
STRATA_MUST_USE strata_status strata_model_trace_begin(strata_model *model, strata_trace *trace, int **out_tracks,
                                                       strata_error *err);
/* Lets the devices add to the trace; NULL: they add to no trace. Programs are compiled again, since those for a trace measure
 * times. */
STRATA_MUST_USE strata_status strata_model_trace_devices(strata_model *model, strata_trace *trace, const int *tracks,
                                                         strata_error *err);

#endif
