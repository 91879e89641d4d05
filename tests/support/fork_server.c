/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fork_server.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

double test_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool test_wait_for(const atomic_int *number, int least) {
    TEST_WAIT_UNTIL(atomic_load(number) >= least);
    return atomic_load(number) >= least;
}

void *test_shared_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Records how tasks ended whose process was killed or crashed. A task that returns records its result itself. */
static void reap(const test_fork_server *fork_server) {
    int how = 0;
    pid_t pid;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
        for (int t = 0; t < TEST_MOST_TASKS; t++) {
            int runs = TEST_TASK_RUNS;
            if (atomic_load(&fork_server->tasks[t].pid) != pid) continue;
            const bool killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
            atomic_compare_exchange_strong(&fork_server->tasks[t].ended, &runs, killed ? TEST_TASK_KILLED : TEST_TASK_CRASHED);
        }
    }
}

static void fork_server_main(const test_fork_server *fork_server, int from, int (*run)(int task, int variant)) {
    enum { POLL_MS = 20 };
    struct pollfd order_came = {.fd = from, .events = POLLIN};
    unsigned char order;
    for (;;) {
        const int ready = poll(&order_came, 1, POLL_MS);
        reap(fork_server);
        if (ready <= 0) continue;
        if (read(from, &order, 1) != 1) break;
        const int task = order & 15;
        const pid_t child = fork();
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(from);
            const int status = run(task, order >> 4);
            atomic_store(&fork_server->tasks[task].ended, 1 + status);
            _exit(0);
        }
        atomic_store(&fork_server->tasks[task].pid, child);
    }
    _exit(0);
}

bool test_fork_server_open(test_fork_server *fork_server, int (*run)(int task, int variant)) {
    int ends[2];
    *fork_server = (test_fork_server){.orders = -1};
    fork_server->tasks = test_shared_memory(TEST_MOST_TASKS * sizeof *fork_server->tasks);
    if (!fork_server->tasks || pipe(ends)) return false;
    fork_server->pid = fork();
    if (!fork_server->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        fork_server_main(fork_server, ends[0], run);
    }
    close(ends[0]);
    fork_server->orders = ends[1];
    return fork_server->pid > 0;
}

void test_fork_server_close(test_fork_server *fork_server) {
    if (!fork_server->tasks) return;
    for (int t = 0; t < TEST_MOST_TASKS; t++) {
        const pid_t pid = atomic_load(&fork_server->tasks[t].pid);
        if (pid > 0 && atomic_load(&fork_server->tasks[t].ended) == TEST_TASK_RUNS) kill(pid, SIGKILL);
    }
    close(fork_server->orders);
    waitpid(fork_server->pid, NULL, 0);
    munmap(fork_server->tasks, TEST_MOST_TASKS * sizeof *fork_server->tasks);
    *fork_server = (test_fork_server){.orders = -1};
}

bool test_fork_server_start(test_fork_server *fork_server, int task, int variant) {
    const unsigned char order = (unsigned char)(task | variant << 4);
    atomic_store(&fork_server->tasks[task].pid, 0);
    atomic_store(&fork_server->tasks[task].ended, TEST_TASK_RUNS);
    return write(fork_server->orders, &order, 1) == 1 && test_wait_for(&fork_server->tasks[task].pid, 1);
}

pid_t test_fork_server_pid(const test_fork_server *fork_server, int task) {
    return atomic_load(&fork_server->tasks[task].pid);
}

int test_fork_server_ended(const test_fork_server *fork_server, int task) {
    return atomic_load(&fork_server->tasks[task].ended);
}

int test_fork_server_wait(const test_fork_server *fork_server, int task) {
    TEST_WAIT_UNTIL(test_fork_server_ended(fork_server, task) != TEST_TASK_RUNS);
    return test_fork_server_ended(fork_server, task);
}
