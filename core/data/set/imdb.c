/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the IMDB reviews: from the folder aclImdb, its tar archive, or a CSV file for each split. */
#include <stdio.h>
#include <sys/stat.h>

#include "core/data/dataset.h"
#include "core/data/format/tree.h"
#include "core/data/text/tokenizer.h"

enum { LONGEST_PATH = 4096 };
static const char *const classes[] = {"negative", "positive"}, *const folders[] = {"neg/", "pos/"};

/* ---- the official layout: each review is a file ---- */

typedef struct review {
    char *name; /* for example "train/neg/0_3.txt" */
    char *text;
    int label;
} review;

typedef struct reviews {
    const char *split; /* "train/" or "test/" */
    review *items;
    int64_t n, capacity;
} reviews;

/* The class of a file like "train/pos/0_9.txt" or "aclImdb/train/pos/0_9.txt"; -1: the file is not a review of the split. */
static int class_of(const char *name, const char *split) {
    static const char root[] = "aclImdb/", ending[] = ".txt";
    if (!strncmp(name, root, sizeof root - 1)) name += sizeof root - 1;
    if (strncmp(name, split, strlen(split))) return -1;
    name += strlen(split);
    for (int i = 0; i < 2; i++) {
        const char *file = name + strlen(folders[i]);
        if (strncmp(name, folders[i], strlen(folders[i])) || strchr(file, '/')) continue;
        size_t length = strlen(file);
        return length >= sizeof ending && !strcmp(file + length - (sizeof ending - 1), ending) ? i : -1;
    }
    return -1;
}

static bool wants_review(const char *name, void *user) {
    return class_of(name, ((const reviews *)user)->split) >= 0;
}

static strata_status check_text(const char *place, const unsigned char *bytes, size_t n_bytes, strata_error *err) {
    for (size_t at = 0, length; at < n_bytes; at += length) {
        length = bytes[at] ? strata_utf8_length(bytes + at, n_bytes - at) : 0;
        if (!length) return strata_fail(err, STRATA_DATA, "%s: byte 0x%02X at %zu is not valid UTF-8", place, bytes[at], at);
    }
    return STRATA_OK;
}

static strata_status take_review(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                                 strata_error *err) {
    reviews *r = user;
    STRATA_FREED char *text = (char *)bytes, *copy = strdup(name);
    STRATA_TRY(check_text(place, bytes, n_bytes, err));
    if (!copy || !strata_make_room(&r->items, r->n, &r->capacity, sizeof *r->items))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", place);
    r->items[r->n++] = (review){strata_released(&copy), strata_released(&text), class_of(name, r->split)};
    return STRATA_OK;
}

static void reviews_finish(reviews *r) {
    for (int64_t i = 0; i < r->n; i++) free(r->items[i].name), free(r->items[i].text);
    free(r->items);
}

static strata_status from_reviews(reviews *r, const char *place, strata_texts **out_texts, strata_error *err) {
    char source[LONGEST_PATH + 64];
    STRATA_OWNED(strata_texts) *texts = NULL;
    snprintf(source, sizeof source, "%s: %lld reviews", place, (long long)r->n);
    STRATA_TRY(strata_texts_create(source, classes, 2, &texts, err));
    qsort(r->items, (size_t)r->n, sizeof *r->items, strata_by_bytes);
    for (int64_t i = 0; i < r->n; i++)
        STRATA_TRY(strata_texts_add(texts, (const char *const[]){r->items[i].text}, 1, r->items[i].label, 0, err));
    *out_texts = strata_released(&texts);
    return STRATA_OK;
}

/* Reads the reviews from a folder or a tar archive. *out_texts stays NULL if there is no review of the split. */
static strata_status from_tree(const char *path, const char *split, strata_texts **out_texts, strata_error *err) {
    char prefix[16];
    STRATA_FINISHED(reviews) r = {.split = prefix};
    const strata_tree_visitor visitor = {wants_review, take_review, &r, .depth = 3};
    snprintf(prefix, sizeof prefix, "%s/", split);
    STRATA_TRY(strata_tree_is_folder(path) ? strata_tree_visit_folder(path, &visitor, err)
                                           : strata_tree_visit_tar(path, &visitor, err));
    return r.n ? from_reviews(&r, path, out_texts, err) : STRATA_OK;
}

/* ---- finding the files ---- */

/* Finds the first file <stem><suffix><ending> that exists in the folder. */
static bool find_file(const char *folder, const char *stem, const char *suffix, const char *const *endings,
                      char out[LONGEST_PATH]) {
    struct stat info;
    for (; *endings; endings++) {
        int length = snprintf(out, LONGEST_PATH, "%s/%s%s%s", folder, stem, suffix, *endings);
        if (length > 0 && length < LONGEST_PATH && stat(out, &info) == 0) return true;
    }
    return false;
}

strata_status strata_texts_imdb(const char *path, const char *split, strata_texts **out_texts, strata_error *err) {
    static const char *const tables[] = {".csv", ".csv.gz", ".csv.xz", NULL};
    static const char *const tars[] = {".tar.gz", ".tar", ".tar.xz", NULL};
    static const char *const columns[] = {"review"};
    char found[LONGEST_PATH];
    bool train;
    strata_texts *texts = NULL;
    struct stat info;
    STRATA_TRY(strata_split_check(split, &train, err));
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode) && find_file(path, "imdb_", split, tables, found)) {
        const strata_csv_options opts = {
            .features = columns, .n_features = 1, .label = "sentiment", .classes = classes, .n_classes = 2};
        return strata_texts_csv(found, &opts, out_texts, err);
    }
    STRATA_TRY(from_tree(path, split, &texts, err));
    if (!texts && strata_tree_is_folder(path) && find_file(path, "aclImdb_v1", "", tars, found))
        STRATA_TRY(from_tree(found, split, &texts, err));
    if (!texts)
        return strata_fail(
            err, STRATA_UNAVAILABLE,
            "%s: has neither imdb_%s.csv (.gz, .xz) nor %s/pos/*.txt and %s/neg/*.txt, nor aclImdb_v1.tar.gz; get "
            "them with: strata data fetch imdb",
            path, split, split, split);
    *out_texts = texts;
    return STRATA_OK;
}
