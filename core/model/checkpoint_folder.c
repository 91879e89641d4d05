/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder with a training's checkpoints. A checkpoint is written under another name and renamed when all of it is on the
 * disk, so a folder that is called step-... is complete, whenever the job was killed. With shards over workers each worker
 * writes its part, and then another file with the part's length and hash. Rank 0's thread waits for these files and writes the
 * manifest. So workers need no messages, and training is not delayed. If the tasks do not reach one folder, as on local disks,
 * rank 0 gathers all values and writes them alone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/locale.h"
#include "core/base/text.h"
#include "core/model/checkpoint.h"

static const char LOCK[] = "lock", WHOLE[] = "step-", WRITING[] = ".writing-step-", REMOVING[] = ".removing-step-",
                  DAMAGED[] = "damaged-step-";
enum { DEFAULT_KEEP = 3, PATH_ROOM = 4096, SECONDS_FOR_PARTS = 60 };

struct strata_checkpoint_folder {
    strata_model *model;
    strata_checkpoint_options opts;
    char *path;
    /* The descriptor of the lock file on rank 0; -1 on other workers. */
    int lock;
    /* Each worker writes its part of the slots. */
    bool shared;
    /* Rank 0 writes the values of all tasks, since these do not reach its folder. */
    bool alone;
    /* Rank 0 gathers the states of all workers' callbacks. */
    bool gathers;
    int rank, n_parts;
    double saved; /* when the newest copy was taken */
    int64_t saved_steps;
    /* The thread that writes `checkpoint`, of saved_steps; `status` and `error` are what it returned. */
    pthread_t thread;
    bool writing;
    strata_checkpoint *checkpoint;
    /* The files that other tasks have written (strata_trainer.write_parts); may be empty. */
    strata_manifest parts;
    strata_status status;
    strata_error error;
};

/* ---- names ---- */

typedef struct place {
    char path[PATH_ROOM];
} place;

static place in(const char *folder, const char *name) {
    place p;
    strata_format(p.path, sizeof p.path, "%s/%s", folder, name);
    return p;
}

static place of_step(const char *folder, const char *prefix, int64_t steps) {
    place p;
    strata_format(p.path, sizeof p.path, "%s/%s%012" PRId64, folder, prefix, steps);
    return p;
}

/* The number in "step-000000000120", where `prefix` is "step-"; -1: the name does not have this form. */
static int64_t steps_in(const char *name, const char *prefix) {
    const size_t n = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9') return -1;
    const long long steps = strtoll(name + n, &end, 10);
    return *end ? -1 : steps;
}

static int falling(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return *x < *y ? 1 : *x > *y ? -1 : 0;
}

/* Lists the steps of the names in the folder that have this prefix, the newest first. The caller frees *out_steps. */
static strata_status list(const char *folder, const char *prefix, int64_t **out_steps, int *out_n, strata_error *err) {
    STRATA_FREED int64_t *all = NULL;
    int n = 0;
    DIR *dir = opendir(folder);
    if (!dir) return strata_file_fail(err, errno, folder, "list");
    int64_t *at = (int64_t[1]){0};
    for (const struct dirent *item; at && (item = readdir(dir));) {
        const int64_t steps = steps_in(item->d_name, prefix);
        if (steps < 0) continue;
        at = strata_grow(&all, n, sizeof *at);
        if (at) all[n++] = steps;
    }
    closedir(dir);
    if (!at) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory to list it", folder);
    if (n) qsort(all, (size_t)n, sizeof *all, falling);
    *out_steps = all;
    *out_n = n;
    all = NULL;
    return STRATA_OK;
}

/* Removes the files in a checkpoint, and its folder. If something cannot be removed, the next fit tries again. */
static void remove_all(const char *path) {
    DIR *dir = opendir(path);
    for (const struct dirent *item; dir && (item = readdir(dir));)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) unlink(in(path, item->d_name).path);
    if (dir) closedir(dir);
    rmdir(path);
}

