/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks the operations of @main and of the functions that it calls, and applies to each the rule of its row. The rules are in
 * lower_*.c. */
#include "core/frontend/pjrt/lower.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/frontend/pjrt/lowering.h"

/* Functions are inlined, so that a short program could have a graph without end. */
enum { MAX_DEPTH = 64, MAX_OPS = 1 << 18, TYPES_BYTES = 400 };

typedef struct walk {
    const strata_program *program;
    strata_graph *graph;
    /* [n_values]. A function that is called again computes its values again. */
    lowered *values;
    int depth, n_ops;
    /* The error has a line of the Python program already. */
    bool is_located;
} walk;

static lower_rule same;

/* The operations that have a rule. Calls and composites are in lower_op. */
static const struct {
    const char *name;
    lower_rule *rule;
    one_function *one;
    two_function *two;
    int combination;
} rows[] = {
    {"abs", strata_lower_unary, strata_abs, NULL, 0},
    {"add", strata_lower_combination, NULL, NULL, LOWER_ADD},
    {"and", strata_lower_combination, NULL, NULL, LOWER_AND},
    {"broadcast_in_dim", strata_lower_broadcast, NULL, NULL, 0},
    {"ceil", strata_lower_float, strata_lower_ceil, NULL, 0},
    {"clamp", strata_lower_clamp, NULL, NULL, 0},
    {"compare", strata_lower_compare, NULL, NULL, 0},
    {"concatenate", strata_lower_concatenate, NULL, NULL, 0},
    {"constant", strata_lower_constant, NULL, NULL, 0},
    {"convert", strata_lower_convert, NULL, NULL, 0},
    {"convolution", strata_lower_convolution, NULL, NULL, 0},
    {"cosine", strata_lower_unary, strata_cos, NULL, 0},
    {"divide", strata_lower_binary, NULL, strata_div, 0},
    {"dot_general", strata_lower_dot_general, NULL, NULL, 0},
    {"dynamic_slice", strata_lower_dynamic_slice, NULL, NULL, 0},
    {"dynamic_update_slice", strata_lower_dynamic_update_slice, NULL, NULL, 0},
    {"exponential", strata_lower_unary, strata_exp, NULL, 0},
    {"exponential_minus_one", strata_lower_float, strata_lower_exponential_minus_one, NULL, 0},
    {"floor", strata_lower_float, strata_lower_floor, NULL, 0},
    {"gather", strata_lower_gather, NULL, NULL, 0},
    {"iota", strata_lower_iota, NULL, NULL, 0},
    {"is_finite", strata_lower_unary, strata_lower_is_finite, NULL, 0},
    {"log", strata_lower_unary, strata_log, NULL, 0},
    {"log_plus_one", strata_lower_float, strata_lower_log_plus_one, NULL, 0},
    {"logistic", strata_lower_unary, strata_sigmoid, NULL, 0},
    {"maximum", strata_lower_combination, NULL, NULL, LOWER_MAXIMUM},
    {"minimum", strata_lower_combination, NULL, NULL, LOWER_MINIMUM},
    {"multiply", strata_lower_combination, NULL, NULL, LOWER_MULTIPLY},
    {"negate", strata_lower_unary, strata_neg, NULL, 0},
    {"not", strata_lower_not, NULL, NULL, 0},
    {"optimization_barrier", same, NULL, NULL, 0},
    {"or", strata_lower_combination, NULL, NULL, LOWER_OR},
    {"pad", strata_lower_pad, NULL, NULL, 0},
    {"power", strata_lower_binary, NULL, strata_pow, 0},
    {"reduce", strata_lower_reduce, NULL, NULL, 0},
    {"reduce_precision", strata_lower_reduce_precision, NULL, NULL, 0},
    {"reduce_window", strata_lower_reduce_window, NULL, NULL, 0},
    {"reshape", strata_lower_reshape, NULL, NULL, 0},
    {"reverse", strata_lower_reverse, NULL, NULL, 0},
    {"round_nearest_afz", strata_lower_float, strata_lower_round_away, NULL, 0},
    {"round_nearest_even", strata_lower_float, strata_lower_round_even, NULL, 0},
    {"rsqrt", strata_lower_unary, strata_rsqrt, NULL, 0},
    {"scatter", strata_lower_scatter, NULL, NULL, 0},
    {"select", strata_lower_select, NULL, NULL, 0},
    {"select_and_scatter", strata_lower_select_and_scatter, NULL, NULL, 0},
    {"sharding_constraint", same, NULL, NULL, 0},
    {"sign", strata_lower_unary, strata_lower_sign, NULL, 0},
    {"sine", strata_lower_unary, strata_sin, NULL, 0},
    {"slice", strata_lower_slice, NULL, NULL, 0},
    {"sqrt", strata_lower_unary, strata_sqrt, NULL, 0},
    {"subtract", strata_lower_binary, NULL, strata_sub, 0},
    {"tan", strata_lower_float, strata_lower_tan, NULL, 0},
    {"tanh", strata_lower_unary, strata_tanh, NULL, 0},
    {"transpose", strata_lower_transpose, NULL, NULL, 0},
    {"unrealized_conversion_cast", same, NULL, NULL, 0},
    {"xor", strata_lower_xor, NULL, NULL, 0},
};

