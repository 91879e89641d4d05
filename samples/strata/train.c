/* SPDX-License-Identifier: Apache-2.0
 *
 * strata train: trains a sample or the user's own model on the best device or the given one. */
#include "train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const option_row train_rows[] = {
    OPTION_GROUP("data"),
    DATA_OPTION_ROWS(train_options, data),
    {"learn", "KIND", "own data: classification or regression (as the label looks)", OPTION_TEXT,
     offsetof(train_options, data.task), 0, 0},
    {"test-split", "F", "own data: the share that is kept for testing (0.2)", OPTION_NUMBER,
     offsetof(train_options, data.test_split), 1e-12, 1},
    {"size", "N", "pictures: rows and columns that all are brought to (their own where they are all alike, at most 64)",
     OPTION_INT, offsetof(train_options, data.size), 1, 4096},
    {"augment", NULL, "pictures: learn from each flipped left to right and moved a little, at random", OPTION_FLAG,
     offsetof(train_options, augment), 0, 0},
    {"subwords", NULL, "texts: cut words into pieces, so that no word is unknown", OPTION_FLAG,
     offsetof(train_options, data.subwords), 0, 0},
    {"validation-split", "F", "this share of the examples of each class is not trained on but evaluated after each epoch (0)",
     OPTION_NUMBER, offsetof(train_options, validation_split), 1e-12, 1},
    {"validation", "DIR", "evaluate these after each epoch: a CSV file, or the test part of a folder such as --data takes",
     OPTION_TEXT, offsetof(train_options, validation), 0, 0},
    OPTION_GROUP("model"),
    {"model", "KIND", "own data: mlp, cnn, resnet, text or attention (as suits the data)", OPTION_TEXT,
     offsetof(train_options, model), 0, 0},
    {"set", "PATH=VALUE", "another value in the model's JSON: layers.0.units=64; may be given several times", OPTION_LIST,
     offsetof(train_options, set), 0, 0},
    {"from", "MODEL.strata", "own data: train this model further, with its preprocessing", OPTION_TEXT,
     offsetof(train_options, from), 0, 0},
    {"freeze", "A,B", "the layers of these names stay as they are, with --from: strata summary lists them", OPTION_TEXT,
     offsetof(train_options, freeze), 0, 0},
    {"precision", "TYPE", "what activations are stored in: f32, f16 or bf16 (the model's own, else f32)", OPTION_TEXT,
     offsetof(train_options, precision), 0, 0},
    OPTION_GROUP("training"),
    {"epochs", "N", "times over the data (as the sample says, else 5)", OPTION_INT, offsetof(train_options, epochs), 1, 1e6},
    {"batch", "N", "examples a step, on each replica (as the sample says, else 64)", OPTION_INT, offsetof(train_options, batch),
     1, 1e12},
    {"global-batch", "N", "examples a step, of all replicas together", OPTION_INT, offsetof(train_options, global_batch), 1,
     1e12},
    {"steps-per-epoch", "N", "steps of an epoch at most; the rest of its data is left out (all)", OPTION_INT,
     offsetof(train_options, steps_per_epoch), 1, 1e12},
    {"accumulate", "N", "steps of N batches, whose gradients are added up (as the model says, else 1)", OPTION_INT,
     offsetof(train_options, accumulate), 1, 1e6},
    {"learning-rate", "R", "of the optimizer (as the model says)", OPTION_NUMBER, offsetof(train_options, learning_rate), 1e-12,
     1e6},
    {"patience", "N", "end when the loss on validation data has not fallen for N epochs (never)", OPTION_INT,
     offsetof(train_options, patience), 1, 1e6},
    {"reduce-on-plateau", "F:N",
     "learning rate times F when the loss, on validation data if there are some, has not fallen for N "
     "epochs, as 0.5:3 (never)",
     OPTION_TEXT, offsetof(train_options, plateau), 0, 0},
    {"restore-best", NULL,
     "end with the weights of the epoch whose loss on validation data was the least; an evaluator task writes that model "
     "beside --save, with .best before its ending",
     OPTION_FLAG, offsetof(train_options, restore_best), 0, 0},
    {"class-weights", "1,2,...", "what an example's loss counts, by its class (1 each)", OPTION_TEXT,
     offsetof(train_options, class_weights), 0, 0},
    {"metrics", "A,B", "besides loss and accuracy: top_5_accuracy, precision, recall, auc, confusion_matrix, mae", OPTION_TEXT,
     offsetof(train_options, metrics), 0, 0},
    {"seed", "N", "of weights, shuffles and dropout (0)", OPTION_INT, offsetof(train_options, seed), 0, 9e15},
    {"profile", "A:B",
     "measure steps A to B, counted from 1, and print where their time went; the others run as ever (strata trace reads what "
     "--trace FILE keeps of it)",
     OPTION_TEXT, offsetof(train_options, profile), 0, 0},
    {"debug", "nan|determinism",
     "nan: end at the first step with a gradient that is not finite, and tell which tensor that began with; determinism: "
     "compute "
     "each step twice and compare the bits",
     OPTION_TEXT, offsetof(train_options, debug), 0, 0},
    OPTION_GROUP("devices"),
    DEVICE_OPTION_ROWS(train_options, device),
    OPTION_GROUP("distribution"),
    {"strategy", "NAME", "default, one_device, mirrored, multi_worker_mirrored, central_storage, parameter_server, tpu or auto",
     OPTION_TEXT, offsetof(train_options, strategy.name), 0, 0},
    {"devices", "A,B", "of the strategy, one a replica (mirrored: all accelerators)", OPTION_TEXT,
     offsetof(train_options, strategy.devices), 0, 0},
    {"tpu-address", "local|NAME", "tpu: the system of cores, by its name or its plugin's (TPU_NAME, else local)", OPTION_TEXT,
     offsetof(train_options, strategy.tpu_address), 0, 0},
    {"check-every", "N",
     "steps after which a random node is compared with the reference again; -1: never (10000, at most 0.1 % of the time)",
     OPTION_INT, offsetof(train_options, check_every), -1, 1e15},
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
    {"cluster-role", "ROLE",
     "with --cluster: what this task is, chief, worker, ps or evaluator; --task has the number (as --task says)", OPTION_TEXT,
     offsetof(train_options, strategy.role), 0, 0},
    {"staleness", "N", "parameter_server: no worker is more than N steps ahead of the slowest; 0 is --sync (no limit)",
     OPTION_TEXT, offsetof(train_options, strategy.staleness), 0, 0},
    {"sync", NULL, "parameter_server: a step is one update with the gradients of all workers", OPTION_FLAG,
     offsetof(train_options, strategy.sync), 0, 0},
    {"backup", "N", "with --sync: a step does not wait for the N slowest workers, whose gradients do not count then (0)",
     OPTION_INT, offsetof(train_options, strategy.backup), 0, 1024},
    {"ps-replicas", "N",
     "parameter_server: 1 keeps a copy of each server's shards on the next server, so that a server may be lost (0)",
     OPTION_INT, offsetof(train_options, strategy.ps_replicas), 0, 1},
    {"old-gradients", "plain|corrected",
     "parameter_server: corrected has gradients of old parameters count less, and workers pull parameters moved ahead (plain)",
     OPTION_TEXT, offsetof(train_options, strategy.old_gradients), 0, 0},
    {"evaluator-wait", "S", "the evaluator task: it fails when there is no new --checkpoint for so many seconds (3600)",
     OPTION_NUMBER, offsetof(train_options, evaluator_wait_s), 0.1, 1e9},
    {"partitioner", "RULE",
     "parameter_server: cuts parameters into shards, fixed:N, min_size:BYTES or max_size:BYTES, as 256K or 4M (they stay "
     "whole)",
     OPTION_TEXT, offsetof(train_options, strategy.partitioner), 0, 0},
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
    OPTION_GROUP("output"),
    {"save", "FILE", "write the trained model there", OPTION_TEXT, offsetof(train_options, save), 0, 0},
    {"save-best", "FILE",
     "write the model there after each epoch whose loss, on validation data if there are some, is the least so far",
     OPTION_TEXT, offsetof(train_options, save_best), 0, 0},
    {"checkpoint", "FILE|DIR",
     "write there after each epoch, and at Ctrl-C or SIGTERM, what it takes to go on. A file: go on from it where it is, and "
     "remove it at the end (the evaluator task does, where there is one). A folder: go on with --resume",
     OPTION_TEXT, offsetof(train_options, checkpoint), 0, 0},
    {"every", "N|30s", "a checkpoint in the folder of --checkpoint after every N steps, or so many seconds (each epoch)",
     OPTION_TEXT, offsetof(train_options, every), 0, 0},
    {"keep", "K", "how many checkpoints the folder keeps, the newest (3)", OPTION_INT, offsetof(train_options, keep), 1, 1e6},
    {"resume", NULL, "go on from the newest checkpoint in the folder that is whole; begin where there is none", OPTION_FLAG,
     offsetof(train_options, resume), 0, 0},
    {"stop-after", "N", "end this run behind epoch N of --epochs, and leave --checkpoint for the same command to go on from",
     OPTION_INT, offsetof(train_options, stop_after), 1, 1e6},
    {"write-model", "FILE", "write the model's JSON there, to be edited", OPTION_TEXT, offsetof(train_options, write_model), 0,
     0},
    {"log", "FILE",
     "write a row a step and epoch there: .jsonl, or .csv; also measures the norms of gradients and weights (strata plot FILE)",
     OPTION_TEXT, offsetof(train_options, log), 0, 0},
    {"tensorboard", "DIR",
     "write event files there: numbers of steps and epochs, histograms, the model; the steps of --profile (tensorboard "
     "--logdir DIR)",
     OPTION_TEXT, offsetof(train_options, tensorboard), 0, 0},
    {"log-every", "N", "with --log and --tensorboard: every N steps (1)", OPTION_INT, offsetof(train_options, log_every), 1,
     1e12},
    {"trace", "FILE",
     "write what ran when there, for chrome://tracing or ui.perfetto.dev; worker 2 of several: with .rank2 before its ending, "
     "tasks of parameter_server: .worker2, .ps0",
     OPTION_TEXT, offsetof(train_options, trace), 0, 0},
    {"log-device-placement", NULL, "say where each variable, node and exchange is, on stderr", OPTION_FLAG,
     offsetof(train_options, log_device_placement), 0, 0},
    {"json", NULL,
     "a line of JSON an epoch and one at the end: train_..., val_..., test_... say of which data; loss is train_loss, accuracy "
     "test_accuracy",
     OPTION_FLAG, offsetof(train_options, json), 0, 0},
    {0}};

