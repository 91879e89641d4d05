/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequential model: layers, compile, fit, evaluate, predict, save. Ten lines of a program that trains:
 *
 *     strata_device_open(NULL, NULL, &device, &err);
 *     strata_dataset_mnist("data", "train", 0, &train, &err);
 *     strata_model_create(STRATA_SHAPE(28, 28), &model, &err);
 *     strata_model_add_flatten(model, (strata_flatten_options){0});
 *     strata_model_add_dense(model, (strata_dense_options){.units = 128, .activation = "relu"});
 *     strata_model_add_dense(model, (strata_dense_options){.units = 10});
 *     strata_model_compile(model, device, &(strata_compile_options){.optimizer = strata_adam_optimizer(0)}, &err);
 *     strata_model_fit(model, train, &(strata_fit_options){.epochs = 5, .batch = 64}, NULL, &err);
 *     strata_model_evaluate(model, test, 0, &metrics, &err);
 *     strata_model_save(model, "mnist.strata", &err);
 *
 * Threads: one at a time per model. */
#ifndef STRATA_MODEL_H
#define STRATA_MODEL_H

#include "strata/device.h"
#include "strata/layers.h"
#include "strata/losses.h"
#include "strata/optimizers.h"
#include "strata/pipeline.h"
#include "strata/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* input_shape: of one element, without the batch axis. */
STRATA_API STRATA_MUST_USE strata_status strata_model_create(strata_shape input_shape, strata_model **out_model,
                                                             strata_error *err);
/* What the elements are: f32 (as created) or i32, for tokens. Before compile. In JSON: "input_dtype": "i32". */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_input_dtype(strata_model *model, strata_dtype dtype,
                                                                      strata_error *err);
STRATA_API void strata_model_destroy(strata_model *model); /* before its device is closed; NULL is fine */

/* A model from JSON text (the format: core/README.md): {"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense",
 * "units": 10}], "optimizer": {"name": "adam"}, "loss": "..."}. `source` names it in messages. Errors: DATA with the path of
 * the field. */
STRATA_API STRATA_MUST_USE strata_status strata_model_from_json(const char *text, size_t bytes, const char *source,
                                                                strata_model **out_model, strata_error *err);
/* The same from a file. */
STRATA_API STRATA_MUST_USE strata_status strata_model_read_json(const char *path, strata_model **out_model, strata_error *err);
/* The model as such JSON, compact; caller frees with free(). */
STRATA_API STRATA_MUST_USE strata_status strata_model_to_json(const strata_model *model, char **out_text, strata_error *err);

STRATA_API strata_shape strata_model_input_shape(const strata_model *model); /* of one element */
STRATA_API strata_dtype strata_model_input_dtype(const strata_model *model);
/* Tokens that an embedding takes as the model's input are 0 .. n - 1; 0: there is no such layer, or the model is neither
 * compiled nor from JSON or a file. */
STRATA_API int64_t strata_model_n_tokens(const strata_model *model);
/* As the model's JSON or compile said; name NULL: not said yet. */
STRATA_API strata_optimizer strata_model_optimizer(const strata_model *model);

/* A text of the user's own that is saved with the model and read back with it (the sample's name, say); "" at first. */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_label(strata_model *model, const char *label, strata_error *err);
STRATA_API const char *strata_model_label(const strata_model *model);

/* Texts by key that are saved with the model and read back with it, in the file's metadata under "strata.<key>": "tokenizer" is
 * strata_model_set_tokenizer's (strata/tokenizer.h), "precision" strata_model_compile's, "model" the model's own. NULL takes a
 * text away. Fails: INVALID for a key that is not lower-case letters and '_', or is "model". */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_note(strata_model *model, const char *key, const char *text,
                                                               strata_error *err);
/* NULL: there is none. Lives until it is set again. */
STRATA_API const char *strata_model_note(const strata_model *model, const char *key);

typedef struct strata_compile_options {
    strata_optimizer optimizer; /* name NULL: what the model's JSON said, else adam */
    const char *loss; /* NULL: what the model's JSON said, else "sparse_categorical_crossentropy" (integer labels, logits) */
    strata_loss_options loss_options; /* of that loss; zeros: its defaults */
    /* Besides loss and accuracy, "auc,precision"; NULL: what the model's JSON said. Names: top_5_accuracy (any number),
     * precision and recall (of "yes", or the mean over classes), auc (Keras' 200 thresholds), confusion_matrix, mae. They add
     * up on the device; each costs some kernels a step. */
    const char *metrics;
    uint64_t seed; /* of initial parameters and dropout */
    /* What activations, and parameters where they are used, are stored in: f32 (which is 0), f16 or bf16. Parameters, optimizer
     * slots, statistics, losses and metrics stay f32, as does every addition. f16 and bf16 become the model's note "precision",
     * which its file
     * keeps: a loaded model is compiled as it was, where this is f32, unless the note is taken away. With f16 the loss
     * is scaled while gradients are computed: by 2^15 at first, half of it after a step whose gradients were not finite, which
     * changes nothing, and twice after 2000 steps without. UNSUPPORTED, naming the device, where one cannot store it. */
    strata_dtype precision;
    /* On which devices: borrowed, must outlive the model; the call's device is NULL then. NULL: on that device alone. */
    strata_strategy *strategy;
} strata_compile_options;

