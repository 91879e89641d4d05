/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the tasks of a cluster as processes of a test. A process that has threads should not fork. So a test first starts a
 * *fork server*, a process without threads, and later asks it to fork a process for each task. The fork server and all tasks
 * end with the test.
 *
 *     test_fork_server_open(&server, run_task)              before the test has threads
 *     test_fork_server_start(&server, 2, 0)                 a new process calls run_task(2, 0)
 *     kill(test_fork_server_pid(&server, 2), SIGKILL)
 *     test_fork_server_wait(&server, 2)                     waits until task 2 has ended */
#ifndef STRATA_TESTS_SUPPORT_FORK_SERVER_H
#define STRATA_TESTS_SUPPORT_FORK_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/support/patience.h"

enum {
    TEST_MOST_TASKS = 16,
    /* Results of test_fork_server_ended, besides 1 + the result of `run`. KILLED means by SIGKILL. */
    TEST_TASK_RUNS = 0,
    TEST_TASK_KILLED = -1,
    TEST_TASK_CRASHED = -2,
};

typedef struct test_fork_server {
    /* The process of the fork server. */
    pid_t pid;
    /* A pipe to the fork server. Each byte that is written to it starts a task. -1: the fork server is not open. */
    int orders;
    /* [TEST_MOST_TASKS] All processes share this memory. */
    struct test_fork_server_task {
        atomic_int pid, ended;
    } * tasks;
} test_fork_server;

/* Allocates memory that this process and all processes that it forks later share. It contains zeros. NULL: it failed. */
void *test_shared_memory(size_t bytes);

/* Starts the fork server. Each task will call `run`, which returns a status of 0 or more. `variant` is a number from 0 to 15
 * whose meaning the test chooses. */
bool test_fork_server_open(test_fork_server *fork_server, int (*run)(int task, int variant));
/* Ends the fork server and all its tasks. It does nothing for a fork server that is not open. */
void test_fork_server_close(test_fork_server *fork_server);
/* Starts a task, and returns when its process exists. */
bool test_fork_server_start(test_fork_server *fork_server, int task, int variant);
pid_t test_fork_server_pid(const test_fork_server *fork_server, int task);
/* How the last process of the task ended: TEST_TASK_RUNS, _KILLED, _CRASHED, or 1 + the result of `run`. */
int test_fork_server_ended(const test_fork_server *fork_server, int task);
/* Waits until the task has ended and returns the same; TEST_TASK_RUNS when the task did not end within TEST_PATIENCE. */
int test_fork_server_wait(const test_fork_server *fork_server, int task);

/* The monotonic clock in seconds, which is the same in all processes. */
double test_seconds(void);
/* Waits until *number >= least. Returns false when this did not happen within TEST_PATIENCE. */
bool test_wait_for(const atomic_int *number, int least);
/* Waits until the condition is true, for TEST_PATIENCE at most. */
#define TEST_WAIT_UNTIL(condition) \
    for (const double end_ = test_seconds() + TEST_PATIENCE; !(condition) && test_seconds() < end_; usleep(2000)) continue

#endif
