/* SPDX-License-Identifier: Apache-2.0
 *
 * torchrun, Open MPI, MPICH and Kubernetes: their variables as they set them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/resolver/resolved.h"

#define TORCH(rank, world) "RANK=" rank, "WORLD_SIZE=" world, "MASTER_ADDR=n1", "MASTER_PORT=29500"

Test(torchrun, names_the_rendezvous_and_no_other_address) {
    tells(VARIABLES(TORCH("5", "8"), "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4"),
          "worker x8; I am worker:5, rank 5 of 8, local 1 of 4; n1:29500");
    tells(VARIABLES(TORCH("0", "2")), "worker x2; I am worker:0, rank 0 of 2, local 0 of 1, chief; n1:29500");
    tells(VARIABLES("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=fe80::1", "MASTER_PORT=5", "LOCAL_RANK=1"),
          "worker x2; I am worker:1, rank 1 of 2, local 1 of 2; [fe80::1]:5");
}

Test(torchrun, leaves_the_agents_port_to_the_agent) {
    tells(VARIABLES(TORCH("0", "2"), "TORCHELASTIC_USE_AGENT_STORE=True"),
          "worker x2; I am worker:0, rank 0 of 2, local 0 of 1, chief; n1:29501");
}

Test(torchrun, one_rank_needs_no_rendezvous) {
    tells(VARIABLES("RANK=0", "WORLD_SIZE=1"), "worker x1; I am worker:0, rank 0 of 1, local 0 of 1, chief; no rendezvous");
}

Test(torchrun, explains_what_is_wrong) {
    refuses(VARIABLES("RANK=2", "WORLD_SIZE=2"), "torchrun: RANK is \"2\"; it must be a whole number from 0 to 1");
    refuses(VARIABLES("RANK=0", "WORLD_SIZE=zwei"),
            "torchrun: WORLD_SIZE is \"zwei\"; it must be a whole number from 1 to 65536");
    refuses(VARIABLES("RANK=0", "WORLD_SIZE=2"),
            "torchrun: there are 2 ranks, but nothing says where rank 0 listens; set STRATA_RENDEZVOUS=HOST:PORT, the same for "
            "all ranks");
    refuses(VARIABLES("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a"),
            "torchrun: MASTER_PORT is not set; the launcher sets it, or say who is in the job by --cluster and --task");
    refuses(VARIABLES("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65536"),
            "torchrun: MASTER_PORT is \"65536\"; it must be a whole number from 1 to 65535");
    refuses(VARIABLES("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a b", "MASTER_PORT=6"),
            "torchrun: the rendezvous, \"a b:6\", has a character that no host name has");
    refuses(VARIABLES(TORCH("0", "2"), "LOCAL_RANK=2"), "torchrun: LOCAL_RANK is \"2\"; it must be a whole number from 0 to 1");
    refuses(VARIABLES(TORCH("0", "2"), "LOCAL_WORLD_SIZE=3"),
            "torchrun: LOCAL_WORLD_SIZE is \"3\"; it must be a whole number from 1 to 2");
}

#define MPI(rank, world, local_rank, local_size)                                                           \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" world, "OMPI_COMM_WORLD_LOCAL_RANK=" local_rank, \
        "OMPI_COMM_WORLD_LOCAL_SIZE=" local_size

Test(open_mpi, ranks_of_one_host_meet_on_the_loopback) {
    strata_cluster_spec a = resolved(VARIABLES(MPI("1", "2", "1", "2"), "PMIX_NAMESPACE=2183987201"));
    strata_cluster_spec b = resolved(VARIABLES(MPI("0", "2", "0", "2"), "PMIX_NAMESPACE=2183987201"));
    strata_cluster_spec other = resolved(VARIABLES(MPI("0", "2", "0", "2"), "PMIX_NAMESPACE=2183987202"));
    cr_expect_eq(a.rank, 1);
    cr_expect_eq(a.local_size, 2);
    cr_expect_str_eq(a.rendezvous, b.rendezvous);
    cr_expect_eq(strncmp(a.rendezvous, "127.0.0.1:", 10), 0);
    int port = atoi(a.rendezvous + 10);
    cr_expect(port >= 16384 && port < 28672, "port %d", port);
    cr_expect_str_neq(a.rendezvous, other.rendezvous);
    strata_cluster_spec_finish(&a);
    strata_cluster_spec_finish(&b);
    strata_cluster_spec_finish(&other);
}

Test(open_mpi, ranks_of_several_hosts_are_told_where_to_meet) {
    tells(VARIABLES(MPI("2", "4", "0", "2"), "PMIX_NAMESPACE=1", "STRATA_RENDEZVOUS=h1:7"),
          "worker x4; I am worker:2, rank 2 of 4, local 0 of 2; h1:7");
    refuses(VARIABLES(MPI("2", "4", "0", "2"), "PMIX_NAMESPACE=1"),
            "Open MPI: there are 4 ranks, but nothing says where rank 0 listens; set STRATA_RENDEZVOUS=HOST:PORT, the same for "
            "all ranks");
}

Test(open_mpi, explains_what_is_wrong) {
    refuses(
        VARIABLES("OMPI_COMM_WORLD_RANK=0"),
        "Open MPI: OMPI_COMM_WORLD_SIZE is not set; the launcher sets it, or say who is in the job by --cluster and --task");
    refuses(VARIABLES(MPI("4", "4", "0", "4")),
            "Open MPI: OMPI_COMM_WORLD_RANK is \"4\"; it must be a whole number from 0 to 3");
    refuses(VARIABLES(MPI("1", "4", "0", "5")),
            "Open MPI: OMPI_COMM_WORLD_LOCAL_SIZE is \"5\"; it must be a whole number from 1 to 4");
    refuses(VARIABLES(MPI("1", "4", "4", "4")),
            "Open MPI: OMPI_COMM_WORLD_LOCAL_RANK is \"4\"; it must be a whole number from 0 to 3");
}

#define HYDRA(rank, world, local_rank, local_size) \
    "PMI_RANK=" rank, "PMI_SIZE=" world, "MPI_LOCALRANKID=" local_rank, "MPI_LOCALNRANKS=" local_size

/* Where a rank with a socket of a pair that this process makes, as Hydra's proxy does for each, meets the others: a port, 0 for
 * none. */
