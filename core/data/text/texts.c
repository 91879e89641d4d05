/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading documents from the rows of a CSV file or the lines of a text file. imdb.c reads the files of IMDB. */
#include "core/base/file.h"
#include "core/data/format/csv.h"
#include "core/data/format/stream.h"
#include "core/data/text/tokenizer.h"
#include "strata/preprocessing.h"

/* ---- adding documents ---- */

strata_status strata_texts_create(const char *source, const char *const *class_names, int n_classes, strata_texts **out_texts,
                                  strata_error *err) {
    STRATA_OWNED(strata_texts) *texts = NULL;
    STRATA_TRY(STRATA_NEW(texts, 1, err, "texts: no host memory"));
    if (!(texts->source = strdup(source))) return strata_fail(err, STRATA_OUT_OF_MEMORY, "texts: no host memory");
    STRATA_TRY(strata_names_copy(class_names, n_classes, &texts->class_names, err));
    texts->n_classes = n_classes;
    texts->has_labels = n_classes > 0;
    *out_texts = strata_released(&texts);
    return STRATA_OK;
}

void strata_texts_destroy(strata_texts *texts) {
    if (!texts) return;
    strata_text_finish(&texts->all);
    free(texts->documents);
    free(texts->class_names);
    free(texts->source);
    free(texts);
}

strata_status strata_texts_add(strata_texts *texts, const char *const *parts, int n_parts, int label, int64_t line,
                               strata_error *err) {
    const size_t first = texts->all.n_bytes;
    for (int i = 0; i < n_parts; i++) {
        strata_text_add_bytes(&texts->all, parts[i], strlen(parts[i]));
        if (i + 1 < n_parts) strata_text_add_bytes(&texts->all, " ", 1);
    }
    const size_t length = texts->all.n_bytes - first;
    strata_text_add_bytes(&texts->all, "", 1);
    if (texts->all.failed || !strata_make_room(&texts->documents, texts->n, &texts->capacity, sizeof *texts->documents))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "texts: no host memory for more than %lld documents",
                           (long long)texts->n);
    texts->documents[texts->n++] = (struct strata_document){first, length, label, line};
    return STRATA_OK;
}

int64_t strata_texts_size(const strata_texts *texts) {
    return texts->n;
}
const char *strata_texts_get(const strata_texts *texts, int64_t index) {
    return texts->all.bytes + texts->documents[index].first;
}
int strata_texts_label(const strata_texts *texts, int64_t index) {
    return texts->has_labels ? texts->documents[index].label : -1;
}
int strata_texts_n_classes(const strata_texts *texts) {
    return texts->n_classes;
}
const char *strata_texts_class_name(const strata_texts *texts, int label) {
    return label >= 0 && label < texts->n_classes ? texts->class_names[label] : NULL;
}
const char *strata_texts_source(const strata_texts *texts) {
    return texts->source;
}

/* ---- lines ---- */

strata_status strata_texts_lines(const char *path, strata_texts **out_texts, strata_error *err) {
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_OWNED(strata_texts) *texts = NULL;
    STRATA_TRY(strata_stream_read_file(path, STRATA_BYTES_LIMIT(36), &bytes, &n_bytes, err));
    STRATA_TRY(strata_texts_create(path, NULL, 0, &texts, err));
    char *at = (char *)bytes, *end = at + n_bytes;
    for (int64_t line = 1; at < end; line++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        char *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > at && stop[-1] == '\r') stop--;
        *stop = 0;
        if (strlen(at) != (size_t)(stop - at))
            return strata_fail(err, STRATA_DATA, "%s:%lld: this line contains a NUL; the file is not text", path,
                               (long long)line);
        if (!strata_utf8_valid(at))
            return strata_fail(err, STRATA_DATA, "%s:%lld: this line is not valid UTF-8", path, (long long)line);
        STRATA_TRY(strata_texts_add(texts, (const char *const[]){at}, 1, -1, line, err));
        at = next;
    }
    *out_texts = strata_released(&texts);
    return STRATA_OK;
}

/* ---- CSV ---- */

strata_status strata_texts_from_csv(const strata_csv *csv, const strata_csv_options *opts, strata_texts **out_texts,
                                    strata_error *err) {
    STRATA_FINISHED(strata_columns) columns = {0};
    STRATA_OWNED(strata_texts) *texts = NULL;
    STRATA_FREED const char **parts = NULL;
    if (opts && opts->n_labels)
        return strata_fail(err, STRATA_INVALID, "csv: %d labels; texts have one, which is a class", opts->n_labels);
    STRATA_TRY(strata_columns_choose(&columns, csv, opts ? opts : &(strata_csv_options){0}, err));
    if (columns.label >= 0) STRATA_TRY(strata_columns_find_classes(&columns, csv, err));
    STRATA_TRY(STRATA_NEW(parts, columns.n_features, err, "%s: no host memory", strata_csv_name(csv)));
    STRATA_TRY(strata_texts_create(strata_csv_name(csv), (const char *const *)columns.classes, columns.n_classes, &texts, err));
    for (int64_t row = 0; row < strata_csv_n_rows(csv); row++) {
        int label = -1;
        if (columns.label >= 0) STRATA_TRY(strata_columns_class(&columns, csv, row, &label, err));
        for (int i = 0; i < columns.n_features; i++) parts[i] = strata_csv_cell(csv, row, columns.features[i]);
        STRATA_TRY(strata_texts_add(texts, parts, columns.n_features, label, strata_csv_line(csv, row), err));
    }
    *out_texts = strata_released(&texts);
    return STRATA_OK;
}

strata_status strata_texts_csv(const char *path, const strata_csv_options *opts, strata_texts **out_texts, strata_error *err) {
    STRATA_OWNED(strata_csv) *csv = NULL;
    STRATA_TRY(strata_csv_read_table(path, opts ? &opts->dialect : NULL, NULL, &csv, err));
    return strata_texts_from_csv(csv, opts, out_texts, err);
}
