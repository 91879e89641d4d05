/* SPDX-License-Identifier: Apache-2.0
 *
 * Made environments, and a spec as one line. */
#include "tests/resolver/resolved.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

const char *const NO_VARIABLES[] = {NULL};

static const char *get(void *context, const char *name) {
    size_t n = strlen(name);
    for (const char *const *row = context; *row; row++)
        if (!strncmp(*row, name, n) && (*row)[n] == '=') return *row + n + 1;
    return NULL;
}

strata_cluster_options options_in(const char *const *variables) {
    return (strata_cluster_options){.environment = {get, (void *)variables}};
}

strata_cluster_spec resolved_by(strata_cluster_options opts) {
    strata_cluster_spec spec;
    strata_error err = {0};
    cr_assert_eq(strata_cluster_spec_resolve(&opts, &spec, &err), STRATA_OK, "%s", err.message);
    return spec;
}

strata_cluster_spec resolved(const char *const *variables) {
    return resolved_by(options_in(variables));
}

void refuses_by(strata_cluster_options opts, strata_status status, const char *message) {
    strata_cluster_spec spec, nothing = {0};
    strata_error err = {0};
    cr_expect_eq(strata_cluster_spec_resolve(&opts, &spec, &err), status, "not \"%s\" but %s \"%s\"", message,
                 strata_status_name(err.status), err.message);
    cr_expect_str_eq(err.message, message);
    cr_expect_eq(memcmp(&spec, &nothing, sizeof spec), 0, "a failure leaves a zeroed spec");
}

void refuses(const char *const *variables, const char *message) {
    refuses_by(options_in(variables), STRATA_DATA, message);
}

const char *told(const strata_cluster_spec *spec) {
    static char line[4096];
    int n = 0;
    for (int type = 0; type < STRATA_TASK_TYPES; type++) {
        const strata_cluster_job *job = &spec->jobs[type];
        if (job->n_tasks) n += snprintf(line + n, sizeof line - (size_t)n, "%s", strata_task_type_name((strata_task_type)type));
        if (job->n_tasks && !job->addresses) n += snprintf(line + n, sizeof line - (size_t)n, " x%d", job->n_tasks);
        for (int i = 0; job->addresses && i < job->n_tasks; i++)
            n += snprintf(line + n, sizeof line - (size_t)n, " %s", job->addresses[i]);
        if (job->n_tasks) n += snprintf(line + n, sizeof line - (size_t)n, "; ");
    }
    snprintf(line + n, sizeof line - (size_t)n, "I am %s:%d, rank %d of %d, local %d of %d%s; %s",
             strata_task_type_name(spec->task_type), spec->task_index, spec->rank, spec->world_size, spec->local_rank,
             spec->local_size, spec->is_chief ? ", chief" : "", spec->rendezvous ? spec->rendezvous : "no rendezvous");
    return line;
}

void tells(const char *const *variables, const char *line) {
    strata_cluster_spec spec = resolved(variables);
    cr_expect_str_eq(told(&spec), line);
    strata_cluster_spec_finish(&spec);
}
