/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of pictures: finding the classes and the size of the examples, and making datasets of pictures of that size, or of
 * pictures that have one size already. */
#include <stdio.h>

#include "core/data/dataset.h"
#include "core/data/format/picture_formats.h"
#include "core/data/format/stream.h"
#include "core/data/prepare/preprocessing.h"

static const size_t MOST_FILE_BYTES = (size_t)256 << 20;
enum {
    /* Pictures are not resized if all have the same size and no side is longer than this. */
    LARGEST_OWN_SIDE = 128,
    /* Other pictures are resized to sides of at most this length. */
    LARGEST_SIDE = 64,
    MOST_SIDE = 4096,
    /* An error message lists at most this many pictures that cannot be read. */
    MOST_NAMED = 5,
    MOST_CLASSES = 65536
};

static strata_status no_memory(const char *name, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", name);
}

/* ---- a list of pictures ---- */

typedef struct picture {
    /* The path in the folder, for example "cat/1.png". */
    char *name;
    strata_picture_size size;
    /* data NULL: only the header was read. */
    strata_array pixels;
} picture;

typedef struct picture_list {
    picture *pictures;
    int64_t n, capacity;
    /* Pictures are resized to this shape, (rows, columns, channels). Rank 0: they are not resized. */
    strata_shape element;
    /* The channels of pictures that are not resized. 0: only their headers are read. */
    int channels;
    /* How many pictures could not be read, and the messages for the first of them. */
    int64_t n_unread;
    strata_text unread;
    /* What was left out: "left out 1 broken link (cats/1.png)", or empty. */
    strata_text left_out;
} picture_list;

static void picture_list_finish(picture_list *a) {
    for (int64_t i = 0; i < a->n; i++) {
        free(a->pictures[i].name);
        strata_array_finish(&a->pictures[i].pixels);
    }
    free(a->pictures);
    strata_text_finish(&a->unread);
    strata_text_finish(&a->left_out);
}

static strata_status read_pixels(const char *place, const unsigned char *bytes, size_t n_bytes, const picture_list *a,
                                 strata_array *out, strata_error *err) {
    const strata_shape element = a->element;
    STRATA_FINISHED(strata_array) pixels = {0};
    if (!element.rank) return strata_picture_parse(place, bytes, n_bytes, a->channels, out, err);
    STRATA_TRY(strata_picture_parse(place, bytes, n_bytes, (int)element.dims[2], &pixels, err));
    return strata_picture_resize(&pixels, element.dims[0], element.dims[1], out, err);
}

static strata_status add_picture(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                                 strata_error *err) {
    picture_list *a = user;
    STRATA_FREED unsigned char *taken = bytes;
    if (!strata_make_room(&a->pictures, a->n, &a->capacity, sizeof *a->pictures)) return no_memory(place, err);
    picture *added = &a->pictures[a->n++];
    *added = (picture){.name = strdup(name)};
    if (!added->name) return no_memory(place, err);
    return a->element.rank || a->channels ? read_pixels(place, taken, n_bytes, a, &added->pixels, err)
                                          : strata_picture_measure(place, taken, n_bytes, &added->size, err);
}

/* Adds a picture. If it cannot be read, it is only counted, so that one error message can list all pictures that cannot be
 * read. Takes the bytes. */
static strata_status add_readable_picture(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                                          strata_error *err) {
    picture_list *a = user;
    strata_error reason = {0};
    const int64_t n = a->n;
    const strata_status status = add_picture(name, place, bytes, n_bytes, a, &reason);
    if (status != STRATA_DATA && status != STRATA_UNSUPPORTED)
        return status ? strata_fail(err, status, "%s", reason.message) : status;
    free(a->pictures[n].name);
    a->n = n;
    if (a->n_unread++ < MOST_NAMED) strata_text_add(&a->unread, "%s%s", a->unread.n_bytes ? "; " : "", reason.message);
    return STRATA_OK;
}

