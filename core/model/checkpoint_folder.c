/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing and finding checkpoints that are folders. */
#include "core/model/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"

static const char OWN_FILE[] = "part-0.safetensors", BEGINS[] = "step-";
/* Of a file of a checkpoint. */
enum { MOST_BYTES_POWER = 40 };

const char *strata_checkpoint_slot_name(int slot) {
    static const char *const names[STRATA_MAX_OPTIMIZER_SLOTS] = {
        STRATA_CHECKPOINT_PREFIX "slot_0", STRATA_CHECKPOINT_PREFIX "slot_1", STRATA_CHECKPOINT_PREFIX "slot_2"};
    return names[slot];
}

bool strata_checkpoint_is_folder(const char *path) {
    struct stat found;
    const size_t n = strlen(path);
    return (n && path[n - 1] == '/') || (!stat(path, &found) && S_ISDIR(found.st_mode));
}

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "checkpoint: no host memory");
}

strata_status strata_checkpoint_hash_file(const char *path, int64_t *out_bytes, char out_sha256[STRATA_SHA256_TEXT_BYTES],
                                          strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    STRATA_TRY(strata_file_read(path, STRATA_BYTES_LIMIT(MOST_BYTES_POWER), &bytes, &n, err));
    const strata_status status = strata_sha256_of(bytes, n, out_sha256, err);
    free(bytes);
    *out_bytes = (int64_t)n;
    return status;
}

/* ---- folders on the disk ---- */

/* Deletes the files of a checkpoint's folder, and the folder. */
static void delete_folder(const char *path) {
    char file[STRATA_CHECKPOINT_PATH_BYTES];
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            (size_t)snprintf(file, sizeof file, "%s/%s", path, entry->d_name) < sizeof file)
            unlink(file);
    if (dir) closedir(dir);
    rmdir(path);
}

static strata_status sync_folder(const char *path, strata_error *err) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int failed = fd < 0 || fsync(fd) ? errno : 0;
    if (fd >= 0) close(fd);
    return failed ? strata_file_fail(err, failed, path, "sync the folder") : STRATA_OK;
}

/* The number of "step-000000000120"; -1: another name. */
static int64_t number_of(const char *name) {
    long long number = -1;
    int end = 0;
    if (strncmp(name, BEGINS, sizeof BEGINS - 1) != 0) return -1;
    if (sscanf(name + sizeof BEGINS - 1, "%12lld%n", &number, &end) != 1 || end != 12 || name[sizeof BEGINS - 1 + 12])
        return -1;
    return (int64_t)number;
}

static strata_status path_of(const char *folder, int64_t number, bool hidden, char out[STRATA_CHECKPOINT_PATH_BYTES],
                             strata_error *err) {
    const int n =
        snprintf(out, STRATA_CHECKPOINT_PATH_BYTES, "%s/%s%s%012lld", folder, hidden ? "." : "", BEGINS, (long long)number);
    if (n < STRATA_CHECKPOINT_PATH_BYTES - 64) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "checkpoint: the folder's name %.60s... is too long", folder);
}

