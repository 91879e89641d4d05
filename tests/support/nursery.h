/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks of a cluster as processes of a test. A process that has threads should not fork, so a *nursery* does it: a process
 * without threads that a test makes at its beginning, and that starts a task whenever it is told to. All of them end with the
 * test.
 *
 *     test_nursery_open(&nursery, be_task)              before the test has threads
 *     test_nursery_start(&nursery, 2, 0)                a process calls be_task(2, 0)
 *     kill(test_nursery_pid(&nursery, 2), SIGKILL)
 *     test_nursery_wait(&nursery, 2, 10)                until be_task has returned */
#ifndef STRATA_TESTS_SUPPORT_NURSERY_H
#define STRATA_TESTS_SUPPORT_NURSERY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    TEST_MOST_TASKS = 16,
    /* What test_nursery_ended returns besides 1 + what the task returned. */
    TEST_TASK_RUNS = 0,
    TEST_TASK_KILLED = -1,
    TEST_TASK_CRASHED = -2,
};

typedef struct test_nursery {
    /* Of the nursery, and where its orders are written; -1: it is not open. */
    pid_t pid;
    int orders;
    /* [TEST_MOST_TASKS] Memory that all processes share. */
    struct test_nursery_task {
        atomic_int pid, ended;
    } * tasks;
} test_nursery;

/* Memory that all processes which are forked later share, filled with zeros; NULL: there is none. */
void *test_shared_memory(size_t bytes);

/* `be` is what a task does; it returns a status. variant: 0 to 15, whatever the test means by it. */
bool test_nursery_open(test_nursery *nursery, int (*be)(int task, int variant));
/* Ends the nursery with all its tasks. One that is not open is fine. */
void test_nursery_close(test_nursery *nursery);
/* Returns when the task's process is there. */
bool test_nursery_start(test_nursery *nursery, int task, int variant);
pid_t test_nursery_pid(const test_nursery *nursery, int task);
/* How the task ended that was started last: RUNS, KILLED (by SIGKILL), CRASHED, or 1 + what `be` returned. */
int test_nursery_ended(const test_nursery *nursery, int task);
/* Waits for the end; RUNS when it did not come in time. */
int test_nursery_wait(const test_nursery *nursery, int task, double seconds);

/* The monotonic clock, which all processes share. */
double test_seconds(void);
/* Waits until the number is at least that; false when it was not in time. */
bool test_wait_for(const atomic_int *number, int least, double seconds);

#endif
