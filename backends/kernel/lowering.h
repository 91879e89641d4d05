/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of backends/kernel: the launches of one node before memory is assigned, the families that replace an op's portable
 * kernels on a class of devices, and the choice among a family's candidates. Backends include kernel.h only. */
#ifndef STRATA_BACKENDS_KERNEL_LOWERING_H
#define STRATA_BACKENDS_KERNEL_LOWERING_H

#include "backends/kernel/kernel.h"
#include "core/base/text.h"
#include "core/op/copy.h"

/* ---- whole numbers ---- */
static inline int64_t strata_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline int64_t strata_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t strata_most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- launches ---- */
/* Fills an empty lowering (core/graph/launch.h) with the launches of `node` on a device with these limits: those of the first
 * family that fits, else those of op->lower. */
strata_status strata_lowering_run(strata_lowering *lowering, const strata_kernel_limits *limits, strata_tuner *tuner,
                                  const strata_tensor *node, strata_error *err);

/* Whether the device would end the loops of the launch before they are done: a GPU that is emulated on a CPU ends them
 * silently after 65,535 iterations of a work-item, which gives a wrong result. */
bool strata_launch_ends_early(const strata_kernel_limits *limits, const strata_launch *launch);

/* ---- families ---- */
/* An alternative implementation of an op. The family defines the meaning of the values; the name in the tuning file describes
 * them ("rows=14,groups=2"). */
typedef struct strata_candidate {
    char name[48];
    /* Whether it computes the same bits as the first candidate. Other candidates are used only with
     * strata_device_options.fast. */
    bool exact;
    int values[6];
} strata_candidate;

enum { STRATA_CANDIDATES = 8 };

typedef struct strata_family {
    /* "cpu/matmul". */
    const char *name;
    /* The name of the op that is lowered. */
    const char *op;
    bool (*fits)(const strata_kernel_limits *limits, const strata_tensor *node);
    /* Writes 1 to STRATA_CANDIDATES candidates for the node and returns how many. The first is used without tuning. NULL: there
     * is one, without values. */
    int (*candidates)(const strata_kernel_limits *limits, const strata_tensor *node, strata_candidate *out);
    strata_status (*lower)(const strata_kernel_limits *limits, const strata_tensor *node, const strata_candidate *candidate,
                           strata_lowering *lowering, strata_error *err);
} strata_family;

/* In order of preference: the first family that fits is used. Ends with NULL (families.def). */
extern const strata_family *const strata_families[];
/* The candidates of the family. */
int strata_family_candidates(const strata_kernel_limits *limits, const strata_family *family, const strata_tensor *node,
                             strata_candidate *out);

/* ---- families for OpenCL on CPUs ---- */
/* The number of f32 elements in the vectors that the kernels of shaders/cpu/ are compiled with: 16, 8 or 4. */
static inline int strata_cpu_lanes(const strata_kernel_limits *limits) {
    return limits->vector_width >= 16 ? 16 : limits->vector_width >= 8 ? 8 : 4;
}

/* Whether the device is a CPU behind OpenCL and the node f32. */
static inline bool strata_cpu_takes(const strata_kernel_limits *limits, const strata_tensor *node) {
    return limits->device_class == STRATA_DEVICE_CPU && limits->opencl_c && node->dtype == STRATA_DTYPE_F32;
}

/* Whether the kernels can count the elements of the node and of its first two operands, in 31 bits. */
bool strata_cpu_counts(const strata_tensor *node);
/* A launch of the kernel's variant for the device's vector width, in `groups` work-groups of one work-item. */
strata_launch strata_cpu_launch(const strata_kernel_limits *limits, const char *kernel, int64_t groups);

/* How a node is computed: by a candidate of a family or by the op's portable kernels. A family of f32 kernels can also
 * compute a node of f16 or bf16 (widen.c). */
typedef struct strata_way {
    /* NULL: the op's portable kernels. */
    const strata_family *family;
    bool widen;
    strata_candidate candidate;
} strata_way;

