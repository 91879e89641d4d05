/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine mpi, before a communicator of it is made. */
#ifndef STRATA_CLUSTER_ENGINE_MPI_H
#define STRATA_CLUSTER_ENGINE_MPI_H

#include "strata/status.h"

/* Finds and begins MPI, once a process. INVALID for a process that no mpirun started, UNSUPPORTED without the library of the
 * MPI that did. Threads: any. */
STRATA_MUST_USE strata_status strata_mpi_begin(strata_error *err);

#endif
