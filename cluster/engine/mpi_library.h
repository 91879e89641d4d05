/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine mpi asks of an MPI. There are two binary interfaces: handles of Open MPI are pointers to objects of its
 * library, those of MPICH and its kin are numbers. A file of each (open_mpi.c, mpich.c) says its constants and makes these
 * functions from mpi_library.def. */
#ifndef STRATA_CLUSTER_ENGINE_MPI_LIBRARY_H
#define STRATA_CLUSTER_ENGINE_MPI_LIBRARY_H

#include <stdbool.h>

typedef union strata_mpi_handle { /* of a communicator or a request */
    void *pointer;
    int number;
} strata_mpi_handle;

/* Functions have MPI's names, arguments without the datatype, as all are bytes, and return MPI's code, 0 for success. */
typedef struct strata_mpi_library {
    /* Debian's. */
    const char *name, *package;
    /* A variable that its launcher sets. */
    const char *launched;
    /* Of the library, the likeliest first; ends with NULL. */
    const char *const *file_names;
    void *in_place;
    /* Takes its names from a library that was opened; returns one that is not there, NULL: all are. */
    const char *(*find)(void *library);
    int (*begin)(bool *out_ours, int *out_threads); /* not ours: MPI was begun before */
    int (*Finalize)(void);
    int (*place)(int *out_rank, int *out_size);
    int (*Comm_create)(const int *ranks, int n, int tag, strata_mpi_handle *out_comm); /* by these ranks alone; errors return */
    int (*Comm_free)(strata_mpi_handle *comm);
    int (*Test)(strata_mpi_handle *request, int *out_done);
    int (*Isend)(const void *data, int n, int to, int tag, strata_mpi_handle comm, strata_mpi_handle *out_request);
    int (*Irecv)(void *data, int n, int from, int tag, strata_mpi_handle comm, strata_mpi_handle *out_request);
    int (*Ibcast)(void *data, int n, int root, strata_mpi_handle comm, strata_mpi_handle *out_request);
    int (*Iallgather)(const void *in, int n, void *out, strata_mpi_handle comm, strata_mpi_handle *out_request);
    int (*Iallgatherv)(const void *in, int n, void *out, const int *ns, const int *at, strata_mpi_handle comm,
                       strata_mpi_handle *out_request);
    int (*Ialltoallv)(const void *in, const int *in_ns, const int *in_at, void *out, const int *out_ns, const int *out_at,
                      strata_mpi_handle comm, strata_mpi_handle *out_request);
    int (*Igatherv)(const void *in, int n, void *out, const int *ns, const int *at, int root, strata_mpi_handle comm,
                    strata_mpi_handle *out_request);
    int (*Iscatterv)(const void *in, const int *ns, const int *at, void *out, int n, int root, strata_mpi_handle comm,
                     strata_mpi_handle *out_request);
} strata_mpi_library;

extern const strata_mpi_library strata_mpi_library_open_mpi, strata_mpi_library_mpich;

#endif
