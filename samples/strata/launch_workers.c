/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers of one host: the environment of each worker, and its share of the cores. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"
#include "strata/json.h"

enum { N_VARIABLES = 16 };

/* ---- the environment of a worker ---- */

typedef struct worker_setup {
    char *variables[N_VARIABLES + 1];
    char name[32];
    cpu_set_t cores;
} worker_setup;

/* The tasks of one type have the ranks [first, first + n). Without servers all tasks are workers; otherwise the order is the
 * chief, the workers, the servers, the evaluator. */
typedef struct role {
    const char *type;
    int first, n;
} role;
enum { N_ROLES = 4 };

static void list_roles(const job *j, role roles[N_ROLES]) {
    const int n_workers = (int)j->options->workers, n_ps = (int)j->options->ps;
    const role alone[N_ROLES] = {
        {"chief", 0, 0}, {"worker", 0, j->n_ranks}, {"ps", j->n_ranks, 0}, {"evaluator", j->n_ranks, 0}};
    const role served[N_ROLES] = {{"chief", 0, 1},
                                  {"worker", 1, n_workers},
                                  {"ps", 1 + n_workers, n_ps},
                                  {"evaluator", 1 + n_workers + n_ps, j->options->evaluator}};
    memcpy(roles, n_ps ? served : alone, sizeof served);
}

static role role_of(const job *j, int rank) {
    role roles[N_ROLES];
    int i = 0;
    list_roles(j, roles);
    while (i < N_ROLES - 1 && rank >= roles[i].first + roles[i].n) i++;
    return roles[i];
}

static char *tf_config_of(const job *j, int rank) {
    strata_json_writer writer = {0};
    char *text = NULL;
    role roles[N_ROLES];
    const role own = role_of(j, rank);
    list_roles(j, roles);
    strata_json_begin_object(&writer);
    strata_json_key(&writer, "cluster");
    strata_json_begin_object(&writer);
    for (int r = 0; r < N_ROLES; r++) {
        if (!roles[r].n) continue;
        strata_json_key(&writer, roles[r].type);
        strata_json_begin_array(&writer);
        for (int i = 0; i < roles[r].n; i++) strata_json_write_string(&writer, j->addresses[roles[r].first + i]);
        strata_json_end_array(&writer);
    }
    strata_json_end_object(&writer);
    strata_json_key(&writer, "task");
    strata_json_begin_object(&writer);
    strata_json_key(&writer, "type");
    strata_json_write_string(&writer, own.type);
    strata_json_key(&writer, "index");
    strata_json_write_int(&writer, rank - own.first);
    strata_json_end_object(&writer);
    strata_json_end_object(&writer);
    return strata_json_take(&writer, &text, NULL, NULL) ? NULL : text;
}

/* How many cores this process may use; 0: more than 1024, which are not divided. */
static int own_cores(cpu_set_t *out_cores) {
    CPU_ZERO(out_cores);
    return sched_getaffinity(0, sizeof *out_cores, out_cores) ? 0 : CPU_COUNT(out_cores);
}

/* Gives worker `local` of n consecutive ones of this process's cores, or a shared one if there are more workers than cores.
 * Returns how many. */
static int divide_cores(int local, int n, cpu_set_t *out_cores) {
    cpu_set_t all;
    CPU_ZERO(out_cores);
    const int n_cores = own_cores(&all);
    int first = (int)((int64_t)local * n_cores / n), end = (int)((int64_t)(local + 1) * n_cores / n);
    if (!n_cores) return 0;
    if (end == first) end = first + 1;
    for (int core = 0, seen = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all)) {
            if (seen >= first && seen < end) CPU_SET(core, out_cores);
            seen++;
        }
    return end - first;
}

static bool add_variable(worker_setup *setup, int *n, const char *name, const char *value) {
    char *text = NULL;
    if (asprintf(&text, "%s=%s", name, value) < 0) return false;
    setup->variables[(*n)++] = text;
    return true;
}

static bool add_number(worker_setup *setup, int *n, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return add_variable(setup, n, name, text);
}

/* Whether a program reads the output of the workers: their command contains --json. */
static bool asks_for_json(const char *const *command) {
    while (*command && strcmp(*command, "--json") != 0) command++;
    return *command != NULL;
}

