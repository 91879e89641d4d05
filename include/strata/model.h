/* SPDX-License-Identifier: Apache-2.0
 *
 * A model: layers, compile, fit, evaluate, predict, save. Ten lines of a program that trains:
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
 * Threads: one at a time per model. Models of one device may each be used by a thread of its own, and several threads may use
 * one dataset. After a fork see include/strata/README.md. */
#ifndef STRATA_MODEL_H
#define STRATA_MODEL_H

#include "strata/device.h"
#include "strata/layers.h"
#include "strata/losses.h"
#include "strata/optimizers.h"
#include "strata/pipeline.h"
#include "strata/registry.h"
#include "strata/strategy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sequential model. input_shape: the shape of one example, without the batch axis. */
STRATA_API STRATA_MUST_USE strata_status strata_model_create(strata_shape input_shape, strata_model **out_model,
                                                             strata_error *err);
/* Sets the dtype of the input: f32, the initial value, or i32 for tokens. To be called before compile. In JSON: "input_dtype":
 * "i32". */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_input_dtype(strata_model *model, strata_dtype dtype,
                                                                      strata_error *err);
STRATA_API void strata_model_destroy(strata_model *model); /* before its device is closed; NULL is fine */

/* Sets the registry of your own layers, losses, metrics and activations that the model may use (strata/registry.h). To be
 * called before layers are added. */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_registry(strata_model *model, strata_registry *registry,
                                                                   strata_error *err);

/* ---- models with several inputs and outputs, and with layers that are called more than once ----
 *
 *     strata_model_create_functional(&model, &err);
 *     const strata_value *left = strata_model_input(model, "left", STRATA_SHAPE(4), STRATA_DTYPE_F32);
 *     const strata_value *right = strata_model_input(model, "right", STRATA_SHAPE(4), STRATA_DTYPE_F32);
 *     strata_model_add_dense(model, (strata_dense_options){.units = 8, .activation = "relu", .name = "shared"});
 *     const strata_value *sides[] = {strata_layer_call(model, "shared", &left, 1),
 *                                    strata_layer_call(model, "shared", &right, 1)};
 *     strata_model_add_concat(model, (strata_concat_options){0});
 *     const strata_value *both = strata_layer_call(model, NULL, sides, 2);
 *     strata_model_output(model, both, (strata_output_options){.name = "same", .loss = "mse"});
 *
 * A call of a layer returns a value, which other calls take as an input. Layers are added with the functions of
 * strata/layers.h, as to a sequential model, and are then called by name. A layer that is called several times has the same
 * parameters in all calls, and the gradients of all calls are added up. Inputs and targets of a dataset are matched with the
 * model's inputs and outputs by their names (strata_dataset_from_columns). Adding and calling layers does not fail by itself:
 * the model stores the first error, and strata_model_compile returns it. INVALID for shapes that do not fit, two inputs, calls,
 * layers or outputs of one name, an input that no layer takes, a layer that is not called, a value that nothing takes and that
 * is no output. The model owns the values. */
typedef struct strata_value strata_value;
STRATA_API STRATA_MUST_USE strata_status strata_model_create_functional(strata_model **out_model, strata_error *err);
/* Adds an input. shape: of one example. dtype: f32, or i32 for tokens. Returns NULL after an error; the functions below accept
 * NULL as a value. */
STRATA_API const strata_value *strata_model_input(strata_model *model, const char *name, strata_shape shape,
                                                  strata_dtype dtype);
/* Calls a layer of the model with n_inputs values. layer: its name; NULL: the layer that was added last. The returned value has
 * the layer's name; for the second call and later ones a number is appended: "shared_1". */
STRATA_API const strata_value *strata_layer_call(strata_model *model, const char *layer, const strata_value *const *inputs,
                                                 int n_inputs);
typedef struct strata_output_options {
    /* 1 to 63 characters; NULL: the value's name. */
    const char *name;
    /* As in strata_compile_options. loss NULL: the output has no loss until strata_compile_options.loss names one. */
    const char *loss;
    strata_loss_options loss_options;
    const char *metrics;
    /* The weight of this output's loss: the model's loss is the sum of weight_i loss_i over all outputs i. 0: 1;
     * STRATA_ZERO: the output is not trained. */
    double weight;
} strata_output_options;
STRATA_API void strata_model_output(strata_model *model, const strata_value *value, strata_output_options opts);

/* An input or output of the model. Outputs are known after the model was compiled, or read from JSON or a file. A sequential
 * model has one input, "x", and one output, with the name of its last layer. */
typedef struct strata_model_port {
    /* Valid as long as the model. */
    const char *name;
    /* Of one example. */
    strata_shape shape;
    strata_dtype dtype;
    /* An input: its elements are indices from 0 to n_tokens - 1; 0: they are not. */
    int64_t n_tokens;
    /* An output: "softmax" or "sigmoid" if the layers end in it; NULL: they do not. */
    const char *ending;
    /* An output: whether it has a loss, from JSON, strata_model_output or compile, and which form its labels have. */
    bool has_loss;
    strata_answers answers;
} strata_model_port;
STRATA_API int strata_model_n_inputs(const strata_model *model);
STRATA_API strata_model_port strata_model_input_port(const strata_model *model, int index);
STRATA_API int strata_model_n_outputs(const strata_model *model);
STRATA_API strata_model_port strata_model_output_port(const strata_model *model, int index);