static strata_status check_unread(const char *path, const picture_list *a, strata_error *err) {
    const char *names = a->unread.bytes ? a->unread.bytes : "";
    if (!a->n_unread) return STRATA_OK;
    if (a->n_unread == 1) return strata_fail(err, STRATA_DATA, "a picture cannot be read; repair or remove it: %s", names);
    return strata_fail(err, STRATA_DATA, "%s: %lld pictures cannot be read; repair or remove them: %s%s", path,
                       (long long)a->n_unread, names, a->n_unread > MOST_NAMED ? "; ..." : "");
}

static int by_name(const void *a, const void *b) {
    return strata_tree_compare_names(((const picture *)a)->name, ((const picture *)b)->name);
}

/* Reads all pictures of a folder, sorted by name. classes: each must be in the folder of its class. take: add_picture, which
 * fails at once, or add_readable_picture. */
static strata_status read_folder(const char *path, bool classes, strata_tree_take take, picture_list *a, strata_error *err) {
    strata_picture_folder folder = {.classes = classes, .take = take, .user = a};
    STRATA_TRY(strata_picture_folder_visit(path, &folder, err));
    STRATA_TRY(check_unread(path, a, err));
    strata_picture_folder_describe(&folder, &a->left_out);
    qsort(a->pictures, (size_t)a->n, sizeof *a->pictures, by_name);
    return STRATA_OK;
}

/* ---- classes ---- */

static size_t class_length(const picture *p) {
    return strcspn(p->name, "/");
}

static strata_status find_classes(const char *path, const picture_list *a, strata_column *label, strata_error *err) {
    STRATA_FREED const char **names = NULL;
    int n = 0;
    STRATA_TRY(STRATA_NEW(names, a->n, err, "%s: no host memory", path));
    for (int64_t i = 0; i < a->n; i++) {
        char *name = a->pictures[i].name;
        name[class_length(&a->pictures[i])] = 0; /* the file's name is not needed any more */
        if (!n || strcmp(name, names[n - 1])) names[n++] = name;
    }
    label->kind = STRATA_COLUMN_WORDS;
    label->n_words = n;
    return strata_names_copy(names, n, &label->words, err);
}

/* ---- size ---- */

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The median of the pictures' heights (rows: true) or widths. A median above the limit becomes LARGEST_SIDE. */
static int64_t choose_side(const picture_list *a, bool rows, int64_t *sides) {
    for (int64_t i = 0; i < a->n; i++) sides[i] = rows ? a->pictures[i].size.rows : a->pictures[i].size.columns;
    qsort(sides, (size_t)a->n, sizeof *sides, by_number);
    const int64_t most = sides[0] == sides[a->n - 1] ? LARGEST_OWN_SIDE : LARGEST_SIDE, median = sides[a->n / 2];
    return median > most ? LARGEST_SIDE : median;
}

static strata_status choose_size(const char *path, const picture_list *a, const strata_preprocessing_options *opts,
                                 strata_preprocessing *p, strata_error *err) {
    bool grey = true, same = true;
    strata_text found = {0};
    STRATA_FREED int64_t *sides = NULL;
    STRATA_TRY(STRATA_NEW(sides, a->n, err, "%s: no host memory", path));
    for (int64_t i = 0; i < a->n; i++) {
        grey &= a->pictures[i].size.channels == 1;
        same &=
            a->pictures[i].size.rows == a->pictures[0].size.rows && a->pictures[i].size.columns == a->pictures[0].size.columns;
    }
    p->element = STRATA_SHAPE(opts->rows ? opts->rows : choose_side(a, true, sides),
                              opts->columns ? opts->columns : choose_side(a, false, sides),
                              opts->channels ? opts->channels
                              : grey         ? 1
                                             : 3);
    if (p->element.dims[0] < 1 || p->element.dims[0] > MOST_SIDE || p->element.dims[1] < 1 || p->element.dims[1] > MOST_SIDE)
        return strata_fail(err, STRATA_INVALID, "pictures of %lld x %lld; sides are 1 to %d", (long long)p->element.dims[1],
                           (long long)p->element.dims[0], MOST_SIDE);
    const bool resized =
        !same || p->element.dims[0] != a->pictures[0].size.rows || p->element.dims[1] != a->pictures[0].size.columns;
    strata_text_add(&found, "%lld pictures, %s, ", (long long)a->n, p->element.dims[2] == 1 ? "grey" : "coloured");
    if (resized) strata_text_add(&found, "%s, resized to ", same ? "of one size" : "of several sizes");
    strata_text_add(&found, "%lld x %lld, %d classes", (long long)p->element.dims[1], (long long)p->element.dims[0],
                    p->labels[0].n_words);
    if (a->left_out.n_bytes) strata_text_add(&found, "\n%s", a->left_out.bytes);
    return strata_text_take(&found, &p->found, NULL, err);
}

