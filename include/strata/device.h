/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: listing those of the machine, and opening one. The table of functions that a backend fills in is in
 * core/run/device.h. */
#ifndef STRATA_DEVICE_H
#define STRATA_DEVICE_H

#include "strata/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In ascending order of preference: without a name, strata_device_open takes a device of the last class that there is. */
typedef enum strata_device_class {
    STRATA_DEVICE_HOST = 0,       /* built in, always there */
    STRATA_DEVICE_SOFTWARE_GPU,   /* a driver that emulates a GPU on the CPU (lavapipe), for tests */
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
    /* The bytes of the largest part of a buffer that a kernel can bind. */
    uint64_t max_range_bytes;
    /* Cores of a CPU, SMs or compute units of a GPU; 0 when the driver does not report them. */
    uint32_t compute_units;
    /* The most work-items in a work-group; 1 on the host. */
    uint32_t max_workgroup;
    /* Bytes of memory that the work-items of a work-group share. */
    uint64_t local_bytes;
    /* Of a CPU: how many f32 elements its preferred vectors have. 1 for other devices. */
    uint32_t vector_width;
    /* The device uses the host's memory. */
    bool unified_memory;
    /* Bit (1 << dtype) is set for each strata_dtype that kernels can load and store. */
    uint32_t dtypes;
    /* Why the device cannot be opened; "" when it can. */
    char skipped[256];
    /* Vulkan: matrix units that products of 16-bit operands use, with the m, n and k of one multiplication:
     * "f16 16x16x16, bf16 16x16x16". "": none. */
    char matrix_units[64];
} strata_device_info;

STRATA_API const char *strata_device_class_name(strata_device_class device_class); /* "cpu", "discrete-gpu", ... */

/* Loads a vendor's plugin (strata/plugin.h). It stays loaded until the process ends. Its devices are then listed and opened
 * like all others, under the ids NAME:0, NAME:1, ...
 *   text   FILE[,key=value[,key=value ...]]; the plugin defines which keys there are
 * A file that is loaded already is not loaded again. The library loads by itself the plugins that the variable STRATA_PLUGINS
 * names (several texts, separated by colons) and those in the folders $XDG_DATA_HOME/strata/plugins and
 * PREFIX/lib/strata/plugins. If one of them cannot be used, strata_devices_list has a row with the reason.
 * Fails, with the file's name: UNAVAILABLE where there is no such file; INVALID where the file is no plugin, every user may
 * write the file or its folder, or an option is wrong; UNSUPPORTED where the plugin was built for another version (the message
 * has both); INTERNAL where the plugin breaks a rule of plugin.h; and with the plugin's own errors. Thread: any. */
STRATA_API STRATA_MUST_USE strata_status strata_plugin_load(const char *text, strata_error *err);

/* Sets the function that receives the log messages of all plugins of the process. It is called from any thread. NULL, the
 * initial value: the messages are dropped. */
typedef void strata_plugin_log(const char *message);
STRATA_API void strata_plugin_set_log(strata_plugin_log *take);

/* Lists every device of every backend. A device that cannot be opened is listed too, and `skipped` has the reason; to find it,
 * the devices of OpenCL and Vulkan are opened and closed again. A backend whose loader or driver is missing is one row with the
 * id "opencl" or "vulkan" and the reason. The host is always listed. The device "null", which computes nothing, can be opened
 * but is never listed. The caller frees the list with strata_devices_free.
 * Thread: any. Calls of this function and of strata_device_open wait for each other, since not all drivers can be initialized
 * by two threads at once. */
STRATA_API STRATA_MUST_USE strata_status strata_devices_list(strata_device_info **out_devices, int *out_n, strata_error *err);
STRATA_API void strata_devices_free(strata_device_info *devices);

/* How far the compilation of kernels is, for example while a model's step is compiled. */
typedef struct strata_compile_progress {
    /* The device's id. */
    const char *device;
    /* False: `done` of `total` kernels are compiled. With drivers that compile all kernels in one call, `done` goes from 0
     * directly to `total`; some drivers finish compiling in the first step. True: `done` of `total` alternative kernels were
     * timed, to find the fastest for each node. The results are saved in a file, so this is done once for each device and
     * driver. */
    bool tuning;
    int done, total;
} strata_compile_progress;
/* Called in the thread that compiles. progress: borrowed during the call. */
typedef void (*strata_compile_callback)(const strata_compile_progress *progress, void *user);

/* Called in the thread that compiles or trains, with a warning: a problem after which the program goes on. message: borrowed
 * during the call. */
typedef void (*strata_warning_callback)(const char *message, void *user);

