/* SPDX-License-Identifier: Apache-2.0
 *
 * Which transport "auto" chooses, depending on what each transport supports; and what is left of one when its ranks have
 * ended. */
#define _GNU_SOURCE
#include "cluster/transport.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cluster/subset.h"
#include "core/base/clock.h"
#include "tests/cluster/ranks.h"

Test(transport, auto_takes_shared_memory_on_one_machine_and_bytes_elsewhere) {
    const strata_transport *first = strata_transport_next(NULL, false);
    cr_assert_str_eq(first->name, "shm");
    cr_assert_str_eq(strata_transport_next(first, false)->name, "tcp");
    cr_assert_str_eq(strata_transport_next(NULL, true)->name, "tcp");
    cr_assert_null(strata_transport_next(strata_transport_next(NULL, true), true));
}

/* ---- cores ---- */

typedef struct bound_rank {
    strata_communicator_options opts;
    int core;
    strata_status status;
    bool shares;
} bound_rank;

static void *join_on_core(void *user) {
    bound_rank *r = user;
    strata_communicator *comm = NULL;
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(r->core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    r->status = strata_communicator_create(&r->opts, &comm, NULL);
    r->shares = !r->status && strata_communicator_shares_cores(comm);
    strata_communicator_destroy(comm);
    return NULL;
}

/* Joins n ranks, up to 3, each bound to one of the cores; returns whether the ranks report that they share cores. */
static bool share(const int *cores, int n) {
    const test_address address = test_free_address();
    bound_rank ranks[3];
    pthread_t threads[3];
    for (int r = 0; r < n; r++) {
        ranks[r] = (bound_rank){.opts = {.rank = r, .world = n, .store = address.text}, .core = cores[r]};
        pthread_create(&threads[r], NULL, join_on_core, &ranks[r]);
    }
    for (int r = 0; r < n; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < n; r++) cr_assert(!ranks[r].status && ranks[r].shares == ranks[0].shares);
    return ranks[0].shares;
}

/* As `strata launch` binds workers. */
Test(transport, ranks_share_cores_if_there_are_more_of_them_than_cores_of_all_ranks) {
    int cores[2], n = 0;
    cpu_set_t all;
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int core = 0; core < CPU_SETSIZE && n < 2; core++)
        if (CPU_ISSET(core, &all)) cores[n++] = core;
    cr_assert(share((const int[]){cores[0], cores[0], cores[n - 1]}, 3));
    if (n == 2) cr_assert(!share(cores, 2));
}

/* ---- messages that came early ---- */

enum { EARLY = 100 };

/* All messages of rank 0 are there before rank 1 receives the first. So rank 1 sleeps hardly ever. */
static strata_test_result receive_late(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    atomic_bool *sent = (atomic_bool *)user;
    struct rusage before, after;
    while (strata_communicator_rank(comm) && !atomic_load(sent)) usleep(1000);
    getrusage(RUSAGE_THREAD, &before);
    for (int i = 0; i < EARLY; i++) {
        int value = strata_communicator_rank(comm) ? -1 : i;
        TEST_TRY(strata_communicator_broadcast(comm, &value, 1, STRATA_DTYPE_I32, 0, &err));
        if (value != i) return strata_test_bad("broadcast %d has %d", i, value);
    }
    atomic_store(sent, true);
    getrusage(RUSAGE_THREAD, &after);
    const long naps = after.ru_nvcsw - before.ru_nvcsw;
    return naps < EARLY / 2 ? strata_test_ok() : strata_test_bad("it slept %ld times for %d messages", naps, EARLY);
}

/* Ranks that share a core do not spin, and a rank that reads one message reads those behind it, too. */
Test(transport, a_message_that_was_read_ahead_is_not_waited_for) {
    cpu_set_t all, one;
    int core = 0;
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(core, &all)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    atomic_bool sent = false;
    const strata_test_result result = test_ranks("tcp", 2, NULL, receive_late, &sent);
    cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
    cr_assert(result.ok, "%s", result.text);
}

/* ---- what is left ---- */

static int count_entries(const char *folder) {
    int n = 0;
    DIR *entries = opendir(folder);
    cr_assert(entries, "%s", folder);
    while (readdir(entries)) n++;
    closedir(entries);
    return n;
}

static strata_test_result sum_and_send(strata_communicator *comm, const void *user) {
    strata_error err = {0};
    int32_t rank = strata_communicator_rank(comm), got = -1;
    float values[1000];
    (void)user;
    for (int i = 0; i < 1000; i++) values[i] = (float)rank;
    TEST_TRY(strata_communicator_all_reduce(comm, values, 1000, STRATA_DTYPE_F32, STRATA_REDUCER_SUM, &err));
    if (rank == 0) TEST_TRY(strata_communicator_send(comm, &rank, 1, STRATA_DTYPE_I32, 1, &err));
    if (rank == 1) TEST_TRY(strata_communicator_recv(comm, &got, 1, STRATA_DTYPE_I32, 0, &err));
    return rank == 1 && got ? strata_test_bad("%d was received", got) : strata_test_ok();
}

/* Files, sockets, pipes and threads of this process, after the first job has opened what is kept. A thread that has ended is
 * listed until the kernel has removed it. */
Test(transport, nothing_is_left_open_when_the_ranks_have_ended) {
    static const char *const folders[] = {"/proc/self/fd", "/proc/self/task"};
    for (int t = 0; test_transport(t); t++) {
        int n[2] = {0};
        for (int i = 0; i < 4; i++) {
            const strata_test_result result = test_ranks(test_transport(t), 3, NULL, sum_and_send, NULL);
            cr_assert(result.ok, "%s: %s", test_transport(t), result.text);
            for (int k = 0; k < 2; k++) {
                for (int waits = 0; i && count_entries(folders[k]) > n[k] && waits < 2000; waits++) usleep(10000);
                cr_expect(!i || count_entries(folders[k]) <= n[k], "%s: job %d left entries in %s", test_transport(t), i,
                          folders[k]);
                if (!i) n[k] = count_entries(folders[k]);
            }
        }
    }
}
