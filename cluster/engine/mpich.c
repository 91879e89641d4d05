/* SPDX-License-Identifier: Apache-2.0
 *
 * MPICH from version 3.1, and libraries with the same binary interface (Intel MPI, MVAPICH, Cray MPICH). Handles are numbers,
 * the same ones in all of these libraries. */
#include <dlfcn.h>
#include <string.h>

#include "cluster/engine/mpi_library.h"

typedef int handle; /* MPI_Comm, MPI_Datatype, MPI_Group, MPI_Request, MPI_Errhandler */
#define MEMBER        number
#define WORLD         0x44000000
#define BYTE          0x4c00010d
#define ERRORS_RETURN 0x54000001
#define STATUS_IGNORE ((void *)1)
#include "cluster/engine/mpi_library.def"

/* Open MPI's library may have the same file name, so it is rejected by a symbol that only Open MPI has. */
static const char *find(void *library) {
    return dlsym(library, "ompi_mpi_comm_world") ? "handles that are numbers: it is Open MPI's" : find_functions(library);
}

static const char *const file_names[] = {"libmpi.so.12", "libmpich.so.12", "libmpi.so", NULL};

const strata_mpi_library strata_mpi_library_mpich = {
    .name = "MPICH", .package = "libmpich12", .launched = "PMI_SIZE", .file_names = file_names, LIBRARY_FUNCTIONS};
