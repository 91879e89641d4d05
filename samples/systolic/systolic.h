/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the parts of the simulator share: values and steps of a compiled program, ops, programs, cores.
 *
 *   plugin.c     the entry point, options, which devices there are
 *   core.c       a core: its thread, its queue of runs, buffers, tickets, spans, the tables of functions
 *   program.c    compiles a piece to steps and places in memory; runs the steps
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

/* A field of a struct that Strata passes; 0 if the struct is too small (its `size`) to have this field. */
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
/* Returns `bytes` zeroed bytes, aligned to 64; NULL: there is no memory. */
void *pool_take(pool *pool, int64_t bytes);
void pool_free(pool *pool);

/* ---- steps ---- */

/* A value as an op sees it: its dtype and shape. Its elements are in row-major order, without gaps. */
typedef struct array {
    strata_plugin_dtype dtype;
    int rank;
    int64_t dims[MOST_AXES];
    /* The number of elements. */
    int64_t n;
} array;

int64_t dtype_bytes(strata_plugin_dtype dtype);
bool dtype_is_float(strata_plugin_dtype dtype);
bool dtype_is_index(strata_plugin_dtype dtype);

typedef struct step step;
typedef struct call call;

/* The work of a step for the units of the chip; memory traffic is not included. */
typedef struct work {
    /* A product of matrices, (rows x depth) by (depth x columns), which is computed `batch` times; rows 0: there is none. */
    int64_t rows, columns, depth, batch;
    /* Operations of the vector unit: one for each element and function. Some functions count as several. */
    double vector_ops;
    /* The bytes that travel around the ring between `members` cores; 0: none. rounds: how many times they travel around, once
     * for a gather or a scatter, twice for a sum. */
    double ring_bytes;
    int members, rounds;
    /* The position of an input of which the step reads only `touched` bytes (some rows of a table); -1: it reads all inputs
     * completely. */
    int sparse_input;
    double touched;
} work;

/* An op. Before its functions are called, the number and dtypes of the step's inputs were checked. */
typedef struct op {
    const char *name;
    /* most_inputs -1: there is no limit. */
    int least_inputs, most_inputs;
    /* The dtypes that input 0 may have: bit 1 << dtype. */
    unsigned dtypes;
    /* 1: inputs and outputs of f16 or bf16 are f32 for `run`. An output is rounded once, when it is stored. */
    int widens;
    /* (optional) Returns why the step cannot be run, a static text. NULL: it can be run. */
    const char *(*refuse)(const step *step);
    /* (optional) Computes into step->state what is the same in each run, and sets step->scratch_bytes. False: no memory. */
    bool (*prepare)(step *step, pool *pool);
    /* (optional) Computes the step's work. Without it: one operation of the vector unit for each element of the output. */
    void (*cost)(const step *step, work *work);
    void (*run)(const call *call);
} op;

/* A node of a program. */
struct step {
    const op *op;
    /* Its index in the piece. */
    int node;
    int n_inputs;
    const array *in[MOST_INPUTS];
    /* All inputs; `in` has only the first MOST_INPUTS (pack and concat may have more). */
    const array *const *inputs;
    const array *out;
    /* The ids of the values. */
    const int32_t *in_ids;
    int32_t out_id;
    /* A copy of the node's attributes, in the program's memory. */
    int n_attributes;
    const strata_plugin_attribute *const *attributes;
    /* The parts of a fused node. They use values of the same piece. 0: the node is not fused. */
    int n_parts;
    const step *parts;
    /* The inputs that are written in place: a bit for each position. */
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
    /* The core, for collectives; NULL if the step is run outside of a core. */
    struct strata_plugin_device *core;
    /* An op that fails sets these. */
    strata_plugin_status *status;
    strata_plugin_error *error;
};

/* Return an attribute by its name; `otherwise` if the step does not have it. */
int64_t attribute_int(const step *step, const char *name, int64_t otherwise);
double attribute_float(const step *step, const char *name, double otherwise);
const char *attribute_text(const step *step, const char *name, const char *otherwise);
/* Writes at most `most` numbers of an attribute to `out`. Returns how many it wrote. */
int attribute_ints(const step *step, const char *name, int64_t *out, int most);
const strata_plugin_attribute *attribute_find(const step *step, const char *name);

/* Chooses the instruction set of the ops: "avx512", "avx2", "portable"; NULL: the best one. Returns false if this processor
 * does not have it. Called once, before the other functions. */
bool op_choose(const char *form);
const char *op_form(void);
/* Finds an op by its name; NULL: there is none. */
const op *op_find(const char *name);

/* ---- programs ---- */

