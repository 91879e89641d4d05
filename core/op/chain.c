/* SPDX-License-Identifier: Apache-2.0
 *
 * chain: y = an expression of element-wise ops over operands of one dtype T that broadcast together. Each step's result is
 * rounded to T, as the separate op does when it stores the result. Comparisons give bool, which only `where` reads, so every
 * value in memory has dtype T. Chains are built after the gradients, so the op has no gradient. */
#include "core/op/chain.h"

#include "core/op/define.h"
#include "core/op/ops.h"

/* ---- codes: those of elementwise.def plus a base for each kind of op, as in shaders/chain.kernel ---- */
enum { UNARY = 0, BINARY = 32, COMPARISON = 64, WHERE = 96, CODES = 97 };

#define UNARY_NUMBER(code, name, expression)  _Static_assert((code) < BINARY - UNARY, "the code of " #name);
#define UNARY_FLOAT                           UNARY_NUMBER
#define BINARY_NUMBER(code, name, expression) _Static_assert((code) < COMPARISON - BINARY, "the code of " #name);
#define BINARY_FLOAT                          BINARY_NUMBER
#include "core/op/elementwise.def"

static const strata_op *const ops_by_code[CODES] = {
#define UNARY_NUMBER(code, name, expression)  [UNARY + code] = &strata_op_##name,
#define UNARY_FLOAT                           UNARY_NUMBER
#define BINARY_NUMBER(code, name, expression) [BINARY + code] = &strata_op_##name,
#define BINARY_FLOAT                          BINARY_NUMBER
#define COMPARE(code, name, expression)       [COMPARISON + code] = &strata_op_##name,
#include "core/op/elementwise.def"
    [WHERE] = &strata_op_where,
};

int strata_chain_code(const strata_op *op) {
    for (int code = 0; code < CODES; code++)
        if (ops_by_code[code] == op) return code;
    return -1;
}

const strata_op *strata_chain_op(int code) {
    return code >= 0 && code < CODES ? ops_by_code[code] : NULL;
}

static int argument_of(int64_t step, int i) {
    return (int)(step >> (8 + 8 * i) & 255);
}

void strata_chain_add(strata_chain_attrs *attrs, const strata_op *op, const int *arguments) {
    int64_t step = strata_chain_code(op);
    /* An unused argument repeats the first one, so that every argument refers to an existing value. */
    for (int i = 0; i < STRATA_CHAIN_ARGUMENTS; i++) step |= (int64_t)arguments[i < op->n_inputs ? i : 0] << (8 + 8 * i);
    attrs->steps[attrs->n_steps++] = step;
}

strata_tensor *strata_chain(int n_operands, strata_tensor *const *operands, const strata_chain_attrs *attrs) {
    return strata_node(NULL, &strata_op_chain, n_operands, operands, attrs);
}

/* ---- rule ---- */

/* Checks one step by the shape rule of its op. Each operand is assumed to have the shape of the whole chain. */
static strata_status check_step(const strata_tensor *node, int s, strata_tensor *values, strata_error *err) {
    const strata_chain_attrs *attrs = node->attrs;
    const strata_op *op = strata_chain_op((int)(attrs->steps[s] & 255));
    strata_tensor *inputs[STRATA_CHAIN_ARGUMENTS];
    if (!op)
        return strata_fail(err, STRATA_INVALID, "step %d has the code %d, which no op has", s, (int)(attrs->steps[s] & 255));
    for (int i = 0; i < op->n_inputs; i++) {
        const int value = argument_of(attrs->steps[s], i);
        if (value >= STRATA_CHAIN_OPERANDS + s || (value >= node->n_inputs && value < STRATA_CHAIN_OPERANDS))
            return strata_fail(err, STRATA_INVALID, "step %d (%s) reads value %d, which does not exist yet", s, op->name,
                               value);
        inputs[i] = &values[value];
    }
    strata_tensor *step = &values[STRATA_CHAIN_OPERANDS + s];
    *step = (strata_tensor){.op = op, .n_inputs = op->n_inputs, .inputs = inputs};
    strata_status status = strata_infer(step, err);
    step->inputs = NULL;
    return status ? strata_fail_in(err, status, "step %d, %s", s, op->name) : STRATA_OK;
}

