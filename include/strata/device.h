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
    /* "opencl:0", "opencl:0.1" (a sub-device), "vulkan:0", "host", "systolic:0" (a plugin's). */
    char id[32];
    /* "opencl", "vulkan", "host", or a plugin's name. */
    char backend[16];
    /* What the driver reports. */
    char name[128], vendor[64], driver[128];
    strata_device_class device_class;
    /* The device's memory; for CPUs the host's. */
    uint64_t memory_bytes;
    /* The bytes of the largest buffer. */
    uint64_t max_allocation_bytes;
    /* The bytes of the largest range that a kernel can bind. */
    uint64_t max_range_bytes;
    /* Cores, SMs; 0 when the driver does not say. */
    uint32_t compute_units;
    /* Work-items in a work-group; 1 on the host. */
    uint32_t max_workgroup;
    /* work-group (shared) memory. */
    uint64_t local_bytes;
    /* Preferred f32 lanes of a CPU; 1 elsewhere. */
    uint32_t vector_width;
    /* The host's memory is the device's. */
    bool unified_memory;
    /* Bit (1 << strata_dtype): storage that kernels can use. */
    uint32_t dtypes;
    /* Why the device cannot be opened; "" when it can. */
    char skipped[256];
    /* Vulkan: matrix units that products of 16-bit operands use, with the m, n and k of one multiplication:
     * "f16 16x16x16, bf16 16x16x16". "": none. */
    char matrix_units[64];
} strata_device_info;

STRATA_API const char *strata_device_class_name(strata_device_class device_class); /* "cpu", "discrete-gpu", ... */

/* Loads a vendor's plugin (strata/plugin.h) into this process, for its life; from then on its devices are listed and opened as
 * all others, as NAME:0, NAME:1, ...
 *   text   FILE[,key=value[,key=value ...]]; which options there are is the plugin's
 * A file that is loaded already is not loaded again. Plugins that STRATA_PLUGINS names (several texts, separated by colons) and
 * those of the folders $XDG_DATA_HOME/strata/plugins and PREFIX/lib/strata/plugins need no call; one that cannot be used is a
 * row with the reason.
 * Fails, with the file's name: UNAVAILABLE where it is not there; INVALID where it is no plugin, every user may write the file
 * or its folder, or an option is wrong; UNSUPPORTED where it was built for another version (both are named); INTERNAL where it
 * breaks a rule of plugin.h; and as the plugin itself says. Thread: any. */
STRATA_API STRATA_MUST_USE strata_status strata_plugin_load(const char *text, strata_error *err);

/* Takes the messages of all plugins of the process, from any thread. NULL, as at the start: they are dropped. */
typedef void strata_plugin_log(const char *message);
STRATA_API void strata_plugin_set_log(strata_plugin_log *take);

/* Every device of every backend, those that cannot be opened too (`skipped` says why: OpenCL's and Vulkan's devices are opened
 * and closed again to know); a backend without loader or driver is one row with id "opencl" or "vulkan" and a reason. The host
 * is always there; the device "null", which computes nothing, can be opened and is never listed. Caller frees with
 * strata_devices_free.
 * Thread: one at a time in a process, with strata_device_open: drivers start up in here, and not all can do it twice at
 * once. */
STRATA_API STRATA_MUST_USE strata_status strata_devices_list(strata_device_info **out_devices, int *out_n, strata_error *err);
STRATA_API void strata_devices_free(strata_device_info *devices);

/* What a device is doing while it gets its kernels: when a model's step is compiled. */
typedef struct strata_compile_progress {
    /* The device's id. */
    const char *device;
    /* False: `done` of `total` kernels are compiled. Drivers that compile all at once go from 0 to `total`, and some compile on
     * in the first step. True: of the ways to compute a node, `done` of `total` were timed, as no file says yet which one is
     * fastest. */
    bool tuning;
    int done, total;
} strata_compile_progress;
/* Called in the thread that compiles. progress: borrowed during the call. */
typedef void (*strata_compile_callback)(const strata_compile_progress *progress, void *user);

/* Called in the thread that compiles or trains, with what went wrong but ends nothing. message: borrowed during the call. */
typedef void (*strata_warning_callback)(const char *message, void *user);

