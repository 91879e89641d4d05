/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens libOpenCL at run time, so that Strata also runs without it. Also has the names of OpenCL's status codes. */
#include <dlfcn.h>

#include "backends/opencl/opencl.h"

static const char *const library_names[] = {"libOpenCL.so.1", "libOpenCL.so"};

/* A libOpenCL that is already loaded is used first: the program may be linked with it, or a tool (oclgrind) may have preloaded
 * it. The library is never unmapped (RTLD_NODELETE), because threads of drivers may still run its code. */
static void *open_library(void) {
    void *process = dlopen(NULL, RTLD_NOW);
    if (process && dlsym(process, "clGetPlatformIDs")) return process;
    if (process) dlclose(process);
    for (size_t i = 0; i < sizeof library_names / sizeof *library_names; i++) {
        void *library = dlopen(library_names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (library) return library;
    }
    return NULL;
}

strata_status strata_opencl_load(opencl_functions *out_cl, strata_error *err) {
    opencl_functions cl = {.library = open_library()};
    if (!cl.library) {
        const char *why = dlerror();
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "no OpenCL loader (%s); install one (Debian: ocl-icd-libopencl1) and a driver",
                           why ? why : "libOpenCL.so.1 was not found");
    }
    const char *missing = NULL;
#define FUNCTION(name)                                 \
    {                                                  \
        void *symbol = dlsym(cl.library, "cl" #name);  \
        memcpy(&cl.name, &symbol, sizeof symbol);      \
        if (!symbol && !missing) missing = "cl" #name; \
    }
#include "backends/opencl/functions.def"
    if (missing) {
        strata_opencl_unload(&cl);
        return strata_fail(err, STRATA_UNAVAILABLE, "the OpenCL loader has no %s; OpenCL 1.2 or later is needed", missing);
    }
    *out_cl = cl;
    return STRATA_OK;
}

void strata_opencl_unload(opencl_functions *cl) {
    if (cl->library) dlclose(cl->library);
    *cl = (opencl_functions){0};
}

#define CODE(code) \
    { code, #code }
static const struct {
    cl_int code;
    const char *name;
} codes[] = {
    CODE(CL_SUCCESS),
    CODE(CL_DEVICE_NOT_FOUND),
    CODE(CL_DEVICE_NOT_AVAILABLE),
    CODE(CL_COMPILER_NOT_AVAILABLE),
    CODE(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    CODE(CL_OUT_OF_RESOURCES),
    CODE(CL_OUT_OF_HOST_MEMORY),
    CODE(CL_BUILD_PROGRAM_FAILURE),
    CODE(CL_MAP_FAILURE),
    CODE(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    CODE(CL_DEVICE_PARTITION_FAILED),
    CODE(CL_INVALID_VALUE),
    CODE(CL_INVALID_DEVICE),
    CODE(CL_INVALID_CONTEXT),
    CODE(CL_INVALID_COMMAND_QUEUE),
    CODE(CL_INVALID_HOST_PTR),
    CODE(CL_INVALID_MEM_OBJECT),
    CODE(CL_INVALID_BINARY),
    CODE(CL_INVALID_BUILD_OPTIONS),
    CODE(CL_INVALID_PROGRAM),
    CODE(CL_INVALID_PROGRAM_EXECUTABLE),
    CODE(CL_INVALID_KERNEL_NAME),
    CODE(CL_INVALID_KERNEL_DEFINITION),
    CODE(CL_INVALID_KERNEL),
    CODE(CL_INVALID_ARG_INDEX),
    CODE(CL_INVALID_ARG_VALUE),
    CODE(CL_INVALID_ARG_SIZE),
    CODE(CL_INVALID_KERNEL_ARGS),
    CODE(CL_INVALID_WORK_DIMENSION),
    CODE(CL_INVALID_WORK_GROUP_SIZE),
    CODE(CL_INVALID_WORK_ITEM_SIZE),
    CODE(CL_INVALID_EVENT_WAIT_LIST),
    CODE(CL_INVALID_EVENT),
    CODE(CL_INVALID_OPERATION),
    CODE(CL_INVALID_BUFFER_SIZE),
    CODE(CL_INVALID_GLOBAL_WORK_SIZE),
    CODE(CL_INVALID_DEVICE_PARTITION_COUNT),
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

const char *strata_opencl_error_name(cl_int code) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) return codes[i].name;
    return "an unknown OpenCL error";
}
