/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for resolvers: reading variables as numbers, checking and making addresses, adding tasks to a spec. */
#include <stdio.h>

#include "cluster/resolver/resolver.h"
#include "core/base/alloc.h"
#include "core/base/ascii.h"

static const char *const type_names[STRATA_TASK_TYPES] = {"chief", "worker", "ps", "evaluator"};

const char *strata_task_type_name(strata_task_type type) {
    return (size_t)type < STRATA_TASK_TYPES ? type_names[type] : "unknown";
}

strata_task_type strata_task_type_of(const char *at, size_t n) {
    for (int i = 0; i < STRATA_TASK_TYPES; i++)
        if (strlen(type_names[i]) == n && !memcmp(type_names[i], at, n)) return (strata_task_type)i;
    return STRATA_TASK_TYPES;
}

/* ---- variables ---- */

const char *strata_environment_get(const strata_cluster_options *opts, const char *name) {
    const char *value = opts->environment.get ? opts->environment.get(opts->environment.context, name) : getenv(name);
    return value && *value ? value : NULL;
}

int strata_digits(const char *at, size_t n) {
    int value = 0;
    if (!n || n > 9) return -1;
    for (size_t i = 0; i < n; i++) {
        if (!strata_ascii_is_digit(at[i])) return -1;
        value = value * 10 + (at[i] - '0');
    }
    return value;
}

strata_status strata_environment_int(const strata_cluster_options *opts, const char *launcher, const char *name, int least,
                                     int most, int otherwise, int *out, strata_error *err) {
    const char *text = strata_environment_get(opts, name);
    if (!text) {
        *out = otherwise;
        if (otherwise >= 0) return STRATA_OK;
        return strata_fail(err, STRATA_DATA,
                           "%s: %s is not set; the launcher sets it, or say who is in the job by --cluster and --task",
                           launcher, name);
    }
    int value = strata_digits(text, strlen(text));
    if (value < least || value > most)
        return strata_fail(err, STRATA_DATA, "%s: %s is \"%.40s\"; it must be a whole number from %d to %d", launcher, name,
                           text, least, most);
    *out = value;
    return STRATA_OK;
}

/* ---- addresses ---- */

size_t strata_address_host_length(const char *address) {
    const char *colon = strrchr(address, ':');
    return colon ? (size_t)(colon - address) : strlen(address);
}

const char *strata_address_complaint(const char *address) {
    size_t n_host = strata_address_host_length(address);
    const char *port = address + n_host;
    if (!*address) return "is empty; it must be host:port";
    if (*port != ':') return "has no port; it must be host:port";
    if (!n_host) return "has no host; it must be host:port";
    if (n_host > 255) return "has a host of more than 255 bytes";
    bool bracketed = *address == '[' && port[-1] == ']';
    for (const char *c = address; c < port; c++) {
        if (*c == ':' && !bracketed) return "has several colons; an IPv6 host stands in brackets, as in [::1]:2222";
        if (!strata_ascii_is_word(*c) && !strchr(bracketed ? "[]:.%-_" : ".-_", *c))
            return "has a character that no host name has";
    }
    int number = strata_digits(port + 1, strlen(port + 1));
    if (number < 1 || number > 65535) return "has a wrong port; it must be a number from 1 to 65535";
    return NULL;
}

int strata_port_of(const char *text) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
    return 16384 + (int)(hash % (16384 - 4096));
}

/* ---- tasks ---- */

strata_status strata_cluster_spec_add(strata_cluster_spec *spec, strata_task_type type, const char *address, size_t n,
                                      strata_error *err) {
    strata_cluster_job *job = &spec->jobs[type];
    if (job->n_tasks >= STRATA_CLUSTER_MAX_TASKS)
        return strata_fail(err, STRATA_DATA, "there are more than %d tasks of type %s", STRATA_CLUSTER_MAX_TASKS,
                           type_names[type]);
    char **added = strata_grow(&job->addresses, job->n_tasks, sizeof *added);
    if (!added) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d addresses", 2 * job->n_tasks);
    *added = strndup(address, n);
    if (!*added) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an address");
    job->n_tasks++;
    return STRATA_OK;
}

static strata_status make_address(const char *host, int port, char **out, strata_error *err) {
    const bool colons = strchr(host, ':') && *host != '[';
    const size_t n = strlen(host) + 16;
    *out = malloc(n);
    if (!*out) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for an address");
    snprintf(*out, n, colons ? "[%s]:%d" : "%s:%d", host, port);
    return STRATA_OK;
}

strata_status strata_cluster_spec_add_host(strata_cluster_spec *spec, const char *host, int port, strata_error *err) {
    STRATA_FREED char *address = NULL;
    STRATA_TRY(make_address(host, port, &address, err));
    return strata_cluster_spec_add(spec, STRATA_TASK_WORKER, address, strlen(address), err);
}

strata_status strata_cluster_spec_meet(strata_cluster_spec *spec, const char *host, int port, strata_error *err) {
    return make_address(host, port, &spec->rendezvous, err);
}