/* Makes a model from JSON text, whose format core/README.md describes: {"input": [28, 28], "layers": [{"layer": "flatten"},
 * {"layer": "dense", "units": 10}], "optimizer": {"name": "adam"}, "loss": "..."}. `source` names it in messages. Errors: DATA
 * with the path of the field. */
STRATA_API STRATA_MUST_USE strata_status strata_model_from_json(const char *text, size_t bytes, const char *source,
                                                                strata_model **out_model, strata_error *err);
/* The same from a file. */
STRATA_API STRATA_MUST_USE strata_status strata_model_read_json(const char *path, strata_model **out_model, strata_error *err);
/* The same for models that use your own layers, losses, metrics or activations. registry NULL: none. */
STRATA_API STRATA_MUST_USE strata_status strata_model_from_json_with(strata_registry *registry, const char *text, size_t bytes,
                                                                     const char *source, strata_model **out_model,
                                                                     strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_model_read_json_with(strata_registry *registry, const char *path,
                                                                     strata_model **out_model, strata_error *err);
/* Writes the model as JSON of this format, without line breaks. The caller frees the text with free(). */
STRATA_API STRATA_MUST_USE strata_status strata_model_to_json(const strata_model *model, char **out_text, strata_error *err);

STRATA_API strata_shape strata_model_input_shape(const strata_model *model); /* of one element */
STRATA_API strata_dtype strata_model_input_dtype(const strata_model *model);
/* The number n of different tokens, 0 .. n - 1, that the embedding accepts which takes the model's input. 0: there is no such
 * layer, or the model was neither compiled nor read from JSON or a file. */
STRATA_API int64_t strata_model_n_tokens(const strata_model *model);
/* The optimizer that compile or the model's JSON set; its name is NULL before one is set. */
STRATA_API strata_optimizer strata_model_optimizer(const strata_model *model);

/* The label is a text for the user's own purposes, for example the name of a sample. It is saved and loaded with the model.
 * Initially "". */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_label(strata_model *model, const char *label, strata_error *err);
STRATA_API const char *strata_model_label(const strata_model *model);

/* Notes are texts by key that are saved and loaded with the model, in the file's metadata under "strata.<key>". Three keys are
 * in use: strata_model_set_tokenizer sets "tokenizer" (strata/tokenizer.h), strata_model_compile sets "precision", and "model"
 * is the model's JSON. text NULL removes a note.
 * Fails: INVALID for a key that is not lower-case letters and '_', or is "model" or "training". */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_note(strata_model *model, const char *key, const char *text,
                                                               strata_error *err);
/* NULL: there is none. The text is valid until the note is set again. */
STRATA_API const char *strata_model_note(const strata_model *model, const char *key);

/* Zeros are the defaults. */
typedef struct strata_compile_options {
    /* The optimizer. If its name is NULL: the optimizer of the model's JSON; adam where that has none. */
    strata_optimizer optimizer;
    /* The name of the loss, for all outputs, or a loss for each output by its name: "left=mse,right=mae". NULL: the losses of
     * the model's JSON; an only output that has none gets "binary_crossentropy" if it ends in sigmoid, else
     * "sparse_categorical_crossentropy" (integer labels). If an output ends in softmax or sigmoid and the loss is the
     * cross-entropy of this function, the function is moved into the loss (strata/losses.h). */
    const char *loss;
    /* Settings of the losses that `loss` names. */
    strata_loss_options loss_options;
    /* Names of metrics besides loss and accuracy, separated by commas: "auc,precision". NULL: the metrics of the model's JSON.
     * There are top_5_accuracy (5 stands for any number), precision and recall (of the positive class of a binary
     * classification, or the mean over the classes that are a label or an answer), auc, confusion_matrix and mae. The device
     * adds up their sums, which takes a few kernels in each step. auc is computed from all predictions, which the host stores;
     * it is NaN where all labels are equal. Under parameter_server, in strata_progress before the end of an epoch, and in an
     * epoch that continues from a checkpoint it has the 200 thresholds of Keras' AUC instead. */
    const char *metrics;
    /* The seed of the initial parameters and of dropout. */
    uint64_t seed;
    /* The type in which activations are stored, and parameters where layers use them: f32 (which is 0), f16 or bf16.
     * Parameters, optimizer slots, statistics, losses and metrics stay f32, and every sum is in f32. f16 and bf16 are saved
     * with the model as its note "precision", so that a loaded model is compiled with the same precision; strata_model_set_note
     * removes the note. With f16 the loss is multiplied by a scale while gradients are computed, initially 2^15. A step whose
     * gradients are not finite changes nothing and halves the scale, and 2000 steps without such a step double it. UNSUPPORTED,
     * with the device's name, where a device cannot store the type. */
    strata_dtype precision;
    /* Compute the norm of each step's gradients, for strata_progress.gradient_norm. This reads all gradients once more. */
    bool gradient_norm;
    /* Names of layers, separated by commas: "residual,residual_1". The values that such a layer computes on the way to its
     * output, and that the backward pass needs, are not kept in memory after the forward pass: the backward pass computes them
     * again from the layer's inputs, which takes the time of the layer's forward pass once more. The bits of all results are
     * the same. A name of a layer inside of another one is "residual/conv2d". "auto": if a program of training needs more
     * memory than a device has free, the layers that save most bytes for each operation are computed again, as many as are
     * needed; else none. "auto:BYTES" (with K, M or G for powers of 1024): a program may have so many bytes, even if more are
     * free. NULL: none. It is no part of the model and its files. INVALID for a name that no layer has (with the nearest);
     * UNSUPPORTED for "auto" with several workers that run steps together, and in strata_model_apply, since the memory of the
     * program is not known there. */
    const char *recompute;
    /* The strategy whose devices train; the argument `device` of the call must then be NULL. Destroying the strategy also
     * destroys the models that use it. NULL: the model is trained on `device` alone. */
    strata_strategy *strategy;
} strata_compile_options;

/* Freezes a layer and the layers inside of it: training does not change their parameters, and they compute what they compute in
 * predictions (batch_norm uses its moving averages). Parameters that were loaded from a file are kept. Freezing does not change
 * what is saved. To be called before compile. layer: its name, for example "dense" or "residual/conv2d". The parameters of all
 * frozen layers together must fit into the largest buffer range that a device can bind.
 * Fails: INVALID for a name that no layer has (with the nearest), a compiled model, or when no layer with parameters is left to
 * train. */
STRATA_API STRATA_MUST_USE strata_status strata_model_freeze(strata_model *model, const char *layer, strata_error *err);

/* Binds the model to a device (borrowed: it must outlive the model) or to a strategy. Creates the parameters and the
 * optimizer's slots there, and initializes those that were not loaded from a file. With a strategy of several replicas, the
 * batch of fit, evaluate and predict is the global batch: each replica computes a share of its examples, and the results are
 * those of one device with the same batches. A model is compiled once. One that was built may be compiled, on the same devices
 * or others: it keeps its parameters, and functions that use it must have been destroyed. Fails: INVALID if a loss takes logits
 * and an output is other probabilities, with a message that says what to change. */
STRATA_API STRATA_MUST_USE strata_status strata_model_compile(strata_model *model, strata_device *device,
                                                              const strata_compile_options *opts, strata_error *err);
/* Like compile, but without optimizer, loss and metrics, for predictions and your own training loops (strata/distribute.h).
 * Creates the parameters and states on the devices, and ignores the options of optimizer, loss and metrics. The model can then
 * be applied and saved, its parameters can be read and set, and it predicts. fit, evaluate and checkpoints need compile and
 * fail with INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_model_build(strata_model *model, strata_device *device,
                                                            const strata_compile_options *opts, strata_error *err);

enum { STRATA_MAX_METRICS = 24 };
typedef struct strata_metrics {
    /* The mean over the examples of weight times loss. */
    double loss;
    /* The share of examples whose largest logit is the label's, or whose binary output is right. 0 for losses that do not
     * classify, and for models with several outputs, whose losses and accuracies are in `more` ("name/loss", "name/accuracy").
     * */
    double accuracy;
    /* How many examples were measured. */
    int64_t examples;
    /* [n] The metrics that strata_compile_options or the JSON names. A name is valid as long as the model. In a model with
     * several outputs it begins with the output's name: "name/auc". */
    int n;
    struct {
        const char *name;
        double value;
    } more[STRATA_MAX_METRICS];
} strata_metrics;

