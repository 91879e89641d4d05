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

#include "strata/model.h"
#include "strata/option.h"

const option_row train_rows[] = {
    OPTION_GROUP("data"),
    DATA_OPTION_ROWS(train_options, data),
    {"learn", "KIND", "own data: learn classes (classification) or numbers (regression) (found from the label)", OPTION_TEXT,
     offsetof(train_options, data.task), 0, 0},
    {"test-split", "F", "own data: the share of the examples that is kept for testing (0.2)", OPTION_NUMBER,
     offsetof(train_options, data.test_split), 1e-12, 1},
    {"size", "N", "pictures: resize all to N rows and N columns (their own size if all have the same, else at most 64)",
     OPTION_INT, offsetof(train_options, data.size), 1, 4096},
    {"augment", NULL, "pictures: flip and move each picture a little at random, differently in each epoch", OPTION_FLAG,
     offsetof(train_options, fit.augment), 0, 0},
    {"subwords", NULL, "texts: divide words into pieces, so that no word is unknown", OPTION_FLAG,
     offsetof(train_options, data.subwords), 0, 0},
    {"validation-split", "F", "do not train on this share of the examples of each class, but evaluate it after each epoch (0)",
     OPTION_NUMBER, offsetof(train_options, fit.validation_split), 0, 1},
    {"validation", "DIR", "evaluate these data after each epoch: a CSV file, or the test part of a folder as for --data",
     OPTION_INPUT, offsetof(train_options, fit.validation), 0, 0},
    OPTION_GROUP("model"),
    {"model", "KIND", "own data: mlp, cnn, resnet, text or attention (chosen for the data)", OPTION_TEXT,
     offsetof(train_options, model.kind), 0, 0},
    {"set", "PATH=VALUE", "change a value in the model's JSON, for example layers.0.units=64; may be repeated", OPTION_LIST,
     offsetof(train_options, model.set), 0, 0},
    {"from", "MODEL.strata",
     "own data: continue the training of this model, with its preprocessing; a model of another program has none, and gets the "
     "data as they are",
     OPTION_INPUT, offsetof(train_options, model.from), 0, 0},
    {"freeze", "A,B", "with --from: do not train these layers; strata summary lists their names", OPTION_TEXT,
     offsetof(train_options, model.freeze), 0, 0},
    {"precision", "TYPE", "the type in which activations are stored: f32, f16 or bf16 (the model's, else f32)", OPTION_TEXT,
     offsetof(train_options, model.precision), 0, 0},
    {"recompute", "A,B|auto",
     "do not keep the values inside of these layers for the backward pass but compute them again, which takes time and saves "
     "memory; auto, or auto:BYTES such as auto:512M: choose the layers if the memory is too small (none)",
     OPTION_TEXT, offsetof(train_options, model.recompute), 0, 0},
    OPTION_GROUP("training"),
    {"epochs", "N", "how often all data are used (chosen for the sample or the data, else 5)", OPTION_INT,
     offsetof(train_options, fit.epochs), 1, 1e6},
    {"batch", "N", "examples per step, on each replica (chosen for the sample or the data, else 64)", OPTION_INT,
     offsetof(train_options, fit.batch), 1, 1e12},
    {"global-batch", "N", "examples per step, of all replicas together", OPTION_INT, offsetof(train_options, fit.global_batch),
     1, 1e12},
    {"steps-per-epoch", "N", "the most steps of an epoch; the rest of its data is left out (all)", OPTION_INT,
     offsetof(train_options, fit.steps_per_epoch), 1, 1e12},
    {"accumulate", "N", "update once every N batches, with the sum of their gradients (the model's number, else 1)", OPTION_INT,
     offsetof(train_options, fit.accumulate), 1, 1e6},
    {"loss", "NAME",
     "the loss that training minimizes, for example mse or binary_crossentropy; A=NAME,B=NAME for the outputs A and B (the "
     "model's; if it has none, one for the labels)",
     OPTION_TEXT, offsetof(train_options, fit.loss), 0, 0},
    {"learning-rate", "R", "the optimizer's learning rate (the model's)", OPTION_NUMBER,
     offsetof(train_options, fit.learning_rate), 1e-12, 1e6},
    {"patience", "N", "end when the loss on validation data has not fallen for N epochs (never)", OPTION_INT,
     offsetof(train_options, fit.patience), 1, 1e6},
    {"reduce-on-plateau", "F:N",
     "multiply the learning rate by F when the loss, on validation data if there are some, has not fallen for N epochs; for "
     "example 0.5:3 (never)",
     OPTION_TEXT, offsetof(train_options, fit.plateau), 0, 0},
    {"restore-best", NULL,
     "end with the weights of the epoch with the smallest loss on validation data; an evaluator task writes that model to the "
     "name of --save with .best before the ending",
     OPTION_FLAG, offsetof(train_options, fit.restore_best), 0, 0},
    {"class-weights", "1,2,...", "multiply the loss of an example by the weight of its class (all 1)", OPTION_TEXT,
     offsetof(train_options, fit.class_weights), 0, 0},
    {"metrics", "A,B", "metrics besides loss and accuracy: top_5_accuracy, precision, recall, auc, confusion_matrix, mae",
     OPTION_TEXT, offsetof(train_options, fit.metrics), 0, 0},
    {"seed", "N", "seed for weights, shuffles and dropout (0)", OPTION_INT, offsetof(train_options, fit.seed), 0, 9e15},
    {"profile", "A:B",
     "measure steps A to B, counted from 1, and print where their time was spent; other steps are not slowed down (strata "
     "trace reads the file of --trace)",
     OPTION_TEXT, offsetof(train_options, reports.profile), 0, 0},
    {"debug", "nan|determinism",
     "nan: end at the first step with a gradient that is not finite, and print which tensor was the first; determinism: "
     "compute each step twice and compare the bits",
     OPTION_TEXT, offsetof(train_options, reports.debug), 0, 0},
    OPTION_GROUP("devices"),
    DEVICE_OPTION_ROWS(train_options, device),
    OPTION_GROUP("distribution"),
    {"strategy", "NAME",
     "default, one_device, mirrored, multi_worker_mirrored, central_storage, local_sgd, model_parallel, parameter_server, "
     "tpu or auto",
     OPTION_TEXT, offsetof(train_options, strategy.name), 0, 0},
    {"mesh", "AXIS=N,...",
     "model_parallel: the devices as a grid with the axes data (examples), stage (layers) and tensor (parameters) "
     "(all are stages)",
     OPTION_TEXT, offsetof(train_options, strategy.mesh), 0, 0},
    {"layout", "FILE|auto",
     "model_parallel: which dimensions of which parameters are divided over which axis, as JSON of patterns of names: "
     "{\"dense.*kernel\": [null, \"tensor\"]} (auto)",
     OPTION_TEXT, offsetof(train_options, strategy.layout), 0, 0},
    {"zero", "N",
     "model_parallel: the devices along data divide 1: the optimizer's slots, 2: also gradients, 3: also parameters (0)",
     OPTION_INT, offsetof(train_options, strategy.zero), 0, 3},
    {"microbatches", "N", "model_parallel: compute each batch in so many parts, which the stages work on side by side (1)",
     OPTION_INT, offsetof(train_options, strategy.microbatches), 1, 65536},
    {"schedule", "NAME", "model_parallel: the order in which stages compute micro-batches: gpipe, 1f1b or zero_bubble (1f1b)",
     OPTION_TEXT, offsetof(train_options, strategy.schedule), 0, 0},
    {"every", "N", "local_sgd: average the replicas' parameters after every N steps (8); else as --checkpoint-every",
     OPTION_TEXT, offsetof(train_options, every), 0, 0},
    {"devices", "A,B", "the strategy's devices, one for each replica (mirrored: all accelerators)", OPTION_TEXT,
     offsetof(train_options, strategy.devices), 0, 0},
    {"tpu-address", "local|NAME", "tpu: the system of cores, by its name or its plugin's name ($TPU_NAME, else local)",
     OPTION_TEXT, offsetof(train_options, strategy.tpu_address), 0, 0},
    {"check-every", "N", "before every Nth step compare some nodes of it with the reference; -1: never (once a minute)",
     OPTION_INT, offsetof(train_options, reports.check_every), -1, 1e15},
    {"steps-per-execution", "N",
     "steps that the host gives to the cores of a TPU in one call; elsewhere after how many steps the progress is shown "
     "(each); 1: a CPU gets short steps one by one, too",
     OPTION_INT, offsetof(train_options, fit.together), 1, 1e6},
    CLUSTER_OPTION_ROWS(train_options, strategy),
    {"transport", "NAME", "several workers: tcp, or shm for workers on the same host (shm if possible)", OPTION_TEXT,
     offsetof(train_options, strategy.transport), 0, 0},
    {"engine", "builtin|mpi",
     "several workers: who adds up gradients; mpi: Open MPI or MPICH, if mpirun started the workers (builtin)", OPTION_TEXT,
     offsetof(train_options, strategy.engine), 0, 0},
    {"compress", "bf16|f16", "several workers: send gradients rounded to half the bytes (f32)", OPTION_TEXT,
     offsetof(train_options, strategy.compress), 0, 0},
    {"auto-shard", "data|file|off|auto",
     "what each of several workers reads. data: a part of each batch; file: some of the files; off: all data (data); in C: "
     "hint",
     OPTION_TEXT, offsetof(train_options, fit.auto_shard), 0, 0},
    {"cluster-role", "ROLE",
     "with --cluster: what this task is: chief, worker, ps or evaluator; --task has its number (from --task)", OPTION_TEXT,
     offsetof(train_options, strategy.role), 0, 0},
    {"staleness", "N", "parameter_server: no worker is more than N steps ahead of the slowest; 0 means --sync (no limit)",
     OPTION_TEXT, offsetof(train_options, strategy.staleness), 0, 0},
    {"sync", NULL, "parameter_server: each step is one update with the gradients of all workers", OPTION_FLAG,
     offsetof(train_options, strategy.sync), 0, 0},
    {"backup", "N", "with --sync: a step does not wait for the N slowest workers, and ignores their gradients (0)", OPTION_INT,
     offsetof(train_options, strategy.backup), 0, 1024},
    {"ps-replicas", "N",
     "parameter_server: 1 stores a copy of each server's shards on the next server, so that one server may be lost (0)",
     OPTION_INT, offsetof(train_options, strategy.ps_replicas), 0, 1},
    {"old-gradients", "corrected|plain",
     "parameter_server: corrected lets momentum last for more updates, and sends workers extrapolated parameters (corrected)",
     OPTION_TEXT, offsetof(train_options, strategy.old_gradients), 0, 0},
    {"evaluator-wait", "S", "the evaluator task fails if there is no new --checkpoint for so many seconds (3600)",
     OPTION_NUMBER, offsetof(train_options, evaluator_wait_s), 0.1, 1e9},
    {"partitioner", "RULE",
     "parameter_server: divide parameters into shards: fixed:N, min_size:BYTES or max_size:BYTES, for example 256K or 4M (not "
     "divided)",
     OPTION_TEXT, offsetof(train_options, strategy.partitioner), 0, 0},
    {"parameter-device", "WHICH", "central_storage, parameter_server: the device that stores the parameters (host)",
     OPTION_TEXT, offsetof(train_options, strategy.parameter_device), 0, 0},
    {"cross-device-ops", "NAME", "how the gradients of replicas are added up: host, tree or device (host)", OPTION_TEXT,
     offsetof(train_options, strategy.cross_device_ops), 0, 0},
    {"shard-optimizer", "auto|yes|no",
     "each replica updates only a shard of the parameters and stores only that shard's optimizer state (auto: no)", OPTION_TEXT,
     offsetof(train_options, strategy.shard_optimizer), 0, 0},
    {"bytes-per-pack", "N", "send gradients in packs of about this size (262144; on the host's cores: all at once)", OPTION_INT,
     offsetof(train_options, strategy.bytes_per_pack), 1, 1e12},
    {"split", "3:1", "the replicas' shares of a batch; auto: by measured speed (equal)", OPTION_TEXT,
     offsetof(train_options, strategy.split), 0, 0},
    {"scale-lr", NULL, "multiply the learning rate by the number of replicas, after a warm-up (Goyal et al. 2017)", OPTION_FLAG,
     offsetof(train_options, fit.scale_lr), 0, 0},
    OPTION_GROUP("output"),
    {"save", "FILE", "write the trained model to this file", OPTION_OUTPUT, offsetof(train_options, save), 0, 0},
    {"save-best", "FILE",
     "write the model to this file after each epoch with the smallest loss so far, on validation data if there are some",
     OPTION_OUTPUT, offsetof(train_options, save_best), 0, 0},
    {"checkpoint", "FILE|DIR",
     "write a checkpoint after each epoch, and at Ctrl-C or SIGTERM. FILE: the same command continues from it, and removes it "
     "at the end. DIR: continue with --resume",
     OPTION_OUTPUT, offsetof(train_options, checkpoint), 0, 0},
    {"checkpoint-every", "N|30s",
     "with --checkpoint DIR: write a checkpoint after every N steps, or every so many seconds (each epoch)", OPTION_TEXT,
     offsetof(train_options, checkpoint_every), 0, 0},
    {"keep", "K", "with --checkpoint DIR: how many checkpoints are kept, the newest ones (3)", OPTION_INT,
     offsetof(train_options, keep), 1, 1e6},
    {"resume", NULL, "continue from the newest complete checkpoint in the folder; start from the beginning if there is none",
     OPTION_FLAG, offsetof(train_options, resume), 0, 0},
    {"stop-after", "N", "end this run after epoch N of --epochs; the same command continues from the --checkpoint", OPTION_INT,
     offsetof(train_options, stop_after), 1, 1e6},
    {"write-model", "FILE", "write the model's JSON to this file, where it can be edited", OPTION_OUTPUT,
     offsetof(train_options, model.write), 0, 0},
    {"log", "FILE",
     "write a row for each step and epoch to this file, .jsonl or .csv; also measures the norms of gradients and weights "
     "(strata plot FILE shows them)",
     OPTION_OUTPUT, offsetof(train_options, reports.log), 0, 0},
    {"tensorboard", "DIR",
     "write event files to this folder: numbers of steps and epochs, histograms, the model, the steps of --profile "
     "(tensorboard --logdir DIR shows them)",
     OPTION_OUTPUT, offsetof(train_options, reports.tensorboard), 0, 0},
    {"log-every", "N", "with --log and --tensorboard: write every Nth step (1)", OPTION_INT,
     offsetof(train_options, reports.log_every), 1, 1e12},
    {"trace", "FILE",
     "write what ran when, for chrome://tracing or ui.perfetto.dev; other workers add .rank2, and tasks of parameter_server "
     ".worker2 or .ps0, before the ending",
     OPTION_OUTPUT, offsetof(train_options, reports.trace), 0, 0},
    {"log-device-placement", NULL, "print on stderr on which device each variable, node and exchange is", OPTION_FLAG,
     offsetof(train_options, reports.log_device_placement), 0, 0},
    {"json", NULL,
     "print a line of JSON for each epoch and one at the end: names beginning with train_, val_ and test_ are of these data; "
     "loss is train_loss, accuracy is test_accuracy",
     OPTION_FLAG, offsetof(train_options, reports.json), 0, 0},
    {0}};

