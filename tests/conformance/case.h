/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the conformance cases of ops. A row names one op, a function that builds it, and its instances: the shapes of its
 * operands and the arguments of the function. All instances of a row, in all dtypes of the device, are compiled as one
 * executable, so that each kernel is compiled only once. */
#ifndef STRATA_TESTS_CONFORMANCE_CASE_H
#define STRATA_TESTS_CONFORMANCE_CASE_H

#include "core/graph/graph.h"
#include "strata/ops.h"

enum { CASE_INPUTS = 8, CASE_PARAMETERS = 17 };

/* The elements of an operand. */
typedef enum case_values {
    /* Random numbers from low to high. */
    CASE_UNIFORM,
    /* Random whole numbers from low to high: for labels, indices, or values of which many are equal. */
    CASE_WHOLE,
    /* Floats: as CASE_UNIFORM, with NaN, infinities and zeros of both signs among them. Integers: as CASE_WHOLE. */
    CASE_SPECIAL,
    /* Floats: half of the elements are -infinity, and the others NaN, infinity, zeros of both signs and a few numbers, so that
     * most small groups of elements have ties, and several NaN or nothing but -infinity. Integers: as CASE_WHOLE. */
    CASE_EXTREME,
    /* Different numbers in random order. */
    CASE_DISTINCT,
    /* The state of a random number generator, STRATA_RNG_WORDS elements. */
    CASE_STATE,
} case_values;

typedef struct case_operand {
    case_values values;
    double low, high;
    /* CASE_DTYPE(dtype). 0: the dtype in which the row is tested. */
    int dtype;
    /* The operand is a read of a variable. Otherwise it is an input. */
    bool variable;
} case_operand;
#define CASE_DTYPE(dtype) ((int)(dtype) + 1)

/* One instance of a row: shapes of the operands, and the argument p of `build`. */
typedef struct case_instance {
    strata_shape shapes[CASE_INPUTS];
    int64_t p[CASE_PARAMETERS];
    /* The number of rounding errors that may add up (check.h). 0: 1. */
    int64_t terms;
    /* STRATA_TEST_SMALL leaves this instance out. */
    bool big;
} case_instance;

typedef struct op_row {
    /* Name of the op that is tested. */
    const char *op;
    /* Distinguishes rows of the same op in messages. NULL: there is only one. */
    const char *variant;
    /* With build = NULL: an op without attributes, which strata_node builds. */
    const strata_op *generic;
    /* Builds the op from its operands x. */
    strata_tensor *(*build)(strata_tensor *const *x, const int64_t *p, strata_dtype dtype);
    /* A bit for each dtype in which the row is tested. */
    unsigned dtypes;
    int n_operands;
    case_operand operands[CASE_INPUTS];
    const case_instance *instances;
    int n_instances;
    /* Results must equal the reference's in every bit, also floats. Otherwise the tolerance of check.h applies. */
    bool exact;
    /* Not tested on Oclgrind 21.10, which reports wrong errors for these kernels; run_table in ops_test.c explains them. */
    bool not_oclgrind;
} op_row;

/* The rows of one of the files cases_*.c. */
typedef struct op_table {
    const char *name;
    const op_row *rows;
    int n_rows;
} op_table;
extern const op_table case_unary, case_binary, case_compare, case_cast, case_shape, case_products, case_window, case_softmax,
    case_norm, case_recurrent, case_update;

/* All tables; NULL ends the list, which is in tables.c. */
extern const op_table *const case_tables[];

/* Makes an operand of an instance, in the operand's own dtype. The caller finishes it. */
strata_array case_operand_value(const case_operand *operand, strata_dtype dtype, strata_shape shape, uint64_t seed);

#define CASE_INSTANCES(array) array, (int)(sizeof array / sizeof *array)
#define CASE_TABLE(label, array)                                                    \
    (op_table) {                                                                    \
        .name = label, .rows = array, .n_rows = (int)(sizeof array / sizeof *array) \
    }

#endif
