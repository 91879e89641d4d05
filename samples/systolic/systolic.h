/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the simulator share: values and steps of a compiled program, ops, programs, cores.
 *
 *   plugin.c     the entry symbol, options, which devices there are
 *   core.c       a core: its thread, its queue of runs, buffers, tickets, spans, the tables of calls
 *   program.c    a piece becomes steps and places in memory; a run carries the steps out
 *   schedule.c   the cycle model: on-chip memory, units that work at the same time, the cost of each step
 *   ring.c       collectives between cores
 *   ops.c        the table of ops
 *   op/          what each op checks, costs and computes; kernels.c compiles them once for each instruction set */
#ifndef SYSTOLIC_H
#define SYSTOLIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strata/plugin.h>

#include "chip.h"

/* A field of a struct that Strata passes; zero where its size does not cover the field. */
#define GET(pointer, type, field) (STRATA_PLUGIN_HAS(pointer, type, field) ? (pointer)->field : 0)

enum { MOST_AXES = 8, MOST_INPUTS = 16, MOST_CORES = 64 };

/* Writes the message, and returns the status. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
strata_plugin_status
fail(strata_plugin_error *error, strata_plugin_status status, const char *format, ...);

/* ---- memory that lives as long as a program ---- */

typedef struct pool {
    struct pool_block *blocks;
} pool;
/* `bytes` zeroed bytes, aligned to 64; NULL: there is no memory. */
void *pool_take(pool *pool, int64_t bytes);
void pool_free(pool *pool);

/* ---- steps ---- */

/* A value as an op sees it. Elements are row-major, without gaps. */
typedef struct array {
    strata_plugin_dtype dtype;
    int rank;
    int64_t dims[MOST_AXES];
    /* Elements. */
    int64_t n;
} array;

int64_t dtype_bytes(strata_plugin_dtype dtype);
bool dtype_is_float(strata_plugin_dtype dtype);
bool dtype_is_index(strata_plugin_dtype dtype);

typedef struct step step;
typedef struct call call;

/* What a step asks of the chip, besides memory. */
typedef struct work {
    /* One product of matrices (rows x depth) (depth x columns), `batch` times over; rows 0: none. */
    int64_t rows, columns, depth, batch;
    /* Operations of the vector unit, one for each element and function; some functions count several. */
    double vector_ops;
    /* Bytes that travel around the ring between `members` cores; 0: none. `rounds`: how many times around, 1 for a gather or a
     * scatter, 2 for a sum. */
    double ring_bytes;
    int members, rounds;
    /* Inputs of which the step reads `touched` bytes alone (rows of a table), by position; -1: it reads all. */
    int sparse_input;
    double touched;
} work;

/* An op. The functions get a step whose inputs' number and dtypes have been checked. */
typedef struct op {
    const char *name;
    /* most_inputs -1: any number. */
    int least_inputs, most_inputs;
    /* Bit (1 << dtype): what input 0 may be. */
    unsigned dtypes;
    /* 1: `run` gets f32 for every input and output of f16 or bf16, which is rounded once when it is stored. */
    int widens;
    /* (optional) Why the step cannot be run: static text. NULL: it can. */
    const char *(*refuse)(const step *step);
    /* (optional) Computes what is the same in each run into step->state, and asks for step->scratch_bytes. False: no memory. */
    bool (*prepare)(step *step, pool *pool);
    /* (optional) One operation of the vector unit for each element of the output is the default. */
    void (*cost)(const step *step, work *work);
    void (*run)(const call *call);
} op;

/* A node of a program. */
struct step {
    const op *op;
    /* Its position in the piece. */
    int node;
    int n_inputs;
    const array *in[MOST_INPUTS];
    /* All inputs where there are more than MOST_INPUTS (pack, concat). */
    const array *const *inputs;
    const array *out;
    /* Ids of values. */
    const int32_t *in_ids;
    int32_t out_id;
    /* A copy, in the program's memory. */
    int n_attributes;
    const strata_plugin_attribute *const *attributes;
    /* A fused node's parts, which point into the step's own values; 0: it has none. */
    int n_parts;
    const step *parts;
    /* Inputs that are written in place, bit by position. */
    uint32_t writes;
    void *state;
    int64_t scratch_bytes;
};

/* One run of a step. */
struct call {
    const step *step;
    const void *const *in;
    void *out;
    /* step->scratch_bytes bytes, aligned to 64. */
    void *scratch;
    /* For collectives; NULL where a step is run outside of a core. */
    struct strata_plugin_device *core;
    /* Set by an op that fails. */
    strata_plugin_status *status;
    strata_plugin_error *error;
};

/* Attributes by name; `otherwise` where there is none. */
int64_t attribute_int(const step *step, const char *name, int64_t otherwise);
double attribute_float(const step *step, const char *name, double otherwise);
const char *attribute_text(const step *step, const char *name, const char *otherwise);
/* Up to `most` numbers; returns how many there were. */
int attribute_ints(const step *step, const char *name, int64_t *out, int most);
const strata_plugin_attribute *attribute_find(const step *step, const char *name);

