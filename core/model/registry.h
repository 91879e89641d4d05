/* SPDX-License-Identifier: Apache-2.0
 *
 * The layers, losses, metrics and activations that a program has registered, and finding one by its name (registry.c). */
#ifndef STRATA_CORE_MODEL_REGISTRY_H
#define STRATA_CORE_MODEL_REGISTRY_H

#include "core/model/model.h"

struct strata_registry {
    /* One for the caller, and one for each model that uses the registry. */
    atomic_int references;
    struct strata_own_layer {
        strata_layer_definition definition;
        strata_layer_kind kind;
        struct strata_own_layer *next;
    } * layers;
    struct strata_own_loss {
        strata_loss loss;
        struct strata_own_loss *next;
    } * losses;
    struct strata_own_metric {
        strata_metric_definition definition;
        strata_metric_words words;
        strata_metric_kind kind;
        struct strata_own_metric *next;
    } * metrics;
    strata_own_activation *activations;
};
/* Finds a built-in or registered kind by its name. registry may be NULL. Fails: INVALID, with all names. */
STRATA_MUST_USE strata_status strata_registry_find_layer(const strata_registry *registry, const char *name,
                                                         const strata_layer_kind **out_kind, strata_error *err);
STRATA_MUST_USE strata_status strata_registry_find_loss(const strata_registry *registry, const char *name,
                                                        const strata_loss **out_loss, strata_error *err);
STRATA_MUST_USE strata_status strata_registry_find_metric(const strata_registry *registry, const char *name,
                                                          const strata_metric_kind **out_kind, strata_metric_case *c,
                                                          strata_error *err);
bool strata_registry_has_activation(const strata_registry *registry, const char *name);

#endif