strata_status strata_preprocessing_from_pictures(const char *path, const strata_preprocessing_options *opts,
                                                 strata_preprocessing **out_preprocessing, strata_error *err) {
    const strata_preprocessing_options defaults = {0};
    STRATA_FINISHED(picture_list) a = {0};
    STRATA_OWNED(strata_preprocessing) *p = NULL;
    STRATA_TRY(STRATA_NEW(p, 1, err, "%s: no host memory", path));
    p->kind = STRATA_PREPROCESSING_PICTURES;
    p->measured = true;
    STRATA_TRY(STRATA_NEW(p->labels, 1, err, "%s: no host memory", path));
    p->n_labels = 1;
    STRATA_TRY(read_folder(path, true, add_readable_picture, &a, err));
    STRATA_TRY(find_classes(path, &a, &p->labels[0], err));
    if (!(p->labels[0].name = strdup("class"))) return no_memory(path, err);
    if (p->labels[0].n_words < 2)
        return strata_fail(err, STRATA_DATA,
                           "%s: all pictures are of one class, \"%s\"; there must be a folder for each of several classes",
                           path, p->labels[0].words[0]);
    STRATA_TRY(choose_size(path, &a, opts ? opts : &defaults, p, err));
    *out_preprocessing = strata_released(&p);
    return STRATA_OK;
}

/* ---- examples ---- */

/* Finds the class of each picture by the name of its folder. */
static strata_status label_all(const strata_preprocessing *p, const char *path, const picture_list *a, strata_array *out,
                               strata_error *err) {
    const strata_column *label = &p->labels[0];
    STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(a->n), out, err));
    for (int64_t i = 0; i < a->n; i++) {
        char *name = a->pictures[i].name;
        name[class_length(&a->pictures[i])] = 0;
        const int class = strata_column_word(label, name, NULL);
        if (class < 0)
            return strata_fail(err, STRATA_DATA, "%s/%s: is not one of the model's %d classes%s", path, name, label->n_words,
                               strata_nearest_hint(name, label->words, label->n_words).text);
        ((int32_t *)out->data)[i] = class;
    }
    return STRATA_OK;
}

/* Makes a dataset of the pictures. Those without labels have the names of the files, so that predictions can name them. `facts`
 * has what else is known. */
static strata_status list_to_dataset(const strata_preprocessing *p, const char *path, const picture_list *a, bool unlabelled,
                                     strata_dataset_facts facts, strata_dataset **out_dataset, strata_error *err) {
    const strata_shape e = p->element;
    const size_t bytes = (size_t)strata_shape_elements(e);
    STRATA_FINISHED(strata_array) x = {0}, y = {0};
    STRATA_FREED const char **names = NULL;
    STRATA_TRY(STRATA_NEW(names, a->n, err, "no host memory for the names of %lld pictures", (long long)a->n));
    STRATA_TRY(strata_array_create(STRATA_DTYPE_U8, STRATA_SHAPE(a->n, e.dims[0], e.dims[1], e.dims[2]), &x, err));
    for (int64_t i = 0; i < a->n; i++) {
        memcpy((uint8_t *)x.data + (size_t)i * bytes, a->pictures[i].pixels.data, bytes);
        names[i] = a->pictures[i].name;
    }
    if (!unlabelled) STRATA_TRY(label_all(p, path, a, &y, err));
    facts.scale = 1.0 / 255;
    facts.element_names = unlabelled ? names : NULL;
    facts.class_names = (const char *const *)p->labels[0].words;
    facts.n_class_names = p->labels[0].n_words;
    return strata_dataset_take_known(&x, &y, &facts, out_dataset, err);
}