/* Chooses the instruction set that the ops were compiled for: "avx512", "avx2", "portable"; NULL: the best one. False: this
 * processor does not have it. Called once, before the others. */
bool op_choose(const char *form);
const char *op_form(void);
/* The op's row; NULL: there is none. */
const op *op_find(const char *name);

/* ---- programs ---- */

/* Where a value's bytes are. */
typedef enum place_kind { IN_MEMORY, IN_INPUT, IN_OUTPUT } place_kind;
typedef struct place {
    place_kind kind;
    /* IN_MEMORY: the address. Else the offset in the slot's arena is `offset`. */
    char *address;
    int64_t offset;
} place;

typedef struct value {
    array array;
    strata_plugin_role role;
    /* A step reads or computes it, or a value that shares its bytes. */
    bool is_used;
    /* The value whose bytes these are, after all aliases, and where in it they begin. */
    int32_t root;
    int64_t root_offset;
    /* Of a root: the first and the last step that uses it or an alias of it; -1: none. */
    int first, last;
    int64_t bytes;
    place place;
} value;

/* One step's part of the static schedule, in cycles since the run began; begin = end: the unit is not used. */
typedef enum unit { UNIT_MATRIX, UNIT_VECTOR, UNIT_RING, UNIT_LOAD, UNIT_STORE, UNITS } unit;
typedef struct timing {
    double begin[UNITS], end[UNITS];
    /* Bytes from and to HBM, multiply-adds of the array. */
    double bytes, macs;
} timing;

struct strata_plugin_program {
    struct strata_plugin_device *core;
    pool pool;
    int n_values, n_steps, n_nodes;
    value *values;
    step *steps;
    timing *timings;
    /* Of a whole run. */
    double cycles;
    double bytes, macs;
    /* The most that lay in the on-chip memory at any time, and what temporaries take in HBM. */
    int64_t onchip_peak, spilled_bytes;
    int n_slots;
    int64_t input_bytes, output_bytes;
    /* One of each for each slot. */
    char **inputs, **outputs;
    char *scratch;
    /* Converts the operands of ops that widen. */
    const op *cast;
    /* Addresses of a step's inputs, as many as the widest step has. */
    const void **addresses;
};

strata_plugin_support program_supports(const strata_plugin_piece *piece, int32_t node, const char **out_reason);
strata_plugin_status program_compile(struct strata_plugin_device *core, const strata_plugin_piece *piece,
                                     strata_plugin_program **out_program, strata_plugin_error *error);
void program_destroy(strata_plugin_program *program);
/* Carries out one run in the caller's thread. */
strata_plugin_status program_run(strata_plugin_program *program, int slot, strata_plugin_error *error);
/* Fills in timings, cycles and bytes. False: no memory. */
bool program_schedule(strata_plugin_program *program, const chip *chip);

/* ---- cores ---- */

struct strata_plugin_buffer {
    char *data;
    int64_t bytes;
};

/* All cores of the plugin are on one board. */
typedef struct board {
    const chip *chip;
    int n_cores;
    /* Seconds that a core waits for others in a collective. */
    double patience;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct meeting *meetings;
    /* Bit by core: a run of it failed, so that it comes to no collective any more. */
    uint64_t lost;
    /* Collectives that each core has come to since it was opened. */
    int64_t reached[MOST_CORES];
} board;

strata_plugin_status core_open(board *board, int index, struct strata_plugin_device **out_core,
                               const strata_plugin_device_calls **out_calls, strata_plugin_error *error);
int core_index(const struct strata_plugin_device *core);
board *core_board(struct strata_plugin_device *core);

/* ---- the ring ---- */

typedef enum collective { SUM, MEAN, GATHER, SCATTER_SUM, SCATTER_MEAN } collective;
/* What one core brings to a collective. All members bring the same kind, numbers of elements and parts. */
typedef struct contribution {
    collective kind;
    strata_plugin_dtype dtype;
    /* Bit by core. */
    uint64_t members;
    const void *in;
    void *out;
    /* Elements of the whole: of `in` for sums and scatters, of `out` for a gather. */
    int64_t n;
    /* GATHER: elements (outer, axis, inner), of which each member has `lengths` along the axis. SCATTER: axis 0. NULL: none. */
    int64_t outer, inner;
    const int64_t *lengths;
} contribution;
/* Tells those who wait for the core in a collective that it is lost, or that it is opened anew. */
void ring_set_lost(board *board, int core, bool lost);
int64_t ring_reached(board *board, int core);
/* Meets the others, in the caller's thread: returns when `out` is complete and `in` is free again. */
strata_plugin_status ring_meet(struct strata_plugin_device *core, const contribution *mine, strata_plugin_error *error);

#endif