/* A value that a node of the op print reports (strata/ops.h). All pointers are borrowed during the call. */
typedef struct strata_printed {
    /* The node's name, and the device's id. */
    const char *name, *device;
    /* The replica or worker of a strategy to which the device belongs: "worker 1", "replica 0", "worker 1, replica 3"; "" where
     * there is only one. */
    const char *place;
    /* The number of the program's run, from 0. */
    uint64_t run;
    strata_dtype dtype;
    strata_shape shape;
    /* The elements. */
    const void *data;
    /* The smallest element, the mean and the largest element, of those that are finite; 0 where none is. */
    double least, mean, largest;
    int64_t n_nan, n_infinite;
    /* The value as one line: `logits (64,10) f32 [0.12, -3, 1.5, ...] -8.1..7.9, mean 0.05`. The line begins with the place,
     * unless that is "", and ends with the numbers of NaNs and infinities, if there are any. */
    const char *text;
} strata_printed;
/* Called in the thread that waits for the run. The values of a run are reported in the order of their nodes, and the runs of a
 * program in the order in which they were submitted. */
typedef void (*strata_print_callback)(const strata_printed *printed, void *user);

typedef struct strata_device_options {
    /* Allow kernels whose results may differ in the last bits from run to run, because the fastest of several kernels is
     * chosen by measuring. These are CLBlast on OpenCL; matrix products whose sums are divided in the way that was measured
     * to be fastest; and, on Vulkan devices with matrix units (strata_device_info), products of f32 that use these units.
     * For the latter each operand is split into two f16 numbers, and three of the four products of the parts are summed in
     * f32, which keeps about 22 of f32's 24 bits. The error is a few 2^-24 of the sum of |a b|, as without the split, for
     * values down to 2^-17 of the largest one in the tile's rows (columns); the error of smaller values is 2^-38 of that
     * largest one (shaders/README.md has the bound). An infinity makes the results of its row or column NaN. Products of
     * f16 and bf16 use matrix units without this option, because their sums are f32 in any case. If the option changes
     * nothing on a device, on_warning is called once. Default: false: results are deterministic, and f32 is multiplied as
     * f32. */
    bool fast;
    /* Sum the products of convolutions directly. Default: on CPUs behind OpenCL those of 3 x 3 filters with stride 1 are
     * computed by Winograd's F(4x4, 3x3), with a quarter of the multiplications and about 2.4 times the rounding error (root
     * mean square against double; shaders/README.md has the bound). */
    bool direct;
    /* Use the default kernels; do not time alternatives, and neither read nor write the tuning file. */
    bool no_tune;
    /* Do not store compiled kernels on disk. */
    bool no_cache;
    /* NULL: $XDG_CACHE_HOME/strata, else ~/.cache/strata; borrowed during the call. */
    const char *cache_dir;
    /* How long a driver or plugin may take for one program, for example a training step, and for each call that submits,
     * copies, allocates or frees: 0.001..1e9 seconds; 0 means 600, or the plugin's own default. A wait that the driver can end
     * fails with TIMEOUT, and the device counts as lost (Vulkan, plugins, and OpenCL of NVIDIA). All other calls cannot be
     * ended, and are reported by strata_driver_options.on_failure. The host runs programs in the calling thread, without a
     * limit. */
    double stall_seconds;
    /* The host runs the nodes that the device cannot run. In each run, values that both sides need are copied between them, and
     * the run waits for these copies (strata_device_counters counts them). Default: a node that the device cannot run is an
     * error, which lists all such nodes. */
    bool fallback_to_host;
    /* Called before and after kernels are compiled, since compiling may take seconds. The library itself prints nothing. NULL:
     * none. */
    strata_compile_callback on_compile;
    /* Skip the check of kernels. By default, each program that is made for an OpenCL or Vulkan device runs once on generated
     * inputs: what each of its kernels writes, at the program's own shapes, is compared with the op's reference, all launches
     * together with the kernels one by one. A kernel that is wrong twice is replaced by another kernel, by other ops, or by the
     * host (fallback_to_host). If nothing computes correctly, compiling fails with UNSUPPORTED. Kernels that were wrong are
     * listed in a file beside the compiled kernels; they are tried again at the next start, and, if they were wrong at two
     * starts, after a month. The nodes of a plugin or a PJRT device cannot be compared one by one: a new program of theirs runs
     * once beside the same program on the host, and if they differ it is refused, or the host runs it (fallback_to_host). */
    bool trust;
    /* Ignore the kernels that earlier starts found to be wrong, and forget them. */
    bool check_again;
    /* Called when a kernel was replaced because it computes wrongly, when a device that computed correctly before computes
     * wrongly now, and when a kernel has been compiling for longer than compile_notice_seconds. NULL: none. */
    strata_warning_callback on_warning;
    /* 0.01..1e9 seconds: after compile_notice_seconds of compiling one program a warning names it (0: 20 or compile_seconds /
     * 6, whichever is less), and after compile_seconds compiling fails with TIMEOUT (0: 120). On OpenCL and Vulkan the latter
     * limit is multiplied by n for a program of n kernels, but at most by 5. A plugin compiles a whole program in one call,
     * which may take compile_seconds (0: 600). */
    double compile_notice_seconds, compile_seconds;
    /* Called about 20 times a second while a driver compiles. If it returns true, compiling fails with INTERRUPTED. NULL:
     * compiling is never interrupted. A driver's compiler itself cannot be stopped: after INTERRUPTED or TIMEOUT a thread is
     * still running in it, the device compiles nothing more, closing the device frees no objects of the driver, and the process
     * should end by _exit, since drivers may crash in exit. */
    bool (*is_interrupted)(void *user);
    /* Receives the values that nodes of the op print report. NULL: these nodes are removed from programs and cost nothing. */
    strata_print_callback on_print;
    /* Passed to on_compile, on_warning, is_interrupted and on_print. */
    void *user;
} strata_device_options;