/* Where a value's bytes are: in the host's memory, or in the INPUT or OUTPUT arena of a slot. */
typedef enum place_kind { IN_MEMORY, IN_INPUT, IN_OUTPUT } place_kind;
typedef struct place {
    place_kind kind;
    /* For IN_MEMORY the address; otherwise `offset` is the offset in the slot's arena. */
    char *address;
    int64_t offset;
} place;

typedef struct value {
    array array;
    strata_plugin_role role;
    /* A step uses the value, or another one that shares its bytes. */
    bool is_used;
    /* The value at the end of the chain of aliases, to which the bytes belong, and where this value begins in it. */
    int32_t root;
    int64_t root_offset;
    /* For a root: the first and the last step that uses it or an alias of it; -1: none does. */
    int first, last;
    int64_t bytes;
    place place;
} value;

/* When each unit works on a step, in cycles since the run began; if begin equals end, the unit is not used. */
typedef enum unit { UNIT_MATRIX, UNIT_VECTOR, UNIT_RING, UNIT_LOAD, UNIT_STORE, UNITS } unit;
typedef struct timing {
    double begin[UNITS], end[UNITS];
    /* The bytes from and to HBM, and the multiply-adds of the arrays. */
    double bytes, macs;
} timing;

struct strata_plugin_program {
    struct strata_plugin_device *core;
    pool pool;
    int n_values, n_steps, n_nodes;
    value *values;
    step *steps;
    timing *timings;
    /* The totals of a run. */
    double cycles;
    double bytes, macs;
    /* The most bytes that are in the on-chip memory at a time, and the bytes of temporaries that are stored to HBM. */
    int64_t onchip_peak, spilled_bytes;
    int n_slots;
    int64_t input_bytes, output_bytes;
    /* [n_slots] The arenas. */
    char **inputs, **outputs;
    char *scratch;
    /* The op that converts the operands and results of ops that widen. */
    const op *cast;
    /* The addresses of a step's inputs; large enough for the step with the most inputs. */
    const void **addresses;
};

strata_plugin_support program_supports(const strata_plugin_piece *piece, int32_t node, const char **out_reason);
strata_plugin_status program_compile(struct strata_plugin_device *core, const strata_plugin_piece *piece,
                                     strata_plugin_program **out_program, strata_plugin_error *error);
void program_destroy(strata_plugin_program *program);
/* Executes one run in the caller's thread. */
strata_plugin_status program_run(strata_plugin_program *program, int slot, strata_plugin_error *error);
/* Computes timings, cycles and bytes. False: no memory. */
bool program_schedule(strata_plugin_program *program, const chip *chip);

/* ---- cores ---- */

struct strata_plugin_buffer {
    char *data;
    int64_t bytes;
};

/* The board, which all cores of the plugin share. */
typedef struct board {
    const chip *chip;
    int n_cores;
    /* How many seconds a core waits for others in a collective. */
    double patience;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct meeting *meetings;
    /* A bit for each core of which a run has failed. Such a core takes part in no more collectives. */
    uint64_t lost;
    /* How many collectives each core has reached since it was opened. */
    int64_t reached[MOST_CORES];
} board;

strata_plugin_status core_open(board *board, int index, struct strata_plugin_device **out_core,
                               const strata_plugin_device_calls **out_calls, strata_plugin_error *error);
int core_index(const struct strata_plugin_device *core);
board *core_board(struct strata_plugin_device *core);

/* ---- the ring ---- */

typedef enum collective { SUM, MEAN, GATHER, SCATTER_SUM, SCATTER_MEAN } collective;
/* What one core brings to a collective. kind, dtype, members, numbers of elements and lengths are the same for all members. */
typedef struct contribution {
    collective kind;
    strata_plugin_dtype dtype;
    /* A bit for each core that takes part. */
    uint64_t members;
    const void *in;
    void *out;
    /* The number of elements of the whole: of `in` for sums and scatters, of `out` for a gather. */
    int64_t n;
    /* For GATHER the whole has the elements (outer, axis, inner), and member k has lengths[k] of them along the axis. For
     * SCATTER the axis is axis 0. NULL: there are no parts. */
    int64_t outer, inner;
    const int64_t *lengths;
} contribution;
/* Records that a core is lost, or that it was opened again. Cores that wait for it in a collective are woken. */
void ring_set_lost(board *board, int core, bool lost);
int64_t ring_reached(board *board, int core);
/* Takes part in a collective, in the caller's thread. Returns when `out` is complete and `in` is no longer read. */
strata_plugin_status ring_meet(struct strata_plugin_device *core, const contribution *mine, strata_plugin_error *error);

#endif
