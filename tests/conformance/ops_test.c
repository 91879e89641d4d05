/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs every op in every dtype and several shapes on every device, and compares it with its reference function. */
#include "core/op/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "backends/fallback/fallback.h"
#include "backends/kernel/lowering.h"
#include "core/run/executable.h"
#include "tests/conformance/case.h"
#include "tests/conformance/devices.h"
#include "tests/conformance/families.h"
#include "tests/conformance/run_case.h"
#include "tests/support/restricted.h"

enum { MOST_FAILURES = 12 };

static bool graph_has(const strata_graph *graph, const char *op) {
    for (int i = 0; i < graph->n_nodes; i++)
        if (!strcmp(graph->nodes[i]->op->name, op)) return true;
    return false;
}

/* The op that is replaced by its composition (other ops that compute the same). NULL: none. */
static const strata_op *composing;
static bool composed; /* some node was replaced by its composition */

/* Each op of a composition rounds its result. */
enum { COMPOSED_ROUNDINGS = 8 };

static void build_instance(run_case *run, const op_row *row, const case_instance *instance, strata_dtype dtype) {
    strata_tensor *x[CASE_INPUTS];
    for (int i = 0; i < row->n_operands; i++) {
        const case_operand *operand = &row->operands[i];
        strata_dtype own = operand->dtype ? (strata_dtype)(operand->dtype - 1) : dtype;
        strata_array value = case_operand_value(operand, own, instance->shapes[i], 1000 + (uint64_t)(run->n_leaves * 7 + i));
        x[i] = run_case_leaf(run, value, operand->variable);
    }
    strata_tensor *y =
        row->build ? row->build(x, instance->p, dtype) : strata_node(NULL, row->generic, row->n_operands, x, NULL);
    const int64_t terms = instance->terms ? instance->terms : 1, parts = composing ? COMPOSED_ROUNDINGS : 1;
    run_case_output(run, y, strata_test_tolerance_of(strata_tensor_dtype(y), terms * parts));
}

static const strata_op *op_of(const char *name) {
    int i = 0;
    while (strcmp(strata_ops[i]->name, name)) i++;
    return strata_ops[i];
}

static strata_status count_kept(const strata_node_support *placement, void *user, strata_error *err) {
    (void)err;
    *(int *)user += placement->node->op == composing;
    return STRATA_OK;
}

/* Returns how many nodes have not been replaced by their composition. */
static int n_kept(run_case *run) {
    strata_error err = {0};
    int n = 0;
    strata_status status = strata_executable_place(run->device, run->outputs, run->n_outputs, run->outputs,
                                                   run->updates ? run->n_outputs : 0, count_kept, &n, &err);
    cr_assert_eq(status, STRATA_OK, "%s", err.message);
    return n;
}

/* Runs one row in a set of dtypes. The text of the result is empty when all values are right. */
static strata_test_result run_row(strata_device *device, const op_row *row, unsigned dtypes) {
    struct {
        const case_instance *instance;
        strata_dtype dtype;
    } ran[RUN_OUTPUTS];
    run_case run;
    int wrong = 0;
    run_case_begin(&run, device);
    run.exact = row->exact;
    for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
        for (int i = 0; i < row->n_instances && dtypes >> d & 1; i++) {
            if (row->instances[i].big && conformance_small()) continue;
            cr_assert(run.n_outputs < RUN_OUTPUTS);
            ran[run.n_outputs].instance = &row->instances[i];
            ran[run.n_outputs].dtype = (strata_dtype)d;
            build_instance(&run, row, &row->instances[i], (strata_dtype)d);
        }
    if (!run.n_outputs) { /* all instances are big ones */
        run_case_end(&run);
        return strata_test_ok();
    }
    run.updates = run.variables[0] != NULL;
    strata_test_result result = run_case_check(&run, &wrong);
    if (result.ok && !graph_has(run.graph, row->op)) result = strata_test_bad("the row does not build the op");
    if (composing && result.ok) composed = composed || n_kept(&run) < run.n_outputs;
    if (!result.ok) {
        const strata_shape *shapes = ran[wrong].instance->shapes;
        char text[sizeof result.text];
        memcpy(text, result.text, sizeof text);
        result = strata_test_bad("%s%s: %s %s %s, operands %s and %s: %.500s", device->info.id, conformance_families_text(),
                                 row->op, row->variant ? row->variant : "", strata_dtype_name(ran[wrong].dtype),
                                 strata_shape_text(shapes[0]).text, strata_shape_text(shapes[1]).text, text);
    }
    run_case_end(&run);
    return result;
}