/* ---- the fit ---- */

static strata_status add_callbacks(training *t, strata_error *err) {
    if (t->options.plateau) STRATA_TRY(strata_model_add_callback(t->model, strata_reduce_on_plateau(t->plateau), err));
    if (!t->options.save_best || !t->opened.chief) return STRATA_OK;
    const strata_saver_options saver = {.path = t->options.save_best, .best = true};
    return strata_model_add_callback(t->model, strata_model_saver(saver), err);
}

/* The optimizer of the user or the model. Its learning rate is scaled by the number of replicas: it rises from the plain rate
 * to `replicas` times this rate within five epochs, or within the first fifth of the epochs if they are few. */
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
bool has_servers(const training *t) {
    return !strcmp(strata_strategy_name(t->strategy), "parameter_server");
}

/* Finds a checkpoint, and after how many epochs to go on: 0 where there is none. */
static int go_on(training *t, int *out_epochs) {
    strata_error err = {0};
    const char *path = t->options.checkpoint;
    *out_epochs = 0;
    if (t->in_folder && !t->options.resume) return EXIT_OK;            /* the fit says it where there are checkpoints already */
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
    if (!t->history.validation) return STRATA_OK;
    if (t->history.n_epochs) t->val_metrics = t->history.validation[t->history.n_epochs - 1];
    return t->options.restore_best || !t->history.n_epochs
               ? strata_model_evaluate(t->model, t->validation.dataset, t->batch, &t->val_metrics, err)
               : STRATA_OK;
}

