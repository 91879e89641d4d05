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

/* Zeros are the defaults. */
typedef struct strata_compile_options {
    /* The optimizer. With the name NULL it is the one of the model's JSON, else adam. */
    strata_optimizer optimizer;
    /* The loss's name. NULL: the one of the model's JSON, else "sparse_categorical_crossentropy" (integer labels, logits). */
    const char *loss;
    /* Settings of that loss. */
    strata_loss_options loss_options;
    /* Names of metrics besides loss and accuracy, as "auc,precision"; NULL: those of the model's JSON. There are
     * top_5_accuracy (with any number), precision and recall (of the class "yes", or the mean over classes), auc (with Keras'
     * 200 thresholds), confusion_matrix and mae. Their sums are kept on the device, which costs some kernels a step. */
    const char *metrics;
    /* The seed of initial parameters and of dropout. */
    uint64_t seed;
    /* The type in which activations are stored, and parameters where layers use them: f32 (which is 0), f16 or bf16.
     * Parameters, optimizer slots, statistics, losses and metrics stay f32, and every sum is in f32. f16 and bf16 become the
     * model's note "precision", which its file keeps, so a loaded model is compiled as it was; strata_model_set_note removes
     * it. With f16 the loss is multiplied by a scale while gradients are computed: 2^15 at first. A step whose gradients are
     * not finite changes nothing and halves the scale, and 2000 steps without such a step double it. UNSUPPORTED, with the
     * device's name, where a device cannot store the type. */
    strata_dtype precision;
    /* Measure the norm of each step's gradients, for strata_progress.gradient_norm. It costs a pass over the gradients. */
    bool gradient_norm;
    /* The strategy whose devices train; the call's device is NULL then. A model that is still there when the strategy is
     * destroyed is destroyed with it. NULL: the call's device alone. */
    strata_strategy *strategy;
} strata_compile_options;

/* Leaves a layer as it is, with those inside of it: training does not change its parameters, and it works as it does outside of
 * training (batch_norm takes its running statistics). The parameters that a file gave stay; the file that is saved is as of any
 * model. Before compile. layer: its name, as "dense" or "residual/conv2d". The parameters of all frozen layers must fit what a
 * device binds in one piece. Fails: INVALID for a name that no layer has (with the nearest), a compiled model, or when no layer
 * with parameters is left to train. */
STRATA_API STRATA_MUST_USE strata_status strata_model_freeze(strata_model *model, const char *layer, strata_error *err);

/* Binds the model to a device (borrowed: it must outlive the model) or a strategy, makes parameters and optimizer slots and
 * initializes those that were not loaded. With a strategy of several replicas, batches in fit, evaluate and predict are of all
 * replicas together, each of which takes its share; results are those of one device on the same batches. Once per model. */
STRATA_API STRATA_MUST_USE strata_status strata_model_compile(strata_model *model, strata_device *device,
                                                              const strata_compile_options *opts, strata_error *err);
/* As compile, for training loops of one's own (strata/distribute.h): puts the parameters and states on the devices, without an
 * optimizer, a loss and metrics. What the options say of these is not looked at. The model can be applied, saved, and its
 * parameters read and set; fit, evaluate, predict and checkpoints need compile, and fail with INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_model_build(strata_model *model, strata_device *device,
                                                            const strata_compile_options *opts, strata_error *err);

enum { STRATA_MAX_METRICS = 8 };
typedef struct strata_metrics {
    /* The mean of the examples' losses, each times the example's weight. */
    double loss;
    /* The share of examples whose largest logit is that of their label, or whose yes-or-no output is right; 0 for losses that
     * do not classify. */
    double accuracy;
    /* How many examples were measured. */
    int64_t examples;
    /* The metrics that compile or the JSON asked for: [n]. A name lives as long as the model. */
    int n;
    struct {
        const char *name;
        double value;
    } more[STRATA_MAX_METRICS];
} strata_metrics;

/* What fit passes to its callback after each step and each epoch. A step is an update: of one batch, or of as many batches as
 * the optimizer accumulates. A callback that returns anything but STRATA_OK ends the fit with that status, after the step. */
typedef struct strata_progress {
    /* The epoch that runs, counted from 0, and how many there are. */
    int epoch, epochs;
    /* Finished steps of this epoch, and how many it has; 0 steps: a pipeline does not know how many batches it has. */
    int64_t step, steps;
    /* Finished steps since the fit began. */
    int64_t total_step;
    /* The epoch is over: `metrics` are those of all of it. */
    bool epoch_end;
    /* The mean loss of the newest finished step. */
    double loss;
    /* The learning rate of that step, as the schedule says. */
    double learning_rate;
    /* The norm of that step's gradients, before clipping; 0 without strata_compile_options.gradient_norm. */
    double gradient_norm;
    /* The epoch's metrics: exact at epoch_end, before it those of the finished steps, brought up to date as
     * strata_fit_options.metrics_seconds says (examples 0: not yet). */
    strata_metrics metrics;
    /* At epoch_end, the metrics of the validation data; examples 0: there are none. */
    strata_metrics validation;
    /* Seconds since the epoch began, without validation. */
    double epoch_seconds;
    /* Set it to true, in any call, and training ends after this epoch; fit then returns STRATA_OK. At epoch_end it is true
     * where patience ends the training. With several workers one that sets it ends the training of all. */
    bool *stop;
    /* Set it to true, in any call, and training ends within this epoch, as soon as the steps that were submitted are done. Fit
     * then returns STRATA_OK with strata_history.stopped, and a checkpoint that is saved now goes on from there. Several
     * workers end before the same step, within about a quarter of a second or a step. */
    bool *stop_now;
} strata_progress;
typedef strata_status (*strata_progress_callback)(const strata_progress *progress, void *user, strata_error *err);

