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
 * Threads: one at a time per model. */
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

/* input_shape: of one element, without the batch axis. */
STRATA_API STRATA_MUST_USE strata_status strata_model_create(strata_shape input_shape, strata_model **out_model,
                                                             strata_error *err);
/* What the elements are: f32 (as created) or i32, for tokens. Before compile. In JSON: "input_dtype": "i32". */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_input_dtype(strata_model *model, strata_dtype dtype,
                                                                      strata_error *err);
STRATA_API void strata_model_destroy(strata_model *model); /* before its device is closed; NULL is fine */

/* The layers, losses, metrics and activations of one's own that the model may use (strata/registry.h). Before layers are
 * added. */
STRATA_API STRATA_MUST_USE strata_status strata_model_set_registry(strata_model *model, strata_registry *registry,
                                                                   strata_error *err);

/* ---- models with several inputs and outputs, and with layers that are called more than once ----
 *
 *     strata_model_create_functional(&model, &err);
 *     const strata_value *left = strata_model_input(model, "left", STRATA_SHAPE(4), STRATA_DTYPE_F32);
 *     const strata_value *right = strata_model_input(model, "right", STRATA_SHAPE(4), STRATA_DTYPE_F32);
 *     strata_model_add_dense(model, (strata_dense_options){.units = 8, .activation = "relu", .name = "shared"});
 *     const strata_value *sides[] = {strata_layer_call(model, "shared", &left, 1), strata_layer_call(model, "shared", &right,
 * 1)};
 *     strata_model_add_concat(model, (strata_concat_options){0});
 *     const strata_value *both = strata_layer_call(model, NULL, sides, 2);
 *     strata_model_output(model, both, (strata_output_options){.name = "same", .loss = "mse"});
 *
 * A call of a layer gives a value, which other calls take. Layers are added as to a sequential model, and are called by name;
 * what a sequential model does with its layers is a chain of such calls. The parameters of a layer that is called several times
 * are the same in all calls, and their gradients add up. Data are found by the names of inputs and outputs
 * (strata_dataset_from_columns). As in building a sequential model, the calls do not fail by themselves: the model keeps the
 * first error, and strata_model_compile returns it. INVALID for shapes that do not fit, two inputs, calls, layers or outputs of
 * one name, an input that no layer takes, a layer that is not called, a value that nothing takes and that is no output, or an
 * output without a loss. A value belongs to its model. */
typedef struct strata_value strata_value;
STRATA_API STRATA_MUST_USE strata_status strata_model_create_functional(strata_model **out_model, strata_error *err);
/* shape: of one example. dtype: f32, or i32 for tokens. NULL after an error, which all calls here accept as a value. */
STRATA_API const strata_value *strata_model_input(strata_model *model, const char *name, strata_shape shape,
                                                  strata_dtype dtype);
/* Calls a layer of the model, NULL: the one that was added last, with n inputs. The value has the layer's name; of further
 * calls that name and a number: "shared_1". */
STRATA_API const strata_value *strata_layer_call(strata_model *model, const char *layer, const strata_value *const *inputs,
                                                 int n_inputs);
typedef struct strata_output_options {
    /* 1 to 63 characters; NULL: the value's name. */
    const char *name;
    /* As strata_compile_options has them. loss NULL: of a model with one output, compile says it; of others it is an error. */
    const char *loss;
    strata_loss_options loss_options;
    const char *metrics;
    /* What the output's loss counts in the model's: loss = sum of weight_i loss_i. 0: 1. */
    double weight;
} strata_output_options;
STRATA_API void strata_model_output(strata_model *model, const strata_value *value, strata_output_options opts);

/* What the model takes, and what it gives once its layers are known (compiled, or from JSON or a file): of one example. A
 * sequential model has one input, "x", and one output, which has the name of its last layer. */
typedef struct strata_model_port {
    /* Lives as long as the model. */
    const char *name;
    strata_shape shape;
    strata_dtype dtype;
} strata_model_port;
STRATA_API int strata_model_n_inputs(const strata_model *model);
STRATA_API strata_model_port strata_model_input_port(const strata_model *model, int index);
STRATA_API int strata_model_n_outputs(const strata_model *model);
STRATA_API strata_model_port strata_model_output_port(const strata_model *model, int index);

