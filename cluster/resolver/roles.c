/* SPDX-License-Identifier: Apache-2.0
 *
 * Roles for the tasks of launchers that only number their tasks (torchrun, mpirun, Slurm, Kubernetes). STRATA_ROLES assigns the
 * roles.
 *   roles    role {"," role}        role    type "=" count
 * Tasks get their types in the order chief, worker, ps, evaluator, whatever the order in the text. So the launcher's task 0
 * remains rank 0, and the address that the launcher passes for it remains correct. Without "worker" all tasks that remain are
 * workers. */
#include <stdlib.h>
#include <string.h>

#include "cluster/resolver/resolver.h"

enum { NOT_GIVEN = -1 };

/* Reads one role, such as "ps=2", of n bytes. */
static strata_status read_role(const char *source, const char *at, size_t n, int counts[STRATA_TASK_TYPES], strata_error *err) {
    const char *equals = memchr(at, '=', n);
    const size_t n_type = equals ? (size_t)(equals - at) : n;
    const strata_task_type type = strata_task_type_of(at, n_type);
    const int shown = (int)(n < 60 ? n : 60);
    if (!equals || type == STRATA_TASK_TYPES)
        return strata_fail(
            err, STRATA_DATA,
            "%s: STRATA_ROLES has \"%.*s\"; it must be TYPE=COUNT, of type chief, worker, ps or evaluator, as in "
            "chief=1,ps=2",
            source, shown, at);
    const int count = strata_digits(equals + 1, n - n_type - 1);
    if (count < 0 || count > STRATA_CLUSTER_MAX_TASKS)
        return strata_fail(err, STRATA_DATA, "%s: STRATA_ROLES has \"%.*s\"; the count must be a whole number from 0 to %d",
                           source, shown, at, STRATA_CLUSTER_MAX_TASKS);
    if (counts[type] != NOT_GIVEN)
        return strata_fail(err, STRATA_DATA, "%s: STRATA_ROLES names %s twice", source, strata_task_type_name(type));
    counts[type] = count;
    return STRATA_OK;
}

/* Reads the number of tasks of each type. Together they must be n_tasks. */
static strata_status read_roles(const char *source, const char *text, int n_tasks, int counts[STRATA_TASK_TYPES],
                                strata_error *err) {
    for (int type = 0; type < STRATA_TASK_TYPES; type++) counts[type] = NOT_GIVEN;
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, ",");
        STRATA_TRY(read_role(source, at, n, counts, err));
        at += n;
        if (!*at) break;
    }
    const bool rest = counts[STRATA_TASK_WORKER] == NOT_GIVEN;
    int sum = 0;
    for (int type = 0; type < STRATA_TASK_TYPES; type++) {
        if (counts[type] == NOT_GIVEN) counts[type] = 0;
        sum += counts[type];
    }
    if (sum > n_tasks || (sum < n_tasks && !rest))
        return strata_fail(err, STRATA_DATA, "%s: STRATA_ROLES is \"%.100s\", %d tasks in all, but the launcher started %d",
                           source, text, sum, n_tasks);
    counts[STRATA_TASK_WORKER] += n_tasks - sum;
    return STRATA_OK;
}

/* Moves the addresses of the workers to the jobs of their new types. On failure the spec is as it was. */
static strata_status move_addresses(const int counts[STRATA_TASK_TYPES], strata_cluster_spec *spec, strata_error *err) {
    char **all = spec->jobs[STRATA_TASK_WORKER].addresses, **lists[STRATA_TASK_TYPES] = {0};
    if (!all) return STRATA_OK;
    for (int type = 0; type < STRATA_TASK_TYPES; type++) {
        if (!counts[type]) continue;
        lists[type] = malloc((size_t)counts[type] * sizeof *lists[type]);
        if (lists[type]) continue;
        while (type--) free(lists[type]);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for the addresses of the tasks");
    }
    for (int type = 0, first = 0; type < STRATA_TASK_TYPES; first += counts[type++]) {
        if (lists[type]) memcpy(lists[type], all + first, (size_t)counts[type] * sizeof *all);
        spec->jobs[type].addresses = lists[type];
    }
    free(all);
    return STRATA_OK;
}

strata_status strata_roles_assign(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *text = strata_environment_get(opts, "STRATA_ROLES");
    int counts[STRATA_TASK_TYPES];
    if (!text) return STRATA_OK;
    STRATA_TRY(read_roles(spec->source, text, spec->jobs[STRATA_TASK_WORKER].n_tasks, counts, err));
    STRATA_TRY(move_addresses(counts, spec, err));
    int type = 0, index = spec->task_index;
    for (; type < STRATA_TASK_TYPES - 1 && index >= counts[type]; type++) index -= counts[type];
    spec->task_type = (strata_task_type)type;
    spec->task_index = index;
    for (int t = 0; t < STRATA_TASK_TYPES; t++) spec->jobs[t].n_tasks = counts[t];
    return STRATA_OK;
}
