/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of the op table: one op, how it is built, and the operands that it is tried with. All instances of a row, in all dtypes
 * that the device has, are compiled as one executable: a kernel once, and kernels together. */
#ifndef STRATA_TESTS_CONFORMANCE_CASE_H
#define STRATA_TESTS_CONFORMANCE_CASE_H

#include "core/graph/graph.h"
#include "strata/ops.h"

enum { CASE_INPUTS = 8, CASE_PARAMETERS = 17 };

/* What an operand holds. */
typedef enum case_values {
    CASE_UNIFORM,  /* in low..high                                                                        */
    CASE_WHOLE,    /* whole numbers of low..high: ties, labels, indices                                   */
    CASE_SPECIAL,  /* as uniform, and among them NaN, infinities and zeros of both signs (floats), else whole */
    CASE_DISTINCT, /* in random order, all different                                                      */
    CASE_STATE,    /* a random state, STRATA_RNG_WORDS                                                    */
} case_values;

typedef struct case_operand {
    case_values values;
    double low, high;
    int dtype;     /* 0: the row's (see CASE_DTYPE) */
    bool variable; /* a variable's read */
} case_operand;
#define CASE_DTYPE(dtype) ((int)(dtype) + 1)

/* One try: shapes of the operands and numbers for the builder. */
typedef struct case_instance {
    strata_shape shapes[CASE_INPUTS];
    int64_t p[CASE_PARAMETERS];
    int64_t terms; /* roundings that add up; 0: 1 */
    bool big;      /* left out when small */
} case_instance;

typedef struct op_row {
    const char *op; /* the node under test */
    const char *variant;
    const strata_op *generic; /* built by strata_node without attributes, where build is NULL */
    strata_tensor *(*build)(strata_tensor *const *x, const int64_t *p, strata_dtype dtype);
    unsigned dtypes; /* bit per dtype */
    int n_operands;
    case_operand operands[CASE_INPUTS];
    const case_instance *instances;
    int n_instances;
    bool exact;        /* bit for bit, floats too */
    bool not_oclgrind; /* Oclgrind 21.10 cannot judge its kernels: run_table in ops_test.c says why */
} op_row;

/* Tables: cases_elementwise.c, cases_shape.c, cases_reduce.c, cases_window.c, cases_norm.c, cases_recurrent.c,
 * cases_update.c. */
typedef struct op_table {
    const char *name;
    const op_row *rows;
    int n_rows;
} op_table;
extern const op_table case_unary, case_binary, case_compare, case_cast, case_shape, case_products, case_window, case_softmax,
    case_norm, case_recurrent, case_update;

/* All of them; ends with NULL. tables.c */
extern const op_table *const case_tables[];

/* An operand of one instance, in its own dtype; the caller finishes it. */
strata_array case_operand_value(const case_operand *operand, strata_dtype dtype, strata_shape shape, uint64_t seed);

#define CASE_INSTANCES(array) array, (int)(sizeof array / sizeof *array)
#define CASE_TABLE(label, array)                                                    \
    (op_table) {                                                                    \
        .name = label, .rows = array, .n_rows = (int)(sizeof array / sizeof *array) \
    }

#endif
