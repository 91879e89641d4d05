/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/nursery.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double test_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool test_wait_for(const atomic_int *number, int least, double seconds) {
    for (const double end = test_seconds() + seconds; test_seconds() < end; usleep(2000))
        if (atomic_load(number) >= least) return true;
    return atomic_load(number) >= least;
}

void *test_shared_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Notes the tasks whose processes are over and have not said themselves how they ended. */
static void reap(const test_nursery *nursery) {
    int how = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
        for (int t = 0; t < TEST_MOST_TASKS; t++) {
            int runs = TEST_TASK_RUNS;
            if (atomic_load(&nursery->tasks[t].pid) != pid) continue;
            const bool killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
            atomic_compare_exchange_strong(&nursery->tasks[t].ended, &runs, killed ? TEST_TASK_KILLED : TEST_TASK_CRASHED);
        }
    }
}

static void be_nursery(const test_nursery *nursery, int from, int (*be)(int task, int variant)) {
    enum { LOOK_MS = 20 };
    struct pollfd order_came = {.fd = from, .events = POLLIN};
    unsigned char order;
    for (;;) {
        const int ready = poll(&order_came, 1, LOOK_MS);
        reap(nursery);
        if (ready <= 0) continue;
        if (read(from, &order, 1) != 1) break;
        const int task = order & 15;
        const pid_t child = fork();
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(from);
            const int status = be(task, order >> 4);
            atomic_store(&nursery->tasks[task].ended, 1 + status);
            _exit(0);
        }
        atomic_store(&nursery->tasks[task].pid, child);
    }
    _exit(0);
}

bool test_nursery_open(test_nursery *nursery, int (*be)(int task, int variant)) {
    int ends[2];
    *nursery = (test_nursery){.orders = -1};
    nursery->tasks = test_shared_memory(TEST_MOST_TASKS * sizeof *nursery->tasks);
    if (!nursery->tasks || pipe(ends)) return false;
    nursery->pid = fork();
    if (!nursery->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        be_nursery(nursery, ends[0], be);
    }
    close(ends[0]);
    nursery->orders = ends[1];
    return nursery->pid > 0;
}

void test_nursery_close(test_nursery *nursery) {
    if (!nursery->tasks) return;
    for (int t = 0; t < TEST_MOST_TASKS; t++) {
        const pid_t pid = atomic_load(&nursery->tasks[t].pid);
        if (pid > 0 && atomic_load(&nursery->tasks[t].ended) == TEST_TASK_RUNS) kill(pid, SIGKILL);
    }
    close(nursery->orders);
    waitpid(nursery->pid, NULL, 0);
    munmap(nursery->tasks, TEST_MOST_TASKS * sizeof *nursery->tasks);
    *nursery = (test_nursery){.orders = -1};
}

bool test_nursery_start(test_nursery *nursery, int task, int variant) {
    const unsigned char order = (unsigned char)(task | variant << 4);
    atomic_store(&nursery->tasks[task].pid, 0);
    atomic_store(&nursery->tasks[task].ended, TEST_TASK_RUNS);
    return write(nursery->orders, &order, 1) == 1 && test_wait_for(&nursery->tasks[task].pid, 1, 10);
}

pid_t test_nursery_pid(const test_nursery *nursery, int task) {
    return atomic_load(&nursery->tasks[task].pid);
}

int test_nursery_ended(const test_nursery *nursery, int task) {
    return atomic_load(&nursery->tasks[task].ended);
}

int test_nursery_wait(const test_nursery *nursery, int task, double seconds) {
    for (const double end = test_seconds() + seconds; test_seconds() < end; usleep(2000))
        if (test_nursery_ended(nursery, task) != TEST_TASK_RUNS) break;
    return test_nursery_ended(nursery, task);
}