void name_beside(const char *file, const char *what, char *out, size_t room) {
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file, *ending = strrchr(name, '.');
    if (!ending || ending == name) ending = file + strlen(file);
    snprintf(out, room, "%.*s.%s%s", (int)(ending - file), file, what, ending);
}

/* Where this worker's trace goes: of rank 0 the file itself, of rank 2 with ".rank2" before the name's ending. NULL where none
 * is asked for. */
static const char *trace_path(training *t) {
    const char *file = t->options.trace;
    const int rank = t->opened.communicator ? strata_communicator_rank(t->opened.communicator) : 0;
    char of_rank[24];
    snprintf(of_rank, sizeof of_rank, "rank%d", rank);
    if (!file) return NULL;
    if (!rank && !*t->opened.task)
        snprintf(t->trace_file, sizeof t->trace_file, "%s", file);
    else
        name_beside(file, rank ? of_rank : t->opened.task, t->trace_file, sizeof t->trace_file);
    return t->trace_file;
}

static const char *with_resume(const training *t) {
    return t->in_folder && !t->options.resume ? "with --resume " : "";
}

/* --stop-after: there is no result yet. */
static int say_paused(training *t, int epochs) {
    t->paused = true;
    if (!t->opened.chief) return EXIT_OK;
    if (t->options.json)
        printf("{\"event\":\"paused\",\"epochs\":%d}\n", epochs);
    else
        printf("paused after epoch %d; the same command %sgoes on from %s\n", epochs, with_resume(t), t->options.checkpoint);
    return EXIT_OK;
}

