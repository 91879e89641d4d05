/* SPDX-License-Identifier: Apache-2.0
 *
 * Code that the kernel devices (OpenCL, Vulkan) share. It converts a piece of a graph to a list of kernel launches with arenas,
 * offsets and numbers of work-groups, so that a backend only creates kernel objects, records the list and submits it.
 *     strata_kernel_limits  what the device can do, filled in by the backend when it opens the device
 *     strata_kernel_list    the launches of one piece, in order, with the barriers that they need
 *     strata_cache_*        compiled kernels on disk (cache.c)
 *     strata_tuner          finds the fastest of several kernels on this device (tuner.c)
 *     strata_checks         finds kernels that compute wrongly on this device (check.c)
 * Nothing here depends on OpenCL or Vulkan: a backend stores the API's handles in its own array, with the list's indices. */
#ifndef STRATA_BACKENDS_KERNEL_H
#define STRATA_BACKENDS_KERNEL_H

#include "core/graph/launch.h"
#include "core/run/device.h"
#include "shaders/shaders.h"

typedef struct strata_tuner strata_tuner;
typedef struct strata_checks strata_checks;

/* ---- what a device can do ---- */
/* Each hardware thread of Intel's GPUs has 128 registers of 32 bytes and runs at least 8 work-items. */
enum { STRATA_INTEL_ITEM_REGISTERS = 128 };

/* The operand sizes of a matrix unit: one instruction of a subgroup adds the product of an m x k and a k x n matrix of
 * 16-bit floats to an f32 matrix. m is 0 if there are no matrix units. */
typedef struct strata_matrix_unit {
    uint32_t m, n, k;
} strata_matrix_unit;

typedef struct strata_kernel_limits {
    strata_device_class device_class;
    /* The device compiles OpenCL C, so the families written in it (shaders/cpu/) can be used. */
    bool opencl_c;
    /* Starting a work-group on another core costs nothing (see the sequences of opencl/). */
    bool cheap_groups;
    /* strata_device_options.fast: kernels that change last bits are allowed. */
    bool fast;
    /* strata_device_options.direct: convolutions are summed directly, not by Winograd's algorithm. */
    bool direct;
    /* Bit (1 << dtype) is set for each strata_dtype that kernels can load and store. */
    uint32_t dtypes;
    /* The most work-items in a work-group, and along x and y. */
    uint32_t max_workgroup;
    uint32_t max_local[2];
    /* The most work-groups of one launch along x and y; UINT32_MAX: no limit. */
    uint32_t max_groups[2];
    /* Bytes of memory that the work-items of a work-group share. */
    uint64_t local_bytes;
    /* The bytes of the second-level cache of a CPU core, if the driver reports them. */
    uint64_t cache_bytes;
    /* At least 1. */
    uint32_t compute_units;
    /* The number of f32 elements in a vector of a CPU. 1 for other devices. */
    uint32_t vector_width;
    uint64_t max_range_bytes;
    /* The most 4-byte values that a work-item can have in registers; 0: no limit. */
    uint32_t item_registers;
    /* Matrix units for operands of f16 and of bf16, and how many work-items a subgroup that uses them has; 0: none. */
    strata_matrix_unit f16_unit, bf16_unit;
    uint32_t unit_lanes;
    /* A kernel without source, for which the backend calls a library (CLBlast); NULL: none. */
    const strata_shader *library;
    /* The device is core number `core` of several that compute at the same time and share memory. `meeting`: the address of the
     * memory in which they meet for collectives (shaders/cpu/cores.h); 0: they do not meet. */
    uint64_t meeting;
    uint32_t core;
    /* The kernels that compute wrongly on this device; NULL: kernels are not checked. */
    strata_checks *checks;
} strata_kernel_limits;

/* Whether the device's matrix units multiply matrices of the dtype. They multiply f32 by splitting each value into two
 * f16, only with `fast`. */
bool strata_units_multiply(const strata_kernel_limits *limits, strata_dtype dtype);

/* ---- what is compiled ---- */
/* One kernel object to create: an OpenCL kernel or a Vulkan pipeline. The kernels of a list are different from each other. */
typedef struct strata_kernel {
    const strata_shader *shader;
    /* The value of shader->constants[i], with defaults. */
    uint32_t constants[STRATA_SHADER_MAX_CONSTANTS];
} strata_kernel;

/* ---- what is recorded ---- */
/* The bytes of an arena that a launch may read or write. */
typedef struct strata_kernel_range {
    /* Index in piece->arenas; piece->n_arenas: the list's scratch buffer. */
    int arena;
    int64_t begin, end;
} strata_kernel_range;