/* ---- the fit ---- */

static strata_status add_callbacks(training *t, strata_error *err) {
    if (t->options.fit.plateau) STRATA_TRY(strata_model_add_callback(t->model, strata_reduce_on_plateau(t->plateau), err));
    const bool reads = t->options.save_best || t->options.reports.tensorboard;
    if (reads && strata_strategy_mesh_has_workers(t->strategy))
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "strategy %s over several workers: %s reads parameters between epochs, parts of which other workers "
                           "have; leave it out, and give --save",
                           strata_strategy_name(t->strategy), t->options.save_best ? "--save-best" : "--tensorboard");
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
    if (t->options.fit.learning_rate > 0) optimizer.learning_rate = t->options.fit.learning_rate;
    if (t->options.fit.accumulate) optimizer.gradient_accumulation_steps = t->options.fit.accumulate;
    if (!t->options.fit.scale_lr || replicas == 1) return optimizer;
    const int64_t examples = t->batch * (optimizer.gradient_accumulation_steps > 1 ? optimizer.gradient_accumulation_steps : 1);
    const int64_t steps = (size > 0 ? size + examples - 1 : examples) / examples;
    const int64_t fifth = steps * t->options.fit.epochs / 5;
    optimizer.schedule.replicas = replicas;
    if (optimizer.schedule.warmup_steps) return optimizer;
    if (!strata_number_is_given(optimizer.learning_rate))
        optimizer.learning_rate = strata_optimizer_default_rate(optimizer.name);
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