/* What fit passes to on_progress after each step and each epoch. A step is one update of the parameters, with the gradients of
 * one batch or of as many batches as the optimizer accumulates. If on_progress returns anything but STRATA_OK, the fit ends
 * after the step and returns that status. */
typedef struct strata_progress {
    /* The model that is fitted. */
    strata_model *model;
    /* The current epoch, counted from 0, and the number of epochs. */
    int epoch, epochs;
    /* Finished steps of this epoch, and the number of its steps; 0 steps: the dataset is a pipeline of unknown length. */
    int64_t step, steps;
    /* Finished steps since the fit began. */
    int64_t total_step;
    /* The epoch has ended, and `metrics` are those of the whole epoch. */
    bool epoch_end;
    /* The mean loss of the newest finished step. */
    double loss;
    /* The learning rate of that step. strata_model_set_learning_rate sets the rate of later steps. */
    double learning_rate;
    /* The norm of that step's gradients, before clipping. 0 without strata_compile_options.gradient_norm, and in synchronous
     * training under parameter_server, where no task has all gradients of a step. */
    double gradient_norm;
    /* The epoch's metrics. They are exact at epoch_end. Before, they are those of the steps that had finished at the last
     * update, which strata_fit_options.metrics_seconds controls (examples 0: there was no update yet). */
    strata_metrics metrics;
    /* At epoch_end: the metrics of the validation data; examples 0: the fit has no validation data. */
    strata_metrics validation;
    /* Seconds since the epoch began, without validation, and without the comparison of new programs with references, which
     * tests the driver and is no training. The compilation of kernels counts, as in Keras. Under parameter_server workers
     * compile and compare while others train, so both count. */
    double epoch_seconds;
    /* The callback may set *stop to true in any call: training then ends after this epoch, and fit returns STRATA_OK. At
     * epoch_end *stop is already true if the option `patience` ends the training. With several workers, training ends on all of
     * them if one sets it. */
    bool *stop;
    /* The callback may set *stop_now to true in any call: training then ends within this epoch, as soon as the submitted steps
     * are done. fit returns STRATA_OK and sets strata_history.stopped; a checkpoint that is saved afterwards can be continued
     * at this step. Several workers all end before the same step, after about a quarter of a second or one step, whichever is
     * longer. */
    bool *stop_now;
} strata_progress;
typedef strata_status (*strata_progress_callback)(const strata_progress *progress, void *user, strata_error *err);