/* The results are the operands: there is one device, and no pass moves operations. */
static strata_status same(const lower_call *call, strata_error *err) {
    STRATA_TRY(strata_lower_operands(call, call->op->n_results, err));
    for (int i = 0; i < call->op->n_results; i++) call->out[i] = *call->in[i];
    return STRATA_OK;
}

/* ---- types ---- */

strata_status strata_lower_dtype(const strata_program_type *element, strata_dtype *out, strata_error *err) {
    static const struct {
        const char *name;
        strata_dtype dtype;
    } names[] = {{"f32", STRATA_DTYPE_F32}, {"f16", STRATA_DTYPE_F16}, {"bf16", STRATA_DTYPE_BF16}, {"i32", STRATA_DTYPE_I32},
                 {"i64", STRATA_DTYPE_I64}, {"ui8", STRATA_DTYPE_U8},  {"i1", STRATA_DTYPE_BOOL}};
    const char *name = element->name ? element->name : element->kind == STRATA_PROGRAM_TYPE_COMPLEX ? "complex" : "another";
    for (size_t i = 0; i < sizeof names / sizeof names[0] && element->kind == STRATA_PROGRAM_TYPE_SCALAR; i++) {
        if (strcmp(names[i].name, name) != 0) continue;
        *out = names[i].dtype;
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "the element type %s is none of f32, f16, bf16, i32, i64, ui8 and i1, which Strata has; convert the "
                       "array to one of them",
                       name);
}

static strata_status read_type(const walk *w, int index, strata_dtype *out_dtype, strata_shape *out_shape, strata_error *err) {
    const strata_program_type *type = &w->program->types[index];
    if (type->kind != STRATA_PROGRAM_TYPE_TENSOR)
        return strata_fail(err, STRATA_UNSUPPORTED, "a value has the type %s, which is no tensor",
                           type->name ? type->name : "of another dialect");
    if (type->rank > STRATA_MAX_RANK)
        return strata_fail(err, STRATA_UNSUPPORTED, "a tensor has %d axes, and at most %d are computed with", type->rank,
                           STRATA_MAX_RANK);
    strata_shape shape = {.rank = type->rank};
    for (int i = 0; i < type->rank; i++) {
        shape.dims[i] = type->dims[i];
        if (shape.dims[i] < 0 || shape.dims[i] > INT32_MAX)
            return strata_fail(err, STRATA_UNSUPPORTED, "axis %d of a tensor has the size %" PRId64 "; 0 to %d is supported", i,
                               type->dims[i], INT32_MAX);
    }
    STRATA_TRY(strata_shape_check(shape, err));
    *out_shape = shape;
    return strata_lower_dtype(&w->program->types[type->element], out_dtype, err);
}

/* ---- attributes and regions ---- */

