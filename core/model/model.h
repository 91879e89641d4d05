/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the model. Users see strata/model.h. Reading order: model.c (a list of layers), layers.c (their parameters, their
 * graph), compile.c (variables on each device of the strategy), step.c (the graphs of a training, an evaluation and a
 * prediction step), programs.c (their executables), fit.c, validation.c, agree.c, evaluate.c, summary.c, times.c, json.c,
 * file.c.
 *
 * All parameters lie in one flat f32 variable, each at an offset that is a multiple of STRATA_PARAMETER_ALIGNMENT elements; so
 * do gradients and optimizer slots, and one kernel updates all. */
#ifndef STRATA_CORE_MODEL_H
#define STRATA_CORE_MODEL_H

#include "core/data/format/safetensors.h"
#include "core/layer/context.h"
#include "core/loss/loss.h"
#include "core/metric/metric.h"
#include "core/optimizer/optimizer.h"
#include "core/run/group.h"
#include "core/run/strategy.h"
#include "strata/model.h"

enum { STRATA_MAX_BUCKETS = 8, STRATA_MAX_STEP_UPDATES = STRATA_MAX_BUCKETS + 8 };

_Static_assert(STRATA_PARAMETER_ALIGNMENT % STRATA_SEGMENT_CHUNK == 0, "a chunk belongs to one parameter");

/* A metric besides loss and accuracy. */
typedef struct strata_model_metric {
    char name[32];
    const strata_metric_kind *kind;
    strata_metric_case c;
    int64_t first; /* of its words among the sums */
} strata_model_metric;

typedef enum strata_program_kind {
    STRATA_PROGRAM_TRAIN,      /* a batch and its update */
    STRATA_PROGRAM_ACCUMULATE, /* a batch, whose gradients, sums and new states are added to those that the replica holds */
    STRATA_PROGRAM_APPLY,      /* the update from what replicas hold; its batch is 0 */
    STRATA_PROGRAM_EVALUATE,
    STRATA_PROGRAM_PREDICT
} strata_program_kind;

/* What a replica holds from one batch to the next while gradients are accumulated. */
typedef enum strata_held { STRATA_HELD_GRADIENTS, STRATA_HELD_SUMS, STRATA_HELD_STATES, STRATA_N_HELD } strata_held;

/* The model on one device of its strategy. */
typedef struct strata_model_replica {
    strata_device *device;
    strata_variable *flat;
    strata_variable *state; /* NULL: no layer has any */
    /* On the devices that update: */
    strata_variable *slots[STRATA_MAX_OPTIMIZER_SLOTS];
    strata_variable
        *metrics; /* f32 (n_sums): sum of losses, number of right answers, words of `extra`, since the epoch began */
    /* On those that compute, when gradients are accumulated: */
    strata_variable *held[STRATA_N_HELD]; /* f32; of states NULL: there are none */
    int64_t n_held;                       /* batches in them of which it had a share */
} strata_model_replica;

/* A replica's part of a program: examples [first, first + n) of the batch. Where n is 0, the executable is for one example,
 * which counts nothing. */
typedef struct strata_program_part {
    strata_executable *executable; /* the group's */
    int64_t first, n;
    int x, y, weights, example_weights, step, rng; /* input indices; -1: the program has none */
} strata_program_part;

/* How a program gets its batches. */
typedef struct strata_batch_form {
    bool weighted;    /* examples have weights */
    float byte_scale; /* x comes as u8, to be multiplied by it; 0: as the model takes it */
} strata_batch_form;

/* One compiled step for one batch size, kept until the model goes. */
typedef struct strata_model_program {
    strata_program_kind kind;
    int64_t batch; /* of this worker's replicas; 0: of the kind APPLY, or others have all of it */
    strata_batch_form form;
    strata_group *group;
    int n_parts;
    strata_program_part *parts;
    /* [n_parts] whether it has examples; of the kind APPLY, whether it had some of what is held: fit says it */
    bool *contributes;
    struct strata_model_program *next;
} strata_model_program;

/* What a device does in a step. */
typedef struct strata_step_role {
    int replica;   /* the device, whose variables it uses */
    int64_t batch; /* examples; 0: it computes nothing */
    strata_batch_form form;
    bool idle;         /* they count nothing: only what layers exchange needs them */
    bool updates;      /* parameters, slots, states, the epoch's sums; else it receives parameters and states, */
    bool receives;     /* if so */
    bool gives_new;    /* parameters and states, to those that receive them */
    bool exchanges;    /* there are other replicas */
    bool has_replicas; /* others have parts of the batch that trains */
} strata_step_role;

/* A step's graph, until strata_graph_destroy(graph). */
typedef struct strata_step {
    strata_graph *graph;
    strata_tensor *flat;   /* the parameters' read */
    strata_tensor *output; /* of training, where gradients are scaled: one more number, 0 if they were finite */
    strata_tensor *updates[STRATA_MAX_STEP_UPDATES];
    int n_updates;
} strata_step;