/* Prints for each replica of this process which nodes the host runs. */
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

bool has_servers(const training *t) {
    return !strcmp(strata_strategy_name(t->strategy), "parameter_server");
}

/* Loads the checkpoint, if there is one. *out_epochs: how many epochs it has; 0: there is none. */
static int load_checkpoint(training *t, int *out_epochs) {
    strata_error err = {0};
    const char *path = t->options.checkpoint;
    *out_epochs = 0;
    if (t->in_folder && !t->options.resume) return EXIT_OK;            /* fit reports an error if the folder has checkpoints */
    if (!path || (has_servers(t) && !t->opened.chief)) return EXIT_OK; /* workers and servers get the weights from the chief */
    strata_status status = strata_model_load_checkpoint(t->model, path, out_epochs, &err);
    const int64_t steps = status ? 0 : strata_model_epoch_steps(t->model);
    if (!status && *out_epochs + !!steps > t->options.fit.epochs)
        status = strata_fail(&err, STRATA_DATA,
                             "%s was written after %d epochs, and --epochs is %lld; give --epochs %d to evaluate and save this "
                             "model, and more to train further",
                             path, *out_epochs, (long long)t->options.fit.epochs, *out_epochs + !!steps);
    if (status) return report(FAILING_DATA, status, &err);
    const bool says = t->opened.chief && !t->options.reports.json;
    if (steps && says)
        printf("continues in epoch %d after step %lld, from %s\n", *out_epochs + 1, (long long)steps, path);
    else if (*out_epochs && says)
        printf(*out_epochs < t->options.fit.epochs ? "continues after epoch %d, from %s\n"
                                                   : "all %d epochs were done before; the model of %s is evaluated\n",
               *out_epochs, path);
    fflush(stdout);
    const int64_t batch = strata_training_batch_before(t->model);
    if (batch && batch != t->batch && t->opened.chief)
        fprintf(stderr, "strata: the checkpoint was made with a batch of %lld, and goes on with %lld\n", (long long)batch,
                (long long)t->batch);
    return EXIT_OK;
}

