/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's metrics: choosing them, adding a batch to their sums, and computing their values from the sums. The first two sums
 * are always those of loss and accuracy. */
#include "core/model/metrics.h"

#include <stdio.h>

#include "core/graph/variable.h"
#include "core/model/build.h"

enum { N_FIXED = 2, MAX_NAMES = 512 };

strata_status strata_model_set_metrics(strata_output_spec *output, const char *names, strata_error *err) {
    char *copy = NULL;
    if (names && !(copy = strdup(names)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for its metrics");
    free(output->metrics);
    output->metrics = copy;
    return STRATA_OK;
}

static bool is_there(const strata_model *model, const char *full) {
    for (int i = 0; i < model->metrics.n_extra; i++)
        if (!strcmp(model->metrics.extra[i].name, full)) return true;
    return false;
}

/* The index of the sums of another metric of this output that has the same sums, so that they are shared; -1: there is none.
 * Metrics with a number (top_5_accuracy) share sums only if the number is the same. */
static int64_t shared_words(const strata_model *model, const strata_model_metric *m) {
    for (int i = 0; i < model->metrics.n_extra; i++) {
        const strata_model_metric *other = &model->metrics.extra[i];
        if (other->kind->words == m->kind->words && other->c.k == m->c.k && other->output == m->output) return other->first;
    }
    return -1;
}

/* Adds a metric. In a model with several outputs its name begins with the output's name. kind NULL: it is looked up by name. */
static strata_status add(strata_model *model, int output, const char *name, const strata_metric_kind *kind, strata_error *err) {
    const strata_output_spec *spec = &model->outputs[output];
    const bool many = model->n_outputs > 1;
    strata_model_metric *m = &model->metrics.extra[model->metrics.n_extra];
    char full[256];
    const int length =
        snprintf(full, sizeof full, "%s%s%.150s", many ? strata_output_name(model, output) : "", many ? "/" : "", name);
    if (is_there(model, full)) return STRATA_OK;
    if (model->metrics.n_extra == STRATA_MAX_METRICS || length >= (int)sizeof m->name)
        return strata_fail(err, STRATA_INVALID, "metric \"%.100s\": there can be %d metrics, with names below %zu characters",
                           full, STRATA_MAX_METRICS, sizeof m->name);
    *m = (strata_model_metric){
        .output = output, .kind = kind, .c = {.loss = spec->loss, .opts = &spec->loss_options, .output = spec->shape}};
    if (!kind) STRATA_TRY(strata_registry_find_metric(model->registry, name, &m->kind, &m->c, err));
    strata_status status = m->kind->check(&m->c, err);
    if (status) return strata_fail_in(err, status, "metric %s", full);
    strcpy(m->name, full);
    m->first = shared_words(model, m);
    if (m->first < 0) {
        m->first = model->metrics.n_sums;
        model->metrics.n_sums += m->kind->words->n(&m->c);
    }
    model->metrics.n_extra++;
    return STRATA_OK;
}

static strata_status add_list(strata_model *model, int output, const char *list, strata_error *err) {
    char names[MAX_NAMES] = "", *rest = NULL;
    if (list && strlen(list) >= sizeof names)
        return strata_fail(err, STRATA_INVALID, "metrics: the list has %zu characters; at most %zu", strlen(list),
                           sizeof names - 1);
    if (list) strcpy(names, list);
    for (char *name = strtok_r(names, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
        if (strcmp(name, "loss") != 0 && strcmp(name, "accuracy") != 0) STRATA_TRY(add(model, output, name, NULL, err));
    return STRATA_OK;
}

strata_status strata_model_choose_metrics(strata_model *model, const char *list, strata_error *err) {
    model->metrics.n_extra = 0;
    model->metrics.n_sums = N_FIXED;
    for (int i = 0; i < model->n_outputs; i++) {
        const strata_output_spec *output = &model->outputs[i];
        if (model->n_outputs > 1) {
            STRATA_TRY(add(model, i, "loss", &strata_metric_loss, err));
            if (output->loss->answers != STRATA_ANSWERS_NONE)
                STRATA_TRY(add(model, i, "accuracy", &strata_metric_accuracy, err));
        }
        STRATA_TRY(add_list(model, i, list ? list : output->metrics, err));
    }
    free(model->metrics.sums);
    return STRATA_NEW(model->metrics.sums, model->metrics.n_sums, err, "model: no host memory for its metrics");
}

strata_tensor *strata_model_metric_sums(const strata_model *model, strata_tensor *sums, strata_tensor *const *outputs,
                                        strata_tensor *const *labels) {
    strata_tensor *parts[1 + STRATA_MAX_METRICS] = {sums};
    int n = 1;
    int64_t end = N_FIXED;
    for (int i = 0; i < model->metrics.n_extra; i++) {
        const strata_model_metric *m = &model->metrics.extra[i];
        if (m->first < end) continue; /* another metric has added these sums */
        parts[n++] = m->kind->words->build(&m->c, outputs[m->output], labels[m->output]);
        end = m->first + m->kind->words->n(&m->c);
    }
    return n > 1 ? strata_concat(parts, n, 0) : sums;
}

strata_tensor *strata_model_metric_scores(const strata_model *model, strata_tensor *const *outputs,
                                          strata_tensor *const *labels) {
    strata_tensor *parts[STRATA_MAX_METRICS];
    int n = 0;
    for (int i = 0; i < model->metrics.n_extra; i++) {
        const strata_model_metric *m = &model->metrics.extra[i];
        if (m->kind->score) parts[n++] = m->kind->score(&m->c, outputs[m->output], labels[m->output]);
    }
    return n > 1 ? strata_concat(parts, n, 0) : n ? parts[0] : NULL;
}

static int n_scored(const strata_model *model) {
    int n = 0;
    for (int i = 0; i < model->metrics.n_extra; i++) n += model->metrics.extra[i].kind->score != NULL;
    return n;
}

static strata_status make_room(const strata_model *model, strata_model_scores *scores, int64_t n, strata_error *err) {
    if (n <= scores->room) return STRATA_OK;
    const int64_t room = n > 2 * scores->room ? n : 2 * scores->room;
    for (int k = 0; k < n_scored(model); k++) {
        strata_scored *larger = realloc(scores->lists[k], (size_t)room * sizeof *larger);
        if (!larger)
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "model: no host memory for the predictions of %lld examples",
                               (long long)n);
        scores->lists[k] = larger;
    }
    scores->room = room;
    return STRATA_OK;
}

strata_status strata_scores_take(const strata_model *model, strata_model_scores *scores, const strata_program_part *part,
                                 int slot, strata_error *err) {
    if (!part->n || part->scores < 0) return STRATA_OK;
    const float *output = strata_executable_output(part->executable, slot, part->scores);
    STRATA_TRY(make_room(model, scores, scores->n + part->n, err));
    for (int k = 0; k < n_scored(model); k++, output += 2 * part->n)
        for (int64_t i = 0; i < part->n; i++)
            scores->lists[k][scores->n + i] = (strata_scored){.score = output[i], .is_class = output[part->n + i]};
    scores->n += part->n;
    return STRATA_OK;
}

strata_status strata_scores_gather(const strata_model *model, strata_model_scores *scores, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    if (!n_scored(model) || !strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    STRATA_FREED int64_t *bytes = NULL;
    strata_model_scores all = {0};
    strata_status status = STRATA_NEW(bytes, workers->n, err, "model: no host memory for its metrics");
    for (int k = 0; k < n_scored(model) && !status; k++)
        status = strata_workers_gather_parts(workers, scores->lists[k], (size_t)scores->n * sizeof(strata_scored),
                                             &all.lists[k], bytes, err);
    for (int w = 0; w < workers->n && !status; w++) all.n += bytes[w] / (int64_t)sizeof(strata_scored);
    all.room = all.n;
    strata_scores_finish(scores);
    *scores = all;
    return status;
}

void strata_scores_finish(strata_model_scores *scores) {
    for (int k = 0; k < STRATA_MAX_METRICS; k++) free(scores->lists[k]);
    *scores = (strata_model_scores){0};
}

strata_metrics strata_model_metrics(const strata_model *model, const double *sums, int64_t examples,
                                    strata_model_scores *scores) {
    int scored = 0;
    strata_metrics metrics = {.loss = sums[0] / (double)examples, .accuracy = sums[1] / (double)examples, .examples = examples};
    for (int i = 0; i < model->metrics.n_extra; i++) {
        const strata_model_metric *m = &model->metrics.extra[i];
        if (!m->kind->value) continue;
        strata_scored *list = m->kind->score && scores ? scores->lists[scored++] : NULL;
        metrics.more[metrics.n].name = m->name;
        metrics.more[metrics.n++].value =
            list && scores->n == examples ? m->kind->exact(list, examples) : m->kind->value(&m->c, sums + m->first, examples);
    }
    return metrics;
}

static strata_status clear(strata_variable *variable, strata_error *err) {
    STRATA_FREED float *zeros = NULL;
    if (!variable) return STRATA_OK;
    const int64_t size = strata_shape_elements(variable->shape);
    STRATA_TRY(STRATA_NEW(zeros, size, err, "model: no host memory for %lld sums", (long long)size));
    const strata_array all = strata_array_view(STRATA_DTYPE_F32, variable->shape, zeros);
    return strata_variable_set(variable, &all, err);
}

strata_status strata_model_reset_sums(strata_model *model, strata_error *err) {
    for (int r = 0; r < model->strategy->n_devices; r++) {
        strata_model_replica *own = &model->replicas[r];
        STRATA_TRY(clear(own->metrics, err));
        for (int k = 0; k < model->parameters.n_blocks; k++) STRATA_TRY(clear(own->blocks[k].accumulated, err));
        STRATA_TRY(clear(own->accumulated_sums, err));
        STRATA_TRY(clear(own->accumulated_states, err));
        own->n_accumulated = own->accumulated_examples = 0;
    }
    return STRATA_OK;
}

strata_status strata_model_read_sums(strata_model *model, strata_error *err) {
    const strata_workers *workers = &model->strategy->workers;
    const int64_t n = model->metrics.n_sums;
    const bool own = strata_strategy_has_own(model->strategy);
    const int first = own ? 0 : strata_strategy_root(model->strategy), n_read = own ? model->strategy->n_replicas : 1;
    double *total = model->metrics.sums;
    STRATA_FREED float *values = NULL;
    STRATA_TRY(STRATA_NEW(values, n, err, "model: no host memory for its metrics"));
    strata_array sums = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), values);
    memset(total, 0, (size_t)n * sizeof *total);
    /* Those of replicas that have their own are added up, over all workers. */
    for (int r = first; r < first + n_read; r++) {
        STRATA_TRY(strata_variable_get(model->replicas[r].metrics, &sums, err));
        for (int64_t i = 0; i < n; i++) total[i] += (double)values[i];
    }
    if (!own || !strata_strategy_has_workers(model->strategy)) return STRATA_OK;
    for (int64_t i = 0; i < n; i++) values[i] = (float)total[i];
    STRATA_TRY(workers->sum(workers, STRATA_DTYPE_F32, STRATA_DTYPE_F32, values, values, n, err));
    for (int64_t i = 0; i < n; i++) total[i] = (double)values[i];
    return STRATA_OK;
}

strata_status strata_model_write_sums(strata_model *model, strata_error *err) {
    const int64_t n = model->metrics.n_sums;
    const bool own = strata_strategy_has_own(model->strategy), first = model->strategy->workers.rank == 0;
    STRATA_FREED float *values = NULL;
    STRATA_TRY(STRATA_NEW(values, n, err, "model: no host memory for its metrics"));
    const strata_array sums = strata_array_view(STRATA_DTYPE_F32, STRATA_SHAPE(n), values);
    for (int64_t i = 0; i < n; i++) values[i] = (float)model->metrics.sums[i];
    for (int r = 0; r < model->strategy->n_devices; r++) {
        /* Of sums that are added up, the first replica gets all. */
        if (own && (r || !first)) memset(values, 0, (size_t)n * sizeof *values);
        if (model->replicas[r].metrics) STRATA_TRY(strata_variable_set(model->replicas[r].metrics, &sums, err));
    }
    return STRATA_OK;
}

strata_status strata_model_confusion_matrix(const strata_model *model, strata_array *out_counts, strata_error *err) {
    for (int i = 0; i < model->metrics.n_extra; i++) {
        const strata_model_metric *m = &model->metrics.extra[i];
        if (m->kind->words != &strata_metric_confusion_words || m->kind->value) continue;
        int64_t classes = strata_metric_classes(&m->c);
        STRATA_TRY(strata_array_create(STRATA_DTYPE_I64, STRATA_SHAPE(classes, classes), out_counts, err));
        for (int64_t k = 0; k < classes * classes; k++)
            ((int64_t *)out_counts->data)[k] = (int64_t)model->metrics.sums[m->first + k];
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_INVALID, "confusion_matrix: it is not among the model's metrics; name it at compile");
}
