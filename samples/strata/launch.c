/* SPDX-License-Identifier: Apache-2.0
 *
 * strata launch: starts the workers of a job, on this host or on several over ssh. It passes to each worker, in the
 * environment, the variables that the resolvers (cluster/resolver/) read: TF_CONFIG with all addresses and the worker's index,
 * its position on the host, and the job's secret. On remote hosts `strata launch --agent` starts the workers; it reads the
 * description of the job from stdin, through ssh, and ends when stdin is closed. */
#define _GNU_SOURCE /* cpu_set_t */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const option_row rows[] = {
    {"n", "N", "the number of workers on this host (1)", OPTION_INT, offsetof(launch_options, n), 1, MAX_WORKERS},
    {"workers", "N", "with --ps: the number of workers besides the chief, for --strategy parameter_server", OPTION_INT,
     offsetof(launch_options, workers), 1, 1024},
    {"ps", "N", "with --workers: the number of parameter servers", OPTION_INT, offsetof(launch_options, ps), 1, 1024},
    {"evaluator", NULL,
     "with --workers and --ps: also start a task that evaluates each new --checkpoint while the others train", OPTION_FLAG,
     offsetof(launch_options, evaluator), 0, 0},
    {"hosts", "A:2,B:2", "start workers on these hosts over ssh, :N on each; without :N one", OPTION_TEXT,
     offsetof(launch_options, hosts), 0, 0},
    {"restarts", "K", "restart all workers at most K times after a failure that a restart may repair (0)", OPTION_INT,
     offsetof(launch_options, restarts), 0, 1e6},
    {"grace", "S", "seconds between SIGTERM and SIGKILL (10)", OPTION_NUMBER, offsetof(launch_options, grace_s), 0, 1e5},
    {"linger", "S", "seconds that workers and servers may run after the chief has ended (300)", OPTION_NUMBER,
     offsetof(launch_options, linger_s), 0, 1e9},
    {"port", "P", "worker k of a host listens on port P + k (free ports; with --hosts random ones from 20000 to 29999)",
     OPTION_INT, offsetof(launch_options, port), 1, 65535},
    {"no-bind", NULL, "let every worker use all cores", OPTION_FLAG, offsetof(launch_options, no_bind), 0, 0},
    {"ssh", "COMMAND", "the command that connects to a host ($STRATA_SSH, else ssh)", OPTION_TEXT,
     offsetof(launch_options, ssh), 0, 0},
    {"strata", "PATH", "the path of this command on the other hosts (the same as here)", OPTION_TEXT,
     offsetof(launch_options, strata), 0, 0},
    {"agent", NULL, "used by launch itself on each of --hosts; reads the job from stdin", OPTION_FLAG,
     offsetof(launch_options, agent), 0, 0},
    {0}};

int no_memory(void) {
    return report(FAILING_RUN, STRATA_OUT_OF_MEMORY, &(strata_error){.message = "launch: not enough memory"});
}

static void free_addresses(job *j) {
    for (int i = 0; j->addresses && i < j->n_ranks; i++) free(j->addresses[i]);
    for (int i = 0; j->held && i < j->n_ranks; i++)
        if (j->held[i] >= 0) close(j->held[i]);
    free(j->addresses);
    free(j->held);
    j->addresses = NULL;
    j->held = NULL;
}

/* ---- the command ---- */

static int make_secret(char *out_text) {
    unsigned char bytes[SECRET_BYTES];
    const char *given = getenv("STRATA_SECRET");
    if (given && *given) {
        if (strlen(given) < SECRET_TEXT && !strpbrk(given, " \n")) return strcpy(out_text, given), EXIT_OK;
        return usage_error("launch: STRATA_SECRET must have at most %d characters and no blanks", SECRET_TEXT - 1);
    }
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return report(FAILING_RUN, STRATA_UNAVAILABLE, &(strata_error){.message = "launch: the system has no random bytes"});
    for (int i = 0; i < SECRET_BYTES; i++) snprintf(out_text + 2 * i, 3, "%02x", bytes[i]);
    return EXIT_OK;
}

/* Whether a restart may help: the exit codes 160 to 163 mean that it may, and an end by a signal (128 + n; 255 for ssh) may be
 * a failure of the machine. Ctrl-C is not a failure. */
static bool may_restart_help(int code) {
    return code > 128 && code != EXIT_INTERRUPTED;
}

