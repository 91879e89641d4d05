/* SPDX-License-Identifier: Apache-2.0
 *
 * Sources whose elements come from the program's callbacks, and from files that are read one after the other: each is opened
 * when the iteration reaches it. */
#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/stage/stage.h"

/* ---- generator ---- */

typedef struct generating {
    void *state;
    bool opened, ended;
} generating;

static strata_status generator_open(strata_iterator *it, strata_error *err) {
    const strata_generator *g = it->dataset->state;
    generating *s = it->state;
    s->state = g->user;
    if (g->open) STRATA_TRY(g->open(g->user, it->seed, it->epoch, &s->state, err));
    s->opened = true;
    return STRATA_OK;
}

static void generator_close(strata_iterator *it) {
    const strata_generator *g = it->dataset->state;
    const generating *s = it->state;
    if (s->opened && g->close) g->close(s->state);
}

static strata_status generator_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    const strata_generator *g = it->dataset->state;
    generating *s = it->state;
    strata_key key = {it->seed, it->epoch, it->position};
    if (s->ended) return STRATA_OK;
    out->key = key;
    out->n_parts = g->spec.n_parts;
    strata_status status = g->next(s->state, it->position, out, &s->ended, err);
    if (status) status = strata_element_fail_in(err, status, "generator", &key);
    out->key = key;
    if (!status && !s->ended) status = strata_element_check(out, &g->spec, "generator", err);
    *out_more = !status && !s->ended;
    if (!*out_more) strata_element_finish(out);
    return status;
}

static const strata_stage generator_stage = {.name = "generator",
                                             .state_bytes = sizeof(generating),
                                             .open = generator_open,
                                             .next = generator_next,
                                             .close = generator_close};

strata_status strata_dataset_from_generator(const strata_generator *generator, strata_dataset **out_dataset,
                                            strata_error *err) {
    if (!generator->next) return strata_fail(err, STRATA_INVALID, "generator: needs a function `next`");
    if (generator->size < STRATA_SIZE_INFINITE)
        return strata_fail(err, STRATA_INVALID, "generator: its size is %lld", (long long)generator->size);
    STRATA_TRY(
        strata_stage_create(&generator_stage, NULL, 0, generator, sizeof *generator, &generator->spec, out_dataset, err));
    (*out_dataset)->n = generator->size;
    return STRATA_OK;
}

/* ---- files ---- */

/* The index of an element is (index of the file << FILE_SHIFT) + index in the file. */
enum { FILE_SHIFT = 32 };

typedef struct files {
    char **paths;        /* [dataset->n_files], owned */
    int64_t first, step; /* paths[i] is file first + i * step of the dataset that was divided among workers */
    strata_file_function open;
    void *user;
} files;

typedef struct reading {
    int64_t next; /* the index in paths of the file to open next */
    strata_dataset *dataset;
    strata_iterator *iterator; /* NULL: no file is open */
    int64_t in_file;           /* how many elements of this file were returned */
} reading;

static void close_file(reading *r) {
    strata_iterator_destroy(r->iterator);
    strata_dataset_destroy(r->dataset);
    r->iterator = NULL;
    r->dataset = NULL;
}

static strata_status open_next(strata_iterator *it, strata_error *err) {
    const files *f = it->dataset->state;
    reading *r = it->state;
    const char *path = f->paths[r->next++];
    r->in_file = 0;
    strata_status status = f->open(path, f->user, &r->dataset, err);
    if (!status) status = strata_iterator_create(r->dataset, it->seed, it->epoch, 0, &r->iterator, err);
    return status ? strata_fail_in(err, status, "file %s", path) : STRATA_OK;
}

static strata_status files_next(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    const files *f = it->dataset->state;
    reading *r = it->state;
    for (;;) {
        if (!r->iterator && r->next == it->dataset->n_files) return STRATA_OK;
        if (!r->iterator) STRATA_TRY(open_next(it, err));
        STRATA_TRY(strata_iterator_next(r->iterator, out, out_more, err));
        if (*out_more) break;
        close_file(r);
    }
    const int64_t file = f->first + (r->next - 1) * f->step;
    strata_status status = strata_element_check(out, &it->dataset->spec, f->paths[r->next - 1], err);
    out->key = (strata_key){it->seed, it->epoch, (file << FILE_SHIFT) + r->in_file++};
    if (status) strata_element_finish(out), *out_more = false;
    return status;
}

static void files_close(strata_iterator *it) {
    close_file(it->state);
}

static void files_destroy(strata_dataset *dataset) {
    free(((files *)dataset->state)->paths);
}

static strata_status files_shard(const strata_dataset *dataset, int64_t n, int64_t index, strata_dataset **out_dataset,
                                 strata_error *err);

static const strata_stage files_stage = {.name = "files",
                                         .state_bytes = sizeof(reading),
                                         .next = files_next,
                                         .close = files_close,
                                         .destroy = files_destroy,
                                         .shard_files = files_shard};

/* Makes a source of these files. `of` has its other fields. */
static strata_status make(const char *const *paths, int64_t n, files of, const strata_element_spec *spec,
                          strata_dataset **out_dataset, strata_error *err) {
    STRATA_OWNED(strata_dataset) *dataset = NULL;
    of.paths = NULL;
    STRATA_TRY(strata_stage_create(&files_stage, NULL, 0, &of, sizeof of, spec, &dataset, err));
    STRATA_TRY(strata_names_copy(paths, (int)n, &((files *)dataset->state)->paths, err));
    dataset->n_files = n;
    *out_dataset = strata_released(&dataset);
    return STRATA_OK;
}

static strata_status files_shard(const strata_dataset *dataset, int64_t n, int64_t index, strata_dataset **out_dataset,
                                 strata_error *err) {
    files of = *(const files *)dataset->state;
    const int64_t count = (dataset->n_files - index - 1) / n + 1;
    STRATA_FREED const char **paths = NULL;
    STRATA_TRY(STRATA_NEW(paths, count, err, "files: no host memory for %lld paths", (long long)count));
    for (int64_t i = 0; i < count; i++) paths[i] = of.paths[index + i * n];
    of.first += index * of.step;
    of.step *= n;
    return make(paths, count, of, &dataset->spec, out_dataset, err);
}

strata_status strata_dataset_from_files(const char *const *paths, int n_paths, strata_file_function open, void *user,
                                        const strata_element_spec *spec, strata_dataset **out_dataset, strata_error *err) {
    if (n_paths < 1 || !open || !spec)
        return strata_fail(err, STRATA_INVALID,
                           "files: %d paths; there must be at least one, a function that opens a file, and the "
                           "elements' spec",
                           n_paths);
    const files of = {.step = 1, .open = open, .user = user};
    return make(paths, n_paths, of, spec, out_dataset, err);
}