/* Binds the model to a device or a strategy (borrowed: it must outlive the model), makes parameters and optimizer slots and
 * initializes those that were not loaded. With a strategy of several replicas, batches in fit, evaluate and predict are of all
 * replicas together, each of which takes its share; results are those of one device on the same batches. Once per model. */
STRATA_API STRATA_MUST_USE strata_status strata_model_compile(strata_model *model, strata_device *device,
                                                              const strata_compile_options *opts, strata_error *err);

enum { STRATA_MAX_METRICS = 8 };
typedef struct strata_metrics {
    double loss; /* mean over the examples of their losses, times what they weigh */
    /* share of examples whose largest logit is their label; of yes-or-no outputs that are right; 0 for other losses */
    double accuracy;
    int64_t examples;
    int n; /* of the metrics that compile or JSON asked for */
    struct {
        const char *name; /* lives as long as the model */
        double value;
    } more[STRATA_MAX_METRICS];
} strata_metrics;

/* What fit's callback is told: after each step (an update: of one batch, or of as many as the optimizer accumulates) and each
 * epoch. Returning anything but STRATA_OK ends the fit with that status, after the step. */
typedef struct strata_progress {
    int epoch, epochs;      /* epoch counts from 0 */
    int64_t step, steps;    /* in this epoch; step counts finished ones; steps 0: a pipeline that does not know */
    int64_t total_step;     /* finished since the fit began */
    bool epoch_end;         /* metrics are the whole epoch's */
    double loss;            /* of the newest finished step */
    strata_metrics metrics; /* of the epoch: at epoch_end exact, before it as last read from the device (examples 0: not yet) */
    strata_metrics validation; /* at epoch_end, of the validation data; examples 0: there are none */
    double epoch_seconds;      /* since the epoch began, without validation */
    /* Set it to true, in any call, and training ends behind this epoch, fit with STRATA_OK; at epoch_end it says whether
     * patience ends it. With several workers any worker's word counts for all. */
    bool *stop;
} strata_progress;
typedef strata_status (*strata_progress_callback)(const strata_progress *progress, void *user, strata_error *err);

typedef struct strata_fit_options {
    int epochs; /* 0: 1 */
    /* this many are done already: of `epochs` those behind them are run, and are all that the history has; 0 */
    int first_epoch;
    int64_t batch; /* 0: 32 */
    uint64_t seed; /* of the shuffles */
    bool no_shuffle;
    strata_auto_shard auto_shard; /* several workers: what each reads (strata/pipeline.h) */
    /* What an example counts by its class, for losses with one class an example: its loss is multiplied by
     * class_weights[class], as by the weight that the dataset may give it (strata_dataset_set_weights) and, as Keras'
     * class_weight, not in evaluate.
     * NULL: 1 each. */
    const double *class_weights;
    int n_class_weights;
    double metrics_seconds; /* read the epoch's metrics for on_progress about this often; 0: at its end only. Each read waits
                               for the steps submitted */
    const char *
        trace; /* a file that gets the first steps as a trace: segments on each replica, exchanges on the host (Trace Event Format,
                          for chrome://tracing or ui.perfetto.dev); NULL: none */
    int64_t
        steps_per_execution; /* on_progress is called behind every so many steps of an epoch, and at its end; 0: 1. Steps are submitted one
                                    after the other without waiting anyhow, so it changes nothing else */
    /* Evaluated after each epoch in batches of `batch`; borrowed. What is trained has the same bits with it and without. With
     * several workers each evaluates all of its own, and where a loss decides it is rank 0's. NULL: none */
    const strata_dataset *validation;
    /* Of the loss on validation data (INVALID without them). It improves where it falls by more than min_delta below the best
     * so far. */
    int patience;      /* training ends, and fit is OK, when it has not improved for so many epochs; 0: it never does */
    double min_delta;  /* at least 0; 0 */
    bool restore_best; /* the model ends with the best epoch's parameters and states, not the last's: a copy on the host */
    strata_progress_callback on_progress; /* NULL: none */
    void *user;
} strata_fit_options;

/* What a fit did. Zero-initialize; free with strata_history_finish. */
typedef struct strata_history {
    int n_epochs;               /* that were run: fewer than asked for where training was ended early */
    strata_metrics *epochs;     /* [n_epochs] */
    strata_metrics *validation; /* [n_epochs], of the validation data; NULL: there are none */
    int best_epoch;             /* whose validation loss was the best, counted as strata_progress.epoch; -1: there is none */
    double *epoch_seconds;      /* [n_epochs], without validation */
    int64_t n_steps;            /* finished steps in all */
    int n_losses;
    float losses[100];         /* mean loss of each of the first steps */
    int64_t n_skipped;         /* steps that changed nothing, as their f16 gradients were not finite */
    double loss_scale;         /* of f16 gradients at the end; 0 for others */
    double first_step_seconds; /* from the call of fit to the end of its first step, kernels compiled */
} strata_history;
STRATA_API void strata_history_finish(strata_history *history);