/* Ctrl-C or --stop-after has ended the training after a step, of all workers alike: what was asked for is written as things are
 * now. */
static int stop_early(training *t, int epochs) {
    const int64_t steps = strata_model_epoch_steps(t->model);
    const char *save = t->options.save, *checkpoint = t->options.checkpoint;
    strata_error err = {0};
    strata_status status = STRATA_OK;
    progress_hide(t->reporter.line);
    if (checkpoint && !t->in_folder && (epochs || steps)) /* the fit itself writes in a folder */
        status = strata_model_save_checkpoint(t->model, epochs, t->opened.chief ? checkpoint : NULL, &err);
    if (!status && save && t->opened.chief) status = strata_model_save(t->model, save, &err);
    if (status) return report(FAILING_DATA, status, &err);
    /* Another worker's Ctrl-C ends this one too; --stop-after ends between epochs. */
    if (!was_interrupted() && t->options.stop_after && !steps) return say_paused(t, epochs);
    if (!t->opened.chief) return interrupt_code();
    if (t->options.json) printf("{\"event\":\"interrupted\",\"epoch\":%d,\"step\":%lld}\n", epochs + 1, (long long)steps);
    fprintf(stderr, "strata: interrupted in epoch %d after step %lld\n", epochs + 1, (long long)steps);
    if (checkpoint) fprintf(stderr, "strata: the same command %sgoes on there, from %s\n", with_resume(t), checkpoint);
    if (save) fprintf(stderr, "strata: saved %s as it is now\n", save);
    if (!checkpoint && !save)
        fprintf(stderr, "strata: nothing was saved; --save FILE keeps the model, with --checkpoint FILE training can go on\n");
    return interrupt_code();
}

static int choose_debugging(train_options *options) {
    const char *what = options->debug;
    if (!what) return EXIT_OK;
    options->debug_nan = !strcmp(what, "nan");
    options->debug_determinism = !strcmp(what, "determinism");
    if (options->debug_nan || options->debug_determinism) return EXIT_OK;
    return usage_error("train: --debug \"%s\" is not known; it is nan or determinism", what);
}

