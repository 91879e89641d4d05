/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the engine mpi in jobs of three ranks, which this program starts with the mpirun of Open MPI and with that of
 * MPICH. Every collective must give the bits of the built-in transports, different calls must be reported on all ranks, and
 * communicators can be split. An MPI that is not installed is skipped; without any the program exits with 77. It does not
 * run under sanitizers, which would report errors of MPI itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "strata/strata.h"

enum { RANKS = 3, MOST = 400000 };
#define TOLD   "told that calls differ"
#define DIFFER "STRATA_TEST_MPI_DIFFER" /* the variable of a job whose ranks make calls that differ */

static strata_error err;
static int failures, rank;
#define CHECK(condition, ...)                                      \
    do {                                                           \
        if (!(condition)) {                                        \
            failures++;                                            \
            fprintf(stderr, "rank %d, line %d: ", rank, __LINE__); \
            fprintf(stderr, __VA_ARGS__);                          \
            fprintf(stderr, "\n");                                 \
        }                                                          \
    } while (0)

/* The end of a rank whose call differs from another's. It first sleeps until the other ranks have reported the error, because
 * mpirun ends all ranks when one exits. */
static void end(strata_status status) {
    if (status == STRATA_INVALID && strstr(err.message, "of 10 f32") && strstr(err.message, "of 11 f32"))
        printf(TOLD "\n");
    else
        fprintf(stderr, "rank %d: %d, %s\n", rank, (int)status, err.message);
    fflush(stdout);
    sleep(4); /* a rank waits up to 3 s for the verdict of rank 0 */
    _exit(0);
}

static strata_communicator *join(const char *engine, const char *offset) {
    strata_cluster_spec spec = {0};
    strata_communicator *comm = NULL;
    char store[300];
    if (strata_cluster_spec_resolve(NULL, &spec, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    rank = spec.rank;
    /* The same ranks form two jobs, one after the other, each with its own port. */
    const int port = atoi(strrchr(spec.rendezvous, ':') + 1);
    snprintf(store, sizeof store, "127.0.0.1:%d", port - (*offset - '0'));
    const strata_communicator_options opts = {.rank = spec.rank, .world = spec.world_size, .store = store, .engine = engine};
    const strata_status status = strata_communicator_create(&opts, &comm, &err);
    /* Other ranks may be told of their first call before this one has a communicator, which then is of no use either. */
    if (status && getenv(DIFFER)) end(status);
    CHECK(!status, "%s", err.message);
    strata_cluster_spec_finish(&spec);
    if (status) exit(1);
    return comm;
}

/* Fills floats with fractions and integers with small numbers. */
static void fill(strata_dtype dtype, void *data, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double value = (double)((i * 7919 + (size_t)rank * 104729) % 2001) / 300 - 3;
        if (dtype == STRATA_DTYPE_F64)
            ((double *)data)[i] = value;
        else
            strata_element_set(dtype, data, (int64_t)i, strata_dtype_is_float(dtype) ? value : (double)(i % 4));
    }
}

/* Runs a collective with both engines and compares the bits of everything that it may write. */
static void compare(strata_communicator *const comms[2], strata_collective what, const char *name) {
    static double in[MOST], outs[2][MOST];
    for (int e = 0; e < 2; e++) {
        memset(outs[e], 0, sizeof outs[e]);
        fill(what.dtype, in, what.count * RANKS);
        fill(what.dtype, outs[e], what.count * RANKS);
        what.in = what.kind == STRATA_ALL_REDUCE || what.kind == STRATA_REDUCE || what.kind == STRATA_BROADCAST ? NULL : in;
        what.out = outs[e];
        const strata_status status = strata_communicator_run(comms[e], &what, &err);
        CHECK(!status, "%s of %zu: %s", name, what.count, err.message);
        if (status) exit(1);
    }
    CHECK(!memcmp(outs[0], outs[1], sizeof outs[0]), "%s of %zu, dtype %d, reducer %d: other bits", name, what.count,
          (int)what.dtype, (int)what.reducer);
}

static void compare_all(strata_communicator *const comms[2]) {
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F64, STRATA_DTYPE_F16, STRATA_DTYPE_BF16,
                                          STRATA_DTYPE_I32, STRATA_DTYPE_I64, STRATA_DTYPE_U8};
    static const size_t counts[] = {0, 1, 2, 5, 4096, 4097, 100003};
    static const char *const names[] = {"all_reduce",     "reduce",     "broadcast", "all_gather",
                                        "reduce_scatter", "all_to_all", "gather",    "scatter"};
    static const size_t uneven[RANKS] = {3, 0, 1000};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int kind = STRATA_ALL_REDUCE; kind <= STRATA_SCATTER; kind++)
                compare(
                    comms,
                    (strata_collective){
                        .kind = (strata_collective_kind)kind, .count = counts[c], .dtype = dtypes[d], .root = (int)(c % RANKS)},
                    names[kind]);
            for (int op = STRATA_REDUCER_MEAN; op < STRATA_REDUCER_COUNT; op++)
                if (op != STRATA_REDUCER_MEAN || d < 4)
                    compare(
                        comms,
                        (strata_collective){
                            .kind = STRATA_ALL_REDUCE, .count = counts[c], .dtype = dtypes[d], .reducer = (strata_reducer)op},
                        "all_reduce");
        }
    const strata_collective_kind counted[] = {STRATA_ALL_GATHER, STRATA_REDUCE_SCATTER, STRATA_GATHER, STRATA_SCATTER};
    for (int i = 0; i < 4; i++)
        compare(comms, (strata_collective){.kind = counted[i], .count = uneven[rank], .counts = uneven, .root = 1},
                names[counted[i]]);
    compare(comms, (strata_collective){.kind = STRATA_ALL_REDUCE, .count = 5000, .wire = STRATA_DTYPE_BF16}, "compressed");
}