/* Trains. out_history may be NULL. A last, shorter batch is taken as it is, and so is an epoch's last update of fewer batches
 * than the optimizer accumulates. Arrays are shuffled and batched by the options; a pipeline (strata/pipeline.h) gives its own
 * order for (seed, epoch), and its own batches where it ends in a batch stage. With several workers all call it, with the same
 * options: by default they all read the same batches and compute their rows of each, which gives the losses of one process on
 * one device. Fails: INVALID for a batch below 1, labels that do not fit, or workers that would not train the same (batch,
 * optimizer, shuffles, number of examples, layers), with both sides; OUT_OF_MEMORY with bytes wanted and free and a batch that
 * fits; DATA for a loss that is not finite, naming the step and the first tensor that is not finite (the parameters are those
 * before that step), or for f16 gradients that are not finite even unscaled; what a callback returned. */
STRATA_API STRATA_MUST_USE strata_status strata_model_fit(strata_model *model, const strata_dataset *dataset,
                                                          const strata_fit_options *opts, strata_history *out_history,
                                                          strata_error *err);
/* Where a training step of this batch (of all replicas) has its variables, its nodes and its exchanges between replicas: a line
 * each. Compiles the step's program, which fit then uses. Caller frees with free(). */
STRATA_API STRATA_MUST_USE strata_status strata_model_placement(strata_model *model, int64_t batch, char **out_text,
                                                                strata_error *err);
/* Of all training steps so far. */
STRATA_API strata_communication_totals strata_model_communication(const strata_model *model);
/* Counts (classes, classes), row the label, column the answer, of the newest evaluation or epoch of a model with the metric
 * confusion_matrix: i64, which the caller finishes. */
STRATA_API STRATA_MUST_USE strata_status strata_model_confusion_matrix(const strata_model *model, strata_array *out_counts,
                                                                       strata_error *err);
/* batch 0: 100. */
STRATA_API STRATA_MUST_USE strata_status strata_model_evaluate(strata_model *model, const strata_dataset *dataset,
                                                               int64_t batch, strata_metrics *out_metrics, strata_error *err);
/* Probabilities (softmax or sigmoid of the logits as the loss takes them, else the outputs) as f32 (n, ...), which the caller
 * finishes. */
STRATA_API STRATA_MUST_USE strata_status strata_model_predict(strata_model *model, const strata_dataset *dataset, int64_t batch,
                                                              strata_array *out_predictions, strata_error *err);

/* ---- parameters, in the order of the layers: "dense/kernel", "dense/bias", ... ---- */
typedef struct strata_parameter {
    const char *name;
    strata_shape shape;
    bool state; /* not trained: what a layer keeps from step to step, as "batch_norm/moving_mean" */
} strata_parameter;
STRATA_API int strata_model_n_parameters(const strata_model *model);
STRATA_API strata_parameter strata_model_parameter(const strata_model *model, int index);
/* Copies of parameter `index` as f32; value has its number of elements. */
STRATA_API STRATA_MUST_USE strata_status strata_model_get_parameter(strata_model *model, int index, strata_array *value,
                                                                    strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_model_set_parameter(strata_model *model, int index, const strata_array *value,
                                                                    strata_error *err);
/* Whether all devices of the strategy hold the same bits of parameters and states. With several workers all call it. */
STRATA_API STRATA_MUST_USE strata_status strata_model_replicas_equal(strata_model *model, bool *out_equal, strata_error *err);
/* SHA-256 of all parameters' little-endian f32 bytes, in the order of their names, as 64 hexadecimal digits. */
STRATA_API STRATA_MUST_USE strata_status strata_model_sha256(strata_model *model, char out_hex[65], strata_error *err);

/* A model file is safetensors: the parameters by name, the model's JSON in the metadata under "strata.model". Written to a
 * temporary file, synced, renamed, directory synced: the old file stays until the new one is whole. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save(strata_model *model, const char *path, strata_error *err);
/* Makes the model of a file; its parameters wait on the host until compile. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load(const char *path, strata_model **out_model, strata_error *err);

/* A checkpoint is a model file that also has the optimizer's memory and counts, and the best epoch so far of a fit with
 * validation data: a model that is compiled alike, and trained on from `epochs` with the same data and options (first_epoch),
 * ends with the bits of a training that was never interrupted. Between fits, or from on_progress at an epoch's end. epochs: how
 * many are done, at least 1. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path,
                                                                      strata_error *err);
/* Into a compiled model. *out_epochs is 0, and nothing is changed, where there is no such file. With several workers all call
 * it, and rank 0's file counts. Fails: DATA for a file of another model, optimizer, loss or seed; UNAVAILABLE for one that
 * cannot be read. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_checkpoint(strata_model *model, const char *path, int *out_epochs,
                                                                      strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