/* ended_fd: a file that lists the tasks that ended (launch_patience), whose path the worker gets; -1: none. */
static bool set_up_worker(const job *j, int local, int ended_fd, worker_setup *setup, child *out_child) {
    /* These variables limit the threads of a worker's drivers to its cores. PoCL has the second name since version 4.0; LP is
     * lavapipe. */
    static const char *const limits[] = {"POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "LP_NUM_THREADS",
                                         "OMP_NUM_THREADS"};
    /* On a single core PoCL's thread and the thread that waits for it only alternate. This driver of PoCL computes in the
     * calling thread. All workers of a job must have the same driver, so it is not used if some workers have two cores, nor on
     * several hosts, where PoCL's thread computes while the other one waits for the network. A version of PoCL ignores names
     * that it does not know; the second is the name since version 4.0. */
    static const char *const threadless[] = {"POCL_DEVICES", "basic cpu-minimal"};
    static const char *const removed[] = {"STRATA_CLUSTER", "STRATA_TASK", "STRATA_RENDEZVOUS"};
    int rank = j->first + local, n = 0, n_cores = 0;
    const role own = role_of(j, rank);
    /* Chief, servers and evaluator share the cores that the workers do not use. */
    const bool computes = !strcmp(own.type, "worker"), served = j->options->ps > 0;
    const int at = served ? rank - own.first : local, n_here = served ? own.n : j->n_here;
    if (!j->options->no_bind && computes) n_cores = divide_cores(at, n_here, &setup->cores);
    char *config = tf_config_of(j, rank);
    bool made = config && add_variable(setup, &n, "TF_CONFIG", config) && add_number(setup, &n, "STRATA_LOCAL_RANK", at) &&
                add_number(setup, &n, "STRATA_LOCAL_SIZE", n_here) && add_number(setup, &n, "STRATA_RESTART", j->restart) &&
                add_variable(setup, &n, "STRATA_SECRET", j->secret);
    free(config);
    char ended[48];
    snprintf(ended, sizeof ended, "/proc/%d/fd/%d", (int)getpid(), ended_fd);
    if (made && ended_fd >= 0) made = add_variable(setup, &n, "STRATA_ENDED_TASKS", ended);
    for (size_t i = 0; made && n_cores && i < sizeof limits / sizeof *limits; i++)
        if (!getenv(limits[i])) made = add_number(setup, &n, limits[i], n_cores);
    cpu_set_t all;
    if (made && n_cores && own_cores(&all) <= n_here && j->n_here == j->n_ranks && !getenv(threadless[0]))
        made = add_variable(setup, &n, threadless[0], threadless[1]);
    for (size_t i = 0; made && i < sizeof removed / sizeof *removed; i++)
        made = (setup->variables[n] = strdup(removed[i])) != NULL && ++n;
    if (served)
        snprintf(setup->name, sizeof setup->name, "%s:%d", own.type, rank - own.first);
    else
        snprintf(setup->name, sizeof setup->name, "worker %d", rank);
    *out_child = (child){.argv = j->command,
                         .environment = (const char *const *)setup->variables,
                         .cores = n_cores ? &setup->cores : NULL,
                         .name = setup->name,
                         .rank = rank,
                         .replaceable = served && strcmp(own.type, "chief") != 0,
                         .evaluates = !strcmp(own.type, "evaluator"),
                         .json = asks_for_json(j->command)};
    return made;
}

int run_workers(const job *j, bool *out_stopped) {
    int code = EXIT_OK;
    child *children = calloc((size_t)j->n_here, sizeof *children);
    worker_setup *setups = calloc((size_t)j->n_here, sizeof *setups);
    launch_patience limits = {.grace_s = j->options->grace_s,
                              .linger_s = j->options->linger_s,
                              .restarts = j->options->restarts,
                              .ended_fd = j->options->ps ? memfd_create("ended tasks", MFD_CLOEXEC) : -1};
    for (int i = 0; i < j->n_here && !code; i++)
        if (!children || !setups || !set_up_worker(j, i, limits.ended_fd, &setups[i], &children[i])) code = no_memory();
    if (!code) code = run_children(children, j->n_here, &limits, j->options->agent, out_stopped);
    for (int i = 0; setups && i < j->n_here; i++)
        for (int k = 0; k < N_VARIABLES; k++) free(setups[i].variables[k]);
    free(setups);
    free(children);
    if (limits.ended_fd >= 0) close(limits.ended_fd);
    return code;
}

/* ---- a job on this host ---- */

int hold_port(int *out_socket) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    const int yes = 1;
    *out_socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*out_socket < 0 || setsockopt(*out_socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
        bind(*out_socket, (struct sockaddr *)&address, n) || getsockname(*out_socket, (struct sockaddr *)&address, &n))
        return -1;
    return ntohs(address.sin_port);
}

int choose_local_addresses(job *j) {
    j->held = malloc((size_t)j->n_ranks * sizeof *j->held);
    if (!j->held) return no_memory();
    for (int i = 0; i < j->n_ranks; i++) j->held[i] = -1;
    for (int i = 0; i < j->n_ranks; i++) {
        const int port = j->options->port ? (int)j->options->port + i : hold_port(&j->held[i]);
        if (port < 0) return usage_error("launch: there is no free port: %s", strerror(errno)), EXIT_DATA;
        if (asprintf(&j->addresses[i], "127.0.0.1:%d", port) < 0) {
            j->addresses[i] = NULL;
            return no_memory();
        }
    }
    return EXIT_OK;
}