/* The epoch whose validation loss was the best, of the fit that runs or of a checkpoint that it will go on from. */
typedef struct strata_model_best {
    int64_t epochs; /* done when it was; 0: there is none */
    double loss;
    float *values; /* (all_size) parameters and states then; NULL: they are not kept */
} strata_model_best;

struct strata_model {
    strata_shape input;
    strata_dtype input_dtype;
    int64_t n_tokens; /* integer inputs are below it; 0: no layer says. Known once the layers are declared */
    strata_layer_list list;
    int open[STRATA_MAX_NESTING], n_open; /* branches being filled, outermost first, each of the last layer of its list */
    strata_status status;                 /* of the first error while layers were added */
    strata_error error;
    char *label;
    struct strata_model_note {
        char *key, *text; /* key as in the file's metadata, "strata.tokenizer" */
    } * notes;
    int n_notes;
    strata_optimizer optimizer; /* name NULL: not said yet */
    const strata_optimizer_kind *optimizer_kind;
    const strata_loss *loss; /* NULL: not said yet */
    strata_loss_options loss_options;

    strata_parameter_set parameters;
    int32_t *segment_ends, *segment_owner; /* behind `segments`; made at compile */
    strata_segments segments;
    strata_shape output; /* of one example; known once the layers are declared */
    float *loaded;       /* (flat_size + state_size) from a file, until compile; NULL: none */

    strata_strategy *strategy;      /* NULL until compile */
    strata_strategy alone;          /* that of a model without one */
    strata_device *only;            /* its device */
    strata_model_replica *replicas; /* [strategy->n_devices] */
    uint64_t seed;
    char *metric_names; /* "auc,precision", as JSON or compile said; NULL: none */
    strata_model_metric extra[STRATA_MAX_METRICS];
    int n_extra;
    int64_t n_sums;
    double *sums;            /* [n_sums] of the newest evaluation or epoch, on the host */
    int64_t optimizer_steps; /* updates so far */
    strata_dtype precision;  /* of activations and gradients: f32, f16 or bf16 */
    double loss_scale;       /* what gradients are multiplied by until the update, where they are f16; 0: they are not */
    int64_t scale_steps;     /* since it changed */
    strata_model_best best;
    strata_model_program *programs;
};

/* layers.c: builds all layers; x (B, input...) -> outputs. Declares parameters when context->declaring. */
strata_tensor *strata_model_build_layers(strata_model *model, strata_layer_context *context, strata_tensor *x);
/* Makes parameters[], flat_size and output from the layers, once; reports the first error of building. */
STRATA_MUST_USE strata_status strata_model_declare(strata_model *model, strata_error *err);
void strata_model_free_parameters(strata_model *model);
/* The layer that is begun and not ended; NULL: none. */
const strata_layer *strata_model_open_layer(const strata_model *model);
/* Elements of the gradients that replicas exchange and hold: of the flat range, and of each sparse parameter's row how often
 * batches use it. */
int64_t strata_model_gradient_size(const strata_model *model);
/* Elements of both ranges, the states behind the parameters; and a parameter's first element in them. */
int64_t strata_model_all_size(const strata_model *model);
int64_t strata_model_place(const strata_model *model, const strata_parameter_spec *parameter);
/* All parameters and states as they are on the device. values: (all_size). */
STRATA_MUST_USE strata_status strata_model_read_all(strata_model *model, float *values, strata_error *err);
/* And back, to every device. */
STRATA_MUST_USE strata_status strata_model_write_all(strata_model *model, const float *values, strata_error *err);
/* Layers added from now on go into this branch of the layer that was added last; until close. The model keeps the first
 * error. */
void strata_model_open_branch(strata_model *model, int branch);
void strata_model_close_branch(strata_model *model);
/* Adds a layer with a copy of its options; the model keeps the first error. */
void strata_model_add(strata_model *model, const strata_layer_kind *kind, const void *options);

/* step.c: the graph of a step; layers: [n_layers], filled with what each costs; NULL: not asked for. */
STRATA_MUST_USE strata_status strata_step_build(strata_step *step, strata_model *model, strata_program_kind kind,
                                                strata_step_role role, strata_layer_cost *layers, strata_error *err);

/* programs.c: the program for this many examples on this worker's replicas, compiled at first use; 0: others have all of the
 * batch. */
STRATA_MUST_USE strata_status strata_model_get_program(strata_model *model, strata_program_kind kind, int64_t batch,
                                                       strata_batch_form form, strata_model_program **out_program,
                                                       strata_error *err);
/* Whether the program for this batch size would fit the devices; OUT_OF_MEMORY with bytes wanted and free and a batch that
 * does. */
STRATA_MUST_USE strata_status strata_model_check_batch(strata_model *model, strata_program_kind kind, int64_t batch,
                                                       strata_error *err);
/* What the program for this batch size would cost on the first device, and each layer in it ([n_layers]; NULL: not asked
 * for). */
