/* SPDX-License-Identifier: Apache-2.0
 *
 * strata cluster check: every worker and every parameter server of a job runs it. Rank 0 prints which tasks were found and by
 * which resolver, which of them answer, and the latency and bandwidth between each two of them. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "strata/cluster_spec.h"

enum {
    MOST_PINGS = 200,
    LEAST_PINGS = 5,
    LEAST_BYTES = 64 << 10,
    MOST_BYTES = 16 << 20, /* the largest message */
    BULK_REPEATS = 4
};
/* SLOW_SECONDS is the time for a pair of ranks. Over a slow link the smallest message may take longer. */
static const double PING_SECONDS = 0.2, BULK_SECONDS = 0.03, SLOW_SECONDS = 0.3;

typedef struct check_options {
    strategy_flags strategy;
    const char *transport;
    bool json;
} check_options;

static const option_row rows[] = {CLUSTER_OPTION_ROWS(check_options, strategy),
                                  {"transport", "NAME", "tcp, or shm for workers on the same host (chosen automatically)",
                                   OPTION_TEXT, offsetof(check_options, transport), 0, 0},
                                  {"json", NULL, "print one line of JSON", OPTION_FLAG, offsetof(check_options, json), 0, 0},
                                  {0}};

/* A rank's description of itself. */
typedef struct answer {
    int32_t process, cores;
    char host[64], version[24];
} answer;

typedef struct pair {
    double latency_us, to_mb_s, from_mb_s; /* half a round trip; to the higher rank, from it */
} pair;

/* ---- measuring: the lower rank of a pair leads, the higher one follows ---- */

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static strata_status ping(strata_communicator *comm, int peer, double *out_us, strata_error *err) {
    double trips[MOST_PINGS];
    const double began = now_seconds();
    int n = 0;
    for (uint8_t more = 1; more;) {
        const double start = now_seconds();
        more = n + 1 < MOST_PINGS && (n + 1 < LEAST_PINGS || start - began < PING_SECONDS);
        STRATA_TRY(strata_communicator_send(comm, &more, 1, STRATA_DTYPE_U8, peer, err));
        STRATA_TRY(strata_communicator_recv(comm, &more, 1, STRATA_DTYPE_U8, peer, err));
        trips[n++] = now_seconds() - start;
    }
    qsort(trips, (size_t)n, sizeof *trips, ascending);
    *out_us = trips[n / 2] / 2 * 1e6;
    return STRATA_OK;
}

static strata_status answer_pings(strata_communicator *comm, int peer, strata_error *err) {
    for (uint8_t more = 1; more;) {
        STRATA_TRY(strata_communicator_recv(comm, &more, 1, STRATA_DTYPE_U8, peer, err));
        STRATA_TRY(strata_communicator_send(comm, &more, 1, STRATA_DTYPE_U8, peer, err));
    }
    return STRATA_OK;
}

/* Sends messages, each twice as large as the last, until one takes long enough to be measured, and repeats that one a few
 * times, since other programs use the machine as well. Each message is answered by a byte. */
static strata_status send_bulk(strata_communicator *comm, int peer, const uint8_t *bytes, double *out_mb_s, strata_error *err) {
    int repeats = 0;
    *out_mb_s = 0;
    for (int64_t n = LEAST_BYTES; n;) {
        uint8_t done;
        STRATA_TRY(strata_communicator_send(comm, &n, 1, STRATA_DTYPE_I64, peer, err));
        const double start = now_seconds();
        STRATA_TRY(strata_communicator_send(comm, bytes, (size_t)n, STRATA_DTYPE_U8, peer, err));
        STRATA_TRY(strata_communicator_recv(comm, &done, 1, STRATA_DTYPE_U8, peer, err));
        const double seconds = now_seconds() - start, mb_s = (double)n / seconds / 1e6;
        if (mb_s > *out_mb_s) *out_mb_s = mb_s;
        if (!repeats && seconds < BULK_SECONDS && n < MOST_BYTES)
            n *= 2;
        else if (seconds > SLOW_SECONDS || ++repeats == BULK_REPEATS)
            n = 0;
    }
    const int64_t end = 0;
    return strata_communicator_send(comm, &end, 1, STRATA_DTYPE_I64, peer, err);
}

static strata_status take_bulk(strata_communicator *comm, int peer, uint8_t *bytes, strata_error *err) {
    for (int64_t n = 1; n;) {
        const uint8_t done = 1;
        STRATA_TRY(strata_communicator_recv(comm, &n, 1, STRATA_DTYPE_I64, peer, err));
        if (n < 0 || n > MOST_BYTES) return strata_fail(err, STRATA_DATA, "rank %d runs another version of this check", peer);
        if (n) STRATA_TRY(strata_communicator_recv(comm, bytes, (size_t)n, STRATA_DTYPE_U8, peer, err));
        if (n) STRATA_TRY(strata_communicator_send(comm, &done, 1, STRATA_DTYPE_U8, peer, err));
    }
    return STRATA_OK;
}

