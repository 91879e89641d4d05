/* SPDX-License-Identifier: Apache-2.0
 *
 * strata help ops: what plugins see of each op, from the ops' own tables. What an op computes is in strata/ops.h. */
#include "core/op/ops.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"

static const char *const kinds[] = {[STRATA_ATTR_INT] = "an int",
                                    [STRATA_ATTR_FLOAT] = "a float",
                                    [STRATA_ATTR_INTS] = "ints, one for each axis of input 0",
                                    [STRATA_ATTR_PAIR] = "2 ints: height, width",
                                    [STRATA_ATTR_QUAD] = "4 ints: top, bottom, left, right",
                                    [STRATA_ATTR_SHAPE] = "ints: a shape",
                                    [STRATA_ATTR_LIST] = "ints, one for each input or part"};

static void print_attribute(const strata_op *op, const strata_attr_field *field) {
    if (field->kind == STRATA_ATTR_CODES || field->kind == STRATA_ATTR_POINTER) return;
    printf("    %-12s ", field->name);
    for (const strata_attr_words *row = op->words; row && row->attribute; row++)
        if (!strcmp(row->attribute, field->name)) {
            printf("a text:");
            for (int i = 0; row->words[i]; i++) printf(" %s", row->words[i]);
            putchar('\n');
            return;
        }
    printf("%s\n", kinds[field->kind]);
}

void print_ops(void) {
    printf(
        "ops, as plugins and `strata plugin-check` see them: inputs, then attributes by name; formulas are in strata/ops.h\n");
    for (int i = 0; i < strata_n_ops; i++) {
        const strata_op *op = strata_ops[i];
        if (op->flags & (STRATA_OP_LEAF | STRATA_OP_VIEW)) continue;
        if (op->max_inputs < 0)
            printf("  %-32s %d inputs or more", op->name, op->min_inputs);
        else if (op->min_inputs == op->max_inputs)
            printf("  %-32s %d input%s", op->name, op->min_inputs, op->min_inputs == 1 ? "" : "s");
        else
            printf("  %-32s %d to %d inputs", op->name, op->min_inputs, op->max_inputs);
        printf("%s%s%s%s\n", op->flags & STRATA_OP_UPDATE ? ", writes input 0 in place" : "",
               op->also_writes ? ", and its slots" : "", op->flags & STRATA_OP_COMMUNICATION ? ", between devices" : "",
               op->compose ? ", has a composition" : "");
        for (const strata_attr_field *field = op->attrs; field->name; field++) print_attribute(op, field);
    }
}
