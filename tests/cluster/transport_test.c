/* SPDX-License-Identifier: Apache-2.0
 *
 * Which transport "auto" chooses, depending on what each transport supports; and what is left of one when its ranks have
 * ended. */
#include "cluster/transport.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <unistd.h>

#include "tests/cluster/ranks.h"

Test(transport, auto_takes_shared_memory_on_one_machine_and_bytes_elsewhere) {
    const strata_transport *first = strata_transport_next(NULL, false);
    cr_assert_str_eq(first->name, "shm");
    cr_assert_str_eq(strata_transport_next(first, false)->name, "tcp");
    cr_assert_str_eq(strata_transport_next(NULL, true)->name, "tcp");
    cr_assert_null(strata_transport_next(strata_transport_next(NULL, true), true));
}

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
    static const char *const transports[] = {"inproc", "shm", "tcp", "tls"}, *const folders[] = {"/proc/self/fd",
                                                                                                 "/proc/self/task"};
    for (int t = 0; t < 4; t++) {
        int n[2] = {0};
        for (int i = 0; i < 4; i++) {
            const strata_test_result result = test_ranks(transports[t], 3, NULL, sum_and_send, NULL);
            cr_assert(result.ok, "%s: %s", transports[t], result.text);
            for (int k = 0; k < 2; k++) {
                for (int waits = 0; i && count_entries(folders[k]) > n[k] && waits < 2000; waits++) usleep(10000);
                cr_expect(!i || count_entries(folders[k]) <= n[k], "%s: job %d left entries in %s", transports[t], i,
                          folders[k]);
                if (!i) n[k] = count_entries(folders[k]);
            }
        }
    }
}