/* Called when a call of a driver or plugin hangs or has called exit, so that no function can return an error. status: TIMEOUT
 * or DEVICE_LOST. The message names the device, what the call does, its limit and the option for more time; it is borrowed
 * during the call. The library does not know how to go on, so the callback should save what is in the host's memory and end the
 * process by _exit. It may use everything that the thread in the driver uses, since that thread waits until the callback has
 * returned, but must call no function of the library that may use the device. If the callback returns, the process goes on
 * waiting. Thread: a thread of the library, or for exit the thread that called it. */
typedef void (*strata_driver_callback)(strata_status status, const char *message, void *user);

/* Options for all drivers and plugins. They belong to the process, as drivers do. */
typedef struct strata_driver_options {
    /* How long a driver may take to load, to list its devices, to open or to close a device, 0.01..1e9 seconds; 0 means 60. If
     * loading or opening takes longer, it fails with TIMEOUT, and a list has the reason in the device's row. */
    double seconds;
    /* NULL: a call that hangs is a warning (strata_device_options.on_warning), and nothing is called at exit. */
    strata_driver_callback on_failure;
    /* Passed to on_failure. */
    void *user;
} strata_driver_options;
/* Sets the options of the process. NULL: the defaults. Fails: INVALID. Thread: any. */
STRATA_API STRATA_MUST_USE strata_status strata_drivers_configure(const strata_driver_options *opts, strata_error *err);
/* Whether a call of a driver was abandoned because it hung, so that a thread may still be in it. The process should then end by
 * _exit, since exit may wait for that thread or crash. */
STRATA_API bool strata_drivers_hang(void);

/* Opens the device that `which` names: an id ("opencl:0", "host"), a backend and part of a name ("opencl:intel"), or part of a
 * name ("radeon"). NULL: the best device that can be opened, that is the highest class, then the most memory. opts may be NULL.
 * Fails: UNAVAILABLE, with a list of the devices of the machine, and in a child of fork whose parent has started the driver.
 * Thread: any. Several threads may use one device at once, each with models, executables and variables of its own: calls wait
 * for each other where they must. The host computes for several threads at the same time. */
STRATA_API STRATA_MUST_USE strata_status strata_device_open(const char *which, const strata_device_options *opts,
                                                            strata_device **out_device, strata_error *err);
STRATA_API void strata_device_close(strata_device *device); /* after all objects on it were destroyed; NULL is fine */
STRATA_API const strata_device_info *strata_device_get_info(const strata_device *device);

/* The position of a device among the cores of a system, for example a TPU board, whose cores are connected with each other. */
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
    /* True: variables are stored in it. False: only programs use it, while they run. */
    bool buffers;
    /* The highest rate at which the device reads or writes it; 0: not known. */
    double bytes_per_second;
} strata_memory_space;

/* Optional features of an open device. */
typedef struct strata_device_features {
    /* How many training steps the device can run in one call; INT_MAX: any number. */
    int steps_per_call;
    /* collectives: the cores of the device's system exchange values inside of programs. sum_dtypes: bit (1 << dtype) is set for
     * each strata_dtype that they can add up. */
    bool collectives;
    uint32_t sum_dtypes;
    /* transfers: copies return before they are done. device_copies: copies from another device of the same plugin do not pass
     * through the host. */
    bool transfers, device_copies;
    /* How many of `spaces` are set; 0: the device does not report its memories. */
    int n_spaces;
    strata_memory_space spaces[8];
} strata_device_features;
STRATA_API strata_device_features strata_device_get_features(strata_device *device);

/* Counts of what the device has done since it was opened. Once its programs are compiled, a training step increases launches,
 * submissions, waits and the bytes of copies only: it allocates and compiles nothing. */
typedef struct strata_device_counters {
    /* How many buffers were allocated. */
    uint64_t allocations;
    /* Bytes of the buffers that are allocated now. */
    uint64_t allocated_bytes;
    /* How many kernels, pipelines and programs were compiled. */
    uint64_t compilations;
    /* How many kernels or nodes were submitted. */
    uint64_t launches;
    /* How many programs were run. */
    uint64_t submissions;
    /* How often the host waited for the device. */
    uint64_t waits;
    uint64_t upload_bytes, download_bytes;
    /* Bytes that were copied from other devices of the same plugin without passing through the host. */
    uint64_t device_copy_bytes;
    /* Nodes that the host ran for the device (fallback_to_host), and the copies between host and device for these nodes. */
    uint64_t host_nodes, copies, copy_bytes;
} strata_device_counters;
STRATA_API strata_device_counters strata_device_get_counters(const strata_device *device);

#ifdef __cplusplus
}
#endif
#endif