static int port_by_socket(void) {
    int pair[2], port = 0;
    char variable[32];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 0;
    snprintf(variable, sizeof variable, "PMI_FD=%d", pair[1]);
    strata_cluster_spec spec = resolved(VARIABLES(HYDRA("1", "2", "1", "2"), variable));
    if (spec.rank == 1 && spec.local_rank == 1 && spec.local_size == 2) sscanf(spec.rendezvous, "127.0.0.1:%d", &port);
    strata_cluster_spec_finish(&spec);
    close(pair[0]);
    close(pair[1]);
    return port;
}

Test(mpich, ranks_of_one_host_meet_where_their_proxy_says) {
    const int one = port_by_socket();
    int pipe_ends[2], other = 0;
    cr_expect(one >= 16384 && one < 28672, "port %d", one);
    cr_expect_eq(port_by_socket(), one);
    cr_assert_eq(pipe(pipe_ends), 0);
    const pid_t child = fork(); /* another job's proxy */
    if (!child) {
        const int port = port_by_socket();
        _exit(write(pipe_ends[1], &port, sizeof port) != sizeof port);
    }
    cr_expect_eq(read(pipe_ends[0], &other, sizeof other), (ssize_t)sizeof other);
    cr_expect_eq(waitpid(child, NULL, 0), child);
    cr_expect(other >= 16384 && other != one, "port %d", other);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

Test(mpich, ranks_of_several_hosts_are_told_where_to_meet) {
    tells(VARIABLES(HYDRA("2", "4", "0", "2"), "STRATA_RENDEZVOUS=h1:7"),
          "worker x4; I am worker:2, rank 2 of 4, local 0 of 2; h1:7");
    refuses(VARIABLES(HYDRA("2", "4", "0", "2")),
            "MPICH: there are 4 ranks, but nothing says where rank 0 listens; set STRATA_RENDEZVOUS=HOST:PORT, the same for "
            "all ranks");
    refuses(VARIABLES(HYDRA("0", "2", "0", "2"), "PMI_FD=1048576"), /* one that is not open */
            "MPICH: there are 2 ranks, but nothing says where rank 0 listens; set STRATA_RENDEZVOUS=HOST:PORT, the same for "
            "all ranks");
    tells(VARIABLES(HYDRA("0", "1", "0", "1")), "worker x1; I am worker:0, rank 0 of 1, local 0 of 1, chief; no rendezvous");
}

Test(mpich, explains_what_is_wrong) {
    refuses(VARIABLES("MPI_LOCALRANKID=0", "PMI_PORT=h:1", "PMI_ID=0"),
            "MPICH: PMI_SIZE is not set; the launcher sets it, or say who is in the job by --cluster and --task");
    refuses(VARIABLES(HYDRA("4", "4", "0", "4")), "MPICH: PMI_RANK is \"4\"; it must be a whole number from 0 to 3");
    refuses(VARIABLES(HYDRA("1", "4", "0", "5")), "MPICH: MPI_LOCALNRANKS is \"5\"; it must be a whole number from 1 to 4");
    refuses(VARIABLES(HYDRA("1", "4", "4", "4")), "MPICH: MPI_LOCALRANKID is \"4\"; it must be a whole number from 0 to 3");
    refuses(VARIABLES(HYDRA("1", "4", "1", "4"), "PMI_FD=six"),
            "MPICH: PMI_FD is \"six\"; it must be a whole number from 0 to 1048576");
}

Test(kubernetes, pods_are_named_by_their_index) {
    tells(VARIABLES("JOB_COMPLETION_INDEX=1", "HOSTNAME=fit-1", "STRATA_WORLD_SIZE=2"),
          "worker fit-0.fit:2222 fit-1.fit:2222; I am worker:1, rank 1 of 2, local 0 of 1; fit-0.fit:2222");
    tells(VARIABLES("JOB_COMPLETION_INDEX=10", "HOSTNAME=fit-1-10.pods.ns.svc", "STRATA_WORLD_SIZE=11", "STRATA_SERVICE=s.ns",
                    "STRATA_PORT=80"),
          "worker fit-1-0.s.ns:80 fit-1-1.s.ns:80 fit-1-2.s.ns:80 fit-1-3.s.ns:80 fit-1-4.s.ns:80 fit-1-5.s.ns:80 "
          "fit-1-6.s.ns:80 "
          "fit-1-7.s.ns:80 fit-1-8.s.ns:80 fit-1-9.s.ns:80 fit-1-10.s.ns:80; I am worker:10, rank 10 of 11, local 0 of 1; "
          "fit-1-0.s.ns:80");
}

Test(kubernetes, explains_what_is_wrong) {
    refuses(VARIABLES("JOB_COMPLETION_INDEX=1", "HOSTNAME=fit-1"),
            "Kubernetes: JOB_COMPLETION_INDEX is set, STRATA_WORLD_SIZE is not; in the pod's template set it to the job's "
            "completions");
    refuses(VARIABLES("JOB_COMPLETION_INDEX=2", "HOSTNAME=fit-2", "STRATA_WORLD_SIZE=2"),
            "Kubernetes: JOB_COMPLETION_INDEX is \"2\"; it must be a whole number from 0 to 1");
    refuses(VARIABLES("JOB_COMPLETION_INDEX=1", "HOSTNAME=fit-11", "STRATA_WORLD_SIZE=2"),
            "Kubernetes: HOSTNAME is \"fit-11\"; in an indexed job it must end in -1, the completion index; set "
            "completionMode: Indexed "
            "and no hostname");
    refuses(VARIABLES("JOB_COMPLETION_INDEX=1", "STRATA_WORLD_SIZE=2"),
            "Kubernetes: HOSTNAME is \"\"; in an indexed job it must end in -1, the completion index; set completionMode: "
            "Indexed and no "
            "hostname");
    refuses(VARIABLES("JOB_COMPLETION_INDEX=0", "HOSTNAME=fit_x y-0", "STRATA_WORLD_SIZE=1", "STRATA_SERVICE=s"),
            "Kubernetes: the address of worker:0, \"fit_x y-0.s:2222\", has a character that no host name has");
}

/* ---- TPU ---- */

Test(tpu, hosts_of_a_slice_are_its_workers) {
    tells(VARIABLES("TPU_WORKER_HOSTNAMES=t-0.s,t-1.s", "TPU_WORKER_ID=1", "TPU_NAME=t"),
          "worker t-0.s:2222 t-1.s:2222; I am worker:1, rank 1 of 2, local 0 of 1; t-0.s:2222");
    tells(
        VARIABLES("TPU_WORKER_HOSTNAMES=10.0.0.2:8470, 10.0.0.3:8470,[fd00::1]:8471", "CLOUD_TPU_TASK_ID=2", "STRATA_PORT=80"),
        "worker 10.0.0.2:80 10.0.0.3:80 [fd00::1]:80; I am worker:2, rank 2 of 3, local 0 of 1; 10.0.0.2:80");
    /* Within an indexed job, whose words say less. */
    tells(VARIABLES("TPU_WORKER_HOSTNAMES=a,b", "TPU_WORKER_ID=0", "JOB_COMPLETION_INDEX=0", "HOSTNAME=fit-0"),
          "worker a:2222 b:2222; I am worker:0, rank 0 of 2, local 0 of 1, chief; a:2222");
}

Test(tpu, a_single_host_is_no_job) {
    tells(VARIABLES("TPU_WORKER_HOSTNAMES=localhost", "TPU_WORKER_ID=0", "JOB_COMPLETION_INDEX=1", "HOSTNAME=fit-1",
                    "STRATA_WORLD_SIZE=2"),
          "worker fit-0.fit:2222 fit-1.fit:2222; I am worker:1, rank 1 of 2, local 0 of 1; fit-0.fit:2222");
}

Test(tpu, explains_what_is_wrong) {
    refuses(
        VARIABLES("TPU_WORKER_HOSTNAMES=a,b"),
        "TPU: TPU_WORKER_HOSTNAMES has 2 hosts, and neither TPU_WORKER_ID nor CLOUD_TPU_TASK_ID says which of them this is");
    refuses(VARIABLES("TPU_WORKER_HOSTNAMES=a,b", "TPU_WORKER_ID=2"),
            "TPU: TPU_WORKER_ID is \"2\"; it must be a whole number from 0 to 1");
    refuses(VARIABLES("TPU_WORKER_HOSTNAMES=a,,b", "TPU_WORKER_ID=0"), "TPU: host 1 of TPU_WORKER_HOSTNAMES is empty");
    refuses(VARIABLES("TPU_WORKER_HOSTNAMES=a,b c", "TPU_WORKER_ID=0"),
            "TPU: the address of worker:1, \"b c:2222\", has a character that no host name has");
    refuses(VARIABLES("TPU_WORKER_HOSTNAMES=a,a", "TPU_WORKER_ID=0"),
            "TPU: two tasks have the address a:2222; each needs its own");
    refuses(VARIABLES("TPU_WORKER_HOSTNAMES=a,b", "TPU_WORKER_ID=0", "MEGASCALE_NUM_SLICES=2"),
            "TPU: MEGASCALE_NUM_SLICES is 2, and TPU_WORKER_HOSTNAMES has the hosts of one slice; name those of all slices by "
            "--cluster and --task");
}