strata_status strata_lower_operands(const lower_call *call, int n, strata_error *err) {
    if (call->op->n_operands == n) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "it has %d operands instead of %d", call->op->n_operands, n);
}

static strata_status check_integer(const char *name, int64_t value, strata_error *err) {
    if (value >= -INT32_MAX && value <= INT32_MAX) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED, "its attribute %s has the number %" PRId64 ", which is beyond %d", name, value,
                       INT32_MAX);
}

strata_status strata_lower_integer(const lower_call *call, const char *name, int64_t *out, strata_error *err) {
    const strata_program_attribute *attribute = strata_program_find(call->program, call->op, name);
    if (!attribute || attribute->kind != STRATA_PROGRAM_INTEGER)
        return strata_fail(err, STRATA_DATA, "it has no whole number as attribute %s", name);
    *out = attribute->integer;
    return check_integer(name, *out, err);
}

/* The element of a tensor of i64 or i1. */
static int64_t element_of(const strata_program_attribute *attribute, bool is_bits, int i) {
    const int at = attribute->is_splat ? 0 : i;
    int64_t value = 0;
    if (is_bits) return attribute->data[at / 8] >> (at % 8) & 1;
    memcpy(&value, attribute->data + 8 * (size_t)at, sizeof value);
    return value;
}

static strata_status read_integers(const lower_call *call, const char *name, int most, int64_t *out, int *out_n,
                                   strata_error *err) {
    const strata_program_attribute *attribute = strata_program_find(call->program, call->op, name);
    const strata_program_type *types = call->program->types, *type = NULL;
    if (attribute && attribute->kind == STRATA_PROGRAM_TENSOR) type = &types[attribute->type];
    const int bits = type ? types[type->element].bits : 0;
    if (!type || types[type->element].kind != STRATA_PROGRAM_TYPE_SCALAR || (bits != 64 && bits != 1))
        return strata_fail(err, STRATA_DATA, "it has no list of whole numbers as attribute %s", name);
    int64_t n = 1; /* the reader checked the sizes */
    for (int i = 0; i < type->rank; i++) n *= type->dims[i];
    if (n > most) return strata_fail(err, STRATA_UNSUPPORTED, "its attribute %s has more than %d numbers", name, most);
    for (int i = 0; i < n; i++) {
        out[i] = element_of(attribute, bits == 1, i);
        STRATA_TRY(check_integer(name, out[i], err));
    }
    *out_n = (int)n;
    return STRATA_OK;
}

strata_status strata_lower_list(const lower_call *call, const char *name, int64_t *out, int *out_n, strata_error *err) {
    return read_integers(call, name, STRATA_MAX_RANK, out, out_n, err);
}

strata_status strata_lower_integers(const lower_call *call, const char *name, int n, int64_t *out, strata_error *err) {
    int found = 0;
    STRATA_TRY(read_integers(call, name, n, out, &found, err));
    if (found == n) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "its attribute %s has %d numbers instead of %d", name, found, n);
}

strata_status strata_lower_axes(const lower_call *call, const char *name, int rank, int *out, int *out_n, strata_error *err) {
    int64_t list[STRATA_MAX_RANK];
    STRATA_TRY(strata_lower_list(call, name, list, out_n, err));
    for (int i = 0; i < *out_n; i++) {
        bool is_wrong = list[i] < 0 || list[i] >= rank;
        for (int k = 0; k < i; k++) is_wrong |= list[k] == list[i];
        if (is_wrong)
            return strata_fail(err, STRATA_DATA, "its attribute %s has the axis %" PRId64 " twice, or beyond the rank %d", name,
                               list[i], rank);
        out[i] = (int)list[i];
    }
    return STRATA_OK;
}

/* The number of a value in a region: its arguments come first, then the results of its operations; -1: it is from outside. */
static int number_in(const strata_program *program, const strata_program_block *block, int n_ops, int value) {
    for (int i = 0; i < block->n_arguments; i++)
        if (block->arguments[i] == value) return i;
    for (int i = 0; i < n_ops; i++) {
        const strata_program_op *op = &program->ops[block->ops[i]];
        if (op->n_results == 1 && op->results[0] == value) return block->n_arguments + i;
    }
    return -1;
}

