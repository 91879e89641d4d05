/* SPDX-License-Identifier: Apache-2.0
 *
 * Open MPI. Handles are pointers to objects of the library, which are found by their symbols. */
#include <dlfcn.h>
#include <string.h>

#include "cluster/engine/mpi_library.h"

static void *world, *byte, *errors_return;

typedef void *handle; /* MPI_Comm, MPI_Datatype, MPI_Group, MPI_Request, MPI_Errhandler */
#define MEMBER        pointer
#define WORLD         world
#define BYTE          byte
#define ERRORS_RETURN errors_return
#define STATUS_IGNORE NULL
#include "cluster/engine/mpi_library.def"

static const char *find(void *library) {
    world = dlsym(library, "ompi_mpi_comm_world");
    byte = dlsym(library, "ompi_mpi_byte");
    errors_return = dlsym(library, "ompi_mpi_errors_return");
    return !world           ? "ompi_mpi_comm_world"
           : !byte          ? "ompi_mpi_byte"
           : !errors_return ? "ompi_mpi_errors_return"
                            : find_functions(library);
}

static const char *const file_names[] = {"libmpi.so.40", "libmpi.so", NULL};

const strata_mpi_library strata_mpi_library_open_mpi = {.name = "Open MPI",
                                                        .package = "libopenmpi3",
                                                        .launched = "OMPI_COMM_WORLD_SIZE",
                                                        .file_names = file_names,
                                                        LIBRARY_FUNCTIONS};
