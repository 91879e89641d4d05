/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ops, in the order of core/op/ops.def, and what plugins see of each op, as text. What an op computes is in
 * strata/ops.h. */
#include "core/op/ops.h"
#include "strata/ops.h"
#include "strata/text.h"

const strata_op *const strata_ops[] = {
#define STRATA_OP(name) &strata_op_##name,
#include "core/op/ops.def"
#undef STRATA_OP
};

const int strata_n_ops = (int)(sizeof strata_ops / sizeof *strata_ops);

const strata_op *strata_op_find(const char *name) {
    for (int i = 0; name && i < strata_n_ops; i++)
        if (!strcmp(strata_ops[i]->name, name)) return strata_ops[i];
    return NULL;
}

static const char *const kinds[] = {[STRATA_ATTR_INT] = "an int",
                                    [STRATA_ATTR_FLOAT] = "a float",
                                    [STRATA_ATTR_INTS] = "ints, one for each axis of input 0",
                                    [STRATA_ATTR_PAIR] = "2 ints: height, width",
                                    [STRATA_ATTR_QUAD] = "4 ints: top, bottom, left, right",
                                    [STRATA_ATTR_SHAPE] = "ints: a shape",
                                    [STRATA_ATTR_LIST] = "ints, one for each input or part"};

static void add_attribute(strata_text *text, const strata_op *op, const strata_attr_field *field) {
    if (field->kind == STRATA_ATTR_CODES || field->kind == STRATA_ATTR_POINTER) return;
    strata_text_add(text, "    %-12s ", field->name);
    for (const strata_attr_words *row = op->words; row && row->attribute; row++)
        if (!strcmp(row->attribute, field->name)) {
            strata_text_add(text, "a text:");
            for (int i = 0; row->words[i]; i++) strata_text_add(text, " %s", row->words[i]);
            strata_text_add(text, "\n");
            return;
        }
    strata_text_add(text, "%s\n", kinds[field->kind]);
}

static void add_op(strata_text *text, const strata_op *op) {
    if (op->flags & (STRATA_OP_LEAF | STRATA_OP_VIEW)) return;
    const int n = op->n_inputs, more = op->optional_inputs;
    if (more < 0)
        strata_text_add(text, "  %-32s %d inputs or more", op->name, n);
    else if (!more)
        strata_text_add(text, "  %-32s %d input%s", op->name, n, n == 1 ? "" : "s");
    else
        strata_text_add(text, "  %-32s %d to %d inputs", op->name, n, n + more);
    strata_text_add(text, "%s%s%s%s\n", op->flags & STRATA_OP_UPDATE ? ", writes input 0 in place" : "",
                    op->also_writes ? ", and its slots" : "", op->flags & STRATA_OP_COMMUNICATION ? ", between devices" : "",
                    op->compose ? ", has a composition" : "");
    for (const strata_attr_field *field = op->attrs; field->name; field++) add_attribute(text, op, field);
}

strata_status strata_ops_text(char **out_text, strata_error *err) {
    strata_text text = {0};
    for (int i = 0; i < strata_n_ops; i++) add_op(&text, strata_ops[i]);
    return strata_text_take(&text, out_text, NULL, err);
}
