/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as text, a line for each operation, and what the lowering looks up. */
#include <inttypes.h>
#include <string.h>

#include "core/frontend/pjrt/program.h"

const strata_program_attribute *strata_program_find(const strata_program *program, const strata_program_op *op,
                                                    const char *name) {
    for (int i = 0; i < op->n_attributes; i++)
        if (!strcmp(op->attributes[i].name, name)) return &program->attributes[op->attributes[i].attribute];
    return NULL;
}

const strata_program_attribute *strata_program_line(const strata_program *program, int location) {
    const strata_program_attribute *attribute = &program->attributes[location];
    if (attribute->kind != STRATA_PROGRAM_LOCATION) return NULL;
    if (attribute->text) return attribute;
    for (int i = 0; i < attribute->n_items; i++) {
        const strata_program_attribute *line = strata_program_line(program, attribute->items[i]);
        if (line) return line;
    }
    return NULL;
}

static void print_type(const strata_program *program, int index, strata_text *out) {
    const strata_program_type *type = &program->types[index];
    if (type->kind == STRATA_PROGRAM_TYPE_TENSOR) {
        strata_text_add(out, "tensor<");
        for (int i = 0; i < type->rank; i++) strata_text_add(out, "%" PRId64 "x", type->dims[i]);
        print_type(program, type->element, out);
        strata_text_add(out, ">");
    } else if (type->kind == STRATA_PROGRAM_TYPE_COMPLEX) {
        strata_text_add(out, "complex<");
        print_type(program, type->element, out);
        strata_text_add(out, ">");
    } else if (type->n_parts || type->kind == STRATA_PROGRAM_TYPE_FUNCTION || type->kind == STRATA_PROGRAM_TYPE_TUPLE) {
        strata_text_add(out, "(");
        for (int i = 0; i < type->n_parts; i++) {
            if (i) strata_text_add(out, type->kind == STRATA_PROGRAM_TYPE_FUNCTION && i == type->n_arguments ? " -> " : ", ");
            print_type(program, type->parts[i], out);
        }
        strata_text_add(out, ")");
    } else {
        strata_text_add(out, "%s", type->name ? type->name : "<not read>");
    }
}

static void print_attribute(const strata_program *program, int index, strata_text *out) {
    const strata_program_attribute *attribute = &program->attributes[index];
    switch (attribute->kind) {
        case STRATA_PROGRAM_STRING:
            strata_text_add(out, "\"%s\"", attribute->text);
            return;
        case STRATA_PROGRAM_ENUM:
            strata_text_add(out, "%s", attribute->text);
            return;
        case STRATA_PROGRAM_BOOL:
            strata_text_add(out, attribute->integer ? "true" : "false");
            return;
        case STRATA_PROGRAM_INTEGER:
        case STRATA_PROGRAM_FLOAT:
            strata_text_add(out, "%" PRId64 " : ", attribute->integer);
            break;
        case STRATA_PROGRAM_TYPE:
            break;
        case STRATA_PROGRAM_TENSOR:
            strata_text_add(out, attribute->is_splat ? "splat " : "dense ");
            for (size_t i = 0; i < attribute->n_bytes; i++) strata_text_add(out, "%02x", attribute->data[i]);
            strata_text_add(out, " : ");
            break;
        case STRATA_PROGRAM_NUMBERS:
            for (int i = 0; i < attribute->n_numbers; i++)
                strata_text_add(out, "%s%" PRId64, i ? "," : "", attribute->numbers[i]);
            return;
        case STRATA_PROGRAM_ARRAY:
        case STRATA_PROGRAM_DICTIONARY: {
            const bool is_array = attribute->kind == STRATA_PROGRAM_ARRAY;
            strata_text_add(out, is_array ? "[" : "{");
            for (int i = 0; i < attribute->n_items; i++) {
                if (i) strata_text_add(out, !is_array && i % 2 ? " = " : ", ");
                print_attribute(program, attribute->items[i], out);
            }
            strata_text_add(out, is_array ? "]" : "}");
            return;
        }
        default:
            strata_text_add(out, "<%zu bytes>", attribute->n_bytes);
            return;
    }
    if (attribute->type >= 0) print_type(program, attribute->type, out);
}

static void print_types(const strata_program *program, int n, const int *values, strata_text *out) {
    strata_text_add(out, "(");
    for (int i = 0; i < n; i++) {
        if (i) strata_text_add(out, ", ");
        print_type(program, program->values[values[i]], out);
    }
    strata_text_add(out, ")");
}

void strata_program_print_op(const strata_program *program, const strata_program_op *op, strata_text *out) {
    strata_text_add(out, "%s.%s ", op->dialect, op->name);
    print_types(program, op->n_operands, op->operands, out);
    strata_text_add(out, " -> ");
    print_types(program, op->n_results, op->results, out);
}

void strata_program_print(const strata_program *program, strata_text *out) {
    for (int i = 0; i < program->n_ops; i++) {
        const strata_program_op *op = &program->ops[i];
        strata_program_print_op(program, op, out);
        for (int k = 0; k < op->n_attributes; k++) {
            strata_text_add(out, k ? ", %s = " : " {%s = ", op->attributes[k].name);
            print_attribute(program, op->attributes[k].attribute, out);
        }
        strata_text_add(out, op->n_attributes ? "}\n" : "\n");
    }
}
