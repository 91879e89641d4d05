/* SPDX-License-Identifier: Apache-2.0
 *
 * strata bench allreduce: measures how long a sum over processes takes. The command forks the ranks (for inproc they are
 * threads); rank 0 writes each result to a pipe. A *peer* is another program that measures the same; it runs first on the same
 * machine. In a job with several workers the command is one of the ranks. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum {
    MOST_SIZES = 64,
    MOST_RANKS = 64,
    WARM_UPS = 3,
    LEAST_REPEATS = 5,
    MOST_REPEATS = 2000,
    REPEATED_BYTES = 64 << 20 /* the bytes of all repeats of a size together */
};
static const char default_sizes[] = "4,64,1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864,268435456";

static const char tuned_sizes[] = "64,1024,4096,8192,16384,32768,65536,262144,1048576,4194304,16777216";

typedef struct measured {
    int64_t bytes, wire_bytes; /* the bytes of the sum; those that rank 0 sent */
    double median_us, min_us;
    char algorithm[24];
} measured;

typedef struct job {
    const bench_options *options;
    const char *algorithm; /* NULL: chosen by size */
    int64_t sizes[MOST_SIZES];
    int n_sizes, world;
    const char *transport;
    char store[32];
    unsigned char secret[32];
    strata_dtype wire;
    int results; /* the pipe to which rank 0 writes results; -1: it prints them */
} job;

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- printing ---- */

static void print_header(const job *j) {
    if (j->options->json) return;
    printf("f32 sum over %d ranks, %s%s%s; us\n%12s %12s %12s  %-16s %12s%s%s\n", j->world, j->transport,
           j->wire ? ", sent as " : "", j->wire ? j->options->compress : "", "bytes", "median", "min", "algorithm",
           "bytes sent", j->options->peer ? "         peer" : "", j->options->peer ? "   ratio" : "");
}

static void print_one(const job *j, const measured *m, const measured *peer) {
    if (j->options->json) {
        printf(
            "{\"bytes\":%lld,\"median_us\":%.2f,\"min_us\":%.2f,\"algorithm\":\"%s\",\"ranks\":%d,\"transport\":\"%s\",\"wire_"
            "bytes\":%lld",
            (long long)m->bytes, m->median_us, m->min_us, m->algorithm, j->world, j->transport, (long long)m->wire_bytes);
        if (peer->median_us > 0)
            printf(",\"peer\":\"%s\",\"peer_median_us\":%.2f,\"ratio\":%.4f", j->options->peer, peer->median_us,
                   m->median_us / peer->median_us);
        printf("}\n");
    } else {
        printf("%12lld %12.1f %12.1f  %-16s %12lld", (long long)m->bytes, m->median_us, m->min_us, m->algorithm,
               (long long)m->wire_bytes);
        if (peer->median_us > 0) printf(" %12.1f %7.2f", peer->median_us, m->median_us / peer->median_us);
        printf("\n");
    }
    fflush(stdout);
}

/* ---- one rank ---- */

static strata_status sum(const job *j, strata_communicator *comm, float *data, int64_t n, strata_error *err) {
    const strata_collective what = {
        .kind = STRATA_ALL_REDUCE, .out = data, .count = (size_t)n, .dtype = STRATA_DTYPE_F32, .wire = j->wire};
    return strata_communicator_run(comm, &what, err);
}

static strata_status check_sum(const job *j, strata_communicator *comm, float *data, int64_t n, strata_error *err) {
    const float world = (float)strata_communicator_world(comm);
    const float tolerance = j->wire ? 1.0f / 128 : 0; /* two roundings to 8 bits */
    for (int64_t i = 0; i < n; i++) data[i] = (float)(i % 1000 + strata_communicator_rank(comm));
    STRATA_TRY(sum(j, comm, data, n, err));
    for (int64_t i = 0; i < n; i++) {
        const float want = world * (float)(i % 1000) + world * (world - 1) / 2;
        if (fabsf(data[i] - want) > want * tolerance)
            return strata_fail(err, STRATA_INTERNAL, "element %lld of %lld is %g; it should be %g", (long long)i, (long long)n,
                               (double)data[i], (double)want);
    }
    return STRATA_OK;
}

/* Measures one sum: the time of the slowest rank. */
static strata_status time_once(const job *j, strata_communicator *comm, float *data, int64_t n, double *out_seconds,
                               strata_error *err) {
    memset(data, 0, (size_t)n * sizeof *data);
    STRATA_TRY(strata_communicator_barrier(comm, err));
    const double begin = now_seconds();
    STRATA_TRY(sum(j, comm, data, n, err));
    *out_seconds = now_seconds() - begin;
    return strata_communicator_all_reduce(comm, out_seconds, 1, STRATA_DTYPE_F64, STRATA_REDUCER_MAX, err);
}