static void remove_each(const char *folder, const char *prefix) {
    STRATA_FREED int64_t *steps = NULL;
    int n;
    if (list(folder, prefix, &steps, &n, NULL)) return;
    for (int i = 0; i < n; i++) remove_all(of_step(folder, prefix, steps[i]).path);
}

static strata_status sync_folder(const char *path, strata_error *err) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return strata_file_fail(err, errno, path, "open, to make sure of a new checkpoint in it");
    const int result = fsync(fd), number = errno;
    close(fd);
    if (!result || number == EINVAL) return STRATA_OK; /* EINVAL: the file system does not support fsync of a folder */
    return strata_file_fail(err, number, path, "sync, to make sure of a new checkpoint in it");
}

/* ---- finding ---- */

/* Whether the failure means that the checkpoint is damaged, so that the one before it should be used. */
static bool is_damage(strata_status status) {
    return status == STRATA_DATA || status == STRATA_UNAVAILABLE;
}

strata_status strata_checkpoint_folder_find(const char *folder, strata_manifest *out_manifest, char **out_path,
                                            strata_error *err) {
    STRATA_FREED int64_t *steps = NULL;
    int n;
    strata_error first = {0}, own = {0};
    *out_path = NULL;
    STRATA_TRY(list(folder, WHOLE, &steps, &n, err));
    for (int i = 0; i < n; i++) {
        STRATA_FREED char *path = strdup(of_step(folder, WHOLE, steps[i]).path);
        if (!path) return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
        const strata_status status = strata_manifest_open(path, out_manifest, &own);
        if (status && !is_damage(status)) return strata_fail(err, status, "%s", own.message);
        if (status && !i) first = own;
        if (status) continue;
        *out_path = strata_released(&path);
        return STRATA_OK;
    }
    if (!n) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: all %d checkpoints are damaged; the newest: %s", folder, n, first.message);
}

/* ---- opening ---- */

static void STRATA_PRINTF(2, 3) warn(const strata_checkpoint_folder *f, const char *format, ...) {
    char text[PATH_ROOM + STRATA_ERROR_MESSAGE_BYTES];
    va_list arguments;
    if (!f->opts.on_warning) return;
    va_start(arguments, format);
    strata_format_v(text, sizeof text, format, arguments);
    va_end(arguments);
    f->opts.on_warning(text, f->opts.user);
}

static strata_status take_lock(strata_checkpoint_folder *f, strata_error *err) {
    char who[128] = "", host[64] = "";
    f->lock = open(in(f->path, LOCK).path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->lock < 0) return strata_file_fail(err, errno, in(f->path, LOCK).path, "open");
    if (flock(f->lock, LOCK_EX | LOCK_NB)) {
        const int number = errno;
        const ssize_t n = read(f->lock, who, sizeof who - 1);
        if (n > 0) who[strcspn(who, "\n")] = 0;
        if (number != EWOULDBLOCK) return strata_file_fail(err, number, in(f->path, LOCK).path, "lock");
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "%s: another job (%s) writes its checkpoints there; wait for its end, or give another folder",
                           f->path, *who ? who : "unknown");
    }
    gethostname(host, sizeof host - 1);
    const int n = snprintf(who, sizeof who, "process %ld on %s\n", (long)getpid(), host);
    if (ftruncate(f->lock, 0) || write(f->lock, who, (size_t)n) != n) return STRATA_OK; /* it is only for messages */
    return STRATA_OK;
}

/* Handles checkpoints of later steps than the model's: damaged ones are renamed. */
static strata_status check_later(strata_checkpoint_folder *f, int64_t steps, strata_error *err) {
    strata_manifest manifest;
    strata_error why = {0};
    const place path = of_step(f->path, WHOLE, steps), aside = of_step(f->path, DAMAGED, steps);
    const strata_status status = strata_manifest_open(path.path, &manifest, &why);
    if (!status) {
        strata_manifest_finish(&manifest);
        return strata_fail(err, STRATA_INVALID,
                           "%s: has a checkpoint of step %lld, and this training is at step %lld; go on from it (--resume, "
                           "strata_model_load_checkpoint), or give another folder",
                           f->path, (long long)steps, (long long)f->model->optimizer_steps);
    }
    if (!is_damage(status)) return strata_fail(err, status, "%s", why.message);
    if (rename(path.path, aside.path)) return strata_file_fail(err, errno, path.path, "move aside a damaged checkpoint");
    warn(f, "%s; training goes on from step %lld, and this checkpoint is now called %s%012lld", why.message,
         (long long)f->model->optimizer_steps, DAMAGED, (long long)steps);
    return STRATA_OK;
}