/* A model from JSON text (the format: core/README.md): {"input": [28, 28], "layers": [{"layer": "flatten"}, {"layer": "dense",
 * "units": 10}], "optimizer": {"name": "adam"}, "loss": "..."}. `source` names it in messages. Errors: DATA with the path of
 * the field. */
STRATA_API STRATA_MUST_USE strata_status strata_model_from_json(const char *text, size_t bytes, const char *source,
                                                                strata_model **out_model, strata_error *err);
/* The same from a file. */
STRATA_API STRATA_MUST_USE strata_status strata_model_read_json(const char *path, strata_model **out_model, strata_error *err);
/* The same of models that use layers, losses, metrics or activations of one's own. registry NULL: none. */
STRATA_API STRATA_MUST_USE strata_status strata_model_from_json_with(strata_registry *registry, const char *text, size_t bytes,
                                                                     const char *source, strata_model **out_model,
                                                                     strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_model_read_json_with(strata_registry *registry, const char *path,
                                                                     strata_model **out_model, strata_error *err);
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

enum { STRATA_MAX_METRICS = 24 };
typedef struct strata_metrics {
    /* The mean of the examples' losses, each times the example's weight. */
    double loss;
    /* The share of examples whose largest logit is that of their label, or whose yes-or-no output is right; 0 for losses that
     * do not classify, and of a model with several outputs, whose own are in `more` ("name/loss", "name/accuracy"). */
    double accuracy;
    /* How many examples were measured. */
    int64_t examples;
    /* The metrics that compile or the JSON asked for: [n]. A name lives as long as the model. Those of a model with several
     * outputs begin with the output's name: "name/auc". */
    int n;
    struct {
        const char *name;
        double value;
    } more[STRATA_MAX_METRICS];
} strata_metrics;

/* What fit passes to its callback after each step and each epoch. A step is an update: of one batch, or of as many batches as
 * the optimizer accumulates. A callback that returns anything but STRATA_OK ends the fit with that status, after the step. */
typedef struct strata_progress {
    /* The model that is fitted. */
    strata_model *model;
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
    /* The learning rate of that step. strata_model_set_learning_rate sets that of the steps to come. */
    double learning_rate;
    /* The norm of that step's gradients, before clipping; 0 without strata_compile_options.gradient_norm, and of synchronous
     * steps under parameter_server, whose gradients no task has together. */
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

/* Checkpoints that a fit makes while it trains, in a folder: step-000000000120/ is the one after 120 updates, manifest.json and
 * safetensors files. A copy is taken when the step is done, and a thread writes it while training goes on. A crash at any
 * moment leaves whole checkpoints only. strata_model_load_checkpoint takes the folder's newest one that is whole; the fit then
 * goes on with its epochs as first_epoch and strata_model_epoch_steps as first_step. With several workers rank 0 writes; where
 * they have shards of the optimizer each writes its own part, so the folder must be on a file system that they share. So it is
 * under parameter_server, where the servers write their parts, and what workers have is finished first. The fit locks the
 * folder. Fails: UNAVAILABLE where another job writes there; INVALID where it has checkpoints of later steps than the
 * model's. */
typedef struct strata_checkpoint_options {
    /* It is made where it is missing. */
    const char *folder;
    /* Make one after every so many updates, and after so many seconds. Where both are 0: after each epoch. There is one at the
     * end of the last epoch and where the fit is stopped, too. */
    int64_t every_steps;
    double every_seconds;
    /* How many are kept, the newest; 0: 3. */
    int keep;
    /* Is called where one could not be written (the disk is full): training goes on, and the ones before stay; and where a
     * damaged one was moved aside. Called by the fit's own thread. NULL: one that cannot be written ends the fit with its
     * failure. */
    void (*on_warning)(const char *text, void *user);
    void *user;
} strata_checkpoint_options;

/* Zeros are the defaults. */
typedef struct strata_fit_options {
    /* How many epochs; 0: 1. */
    int epochs;
    /* How many of these were done before, by another fit: the rest is run, and the history has the rest only. Where patience
     * had ended that fit there is no rest: no epoch is run, and restore_best is followed. */
    int first_epoch;
    /* How many steps of the next epoch were done before too: strata_model_epoch_steps, or 0 for none. The epoch's metrics are
     * those of all its steps. Fails with INVALID for another number. */
    int64_t first_step;
    /* Examples of a batch, of all replicas together; 0: 32. */
    int64_t batch;
    /* How many steps an epoch has at most: the rest of its data is left out. 0: as many as the data have; INVALID for data that
     * repeat for ever, and under parameter_server for a pipeline that does not know how long it is. */
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
     * compiled anew for it. With several workers all give one or none, and rank 0's has the events of all; with
     * parameter_server each task's has its own. NULL: none. */
    const char *trace;
    /* With trace: only these steps of this fit, counted from 1, the last one among them; the others run as without a trace, and
     * programs are compiled anew before the first and after the last. trace_last 0: all. INVALID where first is below 1 or
     * above last; UNSUPPORTED under parameter_server. */
    int64_t trace_first, trace_last;
    /* Call on_progress after every so many steps of an epoch, and at its end; 0: 1. Devices that take several runs in one call
     * (cores of a TPU, where no exchange needs the host) get so many steps at once, at most 128, and the host fills the next
     * ones while they are at these, for which programs have twice as many slots of input and output memory. What is trained
     * has the same bits. */
    int64_t steps_per_execution;
    /* Prepare a step only when the one before it is done and on_progress has returned, which may then set the learning rate of
     * the very next step. The device waits for the host meanwhile, and steps_per_execution gives it one step at a time. Under
     * parameter_server: no batch is given to a worker before on_progress has returned for all steps that are done. */
    bool wait_each_step;
    /* Compute the loss and the gradients of each step twice on each device before it is made, and compare all values: training
     * ends with DATA that names the first tensor whose bits differ. It takes several times as long, and memory for all values
     * of a step. Batches that are accumulated are not compared. */
    bool check_repeats;
    /* Every so many steps a random node of the step, those of its gradients among them, is run alone on each device before the
     * step, on the step's own values, and compared with the reference: a device that computes wrongly now is told by
     * strata_device_options.on_warning. Bits of the training stay the same. 0: 10,000, and seldom enough that it takes less
     * than a thousandth of the time; -1: never. */
    int64_t check_every;
    /* Evaluated after each epoch in batches of `batch`; borrowed. The bits of what is trained are the same with it and without.
     * Each of several workers evaluates all of it, and where a loss decides something it is rank 0's; under parameter_server
     * workers evaluate a batch each. NULL: none. */
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
    /* Make checkpoints while training; borrowed. NULL: none. */
    const strata_checkpoint_options *checkpoint;
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

/* The learning rate of the next training step; 0: the model is not compiled. */
STRATA_API double strata_model_learning_rate(const strata_model *model);
/* Sets the learning rate of the next training step and all after it, in place of the optimizer's schedule, whose steps go on
 * being counted: with STRATA_SCHEDULED_RATE the schedule goes on as if nothing had been set. Checkpoints keep it. Between fits,
 * in on_progress at an epoch's end, and, where the fit has wait_each_step, in on_progress after any step: the next step uses
 * it. With several workers each may call it, and rank 0's rate becomes that of all before the next step. Under parameter_server
 * the chief's counts; where workers have their own pace it may be set in any on_progress, and is that of the batches that are
 * given from then on. Fails: INVALID for a rate below 0 or from 1e6 on, a model that is not compiled, and in on_progress at
 * other times, as the next steps were submitted already. */
#define STRATA_SCHEDULED_RATE (-1.0)
STRATA_API STRATA_MUST_USE strata_status strata_model_set_learning_rate(strata_model *model, double rate, strata_error *err);

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
/* The same step by step, for those who write the loop themselves:
 *
 *     strata_fit *fit;
 *     const strata_progress *progress;
 *     status = strata_fit_begin(model, dataset, &opts, &fit, &err);
 *     while (!status && !(status = strata_fit_step(fit, &progress, &err)) && progress)
 *         ...
 *     ended = strata_fit_end(fit, &history, &err);
 *
 * strata_model_fit is this loop. All options mean the same, on_progress and callbacks among them. */
typedef struct strata_fit strata_fit;
/* Checks everything and prepares the fit. dataset, and what opts points to, are borrowed until the end. No other fit,
 * evaluation or prediction of the model until then, except between epochs, and after any step where the fit has
 * wait_each_step. Fails as strata_model_fit, with *out_fit NULL; UNSUPPORTED under parameter_server, where no task makes the
 * steps by itself. */
STRATA_API STRATA_MUST_USE strata_status strata_fit_begin(strata_model *model, const strata_dataset *dataset,
                                                          const strata_fit_options *opts, strata_fit **out_fit,
                                                          strata_error *err);
/* Makes the next step, or, where the epoch has no more, ends it: validation, callbacks, a checkpoint. *out_progress lives until
 * the next call, and is NULL when the training is over. The device works on up to three steps while the host prepares others,
 * so what progress reports is the newest step that is finished, and with wait_each_step the one that this call made. With
 * several workers all of them call it equally often. After a failure only strata_fit_end is left. */
STRATA_API STRATA_MUST_USE strata_status strata_fit_step(strata_fit *fit, const strata_progress **out_progress,
                                                         strata_error *err);
/* Waits for the steps that were begun, and frees the fit; NULL is fine. Before the training is over it stops it, as
 * strata_progress.stop_now does: strata_model_epoch_steps has the steps of the epoch that was not finished. out_history may be
 * NULL; else the caller finishes it. After a failed step it returns STRATA_OK. */
STRATA_API STRATA_MUST_USE strata_status strata_fit_end(strata_fit *fit, strata_history *out_history, strata_error *err);

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
/* The same for a model with several outputs: out_predictions [strata_model_n_outputs], each of which the caller finishes. */
STRATA_API STRATA_MUST_USE strata_status strata_model_predict_all(strata_model *model, const strata_dataset *dataset,
                                                                  int64_t batch, strata_array *out_predictions,
                                                                  strata_error *err);

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
/* The gradients of the mean loss over the dataset's first n examples, in their order, as training has them: with dropout, and
 * before clipping. gradients: [strata_model_n_parameters] arrays of the caller, f32 with the parameters' shapes; those of
 * states become 0. On the first replica's device; nothing is changed. Fails: INVALID for a model that is not compiled, fewer
 * examples than n, a wrong array; what compiling a step would fail with. */
STRATA_API STRATA_MUST_USE strata_status strata_model_get_gradients(strata_model *model, const strata_dataset *dataset,
                                                                    int64_t n, strata_array *gradients, strata_error *err);
/* Whether all devices of the strategy hold the same bits of parameters and states. With several workers all call it. */
STRATA_API STRATA_MUST_USE strata_status strata_model_replicas_equal(strata_model *model, bool *out_equal, strata_error *err);
/* SHA-256 of all parameters' little-endian f32 bytes, in the order of their names, as 64 hexadecimal digits. */
STRATA_API STRATA_MUST_USE strata_status strata_model_sha256(strata_model *model, char out_hex[65], strata_error *err);

/* A model file is safetensors: the parameters by name, the model's JSON in the metadata under "strata.model". Written to a
 * temporary file, synced, renamed, directory synced: the old file stays until the new one is whole. The model is compiled,
 * built or loaded, else INVALID. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save(strata_model *model, const char *path, strata_error *err);
/* Makes the model of a file; its parameters wait on the host until compile. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load(const char *path, strata_model **out_model, strata_error *err);
/* The same of a model that uses what is registered. A name in the file that is not registered is DATA, and the message says it.
 * */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_with(strata_registry *registry, const char *path,
                                                                strata_model **out_model, strata_error *err);

/* A checkpoint is a model file that also has the optimizer's memory and counts, and the best epoch so far of a fit with
 * validation data: a model that is compiled alike, and trained on from `epochs` with the same data and options (first_epoch),
 * ends with the bits of a training that was never interrupted. Between fits, from on_progress at an epoch's end, and under
 * parameter_server from any on_progress, which waits until what workers have is finished. After a fit
 * that was stopped within an epoch the checkpoint has the steps of that epoch too. epochs: how many are done, at least 1 where
 * no such steps are. path: NULL writes no file. With several workers whose optimizer is sharded all of them call it, as
 * each owns a part of the optimizer's memory; those that need no file give NULL. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_checkpoint(strata_model *model, int epochs, const char *path,
                                                                      strata_error *err);
/* How many steps of an epoch the model has done: of the last fit, if it was stopped within an epoch, or of the checkpoint that
 * was loaded. 0: the model stands between epochs. Fit takes it as first_step. */
STRATA_API int64_t strata_model_epoch_steps(const strata_model *model);
/* Into a compiled model; path: such a file, or a folder of strata_checkpoint_options, of which the newest checkpoint that is
 * whole is taken. *out_epochs is 0, and nothing is changed, where there is none. With several workers all call it, and rank
 * 0's file counts. Fails: DATA for a checkpoint of another model, optimizer, loss (with the first difference) or seed, and
 * where all in the folder are damaged; UNSUPPORTED for one of a newer Strata; UNAVAILABLE for a file that cannot be read. */
STRATA_API STRATA_MUST_USE strata_status strata_model_load_checkpoint(strata_model *model, const char *path, int *out_epochs,
                                                                      strata_error *err);

/* ---- evaluation beside a training, by another process ---- */

/* As save_checkpoint, and says in the file that the training is over, so that whoever watches it waits for no other. */
STRATA_API STRATA_MUST_USE strata_status strata_model_save_last_checkpoint(strata_model *model, int epochs, const char *path,
                                                                           strata_error *err);

/* What a checkpoint was worth. */
typedef struct strata_checkpoint_evaluation {
    /* Whole epochs that the checkpoint has behind it, steps of the next one, and all updates since the training began. */
    int epochs;
    int64_t epoch_steps, steps;
    strata_metrics metrics;
    /* Its loss is the least so far. */
    bool best;
    /* The training is over: no checkpoint comes after it. */
    bool last;
    double seconds;
} strata_checkpoint_evaluation;

/* The model has the checkpoint's parameters during the call. Anything but STRATA_OK ends the watch with that status. */
typedef strata_status (*strata_checkpoint_callback)(const strata_checkpoint_evaluation *evaluation, void *user,
                                                    strata_error *err);

typedef struct strata_watch_options {
    /* The checkpoint's file, which another process writes, as save_checkpoint does: a whole new file takes the place of the
     * one before. */
    const char *path;
    /* Examples of a batch; 0: 100. */
    int64_t batch;
    /* How long a new checkpoint is waited for; 0: 3600. */
    double wait_seconds;
    /* End after a checkpoint of so many epochs, as after the last one. 0: do not. */
    int epochs;
    /* After each evaluation; NULL: none. */
    strata_checkpoint_callback on_evaluation;
    /* Whether to end now; asked about ten times a second while nothing is evaluated. NULL: never. */
    bool (*stops)(void *user);
    void *user;
} strata_watch_options;

typedef enum strata_watch_end {
    /* The last checkpoint, or one of strata_watch_options.epochs, was evaluated. */
    STRATA_WATCH_OVER,
    /* The file was there, and was removed, as a training does at its end that does not know that it is watched. */
    STRATA_WATCH_REMOVED,
    /* strata_watch_options.stops said so. */
    STRATA_WATCH_STOPPED
} strata_watch_end;

typedef struct strata_watch_result {
    strata_watch_end end;
    /* How many checkpoints were evaluated; the epochs of the best and of the newest of them. */
    int n, best_epochs, newest_epochs;
    /* The loss of the best one; infinity where there is none. */
    double best_loss;
    /* The training said that it is over: nobody needs the file any more. */
    bool over;
} strata_watch_result;

/* Evaluates each new checkpoint of a training that goes on elsewhere: the evaluator task of a cluster. It needs no connection
 * to the training. The model is compiled as the one that is trained, from whose checkpoints it gets parameters and all else.
 * Where checkpoints come faster than they are evaluated, the newest is, and those between are passed over.
 * Fails: TIMEOUT when no new checkpoint has come for wait_seconds; what strata_model_load_checkpoint fails with for a file that
 * stays as it is; INVALID without a path. *out_result is set in any case. */
STRATA_API STRATA_MUST_USE strata_status strata_model_watch_checkpoints(strata_model *model, const strata_dataset *dataset,
                                                                        const strata_watch_options *opts,
                                                                        strata_watch_result *out_result, strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