/* Checkpoints that a fit writes to a folder while it trains. The checkpoint after 120 updates is the folder
 * step-000000000120/, with manifest.json and safetensors files. After the step the state is copied, and a thread writes the
 * copy while training goes on. After a crash at any moment every checkpoint in the folder is complete. To resume:
 * strata_model_load_checkpoint loads the newest complete checkpoint of the folder; call fit with its out_epochs as first_epoch
 * and with strata_model_epoch_steps as first_step. With several workers rank 0 writes. Where the optimizer is sharded over the
 * workers, each worker writes its own part, and under parameter_server each server writes its part; under local_sgd rank 0
 * gathers and writes the values of all replicas. If they do not reach one folder, as on local disks, rank 0 or the chief
 * gathers all values and writes them alone, after one warning. With workers all or none set it. Under parameter_server a
 * checkpoint is made when the workers have finished the batches that they were computing. The fit locks the folder.
 * Fails: UNAVAILABLE where another job writes to the folder; INVALID where the folder has checkpoints of later steps than the
 * model's. */
typedef struct strata_checkpoint_options {
    /* The folder is created if it is missing. */
    const char *folder;
    /* A checkpoint is written after every `every_steps` updates and after every `every_seconds` seconds; if both are 0, after
     * each epoch. One is also written after the last epoch and when the fit is stopped. */
    int64_t every_steps;
    double every_seconds;
    /* How many checkpoints stay in the folder; older ones are deleted. 0: 3. */
    int keep;
    /* Called in the fit's own thread when a checkpoint could not be written (for example because the disk is full; training
     * goes on, and older checkpoints stay), when a damaged checkpoint was renamed, and when rank 0 writes alone. NULL: a
     * checkpoint that cannot be written ends the fit with that error. */
    void (*on_warning)(const char *text, void *user);
    void *user;
} strata_checkpoint_options;

/* No epoch, where a number of epochs that is 0 means a default. */
enum { STRATA_NO_EPOCHS = -2147483647 - 1 };
/* Interrupts long calls: while the model is fitted, evaluated or used for predictions, `poll` is called between steps and
 * batches, about 20 times a second, in the thread of the call. If it returns anything but STRATA_OK, the call ends with that
 * status; the parameters are those after the last step, and the model can be used further. NULL, the initial value: none. */
typedef strata_status (*strata_poll_callback)(void *user, strata_error *err);
STRATA_API void strata_model_set_poll(strata_model *model, strata_poll_callback poll, void *user);