typedef struct strata_kernel_launch {
    /* Index in list->kernels. */
    int kernel;
    /* The node that the launch belongs to, for messages and traces. */
    const strata_tensor *node;

    /* The buffers; offsets within them are arguments of the kernel, so whole arenas can be bound. */
    int n_buffers;
    strata_kernel_range buffers[STRATA_LAUNCH_BUFFERS];
    /* Bit i is set if the launch writes buffers[i]; it may read it too. */
    unsigned writes;

    /* The scalar arguments, 4 bytes each: first the offset of each buffer, in elements of its dtype, then the kernel's own. */
    int n_words;
    strata_word words[STRATA_LAUNCH_WORDS];

    /* The number of work-items in a group, equal to the constants LOCAL_X and LOCAL_Y. */
    uint32_t local[2];
    /* Each at least 1 and at most limits.max_groups. */
    uint32_t groups[2];
    /* A barrier is needed before the launch: it reads bytes that a launch since the last barrier wrote, or it writes bytes that
     * such a launch read or wrote. */
    bool barrier_before;
} strata_kernel_launch;

typedef struct strata_kernel_list {
    strata_kernel *kernels;
    int n_kernels;
    strata_kernel_launch *launches;
    int n_launches;
    /* The size of the scratch buffer, which the program owns; 0: none. Its arena index is piece->n_arenas. */
    int64_t scratch_bytes;
} strata_kernel_list;

/* Makes the launches of every node of the piece: by the first family that fits (families.def), else by op->lower. `tuner`
 * chooses among a family's candidates; NULL: the first candidate is used. Copies whose source and destination are the same
 * bytes are left out.
 * Fails: UNSUPPORTED naming the node and what is missing; OUT_OF_MEMORY. The list borrows the piece's nodes. */
strata_status strata_kernel_list_create(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_piece *piece,
                                        strata_kernel_list *out_list, strata_error *err);
void strata_kernel_list_finish(strata_kernel_list *list); /* a zeroed list is fine; leaves it zeroed */

/* The name of a launch in a trace: its node and its kernel. */
const strata_trace_label *strata_kernel_trace_label(strata_trace *trace, const strata_kernel_list *list, int launch);

/* strata_device_api.supports: whether there is a kernel for the node and its dtypes on a device of these limits. */
strata_support strata_kernel_supports(const strata_kernel_limits *limits, const strata_tensor *node, const char **reason);

/* ---- compiled kernels on disk ---- */
/* The cache folder of an opened device. If the folder cannot be created or written, all functions do nothing. */
typedef struct strata_cache {
    /* "": the cache is off. */
    char dir[512];
    char backend[16], device[128], driver[128];
} strata_cache;

/* dir: opts->cache_dir, else $XDG_CACHE_HOME/strata, else ~/.cache/strata; off with opts->no_cache. opts may be NULL. */
void strata_cache_open(strata_cache *cache, const strata_device_options *opts, const strata_device_info *info);
/* Returns the data that was stored under the key, or NULL if there is none. The key may be any bytes and must identify
 * what was compiled completely (source, constants). A file of another version, device or driver, or a damaged file, is
 * removed, and NULL is returned. The caller frees the result with free(). */
void *strata_cache_load(const strata_cache *cache, const void *key, size_t key_bytes, size_t *out_bytes);
/* Writes a temporary file and renames it, so that readers see a complete file or none. Failures are ignored: the next start
 * compiles again. */
void strata_cache_store(const strata_cache *cache, const void *key, size_t key_bytes, const void *data, size_t bytes);

/* ---- tuning ---- */
/* Times candidates on `device` with the device's own functions: for each candidate it compiles a piece that has only
 * the node, runs it on scratch buffers, and compares its result with that of the first candidate. The fastest
 * candidates are stored in a text file in the cache's folder. The backend's compile only passes the tuner to
 * strata_kernel_list_create. Returns NULL with opts->no_tune, when memory runs out, or when the device class has no
 * candidates: then the first candidate is always used. */
strata_tuner *strata_tuner_create(strata_device *device, const strata_kernel_limits *limits, const strata_cache *cache,
                                  const strata_device_options *opts);
/* Whether the piece that is being compiled is only a candidate that the tuner measures and then destroys. */
bool strata_tuner_is_trying(const strata_tuner *tuner);
void strata_tuner_destroy(strata_tuner *tuner); /* before the device is closed; NULL is fine */

/* ---- checking ---- */
/* Checks whether the device's kernels compute correctly (check.c). NULL with opts->trust, or when memory runs out. The
 * backend stores the result in its limits. */
strata_checks *strata_checks_create(strata_device *device, const strata_cache *cache, const strata_device_options *opts);
void strata_checks_destroy(strata_checks *checks); /* before the device is closed; NULL is fine */
/* A program, and how its nodes run. */
typedef struct strata_step_run {
    strata_device *device;
    const strata_piece *piece;
    strata_program *program;
    const strata_kernel_list *list;
    /* Runs those nodes of the piece for which wanted[id] is set, in the program's order and with the program's kernels,
     * and waits. */
    strata_status (*run)(strata_program *program, int slot, const bool *wanted, strata_error *err);
} strata_step_run;
/* Implements strata_device_api.check. */
strata_status strata_checks_run(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_step_run *step,
                                const strata_check_request *request, strata_error *err);

#endif