static void pass_on_and_split(strata_communicator *comm) {
    float value = (float)rank;
    strata_communicator *part = NULL;
    const int next = (rank + 1) % RANKS, before = (rank + RANKS - 1) % RANKS;
    float got = -1;
    CHECK(!strata_communicator_send(comm, &value, 1, STRATA_DTYPE_F32, next, &err), "%s", err.message);
    CHECK(!strata_communicator_recv(comm, &got, 1, STRATA_DTYPE_F32, before, &err), "%s", err.message);
    CHECK(got == (float)before, "%g came", (double)got);
    CHECK(!strata_communicator_split(comm, rank == 1 ? -1 : 0, -rank, &part, &err), "%s", err.message);
    if (!part) return;
    CHECK(strata_communicator_rank(part) == (rank == 0) && strata_communicator_world(part) == 2, "the split");
    CHECK(!strata_communicator_all_reduce(part, &value, 1, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err), "%s", err.message);
    CHECK(value == 2, "the sum of 0 and 2 is %g", (double)value);
    strata_communicator_destroy(part);
}

static void differ(strata_communicator *comm) {
    float data[11] = {0};
    end(strata_communicator_all_reduce(comm, data, rank == 1 ? 11 : 10, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
}

static bool sanitized(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return false;
}

typedef struct launcher {
    const char *mpi, *package;
    const char *command; /* name of the mpirun on Debian; elsewhere it is called mpirun */
    const char *says;    /* a regular expression that matches the output of mpirun --version */
    const char *options;
} launcher;

static const launcher launchers[] = {
    {"Open MPI", "openmpi-bin", "mpirun.openmpi", "Open MPI", "--oversubscribe --bind-to none"},
    {"MPICH", "mpich", "mpirun.mpich", "HYDRA\\|Intel", ""},
};

/* Returns the name of the mpirun, or NULL when it is not installed. */
static const char *find_mpirun(const launcher *from) {
    const char *const names[] = {from->command, "mpirun"};
    char command[256];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%s --version 2>/dev/null | grep -q '%s'", names[i], from->says);
        if (!system(command)) return names[i];
    }
    return NULL;
}

/* Runs a job of this program. Returns how often it printed TOLD. *out_code is its exit code. */
static int told_of_job(const char *mpirun, const char *options, const char *program, const char *how, int *out_code) {
    char command[1024], line[256];
    int n = 0;
    snprintf(command, sizeof command, "%s %s %s -n %d '%s' 2>&1", how, mpirun, options, RANKS, program);
    FILE *out = popen(command, "r");
    while (out && fgets(line, sizeof line, out)) {
        for (const char *at = line; (at = strstr(at, TOLD)); at++) n++; /* an mpirun may join lines of several ranks */
        if (!*how) fputs(line, stderr);
    }
    const int status = out ? pclose(out) : -1;
    *out_code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return n;
}

/* In the first job all calls must succeed. In the second one the calls differ, and every rank must report it before mpirun
 * ends it. */
static bool run_jobs(const char *mpirun, const launcher *from, const char *program) {
    int code, ignored;
    told_of_job(mpirun, from->options, program, "", &code);
    if (code) fprintf(stderr, "%s: the job's exit code is %d\n", from->mpi, code);
    if (code) return false;
    const int told = told_of_job(mpirun, from->options, program, DIFFER "=1", &ignored);
    if (told != RANKS) fprintf(stderr, "%s: %d of %d ranks were told that their calls differ\n", from->mpi, told, RANKS);
    return told == RANKS;
}

static int run_all(const char *program) {
    int there = 0, failed = 0;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *mpirun = find_mpirun(&launchers[i]);
        if (!mpirun) {
            printf("skipped: there is no mpirun of %s (Debian: %s)\n", launchers[i].mpi, launchers[i].package);
            continue;
        }
        there++;
        failed += !run_jobs(mpirun, &launchers[i], program);
    }
    return failed ? 1 : there ? 0 : 77;
}

int main(int argc, char **argv) {
    (void)argc;
    if (sanitized()) {
        printf("skipped: MPI under a sanitizer\n");
        return 77;
    }
    if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMI_SIZE")) return run_all(argv[0]);
    alarm(120);
    if (getenv(DIFFER)) differ(join("mpi", "0"));
    strata_communicator *const comms[2] = {join("mpi", "0"), join(NULL, "1")};
    CHECK(!strcmp(strata_communicator_transport(comms[0]), "mpi"), "transport %s", strata_communicator_transport(comms[0]));
    compare_all(comms);
    pass_on_and_split(comms[0]);
    strata_communicator_destroy(comms[1]);
    strata_communicator_destroy(comms[0]);
    return failures ? 1 : 0;
}