static int run_job(job *j, host *hosts, int n_hosts) {
    for (;; j->restart++) {
        bool stopped = false;
        int code = make_secret(j->secret);
        j->addresses = calloc((size_t)j->n_ranks, sizeof *j->addresses);
        if (!code && !j->addresses) code = no_memory();
        if (!code) code = hosts ? choose_remote_addresses(j, hosts, n_hosts) : choose_local_addresses(j);
        if (!code) code = hosts ? run_hosts(j, hosts, n_hosts, &stopped) : run_workers(j, &stopped);
        free_addresses(j);
        if (!code || stopped || j->options->ps || !may_restart_help(code) || j->restart >= j->options->restarts) return code;
        fprintf(stderr, "strata: restart %d of %lld\n", j->restart + 1, (long long)j->options->restarts);
    }
}

static int run_agent(job *j) {
    bool stopped = false;
    int code = read_job(j);
    if (!code) code = run_workers(j, &stopped);
    free_addresses(j);
    return code;
}

/* Checks that there are enough ports from --port on. The check assumes that all workers are on one host. */
static int check_ports(const job *j) {
    if (j->options->port + j->n_ranks - 1 <= 65535) return EXIT_OK;
    return usage_error("launch: --port is %lld; with %d workers the last port would be beyond 65535",
                       (long long)j->options->port, j->n_ranks);
}

static int run_on_hosts(job *j) {
    host *hosts = NULL;
    int n_hosts = 0, code = read_hosts(j->options->hosts, &hosts, &n_hosts);
    j->n_ranks = n_hosts ? hosts[n_hosts - 1].first + hosts[n_hosts - 1].n : 0;
    if (!code) code = check_ports(j);
    if (!code) code = run_job(j, hosts, n_hosts);
    free_hosts(hosts, n_hosts);
    return code;
}

static int run(const command *command, int argc, char **argv) {
    launch_options options = {.grace_s = 10, .linger_s = 300};
    int n_words = 0;
    const char **words = calloc((size_t)argc + 1, sizeof *words); /* ends with NULL */
    if (!words) return no_memory();
    int code = read_options(command, argc, argv, &options, words, &n_words);
    job j = {.options = &options, .command = words};
    if (!code && !options.workers != !options.ps)
        code = usage_error("launch: --workers and --ps go together: a chief, its workers and parameter servers");
    if (!code && options.evaluator && !options.ps)
        code = usage_error("launch: --evaluator goes with --workers and --ps, whose chief writes what it evaluates");
    if (!code && options.ps && (options.n || options.hosts || options.agent))
        code = usage_error("launch: --workers and --ps start their tasks on this host; leave out -n and --hosts");
    if (!code && options.hosts && options.n) code = usage_error("launch: give -n or --hosts, not both");
    if (!code && options.hosts) {
        code = run_on_hosts(&j);
    } else if (!code) {
        const int served = 1 + (int)(options.workers + options.ps) + options.evaluator;
        j.n_ranks = j.n_here = options.ps ? served : options.n ? (int)options.n : 1;
        code = options.agent ? run_agent(&j) : check_ports(&j);
        if (!code && !options.agent) code = run_job(&j, NULL, 0);
    }
    free(words);
    return code < 0 ? EXIT_OK : code;
}

const command command_launch = {
    .name = "launch",
    .arguments = "-- COMMAND...",
    .summary = "start the workers of a job, here or on several hosts",
    .details =
        "Each worker gets the variables that --strategy multi_worker_mirrored reads, which is what train takes then if no\n"
        "strategy is named (with --ps: parameter_server): TF_CONFIG, STRATA_LOCAL_RANK,\n"
        "STRATA_LOCAL_SIZE, STRATA_SECRET and STRATA_RESTART (how often the job was started again). Its lines are printed\n"
        "with its rank, and it gets its share of the cores and accelerators (if all workers are on one host and each has one\n"
        "core, also PoCL's driver without threads, unless POCL_DEVICES is set). The first worker that fails ends the others,\n"
        "and its exit code is that of launch. --restarts repeats the job after the exit codes 160 to 163 and after a signal;\n"
        "with train's --checkpoint it continues after its last complete epoch.\n"
        "\n"
        "With --workers and --ps a worker or server that fails does not end the others, and --restarts starts it again. So "
        "does\n"
        "an --evaluator, whose exit code is that of launch if no other task failed. With --json\n"
        "stdout has only the lines of the chief and of the evaluator. Workers and servers that still run --linger seconds "
        "after\n"
        "the chief has ended are ended.\n"
        "\n"
        "A task that is stopped (SIGSTOP) is killed --grace seconds after the tasks have ended that it works with.\n"
        "  strata launch --workers 3 --ps 2 -- strata train mnist --data DIR --strategy parameter_server\n"
        "  strata launch -n 4 -- strata train mnist --data DIR\n"
        "  strata launch --hosts a:2,me@b:2 --restarts 3 -- strata train mnist --data DIR\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = INT32_MAX,
    .run = run,
};
