/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as TF_CONFIG: a message, or a spec whose parts agree. */
#include <stdlib.h>
#include <string.h>

#include "strata/cluster_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *get(void *context, const char *name) {
    return strcmp(name, "TF_CONFIG") ? NULL : context;
}

static void check(const strata_cluster_spec *spec) {
    int outside = spec->rank == -1, n_chiefs = spec->jobs[STRATA_TASK_CHIEF].n_tasks;
    if (spec->world_size != n_chiefs + spec->jobs[STRATA_TASK_WORKER].n_tasks || spec->world_size < 1 || n_chiefs > 1) abort();
    if (spec->rank < -1 || spec->rank >= spec->world_size) abort();
    if (outside != (spec->task_type == STRATA_TASK_PS || spec->task_type == STRATA_TASK_EVALUATOR)) abort();
    if (spec->local_size < 1 || spec->local_rank < 0 || spec->local_rank >= spec->local_size) abort();
    const char *first = strata_cluster_spec_address(spec, 0);
    if (first && strcmp(first, spec->rendezvous) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    strata_cluster_options opts = {.environment = {get, text}};
    strata_cluster_spec spec;
    strata_error err = {0};
    strata_status status = strata_cluster_spec_resolve(&opts, &spec, &err);
    if (status && ((status != STRATA_DATA && status != STRATA_OUT_OF_MEMORY) || !*err.message)) abort();
    if (!status) check(&spec);
    strata_cluster_spec_finish(&spec);
    free(text);
    return 0;
}