/* A value that a node of the op print shows (strata/ops.h). All of it is borrowed during the call. */
typedef struct strata_printed {
    /* The node's name, and the device's id. */
    const char *name, *device;
    /* Which of a strategy's replicas or workers the device is: "worker 1", "replica 0", "worker 1, replica 3"; "" where it is
     * the only one. */
    const char *place;
    /* Which run of its program it is, from 0. */
    uint64_t run;
    strata_dtype dtype;
    strata_shape shape;
    /* The elements. */
    const void *data;
    /* Of the elements that are numbers and finite; 0 where none is. */
    double least, mean, largest;
    int64_t n_nan, n_infinite;
    /* All of it in a line: `logits (64,10) f32 [0.12, -3, 1.5, ...] -8.1..7.9, mean 0.05`, behind the place, if there is one,
     * and the numbers of NaNs and infinities, if there are some. */
    const char *text;
} strata_printed;
/* Called in the thread that waits for the run. Values of a run come in the order of their nodes, runs of a program one after
 * the other. */
typedef void (*strata_print_callback)(const strata_printed *printed, void *user);

typedef struct strata_device_options {
    /* Allow choices that change last bits: CLBlast on OpenCL, and on Vulkan devices with matrix units (strata_device_info)
     * matrix products of f32 through them. For those each operand is split into two f16, and three of the four products of the
     * parts are summed in f32, so that about 22 of f32's 24 bits count. The error is a few 2^-24 of the sum of |a b|, as
     * without the split, for values down to 2^-17 of the largest in the tile's rows (columns); smaller ones are off by 2^-38 of
     * it (shaders/README.md has the bound). An infinity makes NaN of its row's or column's results. Results may then differ
     * from one start to the next, as what is taken was timed. Default: deterministic, f32 by f32's own multiplications.
     * Products of f16 and bf16, whose sums are f32 either way, use matrix units without it. Where a device has nothing that
     * this allows, on_warning is told so once. */
    bool fast;
    /* Sum the products of convolutions directly. Default: on CPUs behind OpenCL those of 3 x 3 filters with stride 1 are
     * computed by Winograd's F(4x4, 3x3), with a quarter of the multiplications and about 2.4 times the rounding error (root
     * mean square against double; shaders/README.md has the bound). */
    bool direct;
    /* Take the default kernels, read and write no tuning file. */
    bool no_tune;
    /* Keep no compiled kernels on disk. */
    bool no_cache;
    /* NULL: $XDG_CACHE_HOME/strata, else ~/.cache/strata; borrowed during the call. */
    const char *cache_dir;
    /* A wait fails with TIMEOUT, and the device counts as lost, when nothing that was submitted has ended for so many seconds:
     * 0.001..1e9; 0 means 600, or what a plugin says. One submission is a whole program, a training step for instance. Vulkan
     * and plugins only: OpenCL has no wait with a limit, and the host runs programs in the caller. */
    double stall_seconds;
    /* What the device cannot run, the host runs for it: values that both need are copied to and fro in each run, which waits
     * for the copies (strata_device_counters has how many). Default: a node that the device cannot run is an error, which lists
     * all of them. */
    bool fallback_to_host;
    /* Called before kernels are compiled and after, which may take seconds once; the library itself prints nothing. NULL:
     * none. */
    strata_compile_callback on_compile;
    /* Kernels of OpenCL's and Vulkan's drivers are compared with the reference on first use, and what was found is kept beside
     * the compiled kernels. One that computes wrongly is replaced by another, and the node by other ops or by the host
     * (fallback_to_host); where nothing is right, compiling fails with UNSUPPORTED. Set to take the driver's word instead. */
    bool trust;
    /* A kernel was replaced as it computes wrongly, a device that was right before computes wrongly now, or a kernel compiles
     * for longer than compile_notice_seconds. NULL: none. */
    strata_warning_callback on_warning;
    /* OpenCL and Vulkan: how long a driver may compile one program before a warning names it, and before compiling fails with
     * TIMEOUT: 0.01..1e9 seconds; 0 means 120 for the second, and 20 or a sixth of the second, whatever is less, for the first.
     * A program of n kernels has n times the second, but at most 5 times. */
    double compile_notice_seconds, compile_seconds;
    /* Asked about 20 times a second while a driver compiles; if it returns true, compiling fails with INTERRUPTED. NULL: never.
     * Nothing stops a driver's compiler: behind INTERRUPTED or TIMEOUT a thread stays in it, the device compiles nothing more,
     * closing it frees nothing of the driver's, and the process should end by _exit, as drivers may crash in exit. */
    bool (*is_interrupted)(void *user);
    /* Takes what nodes of the op print show. NULL: nothing is shown, and they cost nothing. */
    strata_print_callback on_print;
    /* For on_compile, on_warning, is_interrupted and on_print. */
    void *user;
} strata_device_options;