/* Zeros are the defaults. */
typedef struct strata_fit_options {
    /* The number of epochs; 0: 1. STRATA_NO_EPOCHS: nothing is trained, and the history is empty. */
    int epochs;
    /* How many of these epochs an earlier fit has done. This fit runs the others, and its history has only these. If it
     * had done all of them, or `patience` had ended it, no epoch is run, and restore_best is applied. */
    int first_epoch;
    /* How many steps of the epoch first_epoch an earlier fit has done: strata_model_epoch_steps, or 0. Any other number is
     * INVALID. The epoch's metrics then include the earlier steps. */
    int64_t first_step;
    /* The number of examples in a global batch, of all replicas together; 0: 32. */
    int64_t batch;
    /* The most steps of an epoch; the rest of the epoch's data is not used. 0: no limit, which is INVALID for data that repeat
     * without end, and under parameter_server for a pipeline of unknown length. */
    int64_t steps_per_epoch;
    /* The seed of the order in which examples are shuffled. */
    uint64_t seed;
    /* Do not shuffle the examples. */
    bool no_shuffle;
    /* With several workers: which examples each of them reads (strata/pipeline.h). */
    strata_auto_shard auto_shard;
    /* [n_class_weights] The loss of an example of class c is multiplied by class_weights[c], besides the weight that the
     * dataset may have for the example (strata_dataset_set_weights). For losses with one class for each example. evaluate
     * does not use class weights. Like Keras' class_weight. NULL: all are 1. */
    const double *class_weights;
    int n_class_weights;
    /* About how often, in seconds, strata_progress.metrics are updated, from sums that each step returns anyway; the host does
     * not wait for the device to do this. 0: at the end of the epoch only. */
    double metrics_seconds;
    /* The path of a trace of the first steps, in the Trace Event Format that ui.perfetto.dev and chrome://tracing show: when
     * each kernel ran on each device, by the device's clock where it has one, and when the host exchanged values or did other
     * work. Programs are compiled again for the trace. Either all workers set it or none, and rank 0's file has the events of
     * all workers; under parameter_server each task's file has its own events. NULL: none. */
    const char *trace;
    /* With trace: trace the steps trace_first .. trace_last of this fit, counted from 1. Programs are compiled again before the
     * first and after the last of them, and the other steps run as without a trace. trace_last 0: trace all steps. INVALID
     * where trace_first is below 1 or above trace_last; UNSUPPORTED under parameter_server. */
    int64_t trace_first, trace_last;
    /* on_progress is called after every steps_per_execution steps of an epoch, and at its end; 0: 1. Devices that can run
     * several steps in one call (cores of a TPU, if no exchange of values needs the host) get so many steps at once, at most
     * 128. While they run, the host prepares the next ones, so each program has memory for the inputs and outputs of twice as
     * many steps. A CPU behind PoCL or Intel's OpenCL gets 4 steps at once if a step takes less than half a millisecond and
     * steps_per_execution is not 1, else one. The trained parameters have the same bits for any number. */
    int64_t steps_per_execution;
    /* Prepare a step only after the step before it has ended and on_progress has returned, so that on_progress can set the
     * learning rate of the next step. The device is then idle while the host works, and gets one step at a time whatever
     * steps_per_execution is. Under parameter_server no worker gets a batch before on_progress has returned for all finished
     * steps. */
    bool wait_each_step;
    /* Before each step, compute its loss and gradients twice on each device and compare the bits of all values. If they differ,
     * training ends with DATA and names the first tensor that differs. Training takes several times as long and needs memory
     * for all values of a step. Not done for batches whose gradients are accumulated. */
    bool check_repeats;
    /* Before every check_every-th step each OpenCL or Vulkan device runs the step once more, on the step's values, and random
     * nodes of it are compared with the reference, as many as take about a tenth of a second and at least one. If the device
     * computes wrongly, the fit ends with UNSUPPORTED. The check does not change the training. 0: by time, first after 5 s and
     * then once a minute, at most half a percent of the time; -1: never. */
    int64_t check_every;
    /* Validation data, evaluated after each epoch in batches of `batch`; borrowed. Validation does not change the trained bits.
     * With several workers each evaluates all validation data, and decisions such as `patience` follow rank 0's loss; under
     * parameter_server the workers divide the batches among themselves. NULL: none. */
    const strata_dataset *validation;
    /* Early stopping: training ends, and fit returns STRATA_OK, when for so many epochs the validation loss was not lower than
     * its best value minus min_delta. 0: no early stopping. INVALID without validation data. */
    int patience;
    /* At least 0. */
    double min_delta;
    /* At the end of the fit, restore the parameters and states of the epoch with the best validation loss, of which the host
     * stores a copy. INVALID without validation data. */
    bool restore_best;
    /* NULL: none. */
    strata_progress_callback on_progress;
    void *user;
    /* Write checkpoints while training; borrowed. NULL: none. */
    const strata_checkpoint_options *checkpoint;
} strata_fit_options;

/* The course of a fit. Zero-initialize it before fit; free it with strata_history_finish. */
typedef struct strata_history {
    /* How many epochs were run: fewer than strata_fit_options.epochs if training ended early. */
    int n_epochs;
    /* [n_epochs] The metrics of each epoch, and of the validation data after it (NULL: the fit has no validation data). */
    strata_metrics *epochs;
    strata_metrics *validation;
    /* The epoch with the best validation loss, counted from 0; -1: the fit has no validation data. */
    int best_epoch;
    /* [n_epochs] strata_progress.epoch_seconds of each epoch. */
    double *epoch_seconds;
    /* Finished steps of all epochs. */
    int64_t n_steps;
    /* [n_losses] The mean loss of each of the first steps, at most 100. */
    int n_losses;
    float losses[100];
    /* How many steps did not change the parameters because their f16 gradients were not finite. */
    int64_t n_skipped;
    /* The loss scale of f16 training at the end; 0 for other types. */
    double loss_scale;
    /* strata_progress.stop_now ended the training within an epoch. n_epochs does not count that epoch, and
     * strata_model_epoch_steps returns how many of its steps were done. */
    bool stopped;
    /* Seconds from the call of fit to the end of its first step, which include the compilation of kernels and their comparison
     * with references. */
    double first_step_seconds;
} strata_history;
STRATA_API void strata_history_finish(strata_history *history);