static strata_status read_one(const char *path, picture_list *a, strata_error *err) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    STRATA_TRY(strata_stream_read_file(path, MOST_FILE_BYTES, &bytes, &n, err));
    STRATA_TRY(add_readable_picture(path, path, bytes, n, a, err));
    return check_unread(path, a, err);
}

strata_status strata_preprocessing_apply_pictures(const strata_preprocessing *p, const char *path,
                                                  const strata_apply_options *opts, strata_dataset **out_dataset,
                                                  strata_error *err) {
    const bool unlabelled = opts && opts->unlabelled, folder = strata_tree_is_folder(path);
    STRATA_FINISHED(picture_list) a = {.element = p->element};
    if (p->kind != STRATA_PREPROCESSING_PICTURES)
        return strata_fail(err, STRATA_DATA, "%s: is %s, but the model did not learn from pictures", path,
                           folder ? "a folder" : "a picture");
    if (!folder && !unlabelled)
        return strata_fail(err, STRATA_DATA, "%s: is not a folder; pictures with labels must be in <folder>/<class>/", path);
    if (opts && opts->report) *opts->report = (strata_preprocessing_report){0};
    strata_status status = folder ? read_folder(path, !unlabelled, add_readable_picture, &a, err) : read_one(path, &a, err);
    if (opts && opts->report && a.left_out.n_bytes)
        snprintf(opts->report->left_out, sizeof opts->report->left_out, "%s", a.left_out.bytes);
    return status ? status : list_to_dataset(p, path, &a, unlabelled, (strata_dataset_facts){.source = path}, out_dataset, err);
}

/* ---- pictures of one size ---- */

static strata_status check_sizes(const char *path, const picture_list *a, strata_error *err) {
    const strata_shape first = a->pictures[0].pixels.shape;
    for (int64_t i = 1; i < a->n; i++) {
        const strata_shape own = a->pictures[i].pixels.shape;
        if (strata_shape_equal(own, first)) continue;
        return strata_fail(err, STRATA_DATA,
                           "%s/%s: has %lld x %lld pixels, but %s/%s has %lld x %lld; resize them to one size", path,
                           a->pictures[i].name, (long long)own.dims[1], (long long)own.dims[0], path, a->pictures[0].name,
                           (long long)first.dims[1], (long long)first.dims[0]);
    }
    return STRATA_OK;
}

strata_status strata_dataset_image_folder(const char *path, int channels, strata_dataset **out_dataset, strata_error *err) {
    STRATA_FINISHED(strata_column) label = {0};
    strata_preprocessing p = {.kind = STRATA_PREPROCESSING_PICTURES, .labels = &label, .n_labels = 1};
    STRATA_FINISHED(picture_list) a = {.channels = channels ? channels : 3};
    STRATA_FREED int64_t *ends = NULL; /* each picture is a file */
    char source[1024];
    STRATA_TRY(read_folder(path, true, add_picture, &a, err));
    STRATA_TRY(check_sizes(path, &a, err));
    p.element = a.pictures[0].pixels.shape;
    STRATA_TRY(find_classes(path, &a, &label, err));
    if (label.n_words > MOST_CLASSES)
        return strata_fail(err, STRATA_DATA, "%s: more than %d folders of classes", path, MOST_CLASSES);
    STRATA_TRY(STRATA_NEW(ends, a.n, err, "%s: no host memory", path));
    for (int64_t i = 0; i < a.n; i++) ends[i] = i + 1;
    snprintf(source, sizeof source, "%.400s: %lld pictures of %d classes%s%s", path, (long long)a.n, label.n_words,
             a.left_out.n_bytes ? "; " : "", a.left_out.n_bytes ? a.left_out.bytes : "");
    const strata_dataset_facts facts = {.source = source, .file_ends = ends, .n_files = a.n};
    return list_to_dataset(&p, path, &a, false, facts, out_dataset, err);
}