static strata_status shape(strata_tensor *node, strata_error *err) {
    const strata_chain_attrs *attrs = node->attrs;
    strata_tensor values[STRATA_CHAIN_VALUES];
    if (attrs->n_steps < 1 || attrs->n_steps > STRATA_CHAIN_STEPS)
        return strata_fail(err, STRATA_INVALID, "it has %" PRId64 " steps; it must have 1 to %d", attrs->n_steps,
                           STRATA_CHAIN_STEPS);
    for (int i = 0; i < node->n_inputs; i++) {
        STRATA_TRY(strata_check_dtype(node->inputs[i], "an operand", STRATA_NUMBERS, err));
        STRATA_TRY(strata_check_same_dtype(node->inputs[0], "operand 0", node->inputs[i], "another", err));
        values[i] = *node->inputs[i];
    }
    for (int s = 0; s < attrs->n_steps; s++) STRATA_TRY(check_step(node, s, values, err));
    const strata_tensor *last = &values[STRATA_CHAIN_OPERANDS + attrs->n_steps - 1];
    node->dtype = last->dtype;
    node->shape = last->shape;
    for (int s = 0; s < attrs->n_steps; s++)
        if (!strata_shape_equal(values[STRATA_CHAIN_OPERANDS + s].shape, node->shape))
            return strata_fail(err, STRATA_INVALID, "step %d gives %s, the last one %s; all must be of one shape", s,
                               strata_shape_text(values[STRATA_CHAIN_OPERANDS + s].shape).text,
                               strata_shape_text(node->shape).text);
    if (node->dtype != node->inputs[0]->dtype)
        return strata_fail(err, STRATA_INVALID, "its value is %s, its operands are %s; they must be of one dtype",
                           strata_dtype_name(node->dtype), strata_dtype_name(node->inputs[0]->dtype));
    return STRATA_OK;
}

static double flops(const strata_tensor *node) {
    return (double)strata_shape_elements(node->shape) * (double)((const strata_chain_attrs *)node->attrs)->n_steps;
}

strata_strided strata_chain_space(int n, const strata_tensor *const *tensors, strata_shape shape) {
    strata_strided space = {.rank = shape.rank, .n_tensors = n};
    for (int d = 0; d < shape.rank; d++) space.sizes[d] = shape.dims[d];
    for (int t = 0; t < n; t++) strata_broadcast_strides(tensors[t]->shape, shape, space.strides[t]);
    strata_strided_merge(&space);
    return space;
}

strata_strided strata_elementwise_space(const strata_tensor *node) {
    const strata_tensor *tensors[STRATA_CHAIN_OPERANDS + 1];
    for (int i = 0; i <= node->n_inputs; i++) tensors[i] = i < node->n_inputs ? node->inputs[i] : node;
    return strata_chain_space(node->n_inputs + 1, tensors, node->shape);
}

/* ---- evaluation in host memory ---- */

