/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes that `strata launch` manages: workers on this host, or one `strata launch --agent` for each remote host. */
#ifndef STRATA_SAMPLES_LAUNCH_H
#define STRATA_SAMPLES_LAUNCH_H

#include <sched.h>

#include "cli.h"

/* Lines that are copied from a pipe of a child to our stdout or stderr. */
typedef struct line_stream {
    /* -1 when the pipe is at its end. */
    int fd;
    /* Our file descriptor that the lines go to: 1 or 2. */
    int target;
    /* The rank that each line gets in front, as "[3] "; -1: lines stay as they are. */
    int rank;
    char *bytes;
    size_t n, capacity;
} line_stream;

typedef struct child {
    const char *const *argv; /* ends with NULL; borrowed */
    const char *const
        *environment;       /* NAME=value that the child has besides ours, ends with NULL; NAME alone is taken away; borrowed */
    const cpu_set_t *cores; /* NULL: ours */
    const char *name;       /* "worker 2", "host b": for messages */
    /* Its lines get "[rank] " in front; -1: they are an agent's and have it already. */
    int rank;
    /* A program reads stdout: rank 0's and an evaluator's lines stay as they are, those of other ranks go to stderr. */
    bool json;
    /* Its failure does not end the others; it is started again, as often as run_children allows. */
    bool replaceable;
    /* An evaluator: replaceable, also when all others have ended. Its stdout is for a program as rank 0's is. Its failure is
     * the exit code where nothing else failed. */
    bool evaluates;
    /* what it reads from stdin at its start, which then stays open for words like "TERM"; NULL: no stdin. Moves on as it is
     * taken */
    const char *input;
    /* While it runs. */
    int pid, input_fd, code; /* code: its exit code, 128 + the signal that ended it */
    bool running;
    line_stream lines[2];
} child;

/* Runs all children to their end. When the first child fails, the others are ended by SIGTERM, and after grace_s seconds by
 * SIGKILL. Ctrl-C and SIGTERM are forwarded; a second one kills. With `obeys_stdin` the words "INT" and "TERM" from our stdin
 * do the same, and its end means TERM.
 * A child that is replaceable does not end the others; when a signal or a lost peer ended it, it is started again, all of them
 * together at most `restarts` times.
 * No process outlives the call: processes that a child leaves in its process group are killed with it, and the children end
 * when this process ends.
 * Returns the exit code: 0, the first failing child's, 130 or 128 + signal when we were told to stop (*out_stopped then). */
int run_children(child *children, int n, double grace_s, int64_t restarts, bool obeys_stdin, bool *out_stopped);

/* ---- a job ---- */

enum { MAX_WORKERS = 4096, SECRET_BYTES = 32, SECRET_TEXT = 2 * SECRET_BYTES + 1 };

typedef struct launch_options {
    const char *hosts, *ssh, *strata;
    int64_t n, restarts, port;
    /* Of parameter_server: workers beside the chief, and servers; 0: another job. With `evaluator` one more task. */
    int64_t workers, ps;
    double grace_s;
    bool no_bind, agent, evaluator;
} launch_options;

/* A job, as the workers of one host need it. */
typedef struct job {
    const launch_options *options;
    const char **command;       /* ends with NULL */
    char **addresses;           /* of all ranks */
    int *held;                  /* [n_ranks] sockets that keep the ports of a job on this host; -1: none; NULL: none at all */
    int n_ranks, first, n_here; /* ranks [first, first + n_here) are this host's */
    int restart;                /* how often it was started again */
    char secret[SECRET_TEXT];
} job;

/* Choosing addresses fills j->addresses[0..n_ranks); all of these return exit codes, after a message where it is not
 * EXIT_OK. */
int no_memory(void);
int choose_local_addresses(job *j);               /* free ports, which are kept (held), or --port and those behind it */
int run_workers(const job *j, bool *out_stopped); /* ranks [first, first + n_here), on this host */

typedef struct host {
    char *name; /* as ssh takes it: user@host */
    int n, first;
    char *script, *command, *input, *label; /* while it runs */
    const char *argv[7];
} host;

/* "user@a:2,b": as many hosts as words, to be freed by free_hosts, on failure too. */
int read_hosts(const char *list, host **out_hosts, int *out_n);
void free_hosts(host *hosts, int n);
int choose_remote_addresses(job *j, const host *hosts, int n_hosts);
int run_hosts(const job *j, host *hosts, int n_hosts, bool *out_stopped);
/* The agent's job, from stdin's first line. */
int read_job(job *j);

#endif