static strata_status measure(const job *j, strata_communicator *comm, int64_t bytes, float *data, double *times,
                             strata_error *err) {
    const int64_t n = bytes / 4, wanted = REPEATED_BYTES / bytes;
    const int repeats = (int)(wanted < LEAST_REPEATS ? LEAST_REPEATS : wanted > MOST_REPEATS ? MOST_REPEATS : wanted);
    const uint64_t sent = strata_communicator_bytes_sent(comm);
    STRATA_TRY(check_sum(j, comm, data, n, err));
    const int64_t wire_bytes = (int64_t)(strata_communicator_bytes_sent(comm) - sent);
    const double most_seconds = j->options->seconds > 0 ? j->options->seconds : INFINITY;
    for (int i = -WARM_UPS; i < 0; i++) STRATA_TRY(time_once(j, comm, data, n, &times[0], err));
    double spent = 0; /* equal on all ranks, since each measured time is */
    int done = 0;
    for (; done < repeats && (done < LEAST_REPEATS || spent < most_seconds); spent += times[done++])
        STRATA_TRY(time_once(j, comm, data, n, &times[done], err));
    if (strata_communicator_rank(comm)) return STRATA_OK;
    qsort(times, (size_t)done, sizeof *times, ascending);
    measured m = {.bytes = bytes, .wire_bytes = wire_bytes, .median_us = times[done / 2] * 1e6, .min_us = times[0] * 1e6};
    snprintf(m.algorithm, sizeof m.algorithm, "%s", strata_communicator_algorithm(comm, (size_t)bytes));
    if (j->results < 0) {
        print_one(j, &m, &(measured){0});
        return STRATA_OK;
    }
    if (write(j->results, &m, sizeof m) != sizeof m)
        return strata_fail(err, STRATA_INTERNAL, "cannot write a result: %s", strerror(errno));
    return STRATA_OK;
}

static strata_status measure_all(const job *j, strata_communicator *comm, strata_error *err) {
    int64_t largest = 0;
    for (int i = 0; i < j->n_sizes; i++) largest = j->sizes[i] > largest ? j->sizes[i] : largest;
    float *data = NULL;
    double *times = malloc(MOST_REPEATS * sizeof *times);
    if (!times || posix_memalign((void **)&data, 64, (size_t)largest)) {
        free(times);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %lld bytes", (long long)largest);
    }
    strata_status status = STRATA_OK;
    for (int i = 0; i < j->n_sizes && !status; i++) status = measure(j, comm, j->sizes[i], data, times, err);
    free(times);
    free(data);
    return status;
}

static int run_rank(const job *j, int rank) {
    const strata_communicator_options opts = {.rank = rank,
                                              .world = j->world,
                                              .store = j->store,
                                              .transport = j->transport,
                                              .algorithm = j->algorithm,
                                              .secret = j->secret,
                                              .secret_bytes = sizeof j->secret};
    strata_communicator *comm = NULL;
    strata_error err = {0};
    strata_status status = strata_communicator_create(&opts, &comm, &err);
    if (!status) status = measure_all(j, comm, &err);
    strata_communicator_destroy(comm);
    if (!status) return EXIT_OK;
    /* all ranks fail with the same error: one of them reports it */
    return rank ? EXIT_INTERNAL : report(FAILING_RUN, status, &err);
}

/* Runs this process as a rank of a job whose other ranks were started separately. */
static int run_worker(job *j, const strata_cluster_spec *spec) {
    strata_communicator *comm = NULL;
    strata_error err = {0};
    if (j->options->peer || j->options->tune)
        return usage_error("bench allreduce: --peer and --tune are for processes of this machine; give --ranks too");
    const strata_communicator_options more = {
        .engine = j->options->strategy.engine, .transport = j->options->transport, .algorithm = j->algorithm};
    const int code = join_workers(&j->options->strategy, spec, &more, &comm);
    if (code) return code;
    j->transport = strata_communicator_transport(comm);
    j->results = -1;
    if (spec->rank == 0) print_header(j);
    const strata_status status = measure_all(j, comm, &err);
    strata_communicator_destroy(comm);
    return status ? report(FAILING_RUN, status, &err) : EXIT_OK;
}

/* ---- all ranks ---- */