static int fit(training *t) {
    strata_error err = {0};
    strata_compile_options compile = {.seed = (uint64_t)t->options.seed,
                                      .metrics = t->options.metrics,
                                      .strategy = t->strategy,
                                      .gradient_norm = t->options.log || t->options.debug_nan,
                                      .optimizer = choose_optimizer(t)};
    strata_status status = strata_model_compile(t->model, NULL, &compile, &err);
    if (!status) status = add_callbacks(t, &err);
    if (!status && t->options.log_device_placement) status = log_placement(t, &err);
    if (!status && t->options.device.allow_fallback) status = say_fallbacks(t, &err);
    if (status) return report(FAILING_RUN, status, &err);
    if (t->opened.evaluates) return evaluate_beside(t);
    reporter *r = &t->reporter;
    r->quiet = t->options.json || !t->opened.chief;
    r->json = t->options.json;
    r->classifies = classifies(t->model);
    r->patience = t->options.patience;
    r->stop_after = t->options.stop_after < t->options.epochs ? t->options.stop_after : 0;
    r->model = t->model;
    r->strategy = t->strategy;
    r->checkpoint = t->in_folder ? NULL : t->options.checkpoint;
    r->chief = t->opened.chief;
    r->has_servers = has_servers(t);
    r->has_evaluator = t->opened.has_evaluator;
    r->began = t->began;
    r->log_every = t->options.log_every ? t->options.log_every : 1;
    strata_fit_options opts = {.epochs = (int)t->options.epochs,
                               .batch = t->batch,
                               .auto_shard = t->auto_shard,
                               .trace = trace_path(t),
                               .trace_first = t->options.profile_first,
                               .trace_last = t->options.profile_last,
                               .steps_per_execution = t->options.together,
                               .check_every = t->options.check_every,
                               .check_repeats = t->options.debug_determinism,
                               .steps_per_epoch = t->options.steps_per_epoch,
                               .seed = (uint64_t)t->options.seed,
                               .class_weights = t->class_weights,
                               .n_class_weights = t->n_class_weights,
                               /* With an evaluator nobody else evaluates between epochs. */
                               .validation = t->opened.has_evaluator ? NULL : t->validation.dataset,
                               .patience = (int)t->options.patience,
                               .restore_best = t->options.restore_best && !t->opened.has_evaluator,
                               .on_progress = report_progress,
                               .user = r};
    const strata_checkpoint_options folder = {.folder = t->options.checkpoint,
                                              .every_steps = t->every_steps,
                                              .every_seconds = t->every_seconds,
                                              .keep = (int)t->options.keep,
                                              .on_warning = report_warning,
                                              .user = r};
    if (t->in_folder && (t->opened.chief || !has_servers(t))) opts.checkpoint = &folder;
    int code = go_on(t, &opts.first_epoch);
    if (code) return code;
    if (r->stop_after && opts.first_epoch >= r->stop_after) return say_paused(t, opts.first_epoch); /* nothing is left to do */
    opts.first_step = strata_model_epoch_steps(t->model);
    if (t->options.log && r->chief)
        code = run_log_open(&r->log, t->options.log, opts.first_epoch || opts.first_step, r->classifies);
    if (!code && t->options.tensorboard && r->chief)
        code = board_open(&r->board, t->options.tensorboard, t->model, &compile.optimizer, t->train.dataset, t->batch,
                          r->classifies);
    if (code) return code;
    const int64_t accumulates = compile.optimizer.gradient_accumulation_steps;
    if (r->chief)
        r->line = progress_begin(
            &(progress_options){.batch = t->batch * (accumulates > 1 ? accumulates : 1), .classifies = r->classifies});
    if (r->line || r->log.file) opts.metrics_seconds = 1e-9;
    obey_interrupts(r->chief && isatty(STDERR_FILENO), t->options.checkpoint || t->options.save);
    t->fit_began = r->reported = now_seconds();
    progress_say(r->line, "the first step ...");
    status = strata_model_fit(t->model, t->train.dataset, &opts, &t->history, &err);
    say_copies(t);
    say_notices(r);
    if (!status && t->history.stopped) return stop_early(t, opts.first_epoch + t->history.n_epochs);
    if (!status && !t->opened.chief && has_servers(t)) return EXIT_OK; /* the chief has the rest to do */
    strata_dataset_destroy(t->train.dataset); /* what follows needs its memory for the programs that evaluate */
    t->train.dataset = NULL;
    progress_say(r->line, "evaluating the test examples ...");
    if (!status) status = measure_validation(t, &err);
    if (!status) status = strata_model_evaluate(t->model, t->test.dataset, 0, &t->test_metrics, &err);
    if (!status && t->test.preprocessing)
        status = scores_measure(t->model, t->test.dataset, t->test.preprocessing, 0, &t->test_scores, &err);
    if (!status) status = strata_model_replicas_equal(t->model, &t->replicas_equal, &err);
    if (!status) status = strata_model_sha256(t->model, t->sha256, &err);
    progress_hide(r->line);
    if (status) return report(FAILING_RUN, status, &err);
    if (r->log.file) run_log_add_test(&r->log, &t->test_metrics, r->has_servers ? t->strategy : NULL);
    status = t->options.save && t->opened.chief ? strata_model_save(t->model, t->options.save, &err) : STRATA_OK;
    if (!status && r->checkpoint && r->chief && !r->has_evaluator) unlink(r->checkpoint); /* a file; a folder stays */
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* ---- options that are more than a number or a name ---- */

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

/* Whether --checkpoint names a folder, and how often it gets one. */
static int read_checkpoint(training *t) {
    const train_options *o = &t->options;
    const char *path = o->checkpoint, *needs = o->every ? "every" : o->keep ? "keep" : o->resume ? "resume" : NULL;
    struct stat info = {0};
    if (!path) return needs ? usage_error("--%s is about checkpoints in a folder; give --checkpoint DIR", needs) : EXIT_OK;
    const bool there = !stat(path, &info);
    t->in_folder = needs || (there && S_ISDIR(info.st_mode)) || (*path && path[strlen(path) - 1] == '/');
    if (!t->in_folder) return check_save("checkpoint", path);
    if (there && !S_ISDIR(info.st_mode)) {
        usage_error(
            "--checkpoint %s: it is a file, and --%s needs a folder. A checkpoint in a file goes on without --every, "
            "--keep and --resume",
            path, needs ? needs : "checkpoint");
        return EXIT_DATA;
    }
    if (!o->every) return EXIT_OK;
    char *end;
    const double every = strtod(o->every, &end);
    const bool by_time = end > o->every && !strcmp(end, "s");
    if (end == o->every || (*end && !by_time) || !(every > 0 && every < 1e12) || (!by_time && every != (double)(int64_t)every))
        return usage_error("--every %s: give a number of steps, as 500, or of seconds, as 30s", o->every);
    if (by_time)
        t->every_seconds = every;
    else
        t->every_steps = (int64_t)every;
    return EXIT_OK;
}

/* "0.5:3" */
static int read_plateau(training *t) {
    const char *text = t->options.plateau;
    char *end = NULL;
    if (!text) return EXIT_OK;
    t->plateau.factor = strtod(text, &end);
    const long epochs = end > text && *end == ':' ? strtol(end + 1, &end, 10) : 0;
    t->plateau.patience = epochs > 0 && epochs < 1000000 ? (int)epochs : 0;
    if (!*end && t->plateau.patience && t->plateau.factor > 0 && t->plateau.factor < 1) return EXIT_OK;
    return usage_error("--reduce-on-plateau %s: give a factor between 0 and 1 and a number of epochs, as 0.5:3", text);
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

/* ---- all of it ---- */

static int train(training *t) {
    t->options.data.seed = t->options.seed;
    int code = check_validation(&t->options);
    if (!code) code = read_auto_shard(t);
    if (!code && t->options.save) code = check_save("save", t->options.save);
    if (!code && t->options.save_best) code = check_save("save-best", t->options.save_best);
    if (!code) code = read_checkpoint(t);
    if (!code) code = read_plateau(t);
    if (!code && t->options.log) code = run_log_check(t->options.log);
    if (!code && t->options.log) code = check_save("log", t->options.log);
    if (!code && t->options.stop_after && !t->options.checkpoint)
        code = usage_error("--stop-after ends a run that another one goes on with; give --checkpoint FILE");
    if (!code) code = choose_debugging(&t->options);
    if (!code) code = read_profile(t);
    if (!code && t->options.log_every && !t->options.log && !t->options.tensorboard)
        code = usage_error("--log-every says how often --log FILE gets a row");
    if (!code) code = open_what_is_trained(t);
    if (!code && t->options.write_model) code = write_model_json(t->model, t->options.write_model);
    if (!code) code = read_class_weights(t->options.class_weights, t);
    if (!code) code = set_precision(t->model, t->options.precision);
    if (!code && t->options.batch && t->options.global_batch) code = usage_error("give --batch or --global-batch, not both");
    t->options.device.on_compile = report_compile;
    t->options.device.is_interrupted = is_interrupted;
    t->options.device.user = &t->reporter;
    if (!code) code = open_strategy(&t->options.strategy, &t->options.device, &t->opened);
    t->strategy = t->opened.strategy;
    if (!code) code = check_evaluator(t);
    if (!code) choose_epochs_and_batch(t);
    if (!code)
        t->batch = t->options.global_batch ? t->options.global_batch
                                           : t->options.batch * strata_strategy_num_replicas_in_sync(t->strategy);
    const double opening = now_seconds();
    if (!code) code = open_all_data(t);
    t->data_seconds = now_seconds() - opening;
    if (!code && !t->options.json && t->opened.chief) print_start(t);
    fflush(stdout);
    if (!code) code = fit(t);
    progress_end(t->reporter.line);
    if (!code && t->opened.chief && !t->paused) print_result(t);
    if (!code) print_profile(t);
    if (!code) show_profile(t);
    const int boarded = board_close(&t->reporter.board, &t->test_metrics);
    if (!code) code = boarded;
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
    finish_profile(&t);
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
        "  strata train mnist --save m.strata     a sample, from the list below\n"
        "  strata train flowers.csv               its last column, or --label, is learned\n"
        "  strata train photos/                   a folder of pictures for each class\n"
        "  strata train data.npz                  arrays x and y, or x_train, y_train\n"
        "  strata train MODEL.json --data DATA    a model of your own: strata help layers\n"
        "  strata train --from M.strata more.csv  a trained model further\n"
        "  strata train photos/ --strategy mirrored --devices opencl:0,vulkan:0\n"
        "  strata train mnist --log run.jsonl && strata plot run.jsonl\n",
    .print_more = print_samples,
    .options = train_rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run,
};
