/* SPDX-License-Identifier: Apache-2.0
 *
 * Initializes MPI for the engine mpi, before a communicator is created. */
#ifndef STRATA_CLUSTER_ENGINE_MPI_H
#define STRATA_CLUSTER_ENGINE_MPI_H

#include "strata/status.h"

/* Finds the MPI library and initializes it, once in a process. Fails: INVALID if no mpirun started this process; UNSUPPORTED
 * if the library of the launcher's MPI is not installed. Threads: any. */
STRATA_MUST_USE strata_status strata_mpi_begin(strata_error *err);

#endif