/* The learning rate of the next training step; 0: the model is not compiled. */
STRATA_API double strata_model_learning_rate(const strata_model *model);
/* Sets the learning rate of the next training step and of all later ones, instead of the optimizer's schedule. The schedule's
 * step count still advances: STRATA_SCHEDULED_RATE returns to the schedule as if no rate had been set. Checkpoints save the
 * rate. It may be called between fits, in on_progress at the end of an epoch, and, where the fit has wait_each_step, in
 * on_progress after any step. With several workers each may call it; before the next step all take rank 0's rate. Under
 * parameter_server the chief's rate is used; with asynchronous workers it may be set in any on_progress, and applies to the
 * batches that workers get from then on.
 * Fails: INVALID for a rate below 0 or of 1e6 and more, for a model that is not compiled, and in on_progress at any other time,
 * since the next steps are already submitted. */
#define STRATA_SCHEDULED_RATE (-1.0)
STRATA_API STRATA_MUST_USE strata_status strata_model_set_learning_rate(strata_model *model, double rate, strata_error *err);

/* Trains the model. out_history may be NULL. The last batch of an epoch may have fewer examples, and the last update of an
 * epoch may have fewer batches than the optimizer accumulates; both are trained exactly. A dataset of arrays is shuffled and
 * batched as the options say. A pipeline (strata/pipeline.h) determines its own order from (seed, epoch), and its own batches
 * if its last stage is a batch stage. With several workers all of them call fit, with the same options. By default they all
 * read the same batches, and each computes its share of the examples, which gives the losses of one process on one device.
 * Fails: INVALID for a batch below 1, labels that do not fit, or workers that differ in batch, optimizer, shuffling, number of
 * examples or layers (the message has both values); OUT_OF_MEMORY with the bytes that are needed and free and a batch size that
 * fits; DATA for a loss that is not finite, naming the step and the first tensor that is not finite (the parameters are then
 * those before that step), or for f16 gradients that are not finite even without a loss scale; and what a callback returned. */
STRATA_API STRATA_MUST_USE strata_status strata_model_fit(strata_model *model, const strata_dataset *dataset,
                                                          const strata_fit_options *opts, strata_history *out_history,
                                                          strata_error *err);
/* The same as separate calls, for programs with their own loop over steps:
 *
 *     strata_fit *fit;
 *     const strata_progress *progress;
 *     status = strata_fit_begin(model, dataset, &opts, &fit, &err);
 *     while (!status && !(status = strata_fit_step(fit, &progress, &err)) && progress)
 *         ...
 *     ended = strata_fit_end(fit, &history, &err);
 *
 * strata_model_fit is this loop. All options, on_progress and callbacks work the same way. */
typedef struct strata_fit strata_fit;
/* Checks the arguments and prepares the fit. dataset, and what opts points to, are borrowed until strata_fit_end. Until then
 * another fit of the model is INVALID. Evaluations and predictions between two steps use the parameters after the steps that
 * were submitted. Fails as strata_model_fit, and sets *out_fit to NULL; UNSUPPORTED under parameter_server, where no single
 * task runs the loop over steps. */
STRATA_API STRATA_MUST_USE strata_status strata_fit_begin(strata_model *model, const strata_dataset *dataset,
                                                          const strata_fit_options *opts, strata_fit **out_fit,
                                                          strata_error *err);
/* Reports the next step, with its loss, and after the last step of an epoch the end of the epoch: validation, callbacks, a
 * checkpoint. Each step and each end of an epoch is reported once, in their order. *out_progress is valid until the next call;
 * it is NULL when the training is over. Up to three steps are submitted at a time (eight to a CPU if they are short), so when a
 * step is reported, as many later ones may have been submitted. With wait_each_step, and on the host, no later step was. With
 * several workers all of them must call it equally often. After a failure only strata_fit_end may be called. */
STRATA_API STRATA_MUST_USE strata_status strata_fit_step(strata_fit *fit, const strata_progress **out_progress,
                                                         strata_error *err);
/* Waits for the submitted steps and frees the fit; NULL is fine. If the training is not over, it is stopped as by
 * strata_progress.stop_now: strata_model_epoch_steps then returns the steps of the unfinished epoch. out_history may be NULL;
 * else the caller finishes it. After a failed strata_fit_step it returns STRATA_OK. */
STRATA_API STRATA_MUST_USE strata_status strata_fit_end(strata_fit *fit, strata_history *out_history, strata_error *err);

/* Describes as text, one per line, the devices of the variables, nodes and exchanges between replicas in a training step of
 * this global batch size. Compiles the step's program, which fit then uses. The caller frees the text with free(). */
STRATA_API STRATA_MUST_USE strata_status strata_model_placement(strata_model *model, int64_t batch, char **out_text,
                                                                strata_error *err);