static strata_status lead(strata_communicator *comm, int peer, uint8_t *bytes, pair *out, strata_error *err) {
    STRATA_TRY(ping(comm, peer, &out->latency_us, err));
    STRATA_TRY(send_bulk(comm, peer, bytes, &out->to_mb_s, err));
    STRATA_TRY(take_bulk(comm, peer, bytes, err));
    return strata_communicator_recv(comm, &out->from_mb_s, 1, STRATA_DTYPE_F64, peer, err);
}

static strata_status follow(strata_communicator *comm, int peer, uint8_t *bytes, strata_error *err) {
    double mb_s = 0;
    STRATA_TRY(answer_pings(comm, peer, err));
    STRATA_TRY(take_bulk(comm, peer, bytes, err));
    STRATA_TRY(send_bulk(comm, peer, bytes, &mb_s, err));
    return strata_communicator_send(comm, &mb_s, 1, STRATA_DTYPE_F64, peer, err);
}

/* Measures one pair after another, so that they do not disturb each other. pairs: [world][world]; this rank sets its row. */
static strata_status measure(strata_communicator *comm, uint8_t *bytes, pair *pairs, strata_error *err) {
    const int world = strata_communicator_world(comm), rank = strata_communicator_rank(comm);
    for (int a = 0; a < world; a++)
        for (int b = a + 1; b < world; b++) {
            STRATA_TRY(strata_communicator_barrier(comm, err));
            if (rank == a) STRATA_TRY(lead(comm, b, bytes, &pairs[a * world + b], err));
            if (rank == b) STRATA_TRY(follow(comm, a, bytes, err));
        }
    return strata_communicator_all_gather(comm, NULL, pairs, (size_t)world * sizeof *pairs / sizeof(double), NULL,
                                          STRATA_DTYPE_F64, err);
}

static strata_status ask_all(strata_communicator *comm, answer *answers, strata_error *err) {
    answer *own = &answers[strata_communicator_rank(comm)];
    cpu_set_t cores;
    *own = (answer){.process = getpid(), .cores = sched_getaffinity(0, sizeof cores, &cores) ? 0 : CPU_COUNT(&cores)};
    gethostname(own->host, sizeof own->host - 1);
    snprintf(own->version, sizeof own->version, "%s", STRATA_VERSION);
    STRATA_TRY(strata_communicator_all_gather(comm, NULL, answers, sizeof *answers, NULL, STRATA_DTYPE_U8, err));
    for (int r = 0; r < strata_communicator_world(comm); r++)
        answers[r].host[sizeof own->host - 1] = answers[r].version[sizeof own->version - 1] = 0;
    return STRATA_OK;
}

/* ---- printing ---- */

/* The address of a rank; "": the launcher did not give it. */
static const char *address_of(const strata_cluster_spec *spec, int rank) {
    int index = 0;
    const strata_task_type type = strata_cluster_spec_task(spec, rank, &index);
    return type < STRATA_TASK_TYPES && spec->jobs[type].addresses ? spec->jobs[type].addresses[index] : "";
}

/* Writes the name of a task, for example "worker:1". */
static void name_task(const strata_cluster_spec *spec, int rank, char out[24]) {
    int index = 0;
    const char *type = strata_task_type_name(strata_cluster_spec_task(spec, rank, &index));
    snprintf(out, 24, "%s:%d", type, index);
}

/* Prints the resolved tasks before waiting for them, so that an absent rank can be identified. */
static void print_resolved(const strata_cluster_spec *spec) {
    static const char *const names[] = {"chief", "worker", "parameter server"};
    printf("%s", strcmp(spec->source, "none") ? spec->source : "nothing names a cluster");
    for (int type = 0, n_before = 0; type <= STRATA_TASK_PS; type++) {
        const int n = spec->jobs[type].n_tasks;
        if (n) printf("%s%d %s%s", n_before ? ", " : ": ", n, names[type], n > 1 ? "s" : "");
        n_before += n;
    }
    if (spec->rendezvous) printf(", meeting at %s", spec->rendezvous);
    printf("\n");
    for (int r = 0; r < spec->world_size && spec->world_size > 1 && *address_of(spec, r); r++) {
        char name[24];
        name_task(spec, r, name);
        printf("  rank %-4d %-9s  %s\n", r, name, address_of(spec, r));
    }
    fflush(stdout);
}

static void print_text(const strata_communicator *comm, bool tls, const answer *answers, const pair *pairs) {
    const int world = strata_communicator_world(comm);
    printf("all answer, over %s%s\n  rank  process  cores  version  host\n", strata_communicator_transport(comm),
           tls ? ", met under TLS" : "");
    for (int r = 0; r < world; r++)
        printf("  %4d  %7d  %5d  %-7s  %s%s\n", r, answers[r].process, answers[r].cores, answers[r].version, answers[r].host,
               strcmp(answers[r].version, answers[0].version) ? "  (another version than rank 0's)" : "");
    if (world > 1) printf("  from    to  latency us    there MB/s     back MB/s\n");
    for (int a = 0; a < world; a++)
        for (int b = a + 1; b < world; b++) {
            const pair *p = &pairs[a * world + b];
            printf("  %4d  %4d  %10.1f  %12.1f  %12.1f\n", a, b, p->latency_us, p->to_mb_s, p->from_mb_s);
        }
}