typedef struct thread_rank {
    pthread_t thread;
    const job *job;
    strata_communicator *comm;
    strata_status status;
    strata_error err;
} thread_rank;

static void *run_thread(void *user) {
    thread_rank *r = user;
    r->status = measure_all(r->job, r->comm, &r->err);
    strata_communicator_destroy(r->comm);
    return NULL;
}

static int run_threads(const job *j) {
    static thread_rank ranks[MOST_RANKS];
    strata_communicator *comms[MOST_RANKS];
    strata_error err = {0};
    const int world = j->world;
    const strata_communicator_options opts = {.algorithm = j->algorithm};
    strata_status status = strata_communicator_create_local(world, &opts, comms, &err);
    if (status) return report(FAILING_RUN, status, &err);
    for (int r = 0; r < world; r++) {
        ranks[r] = (thread_rank){.job = j, .comm = comms[r]};
        if (pthread_create(&ranks[r].thread, NULL, run_thread, &ranks[r])) {
            fprintf(stderr, "strata: no thread for rank %d\n", r);
            _exit(EXIT_INTERNAL);
        }
    }
    for (int r = 0; r < world; r++) pthread_join(ranks[r].thread, NULL);
    return ranks[0].status ? report(FAILING_RUN, ranks[0].status, &ranks[0].err) : EXIT_OK;
}

/* Forks the ranks. Returns how many were started. */
static int start_ranks(job *j, int pipe_in, pid_t *pids) {
    const bool threads = !strcmp(j->transport, "inproc");
    const int n = threads ? 1 : j->world;
    fflush(stdout);
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        if (pids[r] < 0) return r;
        if (pids[r]) continue;
        close(pipe_in);
        _exit(threads ? run_threads(j) : run_rank(j, r));
    }
    return n;
}

/* ---- peers ---- */

/* A Python program that measures in the same way as measure(). argv: ranks, sizes. */
static const char gloo_program[] =
    "import os, sys, tempfile, time\n"
    "world, sizes = int(sys.argv[1]), [int(s) for s in sys.argv[2:]]\n"
    "store = tempfile.mktemp()\n"
    "rank, pids = 0, []\n"
    "for r in range(1, world):\n"
    "    pid = os.fork()\n"
    "    if not pid:\n"
    "        rank = r\n"
    "        break\n"
    "    pids.append(pid)\n"
    "import torch, torch.distributed as d\n"
    "torch.set_num_threads(1)\n"
    "d.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=world)\n"
    "for size in sizes:\n"
    "    data = torch.zeros(size // 4)\n"
    "    times = []\n"
    "    for i in range(-3, max(5, min(500, (64 << 20) // size))):\n"
    "        d.barrier()\n"
    "        begin = time.perf_counter()\n"
    "        d.all_reduce(data)\n"
    "        slowest = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)\n"
    "        d.all_reduce(slowest, op=d.ReduceOp.MAX)\n"
    "        if i >= 0: times.append(slowest.item() * 1e6)\n"
    "    times.sort()\n"
    "    if not rank: print(f'{size} B median {times[len(times) // 2]:.1f} us min {times[0]:.1f} us', flush=True)\n"
    "d.destroy_process_group()\n"
    "if not rank:\n"
    "    for pid in pids: os.waitpid(pid, 0)\n";

/* Makes the command that runs this benchmark over the machine's MPI. Open MPI gets options that allow more ranks than cores,
 * and TCP if the sum uses TCP; MPICH needs none. */
static int mpi_command(const job *j, char texts[][24], const char **argv) {
    static char self[4096], sizes[MOST_SIZES * 24];
    size_t used = 0;
    int n = 0;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 1) return 0;
    for (int i = 0; i < j->n_sizes; i++)
        used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%lld", i ? "," : "", (long long)j->sizes[i]);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0); /* mpirun refuses root, also in a container, where that is the only user */
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    if (!strcmp(j->transport, "tcp")) setenv("OMPI_MCA_btl", "self,tcp", 0);
    snprintf(texts[MOST_SIZES], 24, "%d", j->world);
    const char *const words[] = {"mpirun",   "-n",  texts[MOST_SIZES], self,      "bench", "allreduce",
                                 "--engine", "mpi", "--json",          "--sizes", sizes};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) argv[n++] = words[i];
    return n;
}

