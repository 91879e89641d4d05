/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: what the machine has, and opening one. The table that a backend fills is core/run/device.h. */
#ifndef STRATA_DEVICE_H
#define STRATA_DEVICE_H

#include "strata/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In ascending order of what training prefers, where memory and drivers allow. */
typedef enum strata_device_class {
    STRATA_DEVICE_HOST = 0,       /* built in, always there */
    STRATA_DEVICE_SOFTWARE_GPU,   /* a GPU that a CPU plays (lavapipe): for correctness */
    STRATA_DEVICE_CPU,            /* a CPU behind a driver (PoCL, Intel) */
    STRATA_DEVICE_INTEGRATED_GPU, /* shares the host's memory */
    STRATA_DEVICE_DISCRETE_GPU,
    STRATA_DEVICE_ACCELERATOR /* a vendor's plugin */
} strata_device_class;

typedef struct strata_device_info {
    char id[32];                             /* "opencl:0", "opencl:0.1" (a sub-device), "vulkan:0", "host"     */
    char backend[16];                        /* "opencl", "vulkan", "host"                                      */
    char name[128], vendor[64], driver[128]; /* as the driver says them                                    */
    strata_device_class device_class;
    uint64_t memory_bytes;         /* the device's memory; for CPUs the host's                        */
    uint64_t max_allocation_bytes; /* largest single buffer                                           */
    uint64_t max_range_bytes;      /* largest range that one kernel binding may span                  */
    uint32_t compute_units;        /* cores, SMs; 0 when the driver does not say                      */
    uint32_t max_workgroup;        /* work-items in a work-group; 1 on the host                       */
    uint64_t local_bytes;          /* work-group (shared) memory                                      */
    uint32_t vector_width;         /* preferred f32 lanes of a CPU; 1 elsewhere                       */
    bool unified_memory;           /* the host's memory is the device's                               */
    uint32_t dtypes;               /* bit (1 << strata_dtype): storage that kernels can use            */
    char skipped[256];             /* why the device cannot be opened; "" when it can                 */
} strata_device_info;

STRATA_API const char *strata_device_class_name(strata_device_class device_class); /* "cpu", "discrete-gpu", ... */

/* Every device of every backend, those that cannot be opened too (`skipped` says why); a backend without loader or driver is
 * one row with id "opencl" or "vulkan" and a reason. The host is always there; the device "null", which computes
 * nothing, can be opened and is never listed. Caller frees with strata_devices_free.
 * Thread: one at a time in a process, with strata_device_open: drivers start up in here, and not all can do it twice at
 * once. */
STRATA_API STRATA_MUST_USE strata_status strata_devices_list(strata_device_info **out_devices, int *out_n, strata_error *err);
STRATA_API void strata_devices_free(strata_device_info *devices);

typedef struct strata_device_options {
    bool fast;             /* allow choices that change last bits (CLBlast, split-K by time); default: deterministic */
    bool no_tune;          /* take the default kernels, read and write no tuning file                                */
    bool no_cache;         /* keep no compiled kernels on disk                                                       */
    const char *cache_dir; /* NULL: $XDG_CACHE_HOME/strata, else ~/.cache/strata; borrowed during the call           */
    /* A wait fails with TIMEOUT, and the device counts as lost, when nothing that was submitted has ended for so many seconds:
     * 0.001..1e9; 0 means 600. One submission is a whole program, a training step for instance. Vulkan only: OpenCL has no wait
     * with a limit, and the host runs programs in the caller. */
    double stall_seconds;
} strata_device_options;

/* Opens the device that `which` names: an id ("opencl:0", "host"), a backend and part of a name ("opencl:intel"), part of a
 * name
 * ("radeon"), or NULL for the best one (highest class, then most memory). opts may be NULL. Fails: UNAVAILABLE with the list of
 * devices there are. Thread: a device and all made on it belong to one thread at a time. */
STRATA_API STRATA_MUST_USE strata_status strata_device_open(const char *which, const strata_device_options *opts,
                                                            strata_device **out_device, strata_error *err);
STRATA_API void strata_device_close(strata_device *device); /* after all made on it is destroyed; NULL is fine */
STRATA_API const strata_device_info *strata_device_get_info(const strata_device *device);

/* What the device has been asked for since it was opened; a step that replays adds to launches and waits only. */
typedef struct strata_device_counters {
    uint64_t allocations;     /* device buffers made                                     */
    uint64_t allocated_bytes; /* bytes in buffers now                                */
    uint64_t compilations;    /* kernels, pipelines, programs built                     */
    uint64_t launches;        /* kernels or nodes submitted                              */
    uint64_t submissions;     /* programs run                                            */
    uint64_t waits;           /* times the host blocked on the device                    */
    uint64_t upload_bytes, download_bytes;
} strata_device_counters;
STRATA_API strata_device_counters strata_device_get_counters(const strata_device *device);

#ifdef __cplusplus
}
#endif
#endif