static strata_status open_folder(strata_checkpoint_folder *f, strata_error *err) {
    STRATA_FREED int64_t *steps = NULL;
    int n;
    if (mkdir(f->path, 0777) && errno != EEXIST) return strata_file_fail(err, errno, f->path, "make the folder");
    STRATA_TRY(take_lock(f, err));
    remove_each(f->path, WRITING);
    remove_each(f->path, REMOVING);
    STRATA_TRY(list(f->path, WHOLE, &steps, &n, err));
    for (int i = 0; i < n && steps[i] > f->model->optimizer_steps; i++) STRATA_TRY(check_later(f, steps[i], err));
    return STRATA_OK;
}

static strata_status check(const strata_checkpoint_options *opts, strata_error *err) {
    if (!opts->folder || !*opts->folder) return strata_fail(err, STRATA_INVALID, "fit: checkpoint.folder is not given");
    if (strlen(opts->folder) > PATH_ROOM - 256)
        return strata_fail(err, STRATA_INVALID, "fit: checkpoint.folder has %zu characters; at most %d are possible",
                           strlen(opts->folder), PATH_ROOM - 256);
    if (opts->every_steps < 0 || !(opts->every_seconds >= 0) || opts->keep < 0)
        return strata_fail(err, STRATA_INVALID,
                           "fit: checkpoint has every_steps %lld, every_seconds %g and keep %d; none may be below 0",
                           (long long)opts->every_steps, opts->every_seconds, opts->keep);
    return STRATA_OK;
}

/* Finds whether any worker's callbacks have state, so that the states of all workers must be gathered. */
static strata_status find_callback_states(strata_checkpoint_folder *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    int32_t some = strata_callbacks_state_bytes(f->model) > 0;
    STRATA_TRY(workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, &some, &some, 1, err));
    f->gathers = some > 0;
    return STRATA_OK;
}

/* Whether the worker finds rank 0's file. A network's file system may show it a little later. */
static bool comes(const char *path) {
    enum { TRIES = 50 };
    int tries = 0;
    while (access(path, F_OK) && ++tries < TRIES) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return tries < TRIES;
}