void strata_lower_body(const lower_call *call, int region, char out[LOWER_BODY_BYTES]) {
    enum { MAX_BODY_OPS = 16 };
    size_t length = 0;
    out[0] = '\0';
    if (call->op->n_regions <= region || call->op->regions[region].n_blocks != 1) return;
    const strata_program_block *block = &call->op->regions[region].blocks[0];
    for (int i = 0; i < block->n_ops && i <= MAX_BODY_OPS; i++) {
        const strata_program_op *op = &call->program->ops[block->ops[i]];
        const strata_program_attribute *direction = strata_program_find(call->program, op, "comparison_direction");
        const strata_program_attribute *type = strata_program_find(call->program, op, "compare_type");
        const bool is_total = type && type->kind == STRATA_PROGRAM_ENUM && !strcmp(type->text, "TOTALORDER");
        const bool is_wrong = op->n_operands > 4 || i == MAX_BODY_OPS || is_total;
        if (!is_wrong)
            length += (size_t)snprintf(out + length, LOWER_BODY_BYTES - length, "%s%s%s", op->name, direction ? " " : "",
                                       direction && direction->kind == STRATA_PROGRAM_ENUM ? direction->text : "");
        for (int k = 0; k < op->n_operands && !is_wrong && length < LOWER_BODY_BYTES; k++)
            length += (size_t)snprintf(out + length, LOWER_BODY_BYTES - length, " %d",
                                       number_in(call->program, block, i, op->operands[k]));
        if (!is_wrong && length < LOWER_BODY_BYTES) length += (size_t)snprintf(out + length, LOWER_BODY_BYTES - length, ";");
        if (is_wrong || length >= LOWER_BODY_BYTES) {
            out[0] = '\0';
            return;
        }
    }
}

int strata_lower_body_kind(const lower_call *call, int region) {
    char body[LOWER_BODY_BYTES];
    strata_lower_body(call, region, body);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t length = strlen(rows[i].name);
        if (!rows[i].combination || strncmp(body, rows[i].name, length) != 0) continue;
        if (!strcmp(body + length, " 0 1;return 2;") || !strcmp(body + length, " 1 0;return 2;")) return rows[i].combination;
    }
    return LOWER_NONE;
}

/* ---- operations ---- */

/* Puts before an error which operation it is about, and where it is in the Python program. If that is not known, the call
 * around it is added with its line. */
static strata_status at_op(walk *w, const strata_program_op *op, strata_status status, strata_error *err) {
    if (w->is_located) return status;
    const strata_program_attribute *line = strata_program_line(w->program, op->location);
    STRATA_FINISHED(strata_text) text = {0};
    strata_program_print_op(w->program, op, &text);
    w->is_located = line != NULL;
    const char *words = text.bytes && !text.failed ? text.bytes : op->name;
    if (!line) return strata_fail_in(err, status, "%.*s", TYPES_BYTES, words);
    return strata_fail_in(err, status, "%.*s at %.200s:%" PRId64, TYPES_BYTES, words, line->text, line->integer);
}

/* Sets a value after the check that the tensor has the type that the program states. */
static strata_status define(walk *w, int index, lowered value, strata_error *err) {
    strata_dtype dtype;
    STRATA_TRY(read_type(w, w->program->values[index], &dtype, &value.shape, err));
    strata_error built;
    const strata_status status = strata_graph_check(w->graph, &built);
    if (status)
        return strata_fail(err, status == STRATA_OUT_OF_MEMORY ? status : STRATA_UNSUPPORTED, "Strata has no op for it: %s",
                           built.message);
    if (!value.tensor) return strata_fail(err, STRATA_INTERNAL, "its rule made no result");
    const strata_shape shape = strata_tensor_shape(value.tensor);
    bool fits = shape.rank == value.shape.rank && strata_tensor_dtype(value.tensor) == dtype;
    for (int i = 0; i < shape.rank && fits; i++) fits = shape.dims[i] == value.shape.dims[i] || shape.dims[i] == 1;
    if (!fits)
        return strata_fail(err, STRATA_DATA, "its result is %s %s, but the program says %s %s",
                           strata_dtype_name(strata_tensor_dtype(value.tensor)), strata_shape_text(shape).text,
                           strata_dtype_name(dtype), strata_shape_text(value.shape).text);
    w->values[index] = value;
    return STRATA_OK;
}

