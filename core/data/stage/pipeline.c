/* SPDX-License-Identifier: Apache-2.0
 *
 * The code that all stages have in common: creating and destroying datasets and iterators, elements and their keys. */
#include "strata/pipeline.h"

#include "core/base/text.h"
#include "core/data/dataset.h"
#include "core/data/stage/stage.h"
#include "strata/philox.h"

/* ---- elements ---- */

void strata_element_finish(strata_element *element) {
    if (!element) return;
    for (int i = 0; i < STRATA_MAX_PARTS; i++) strata_array_finish(&element->parts[i]);
    *element = (strata_element){0};
}

strata_status strata_element_copy(const strata_element *element, strata_element *out_copy, strata_error *err) {
    STRATA_FINISHED(strata_element) copy = {.key = element->key, .n_parts = element->n_parts};
    for (int i = 0; i < element->n_parts; i++) {
        const strata_array *from = &element->parts[i];
        STRATA_TRY(strata_array_create(from->dtype, from->shape, &copy.parts[i], err));
        memcpy(copy.parts[i].data, from->data, strata_array_bytes(from));
    }
    *out_copy = strata_element_released(&copy);
    return STRATA_OK;
}

static bool fits(strata_shape shape, strata_shape wanted) {
    if (shape.rank != wanted.rank) return false;
    for (int i = 0; i < shape.rank; i++)
        if (wanted.dims[i] >= 0 && shape.dims[i] != wanted.dims[i]) return false;
    return true;
}

strata_status strata_element_check(const strata_element *element, const strata_element_spec *spec, const char *who,
                                   strata_error *err) {
    if (element->n_parts != spec->n_parts)
        return strata_fail(err, STRATA_DATA, "%s: element %lld has %d parts; the spec has %d", who,
                           (long long)element->key.index, element->n_parts, spec->n_parts);
    for (int i = 0; i < spec->n_parts; i++) {
        const strata_array *part = &element->parts[i];
        if (!part->data || part->dtype != spec->parts[i].dtype || !fits(part->shape, spec->parts[i].shape))
            return strata_fail(err, STRATA_DATA, "%s: part %d of element %lld is %s %s, but the spec has %s %s", who, i,
                               (long long)element->key.index, strata_dtype_name(part->dtype),
                               strata_shape_text(part->shape).text, strata_dtype_name(spec->parts[i].dtype),
                               strata_shape_text(spec->parts[i].shape).text);
    }
    return STRATA_OK;
}

strata_status strata_element_fail_in(strata_error *err, strata_status status, const char *who, const strata_key *key) {
    return strata_fail_in(err, status, "%s: element %lld, epoch %llu", who, (long long)key->index,
                          (unsigned long long)key->epoch);
}

/* The random numbers of an element. Their stream differs from the streams of shuffles, whose last word is 0x5eed.... */
uint32_t strata_key_random(const strata_key *key, uint32_t draw) {
    strata_philox_block counter = {
        {draw / 4, (uint32_t)key->index, (uint32_t)((uint64_t)key->index >> 32) ^ 0xe1e70000u, (uint32_t)key->epoch}};
    uint64_t seed = key->seed ^ (key->epoch >> 32) * UINT64_C(0x9E3779B97F4A7C15);
    return strata_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32)).words[draw % 4];
}

/* ---- making stages ---- */

static strata_status check_spec(const strata_element_spec *spec, const char *who, strata_error *err) {
    if (spec->n_parts < 1 || spec->n_parts > STRATA_MAX_PARTS)
        return strata_fail(err, STRATA_INVALID, "%s: elements of %d parts; 1 to %d are possible", who, spec->n_parts,
                           STRATA_MAX_PARTS);
    for (int i = 0; i < spec->n_parts; i++) {
        strata_shape shape = spec->parts[i].shape;
        for (int k = 0; k < STRATA_MAX_RANK; k++)
            if (shape.dims[k] == -1) shape.dims[k] = 0;
        STRATA_TRY(strata_shape_check(shape, err));
        if (spec->is_batch && shape.rank < 1)
            return strata_fail(err, STRATA_INVALID, "%s: part %d of a batch is a scalar", who, i);
        if (!strata_dtype_bytes(spec->parts[i].dtype))
            return strata_fail(err, STRATA_INVALID, "%s: part %d has no type", who, i);
    }
    return STRATA_OK;
}

