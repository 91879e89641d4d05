/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface of a resolver: a function that reads the variables of one launcher, and a row in resolvers.def. Users call
 * strata/cluster_spec.h. */
#ifndef STRATA_CLUSTER_RESOLVER_H
#define STRATA_CLUSTER_RESOLVER_H

#include "strata/cluster_spec.h"

/* Sets jobs, task_type and task_index; local_rank and local_size if they are known (else -1); and rendezvous if it is not rank
 * 0's address. spec->source is the resolver's name. resolver.c computes the ranks and the chief and makes all checks. The
 * caller frees what this allocated, also on failure. */
typedef strata_status strata_resolve(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err);

typedef struct strata_resolver {
    /* Becomes spec->source and begins its messages. */
    const char *name;
    /* This launcher started the process if these variables (the second may be NULL) are set, and the first one contains the
     * separator (0: none). */
    const char *signs[2];
    char separator;
    strata_resolve *resolve;
    /* The launcher's variables name the type of each task, so STRATA_ROLES is not read. Otherwise all tasks are workers at
     * first. */
    bool names_types;
} strata_resolver;

#define RESOLVER(id, name, sign, second, separator, names_types) strata_resolve strata_resolve_##id;
#include "cluster/resolver/resolvers.def"
#undef RESOLVER

/* ---- functions for resolvers (values.c) ---- */

/* The value of an environment variable; NULL if it is not set or is empty. */
const char *strata_environment_get(const strata_cluster_options *opts, const char *name);
/* A variable as an integer in [least, most]. If it is not set: `otherwise`, or a failure if otherwise is -1. `launcher` is the
 * launcher that should have set it. Fails: DATA. */
STRATA_MUST_USE strata_status strata_environment_int(const strata_cluster_options *opts, const char *launcher, const char *name,
                                                     int least, int most, int otherwise, int *out, strata_error *err);
/* The number in [at, at + n), which must be one to nine decimal digits; -1: it is something else. */
int strata_digits(const char *at, size_t n);

/* NULL if `address` is a valid "host:port"; else what is wrong with it, as the text that follows the address in a message. */
const char *strata_address_complaint(const char *address);
/* How many bytes of the address come before its ":port". */
size_t strata_address_host_length(const char *address);
/* A port in [16384, 32768 - 4096) that depends only on the text: for launchers that pass the name of a job but no port. */
int strata_port_of(const char *text);

/* Adds a task to the job of `type`; copies the address (n bytes). Fails: OUT_OF_MEMORY, DATA beyond
 * STRATA_CLUSTER_MAX_TASKS. */
STRATA_MUST_USE strata_status strata_cluster_spec_add(strata_cluster_spec *spec, strata_task_type type, const char *address,
                                                      size_t n, strata_error *err);
/* Adds a worker with the address "host:port"; a host that contains colons is put in brackets. */
STRATA_MUST_USE strata_status strata_cluster_spec_add_host(strata_cluster_spec *spec, const char *host, int port,
                                                           strata_error *err);
/* Sets the rendezvous to "host:port". */
STRATA_MUST_USE strata_status strata_cluster_spec_meet(strata_cluster_spec *spec, const char *host, int port,
                                                       strata_error *err);
/* Sets the types of the tasks of `spec`, which are all workers, by STRATA_ROLES (roles.c). Without this variable nothing
 * changes.
 * Fails: DATA, OUT_OF_MEMORY. */
STRATA_MUST_USE strata_status strata_roles_assign(const strata_cluster_options *opts, strata_cluster_spec *spec,
                                                  strata_error *err);
/* The type that [at, at + n) names; STRATA_TASK_TYPES: it is no type. */
strata_task_type strata_task_type_of(const char *at, size_t n);

/* ---- Slurm's lists (host_list.c) ---- */

typedef struct strata_host_list {
    char **hosts;
    int n_hosts;
} strata_host_list;

/* Expands "n[1-2,07],m5,rack[1-2]n[1-2]" to n1 n2 n07 m5 rack1n1 rack1n2 rack2n1 rack2n2. `name` is used in messages. Fails:
 * DATA, with the position in the text. The result has at most STRATA_CLUSTER_MAX_TASKS hosts of 255 bytes. */
STRATA_MUST_USE strata_status strata_host_list_expand(const char *name, const char *text, strata_host_list *out_list,
                                                      strata_error *err);
void strata_host_list_finish(strata_host_list *list);
/* Expands "3(x2),1" to 3 3 1, which must be exactly n_nodes numbers of at least 1: counts[0..n_nodes). Fails: DATA. */
STRATA_MUST_USE strata_status strata_task_counts_expand(const char *name, const char *text, int *counts, int n_nodes,
                                                        strata_error *err);

#endif