/* Results without elements need no rule. *out_done: all results were such. */
static strata_status set_empty(walk *w, const lower_call *call, bool *out_done, strata_error *err) {
    *out_done = call->op->n_results > 0;
    for (int i = 0; i < call->op->n_results; i++) *out_done &= strata_shape_elements(call->out[i].shape) == 0;
    for (int i = 0; i < call->op->n_results && *out_done; i++) {
        strata_array empty = strata_array_view(call->out_dtypes[i], call->out[i].shape, NULL);
        STRATA_TRY(define(w, call->op->results[i], (lowered){.tensor = strata_constant(w->graph, &empty)}, err));
    }
    return STRATA_OK;
}

static strata_status apply_row(walk *w, lower_call *call, strata_error *err) {
    const bool is_constant = !strcmp(call->op->name, "constant") && call->op->n_results == 1;
    bool is_empty = false;
    if (is_constant && w->values[call->op->results[0]].tensor) return STRATA_OK;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, call->op->name) != 0) continue;
        STRATA_TRY(set_empty(w, call, &is_empty, err));
        if (is_empty) return STRATA_OK;
        call->one = rows[i].one;
        call->two = rows[i].two;
        call->combination = rows[i].combination;
        STRATA_TRY(rows[i].rule(call, err));
        for (int k = 0; k < call->op->n_results; k++) STRATA_TRY(define(w, call->op->results[k], call->out[k], err));
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "there is no rule for this operation yet; compute this part on another platform, such as under "
                       "jax.default_device(jax.devices(\"cpu\")[0])");
}

static strata_status call_function(walk *w, const char *name, const lowered *const *in, int n_in, lowered *out, int n_out,
                                   strata_error *err);

static const char *text_of(const walk *w, const strata_program_op *op, const char *name) {
    const strata_program_attribute *attribute = strata_program_find(w->program, op, name);
    return attribute && attribute->kind == STRATA_PROGRAM_STRING ? attribute->text : "";
}

/* Calls are inlined. A composite is computed as its decomposition says. */
static strata_status lower_op(walk *w, lower_call *call, strata_error *err) {
    const strata_program_op *op = call->op;
    const char *callee = !strcmp(op->name, "call")        ? text_of(w, op, "callee")
                         : !strcmp(op->name, "composite") ? text_of(w, op, "decomposition")
                                                          : NULL;
    if (!strcmp(op->name, "custom_call"))
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "the custom call \"%.64s\" is unknown here; compute this part on another platform, such as under "
                           "jax.default_device(jax.devices(\"cpu\")[0])",
                           text_of(w, op, "call_target_name"));
    if (!callee) return apply_row(w, call, err);
    STRATA_TRY(call_function(w, callee, call->in, op->n_operands, call->out, op->n_results, err));
    for (int i = 0; i < op->n_results; i++) STRATA_TRY(define(w, op->results[i], call->out[i], err));
    return STRATA_OK;
}