/* Totals of all training steps so far. */
STRATA_API strata_communication_totals strata_model_communication(const strata_model *model);
/* The confusion matrix of the last evaluation or epoch, of a model with the metric confusion_matrix: i64 (classes, classes),
 * where row l, column p is the number of examples with label l and prediction p. The caller finishes it. */
STRATA_API STRATA_MUST_USE strata_status strata_model_confusion_matrix(const strata_model *model, strata_array *out_counts,
                                                                       strata_error *err);
/* Computes loss and metrics on a dataset. batch: examples in a batch; 0: 100. */
STRATA_API STRATA_MUST_USE strata_status strata_model_evaluate(strata_model *model, const strata_dataset *dataset,
                                                               int64_t batch, strata_metrics *out_metrics, strata_error *err);
/* Computes predictions, f32 (n, ...), which the caller finishes: probabilities where the loss takes logits (their softmax or
 * sigmoid), else the model's outputs. batch as for evaluate. */
STRATA_API STRATA_MUST_USE strata_status strata_model_predict(strata_model *model, const strata_dataset *dataset, int64_t batch,
                                                              strata_array *out_predictions, strata_error *err);
/* The same for a model with several outputs: out_predictions [strata_model_n_outputs], each of which the caller finishes. */
STRATA_API STRATA_MUST_USE strata_status strata_model_predict_all(strata_model *model, const strata_dataset *dataset,
                                                                  int64_t batch, strata_array *out_predictions,
                                                                  strata_error *err);

/* ---- parameters, in the order of the layers: "dense/kernel", "dense/bias", ... ---- */
typedef struct strata_parameter {
    const char *name;
    strata_shape shape;
    /* True for a state: a value that a layer updates without training it, for example "batch_norm/moving_mean". */
    bool state;
} strata_parameter;
STRATA_API int strata_model_n_parameters(const strata_model *model);
STRATA_API strata_parameter strata_model_parameter(const strata_model *model, int index);
/* Copy parameter `index` to or from `value`, f32, which must have as many elements. If the parameters of a model are set before
 * it is compiled or built, those that are not set are 0. */
STRATA_API STRATA_MUST_USE strata_status strata_model_get_parameter(strata_model *model, int index, strata_array *value,
                                                                    strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_model_set_parameter(strata_model *model, int index, const strata_array *value,
                                                                    strata_error *err);
/* Computes the gradients of the mean loss over the dataset's first n examples, in their order, as a training step does: with
 * dropout, and before clipping. gradients: [strata_model_n_parameters] arrays of the caller, f32 with the parameters' shapes;
 * those of states become 0. Runs on the first replica's device and does not change the model.
 * Fails: INVALID for a model that is not compiled, a dataset of fewer than n examples or an array of a wrong shape; and as
 * compiling a step fails. */
STRATA_API STRATA_MUST_USE strata_status strata_model_get_gradients(strata_model *model, const strata_dataset *dataset,
                                                                    int64_t n, strata_array *gradients, strata_error *err);
/* Whether the parameters and states have the same bits on all devices of the strategy. With several workers all call it. */
STRATA_API STRATA_MUST_USE strata_status strata_model_replicas_equal(strata_model *model, bool *out_equal, strata_error *err);
/* SHA-256 of all parameters' little-endian f32 bytes, in the order of their names, as 64 hexadecimal digits. */
STRATA_API STRATA_MUST_USE strata_status strata_model_sha256(strata_model *model, char out_hex[65], strata_error *err);

/* Saves the model to a safetensors file: the parameters by name, and the model's JSON in the metadata under "strata.model". The
 * library writes a temporary file, reads it back, syncs it and renames it, so that an existing file is replaced only by a
 * complete one that can be read.
 * Under model_parallel over several workers all of them call it, as they call everything that reads parameters, evaluates and
 * predicts; path NULL: the worker only sends its parts. A callback cannot read parameters then: UNSUPPORTED.
 * INVALID for a model that is neither compiled, built nor loaded. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save(strata_model *model, const char *path, strata_error *err);
/* Loads a model from a file. Its parameters are in host memory until the model is compiled. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load(const char *path, strata_model **out_model, strata_error *err);
/* The same for a model with your own layers, losses, metrics or activations. DATA, with the name, where the file uses one that
 * is not registered. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_with(strata_registry *registry, const char *path,
                                                                strata_model **out_model, strata_error *err);

/* Saves a checkpoint: a model file that also has the optimizer's slots and counts, and, of a fit with validation data, the best
 * epoch so far. If a model is compiled with the same options, loads the checkpoint, and is trained from `epochs` (first_epoch)
 * with the same data and options, its parameters get the bits of an uninterrupted training. It may be called between fits, in
 * on_progress at the end of an epoch, and under parameter_server in any on_progress, where it waits until the workers have
 * finished their batches. After a fit that was stopped within an epoch, the checkpoint includes the steps of that epoch.
 *   epochs  how many epochs are done; at least 1, unless a fit was stopped within an epoch
 *   path    NULL: no file is written. Where the optimizer is sharded over several workers, and under local_sgd, all of them
 *           call this function, since each owns a part of the slots, or slots of its own; workers that need no file pass
 *           NULL */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path,
                                                                      strata_error *err);