void strata_chain_run_init(strata_chain_run *run, const strata_tensor *node) {
    const strata_chain_attrs *attrs = node->op == &strata_op_chain ? node->attrs : NULL;
    run->n_operands = node->n_inputs;
    run->n_steps = attrs ? (int)attrs->n_steps : 1;
    size_t widest = strata_dtype_bytes(node->dtype);
    for (int i = 0; i < node->n_inputs; i++)
        if (strata_dtype_bytes(node->inputs[i]->dtype) > widest) widest = strata_dtype_bytes(node->inputs[i]->dtype);
    run->block = STRATA_CHAIN_BLOCK_BYTES / (int64_t)widest;
    run->space = strata_chain_space(node->n_inputs, (const strata_tensor *const *)node->inputs, node->shape);
    const int64_t inner = run->space.sizes[run->space.rank - 1];
    if (inner > 0 && inner < run->block) run->block -= run->block % inner; /* a multiple of whole rows */
    for (int i = 0; i < node->n_inputs; i++)
        run->operands[i] = (strata_tensor){.dtype = node->inputs[i]->dtype, .shape = STRATA_SHAPE(run->block)};
    for (int i = 0; i < node->n_inputs; i++) {
        run->blocks_are_equal[i] = inner <= run->block || !run->space.strides[i][run->space.rank - 1];
        for (int d = 0; d < run->space.rank - 1; d++)
            run->blocks_are_equal[i] = run->blocks_are_equal[i] && run->space.strides[i][d] == 0;
    }
    for (int s = 0; s < run->n_steps; s++) {
        const strata_op *op = attrs ? strata_chain_op((int)(attrs->steps[s] & 255)) : node->op;
        const bool compares = attrs && strata_chain_code(op) >= COMPARISON && op != &strata_op_where;
        run->steps[s] = (strata_tensor){.op = op,
                                        .dtype = compares ? STRATA_DTYPE_BOOL : node->dtype,
                                        .shape = STRATA_SHAPE(run->block),
                                        .n_inputs = op->n_inputs,
                                        .inputs = run->inputs[s]};
        for (int i = 0; i < op->n_inputs; i++) {
            const int value = attrs ? argument_of(attrs->steps[s], i) : i;
            run->arguments[s][i] = value;
            run->inputs[s][i] =
                value < STRATA_CHAIN_OPERANDS ? &run->operands[value] : &run->steps[value - STRATA_CHAIN_OPERANDS];
        }
    }
}

static void set_count(strata_chain_run *run, int64_t count) {
    for (int i = 0; i < run->n_operands; i++) run->operands[i].shape.dims[0] = count;
    for (int s = 0; s < run->n_steps; s++) run->steps[s].shape.dims[0] = count;
}

/* A buffer for one block of a value. */
typedef struct block {
    _Alignas(64) unsigned char bytes[STRATA_CHAIN_BLOCK_BYTES];
} block;

