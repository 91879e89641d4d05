/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes a dataset by the elements at the end of its pipeline and by the arrays at its beginning. The elements show what the
 * stages between them do, for example a random change of pictures. */
#include "core/data/describe.h"

#include <inttypes.h>

#include "core/base/locale.h"
#include "core/data/stage/stage.h"
#include "strata/sha256.h"

/* SAMPLES elements are written with the first SHOWN values of each part. */
enum { SAMPLES = 32, SHOWN = 6, HASH_DIGITS = 16 };

typedef struct description {
    strata_text *text;
    const strata_describe_options *opts;
    strata_error *err;
} description;

void strata_text_add_term(strata_text *text, const char *name, const char *format, ...) {
    const size_t begin = text->n_bytes;
    va_list values;
    char line[512];
    va_start(values, format);
    strata_format_v(line, sizeof line, format, values);
    va_end(values);
    strata_text_add(text, "%s", name);
    const size_t middle = text->n_bytes;
    strata_text_add(text, " %s ", line);
    if (text->failed) return;
    for (size_t i = begin; i < text->n_bytes; i++)
        if ((unsigned char)text->bytes[i] < ' ') text->bytes[i] = ' ';
    text->bytes[middle] = '\t';
    text->bytes[text->n_bytes - 1] = '\n';
}

/* ---- the stages ---- */

static strata_status no_memory(const description *d) {
    return strata_fail(d->err, STRATA_OUT_OF_MEMORY, "no host memory for a description of the %s", d->opts->what);
}

static void add_stages(const strata_dataset *dataset, strata_text *names) {
    strata_text_add(names, "%s%s", names->n_bytes ? " of " : "", dataset->stage->name);
    for (int i = 0; i < dataset->n_parents; i++) add_stages(dataset->parents[i], names);
}

static strata_status describe_form(const description *d, const strata_dataset *dataset) {
    const strata_element_spec *spec = &dataset->spec;
    STRATA_FINISHED(strata_text) names = {0};
    char name[160];
    if (d->opts->pipeline) {
        add_stages(dataset, &names);
        snprintf(name, sizeof name, "pipeline of the %s", d->opts->what);
        if (names.failed) return no_memory(d);
        strata_text_add_term(d->text, name, "%s", names.bytes);
    }
    for (int i = 0; i < spec->n_parts && d->opts->pipeline; i++) {
        snprintf(name, sizeof name, "part %d of an example of the %s", i, d->opts->what);
        strata_text_add_term(d->text, name, "%s%s%s %s", spec->names[i], spec->names[i][0] ? " " : "",
                             strata_dtype_name(spec->parts[i].dtype), strata_shape_text(spec->parts[i].shape).text);
    }
    for (int i = 0; i < dataset->n_class_names; i++) {
        snprintf(name, sizeof name, "class %d of the %s", i, d->opts->what);
        strata_text_add_term(d->text, name, "%s", dataset->class_names[i]);
    }
    return STRATA_OK;
}

/* ---- the elements ---- */

/* Adds the first values of a part, and the sum of all, which shows a difference between the others. */
static void add_values(strata_text *line, const strata_array *part) {
    const int64_t n = strata_shape_elements(part->shape);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += strata_element_get(part->dtype, part->data, i);
    for (int64_t i = 0; i < n && i < SHOWN; i++)
        strata_text_add(line, "%s%.9g", i ? ", " : "", strata_element_get(part->dtype, part->data, i));
    if (n > SHOWN) strata_text_add(line, ", ... (%" PRId64 " values, sum %.17g)", n, sum);
}

static strata_status describe_element(const description *d, const strata_dataset *dataset, int64_t index) {
    STRATA_FINISHED(strata_element) element = {0};
    STRATA_FINISHED(strata_text) line = {0};
    char name[96];
    STRATA_TRY(strata_dataset_at(dataset, d->opts->seed, 0, index, &element, d->err));
    for (int i = 0; i < element.n_parts; i++) {
        if (i) strata_text_add(&line, "; ");
        add_values(&line, &element.parts[i]);
    }
    snprintf(name, sizeof name, "example %" PRId64 " of the %s", index, d->opts->what);
    if (line.failed) return no_memory(d);
    strata_text_add_term(d->text, name, "(%s)", line.n_bytes ? line.bytes : "");
    return STRATA_OK;
}

/* Describes elements of the last stage of the pipeline that can compute them by their index. */
static strata_status describe_elements(const description *d, const strata_dataset *dataset) {
    while (!strata_dataset_has_at(dataset)) {
        if (!dataset->n_parents) return STRATA_OK;
        dataset = dataset->parents[0];
    }
    const int64_t n = dataset->n < SAMPLES ? dataset->n : SAMPLES;
    for (int64_t i = 0; i < n; i++) STRATA_TRY(describe_element(d, dataset, n > 1 ? i * ((dataset->n - 1) / (n - 1)) : 0));
    return STRATA_OK;
}

/* ---- the arrays ---- */

/* Adds hashes of an array's rows, in blocks. */
static strata_status describe_array(const description *d, const strata_array *array, const char *role) {
    char hash[STRATA_SHA256_TEXT_BYTES], name[160];
    const int64_t n = array->shape.rank ? array->shape.dims[0] : 0;
    if (!array->data || !n) return STRATA_OK;
    const size_t row = strata_array_bytes(array) / (size_t)n;
    const int64_t n_blocks = d->opts->n_blocks, per_block = (n + n_blocks - 1) / n_blocks;
    int64_t most = per_block; /* how many rows of each block are hashed */
    if (row && most > d->opts->most_bytes / n_blocks / (int64_t)row) most = d->opts->most_bytes / n_blocks / (int64_t)row + 1;
    for (int64_t first = 0; first < n; first += per_block) {
        int64_t rows = n - first < per_block ? n - first : per_block;
        if (rows > most) rows = most;
        STRATA_TRY(strata_sha256_of((const char *)array->data + (size_t)first * row, (size_t)rows * row, hash, d->err));
        if (rows > 1)
            snprintf(name, sizeof name, "%s of the examples %" PRId64 " to %" PRId64 " of the %s", role, first,
                     first + rows - 1, d->opts->what);
        else
            snprintf(name, sizeof name, "%s of the example %" PRId64 " of the %s", role, first, d->opts->what);
        strata_text_add_term(d->text, name, STRATA_HASH_MARK "%.*s", HASH_DIGITS, hash);
    }
    return STRATA_OK;
}

static strata_status describe_arrays(const description *d, const strata_dataset *dataset) {
    for (int i = 0; i < dataset->n_parents; i++) STRATA_TRY(describe_arrays(d, dataset->parents[i]));
    if (dataset->n_parents) return STRATA_OK;
    STRATA_TRY(describe_array(d, &dataset->features, "inputs"));
    STRATA_TRY(describe_array(d, &dataset->labels, "labels"));
    STRATA_TRY(describe_array(d, &dataset->weights, "weights"));
    for (int i = 0; i < dataset->n_more; i++) STRATA_TRY(describe_array(d, &dataset->more[i]->features, "further values"));
    return STRATA_OK;
}

strata_status strata_dataset_describe(const strata_dataset *dataset, const strata_describe_options *opts, strata_text *text,
                                      strata_error *err) {
    const description d = {.text = text, .opts = opts, .err = err};
    STRATA_TRY(describe_form(&d, dataset));
    if (!opts->rows) return STRATA_OK;
    if (opts->pipeline) STRATA_TRY(describe_elements(&d, dataset));
    return describe_arrays(&d, dataset);
}