/* Zeros are the defaults. */
typedef struct strata_fit_options {
    /* How many epochs; 0: 1. */
    int epochs;
    /* How many of these were done before, by another fit: the rest is run, and the history has the rest only. */
    int first_epoch;
    /* How many steps of the next epoch were done before too: strata_model_epoch_steps, or 0 for none. The epoch's metrics are
     * those of all its steps. Fails with INVALID for another number. */
    int64_t first_step;
    /* Examples of a batch, of all replicas together; 0: 32. */
    int64_t batch;
    /* How many steps an epoch has at most: the rest of its data is left out. 0: as many as the data have. */
    int64_t steps_per_epoch;
    /* The seed of the shuffles. */
    uint64_t seed;
    /* Take the examples in their order. */
    bool no_shuffle;
    /* With several workers: which examples each of them reads (strata/pipeline.h). */
    strata_auto_shard auto_shard;
    /* [n_class_weights] What an example's loss is multiplied by, by its class; for losses with one class an example. As Keras'
     * class_weight it multiplies the weight that the dataset may give the example (strata_dataset_set_weights), and evaluate
     * does not use it. NULL: 1 each. */
    const double *class_weights;
    int n_class_weights;
    /* Bring strata_progress.metrics up to date about this often, from the sums that each step reports anyway: nothing waits
     * for the device. 0: at the end of the epoch only. */
    double metrics_seconds;
    /* A file that gets a trace of the first steps: each kernel on each device by the device's clock where it has one,
     * exchanges and other work on the host, in the Trace Event Format of ui.perfetto.dev and chrome://tracing. Programs are
     * compiled anew for it. With several workers all give one or none, and rank 0's has the events of all. NULL: none. */
    const char *trace;
    /* Call on_progress after every so many steps of an epoch, and at its end; 0: 1. Devices that take several runs in one call
     * (cores of a TPU, where no exchange needs the host) get so many steps at once, at most 128, and the host fills the next
     * ones while they are at these, for which programs have twice as many slots of input and output memory. What is trained
     * has the same bits. */
    int64_t steps_per_execution;
    /* Evaluated after each epoch in batches of `batch`; borrowed. The bits of what is trained are the same with it and without.
     * Each of several workers evaluates all of it, and where a loss decides something it is rank 0's. NULL: none. */
    const strata_dataset *validation;
    /* Training ends, and fit returns STRATA_OK, when the validation loss has not fallen by more than min_delta below its best
     * value for so many epochs. 0: it does not. INVALID without validation data. */
    int patience;
    /* At least 0. */
    double min_delta;
    /* At the end the model gets the parameters and states of the epoch with the best validation loss, of which a copy is
     * kept on the host. INVALID without validation data. */
    bool restore_best;
    /* NULL: none. */
    strata_progress_callback on_progress;
    void *user;
} strata_fit_options;

/* What a fit did. Zero-initialize; free with strata_history_finish. */
typedef struct strata_history {
    /* Epochs that were run: fewer than asked for where training ended early. */
    int n_epochs;
    /* [n_epochs] The metrics of each epoch, and those of the validation data after it (NULL: there are none). */
    strata_metrics *epochs;
    strata_metrics *validation;
    /* The epoch with the best validation loss, counted as strata_progress.epoch; -1: there are no validation data. */
    int best_epoch;
    /* [n_epochs] Seconds of each epoch, without validation. */
    double *epoch_seconds;
    /* Finished steps of all epochs. */
    int64_t n_steps;
    /* [n_losses] The mean loss of each of the first steps. */
    int n_losses;
    float losses[100];
    /* Steps that changed nothing, because their f16 gradients were not finite. */
    int64_t n_skipped;
    /* What f16 gradients are multiplied by at the end; 0 for other types. */
    double loss_scale;
    /* Training was ended within an epoch by strata_progress.stop_now: that epoch is not among n_epochs, and
     * strata_model_epoch_steps has its steps. */
    bool stopped;
    /* Seconds from the call of fit to the end of its first step, with the compilation of kernels. */
    double first_step_seconds;
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
    /* Not trained: what a layer keeps from step to step, as "batch_norm/moving_mean". */
    bool state;
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
 * ends with the bits of a training that was never interrupted. Between fits, or from on_progress at an epoch's end. After a fit
 * that was stopped within an epoch the checkpoint has the steps of that epoch too. epochs: how many are done, at least 1 where
 * no such steps are. path: NULL writes no file. With several workers whose optimizer is sharded all of them call it, as
 * each owns a part of the optimizer's memory; those that need no file give NULL. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path,
                                                                      strata_error *err);
/* How many steps of an epoch the model has done: of the last fit, if it was stopped within an epoch, or of the checkpoint that
 * was loaded. 0: the model stands between epochs. Fit takes it as first_step. */
STRATA_API int64_t strata_model_epoch_steps(const strata_model *model);
/* Into a compiled model. *out_epochs is 0, and nothing is changed, where there is no such file. With several workers all call
 * it, and rank 0's file counts. Fails: DATA for a file of another model, optimizer, loss or seed; UNAVAILABLE for one that
 * cannot be read. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_checkpoint(strata_model *model, const char *path, int *out_epochs,
                                                                      strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