static void print_json(const strata_cluster_spec *spec, const strata_communicator *comm, bool tls, const answer *answers,
                       const pair *pairs) {
    const int world = spec->world_size;
    printf("{\"resolver\":\"%s\",\"world\":%d,\"rendezvous\":", spec->source, world);
    print_json_string(spec->rendezvous ? spec->rendezvous : "");
    printf(",\"transport\":\"%s\",\"tls\":%s,\"ranks\":[", strata_communicator_transport(comm), tls ? "true" : "false");
    for (int r = 0; r < world; r++) {
        char name[24];
        name_task(spec, r, name);
        printf("%s{\"rank\":%d,\"address\":", r ? "," : "", r);
        print_json_string(address_of(spec, r));
        printf(",\"task\":\"%s\",\"host\":", name);
        print_json_string(answers[r].host);
        printf(",\"process\":%d,\"cores\":%d,\"version\":", answers[r].process, answers[r].cores);
        print_json_string(answers[r].version);
        printf("}");
    }
    printf("],\"pairs\":[");
    for (int a = 0; a < world; a++)
        for (int b = a + 1; b < world; b++) {
            const pair *p = &pairs[a * world + b];
            printf("%s{\"from\":%d,\"to\":%d,\"latency_us\":%.2f,\"there_mb_s\":%.3f,\"back_mb_s\":%.3f}",
                   a || b > 1 ? "," : "", a, b, p->latency_us, p->to_mb_s, p->from_mb_s);
        }
    printf("]}\n");
}

/* ---- the command ---- */

static int check_all(const check_options *options, const strata_cluster_spec *spec, strata_communicator *comm) {
    const size_t world = (size_t)spec->world_size;
    answer *answers = calloc(world, sizeof *answers);
    pair *pairs = calloc(world * world, sizeof *pairs);
    uint8_t *bytes = malloc(MOST_BYTES);
    strata_error err = {0};
    strata_status status = STRATA_OK;
    const bool tls = wants_tls(&options->strategy);
    if (!answers || !pairs || !bytes) status = strata_fail(&err, STRATA_OUT_OF_MEMORY, "no memory to check %zu ranks", world);
    if (!status) memset(bytes, 1, MOST_BYTES); /* touch all pages before the time is measured */
    if (!status) status = ask_all(comm, answers, &err);
    if (!status) status = measure(comm, bytes, pairs, &err);
    if (!status && spec->rank == 0 && options->json) print_json(spec, comm, tls, answers, pairs);
    if (!status && spec->rank == 0 && !options->json) print_text(comm, tls, answers, pairs);
    free(bytes);
    free(pairs);
    free(answers);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    check_options options = {0};
    strata_cluster_spec spec = {0};
    strata_communicator *comm = NULL;
    const char *what = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &what, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    if (strcmp(what, "check") != 0) return usage_error("cluster: \"%s\" is not known; there is: strata cluster check", what);
    const strata_communicator_options more = {.transport = options.transport};
    code = resolve_tasks(&options.strategy, &spec);
    if (!code && spec.task_type == STRATA_TASK_EVALUATOR) {
        printf("this task is the evaluator, which connects to no other: there is nothing to check\n");
        strata_cluster_spec_finish(&spec);
        return EXIT_OK;
    }
    /* In this communicator, parameter servers have ranks as well, after those of the workers. */
    spec.rank = spec.all_rank;
    spec.world_size = spec.all_size - spec.jobs[STRATA_TASK_EVALUATOR].n_tasks;
    if (!code && spec.rank == 0 && !options.json) print_resolved(&spec);
    if (!code) code = join_workers(&options.strategy, &spec, &more, &comm);
    if (!code) code = check_all(&options, &spec, comm);
    strata_communicator_destroy(comm);
    strata_cluster_spec_finish(&spec);
    return code;
}

const command command_cluster = {
    .name = "cluster",
    .arguments = "check",
    .summary = "check the tasks of a job: who answers, latency and bandwidth",
    .details =
        "All workers and parameter servers run it, and find each other as the tasks of `strata train` do. Rank 0 prints which\n"
        "tasks were found and which answer, and for each two of them the latency, half of a round trip of a byte, and the "
        "bytes\n"
        "per second in both directions. If some do not answer, all end with exit code 163 and print which ranks are missing.\n"
        "  strata launch -n 3 -- strata cluster check\n"
        "  strata launch --workers 3 --ps 2 -- strata cluster check\n"
        "  strata cluster check --cluster a:2222,b:2222 --task worker:0\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run,
};
