/* SPDX-License-Identifier: Apache-2.0
 *
 * strata train: a sample or a model of the user's own, on the best device or the one named. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "own.h"
#include "progress.h"
#include "run_log.h"
#include "samples.h"
#include "scores.h"

typedef struct train_options {
    data_options data;
    const char *model, *write_model, *from, *freeze;
    text_list set;
    bool augment;
    const char *save, *checkpoint, *metrics, *auto_shard, *class_weights, *precision, *trace, *validation, *log;
    device_flags device;
    strategy_flags strategy;
    int64_t epochs, batch, global_batch, accumulate, together, steps_per_epoch, seed;
    int64_t patience, log_every;
    double learning_rate, validation_split;
    bool json, scale_lr, log_device_placement, restore_best;
} train_options;

static const option_row rows[] = {
    DATA_OPTION_ROWS(train_options, data),
    {"learn", "KIND", "own data: classification or regression (as the label looks)", OPTION_TEXT,
     offsetof(train_options, data.task), 0, 0},
    {"test-split", "F", "own data: the share that is kept for testing (0.2)", OPTION_NUMBER,
     offsetof(train_options, data.test_split), 1e-12, 1},
    {"size", "N", "pictures: rows and columns that all are brought to (their own where they are all alike, at most 64)",
     OPTION_INT, offsetof(train_options, data.size), 1, 4096},
    {"augment", NULL, "pictures: learn from each flipped left to right and moved a little, at random", OPTION_FLAG,
     offsetof(train_options, augment), 0, 0},
    {"model", "KIND", "own data: mlp, cnn, resnet, text or attention (as suits the data)", OPTION_TEXT,
     offsetof(train_options, model), 0, 0},
    {"set", "PATH=VALUE", "another value in the model's JSON: layers.0.units=64; may be given several times", OPTION_LIST,
     offsetof(train_options, set), 0, 0},
    {"write-model", "FILE", "write the model's JSON there, to be edited", OPTION_TEXT, offsetof(train_options, write_model), 0,
     0},
    {"freeze", "A,B", "the layers of these names stay as they are, with --from: strata summary lists them", OPTION_TEXT,
     offsetof(train_options, freeze), 0, 0},
    {"from", "MODEL.strata", "own data: train this model further, with its preprocessing", OPTION_TEXT,
     offsetof(train_options, from), 0, 0},
    {"subwords", NULL, "texts: cut words into pieces, so that no word is unknown", OPTION_FLAG,
     offsetof(train_options, data.subwords), 0, 0},
    {"epochs", "N", "times over the data (as the sample says, else 5)", OPTION_INT, offsetof(train_options, epochs), 1, 1e6},
    {"batch", "N", "examples a step, on each replica (as the sample says, else 64)", OPTION_INT, offsetof(train_options, batch),
     1, 1e12},
    {"global-batch", "N", "examples a step, of all replicas together", OPTION_INT, offsetof(train_options, global_batch), 1,
     1e12},
    {"accumulate", "N", "steps of N batches, whose gradients are added up (as the model says, else 1)", OPTION_INT,
     offsetof(train_options, accumulate), 1, 1e6},
    {"strategy", "NAME", "default, one_device, mirrored, multi_worker_mirrored, central_storage, parameter_server, tpu or auto",
     OPTION_TEXT, offsetof(train_options, strategy.name), 0, 0},
    {"devices", "A,B", "of the strategy, one a replica (mirrored: all accelerators)", OPTION_TEXT,
     offsetof(train_options, strategy.devices), 0, 0},
    {"tpu-address", "local|NAME", "tpu: the system of cores, by its name or its plugin's (TPU_NAME, else local)", OPTION_TEXT,
     offsetof(train_options, strategy.tpu_address), 0, 0},
    {"steps-per-execution", "N",
     "steps that the host gives cores of a TPU in one call; elsewhere how often the progress is shown (1)", OPTION_INT,
     offsetof(train_options, together), 1, 1e6},
    CLUSTER_OPTION_ROWS(train_options, strategy),
    {"transport", "NAME", "several workers: tcp, or shm for those of one host (shm where it can be)", OPTION_TEXT,
     offsetof(train_options, strategy.transport), 0, 0},
    {"engine", "builtin|mpi", "several workers: who adds up; mpi: Open MPI or MPICH, when mpirun started them (builtin)",
     OPTION_TEXT, offsetof(train_options, strategy.engine), 0, 0},
    {"compress", "bf16|f16", "several workers: gradients travel in half the bytes, rounded (as f32)", OPTION_TEXT,
     offsetof(train_options, strategy.compress), 0, 0},
    {"auto-shard", "data|file|off|auto",
     "several workers: rows of all batches, or files, or everything for each (data); in C: hint", OPTION_TEXT,
     offsetof(train_options, auto_shard), 0, 0},
    {"cluster-role", "ROLE", "with --cluster: what this task is, chief, worker or ps; --task has the number (as --task says)",
     OPTION_TEXT, offsetof(train_options, strategy.role), 0, 0},
    {"staleness", "N", "parameter_server: no worker is more than N steps ahead of the slowest; 0 is --sync (no limit)",
     OPTION_TEXT, offsetof(train_options, strategy.staleness), 0, 0},
    {"sync", NULL, "parameter_server: a step is one update with the gradients of all workers", OPTION_FLAG,
     offsetof(train_options, strategy.sync), 0, 0},
    {"backup", "N", "with --sync: a step does not wait for the N slowest workers, whose gradients do not count then (0)",
     OPTION_INT, offsetof(train_options, strategy.backup), 0, 1024},
    {"partitioner", "RULE",
     "parameter_server: cuts parameters into shards, fixed:N, min_size:BYTES or max_size:BYTES, as 256K or 4M (they stay "
     "whole)",
     OPTION_TEXT, offsetof(train_options, strategy.partitioner), 0, 0},
    {"steps-per-epoch", "N", "steps of an epoch at most; the rest of its data is left out (all)", OPTION_INT,
     offsetof(train_options, steps_per_epoch), 1, 1e12},
    {"parameter-device", "WHICH", "central_storage, parameter_server: where parameters are kept (host)", OPTION_TEXT,
     offsetof(train_options, strategy.parameter_device), 0, 0},
    {"cross-device-ops", "NAME", "how replicas' gradients are added up: host, tree or device (host)", OPTION_TEXT,
     offsetof(train_options, strategy.cross_device_ops), 0, 0},
    {"shard-optimizer", "auto|yes|no",
     "each replica updates only its shard of the parameters and has the optimizer's memory of that (auto: no)", OPTION_TEXT,
     offsetof(train_options, strategy.shard_optimizer), 0, 0},
    {"bytes-per-pack", "N", "gradients travel in packs of about this size (262144; on the host's own cores: all at once)",
     OPTION_INT, offsetof(train_options, strategy.bytes_per_pack), 1, 1e12},
    {"split", "3:1", "shares of a batch, by replica; auto: by measured speed (equal)", OPTION_TEXT,
     offsetof(train_options, strategy.split), 0, 0},
    {"scale-lr", NULL, "learning rate times replicas, after a warm-up (Goyal et al. 2017)", OPTION_FLAG,
     offsetof(train_options, scale_lr), 0, 0},
    {"log-device-placement", NULL, "say where each variable, node and exchange is, on stderr", OPTION_FLAG,
     offsetof(train_options, log_device_placement), 0, 0},
    {"trace", "FILE",
     "write what ran when there, for chrome://tracing or ui.perfetto.dev; worker 2 of several: with .rank2 before its ending",
     OPTION_TEXT, offsetof(train_options, trace), 0, 0},
    {"validation-split", "F", "this share of the examples of each class is not trained on but evaluated after each epoch (0)",
     OPTION_NUMBER, offsetof(train_options, validation_split), 1e-12, 1},
    {"validation", "DIR", "evaluate these after each epoch: a CSV file, or the test part of a folder such as --data takes",
     OPTION_TEXT, offsetof(train_options, validation), 0, 0},
    {"patience", "N", "end when the loss on validation data has not fallen for N epochs (never)", OPTION_INT,
     offsetof(train_options, patience), 1, 1e6},
    {"restore-best", NULL, "end with the weights of the epoch whose loss on validation data was the least", OPTION_FLAG,
     offsetof(train_options, restore_best), 0, 0},
    {"learning-rate", "R", "of the optimizer (as the model says)", OPTION_NUMBER, offsetof(train_options, learning_rate), 1e-12,
     1e6},
    {"metrics", "A,B", "besides loss and accuracy: top_5_accuracy, precision, recall, auc, confusion_matrix, mae", OPTION_TEXT,
     offsetof(train_options, metrics), 0, 0},
    {"class-weights", "1,2,...", "what an example's loss counts, by its class (1 each)", OPTION_TEXT,
     offsetof(train_options, class_weights), 0, 0},
    {"precision", "TYPE", "what activations are stored in: f32, f16 or bf16 (the model's own, else f32)", OPTION_TEXT,
     offsetof(train_options, precision), 0, 0},
    {"seed", "N", "of weights, shuffles and dropout (0)", OPTION_INT, offsetof(train_options, seed), 0, 9e15},
    {"save", "FILE", "write the trained model there", OPTION_TEXT, offsetof(train_options, save), 0, 0},
    {"checkpoint", "FILE",
     "write there after each epoch, and at Ctrl-C, what it takes to go on, and go on from it where it is; removed at the end",
     OPTION_TEXT, offsetof(train_options, checkpoint), 0, 0},
    {"log", "FILE",
     "write a row a step and epoch there: .jsonl, or .csv; also measures the norms of gradients and weights (strata plot FILE)",
     OPTION_TEXT, offsetof(train_options, log), 0, 0},
    {"log-every", "N", "with --log: a row every N steps (1)", OPTION_INT, offsetof(train_options, log_every), 1, 1e12},
    {"json", NULL,
     "a line of JSON an epoch and one at the end: train_..., val_..., test_... say of which data; loss is train_loss, accuracy "
     "test_accuracy",
     OPTION_FLAG, offsetof(train_options, json), 0, 0},
    DEVICE_OPTION_ROWS(train_options, device),
    {0}};

/* Replicas whose fallbacks are told of. */
enum { MOST_FALLBACKS = 32 };