/* Fills `target` with n copies of the element at `source`. */
static void repeat(void *target, const void *source, size_t bytes, int64_t n) {
    if (bytes == sizeof(uint32_t)) {
        uint32_t element, *to = target;
        memcpy(&element, source, sizeof element);
        for (int64_t i = 0; i < n; i++) to[i] = element;
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy((char *)target + (size_t)i * bytes, source, bytes);
}

/* Returns the elements at .. at + count of operand t as contiguous memory: in the operand itself, or copied to `room`. */
static const void *gather(const strata_chain_run *run, int t, const char *data, int64_t at, int64_t count, block *room) {
    const strata_strided *space = &run->space;
    const int64_t *strides = space->strides[t], inner = space->sizes[space->rank - 1], step = strides[space->rank - 1];
    const size_t bytes = strata_dtype_bytes(run->operands[t].dtype);
    if (space->rank == 1 && step == 1) return data + (size_t)at * bytes;
    if (at > 0 && run->blocks_are_equal[t]) return room->bytes;
    /* `row` is the offset of the current row in the operand. place[d] is the row's index along each axis d except for the
     * innermost one. */
    int64_t place[STRATA_MAX_RANK], row = 0, rest = at / inner, column = at % inner;
    for (int d = space->rank - 2; d >= 0; d--) {
        place[d] = rest % space->sizes[d];
        row += place[d] * strides[d];
        rest /= space->sizes[d];
    }
    for (int64_t done = 0; done < count; column = 0) {
        const int64_t length = inner - column < count - done ? inner - column : count - done;
        const char *source = data + (size_t)(row + column * step) * bytes;
        if (step == 1 && length == count && !run->blocks_are_equal[t]) return source;
        if (step == 1)
            memcpy(room->bytes + (size_t)done * bytes, source, (size_t)length * bytes);
        else
            repeat(room->bytes + (size_t)done * bytes, source, bytes, length);
        done += length;
        for (int d = space->rank - 2; d >= 0; d--) {
            row += strides[d];
            if (++place[d] < space->sizes[d]) break;
            row -= place[d] * strides[d];
            place[d] = 0;
        }
    }
    return room->bytes;
}

strata_status strata_chain_run_blocks(strata_chain_run *run, const strata_op_call *call, strata_chain_step *step,
                                      const void *user, strata_error *err) {
    const int64_t n = strata_shape_elements(call->node->shape);
    const size_t bytes = strata_dtype_bytes(call->node->dtype);
    block rooms[STRATA_CHAIN_VALUES];
    const void *values[STRATA_CHAIN_VALUES];
    for (int64_t at = 0; at < n; at += run->block) {
        const int64_t count = n - at < run->block ? n - at : run->block;
        if (count < run->block) set_count(run, count);
        for (int i = 0; i < run->n_operands; i++) values[i] = gather(run, i, call->inputs[i], at, count, &rooms[i]);
        for (int s = 0; s < run->n_steps; s++) {
            const void *inputs[STRATA_CHAIN_ARGUMENTS];
            void *output = rooms[STRATA_CHAIN_OPERANDS + s].bytes;
            if (s == run->n_steps - 1) output = (char *)call->output + (size_t)at * bytes;
            for (int i = 0; i < run->steps[s].n_inputs; i++) inputs[i] = values[run->arguments[s][i]];
            const strata_op_call part = {.node = &run->steps[s], .inputs = inputs, .output = output};
            STRATA_TRY(step(user, s, &part, err));
            values[STRATA_CHAIN_OPERANDS + s] = output;
        }
    }
    return STRATA_OK;
}

static strata_status reference_step(const void *user, int step, const strata_op_call *call, strata_error *err) {
    (void)user;
    (void)step;
    return strata_reference(*call, err);
}

static void reference(strata_op_call *call) {
    strata_chain_run run;
    strata_chain_run_init(&run, call->node);
    call->status = strata_chain_run_blocks(&run, call, reference_step, NULL, call->err);
}

/* ---- launch ---- */

/* Whether compilers for CPUs fail to vectorize a loop that contains all the steps. They do not vectorize rounding to a
 * 16-bit dtype. Nor do they vectorize expressions that contain one of the words below, because these call functions that
 * the compilers do not inline. */
static bool needs_split(const strata_tensor *node) {
    static const char *const words[] = {"LOG", "POW", "ERF", "SIN(", "COS("};
    const strata_chain_attrs *attrs = node->attrs;
    for (int s = 0; s < attrs->n_steps; s++) {
        const char *formula = strata_chain_op((int)(attrs->steps[s] & 255))->formula;
        for (size_t i = 0; formula && i < sizeof words / sizeof *words; i++)
            if (strstr(formula, words[i])) return true;
    }
    return strata_dtype_bytes(node->dtype) == 2;
}

static strata_status lower(const strata_tensor *node, strata_lowering *lowering, strata_error *err) {
    static const char *const names[STRATA_CHAIN_STEPS] = {"STEP_0",  "STEP_1",  "STEP_2",  "STEP_3", "STEP_4",  "STEP_5",
                                                          "STEP_6",  "STEP_7",  "STEP_8",  "STEP_9", "STEP_10", "STEP_11",
                                                          "STEP_12", "STEP_13", "STEP_14", "STEP_15"};
    const strata_chain_attrs *attrs = node->attrs;
    const strata_strided space = strata_chain_space(node->n_inputs, (const strata_tensor *const *)node->inputs, node->shape);
    strata_launch launch = {.kernel = "chain",
                            .variant = strata_dtype_name(node->dtype),
                            .n_buffers = STRATA_CHAIN_OPERANDS + 1,
                            .writes = 1u << STRATA_CHAIN_OPERANDS};
    if (strata_shape_elements(node->shape) == 0) return STRATA_OK;
    if (space.rank > STRATA_CHAIN_AXES)
        return strata_fail(err, STRATA_UNSUPPORTED, "its operands are broadcast along %d axes; the kernel takes %d", space.rank,
                           STRATA_CHAIN_AXES);
    strata_strided inner = {.rank = STRATA_STRIDED_KERNEL_AXES, .n_tensors = node->n_inputs, .sizes = {1, 1, 1, 1}};
    const int first = STRATA_STRIDED_KERNEL_AXES - space.rank;
    /* Bit t is set if operand t has a stride along the innermost axis, that is, is not broadcast along it. */
    int advancing = 0;
    for (int d = 0; d < space.rank; d++) inner.sizes[first + d] = space.sizes[d];
    STRATA_TRY(strata_launch_over(&launch, &inner, err));
    for (int t = 0; t < STRATA_CHAIN_OPERANDS; t++) {
        for (int d = 0; d < space.rank && t < node->n_inputs; d++) inner.strides[t][first + d] = space.strides[t][d];
        for (int d = 1; d < STRATA_STRIDED_KERNEL_AXES - 1; d++)
            strata_launch_word(&launch)->u32 = inner.sizes[d] > 1 ? (uint32_t)inner.strides[t][d] : 0;
        if (t >= node->n_inputs) continue;
        if (inner.strides[t][STRATA_STRIDED_KERNEL_AXES - 1]) advancing |= 1 << t;
        launch.buffers[t] = node->inputs[t];
    }
    launch.buffers[STRATA_CHAIN_OPERANDS] = node;
    strata_launch_constant_add(&launch, "OPERANDS", node->n_inputs);
    strata_launch_constant_add(&launch, "ADVANCING", advancing);
    strata_launch_constant_add(&launch, "STEPS", (int32_t)attrs->n_steps);
    strata_launch_constant_add(&launch, "SPLIT", needs_split(node));
    for (int s = 0; s < attrs->n_steps; s++) strata_launch_constant_add(&launch, names[s], (int32_t)attrs->steps[s]);
    return strata_lowering_add(lowering, &launch, err);
}

/* The chain as separate nodes, one for each step. */
static strata_tensor *compose(strata_tensor *node) {
    const strata_chain_attrs *attrs = node->attrs;
    strata_tensor *values[STRATA_CHAIN_VALUES] = {NULL}, *inputs[STRATA_CHAIN_ARGUMENTS];
    for (int i = 0; i < node->n_inputs; i++) values[i] = node->inputs[i];
    for (int s = 0; s < attrs->n_steps; s++) {
        const strata_op *op = strata_chain_op((int)(attrs->steps[s] & 255));
        for (int i = 0; i < op->n_inputs; i++) inputs[i] = values[argument_of(attrs->steps[s], i)];
        values[STRATA_CHAIN_OPERANDS + s] = strata_node(node->graph, op, op->n_inputs, inputs, NULL);
    }
    return values[STRATA_CHAIN_OPERANDS + attrs->n_steps - 1];
}

const strata_op strata_op_chain = {
    .name = "chain",
    .n_inputs = 1,
    .optional_inputs = STRATA_CHAIN_OPERANDS - 1,
    .flags = STRATA_OP_ELEMENTWISE,
    .attrs_bytes = sizeof(strata_chain_attrs),
    .attrs = {{"n_steps", STRATA_ATTR_INT, offsetof(strata_chain_attrs, n_steps)},
              {"steps", STRATA_ATTR_CODES, offsetof(strata_chain_attrs, steps)},
              {"more_steps", STRATA_ATTR_CODES, offsetof(strata_chain_attrs, steps[STRATA_MAX_RANK])}},
    .shape = shape,
    .no_gradient = "chains are made of nodes that have gradients, after these were built",
    .reference = reference,
    .compose = compose,
    .flops = flops,
    .lower = lower,
};
