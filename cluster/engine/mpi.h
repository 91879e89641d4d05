/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds and initializes MPI for the engine mpi. */
#ifndef STRATA_CLUSTER_ENGINE_MPI_H
#define STRATA_CLUSTER_ENGINE_MPI_H

#include "strata/status.h"

/* Finds and opens the MPI library, once in a process. Fails: INVALID if no mpirun started this process; UNSUPPORTED if the
 * library of the launcher's MPI is not installed. Threads: any. */
STRATA_MUST_USE strata_status strata_mpi_find(strata_error *err);
/* Initializes MPI, once in a process. MPI may wait until all ranks do so; so they have compared their engines before. Must be
 * called after strata_mpi_find. Threads: any. */
STRATA_MUST_USE strata_status strata_mpi_begin(strata_error *err);

#endif