STRATA_MUST_USE strata_status strata_model_measure(strata_model *model, strata_program_kind kind, int64_t batch,
                                                   strata_layer_cost *out_layers, strata_program_cost *out_cost,
                                                   strata_error *err);
/* Names the first tensor of a training step on this batch that is not finite: fills err with DATA "epoch .., step ..: ..". OK:
 * all are finite. */
strata_status strata_model_diagnose(strata_model *model, const void *x, const void *y, int64_t batch, const float *step,
                                    const int32_t *rng, const char *where, strata_error *err);
/* Labels that the dataset wrote for n examples, in place, as the loss takes them: integers become f32 where it wants numbers,
 * and classes shares of each where it wants these. */
void strata_model_convert_labels(const strata_model *model, const strata_dataset *dataset, int64_t n, void *labels);
/* Weights of classes, n of them: INVALID unless the loss is one of that many classes, one an example. */
STRATA_MUST_USE strata_status strata_model_check_class_weights(const strata_model *model, const double *class_weights, int n,
                                                               strata_error *err);
/* Multiplies n examples' weights by those of their classes. labels: converted. */
void strata_model_weigh_classes(const strata_model *model, const double *class_weights, const void *labels, int64_t n,
                                float *weights);
/* Of the labels of one example, as the loss takes them, and as the dataset gives them. */
int64_t strata_model_label_size(const strata_model *model);
int64_t strata_model_given_label_size(const strata_model *model, const strata_dataset *dataset);
size_t strata_model_label_bytes(const strata_model *model);
/* Integer labels are below; 0: they are numbers. */
int64_t strata_model_n_classes(const strata_model *model);
/* metrics.c: takes the list of names over; finds what each needs, once loss and outputs are known. */
STRATA_MUST_USE strata_status strata_model_set_metrics(strata_model *model, const char *names, strata_error *err);
STRATA_MUST_USE strata_status strata_model_choose_metrics(strata_model *model, const char *list, strata_error *err);
/* A batch's words, behind loss and accuracy (2). */
strata_tensor *strata_model_metric_sums(const strata_model *model, strata_tensor *sums, strata_tensor *outputs,
                                        strata_tensor *labels);
/* From model->sums. */
strata_metrics strata_model_metrics(const strata_model *model, int64_t examples);
/* The device's sums: set to zeros, as is what replicas hold; read into model->sums. */
STRATA_MUST_USE strata_status strata_model_reset_sums(strata_model *model, strata_error *err);
STRATA_MUST_USE strata_status strata_model_read_sums(strata_model *model, strata_error *err);
void strata_model_free_programs(strata_model *model);

/* compile.c */
/* How many batches' gradients make an update. */
int64_t strata_model_accumulates(const strata_model *model);
void strata_model_free_variables(strata_model *model);

/* validation.c: fit's validation data and what their loss decides. begin checks the options and makes room, before training;
 * without validation data nothing is done but that. */
STRATA_MUST_USE strata_status strata_validation_begin(strata_model *model, const strata_fit_options *opts, strata_error *err);
/* After epoch `epoch`; *out_stop: patience is at its end. */
STRATA_MUST_USE strata_status strata_validation_run(strata_model *model, const strata_fit_options *opts, int epoch,
                                                    strata_metrics *out_metrics, bool *out_stop, strata_error *err);
/* Gives the model the best epoch's parameters, where these are asked for. */
STRATA_MUST_USE strata_status strata_validation_restore(strata_model *model, const strata_fit_options *opts, strata_error *err);
void strata_validation_forget(strata_model *model);

/* file.c */
#define STRATA_MODEL_METADATA    "strata.model"
#define STRATA_CHECKPOINT_PREFIX "checkpoint/" /* begins the names of tensors that are no parameters */
/* A model file with `extra` tensors. */
STRATA_MUST_USE strata_status strata_model_write(strata_model *model, const char *path, const strata_named_array *extra,
                                                 int n_extra, strata_error *err);
/* Parameters and states of a file, which must be those of the model. out: (all_size). */
STRATA_MUST_USE strata_status strata_model_take_parameters(const strata_model *model, const strata_safetensors *file,
                                                           float *out, strata_error *err);

/* data.c */
size_t strata_model_element_bytes(const strata_model *model); /* of one element's features in a batch */
bool strata_model_takes_bytes(const strata_model *model);     /* as its features, besides numbers */
STRATA_MUST_USE strata_status strata_model_check_compiled(const strata_model *model, const char *verb, strata_error *err);
/* Whether the dataset's elements and labels fit the model. */
STRATA_MUST_USE strata_status strata_model_check_dataset(const strata_model *model, const strata_dataset *dataset, bool labels,
                                                         const char *verb, strata_error *err);
/* Whether all workers are about to fit the same model in the same way; every worker calls it. Fails alike on all: INVALID, with
 * both sides. */
STRATA_MUST_USE strata_status strata_model_agree(const strata_model *model, const strata_dataset *dataset,
                                                 const strata_fit_options *opts, strata_error *err);

#endif