static strata_status walk_op(walk *w, const strata_program_op *op, strata_error *err) {
    STRATA_FREED const lowered **in = NULL;
    STRATA_FREED lowered *out = NULL;
    STRATA_FREED strata_dtype *dtypes = NULL;
    if (w->n_ops++ == MAX_OPS)
        return strata_fail(err, STRATA_UNSUPPORTED, "the program has more than %d operations with all calls inlined", MAX_OPS);
    STRATA_TRY(STRATA_NEW(in, op->n_operands, err, "there is no memory for %d operands", op->n_operands));
    STRATA_TRY(STRATA_NEW(out, op->n_results, err, "there is no memory for %d results", op->n_results));
    STRATA_TRY(STRATA_NEW(dtypes, op->n_results, err, "there is no memory for %d results", op->n_results));
    for (int i = 0; i < op->n_operands; i++) {
        in[i] = &w->values[op->operands[i]];
        if (!in[i]->tensor) return strata_fail(err, STRATA_DATA, "operand %d is of another function", i);
    }
    for (int i = 0; i < op->n_results; i++)
        STRATA_TRY(read_type(w, w->program->values[op->results[i]], &dtypes[i], &out[i].shape, err));
    lower_call call = {.program = w->program, .op = op, .graph = w->graph, .in = in, .out = out, .out_dtypes = dtypes};
    return lower_op(w, &call, err);
}

/* ---- functions ---- */

static strata_status find_function(const walk *w, const char *name, const strata_program_block **out, int *out_index,
                                   strata_error *err) {
    const strata_program_op *module = &w->program->ops[w->program->module];
    for (int r = 0; r < module->n_regions; r++)
        for (int b = 0; b < module->regions[r].n_blocks; b++)
            for (int i = 0; i < module->regions[r].blocks[b].n_ops; i++) {
                const int index = module->regions[r].blocks[b].ops[i];
                const strata_program_op *op = &w->program->ops[index];
                if (strcmp(op->name, "func") != 0 || strcmp(text_of(w, op, "sym_name"), name) != 0) continue;
                if (op->n_regions != 1 || op->regions[0].n_blocks != 1)
                    return strata_fail(err, STRATA_UNSUPPORTED, "the function @%.64s has not one block", name);
                *out = &op->regions[0].blocks[0];
                *out_index = index;
                return STRATA_OK;
            }
    return strata_fail(err, STRATA_DATA, "the program has no function @%.64s", name);
}

/* Computes the operations of a block whose arguments are set. *out_end: its last operation, which returns values. */
static strata_status walk_block(walk *w, const strata_program_block *block, const strata_program_op **out_end,
                                strata_error *err) {
    for (int i = 0; i < block->n_ops; i++) {
        const strata_program_op *op = &w->program->ops[block->ops[i]];
        if (!strcmp(op->name, "return")) {
            for (int k = 0; k < op->n_operands; k++)
                if (!w->values[op->operands[k]].tensor) return strata_fail(err, STRATA_DATA, "a result is not computed");
            *out_end = op;
            return STRATA_OK;
        }
        const strata_status status = walk_op(w, op, err);
        if (status) return at_op(w, op, status, err);
    }
    return strata_fail(err, STRATA_DATA, "a function does not return");
}

static strata_status call_function(walk *w, const char *name, const lowered *const *in, int n_in, lowered *out, int n_out,
                                   strata_error *err) {
    const strata_program_block *block = NULL;
    const strata_program_op *end = NULL;
    int index = 0;
    STRATA_TRY(find_function(w, name, &block, &index, err));
    if (w->depth == MAX_DEPTH)
        return strata_fail(err, STRATA_UNSUPPORTED, "@%.64s is called through more than %d functions", name, MAX_DEPTH);
    if (block->n_arguments != n_in)
        return strata_fail(err, STRATA_DATA, "@%.64s has %d arguments, and is called with %d", name, block->n_arguments, n_in);
    for (int i = 0; i < n_in; i++) STRATA_TRY(define(w, block->arguments[i], *in[i], err));
    w->depth++;
    STRATA_TRY(walk_block(w, block, &end, err));
    w->depth--;
    if (end->n_operands != n_out)
        return strata_fail(err, STRATA_DATA, "@%.64s returns %d values instead of %d", name, end->n_operands, n_out);
    for (int i = 0; i < n_out; i++) out[i] = w->values[end->operands[i]];
    return STRATA_OK;
}

/* ---- the program ---- */