/* Opens the device that `which` names: an id ("opencl:0", "host"), a backend and part of a name ("opencl:intel"), part of a
 * name ("radeon"), or NULL for the best one that opens (highest class, then most memory). opts may be NULL. Fails: UNAVAILABLE
 * with the list of devices there are. Thread: a device and all made on it belong to one thread at a time. */
STRATA_API STRATA_MUST_USE strata_status strata_device_open(const char *which, const strata_device_options *opts,
                                                            strata_device **out_device, strata_error *err);
STRATA_API void strata_device_close(strata_device *device); /* after all made on it is destroyed; NULL is fine */
STRATA_API const strata_device_info *strata_device_get_info(const strata_device *device);

/* The place of a device among the cores of a system (a TPU board, a pod's host) that have an interconnect of their own. */
typedef struct strata_topology {
    /* Cores of one system have the same text: "board 0". */
    char system[64];
    /* How many cores the system has, and the device's number among them. Sums over cores are folded in the order of these
     * numbers. */
    int n_cores, core;
    /* The cores as a grid of `rank` (at most 4) dimensions, and the device's place in it; rank 0: not known. */
    int rank, dims[4], coordinates[4];
} strata_topology;
/* NULL: the device is not one core of several. Borrowed from the device. */
STRATA_API const strata_topology *strata_device_get_topology(strata_device *device);

/* One of a device's memories. */
typedef struct strata_memory_space {
    /* "HBM", "on-chip". */
    char name[32];
    uint64_t bytes;
    /* Variables lie in it; else the device uses it inside of programs. */
    bool buffers;
    /* What the device reads or writes at best; 0: not known. */
    double bytes_per_second;
} strata_memory_space;

/* What an open device can do that not every device can. */
typedef struct strata_device_features {
    /* Training steps that one call of the device takes; 1: each is a call of its own; INT_MAX: any number. */
    int steps_per_call;
    /* The cores of its system exchange values inside of programs; of which dtypes they add up, bit (1 << strata_dtype). */
    bool collectives;
    uint32_t sum_dtypes;
    /* Copies that return before they are done; copies from other devices of its plugin that do not pass through the host. */
    bool transfers, device_copies;
    /* 0: the device does not say. */
    int n_spaces;
    strata_memory_space spaces[8];
} strata_device_features;
STRATA_API strata_device_features strata_device_get_features(strata_device *device);

/* What the device has been asked for since it was opened; a step that replays adds to launches and waits only. */
typedef struct strata_device_counters {
    /* device buffers made. */
    uint64_t allocations;
    /* Bytes that buffers have now. */
    uint64_t allocated_bytes;
    /* Kernels, pipelines, programs built. */
    uint64_t compilations;
    /* Kernels or nodes submitted. */
    uint64_t launches;
    /* How many programs were run. */
    uint64_t submissions;
    /* Times the host blocked on the device. */
    uint64_t waits;
    uint64_t upload_bytes, download_bytes;
    /* Bytes that came from other devices of the same plugin, past the host. */
    uint64_t device_copy_bytes;
    /* Nodes that the host ran for the device (fallback_to_host), and the copies between both for them. */
    uint64_t host_nodes, copies, copy_bytes;
} strata_device_counters;
STRATA_API strata_device_counters strata_device_get_counters(const strata_device *device);

#ifdef __cplusplus
}
#endif
#endif
