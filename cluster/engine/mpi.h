/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine mpi, before a communicator of it is made. */
#ifndef STRATA_CLUSTER_ENGINE_MPI_H
#define STRATA_CLUSTER_ENGINE_MPI_H

#include "strata/status.h"

/* Finds and begins MPI, once a process. INVALID for a process that mpirun did not start, UNSUPPORTED without Open MPI, or with
 * another MPI. Threads: any. */
STRATA_MUST_USE strata_status strata_mpi_begin(strata_error *err);

#endif