/* Returns the dtypes of `rest` to test next. Dtypes of the device are tested together, because the kernels of one
 * executable are compiled together. Dtypes that the device lacks, and rows with variables, are tested one dtype at a time. */
static unsigned next_dtypes(const strata_device *device, const op_row *row, unsigned rest) {
    const unsigned together = row->operands[0].variable ? 0 : rest & device->info.dtypes;
    return together ? together : rest & (~rest + 1);
}

static const op_table *running;

static void run_table(strata_device *device) {
    int failures = 0;
    for (int r = 0; r < running->n_rows; r++) {
        const op_row *row = &running->rows[r];
        if (!conformance_has_row(r)) continue;
        /* Oclgrind does not recognize the memset into which LLVM turns a loop that stores zeros, and reports that memory as
         * uninitialised. For vector selects of cpu/max_pool2d_grad it computes other values than PoCL and the reference. */
        if (row->not_oclgrind && strstr(device->info.driver, "Oclgrind")) continue;
        for (unsigned dtypes, rest = conformance_dtypes(row->dtypes); rest && failures < MOST_FAILURES; rest &= ~dtypes) {
            dtypes = next_dtypes(device, row, rest);
            conformance_families_begin();
            do {
                strata_test_result result = run_row(device, row, dtypes);
                failures += !result.ok;
                cr_expect(result.ok, "%s", result.text);
            } while (conformance_families_next(row->op));
        }
    }
}

#define TABLE(name)                                                                    \
    Test(conformance_ops, name) {                                                      \
        running = &case_##name;                                                        \
        conformance_each_device(&(strata_device_options){.no_tune = true}, run_table); \
    }
TABLE(unary)
TABLE(binary)
TABLE(compare)
TABLE(cast)
TABLE(shape)
TABLE(products)
TABLE(window)
TABLE(softmax)
TABLE(norm)
TABLE(recurrent)
TABLE(update)

/* ---- compositions: on a host that replaces each op by its composition ---- */

/* The ops of which all other ops can be composed. */
static const char *const basic_ops[] = {
    "add",  "mul",    "div", "exp",   "log",       "sqrt",   "pow",   "less",           "equal",         "where",
    "cast", "matmul", "pad", "slice", "transpose", "assign", "top_k", "random_uniform", "random_normal", NULL};

/* Whether only fused forms of the op have a composition. passes_test.c and chain_test.c test those. */
static bool is_of_fused_only(const strata_op *op) {
    return op == &strata_op_matmul;
}

static void run_compositions(const op_table *table, bool of_basic_ops) {
    const char *denied[2] = {NULL, NULL};
    strata_device *device = strata_test_restricted_host((strata_test_restriction){.ops = denied});
    for (int r = 0; r < table->n_rows; r++) {
        op_row row = table->rows[r];
        const strata_op *op = op_of(row.op);
        if (!op->compose) continue;
        denied[0] = row.op;
        row.exact = false;
        composed = composed && composing == op;
        composing = op;
        /* The composition contains a matrix product, in which a NaN or infinity in one row would affect other rows. */
        for (int i = 0; i < CASE_INPUTS && (op == &strata_op_gather || op == &strata_op_scatter_update); i++)
            if (row.operands[i].values == CASE_SPECIAL) row.operands[i].values = CASE_UNIFORM;
        strata_test_restrict(
            device, (strata_test_restriction){
                        .ops = of_basic_ops ? basic_ops : denied, .only_these = of_basic_ops, .answer = STRATA_SUPPORT_PARTS});
        for (unsigned dtypes, rest = row.dtypes; rest; rest &= ~dtypes) {
            dtypes = next_dtypes(device, &row, rest);
            strata_test_result result = run_row(device, &row, dtypes);
            cr_expect(result.ok, "%s", result.text);
        }
        const bool last = r + 1 == table->n_rows || strcmp(table->rows[r + 1].op, row.op) != 0;
        /* With STRATA_TEST_SMALL a row that has only big instances builds no node. */
        cr_expect(composed || !last || is_of_fused_only(op) || conformance_small(), "%s: no node was composed", row.op);
    }
    composing = NULL;
    strata_device_close(device);
}