/* Makes the arguments of the peer's command, which end with NULL. Returns false if there is no such peer. */
static bool peer_command(const job *j, char texts[][24], const char **argv) {
    int n = 0;
    if (!strcmp(j->options->peer, "mpi") && !getenv("STRATA_BENCH_MPI")) {
        n = mpi_command(j, texts, argv);
        argv[n] = NULL;
        return n > 0;
    }
    if (!strcmp(j->options->peer, "gloo")) {
        const char *python = getenv("STRATA_BENCH_PYTHON");
        argv[n++] = python ? python : "python3";
        argv[n++] = "-c";
        argv[n++] = gloo_program;
        snprintf(texts[MOST_SIZES], 24, "%d", j->world);
        argv[n++] = texts[MOST_SIZES];
    } else if (!strcmp(j->options->peer, "mpi")) {
        argv[n++] = "sh";
        argv[n++] = "-c";
        argv[n++] = "exec $STRATA_BENCH_MPI \"$@\"";
        argv[n++] = "sh";
    } else {
        return false;
    }
    for (int i = 0; i < j->n_sizes; i++) {
        snprintf(texts[i], 24, "%lld", (long long)j->sizes[i]);
        argv[n++] = texts[i];
    }
    argv[n] = NULL;
    return true;
}

/* Reads "4096 B median 9.1 us min 8.4 us", with any text before it, or the JSON of this command. */
static bool read_peer_line(const char *line, measured *out) {
    long long bytes = 0;
    *out = (measured){0};
    const char *at = strstr(line, " B "), *from = at;
    if (at) {
        while (from > line && from[-1] != ' ') from--;
        out->bytes = atoll(from);
        return sscanf(at, " B median %lf us min %lf us", &out->median_us, &out->min_us) == 2;
    }
    const int n = sscanf(line, "{\"bytes\":%lld,\"median_us\":%lf,\"min_us\":%lf", &bytes, &out->median_us, &out->min_us);
    out->bytes = bytes;
    return n == 3;
}

/* Runs the peer. peer[i]: its result for sizes[i]; 0: it reported none. */
static int run_peer(const job *j, measured *peer) {
    static char texts[MOST_SIZES + 1][24];
    const char *argv[MOST_SIZES + 16];
    int ends[2];
    if (!peer_command(j, texts, argv)) return usage_error("--peer is \"%s\"; it must be gloo or mpi", j->options->peer);
    if (pipe(ends)) return usage_error("no pipe: %s", strerror(errno));
    const pid_t pid = fork();
    if (!pid) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        fprintf(stderr, "strata: %s: %s\n", argv[0], strerror(errno));
        _exit(EXIT_USAGE);
    }
    close(ends[1]);
    FILE *lines = fdopen(ends[0], "r");
    char line[256];
    while (lines && fgets(line, sizeof line, lines)) {
        measured m;
        if (!read_peer_line(line, &m)) continue;
        for (int i = 0; i < j->n_sizes; i++)
            if (j->sizes[i] == m.bytes) peer[i] = m;
    }
    if (lines) fclose(lines);
    int status = 0;
    if (pid > 0) waitpid(pid, &status, 0);
    if (pid < 0 || status)
        return usage_error("the peer %s did not run to its end; it needs %s", j->options->peer,
                           strcmp(j->options->peer, "mpi")
                               ? "a python3 with torch (pip install torch), named in $STRATA_BENCH_PYTHON"
                               : "mpirun (Debian: openmpi-bin)");
    return EXIT_OK;
}

/* ---- the command ---- */

int bench_read_sizes(const char *text, int64_t *sizes, int most, int *out_n) {
    for (const char *at = text;;) {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at || size < 4 || size % 4 || size > (4LL << 30) || *out_n == most || (*end && *end != ','))
            return usage_error("--sizes is \"%s\"; for allreduce it must be bytes, multiples of 4, with commas between them",
                               text);
        sizes[(*out_n)++] = size;
        if (!*end) return EXIT_OK;
        at = end + 1;
    }
}

/* Runs the ranks. out: receives the results; NULL: they are printed. */
static int run_job(job *j, const measured *peer, measured *out) {
    pid_t pids[MOST_RANKS];
    int ends[2], code = EXIT_OK, i = 0;
    measured m;
    if (pipe(ends)) return usage_error("no pipe: %s", strerror(errno));
    j->results = ends[1];
    const int n = start_ranks(j, ends[0], pids);
    close(ends[1]);
    if (!out) print_header(j);
    for (; read(ends[0], &m, sizeof m) == sizeof m; i++) {
        if (out)
            out[i] = m;
        else
            print_one(j, &m, &peer[i]);
    }
    close(ends[0]);
    for (int r = 0; r < n; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        const int ended = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_INTERNAL;
        if (!code) code = ended;
    }
    return code;
}