static int newest_first(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The numbers of the checkpoints in a folder, the newest first; free them. A folder that is not there has none. */
static strata_status list(const char *path, int64_t **out_numbers, int *out_n, strata_error *err) {
    DIR *dir = opendir(path);
    const struct dirent *entry;
    int64_t *numbers = NULL;
    int n = 0;
    *out_numbers = NULL;
    *out_n = 0;
    if (!dir) return errno == ENOENT ? STRATA_OK : strata_file_fail(err, errno, path, "open the folder");
    while ((entry = readdir(dir))) {
        const int64_t number = number_of(entry->d_name);
        int64_t *grown = number >= 0 ? realloc(numbers, (size_t)(n + 1) * sizeof *numbers) : NULL;
        if (number >= 0 && !grown) {
            free(numbers);
            closedir(dir);
            return no_memory(err);
        }
        if (grown) numbers = grown, numbers[n++] = number;
    }
    closedir(dir);
    if (n) qsort(numbers, (size_t)n, sizeof *numbers, newest_first);
    *out_numbers = numbers;
    *out_n = n;
    return STRATA_OK;
}

/* ---- writing ---- */

static strata_status begin(strata_model *model, strata_checkpoint_folder *folder, strata_error *err) {
    const strata_trainer *trainer = model->strategy->trainer;
    return trainer && trainer->write_parts
               ? trainer->write_parts(model, folder->temporary, &folder->manifest, &folder->has_parts, err)
               : STRATA_OK;
}

strata_status strata_checkpoint_folder_begin(strata_model *model, const char *path, strata_checkpoint_folder *folder,
                                             strata_error *err) {
    char whole[PATH_MAX];
    *folder = (strata_checkpoint_folder){0};
    if (mkdir(path, 0777) && errno != EEXIST) return strata_file_fail(err, errno, path, "make the folder");
    /* Other tasks may stand in another folder. */
    if (!realpath(path, whole)) return strata_file_fail(err, errno, path, "find the folder");
    STRATA_TRY(path_of(whole, (int64_t)getpid(), true, folder->temporary, err));
    delete_folder(folder->temporary);
    if (mkdir(folder->temporary, 0777)) return strata_file_fail(err, errno, folder->temporary, "make the folder");
    const strata_status status = begin(model, folder, err);
    if (status) strata_checkpoint_folder_finish(folder);
    return status;
}

static strata_status add_texts(strata_model *model, strata_manifest *manifest, strata_error *err) {
    char *json = NULL;
    STRATA_TRY(strata_model_to_json(model, &json, err));
    strata_status status = strata_manifest_set_model(manifest, json, err);
    for (int i = 0; i < model->notes.n && !status; i++)
        status = strata_manifest_add_text(manifest, model->notes.items[i].key, model->notes.items[i].text, err);
    free(json);
    return status;
}

/* The file of this process. */
static strata_status write_own(strata_checkpoint_folder *folder, const strata_named_array *arrays, int n, strata_error *err) {
    char path[STRATA_CHECKPOINT_PATH_BYTES + sizeof OWN_FILE], sha256[STRATA_SHA256_TEXT_BYTES];
    int64_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", folder->temporary, OWN_FILE);
    STRATA_TRY(strata_safetensors_write(path, arrays, (size_t)n, NULL, 0, err));
    STRATA_TRY(strata_checkpoint_hash_file(path, &bytes, sha256, err));
    STRATA_TRY(strata_manifest_add_file(&folder->manifest, OWN_FILE, bytes, sha256, err));
    for (int i = 0; i < n; i++) {
        const strata_array *array = &arrays[i].array;
        const strata_manifest_piece piece = {folder->manifest.n_files - 1, 0, strata_shape_elements(array->shape)};
        STRATA_TRY(strata_manifest_add_piece(&folder->manifest, arrays[i].name, array->dtype, array->shape, piece, err));
    }
    return STRATA_OK;
}

static strata_status write_rest(strata_model *model, strata_checkpoint_folder *folder, const strata_named_array *extra,
                                int n_extra, strata_error *err) {
    const int n = folder->has_parts ? 0 : model->parameters.n;
    float *values = malloc((size_t)(strata_model_all_size(model) + 1) * sizeof *values);
    strata_named_array *arrays = calloc((size_t)(n + n_extra + 1), sizeof *arrays);
    strata_status status = values && arrays ? STRATA_OK : no_memory(err);
    if (!status && n) status = strata_model_read_all(model, values, err);
    for (int i = 0; i < n && !status; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        arrays[i] =
            (strata_named_array){p->name, strata_array_view(STRATA_DTYPE_F32, p->shape, values + strata_model_place(model, p))};
    }
    if (!status && n_extra) memcpy(arrays + n, extra, (size_t)n_extra * sizeof *extra);
    if (!status) status = write_own(folder, arrays, n + n_extra, err);
    free(arrays);
    free(values);
    return status;
}

/* The folder gets its name. One of this number, which has the same steps, makes room first. */
static strata_status rename_whole(strata_checkpoint_folder *folder, const char *path, int64_t number, strata_error *err) {
    char final[STRATA_CHECKPOINT_PATH_BYTES], old[STRATA_CHECKPOINT_PATH_BYTES + 8];
    STRATA_TRY(sync_folder(folder->temporary, err));
    STRATA_TRY(path_of(path, number, false, final, err));
    snprintf(old, sizeof old, "%s.old", folder->temporary);
    const bool replaced = !rename(final, old);
    if (rename(folder->temporary, final)) {
        const int failed = errno;
        if (replaced && rename(old, final)) return strata_file_fail(err, errno, old, "rename back");
        return strata_file_fail(err, failed, final, "rename a checkpoint to");
    }
    if (replaced) delete_folder(old);
    *folder->temporary = '\0';
    return sync_folder(path, err);
}

strata_status strata_checkpoint_folder_end(strata_model *model, const char *path, strata_checkpoint_folder *folder,
                                           const strata_named_array *extra, int n_extra, int keep, strata_error *err) {
    char old[STRATA_CHECKPOINT_PATH_BYTES];
    int64_t *numbers = NULL;
    int n = 0;
    STRATA_TRY(add_texts(model, &folder->manifest, err));
    STRATA_TRY(write_rest(model, folder, extra, n_extra, err));
    STRATA_TRY(strata_manifest_write(&folder->manifest, folder->temporary, err));
    STRATA_TRY(rename_whole(folder, path, model->optimizer_steps, err));
    STRATA_TRY(list(path, &numbers, &n, err));
    for (int i = keep; i < n; i++)
        if (!path_of(path, numbers[i], false, old, NULL)) delete_folder(old);
    free(numbers);
    return STRATA_OK;
}

void strata_checkpoint_folder_finish(strata_checkpoint_folder *folder) {
    if (*folder->temporary) delete_folder(folder->temporary);
    strata_manifest_finish(&folder->manifest);
    *folder = (strata_checkpoint_folder){0};
}

/* ---- finding ---- */

static strata_status open_one(const char *path, int64_t number, strata_checkpoint_found *found, strata_error *err) {
    char folder[STRATA_CHECKPOINT_PATH_BYTES];
    STRATA_TRY(path_of(path, number, false, folder, err));
    STRATA_TRY(strata_manifest_read(folder, &found->manifest, err));
    found->folder = strdup(folder);
    if (!found->folder) return no_memory(err);
    return strata_manifest_open(&found->manifest, found->folder, &found->reader, err);
}

strata_status strata_checkpoint_folder_open(const char *path, strata_checkpoint_found *out_found, strata_error *err) {
    int64_t *numbers = NULL;
    int n = 0;
    strata_error newest = {0};
    *out_found = (strata_checkpoint_found){0};
    STRATA_TRY(list(path, &numbers, &n, err));
    strata_status status = STRATA_OK;
    for (int i = 0; i < n; i++) {
        status = open_one(path, numbers[i], out_found, i ? NULL : &newest);
        if (!status) break;
        strata_checkpoint_folder_close(out_found);
    }
    free(numbers);
    return status ? strata_fail(err, newest.status, "%s", newest.message) : STRATA_OK;
}

void strata_checkpoint_folder_close(strata_checkpoint_found *found) {
    strata_manifest_close(&found->reader);
    strata_manifest_finish(&found->manifest);
    free(found->folder);
    *found = (strata_checkpoint_found){0};
}