#define COMPOSITIONS(name)                                  \
    Test(compositions, of_##name##_equal_the_reference) {   \
        run_compositions(&case_##name, false);              \
    }                                                       \
    Test(compositions, of_##name##_by_basic_ops_equal_it) { \
        run_compositions(&case_##name, true);               \
    }
COMPOSITIONS(unary)
COMPOSITIONS(binary)
COMPOSITIONS(compare)
COMPOSITIONS(cast)
COMPOSITIONS(shape)
COMPOSITIONS(products)
COMPOSITIONS(window)
COMPOSITIONS(softmax)
COMPOSITIONS(norm)
COMPOSITIONS(recurrent)
COMPOSITIONS(update)

/* ---- fallback to the host: on a device that runs only products and sums, and leaves other nodes to the host ---- */

static void run_with_help(const op_table *table) {
    static const char *const own_ops[] = {"matmul", "add", "assign", "exp", "slice", NULL};
    strata_error err = {0};
    strata_device *device = NULL;
    strata_device *inner =
        strata_test_restricted_host((strata_test_restriction){.ops = own_ops, .only_these = true, .answer = STRATA_SUPPORT_NO});
    cr_assert_eq(strata_fallback_create(inner, &device, &err), STRATA_OK, "%s", err.message);
    for (int r = 0; r < table->n_rows; r++)
        for (unsigned dtypes, rest = table->rows[r].dtypes; rest; rest &= ~dtypes) {
            op_row row = table->rows[r];
            row.exact = false; /* sums become products, which add in another order */
            dtypes = next_dtypes(device, &row, rest);
            strata_test_result result = run_row(device, &row, dtypes);
            cr_expect(result.ok, "%s", result.text);
        }
    cr_expect_gt(strata_device_get_counters(device).host_nodes, 0);
    strata_device_close(device);
}

#define WITH_HELP(name)                                     \
    Test(with_the_hosts_help, name##_equal_the_reference) { \
        run_with_help(&case_##name);                        \
    }
WITH_HELP(unary)
WITH_HELP(binary)
WITH_HELP(compare)
WITH_HELP(cast)
WITH_HELP(shape)
WITH_HELP(products)
WITH_HELP(window)
WITH_HELP(softmax)
WITH_HELP(norm)
WITH_HELP(update)

/* ---- what launches declare ---- */

/* Limits of a CPU behind OpenCL, a GPU, and a GPU that is emulated on a CPU. */
static const strata_kernel_limits classes[] = {
#define CLASS(class, lanes, units, ...)                                                                                   \
    {                                                                                                                     \
        .device_class = STRATA_DEVICE_##class, .opencl_c = true, .fast = true, .dtypes = (1u << STRATA_DTYPE_COUNT) - 1,  \
        .max_workgroup = 1024, .max_local = {1024, 1024}, .max_groups = {65535, 65535}, .local_bytes = 65536,             \
        .cache_bytes = 1 << 20, .compute_units = units, .vector_width = lanes, .max_range_bytes = UINT32_MAX, __VA_ARGS__ \
    }
    CLASS(CPU, 8, 4, .cheap_groups = true),
    CLASS(DISCRETE_GPU, 1, 80, .item_registers = 0),
    CLASS(SOFTWARE_GPU, 1, 4, .item_registers = 0),
};

static bool has_constant(const strata_shader *shader, const char *name) {
    for (int i = 0; i < shader->n_constants; i++)
        if (!strcmp(shader->constants[i].name, name)) return true;
    return false;
}

/* Compares each launch of the node with its kernel's file: numbers of buffers and words, constants, and which buffers are
 * written. */
static void check_launches(const strata_kernel_limits *limits, const strata_tensor *node) {
    strata_lowering lowering = {0};
    const bool lowers = !strata_lowering_run(&lowering, limits, NULL, node, NULL);
    for (int l = 0; lowers && l < lowering.n; l++) {
        const strata_launch *launch = &lowering.launches[l];
        const strata_shader *shader = strata_shader_find(launch->kernel, launch->variant);
        if (!shader) continue;
        cr_expect(launch->n_buffers == shader->n_buffers && launch->n_buffers + launch->n_words == shader->n_words,
                  "%s: kernel %s: %d buffers and %d words; the kernel has %d and %d", node->op->name, launch->kernel,
                  launch->n_buffers, launch->n_words, shader->n_buffers, shader->n_words - shader->n_buffers);
        cr_expect_eq(launch->writes >> launch->n_buffers, 0, "%s: kernel %s writes more than its %d buffers", node->op->name,
                     launch->kernel, launch->n_buffers);
        for (int i = 0; i < launch->n_constants; i++)
            cr_expect(has_constant(shader, launch->constants[i].name), "%s: kernel %s has no constant %s", node->op->name,
                      launch->kernel, launch->constants[i].name);
        for (int i = 0; i < launch->n_buffers && i < shader->n_buffers; i++) {
            const bool is_unused = !launch->buffers[i] && !lowering.scratch_bytes;
            cr_expect(is_unused || (launch->writes >> i & 1) == (shader->buffers[i].access != STRATA_SHADER_READ),
                      "%s: kernel %s: the launch declares buffer %s as %s, and the kernel as %s", node->op->name,
                      launch->kernel, shader->buffers[i].name, launch->writes >> i & 1 ? "written" : "read",
                      launch->writes >> i & 1 ? "read" : "written");
        }
    }
    strata_lowering_finish(&lowering);
}

static void check_launches_of_row(strata_device *host, const op_row *row, strata_dtype dtype) {
    run_case run;
    run_case_begin(&run, host);
    for (int i = 0; i < row->n_instances; i++) build_instance(&run, row, &row->instances[i], dtype);
    for (size_t c = 0; c < sizeof classes / sizeof *classes; c++)
        for (int n = 0; n < run.graph->n_nodes; n++) {
            const strata_tensor *node = run.graph->nodes[n];
            conformance_families_begin();
            do {
                if (node->op->lower) check_launches(&classes[c], node);
            } while (conformance_families_next(node->op->name));
        }
    run_case_end(&run);
}

Test(conformance_ops, launches_of_every_row_fit_their_kernels) {
    strata_device *host = conformance_open("host", &(strata_device_options){.no_tune = true});
    for (const op_table *const *table = case_tables; *table; table++)
        for (int r = 0; r < (*table)->n_rows; r++)
            for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
                if ((*table)->rows[r].dtypes >> d & 1) check_launches_of_row(host, &(*table)->rows[r], (strata_dtype)d);
    conformance_close(host);
}

Test(conformance_ops, every_op_has_a_row) {
    for (int i = 0; i < strata_n_ops; i++) {
        bool found = strata_ops[i]->flags & (STRATA_OP_LEAF | STRATA_OP_COMMUNICATION);
        for (const op_table *const *table = case_tables; *table; table++)
            for (int r = 0; r < (*table)->n_rows && !found; r++) found = !strcmp((*table)->rows[r].op, strata_ops[i]->name);
        cr_expect(found, "%s has no row in tests/conformance/cases_*.c", strata_ops[i]->name);
    }
}
