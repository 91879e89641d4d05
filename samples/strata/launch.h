/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes that `strata launch` manages: workers on this host, or one `strata launch --agent` for each remote host. */
#ifndef STRATA_SAMPLES_LAUNCH_H
#define STRATA_SAMPLES_LAUNCH_H

#include <sched.h>

#include "cli.h"

/* Lines that are copied from a pipe of a child to our stdout or stderr. */
typedef struct line_stream {
    /* The pipe; -1: its end was reached. */
    int fd;
    /* Our file descriptor that the lines go to: 1 or 2. */
    int target;
    /* Each line gets this rank as a prefix, for example "[3] "; -1: lines are not changed. */
    int rank;
    char *bytes;
    size_t n, capacity;
} line_stream;

typedef struct child {
    const char *const *argv;        /* ends with NULL; borrowed */
    const char *const *environment; /* NAME=value adds to our environment, NAME removes a variable; ends with NULL; borrowed */
    const cpu_set_t *cores;         /* NULL: ours */
    const char *name;               /* for messages: "worker 2", "host b" */
    /* The prefix "[rank] " of its lines; -1: an agent's lines have one already. */
    int rank;
    /* A program reads our stdout: the lines of rank 0 and of an evaluator have no prefix, and those of other ranks go to
     * stderr. */
    bool json;
    /* Its failure does not end the others. It is started again, as often as run_children allows. */
    bool replaceable;
    /* It is the evaluator: replaceable, also after all others have ended. Its stdout is treated as that of rank 0. Its failure
     * is the exit code if nothing else failed. */
    bool evaluates;
    /* The text that it gets on stdin at its start; stdin then stays open for words like "TERM". NULL: it has no stdin. The
     * pointer advances as the child reads. */
    const char *input;
    /* Set while it runs. */
    int pid, input_fd, code; /* code: its exit code, or 128 + the signal that ended it */
    bool running;
    /* It was ended because nobody needs it any more, so its exit code does not count. */
    bool straggles;
    line_stream lines[2];
} child;

/* How long run_children waits, and for what. */
typedef struct launch_patience {
    /* Seconds between SIGTERM and SIGKILL. Also for how long all children that still run must be stopped (SIGSTOP) until they
     * are killed, if what they do is over. */
    double grace_s;
    /* Seconds that replaceable children may run after the last other child has ended with exit code 0; not for an evaluator. */
    double linger_s;
    /* How often replaceable children are started again, all of them together. */
    int64_t restarts;
    /* A file that gets the line "NAME CODE" for each replaceable child that ended and is not started again; -1: none. */
    int ended_fd;
} launch_patience;

/* Runs all children to their end. When the first child fails, the others are ended by SIGTERM, and after grace_s seconds by
 * SIGKILL. Ctrl-C and SIGTERM are forwarded; a second one kills. With `obeys_stdin` the words "INT" and "TERM" from our stdin
 * have the same effect, and its end means TERM. The end of a replaceable child does not end the others. If a signal or a lost
 * peer ended it, it is started again; all of them together at most `restarts` times. A child that is
 * stopped is killed when all that it could work with have ended. No process outlives the call: processes
 * that a child leaves in its process group are killed with it, and the children end when this process ends. Returns the exit
 * code: 0, that of the first child that failed, or 130 or 128 + signal if this process was told to stop, in which case
 * *out_stopped is true. */
int run_children(child *children, int n, const launch_patience *limits, bool obeys_stdin, bool *out_stopped);

/* ---- a job ---- */

enum { MAX_WORKERS = 4096, SECRET_BYTES = 32, SECRET_TEXT = 2 * SECRET_BYTES + 1 };

typedef struct launch_options {
    const char *hosts, *ssh, *strata;
    int64_t n, restarts, port;
    /* For parameter_server: the number of workers besides the chief, and of servers; 0: it is another job. `evaluator`: the job
     * also has an evaluator. */
    int64_t workers, ps;
    double grace_s, linger_s;
    bool no_bind, agent, evaluator;
} launch_options;

/* A job, and the part of it that runs on this host. */
typedef struct job {
    const launch_options *options;
    const char **command;       /* ends with NULL */
    char **addresses;           /* of all ranks */
    int *held;                  /* [n_ranks] sockets that reserve the ports of a job on this host, -1: none; or NULL */
    int n_ranks, first, n_here; /* ranks [first, first + n_here) run on this host */
    int restart;                /* how often the job was started again */
    char secret[SECRET_TEXT];
} job;

/* These functions return exit codes, after a message if it is not EXIT_OK. choose_local_addresses sets
 * j->addresses[0..n_ranks). */
int no_memory(void);
int choose_local_addresses(job *j);               /* free ports, which are reserved (held), or those from --port on */
int run_workers(const job *j, bool *out_stopped); /* ranks [first, first + n_here), on this host */

typedef struct host {
    char *name; /* the argument of ssh: user@host */
    int n, first;
    char *script, *command, *input, *label; /* while it runs */
    const char *argv[7];
} host;

/* Reads a list of hosts, for example "user@a:2,b". free_hosts frees them, also after a failure. */
int read_hosts(const char *list, host **out_hosts, int *out_n);
void free_hosts(host *hosts, int n);
int choose_remote_addresses(job *j, const host *hosts, int n_hosts);
int run_hosts(const job *j, host *hosts, int n_hosts, bool *out_stopped);
/* Reads the job of an agent from the first line of stdin. */
int read_job(job *j);

#endif