static strata_status create_inputs(walk *w, const strata_program_block *block, strata_lowered *out, strata_error *err) {
    const int n = block->n_arguments;
    STRATA_TRY(STRATA_NEW(out->inputs, n, err, "there is no memory for %d inputs", n));
    STRATA_TRY(STRATA_NEW(out->aliases, n, err, "there is no memory for %d inputs", n));
    out->n_inputs = n;
    for (int i = 0; i < n; i++) {
        char name[16];
        strata_dtype dtype;
        strata_shape shape;
        const strata_status status = read_type(w, w->program->values[block->arguments[i]], &dtype, &shape, err);
        if (status) return strata_fail_in(err, status, "argument %d of the program", i);
        snprintf(name, sizeof name, "%d", i);
        out->inputs[i] = strata_input(w->graph, name, dtype, shape);
        out->aliases[i] = -1;
        STRATA_TRY(define(w, block->arguments[i], (lowered){.tensor = out->inputs[i]}, err));
    }
    return STRATA_OK;
}

static strata_status read_aliases(const walk *w, int function, strata_lowered *out, strata_error *err) {
    const strata_program_attribute *all = strata_program_find(w->program, &w->program->ops[function], "arg_attrs");
    for (int i = 0; all && all->kind == STRATA_PROGRAM_ARRAY && i < all->n_items && i < out->n_inputs; i++) {
        const strata_program_attribute *of = &w->program->attributes[all->items[i]];
        for (int k = 0; of->kind == STRATA_PROGRAM_DICTIONARY && k + 1 < of->n_items; k += 2) {
            const strata_program_attribute *value = &w->program->attributes[of->items[k + 1]];
            if (strcmp(w->program->attributes[of->items[k]].text, "tf.aliasing_output") != 0) continue;
            if (value->kind != STRATA_PROGRAM_INTEGER || value->integer < 0 || value->integer >= out->n_outputs)
                return strata_fail(err, STRATA_DATA, "the output that argument %d may become is not among the %d", i,
                                   out->n_outputs);
            out->aliases[i] = (int)value->integer;
        }
    }
    return STRATA_OK;
}

static strata_status lower_main(walk *w, strata_lowered *out, strata_error *err) {
    const strata_program_op *module = &w->program->ops[w->program->module], *end = NULL;
    const strata_program_attribute *partitions = strata_program_find(w->program, module, "mhlo.num_partitions");
    const strata_program_block *block = NULL;
    int function = 0;
    if (partitions && partitions->kind == STRATA_PROGRAM_INTEGER && partitions->integer > 1)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "the program is for %" PRId64 " devices; use one, without shardings over several",
                           partitions->integer);
    STRATA_TRY(find_function(w, "main", &block, &function, err));
    STRATA_TRY(create_inputs(w, block, out, err));
    STRATA_TRY(walk_block(w, block, &end, err));
    STRATA_TRY(STRATA_NEW(out->outputs, end->n_operands, err, "there is no memory for %d outputs", end->n_operands));
    out->n_outputs = end->n_operands;
    for (int i = 0; i < end->n_operands; i++) out->outputs[i] = strata_lower_whole(&w->values[end->operands[i]]);
    STRATA_TRY(strata_graph_check(w->graph, err));
    return read_aliases(w, function, out, err);
}

strata_status strata_lower(const strata_program *program, strata_lowered *out, strata_error *err) {
    *out = (strata_lowered){0};
    walk w = {.program = program};
    strata_status status;
    STRATA_TRY_GOTO(STRATA_NEW(w.values, program->n_values, err, "there is no memory for %d values", program->n_values));
    STRATA_TRY_GOTO(strata_graph_create(&out->graph, err));
    w.graph = out->graph;
    STRATA_TRY_GOTO(lower_main(&w, out, err));
cleanup:
    free(w.values);
    if (status) strata_lowered_finish(out);
    return status;
}

void strata_lowered_finish(strata_lowered *lowered) {
    if (!lowered) return;
    strata_graph_destroy(lowered->graph);
    free(lowered->inputs);
    free(lowered->outputs);
    free(lowered->aliases);
    *lowered = (strata_lowered){0};
}