strata_status strata_stage_create(const strata_stage *stage, strata_dataset *const *parents, int n_parents, const void *state,
                                  size_t state_bytes, const strata_element_spec *spec, strata_dataset **out_dataset,
                                  strata_error *err) {
    const strata_element_spec *of = spec ? spec : &parents[0]->spec;
    STRATA_TRY(check_spec(of, stage->name, err));
    STRATA_OWNED(strata_dataset) *dataset = NULL;
    if (!(dataset = calloc(1, sizeof *dataset + state_bytes)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", stage->name);
    atomic_init(&dataset->references, 1);
    dataset->state = dataset + 1;
    dataset->spec = *of;
    dataset->n = STRATA_SIZE_UNKNOWN;
    dataset->most_token = -1;
    if (n_parents) {
        const strata_dataset *first = parents[0];
        const strata_dataset_facts facts = {.source = first->source,
                                            .class_names = (const char *const *)first->class_names,
                                            .n_class_names = first->n_class_names};
        dataset->n = first->n;
        dataset->n_classes = first->n_classes;
        dataset->scale = first->spec.parts[0].dtype == STRATA_DTYPE_U8 ? first->scale : 0;
        STRATA_TRY(strata_dataset_set_facts(dataset, &facts, err));
    }
    dataset->stage = stage;
    dataset->state_bytes = state_bytes;
    if (state) memcpy(dataset->state, state, state_bytes);
    for (int i = 0; i < n_parents; i++) {
        dataset->parents[i] = parents[i];
        dataset->n_shuffles += parents[i]->n_shuffles;
    }
    dataset->n_parents = n_parents;
    *out_dataset = strata_released(&dataset);
    return STRATA_OK;
}

strata_status strata_stage_put(const strata_stage *stage, strata_dataset **dataset, const void *state, size_t state_bytes,
                               const strata_element_spec *spec, strata_error *err) {
    return strata_stage_create(stage, (strata_dataset *const[]){*dataset}, 1, state, state_bytes, spec, dataset, err);
}

strata_dataset *strata_dataset_retain(strata_dataset *dataset) {
    atomic_fetch_add(&dataset->references, 1);
    return dataset;
}

void strata_dataset_destroy(strata_dataset *dataset) {
    if (!dataset || atomic_fetch_sub(&dataset->references, 1) > 1) return;
    if (dataset->stage && dataset->stage->destroy) dataset->stage->destroy(dataset);
    for (int i = 0; i < dataset->n_parents; i++) strata_dataset_destroy(dataset->parents[i]);
    free(dataset->source);
    free(dataset->class_names);
    free(dataset->element_names);
    free(dataset);
}

strata_element_spec strata_dataset_element_spec(const strata_dataset *dataset) {
    return dataset->spec;
}

/* ---- iterators ---- */

static void close_parents(strata_iterator *iterator) {
    for (int i = 0; i < STRATA_MAX_PARENTS; i++) {
        strata_iterator_destroy(iterator->parents[i]);
        iterator->parents[i] = NULL;
    }
}

strata_status strata_iterator_open_parents(strata_iterator *iterator, uint64_t epoch, strata_error *err) {
    const strata_dataset *dataset = iterator->dataset;
    close_parents(iterator);
    for (int i = 0; i < dataset->n_parents; i++)
        STRATA_TRY(strata_iterator_create(dataset->parents[i], iterator->seed, epoch, 0, &iterator->parents[i], err));
    return STRATA_OK;
}

strata_status strata_iterator_create(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t first,
                                     strata_iterator **out_iterator, strata_error *err) {
    const strata_stage *stage = dataset->stage;
    if (first < 0) return strata_fail(err, STRATA_INVALID, "iterator: first is %lld; it must be at least 0", (long long)first);
    STRATA_OWNED(strata_iterator) *it = calloc(1, sizeof *it + stage->state_bytes);
    if (!it) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for an iterator", stage->name);
    it->dataset = dataset;
    it->seed = seed;
    it->epoch = epoch;
    it->state = it + 1;
    STRATA_TRY(stage->open ? stage->open(it, err) : strata_iterator_open_parents(it, epoch, err));
    if (first) STRATA_TRY(strata_iterator_advance(it, first, err));
    *out_iterator = strata_released(&it);
    return STRATA_OK;
}

void strata_iterator_destroy(strata_iterator *iterator) {
    if (!iterator) return;
    if (iterator->dataset->stage->close) iterator->dataset->stage->close(iterator);
    close_parents(iterator);
    free(iterator);
}

/* Computes the next element with the stage's `at`, if the stage has no `next`. */
static strata_status next_by_index(strata_iterator *it, strata_element *out, bool *out_more, strata_error *err) {
    *out_more = it->position < it->dataset->n;
    return *out_more ? strata_dataset_at(it->dataset, it->seed, it->epoch, it->position, out, err) : STRATA_OK;
}

strata_status strata_iterator_next(strata_iterator *iterator, strata_element *out_element, bool *out_more, strata_error *err) {
    const strata_stage *stage = iterator->dataset->stage;
    *out_more = false;
    *out_element = (strata_element){0};
    if (!iterator->status) {
        iterator->status = (stage->next ? stage->next : next_by_index)(iterator, out_element, out_more, &iterator->error);
        iterator->position += *out_more && !iterator->status;
    }
    if (!iterator->status) return STRATA_OK;
    *out_more = false;
    return strata_fail(err, iterator->status, "%s", iterator->error.message);
}

strata_status strata_iterator_discard(strata_iterator *iterator, strata_next_function next, int64_t n, strata_error *err) {
    bool more = true;
    for (int64_t i = 0; i < n && more; i++) {
        strata_element element = {0};
        STRATA_TRY(next(iterator, &element, &more, err));
        strata_element_finish(&element);
    }
    return STRATA_OK;
}

strata_status strata_iterator_advance(strata_iterator *iterator, int64_t n, strata_error *err) {
    const strata_stage *stage = iterator->dataset->stage;
    if (n <= 0) return STRATA_OK;
    if (stage->advance || !stage->next) {
        if (stage->advance) STRATA_TRY(stage->advance(iterator, n, err));
        if (__builtin_add_overflow(iterator->position, n, &iterator->position)) iterator->position = INT64_MAX;
        return STRATA_OK;
    }
    return strata_iterator_discard(iterator, strata_iterator_next, n, err);
}

bool strata_dataset_has_at(const strata_dataset *dataset) {
    if (!dataset->stage->at || dataset->n < 0) return false;
    return !dataset->n_parents || strata_dataset_has_at(dataset->parents[0]);
}

strata_status strata_dataset_at(const strata_dataset *dataset, uint64_t seed, uint64_t epoch, int64_t index,
                                strata_element *out_element, strata_error *err) {
    return dataset->stage->at(dataset, seed, epoch, index, out_element, err);
}
