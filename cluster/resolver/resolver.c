/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of resolvers, and the common part of all resolvers: ranks, the chief, the rendezvous, and the checks of a whole
 * spec. */
#include "cluster/resolver/resolver.h"

#include <stdio.h>

#include "core/base/alloc.h"

static const strata_resolver resolvers[] = {
#define RESOLVER(id, name, sign, second, separator, names_types) \
    {name, {sign, second}, separator, strata_resolve_##id, names_types},
#include "cluster/resolver/resolvers.def"
#undef RESOLVER
};

void strata_cluster_spec_finish(strata_cluster_spec *spec) {
    for (int type = 0; type < STRATA_TASK_TYPES; type++) {
        strata_cluster_job *job = &spec->jobs[type];
        for (int i = 0; job->addresses && i < job->n_tasks; i++) free(job->addresses[i]);
        free(job->addresses);
    }
    free(spec->rendezvous);
    *spec = (strata_cluster_spec){0};
}

const char *strata_cluster_spec_address(const strata_cluster_spec *spec, int rank) {
    const strata_cluster_job *chief = &spec->jobs[STRATA_TASK_CHIEF], *workers = &spec->jobs[STRATA_TASK_WORKER];
    if (rank < 0 || rank >= spec->world_size) return NULL;
    const strata_cluster_job *job = rank < chief->n_tasks ? chief : workers;
    int index = job == chief ? rank : rank - chief->n_tasks;
    return job->addresses ? job->addresses[index] : NULL;
}

/* ---- checks ---- */

static strata_status check_jobs(const char *source, const strata_cluster_spec *spec, strata_error *err) {
    static const strata_task_type single[] = {STRATA_TASK_CHIEF, STRATA_TASK_EVALUATOR};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (spec->jobs[single[i]].n_tasks > 1)
            return strata_fail(err, STRATA_DATA, "%s: there are %d tasks of type %s; a cluster has at most one", source,
                               spec->jobs[single[i]].n_tasks, strata_task_type_name(single[i]));
    if (!spec->world_size)
        return strata_fail(err, STRATA_DATA, "%s: there is neither a chief nor a worker, so nobody trains; add a worker",
                           source);
    int n = spec->jobs[spec->task_type].n_tasks;
    bool outside = spec->task_type == STRATA_TASK_EVALUATOR && !n; /* an evaluator need not be listed in the cluster */
    if (!n && !outside)
        return strata_fail(err, STRATA_DATA, "%s: this task is %s:%d, but the cluster has no %s", source,
                           strata_task_type_name(spec->task_type), spec->task_index, strata_task_type_name(spec->task_type));
    if (spec->task_index >= n + outside)
        return strata_fail(err, STRATA_DATA, "%s: this task is %s:%d, but the cluster has %d of that type: indices 0 to %d",
                           source, strata_task_type_name(spec->task_type), spec->task_index, n, n + outside - 1);
    return STRATA_OK;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Checks that addresses are valid, and that no two tasks have the same one. */
static strata_status check_addresses(const char *source, const strata_cluster_spec *spec, strata_error *err) {
    size_t n = 0, room = 0;
    for (int type = 0; type < STRATA_TASK_TYPES; type++) room += (size_t)spec->jobs[type].n_tasks;
    STRATA_FREED char **all = NULL;
    STRATA_TRY(STRATA_NEW(all, room, err, "no memory for %zu addresses", room));
    for (int type = 0; type < STRATA_TASK_TYPES; type++)
        for (int i = 0; spec->jobs[type].addresses && i < spec->jobs[type].n_tasks; i++) {
            char *address = all[n++] = spec->jobs[type].addresses[i];
            const char *complaint = strata_address_complaint(address);
            if (complaint)
                return strata_fail(err, STRATA_DATA, "%s: the address of %s:%d, \"%.300s\", %s", source,
                                   strata_task_type_name((strata_task_type)type), i, address, complaint);
        }
    qsort(all, n, sizeof *all, by_text);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(all[i - 1], all[i]))
            return strata_fail(err, STRATA_DATA, "%s: two tasks have the address %.300s; each needs its own", source, all[i]);
    return STRATA_OK;
}

/* ---- what follows from jobs and task ---- */

/* Computes the position of this process among the tasks whose address has the same host, in the order of the types. */
static void count_neighbours(strata_cluster_spec *spec) {
    const strata_cluster_job *own = &spec->jobs[spec->task_type];
    spec->local_rank = 0;
    spec->local_size = 1;
    if (!own->addresses || spec->task_index >= own->n_tasks) return;
    const char *mine = own->addresses[spec->task_index];
    size_t n_host = strata_address_host_length(mine);
    int n = 0;
    for (int type = 0; type < STRATA_TASK_TYPES; type++)
        for (int i = 0; spec->jobs[type].addresses && i < spec->jobs[type].n_tasks; i++) {
            const char *address = spec->jobs[type].addresses[i];
            if (address == mine) spec->local_rank = n;
            n += strata_address_host_length(address) == n_host && !memcmp(address, mine, n_host);
        }
    spec->local_size = n;
}

static strata_status place_locally(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    if (spec->local_rank >= 0) return STRATA_OK;
    if (!strata_environment_get(opts, "STRATA_LOCAL_RANK")) {
        count_neighbours(spec);
        return STRATA_OK;
    }
    STRATA_TRY(strata_environment_int(opts, spec->source, "STRATA_LOCAL_SIZE", 1, STRATA_CLUSTER_MAX_TASKS, -1,
                                      &spec->local_size, err));
    return strata_environment_int(opts, spec->source, "STRATA_LOCAL_RANK", 0, spec->local_size - 1, -1, &spec->local_rank, err);
}

static strata_status find_rendezvous(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *by_variable = strata_environment_get(opts, "STRATA_RENDEZVOUS");
    const char *given = opts->rendezvous ? opts->rendezvous : by_variable;
    if (given) {
        const char *complaint = strata_address_complaint(given);
        if (complaint)
            return strata_fail(err, opts->rendezvous ? STRATA_INVALID : STRATA_DATA, "%s: \"%.300s\" %s",
                               opts->rendezvous ? "the rendezvous" : "STRATA_RENDEZVOUS", given, complaint);
        free(spec->rendezvous);
        spec->rendezvous = NULL;
    } else if (spec->rendezvous) {
        const char *complaint = strata_address_complaint(spec->rendezvous);
        if (complaint)
            return strata_fail(err, STRATA_DATA, "%s: the rendezvous, \"%.300s\", %s", spec->source, spec->rendezvous,
                               complaint);
        return STRATA_OK;
    } else {
        given = strata_cluster_spec_address(spec, 0);
    }
    if (!given) {
        if (spec->world_size == 1) return STRATA_OK;
        return strata_fail(
            err, STRATA_DATA,
            "%s: there are %d ranks, but nothing says where rank 0 listens; set STRATA_RENDEZVOUS=HOST:PORT, the "
            "same for all ranks",
            spec->source, spec->world_size);
    }
    spec->rendezvous = strdup(given);
    return spec->rendezvous ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an address");
}

static void place_among_all(strata_cluster_spec *spec) {
    int first = 0;
    spec->all_rank = -1;
    for (int type = 0; type < STRATA_TASK_TYPES; type++) {
        const int n = spec->jobs[type].n_tasks;
        if (type == (int)spec->task_type && spec->task_index < n) spec->all_rank = first + spec->task_index;
        first += n;
    }
    spec->all_size = first;
}

strata_task_type strata_cluster_spec_task(const strata_cluster_spec *spec, int all_rank, int *out_index) {
    int type = 0, index = all_rank;
    for (; type < STRATA_TASK_TYPES && index >= spec->jobs[type].n_tasks; type++) index -= spec->jobs[type].n_tasks;
    if (index < 0) type = STRATA_TASK_TYPES;
    if (out_index) *out_index = type < STRATA_TASK_TYPES ? index : -1;
    return (strata_task_type)type;
}

static strata_status complete(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    int n_chiefs = spec->jobs[STRATA_TASK_CHIEF].n_tasks;
    spec->world_size = n_chiefs + spec->jobs[STRATA_TASK_WORKER].n_tasks;
    STRATA_TRY(check_jobs(spec->source, spec, err));
    STRATA_TRY(check_addresses(spec->source, spec, err));
    spec->rank = spec->task_type == STRATA_TASK_CHIEF    ? 0
                 : spec->task_type == STRATA_TASK_WORKER ? n_chiefs + spec->task_index
                                                         : -1;
    place_among_all(spec);
    spec->is_chief = spec->rank == 0 || spec->task_type == STRATA_TASK_EVALUATOR;
    STRATA_TRY(place_locally(opts, spec, err));
    return find_rendezvous(opts, spec, err);
}

/* If the user gives a task and the description of the cluster also names one, they must be equal: otherwise one of them is
 * meant for another process. */
static strata_status check_task(const strata_cluster_options *opts, const strata_cluster_spec *spec, strata_error *err) {
    const char *type = strata_task_type_name(spec->task_type);
    char name[32];
    snprintf(name, sizeof name, "%s:%d", type, spec->task_index);
    const bool only_type = !spec->task_index && !strcmp(opts->task, type);
    const bool only_index = spec->task_type == STRATA_TASK_WORKER && !strcmp(opts->task, name + strlen(type) + 1);
    if (only_type || only_index || !strcmp(opts->task, name)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "--task is \"%.60s\", but %s says that this process is %s; give --cluster with --task, or leave "
                       "--task out",
                       opts->task, spec->source, name);
}

static const strata_resolver *who_speaks(const strata_cluster_options *opts) {
    for (size_t i = 0; i < sizeof resolvers / sizeof *resolvers; i++) {
        const strata_resolver *r = &resolvers[i];
        const char *value = strata_environment_get(opts, r->signs[0]);
        if (r->resolve == strata_resolve_explicit && opts->cluster) value = opts->cluster;
        if (value && (!r->signs[1] || strata_environment_get(opts, r->signs[1])) &&
            (!r->separator || strchr(value, r->separator)))
            return r;
    }
    return NULL;
}

strata_status strata_cluster_spec_resolve(const strata_cluster_options *opts, strata_cluster_spec *out_spec,
                                          strata_error *err) {
    static const strata_cluster_options none = {0};
    if (!opts) opts = &none;
    const strata_resolver *resolver = who_speaks(opts);
    *out_spec = (strata_cluster_spec){
        .source = resolver ? resolver->name : "none", .task_type = STRATA_TASK_WORKER, .local_rank = -1, .local_size = -1};
    strata_status status = STRATA_OK;
    if (resolver)
        status = resolver->resolve(opts, out_spec, err);
    else
        out_spec->jobs[STRATA_TASK_WORKER].n_tasks = 1;
    if (!status && !(resolver && resolver->names_types)) status = strata_roles_assign(opts, out_spec, err);
    if (!status) status = complete(opts, out_spec, err);
    if (!status && opts->task && resolver && resolver->resolve != strata_resolve_explicit)
        status = check_task(opts, out_spec, err);
    if (status) strata_cluster_spec_finish(out_spec);
    return status;
}