/* ---- Ctrl-C: the first ends the fit after its step, the second ends the process ---- */

static volatile sig_atomic_t interrupted, tells_of_interrupt;

static void on_interrupt(int signal_number) {
    static const char text[] = "\nstrata: finishing this step; Ctrl-C once more ends at once\n";
    interrupted = 1;
    signal(signal_number, SIG_DFL);
    if (tells_of_interrupt && write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
}

/* ---- what is shown and written while it runs ---- */

/* Between the callbacks of a fit. */
typedef struct reporter {
    progress *line; /* NULL: stderr is no terminal */
    run_log log;    /* its file is NULL: none */
    int64_t log_every;
    bool quiet, json, classifies;
    int64_t patience;
    strata_model *model;
    const strata_strategy *strategy;
    int64_t notices;        /* of the strategy, that were said */
    const char *checkpoint; /* NULL: none */
    bool chief;             /* writes it */
    double began;
    /* Steps that may still wait for kernels to be compiled; seconds of this epoch that did; when a step was reported last. */
    int settling;
    int64_t waited; /* how many they were in this epoch */
    double compiled, reported;
    int epoch;    /* of the newest step */
    int64_t step; /* in it */
} reporter;

/* Drivers compile on when kernels run for the first time, so some steps behind this do not count where speed is reported. */
static void on_compile(const strata_compile_progress *compile, void *user) {
    reporter *r = user;
    enum { SETTLING_STEPS = 4 };
    r->settling = SETTLING_STEPS;
    progress_compile(r->line, compile);
}

static void print_epoch(const reporter *r, const strata_progress *p, double rate) {
    printf("epoch %d/%d  loss %.4g", p->epoch + 1, p->epochs, p->metrics.loss);
    if (r->classifies) printf("  accuracy %.4f", p->metrics.accuracy);
    print_more(&p->metrics, "");
    if (p->validation.examples) printf("  val_loss %.4g", p->validation.loss);
    if (p->validation.examples && r->classifies) printf("  val_accuracy %.4f", p->validation.accuracy);
    print_more(&p->validation, "val_");
    printf("  %.0f samples/s  %.2f s\n", rate, p->epoch_seconds);
    if (*p->stop && p->epoch + 1 < p->epochs)
        printf("val_loss has not fallen for %lld epochs: the training ends\n", (long long)r->patience);
    fflush(stdout);
}

/* The norm of all parameters; NaN where it could not be read. */
static double weight_norm(strata_model *model) {
    double square = 0;
    for (int i = 0; i < strata_model_n_parameters(model); i++) {
        const strata_parameter parameter = strata_model_parameter(model, i);
        strata_array value = {0};
        if (parameter.state) continue;
        bool read = !strata_array_create(STRATA_DTYPE_F32, parameter.shape, &value, NULL);
        if (read) read = !strata_model_get_parameter(model, i, &value, NULL);
        for (int64_t k = 0; read && k < strata_shape_elements(parameter.shape); k++)
            square += (double)((float *)value.data)[k] * (double)((float *)value.data)[k];
        strata_array_finish(&value);
        if (!read) return NAN;
    }
    return sqrt(square);
}

static void report_epoch(reporter *r, const strata_progress *p) {
    const double counted = p->epoch_seconds - r->compiled;
    const double seconds = counted > 0 && r->waited < p->step ? counted : p->epoch_seconds;
    const double steps = seconds < p->epoch_seconds ? (double)(p->step - r->waited) / (double)p->step : 1;
    run_log_more more = {.weight_norm = NAN, .samples_per_s = steps * (double)p->metrics.examples / seconds};
    r->compiled = 0;
    r->waited = r->settling = 0;
    if (!r->chief) return;
    progress_hide(r->line);
    if (r->log.file) more.weight_norm = weight_norm(r->model);
    if (r->log.file) run_log_add(&r->log, p, &more);
    if (r->json) run_log_print_epoch(p, &more, r->classifies, now_seconds() - r->began);
    if (!r->quiet) print_epoch(r, p, more.samples_per_s);
}

static void report_step(reporter *r, const strata_progress *p) {
    const double now = now_seconds();
    r->step = p->step;
    r->epoch = p->epoch;
    if (r->settling) {
        r->compiled += now - r->reported;
        r->settling--;
        r->waited++;
    }
    if (r->log.file && p->total_step % r->log_every == 0) run_log_add(&r->log, p, &(run_log_more){NAN, NAN});
}

/* What has happened to workers and servers, on stderr. */
static void say_notices(reporter *r) {
    const int64_t n = strata_strategy_parameter_server_totals(r->strategy).notices;
    for (; r->notices < n; r->notices++) {
        const strata_parameter_server_notice notice = strata_strategy_parameter_server_notice(r->strategy, r->notices);
        progress_hide(r->line);
        if (*notice.text) fprintf(stderr, "strata: %s\n", notice.text);
    }
}

static strata_status on_progress(const strata_progress *p, void *user, strata_error *err) {
    reporter *r = user;
    say_notices(r);
    if (p->epoch_end)
        report_epoch(r, p);
    else
        report_step(r, p);
    progress_step(r->line, p);
    r->reported = now_seconds();
    if (p->epoch_end && r->checkpoint && p->epoch + 1 < p->epochs && !*p->stop)
        STRATA_TRY(strata_model_save_checkpoint(r->model, p->epoch + 1, r->chief ? r->checkpoint : NULL, err));
    if (interrupted) *p->stop_now = true;
    return STRATA_OK;
}

/* ---- the parts ---- */

/* What one run of the command holds, freed together. */
typedef struct training {
    train_options options;
    const sample *sample;
    const char *name; /* as the user gave it */
    opened_strategy opened;
    strata_strategy *strategy; /* of `opened` */
    strata_model *model;
    int64_t batch; /* of all replicas */
    strata_auto_shard auto_shard;
    sample_data train, test, validation;
    fallback_report fallbacks[MOST_FALLBACKS];
    scores test_scores;    /* of own data */
    double *class_weights; /* NULL: 1 each */
    int n_class_weights;
    strata_history history;
    strata_metrics test_metrics;
    strata_metrics val_metrics; /* of the weights that the model ended with */
    char sha256[65];
    bool replicas_equal;
    double began, fit_began; /* seconds, of the command and of the fit */
    reporter reporter;
    double data_seconds; /* what reading the data took, between the two */
} training;

/* What was learned of the training data, for the part that is opened next. */
static void hand_on(sample_data *from, sample_data *to) {
    to->tokenizer = from->tokenizer;
    to->preprocessing = from->preprocessing;
    to->rest = from->rest;
    to->split = from->split;
    from->tokenizer = NULL;
    from->preprocessing = NULL;
    from->rest = NULL;
}

static int split_validation(training *t) {
    strata_error err = {0};
    strata_dataset *first = NULL;
    const strata_split_options opts = {.seed = (uint64_t)t->options.seed};
    strata_status status =
        strata_dataset_split(t->train.dataset, t->options.validation_split, &opts, &first, &t->validation.dataset, &err);
    if (status) return report(FAILING_USAGE, strata_fail_in(&err, status, "--validation-split"), &err);
    strata_dataset_destroy(t->train.dataset);
    t->train.dataset = first;
    return EXIT_OK;
}

static int open_validation(training *t) {
    data_options options = t->options.data;
    if (t->options.validation_split > 0) return split_validation(t);
    if (!t->options.validation) return EXIT_OK;
    options.path = t->options.validation;
    t->validation.whole = true;
    strata_dataset *rest = t->train.rest; /* which is for testing */
    t->train.rest = NULL;
    hand_on(&t->train, &t->validation);
    const int code = open_data(t->sample, &options, "test", &t->validation);
    hand_on(&t->validation, &t->train);
    t->train.rest = rest;
    return code;
}

static strata_flip_crop own_augment = {.flip = true, .padding = 2};

/* A tokenizer is made from the training texts, a preprocessing from own data; both are saved with the model. */
static int open_all(training *t) {
    strata_error err = {0};
    describe_inputs(t->model, &t->train);
    describe_inputs(t->model, &t->validation);
    describe_inputs(t->model, &t->test);
    int code = t->train.dataset ? EXIT_OK : open_data(t->sample, &t->options.data, "train", &t->train);
    if (!code) code = open_validation(t);
    if (code) return code;
    hand_on(&t->train, &t->test);
    code = open_data(t->sample, &t->options.data, "test", &t->test);
    if (!code) code = fit_model_to_data(t->sample, &t->train, &t->model);
    if (code) return code;
    strata_status status =
        t->test.preprocessing ? strata_model_set_preprocessing(t->model, t->test.preprocessing, &err) : STRATA_OK;
    if (!status && t->test.tokenizer) status = strata_model_set_tokenizer(t->model, t->test.tokenizer, &err);
    strata_flip_crop *augment = t->options.augment ? &own_augment : t->sample->augment;
    if (!status && augment) {
        status = strata_dataset_keep_bytes(t->train.dataset, &err);
        if (!status) status = strata_dataset_shuffle(&t->train.dataset, NULL, &err); /* a pipeline has an order of its own */
        if (!status) status = strata_dataset_map(&t->train.dataset, strata_augment_flip_crop, augment, NULL, &err);
    }
    if (status) return report(FAILING_DATA, status, &err);
    int64_t n = strata_dataset_size(t->train.dataset);
    if (t->batch > n && !t->options.json && t->opened.chief)
        fprintf(stderr, "strata: the batch of %lld is all of the %lld examples\n", (long long)t->batch, (long long)n);
    return EXIT_OK;
}

/* What the user or the model says, scaled by the replicas: from the plain rate to `replicas` times it within five epochs, or
 * the first fifth of fewer. */
static strata_optimizer choose_optimizer(const training *t) {
    const int replicas = strata_strategy_num_replicas_in_sync(t->strategy);
    const int64_t size = strata_dataset_size(t->train.dataset);
    strata_optimizer optimizer = strata_model_optimizer(t->model);
    if (!optimizer.name) optimizer = strata_adam_optimizer(0);
    if (t->options.learning_rate > 0) optimizer.learning_rate = t->options.learning_rate;
    if (t->options.accumulate) optimizer.gradient_accumulation_steps = t->options.accumulate;
    if (!t->options.scale_lr || replicas == 1) return optimizer;
    const int64_t examples = t->batch * (optimizer.gradient_accumulation_steps > 1 ? optimizer.gradient_accumulation_steps : 1);
    const int64_t steps = (size > 0 ? size + examples - 1 : examples) / examples;
    const int64_t fifth = steps * t->options.epochs / 5;
    optimizer.schedule.replicas = replicas;
    if (optimizer.schedule.warmup_steps) return optimizer;
    if (!optimizer.learning_rate) optimizer.learning_rate = strata_optimizer_default_rate(optimizer.name);
    optimizer.schedule.warmup_steps = 5 * steps < fifth ? 5 * steps : fifth;
    optimizer.schedule.warmup_from = optimizer.learning_rate / replicas;
    return optimizer;
}

static strata_status log_placement(const training *t, strata_error *err) {
    char *text = NULL;
    STRATA_TRY(strata_model_placement(t->model, t->batch, &text, err));
    fputs(text, stderr);
    free(text);
    return STRATA_OK;
}

/* Of each replica of this process. */
static strata_status say_fallbacks(training *t, strata_error *err) {
    const int n = strata_strategy_num_local_replicas(t->strategy);
    for (int r = 0; r < n && r < MOST_FALLBACKS; r++)
        STRATA_TRY(say_what_the_host_runs(t->model, STRATA_PART_TRAINING, t->batch, r, strata_strategy_device(t->strategy, r),
                                          &t->fallbacks[r], err));
    return STRATA_OK;
}

static void say_copies(training *t) {
    for (int r = 0; r < MOST_FALLBACKS; r++) say_what_it_copied(&t->fallbacks[r], "step");
}

/* Whether the tasks are those of parameter_server. */
static bool has_servers(const training *t) {
    return !strcmp(strata_strategy_name(t->strategy), "parameter_server");
}

/* Finds a checkpoint, and after how many epochs to go on: 0 where there is none. */
static int go_on(training *t, int *out_epochs) {
    strata_error err = {0};
    const char *path = t->options.checkpoint;
    *out_epochs = 0;
    if (!path || (has_servers(t) && !t->opened.chief)) return EXIT_OK; /* the chief tells its workers and servers */
    strata_status status = strata_model_load_checkpoint(t->model, path, out_epochs, &err);
    if (!status && *out_epochs >= t->options.epochs)
        status = strata_fail(&err, STRATA_DATA, "%s has %d epochs behind it; --epochs is %lld", path, *out_epochs,
                             (long long)t->options.epochs);
    if (status) return report(FAILING_DATA, status, &err);
    const int64_t steps = strata_model_epoch_steps(t->model);
    const bool says = t->opened.chief && !t->options.json;
    if (steps && says)
        printf("goes on in epoch %d after step %lld, from %s\n", *out_epochs + 1, (long long)steps, path);
    else if (*out_epochs && says)
        printf("goes on after epoch %d, from %s\n", *out_epochs, path);
    fflush(stdout);
    return EXIT_OK;
}

/* Of the last epoch as it was measured; of the best one anew, as it may have been before a restart. */
static strata_status measure_validation(training *t, strata_error *err) {
    if (!t->validation.dataset) return STRATA_OK;
    t->val_metrics = t->history.validation[t->history.n_epochs - 1];
    return t->options.restore_best ? strata_model_evaluate(t->model, t->validation.dataset, t->batch, &t->val_metrics, err)
                                   : STRATA_OK;
}

/* Where this worker's trace goes: of rank 0 the file itself, of rank 2 with ".rank2" before the name's ending. NULL where none
 * is asked for. */
static const char *trace_path(const training *t, char *out, size_t room) {
    const char *file = t->options.trace;
    const int rank = t->opened.communicator ? strata_communicator_rank(t->opened.communicator) : 0;
    if (!file || !rank) return file;
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file, *ending = strrchr(name, '.');
    if (!ending || ending == name) ending = file + strlen(file);
    snprintf(out, room, "%.*s.rank%d%s", (int)(ending - file), file, rank, ending);
    return out;
}

/* Ctrl-C has ended the training after a step, of all workers alike: what was asked for is written as things are now. */
static int stop_early(training *t, int epochs) {
    const int64_t steps = strata_model_epoch_steps(t->model);
    const char *save = t->options.save, *checkpoint = t->options.checkpoint;
    strata_error err = {0};
    strata_status status = STRATA_OK;
    progress_hide(t->reporter.line);
    if (checkpoint && (epochs || steps))
        status = strata_model_save_checkpoint(t->model, epochs, t->opened.chief ? checkpoint : NULL, &err);
    if (!status && save && t->opened.chief) status = strata_model_save(t->model, save, &err);
    if (status) return report(FAILING_DATA, status, &err);
    if (!t->opened.chief) return EXIT_INTERRUPTED;
    if (t->options.json) printf("{\"event\":\"interrupted\",\"epoch\":%d,\"step\":%lld}\n", epochs + 1, (long long)steps);
    fprintf(stderr, "strata: interrupted in epoch %d after step %lld\n", epochs + 1, (long long)steps);
    if (checkpoint) fprintf(stderr, "strata: the same command goes on there, from %s\n", checkpoint);
    if (save) fprintf(stderr, "strata: saved %s as it is now\n", save);
    if (!checkpoint && !save)
        fprintf(stderr, "strata: nothing was saved; --save FILE keeps the model, with --checkpoint FILE training can go on\n");
    return EXIT_INTERRUPTED;
}

static int fit(training *t) {
    char own_trace[4096];
    strata_error err = {0};
    strata_compile_options compile = {.seed = (uint64_t)t->options.seed,
                                      .metrics = t->options.metrics,
                                      .strategy = t->strategy,
                                      .gradient_norm = t->options.log != NULL,
                                      .optimizer = choose_optimizer(t)};
    strata_status status = strata_model_compile(t->model, NULL, &compile, &err);
    if (!status && t->options.log_device_placement) status = log_placement(t, &err);
    if (!status && t->options.device.allow_fallback) status = say_fallbacks(t, &err);
    if (status) return report(FAILING_RUN, status, &err);
    reporter *r = &t->reporter;
    r->quiet = t->options.json || !t->opened.chief;
    r->json = t->options.json;
    r->classifies = classifies(t->model);
    r->patience = t->options.patience;
    r->model = t->model;
    r->strategy = t->strategy;
    r->checkpoint = t->options.checkpoint;
    r->chief = t->opened.chief;
    r->began = t->began;
    r->log_every = t->options.log_every ? t->options.log_every : 1;
    strata_fit_options opts = {.epochs = (int)t->options.epochs,
                               .batch = t->batch,
                               .auto_shard = t->auto_shard,
                               .trace = trace_path(t, own_trace, sizeof own_trace),
                               .steps_per_execution = t->options.together,
                               .steps_per_epoch = t->options.steps_per_epoch,
                               .seed = (uint64_t)t->options.seed,
                               .class_weights = t->class_weights,
                               .n_class_weights = t->n_class_weights,
                               .validation = t->validation.dataset,
                               .patience = (int)t->options.patience,
                               .restore_best = t->options.restore_best,
                               .on_progress = on_progress,
                               .user = r};
    int code = go_on(t, &opts.first_epoch);
    if (code) return code;
    opts.first_step = strata_model_epoch_steps(t->model);
    if (t->options.log && r->chief)
        code = run_log_open(&r->log, t->options.log, opts.first_epoch || opts.first_step, r->classifies);
    if (code) return code;
    const int64_t accumulates = compile.optimizer.gradient_accumulation_steps;
    if (r->chief)
        r->line = progress_begin(
            &(progress_options){.batch = t->batch * (accumulates > 1 ? accumulates : 1), .classifies = r->classifies});
    if (r->line || r->log.file) opts.metrics_seconds = 1e-9;
    tells_of_interrupt = r->chief && isatty(STDERR_FILENO);
    signal(SIGINT, on_interrupt);
    t->fit_began = r->reported = now_seconds();
    progress_say(r->line, "the first step ...");
    status = strata_model_fit(t->model, t->train.dataset, &opts, &t->history, &err);
    say_copies(t);
    say_notices(r);
    if (!status && t->history.stopped) return stop_early(t, opts.first_epoch + t->history.n_epochs);
    if (!status && !t->opened.chief && has_servers(t)) return EXIT_OK; /* the chief has the rest to do */
    progress_say(r->line, "evaluating the test examples ...");
    if (!status) status = measure_validation(t, &err);
    if (!status) status = strata_model_evaluate(t->model, t->test.dataset, 0, &t->test_metrics, &err);
    if (!status && t->test.preprocessing)
        status = scores_measure(t->model, t->test.dataset, t->test.preprocessing, 0, &t->test_scores, &err);
    if (!status) status = strata_model_replicas_equal(t->model, &t->replicas_equal, &err);
    if (!status) status = strata_model_sha256(t->model, t->sha256, &err);
    progress_hide(r->line);
    if (status) return report(FAILING_RUN, status, &err);
    if (r->log.file) run_log_add_test(&r->log, &t->test_metrics);
    status = t->options.save && t->opened.chief ? strata_model_save(t->model, t->options.save, &err) : STRATA_OK;
    if (!status && r->checkpoint && r->chief) unlink(r->checkpoint);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of the epochs after the first, which compiles kernels; of a single epoch, its own time. */
static double median_epoch(const strata_history *h) {
    int first = h->n_epochs > 1 ? 1 : 0, n = h->n_epochs - first;
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return h->epoch_seconds[first];
    memcpy(sorted, h->epoch_seconds + first, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return median;
}

/* Of all replicas of this process. */
static void print_fallbacks(const training *t) {
    double copies = 0, bytes = 0;
    int n_host = 0;
    for (int r = 0; r < MOST_FALLBACKS; r++) {
        n_host += t->fallbacks[r].n_host;
        copies += t->fallbacks[r].copies;
        bytes += t->fallbacks[r].bytes;
    }
    if (t->options.device.allow_fallback)
        printf(",\"host_nodes\":%d,\"copies_per_step\":%.1f,\"copy_bytes_per_step\":%.0f", n_host, copies, bytes);
}

static void print_strategy(const training *t) {
    const int n = strata_strategy_num_local_replicas(t->strategy);
    const strata_communication_totals c = strata_model_communication(t->model);
    printf(",\"strategy\":\"%s\",\"devices\":[", strata_strategy_name(t->strategy));
    for (int r = 0; r < n; r++) {
        if (r) printf(",");
        print_json_string(strata_device_get_info(strata_strategy_device(t->strategy, r))->id);
    }
    printf("],\"replicas\":%d,\"replica_weights_equal\":%s,\"imbalance\":%.4f",
           strata_strategy_num_replicas_in_sync(t->strategy), t->replicas_equal ? "true" : "false", c.imbalance);
    printf(",\"comm_s\":%.6f,\"comm_hidden\":%.4f,\"comm_bytes_per_step\":%.0f", c.seconds, c.hidden, c.bytes_per_step);
    if (strata_strategy_num_workers(t->strategy) > 1) printf(",\"wire_bytes_per_step\":%.0f", c.wire_bytes_per_step);
    print_fallbacks(t);
}

/* What workers and servers did. */
static void print_servers_json(const training *t) {
    const strata_parameter_server_totals totals = strata_strategy_parameter_server_totals(t->strategy);
    if (!has_servers(t)) return;
    printf(",\"servers\":%d,\"staleness_mean\":%.4f,\"staleness_max\":%lld", totals.servers, totals.staleness_mean,
           (long long)totals.staleness_max);
    printf(",\"stragglers\":%d,\"queue_running\":%d,\"queue_waiting\":%d", totals.stragglers, totals.running, totals.waiting);
    printf(",\"workers_lost\":%lld,\"workers_joined\":%lld,\"gradients_late\":%lld,\"gradients_refused\":%lld",
           (long long)totals.lost, (long long)totals.joined, (long long)totals.late, (long long)totals.refused);
}

static void print_servers(const training *t) {
    const strata_parameter_server_totals totals = strata_strategy_parameter_server_totals(t->strategy);
    if (!has_servers(t)) return;
    printf(" of the chief, with %d workers and %d servers; updates were %.2f versions old, at most %lld", totals.workers,
           totals.servers, totals.staleness_mean, (long long)totals.staleness_max);
    if (totals.lost) printf("; workers were lost %lld times", (long long)totals.lost);
}

/* " and 2 other workers, 407 kB sent a step, 12 % of its exchange hidden" */
static void print_workers(const training *t) {
    const int others = strata_strategy_num_workers(t->strategy) - 1;
    const strata_communication_totals c = strata_model_communication(t->model);
    if (others > 0)
        printf(" and %d other worker%s, %sB sent a step, %.0f %% of its exchange hidden", others, others == 1 ? "" : "s",
               readable(c.wire_bytes_per_step).text, 100 * c.hidden);
}

/* "best epoch 3, whose weights were kept: val_loss 0.21" */
static void print_best(const training *t) {
    const strata_history *h = &t->history;
    if (!t->validation.dataset || h->best_epoch < 0) return;
    printf("best epoch %d", h->best_epoch + 1);
    if (t->options.restore_best) printf(", whose weights were kept: val_loss %.4g", t->val_metrics.loss);
    printf("\n");
}

static void print_validation_json(const training *t) {
    const strata_history *h = &t->history;
    if (!h->validation) return;
    printf(",\"val_loss\":");
    print_json_number(t->val_metrics.loss, "%.9g");
    printf(",\"val_accuracy\":%.6f,\"val_losses\":[", t->val_metrics.accuracy);
    for (int i = 0; i < h->n_epochs; i++) {
        if (i) printf(",");
        print_json_number(h->validation[i].loss, "%.9g");
    }
    printf("],\"best_epoch\":%d", h->best_epoch + 1);
}

static void print_result(const training *t) {
    const strata_history *h = &t->history;
    double epoch_s = median_epoch(h), rate = (double)strata_dataset_size(t->train.dataset) / epoch_s;
    if (!t->options.json) {
        print_best(t);
        print_metrics(t->model, &t->test_metrics);
        print_more(&t->test_metrics, "");
        printf(", %.0f samples/s on", rate);
        for (int r = 0; r < strata_strategy_num_local_replicas(t->strategy); r++)
            printf("%s %s", r ? "," : "", strata_device_get_info(strata_strategy_device(t->strategy, r))->id);
        print_workers(t);
        print_servers(t);
        printf("\n");
        print_confusion(t->model);
        print_number_scores(&t->test_scores);
        print_hint(&t->test_scores, t->sample, t->test.preprocessing);
        if (t->options.save) printf("saved %s\n", t->options.save);
        return;
    }
    printf("{\"event\":\"result\",\"sample\":");
    print_json_string(strata_model_label(t->model)[0] ? strata_model_label(t->model) : t->name);
    print_strategy(t);
    print_servers_json(t);
    const int n_workers = has_servers(t) ? strata_strategy_parameter_server_totals(t->strategy).workers
                                         : strata_strategy_num_workers(t->strategy);
    printf(",\"workers\":%d,\"batch\":%lld,\"epochs\":%d,\"steps\":%lld", n_workers, (long long)t->batch, h->n_epochs,
           (long long)h->n_steps);
    printf(",\"data_s\":%.4f,\"start_to_first_step_s\":%.4f", t->data_seconds, t->fit_began - t->began + h->first_step_seconds);
    printf(",\"precision\":\"%s\",\"steps_skipped\":%lld", precision_of(t->model), (long long)h->n_skipped);
    printf(",\"first_step_s\":%.4f,\"epoch_s\":%.6f,\"samples_per_s\":%.1f,\"losses\":[", h->first_step_seconds, epoch_s, rate);
    for (int i = 0; i < h->n_losses; i++) printf("%s%.9g", i ? "," : "", (double)h->losses[i]);
    const strata_metrics *trained = &h->epochs[h->n_epochs - 1], *tested = &t->test_metrics;
    printf("],\"loss\":%.9g,\"train_loss\":%.9g,\"train_accuracy\":%.6f", trained->loss, trained->loss, trained->accuracy);
    printf(",\"accuracy\":%.6f,\"test_accuracy\":%.6f,\"test_examples\":%lld,\"test_loss\":", tested->accuracy,
           tested->accuracy, (long long)tested->examples);
    print_json_number(tested->loss, "%.9g");
    print_validation_json(t);
    print_more_json(t->model, &t->test_metrics);
    print_scores_json(&t->test_scores, t->sample, t->test.preprocessing);
    printf(",\"weights_sha256\":\"%s\",\"peak_rss_mib\":%lld}\n", t->sha256, (long long)peak_rss_mib());
}

/* Whether a file could be made at `path`, so that nobody learns after the training that it can't. */
static int check_save(const char *option, const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    struct stat info;
    int code = EXIT_OK;
    if (!folder || access(folder, W_OK | X_OK))
        usage_error("--%s %s: cannot write in %s: %s", option, path, folder ? folder : path, strerror(errno)), code = EXIT_DATA;
    else if (!stat(path, &info) && S_ISDIR(info.st_mode))
        usage_error("--%s %s: it is a folder; give the name of a file", option, path), code = EXIT_DATA;
    free(folder);
    return code;
}

/* "1,2.5,0": how many there must be, the fit says. */
static int read_class_weights(const char *list, training *t) {
    int n = 1;
    if (!list) return EXIT_OK;
    for (const char *at = list; *at; at++) n += *at == ',';
    t->class_weights = calloc((size_t)n, sizeof *t->class_weights);
    if (!t->class_weights) return usage_error("--class-weights: no memory for %d numbers", n), EXIT_INTERNAL;
    for (int i = 0; i < n; i++) {
        char *end;
        t->class_weights[i] = strtod(list, &end);
        if (end == list || *end != (i + 1 < n ? ',' : 0))
            return usage_error("--class-weights %s: number %d is none; give one for each class, as 1,2,0.5",
                               t->options.class_weights, i + 1);
        list = end + 1;
    }
    t->n_class_weights = n;
    return EXIT_OK;
}

static void choose_defaults(training *t) {
    enum { EPOCHS = 5, BATCH = 64 };
    int64_t epochs = t->sample->epochs ? t->sample->epochs : EPOCHS, batch = t->sample->batch ? t->sample->batch : BATCH;
    if (t->train.dataset) own_defaults(t->train.preprocessing, strata_dataset_size(t->train.dataset), &epochs, &batch);
    if (!t->options.epochs) t->options.epochs = epochs;
    if (!t->options.batch) t->options.batch = batch;
    t->batch = t->options.global_batch ? t->options.global_batch
                                       : t->options.batch * strata_strategy_num_replicas_in_sync(t->strategy);
}

/* What the data are, when they do not say it by themselves. */
static void print_source(const training *t) {
    const char *source = strata_dataset_source(t->train.dataset);
    if (t->test.preprocessing) {
        printf("\n");
        print_own(&t->options.data, &t->test, t->train.dataset, t->test.dataset);
        return;
    }
    if (!t->options.data.path) printf(", with %s", t->sample->made);
    printf("\n");
    if (*source) printf("%s\n", source);
}

/* "mnist on opencl:0 (a processor)", "mnist: mirrored on opencl:0, vulkan:0: as asked for" */
static void print_start(const training *t) {
    const strata_device_info *info = strata_device_get_info(strata_strategy_device(t->strategy, 0));
    if (t->options.strategy.name || t->options.strategy.devices)
        printf("%s: %s", t->name, strata_strategy_choice(t->strategy));
    else
        printf("%s on %s (%s)", t->name, info->id, info->name);
    print_source(t);
}

/* A hint is a place that the program which builds the dataset marks; the command's datasets have none. */
static int read_auto_shard(training *t) {
    static const struct {
        const char *name;
        strata_auto_shard policy;
    } policies[] = {
        {"data", STRATA_SHARD_DATA}, {"file", STRATA_SHARD_FILE}, {"off", STRATA_SHARD_OFF}, {"auto", STRATA_SHARD_AUTO}};
    const char *name = t->options.auto_shard;
    for (size_t i = 0; name && i < sizeof policies / sizeof *policies; i++)
        if (!strcmp(name, policies[i].name)) {
            t->auto_shard = policies[i].policy;
            return EXIT_OK;
        }
    if (name && !strcmp(name, "hint"))
        return usage_error(
            "--auto-shard hint: the command's data have no mark for it. A dataset that is built in C has one by "
            "strata_dataset_shard_hint (strata/pipeline.h), and .auto_shard = STRATA_SHARD_HINT in the options of "
            "strata_model_fit; here it is data, file, off or auto");
    return name ? usage_error("--auto-shard %s: it is data, file, off or auto", name) : EXIT_OK;
}

static int check_validation(const train_options *o) {
    const char *needs = o->patience ? "patience" : o->restore_best ? "restore-best" : NULL;
    if (o->validation && o->validation_split > 0) return usage_error("give --validation or --validation-split, not both");
    if (needs && !o->validation && !(o->validation_split > 0))
        return usage_error("--%s looks at the loss on validation data; give --validation-split F or --validation DIR", needs);
    return EXIT_OK;
}

/* A sample, or a model of the user's own. */
static int open_named(training *t) {
    const char *alone = t->options.model ? "model" : t->options.from ? "from" : NULL;
    if (alone)
        return usage_error("--%s is for data of your own, strata train DATA --%s %s; \"%s\" is no file or folder of data",
                           alone, alone, t->options.model ? t->options.model : t->options.from, t->name);
    int code = open_model(t->name, false, &t->model);
    if (!code) code = apply_settings(&t->options.set, &t->model);
    if (!code) t->sample = sample_of_model(t->model, &t->options.data);
    return code;
}

/* The layers that --freeze names stay as the file has them. */
static int freeze_layers(training *t) {
    strata_error err = {0};
    strata_status status = STRATA_OK;
    char *names = t->options.freeze ? strdup(t->options.freeze) : NULL, *rest = names;
    for (char *name = strsep(&rest, ","); name && !status; name = strsep(&rest, ","))
        status = strata_model_freeze(t->model, name, &err);
    free(names);
    return status ? report(FAILING_USAGE, status, &err) : EXIT_OK;
}

/* The model of --from, whose preprocessing the data go through. */
static int open_from(training *t) {
    strata_error err = {0};
    if (t->options.model || t->options.set.n)
        return usage_error("--%s makes a new model, and --from trains one further; give one of them",
                           t->options.model ? "model" : "set");
    strata_status status = strata_model_load(t->options.from, &t->model, &err);
    if (status) return report(FAILING_DATA, status, &err);
    t->sample = sample_of_model(t->model, &t->options.data);
    int code = recall_data(t->model, t->sample, &t->train);
    if (!code && !t->train.preprocessing)
        code = usage_error("--from %s: it has no preprocessing, as it was not trained on data of your own", t->options.from);
    return code ? code : freeze_layers(t);
}

/* Data first: the model is made for them, unless --from names one. */
static int open_own_data(training *t) {
    if (t->options.data.path) return usage_error("%s and --data %s: give the data once", t->name, t->options.data.path);
    t->options.data.path = t->name;
    if (t->options.freeze && !t->options.from)
        return usage_error("--freeze keeps layers of a trained model; name it with --from");
    int code = t->options.from ? open_from(t) : EXIT_OK;
    if (!code) t->sample = own_sample();
    if (!code) code = open_data(t->sample, &t->options.data, "train", &t->train);
    if (!code && !t->model)
        code = make_own_model(t->options.model, t->train.preprocessing, strata_dataset_size(t->train.dataset), &t->model);
    return code ? code : apply_settings(&t->options.set, &t->model);
}

static int train(training *t) {
    t->options.data.seed = t->options.seed;
    int code = check_validation(&t->options);
    if (!code) code = read_auto_shard(t);
    if (!code && t->options.save) code = check_save("save", t->options.save);
    if (!code && t->options.checkpoint) code = check_save("checkpoint", t->options.checkpoint);
    if (!code && t->options.log) code = run_log_check(t->options.log);
    if (!code && t->options.log) code = check_save("log", t->options.log);
    if (!code && t->options.log_every && !t->options.log)
        code = usage_error("--log-every says how often --log FILE gets a row");
    if (!code) code = is_own_data(t->name) ? open_own_data(t) : open_named(t);
    if (!code && t->options.write_model) code = write_model_json(t->model, t->options.write_model);
    if (!code) code = read_class_weights(t->options.class_weights, t);
    if (!code) code = set_precision(t->model, t->options.precision);
    if (!code && t->options.batch && t->options.global_batch) code = usage_error("give --batch or --global-batch, not both");
    t->options.device.on_compile = on_compile;
    t->options.device.user = &t->reporter;
    if (!code) code = open_strategy(&t->options.strategy, &t->options.device, &t->opened);
    t->strategy = t->opened.strategy;
    if (!code) choose_defaults(t);
    const double opening = now_seconds();
    if (!code) code = open_all(t);
    t->data_seconds = now_seconds() - opening;
    if (!code && !t->options.json && t->opened.chief) print_start(t);
    fflush(stdout);
    if (!code) code = fit(t);
    progress_end(t->reporter.line);
    if (!code && t->opened.chief) print_result(t);
    const int closed = run_log_close(&t->reporter.log);
    if (!code) code = closed;
    return code;
}

static int run(const command *command, int argc, char **argv) {
    training t = {.began = now_seconds()};
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &t.options, &t.name, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    code = train(&t);
    strata_history_finish(&t.history);
    scores_finish(&t.test_scores);
    free(t.class_weights);
    strata_model_destroy(t.model);
    close_strategy(&t.opened);
    close_data(&t.train);
    close_data(&t.validation);
    close_data(&t.test);
    return code;
}

const command command_train = {
    .name = "train",
    .arguments = "DATA|MODEL.json|NAME",
    .summary = "train on data of your own, a model of your own, or a sample",
    .details =
        "strata train flowers.csv                    a table: its last column, or --label, is learned\n"
        "strata train photos/                        a folder with a folder of pictures for each class\n"
        "strata train data.npz                       arrays x and y, or x_train, y_train, x_test, y_test\n"
        "strata train MODEL.json --data DATA         a model of your own (strata help layers)\n"
        "strata train --from M.strata more.csv       a trained model further\n",
    .print_more = print_samples,
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run,
};