/* ---- tuning ---- */

/* Stores the fastest algorithm for each size. Between two sizes the choice changes at their geometric mean. */
static int save_best(const job *j, const measured *best) {
    strata_algorithm_choice choices[MOST_SIZES];
    strata_error err = {0};
    int n = 0;
    for (int i = 0; i < j->n_sizes; i++) {
        const bool last = i == j->n_sizes - 1;
        const uint64_t up_to = last ? UINT64_MAX : (uint64_t)sqrt((double)j->sizes[i] * (double)j->sizes[i + 1]);
        if (n && !strcmp(choices[n - 1].algorithm, best[i].algorithm)) n--;
        choices[n++] = (strata_algorithm_choice){j->transport, j->world, up_to, best[i].algorithm};
    }
    strata_status status = strata_algorithm_table_save(NULL, choices, n, &err);
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

static int tune(job *j) {
    static measured all[8][MOST_SIZES];
    measured best[MOST_SIZES] = {0};
    int code = EXIT_OK;
    for (int i = 1; i < j->n_sizes; i++)
        if (j->sizes[i] <= j->sizes[i - 1]) return usage_error("--tune takes --sizes in ascending order");
    if (!strcmp(j->transport, "inproc") || j->world < 2 || j->options->algorithm || j->options->peer || j->wire)
        return usage_error("--tune is for tcp and shm and 2 ranks or more, without --algorithm, --peer and --compress");
    for (int a = 0; strata_algorithm_names[a] && a < 8 && !code; a++) {
        j->algorithm = strata_algorithm_names[a];
        code = run_job(j, NULL, all[a]);
        for (int i = 0; i < j->n_sizes && !code; i++)
            if (!a || all[a][i].median_us < best[i].median_us) best[i] = all[a][i];
    }
    if (!code) code = save_best(j, best);
    const measured none = {0};
    if (!code && !j->options->json)
        printf("the best of all algorithms for %d ranks over %s, taken from now on; us\n%12s %12s %12s  %-16s %12s\n", j->world,
               j->transport, "bytes", "median", "min", "algorithm", "bytes sent");
    for (int i = 0; i < j->n_sizes && !code; i++) print_one(j, &best[i], &none);
    return code;
}

/* The first of strata_transport_names is "auto". Threads of this process are ranks of "inproc". */
static int check_transport(const char *transport) {
    char names[128] = "";
    bool known = !strcmp(transport, "inproc");
    for (int i = 1; strata_transport_names[i]; i++) {
        known |= !strcmp(transport, strata_transport_names[i]);
        if (i > 1) strncat(names, ", ", sizeof names - strlen(names) - 1);
        strncat(names, strata_transport_names[i], sizeof names - strlen(names) - 1);
    }
    return known ? EXIT_OK : usage_error("--transport is \"%s\"; it must be %s or inproc", transport, names);
}

static int run_here(job *j) {
    measured peer[MOST_SIZES] = {0};
    if (check_transport(j->transport)) return EXIT_USAGE;
    const int code = j->options->peer ? run_peer(j, peer) : EXIT_OK;
    if (code) return code;
    if (getrandom(j->secret, sizeof j->secret, 0) != sizeof j->secret)
        return usage_error("no random numbers: %s", strerror(errno));
    int held;
    const int port = hold_port(&held); /* held until rank 0 listens at the port */
    if (port < 0) usage_error("bench allreduce: there is no free port: %s", strerror(errno));
    snprintf(j->store, sizeof j->store, "127.0.0.1:%d", port);
    const int ended = port < 0 ? EXIT_DATA : j->options->tune ? tune(j) : run_job(j, peer, NULL);
    if (held >= 0) close(held);
    return ended;
}

int bench_allreduce(const bench_options *options) {
    job j = {.options = options, .algorithm = options->algorithm, .world = options->ranks ? (int)options->ranks : 2};
    strata_cluster_spec spec = {0};
    int code = read_compress(options->compress, &j.wire);
    if (!code)
        code = bench_read_sizes(options->sizes  ? options->sizes
                                : options->tune ? tuned_sizes
                                                : default_sizes,
                                j.sizes, MOST_SIZES, &j.n_sizes);
    if (!code && !options->ranks) code = resolve_workers(&options->strategy, &spec);
    if (!code && spec.world_size > 1) {
        j.world = spec.world_size;
        code = run_worker(&j, &spec);
    } else if (!code) {
        j.transport = options->transport ? options->transport : "tcp";
        code = run_here(&j);
    }
    strata_cluster_spec_finish(&spec);
    return code;
}