/* How many steps of an unfinished epoch the model has done: in the last fit, if that was stopped within an epoch, or according
 * to the checkpoint that was loaded. 0: no epoch is unfinished. Pass it to fit as first_step. */
STRATA_API int64_t strata_model_epoch_steps(const strata_model *model);
/* Loads a checkpoint into a compiled model. path: a checkpoint file, or a folder of strata_checkpoint_options, of which the
 * newest complete checkpoint is loaded. If the folder has none, *out_epochs is 0 and the model is not changed. With several
 * workers all call it, and all get the checkpoint that rank 0 reads. A fit that then continues it (first_epoch, first_step)
 * fails with DATA if its data or options are not those of the checkpoint: another number of examples, other examples or names
 * of classes (some examples are compared, and not the output of generators), class weights, order of examples, or steps of an
 * epoch. The batch may be another one. To train the parameters further on other data, load the file with strata_model_load.
 * Fails: DATA for a checkpoint of another model, optimizer or loss (with the first difference) or of another seed, and where
 * all checkpoints of the folder are damaged; UNSUPPORTED for a checkpoint of a newer Strata; UNAVAILABLE for a file that cannot
 * be read. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_checkpoint(strata_model *model, const char *path, int *out_epochs,
                                                                      strata_error *err);

/* ---- evaluation beside a training, by another process ---- */

/* Like save_checkpoint, but marks the checkpoint as the last one of the training, so that strata_model_watch_checkpoints does
 * not wait for another. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_last_checkpoint(strata_model *model, int epochs, const char *path,
                                                                           strata_error *err);

/* The evaluation of a checkpoint. */
typedef struct strata_checkpoint_evaluation {
    /* At the checkpoint: finished epochs, finished steps of the next epoch, and all updates since the training began. */
    int epochs;
    int64_t epoch_steps, steps;
    strata_metrics metrics;
    /* Its loss is the lowest of all checkpoints so far. */
    bool best;
    /* The training is over: no checkpoint comes after it. */
    bool last;
    double seconds;
} strata_checkpoint_evaluation;

/* During the call the model has the checkpoint's parameters. If it returns anything but STRATA_OK,
 * strata_model_watch_checkpoints ends with that status. */
typedef strata_status (*strata_checkpoint_callback)(const strata_checkpoint_evaluation *evaluation, void *user,
                                                    strata_error *err);

typedef struct strata_watch_options {
    /* The checkpoint's file. Another process replaces it by newer checkpoints with strata_model_save_checkpoint. */
    const char *path;
    /* Examples of a batch; 0: 100. */
    int64_t batch;
    /* The most seconds to wait for a new checkpoint; 0: 3600. STRATA_ZERO: not at all. */
    double wait_seconds;
    /* End after the checkpoint of this many epochs. 0: end only after the last checkpoint. */
    int epochs;
    /* Called after each evaluation; NULL: none. */
    strata_checkpoint_callback on_evaluation;
    /* Called about ten times a second while the function waits for a checkpoint; if it returns true, the watch ends. NULL:
     * none. */
    bool (*stops)(void *user);
    void *user;
} strata_watch_options;

typedef enum strata_watch_end {
    /* The last checkpoint, or one of strata_watch_options.epochs, was evaluated. */
    STRATA_WATCH_OVER,
    /* The file was removed. A training removes it at its end if it does not know that an evaluator reads the file. */
    STRATA_WATCH_REMOVED,
    /* strata_watch_options.stops returned true. */
    STRATA_WATCH_STOPPED
} strata_watch_end;

typedef struct strata_watch_result {
    strata_watch_end end;
    /* How many checkpoints were evaluated; the epochs of the best and of the newest of them. */
    int n, best_epochs, newest_epochs;
    /* The loss of the best checkpoint; infinity where none was evaluated. */
    double best_loss;
    /* The training marked its last checkpoint: no process needs the file any more. */
    bool over;
} strata_watch_result;

/* Evaluates each new checkpoint of a training in another process. The evaluator task of a cluster calls it. It needs no
 * connection to the training, only the file. The model must be compiled with the same options as the model that is trained.
 * Where checkpoints are written faster than they are evaluated, the newest is evaluated and older ones are skipped.
 * Fails: TIMEOUT when no new checkpoint was written for wait_seconds; as strata_model_load_checkpoint for a file that does not
 * change any more; INVALID without a path. *out_result is set in any case. */
STRATA_API STRATA_MUST_USE strata_status strata_model_watch_checkpoints(strata_model *model, const strata_dataset *dataset,
                                                                        const strata_watch_options *opts,
                                                                        strata_watch_result *out_result, strata_error *err);

/* The batch of the training whose checkpoint was loaded, until a fit has begun; 0: none was loaded, or it is not known. */
STRATA_API int64_t strata_training_batch_before(const strata_model *model);

#ifdef __cplusplus
}
#endif
#endif
