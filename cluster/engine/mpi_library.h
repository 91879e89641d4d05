/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of an MPI library that the engine mpi uses. There are two binary interfaces: Open MPI's handles are pointers
 * to objects of its library; those of MPICH and compatible libraries are numbers. Each interface has a file (open_mpi.c,
 * mpich.c), which defines its constants and includes mpi_library.def to define these functions. */
#ifndef STRATA_CLUSTER_ENGINE_MPI_LIBRARY_H
#define STRATA_CLUSTER_ENGINE_MPI_LIBRARY_H

#include <stdbool.h>

typedef union strata_mpi_handle { /* a communicator or a request */
    void *pointer;
    int number;
} strata_mpi_handle;

/* The functions have MPI's names and arguments, except for the datatype, since all data are bytes. They return MPI's code; 0
 * is success. */
typedef struct strata_mpi_library {
    /* For messages: the name of the MPI, and of its package in Debian. */
    const char *name, *package;
    /* An environment variable that its launcher sets. */
    const char *launched;
    /* The library's file names, the most likely one first; ends with NULL. */
    const char *const *file_names;
    /* Finds the functions and constants in a library that was opened. Returns the name of a missing one; NULL: none is
     * missing. */
    const char *(*find)(void *library);
    int (*begin)(bool *out_ours, int *out_threads); /* *out_ours false: MPI was already initialized */
    int (*Finalize)(void);
    int (*place)(int *out_rank, int *out_size);
    /* Only these ranks call it. Errors of the new communicator are returned; they do not abort the process. */
    int (*Comm_create)(const int *ranks, int n, int tag, strata_mpi_handle *out_comm);
    int (*Comm_free)(strata_mpi_handle *comm);
    int (*Test)(strata_mpi_handle *request, int *out_done);
    int (*Isend)(const void *data, int n, int to, int tag, strata_mpi_handle comm, strata_mpi_handle *out_request);
    int (*Irecv)(void *data, int n, int from, int tag, strata_mpi_handle comm, strata_mpi_handle *out_request);
} strata_mpi_library;

extern const strata_mpi_library strata_mpi_library_open_mpi, strata_mpi_library_mpich;

#endif