/* Chooses how a node is computed. The alternatives are tried in this order: the tuner's choice among the candidates of
 * the first family that fits, this family's other candidates, the candidates of the next families, the portable
 * kernels. Alternatives with a kernel that is known to compute wrongly on this device are skipped. Fails: UNSUPPORTED,
 * with the kernel, its error and the driver, if all are skipped. */
strata_status strata_way_choose(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_tensor *node,
                                strata_way *out_way, strata_error *err);
/* Adds the launches of the node, computed in this way, to an empty lowering. */
strata_status strata_way_lower(const strata_kernel_limits *limits, const strata_way *way, const strata_tensor *node,
                               strata_lowering *lowering, strata_error *err);

/* ---- verdicts (check.c) ---- */
/* A hash that identifies the op and the kernels of a node's launches with their constants and requested work-group sizes. */
uint64_t strata_check_key(const strata_tensor *node, const strata_lowering *lowering);
/* A hash that identifies a family: if one of its kernels is wrong, none of them is used. */
uint64_t strata_check_family_key(const strata_family *family);
/* The reason why these kernels must not be used, valid as long as `checks`. NULL: they may be used. */
const char *strata_check_complaint(const strata_checks *checks, uint64_t key);
/* Whether any kernel is known to be wrong. */
bool strata_checks_complain(const strata_checks *checks);

/* The index of the candidate to use. The tuner has stored it or measures it now (tuner.c). 0 without a tuner. */
int strata_tuner_choose(strata_tuner *tuner, const strata_family *family, const strata_tensor *node,
                        const strata_candidate *candidates, int n);

/* ---- files of results (cache.c) ---- */
/* A text file of results for a device and driver in the cache's folder, with a line for each. */
typedef struct strata_records {
    /* "": there is no file, and nothing is read or written. */
    char path[640];
    char head[320];
} strata_records;

void strata_records_init(strata_records *records, const strata_cache *cache, const char *format, const char *ending);
/* Calls `take` for each line. A file of another device, driver or format is ignored. */
void strata_records_read(const strata_records *records, void (*take)(void *user, char *line), void *user);
/* Replaces the file by the lines, which are finished. If this fails, the next start makes the results again. */
void strata_records_write(const strata_records *records, strata_text *lines);
/* FNV-1a, 64 bits, of bytes and of a text with its NUL. */
#define STRATA_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t strata_hash(uint64_t hash, const void *bytes, size_t n);
uint64_t strata_hash_text(uint64_t hash, const char *text);

/* ---- nodes with 16-bit storage, computed by families of f32 kernels (widen.c) ---- */
enum { STRATA_WIDENED_INPUTS = 8 };
/* A copy of a node with f32 operands and result. node.inputs points into this struct, so it must not be moved. */
typedef struct strata_widened {
    const strata_tensor *from;
    strata_tensor node, inputs[STRATA_WIDENED_INPUTS], *pointers[STRATA_WIDENED_INPUTS];
} strata_widened;

/* Returns false if the node is not f16 or bf16, or if its operands in f32 do not fit into scratch memory. */
bool strata_widen(const strata_kernel_limits *limits, const strata_tensor *node, strata_widened *out);
/* Adds launches that convert the operands, the family's launches for the node in f32, and the conversion of the result. */
strata_status strata_widened_lower(const strata_kernel_limits *limits, const strata_widened *widened,
                                   const strata_family *family, const strata_candidate *candidate, strata_lowering *lowering,
                                   strata_error *err);

/* ---- hazards (hazards.c) ---- */
/* The byte ranges that launches have read and written since the last barrier. */
typedef struct strata_hazards {
    strata_kernel_range *reads, *writes;
    int n_reads, n_writes;
    int64_t reads_capacity, writes_capacity;
} strata_hazards;

/* Adds a launch. *out_barrier: whether a barrier is needed before it. If so, the ranges of all earlier launches are
 * removed. */
strata_status strata_hazards_add(strata_hazards *hazards, const strata_kernel_range *ranges, int n, unsigned writes,
                                 bool *out_barrier, strata_error *err);
void strata_hazards_finish(strata_hazards *hazards);

#endif