/* Finds whether all workers reach rank 0's folder: rank 0 makes a file in it, whose name is not used twice. */
static strata_status find_folder(strata_checkpoint_folder *f, strata_error *err) {
    const strata_workers *workers = &f->model->strategy->workers;
    char name[96];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(name, sizeof name, ".reach-%ld-%lld-%ld", (long)getpid(), (long long)now.tv_sec, now.tv_nsec);
    STRATA_TRY(workers->broadcast(workers, STRATA_DTYPE_U8, name, sizeof name, err));
    name[sizeof name - 1] = '\0';
    const place probe = in(f->path, name);
    const int fd = f->rank ? -1 : open(probe.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int32_t n_missing = 0;
    /* Rank 0 has made the file when the others look for it. */
    strata_status status = workers->broadcast(workers, STRATA_DTYPE_I32, &n_missing, 1, err);
    n_missing = f->rank && !comes(probe.path);
    if (!status) status = workers->sum(workers, STRATA_DTYPE_I32, STRATA_DTYPE_F32, &n_missing, &n_missing, 1, err);
    if (fd >= 0) close(fd), unlink(probe.path);
    if (status || !n_missing) return status;
    if (!f->rank)
        warn(
            f,
            "%s: %d of %d workers do not reach rank 0's folder of this name, so rank 0 gathers the optimizer's values for each "
            "checkpoint and writes it alone; in a folder that all reach, each worker would write its own",
            f->path, (int)n_missing, workers->n);
    f->alone = true;
    f->shared = false;
    f->n_parts = 1;
    return STRATA_OK;
}

strata_status strata_checkpoint_folder_open(strata_model *model, const strata_checkpoint_options *opts,
                                            strata_checkpoint_folder **out_folder, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    const bool many = strata_strategy_has_workers(model->strategy);
    *out_folder = NULL;
    STRATA_TRY(check(opts, err));
    strata_checkpoint_folder *f;
    STRATA_TRY(STRATA_NEW(f, 1, err, "checkpoint: no host memory"));
    *f = (strata_checkpoint_folder){.model = model,
                                    .opts = *opts,
                                    .path = strdup(opts->folder),
                                    .lock = -1,
                                    .shared = many && model->shards.n,
                                    .alone = many && (strata_strategy_has_own(model->strategy) || model->placements),
                                    .rank = many ? workers->rank : 0,
                                    .n_parts = many && model->shards.n ? workers->n : 1,
                                    .saved = strata_clock_seconds(),
                                    .saved_steps = model->optimizer_steps};
    if (!f->opts.keep) f->opts.keep = DEFAULT_KEEP;
    strata_status status = f->path ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
    if (!status && !f->rank) status = open_folder(f, err);
    status = strata_workers_share_status(workers, status, err, "rank 0 cannot write checkpoints in %s", f->path);
    if (!status && many) status = find_callback_states(f, err);
    if (!status && f->shared) status = find_folder(f, err);
    if (status)
        (void)!strata_checkpoint_folder_close(f, NULL); /* its error is ignored: the first failure is returned */
    else
        *out_folder = f;
    return status;
}

/* ---- writing, on the thread ---- */

static place part_of(const char *folder, int part, const char *ending) {
    char name[64];
    snprintf(name, sizeof name, "part-%d.%s", part, ending);
    return in(folder, name);
}

static strata_status write_hash(const char *folder, int part, const char *hash, int64_t bytes, strata_error *err) {
    char text[STRATA_SHA256_TEXT_BYTES + 32];
    const int n = snprintf(text, sizeof text, "%s %lld\n", hash, (long long)bytes);
    return strata_file_write(part_of(folder, part, "hash").path, text, (size_t)n, err);
}

/* The length and hash that another worker wrote when its part was on the disk. */
static strata_status await_hash(const char *folder, int part, char *out_hash, int64_t *out_bytes, strata_error *err) {
    const place path = part_of(folder, part, "hash");
    const double until = strata_clock_seconds() + SECONDS_FOR_PARTS;
    while (access(path.path, F_OK)) {
        if (strata_clock_seconds() > until)
            return strata_fail(err, STRATA_UNAVAILABLE,
                               "%s: worker %d has not written its part within %d seconds; the folder must be on a file system "
                               "that all workers share",
                               folder, part, SECONDS_FOR_PARTS);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n;
    long long length = -1;
    STRATA_TRY(strata_file_read(path.path, 1 << 10, &bytes, &n, err));
    const int found = strata_scan((const char *)bytes, "%64[0-9a-f] %lld", out_hash, &length);
    *out_bytes = length;
    if (found != 2 || strlen(out_hash) != STRATA_SHA256_TEXT_BYTES - 1 || length < 0)
        return strata_fail(err, STRATA_DATA, "%s: has no hash in it", path.path);
    unlink(path.path);
    return STRATA_OK;
}

/* Adds the files of other tasks to the manifest, after those of the workers. */
static strata_status add_parts(const strata_manifest *parts, strata_manifest *manifest, strata_error *err) {
    const int before = manifest->n_files;
    for (int i = 0; i < parts->n_files; i++)
        STRATA_TRY(
            strata_manifest_add_file(manifest, parts->files[i].name, parts->files[i].bytes, parts->files[i].sha256, err));
    for (int i = 0; i < parts->n_tensors; i++) {
        const strata_manifest_tensor *t = &parts->tensors[i];
        for (int k = 0; k < t->n_pieces; k++) {
            strata_manifest_piece piece = t->pieces[k];
            piece.file += before;
            STRATA_TRY(strata_manifest_add_piece(manifest, t->name, t->dtype, t->shape, piece, err));
        }
    }
    return STRATA_OK;
}

static strata_status write_manifest(const strata_checkpoint_folder *f, const char *folder, const char *hash, int64_t bytes,
                                    strata_error *err) {
    strata_manifest *manifest = strata_checkpoint_manifest(f->checkpoint);
    char other[STRATA_SHA256_TEXT_BYTES];
    for (int part = 0; part < f->n_parts; part++) {
        char name[64];
        snprintf(name, sizeof name, "part-%d.safetensors", part);
        int64_t length = bytes;
        if (part) STRATA_TRY(await_hash(folder, part, other, &length, err));
        STRATA_TRY(strata_manifest_add_file(manifest, name, length, part ? other : hash, err));
    }
    STRATA_TRY(strata_checkpoint_describe(f->checkpoint, err));
    STRATA_TRY(add_parts(&f->parts, manifest, err));
    return strata_manifest_write(manifest, folder, err);
}

/* Removes all but the newest checkpoints. Each is renamed first, so that no folder step-... is ever incomplete. */
static void remove_old(const strata_checkpoint_folder *f) {
    STRATA_FREED int64_t *steps = NULL;
    int n;
    if (list(f->path, WHOLE, &steps, &n, NULL)) return; /* the next save tries again */
    for (int i = f->opts.keep; i < n; i++) {
        const place old = of_step(f->path, REMOVING, steps[i]);
        if (!rename(of_step(f->path, WHOLE, steps[i]).path, old.path)) remove_all(old.path);
    }
}

static strata_status write_parts(const strata_checkpoint_folder *f, const place *writing, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES];
    int64_t bytes;
    if (mkdir(writing->path, 0777) && errno != EEXIST) return strata_file_fail(err, errno, writing->path, "make the folder");
    const place part = part_of(writing->path, f->rank, "safetensors");
    STRATA_TRY(strata_checkpoint_write(f->checkpoint, part.path, NULL, hash, &bytes, err));
    if (f->rank) return write_hash(writing->path, f->rank, hash, bytes, err);
    return write_manifest(f, writing->path, hash, bytes, err);
}

static strata_status write_all(const strata_checkpoint_folder *f, strata_error *err) {
    const place writing = of_step(f->path, WRITING, f->saved_steps), whole = of_step(f->path, WHOLE, f->saved_steps);
    strata_status status = write_parts(f, &writing, err);
    if (f->rank) return status;
    /* If steps are repeated after a server was lost, their checkpoint may already exist; it is kept. */
    const bool renamed = !status && !rename(writing.path, whole.path), there = errno == ENOTEMPTY || errno == EEXIST;
    if (!status && !renamed && !there) status = strata_file_fail(err, errno, whole.path, "put the new checkpoint in place");
    if (!renamed) remove_all(writing.path);
    if (status) return status;
    STRATA_TRY(sync_folder(f->path, err));
    remove_old(f);
    return STRATA_OK;
}

static void *write_on_thread(void *folder) {
    strata_checkpoint_folder *f = folder;
    f->status = write_all(f, &f->error);
    return NULL;
}

/* ---- saving ---- */

bool strata_checkpoint_folder_due(const strata_checkpoint_folder *f, bool epoch_end) {
    const int64_t steps = f->model->optimizer_steps;
    if (steps == f->saved_steps || (f->rank && !strata_checkpoint_folder_is_shared(f))) return false;
    if (f->opts.every_steps && steps % f->opts.every_steps == 0) return true;
    if (f->opts.every_seconds > 0 && strata_clock_seconds() - f->saved >= f->opts.every_seconds) return true;
    return epoch_end && !f->opts.every_steps && !(f->opts.every_seconds > 0);
}

bool strata_checkpoint_folder_is_new(const strata_checkpoint_folder *f) {
    return f->model->optimizer_steps != f->saved_steps;
}

bool strata_checkpoint_folder_is_shared(const strata_checkpoint_folder *f) {
    return f->shared || f->alone || f->gathers;
}

/* Waits for the thread, and reports what it returned. */
static strata_status settle(strata_checkpoint_folder *f, strata_error *err) {
    if (!f->checkpoint) return STRATA_OK;
    if (f->writing) pthread_join(f->thread, NULL);
    f->writing = false;
    strata_checkpoint_destroy(f->checkpoint);
    f->checkpoint = NULL;
    strata_manifest_finish(&f->parts);
    if (!f->status) return STRATA_OK;
    if (!f->opts.on_warning) return strata_fail(err, f->status, "%s", f->error.message);
    warn(f, "a checkpoint was not written, and training goes on: %s", f->error.message);
    return STRATA_OK;
}

/* Lets other tasks write what they own to the folder that is being written. */
static strata_status take_parts(strata_checkpoint_folder *f, bool *out_written, strata_error *err) {
    const strata_trainer *trainer = f->model->strategy->trainer;
    char whole[PATH_MAX];
    *out_written = false;
    if (!trainer || !trainer->write_parts) return STRATA_OK;
    STRATA_TRY(trainer->settle(f->model, f->alone, err));
    if (f->alone) return STRATA_OK;
    if (!realpath(f->path, whole))
        return strata_file_fail(err, errno, f->path, "find"); /* other tasks may have another working directory */
    const int64_t steps = f->model->optimizer_steps;
    const place writing = of_step(whole, WRITING, steps);
    remove_all(writing.path);
    if (mkdir(writing.path, 0777)) return strata_file_fail(err, errno, writing.path, "make the folder");
    strata_error why = {0};
    strata_status status = trainer->write_parts(f->model, writing.path, &f->parts, out_written, &why);
    if (status && status != STRATA_UNAVAILABLE) strata_fail(err, status, "%s", why.message);
    if (!status && f->model->optimizer_steps != steps)
        status = strata_fail(err, STRATA_INTERNAL, "checkpoint: %lld updates were made, and the tasks have %lld",
                             (long long)steps, (long long)f->model->optimizer_steps);
    if (!status) return STRATA_OK;
    remove_all(writing.path);
    strata_manifest_finish(&f->parts);
    if (status != STRATA_UNAVAILABLE) return status;
    /* They do not reach the folder, or were lost; in the latter case they cannot be asked for their values either. */
    STRATA_TRY(trainer->settle(f->model, true, err));
    warn(f,
         "the chief writes checkpoints alone, with the values that it fetches from all servers, since these cannot write "
         "there: %s",
         why.message);
    f->alone = true;
    return STRATA_OK;
}

strata_status strata_checkpoint_folder_save(strata_checkpoint_folder *f, int epochs, strata_error *err) {
    bool written = false;
    STRATA_TRY(settle(f, err));
    STRATA_TRY(take_parts(f, &written, err));
    f->saved = strata_clock_seconds();
    f->saved_steps = f->model->optimizer_steps;
    STRATA_FINISHED(strata_callback_states) callbacks = {0};
    STRATA_TRY(strata_callback_states_take(f->model, f->gathers, &callbacks, err));
    if (f->rank && !f->shared && !f->alone) return STRATA_OK;
    const strata_checkpoint_scope scope = written     ? STRATA_CHECKPOINT_COUNTS
                                          : f->shared ? STRATA_CHECKPOINT_SHARDS
                                                      : STRATA_CHECKPOINT_ALL;
    STRATA_TRY(strata_checkpoint_take(f->model, epochs, scope, &callbacks, &f->checkpoint, err));
    f->status = STRATA_OK;
    if (f->rank && f->alone) return STRATA_OK; /* rank 0 has this worker's values; settle destroys the copy */
    f->writing = !pthread_create(&f->thread, NULL, write_on_thread, f);
    if (!f->writing) write_on_thread(f); /* no thread could be created */
    return STRATA_OK;
}

strata_status strata_checkpoint_folder_close(strata_checkpoint_folder *f, strata_error *err) {
    if (!f) return STRATA_OK;
    const strata_status status = settle(f, err);
    if (f->lock >= 0) close(f->lock); /* this also unlocks the file */
    free(f->path);
    free(f);
    return status;
}
