/* SPDX-License-Identifier: Apache-2.0
 *
 * A source whose elements come from the program's callbacks. */
#include "core/data/stage/stage.h"

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