/* Sets the metrics of the validation data: those of the last epoch, which fit has measured. Those of the best epoch are
 * computed here, since it may have been before a restart. */
static strata_status measure_validation(training *t, strata_error *err) {
    if (!t->history.validation) return STRATA_OK;
    if (t->history.n_epochs) t->val_metrics = t->history.validation[t->history.n_epochs - 1];
    return t->options.fit.restore_best || !t->history.n_epochs
               ? strata_model_evaluate(t->model, t->validation.dataset, t->batch, &t->val_metrics, err)
               : STRATA_OK;
}

void name_beside(const char *file, const char *what, char *out, size_t room) {
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file, *ending = strrchr(name, '.');
    if (!ending || ending == name) ending = file + strlen(file);
    snprintf(out, room, "%.*s.%s%s", (int)(ending - file), file, what, ending);
}

/* The file of this worker's trace: that of --trace for rank 0, and for rank 2 the same with ".rank2" before the ending. NULL:
 * there is no --trace. */
static const char *trace_path(training *t) {
    const char *file = t->options.reports.trace;
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

/* Reports that --stop-after has ended this run. There is no result yet. */
static int say_paused(training *t, int epochs) {
    t->paused = true;
    if (!t->opened.chief) return EXIT_OK;
    if (t->options.reports.json)
        printf("{\"event\":\"paused\",\"epochs\":%d}\n", epochs);
    else
        printf("paused after epoch %d; the same command %scontinues from %s\n", epochs, with_resume(t), t->options.checkpoint);
    return EXIT_OK;
}

/* Ctrl-C or --stop-after has ended the training after a step, the same step on all workers. Writes the checkpoint and the model
 * of --save as they are now. */
static int stop_early(training *t, int epochs) {
    const int64_t steps = strata_model_epoch_steps(t->model);
    const char *save = t->options.save, *checkpoint = t->options.checkpoint;
    strata_error err = {0};
    strata_status status = STRATA_OK;
    progress_hide(t->reporter.line);
    if (checkpoint && !t->in_folder && (epochs || steps)) /* fit has written a checkpoint in a folder already */
        status = strata_model_save_checkpoint(t->model, epochs, t->opened.chief ? checkpoint : NULL, &err);
    int code = status ? report(FAILING_DATA, status, &err) : EXIT_OK; /* the model is saved even if the checkpoint is not */
    status = save ? strata_model_save(t->model, t->opened.chief ? save : NULL, &err) : STRATA_OK;
    if (status) code = report(FAILING_DATA, status, &err);
    if (code) return code;
    /* This process may have been ended by the Ctrl-C of another worker. --stop-after ends only between epochs. */
    if (!was_interrupted() && t->options.stop_after && !steps) return say_paused(t, epochs);
    if (!t->opened.chief) return interrupt_code();
    if (t->options.reports.json)
        printf("{\"event\":\"interrupted\",\"epoch\":%d,\"step\":%lld}\n", epochs + 1, (long long)steps);
    fprintf(stderr, "strata: interrupted in epoch %d after step %lld\n", epochs + 1, (long long)steps);
    if (checkpoint) fprintf(stderr, "strata: the same command %scontinues there, from %s\n", with_resume(t), checkpoint);
    if (save) fprintf(stderr, "strata: saved %s as it is now\n", save);
    if (!checkpoint && !save)
        fprintf(stderr,
                "strata: nothing was saved; --save FILE saves the model, and with --checkpoint FILE training can continue\n");
    return interrupt_code();
}

/* Reports that compile or fit failed, and after a lack of memory where the model fits. */
static int report_failed_compile(training *t, strata_status status, const strata_compile_options *compile,
                                 const strata_error *err) {
    const int code = report(FAILING_RUN, status, err);
    if (status == STRATA_OUT_OF_MEMORY) say_where_it_fits(t, compile);
    return code;
}

/* Reports that the training failed, and what was saved before. */
static int report_failed_training(training *t, strata_status status, const strata_compile_options *compile,
                                  const strata_error *err) {
    const char *save = t->options.save, *checkpoint = t->options.checkpoint;
    const int code = report_failed_compile(t, status, compile, err);
    if (status != STRATA_UNSUPPORTED || !t->history.n_steps || !t->opened.chief) return code;
    if (save) fprintf(stderr, "strata: %s was not written\n", save);
    if (checkpoint && !access(checkpoint, F_OK))
        fprintf(stderr, "strata: %s is from before this, and from before the device was found to be wrong\n", checkpoint);
    else if (!save)
        fprintf(stderr, "strata: nothing was saved\n");
    return code;
}

static int choose_debugging(train_options *options) {
    const char *what = options->reports.debug;
    if (!what) return EXIT_OK;
    options->reports.debug_nan = !strcmp(what, "nan");
    options->reports.debug_determinism = !strcmp(what, "determinism");
    if (options->reports.debug_nan || options->reports.debug_determinism) return EXIT_OK;
    return usage_error("train: --debug \"%s\": it must be nan or determinism", what);
}

static int fit(training *t) {
    strata_error err = {0};
    strata_compile_options compile = {.seed = (uint64_t)t->options.fit.seed,
                                      .loss = choose_loss(t->model, t->options.fit.loss, t->train.dataset),
                                      .metrics = t->options.fit.metrics,
                                      .strategy = t->strategy,
                                      .recompute = t->options.model.recompute,
                                      .gradient_norm = t->options.reports.log || t->options.reports.debug_nan,
                                      .optimizer = choose_optimizer(t)};
    strata_status status = strata_model_compile(t->model, NULL, &compile, &err);
    if (!status) status = add_callbacks(t, &err);
    if (!status && t->options.reports.log_device_placement) status = log_placement(t, &err);
    if (!status && t->options.device.allow_fallback) status = say_fallbacks(t, &err);
    if (status) return report_failed_compile(t, status, &compile, &err);
    if (t->opened.evaluates) return evaluate_beside(t);
    reporter *r = &t->reporter;
    r->quiet = t->options.reports.json || !t->opened.chief;
    r->json = t->options.reports.json;
    r->classifies = classifies(t->model);
    r->patience = t->options.fit.patience;
    r->stop_after = t->options.stop_after < t->options.fit.epochs ? t->options.stop_after : 0;
    r->model = t->model;
    r->preprocessing = t->test.preprocessing;
    r->strategy = t->strategy;
    r->checkpoint = t->in_folder ? NULL : t->options.checkpoint;
    r->chief = t->opened.chief;
    r->has_servers = has_servers(t);
    r->has_evaluator = t->opened.has_evaluator;
    r->began = t->began;
    r->log_every = t->options.reports.log_every ? t->options.reports.log_every : 1;
    strata_fit_options opts = {.epochs = (int)t->options.fit.epochs,
                               .batch = t->batch,
                               .auto_shard = t->auto_shard,
                               .trace = trace_path(t),
                               .trace_first = t->options.reports.profile_first,
                               .trace_last = t->options.reports.profile_last,
                               .steps_per_execution = t->options.fit.together,
                               .check_every = t->options.reports.check_every,
                               .check_repeats = t->options.reports.debug_determinism,
                               .steps_per_epoch = t->options.fit.steps_per_epoch,
                               .seed = (uint64_t)t->options.fit.seed,
                               .class_weights = t->class_weights,
                               .n_class_weights = t->n_class_weights,
                               /* The evaluator, if there is one, evaluates the validation data. */
                               .validation = t->opened.has_evaluator ? NULL : t->validation.dataset,
                               .patience = (int)t->options.fit.patience,
                               .restore_best = t->options.fit.restore_best && !t->opened.has_evaluator,
                               .on_progress = report_progress,
                               .user = r};
    const strata_checkpoint_options folder = {.folder = t->options.checkpoint,
                                              .every_steps = t->every_steps,
                                              .every_seconds = t->every_seconds,
                                              .keep = (int)t->options.keep,
                                              .on_warning = report_warning,
                                              .user = r};
    if (t->in_folder && (t->opened.chief || !has_servers(t))) opts.checkpoint = &folder;
    int code = load_checkpoint(t, &opts.first_epoch);
    if (code) return code;
    if (r->stop_after && opts.first_epoch >= r->stop_after) return say_paused(t, opts.first_epoch); /* these epochs are done */
    opts.first_step = strata_model_epoch_steps(t->model);
    if (t->options.reports.log && r->chief)
        code = run_log_open(&r->log, t->options.reports.log, opts.first_epoch || opts.first_step, r->classifies);
    if (!code && t->options.reports.tensorboard && r->chief)
        code = board_open(&r->board, t->options.reports.tensorboard, t->model, &compile.optimizer, t->train.dataset, t->batch,
                          r->classifies);
    if (code) return code;
    const int64_t accumulates = compile.optimizer.gradient_accumulation_steps;
    if (r->chief)
        r->line = progress_begin(
            &(progress_options){.batch = t->batch * (accumulates > 1 ? accumulates : 1), .classifies = r->classifies});
    if (r->line || r->log.file) opts.metrics_seconds = 1e-9;
    obey_interrupts(r->chief && isatty(STDERR_FILENO), t->options.checkpoint || t->options.save);
    t->fit_began = now_seconds();
    progress_say(r->line, "the first step ...");
    status = strata_model_fit(t->model, t->train.dataset, &opts, &t->history, &err);
    say_copies(t);
    say_notices(r);
    if (status) {
        progress_hide(r->line);
        return report_failed_training(t, status, &compile, &err);
    }
    if (t->history.stopped) return stop_early(t, opts.first_epoch + t->history.n_epochs);
    if (!t->opened.chief && has_servers(t)) return EXIT_OK; /* only the chief evaluates and saves */
    strata_dataset_destroy(t->train.dataset);               /* the programs that evaluate need the memory */
    t->train.dataset = NULL;
    progress_say(r->line, "evaluating the test examples ...");
    status = measure_validation(t, &err);
    if (!status) status = strata_model_evaluate(t->model, t->test.dataset, 0, &t->test_metrics, &err);
    if (!status) metrics_in_units(t->test.preprocessing, &t->test_metrics);
    if (!status && (t->test.preprocessing || t->test.as_they_are))
        status = scores_measure(t->model, t->test.dataset, t->test.preprocessing, 0, &t->test_scores, &err);
    if (!status) status = strata_model_replicas_equal(t->model, &t->replicas_equal, &err);
    if (!status) status = strata_model_sha256(t->model, t->sha256, &err);
    progress_hide(r->line);
    if (!status && !t->replicas_equal)
        status = strata_fail(&err, STRATA_INTERNAL,
                             "the weights of the replicas differ after the training, so they did not train the same model, and "
                             "none is saved; `strata devices --check` finds devices that compute wrongly");
    if (status) return report(FAILING_RUN, status, &err);
    if (r->log.file) run_log_add_test(&r->log, &t->test_metrics, r->has_servers ? t->strategy : NULL);
    if (t->options.save) status = strata_model_save(t->model, t->opened.chief ? t->options.save : NULL, &err);
    if (!status && r->checkpoint && r->chief && !r->has_evaluator)
        unlink(r->checkpoint); /* a file; the checkpoints in a folder are kept */
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

/* ---- options that are more than a number or a name ---- */

/* Checks that a file can be created at `path`, so that an error is reported before the training and not after it. */
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

static int check_model(const char *option, const char *path) {
    strata_error err = {0};
    return check_saved_name(option, path, &err) ? usage_error("%s", err.message) : check_save(option, path);
}

static bool is_strategy(const char *name) {
    for (int i = 0; strata_strategy_names[i]; i++)
        if (!strcmp(strata_strategy_names[i], name)) return true;
    return false;
}

/* Reads --every: the steps between averages, if the strategy has some, else the same as --checkpoint-every. */
static int read_every(train_options *o) {
    const char *name = o->strategy.name;
    const bool averages = name && (strata_strategy_averages(name) || !is_strategy(name)); /* opening it refuses the name */
    if (!o->every) return EXIT_OK;
    if (!averages && o->checkpoint_every) return usage_error("give --every or --checkpoint-every, not both");
    if (!averages) return EXIT_OK;
    char *end;
    errno = 0;
    o->strategy.every = strtoll(o->every, &end, 10);
    if (end != o->every && !*end && !errno && o->strategy.every >= 1) return EXIT_OK;
    return usage_error(
        "--every %s: with --strategy %s it is a number of steps, for example 8; --checkpoint-every says how often a "
        "checkpoint is written",
        o->every, o->strategy.name);
}

/* Finds whether --checkpoint names a folder, and how often a checkpoint is written to it. */
static int read_checkpoint(training *t) {
    const train_options *o = &t->options;
    const bool by_every = o->every && !o->strategy.every;
    const char *interval = by_every ? o->every : o->checkpoint_every, *option = by_every ? "every" : "checkpoint-every";
    const char *path = o->checkpoint, *needs = interval ? option : o->keep ? "keep" : o->resume ? "resume" : NULL;
    struct stat info = {0};
    if (!path)
        return needs ? usage_error("--%s is for checkpoints in a folder%s; give --checkpoint DIR", needs,
                                   by_every ? ", or for --strategy local_sgd" : "")
                     : EXIT_OK;
    const bool there = !stat(path, &info);
    t->in_folder = needs || (there && S_ISDIR(info.st_mode)) || (*path && path[strlen(path) - 1] == '/');
    if (!t->in_folder) return check_save("checkpoint", path);
    if (there && !S_ISDIR(info.st_mode)) {
        usage_error(
            "--checkpoint %s: it is a file, and --%s needs a folder. Training continues from a checkpoint in a file without "
            "--checkpoint-every, --keep and --resume",
            path, needs ? needs : "checkpoint");
        return EXIT_DATA;
    }
    if (!interval) return EXIT_OK;
    char *end;
    const double every = strtod(interval, &end);
    const bool by_time = end > interval && !strcmp(end, "s");
    if (end == interval || (*end && !by_time) || !(every > 0 && every < 1e12) || (!by_time && every != (double)(int64_t)every))
        return usage_error("--%s %s: give a number of steps, for example 500, or of seconds, for example 30s", option,
                           interval);
    if (by_time)
        t->every_seconds = every;
    else
        t->every_steps = (int64_t)every;
    return EXIT_OK;
}

/* Reads --reduce-on-plateau, for example "0.5:3". */
static int read_plateau(training *t) {
    const char *text = t->options.fit.plateau;
    char *end = NULL;
    if (!text) return EXIT_OK;
    t->plateau.factor = strtod(text, &end);
    const long epochs = end > text && *end == ':' ? strtol(end + 1, &end, 10) : 0;
    t->plateau.patience = epochs > 0 && epochs < 1000000 ? (int)epochs : 0;
    if (!*end && t->plateau.patience && t->plateau.factor > 0 && t->plateau.factor < 1) return EXIT_OK;
    return usage_error("--reduce-on-plateau %s: give a factor between 0 and 1 and a number of epochs, for example 0.5:3", text);
}

/* Reads --class-weights, for example "1,2.5,0". fit checks how many there are. */
static int read_class_weights(const char *list, training *t) {
    int n = 1;
    if (!list) return EXIT_OK;
    for (const char *at = list; *at; at++) n += *at == ',';
    t->class_weights = calloc((size_t)n, sizeof *t->class_weights);
    if (!t->class_weights) return usage_error("--class-weights: no memory for %d numbers", n), EXIT_DEVICE;
    for (int i = 0; i < n; i++) {
        char *end;
        t->class_weights[i] = strtod(list, &end);
        if (end == list || *end != (i + 1 < n ? ',' : 0))
            return usage_error("--class-weights %s: number %d cannot be read; give one for each class, for example 1,2,0.5",
                               t->options.fit.class_weights, i + 1);
        list = end + 1;
    }
    t->n_class_weights = n;
    return EXIT_OK;
}

/* Reads --auto-shard. The policy hint needs a shard_hint stage, which only programs in C can add to a dataset. */
static int read_auto_shard(training *t) {
    static const struct {
        const char *name;
        strata_auto_shard policy;
    } policies[] = {
        {"data", STRATA_SHARD_DATA}, {"file", STRATA_SHARD_FILE}, {"off", STRATA_SHARD_OFF}, {"auto", STRATA_SHARD_AUTO}};
    const char *name = t->options.fit.auto_shard;
    for (size_t i = 0; name && i < sizeof policies / sizeof *policies; i++)
        if (!strcmp(name, policies[i].name)) {
            t->auto_shard = policies[i].policy;
            return EXIT_OK;
        }
    if (name && !strcmp(name, "hint"))
        return usage_error(
            "--auto-shard hint: only programs in C can use it, with strata_dataset_shard_hint (strata/pipeline.h) and "
            ".auto_shard = STRATA_SHARD_HINT in the options of strata_model_fit; here it must be data, file, off or auto");
    return name ? usage_error("--auto-shard %s: it must be data, file, off or auto", name) : EXIT_OK;
}

static int check_validation(const train_options *o) {
    const char *needs = o->fit.patience ? "patience" : o->fit.restore_best ? "restore-best" : NULL;
    if (o->fit.validation && o->fit.validation_split > 0)
        return usage_error("give --validation or --validation-split, not both");
    if (needs && !o->fit.validation && !(o->fit.validation_split > 0))
        return usage_error("--%s needs the loss on validation data; give --validation-split F or --validation DIR", needs);
    return EXIT_OK;
}

/* ---- the command ---- */

static int train(training *t) {
    t->options.data.seed = t->options.fit.seed;
    int code = check_validation(&t->options);
    if (!code) code = read_auto_shard(t);
    if (!code && t->options.save) code = check_model("save", t->options.save);
    if (!code && t->options.save_best) code = check_model("save-best", t->options.save_best);
    if (!code) code = read_every(&t->options);
    if (!code) code = read_checkpoint(t);
    if (!code) code = read_plateau(t);
    if (!code && t->options.reports.log) code = run_log_check(t->options.reports.log);
    if (!code && t->options.reports.log) code = check_save("log", t->options.reports.log);
    if (!code && t->options.stop_after && !t->options.checkpoint)
        code = usage_error("--stop-after ends a run that another one continues; give --checkpoint FILE");
    if (!code) code = choose_debugging(&t->options);
    if (!code) code = read_profile(t);
    if (!code && t->options.reports.log_every && !t->options.reports.log && !t->options.reports.tensorboard)
        code = usage_error("--log-every is for --log FILE or --tensorboard DIR; give one of them");
    if (!code) code = open_what_is_trained(t);
    if (!code && t->options.model.write) code = write_model_json(t->model, t->options.model.write);
    if (!code) code = read_class_weights(t->options.fit.class_weights, t);
    if (!code) code = set_precision(t->model, t->options.model.precision);
    if (!code && t->options.fit.batch && t->options.fit.global_batch)
        code = usage_error("give --batch or --global-batch, not both");
    t->options.device.on_compile = report_compile;
    t->options.device.is_interrupted = is_interrupted;
    t->options.device.user = &t->reporter;
    if (!code) code = open_strategy(&t->options.strategy, &t->options.device, &t->opened);
    t->strategy = t->opened.strategy;
    if (!code) code = check_evaluator(t);
    if (!code) choose_epochs_and_batch(t);
    if (!code)
        t->batch = t->options.fit.global_batch ? t->options.fit.global_batch
                                               : t->options.fit.batch * strata_strategy_num_replicas_in_sync(t->strategy);
    const double opening = now_seconds();
    if (!code) code = open_all_data(t);
    t->data_seconds = now_seconds() - opening;
    if (!code && !t->options.reports.json && t->opened.chief) print_start(t);
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

/* The log lines and events until now. Checkpoints are on the disk; weights cannot be read from a device that hangs. */
static void save_logs(void *user) {
    training *t = user;
    (void)board_close(&t->reporter.board, &t->test_metrics);
    (void)run_log_close(&t->reporter.log);
}

static int run(const command *command, int argc, char **argv) {
    training t = {.began = now_seconds()};
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &t.options, &t.name, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    char *const validation = use_own_validation(t.name, &t.options);
    save_at_driver_failure(save_logs, &t);
    code = train(&t);
    save_at_driver_failure(NULL, NULL); /* the files are closed */
    free(validation);
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
    .summary = "train on your own data, your own model, or a sample",
    .details =
        "  strata train mnist --save m.strata     a sample, from the list below\n"
        "  strata train flowers.csv               learns the last column, or --label\n"
        "  strata train photos/                   a folder of pictures for each class\n"
        "  strata train data.npz                  arrays x and y, or x_train, y_train,\n"
        "                                         x_val, y_val, x_test and y_test\n"
        "  strata train MODEL.json --data DATA    your own model: strata help layers\n"
        "  strata train --from M.strata more.csv  continues a model's training\n"
        "  strata train photos/ --strategy mirrored --devices opencl:0,vulkan:0\n"
        "  strata train MODEL.json --data DATA --strategy model_parallel --mesh stage=2\n"
        "          --devices opencl:0,vulkan:0    a part of the model on each device\n"
        "  strata train mnist --log run.jsonl && strata plot run.jsonl\n",
    .print_more = print_samples,
    .options = train_rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .files = "r",
    .run = run,
};
