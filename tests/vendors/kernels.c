/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the kernels that the library would compile on GPUs which this machine does not have:
 *     vendors_kernels FOLDER MODEL.json...
 * A device that computes nothing (the null backend's) is given the compile function of a kernel device. It lowers each piece
 * for the limits of each row of `targets`, once for each candidate that a family has, and keeps the kernels. Its pieces are the
 * rows of the conformance suite in all dtypes, products and convolutions of many sizes, and training steps of the models.
 *
 * FOLDER gets a file for each kernel: <number>.cl, OpenCL C with its constants, and <number>.spv, the SPIR-V module. A kernel
 * that has no OpenCL C (those for matrix units, and all in a build without OpenCL) is listed for Vulkan's targets alone. Prints
 * one line of JSON for each kernel and target. Exit codes: 0, 1 with a message, 2 for wrong usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernel/gpu_tiles.h"
#if STRATA_WITH_OPENCL
#include "backends/opencl/opencl.h"
#endif
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/graph/graph.h"
#include "strata/strata.h"
#include "tests/conformance/case.h"

/* Made up after what the vendors' drivers report: OpenCL's and Vulkan's limits, compute units as the backends count them. */
static const struct {
    const char *name;
    strata_kernel_limits limits;
} targets[] = {
/* The last argument is what a work-item has in registers, and what else the target has. */
#define TARGET(label, class, workgroup, local, units, ...) \
    {                                                      \
        .name = label, .limits = {                         \
            .device_class = STRATA_DEVICE_##class##_GPU,   \
            .opencl_c = STRATA_WITH_OPENCL,                \
            .dtypes = (1u << STRATA_DTYPE_COUNT) - 1,      \
            .max_workgroup = workgroup,                    \
            .max_local = {workgroup, workgroup},           \
            .max_groups = {65535, 65535},                  \
            .local_bytes = local,                          \
            .compute_units = units,                        \
            .vector_width = 1,                             \
            .max_range_bytes = UINT32_MAX,                 \
            .item_registers = __VA_ARGS__                  \
        }                                                  \
    }
    TARGET("radv navi21", DISCRETE, 1024, 65536, 80, 0),
    TARGET("radv vega10", DISCRETE, 1024, 65536, 64, 0),
    /* `fast` lists f32 by a split as well; only families for matrix units heed it on GPUs. */
    TARGET("radv gfx1100", DISCRETE, 1024, 65536, 96, 0, .f16_unit = {16, 16, 16}, .unit_lanes = 64, .fast = true),
    TARGET("radv gfx1201", DISCRETE, 1024, 65536, 64, 0, .f16_unit = {16, 16, 16}, .bf16_unit = {16, 16, 16}, .unit_lanes = 64,
           .fast = true),
    TARGET("amdgcn gfx1030", DISCRETE, 256, 65536, 80, 0),
    TARGET("ptxas sm_70", DISCRETE, 1024, 49152, 80, 0),
    TARGET("ptxas sm_80", DISCRETE, 1024, 49152, 108, 0),
    TARGET("ptxas sm_90", DISCRETE, 1024, 49152, 132, 0),
    TARGET("ocloc skl", INTEGRATED, 256, 65536, 24, STRATA_INTEL_ITEM_REGISTERS),
    TARGET("ocloc tgllp", INTEGRATED, 512, 65536, 96, STRATA_INTEL_ITEM_REGISTERS),
    TARGET("ocloc dg2", DISCRETE, 1024, 65536, 512, STRATA_INTEL_ITEM_REGISTERS),
};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* ---- what was found ---- */
typedef struct found_kernel {
    strata_kernel kernel;
    uint32_t targets; /* bit: index in `targets` */
    uint32_t first;   /* of those, where a model's training step takes it untuned */
} found_kernel;

static struct {
    found_kernel *kernels;
    int n, capacity;
    int choice;    /* candidate to take, of those that there are */
    bool more;     /* some family had another candidate behind it */
    bool in_model; /* the piece is a model's training step */
} found;

/* The linker puts this in place of strata_tuner_choose (--wrap in .cmake/tests.cmake). */
int __wrap_strata_tuner_choose(strata_tuner *tuner, const strata_family *family, const strata_tensor *node,
                               const strata_candidate *candidates, int n);
int __wrap_strata_tuner_choose(strata_tuner *tuner, const strata_family *family, const strata_tensor *node,
                               const strata_candidate *candidates, int n) {
    (void)tuner, (void)family, (void)node, (void)candidates;
    found.more = found.more || found.choice + 1 < n;
    return found.choice < n ? found.choice : 0;
}

static strata_status keep_kernel(const strata_kernel *kernel, int target, strata_error *err) {
    const uint32_t first = (uint32_t)(found.in_model && found.choice == 0) << target;
    for (int i = 0; i < found.n; i++) {
        const strata_kernel *other = &found.kernels[i].kernel;
        if (other->shader != kernel->shader || memcmp(other->constants, kernel->constants, sizeof kernel->constants)) continue;
        found.kernels[i].targets |= 1u << target;
        found.kernels[i].first |= first;
        return STRATA_OK;
    }
    if (found.n == found.capacity) {
        const int capacity = found.capacity ? 2 * found.capacity : 256;
        found_kernel *kernels = realloc(found.kernels, (size_t)capacity * sizeof *kernels);
        if (!kernels) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for %d kernels", capacity);
        found.kernels = kernels;
        found.capacity = capacity;
    }
    found.kernels[found.n++] = (found_kernel){*kernel, 1u << target, first};
    return STRATA_OK;
}

/* ---- the device ---- */
static strata_support list_supports(strata_device *device, const strata_tensor *node, const char **reason) {
    (void)device;
    return strata_kernel_supports(&targets[0].limits, node, reason);
}

/* Whether the build has kernels for the units of a target that is there for them. */
static bool has_units_of(const strata_kernel_limits *limits) {
    return !limits->bf16_unit.m || strata_shader_find("matrix_units/matmul", "bf16");
}

/* The functions of the null backend. */
static const strata_device_api *null_api;

static strata_status list_compile(strata_device *device, const strata_piece *piece, strata_program **out_program,
                                  strata_error *err) {
    for (int target = 0; target < N_TARGETS; target++) {
        if (!has_units_of(&targets[target].limits)) continue;
        found.choice = 0;
        do {
            found.more = false;
            strata_kernel_list list = {0};
            STRATA_TRY(strata_kernel_list_create(&targets[target].limits, NULL, piece, &list, err));
            strata_status status = STRATA_OK;
            for (int i = 0; !status && i < list.n_kernels; i++) status = keep_kernel(&list.kernels[i], target, err);
            strata_kernel_list_finish(&list);
            STRATA_TRY(status);
            found.choice++;
        } while (found.more);
    }
    return null_api->compile(device, piece, out_program, err);
}

/* ---- pieces: the conformance suite's rows ---- */
/* Compiles the output alone, as it was built, and finishes the graph. */
static strata_status compile_output(strata_device *device, strata_graph *graph, strata_tensor *output, bool updates,
                                    strata_error *err) {
    strata_executable *executable = NULL;
    const strata_executable_options opts = {.n_slots = 1, .no_fusion = true};
    strata_status status = strata_graph_check(graph, err);
    if (!status) status = strata_executable_create(device, &output, 1, &output, updates, &opts, &executable, err);
    strata_executable_destroy(executable);
    return status;
}

static strata_status list_instance(strata_device *device, const op_row *row, const case_instance *instance, strata_dtype dtype,
                                   bool updates, strata_error *err) {
    strata_graph *graph = NULL;
    strata_tensor *x[CASE_INPUTS];
    strata_variable *variables[CASE_INPUTS] = {0};
    strata_status status = strata_graph_create(&graph, err);
    for (int i = 0; !status && i < row->n_operands; i++) {
        const case_operand *operand = &row->operands[i];
        const strata_dtype own = operand->dtype ? (strata_dtype)(operand->dtype - 1) : dtype;
        const char name[] = {'x', (char)('0' + i), 0};
        if (operand->variable) {
            status = strata_variable_create(device, name, own, instance->shapes[i], &variables[i], err);
            x[i] = status ? NULL : strata_variable_read(graph, variables[i]);
        } else {
            x[i] = strata_input(graph, name, own, instance->shapes[i]);
        }
    }
    if (!status) {
        strata_tensor *y =
            row->build ? row->build(x, instance->p, dtype) : strata_node(NULL, row->generic, row->n_operands, x, NULL);
        status = compile_output(device, graph, y, updates, err);
    }
    strata_graph_destroy(graph);
    for (int i = 0; i < CASE_INPUTS; i++) strata_variable_destroy(variables[i]);
    return status ? strata_fail_in(err, status, "row %s %s", row->op, row->variant ? row->variant : "") : STRATA_OK;
}

static strata_status list_rows(strata_device *device, strata_error *err) {
    for (int t = 0; case_tables[t]; t++)
        for (int r = 0; r < case_tables[t]->n_rows; r++) {
            const op_row *row = &case_tables[t]->rows[r];
            for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
                for (int i = 0; i < row->n_instances && row->dtypes >> d & 1; i++)
                    STRATA_TRY(
                        list_instance(device, row, &row->instances[i], (strata_dtype)d, case_tables[t] == &case_update, err));
        }
    return STRATA_OK;
}

/* ---- pieces: products of sizes that make the cost model take each of its tiles ---- */
static strata_status list_products(strata_device *device, strata_error *err) {
    static const int64_t sizes[] = {10, 64, 256, 1024, 4096};
    static const strata_dtype dtypes[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < N * N * 4 * 3; i++) {
        const int64_t m = sizes[i % N], n = sizes[i / N % N], k = 784;
        const bool transpose_a = i / N / N & 1, transpose_b = i / N / N / 2 & 1;
        const strata_dtype dtype = dtypes[i / N / N / 4];
        strata_graph *graph = NULL;
        STRATA_TRY(strata_graph_create(&graph, err));
        strata_tensor *a = strata_input(graph, "a", dtype, transpose_a ? STRATA_SHAPE(k, m) : STRATA_SHAPE(m, k));
        strata_tensor *b = strata_input(graph, "b", dtype, transpose_b ? STRATA_SHAPE(n, k) : STRATA_SHAPE(k, n));
        const strata_status status = compile_output(device, graph, strata_matmul(a, b, transpose_a, transpose_b), false, err);
        strata_graph_destroy(graph);
        STRATA_TRY(status);
    }
    return STRATA_OK;
}

/* ---- pieces: training steps ---- */
enum { MOST_MODEL_BYTES = 1 << 20 };

static strata_status not_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    (void)program, (void)slot, (void)out_ticket;
    return strata_fail(err, STRATA_INTERRUPTED, "listed, not run");
}

static strata_status list_model(strata_device *device, strata_device_api *api, const char *path, strata_dtype precision,
                                int64_t batch, strata_error *err) {
    unsigned char *text = NULL;
    size_t bytes = 0;
    strata_model *model = NULL;
    strata_step_times times = {0};
    STRATA_TRY(strata_file_read(path, MOST_MODEL_BYTES, &text, &bytes, err));
    strata_status status = strata_model_from_json((const char *)text, bytes, path, &model, err);
    free(text);
    const strata_compile_options options = {.optimizer = strata_adam_optimizer(0), .precision = precision};
    if (!status) status = strata_model_compile(model, device, &options, err);
    api->run = not_run; /* strata_model_time_step compiles the step, and comes no further */
    if (!status) status = strata_model_time_step(model, batch, &times, err);
    api->run = null_api->run;
    strata_step_times_finish(&times);
    strata_model_destroy(model);
    return status == STRATA_INTERRUPTED ? STRATA_OK : status;
}

static strata_status list_models(strata_device *device, strata_device_api *api, char **paths, int n, strata_error *err) {
    static const strata_dtype precisions[] = {STRATA_DTYPE_F32, STRATA_DTYPE_F16, STRATA_DTYPE_BF16};
    static const int64_t batches[] = {1, 64, 1024};
    for (int i = 0; i < 9 * n; i++)
        STRATA_TRY(list_model(device, api, paths[i / 9], precisions[i % 3], batches[i / 3 % 3], err));
    return STRATA_OK;
}

/* ---- writing ---- */
static strata_status write_file(const char *folder, int number, const char *ending, const void *data, size_t bytes,
                                strata_error *err) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%d.%s", folder, number, ending);
    FILE *file = fopen(path, "wb");
    const bool written = file && fwrite(data, 1, bytes, file) == bytes;
    if ((file && fclose(file)) || !written) return strata_fail(err, STRATA_UNAVAILABLE, "%s cannot be written", path);
    return STRATA_OK;
}

#if STRATA_WITH_OPENCL
/* What tells one kernel from all others, as a suffix of its function's name (FNV-1a). */
static uint64_t identity_of(const strata_kernel *kernel) {
    uint64_t hash = 14695981039346656037u;
    for (const char *c = kernel->shader->stem; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (const char *c = kernel->shader->variant; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (int i = 0; i < kernel->shader->n_constants; i++) hash = (hash ^ kernel->constants[i]) * 1099511628211u;
    return hash;
}

static strata_status write_source(const char *folder, int number, const found_kernel *kernel, char entry[64],
                                  strata_error *err) {
    char suffix[24], *source = NULL;
    size_t bytes = 0;
    strata_text text = {0};
    snprintf(suffix, sizeof suffix, "_%016llx", (unsigned long long)identity_of(&kernel->kernel));
    STRATA_TRY(strata_opencl_source_add(&text, &kernel->kernel, suffix, "", entry, err));
    STRATA_TRY(strata_text_take(&text, &source, &bytes, err));
    const strata_status status = write_file(folder, number, "cl", source, bytes, err);
    free(source);
    return status;
}
#else
static strata_status write_source(const char *folder, int number, const found_kernel *kernel, char entry[64],
                                  strata_error *err) {
    (void)folder, (void)number, (void)kernel, (void)entry;
    return strata_fail(err, STRATA_INTERNAL, "this build has no OpenCL C");
}
#endif

static strata_status write_kernel(const char *folder, int number, const found_kernel *kernel, strata_error *err) {
    const strata_shader *shader = kernel->kernel.shader;
    char entry[64] = "";
    void *spirv = NULL;
    if (shader->opencl.bytes) STRATA_TRY(write_source(folder, number, kernel, entry, err));
    STRATA_TRY(strata_shader_load(shader, &shader->spirv, &spirv, err));
    strata_status status = write_file(folder, number, "spv", spirv, shader->spirv.bytes, err);
    free(spirv);
    STRATA_TRY(status);
    for (int target = 0; target < N_TARGETS; target++) {
        if (!(kernel->targets >> target & 1) || (!shader->opencl.bytes && strncmp(targets[target].name, "radv", 4))) continue;
        const bool by_units = shader->needs & STRATA_SHADER_NEEDS_MATRIX_UNITS;
        printf(
            "{\"target\":\"%s\",\"number\":%d,\"kernel\":\"%s\",\"variant\":\"%s\",\"entry\":\"%s\",\"buffers\":%d,"
            "\"lanes\":%u,\"first\":%s,\"constants\":{",
            targets[target].name, number, shader->stem, shader->variant, entry, shader->n_buffers,
            by_units ? targets[target].limits.unit_lanes : 0, kernel->first >> target & 1 ? "true" : "false");
        for (int i = 0; i < shader->n_constants; i++)
            printf("%s\"%s\":%u", i ? "," : "", shader->constants[i].name, kernel->kernel.constants[i]);
        puts("}}");
    }
    return STRATA_OK;
}

int main(int argc, char **argv) {
    strata_error err = {0};
    strata_device *device = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: vendors_kernels FOLDER MODEL.json...\n");
        return 2;
    }
    strata_status status = strata_device_open("null", NULL, &device, &err);
    if (!status) {
        strata_device_api api = *device->api;
        null_api = device->api;
        api.compile = list_compile;
        api.supports = list_supports;
        device->api = &api;
        device->info.device_class = STRATA_DEVICE_DISCRETE_GPU;
        status = list_rows(device, &err);
        if (!status) status = list_products(device, &err);
        found.in_model = true;
        if (!status) status = list_models(device, &api, argv + 2, argc - 2, &err);
        device->api = null_api;
    }
    for (int i = 0; !status && i < found.n; i++) status = write_kernel(argv[1], i, &found.kernels[i], &err);
    free(found.kernels);
    strata_device_close(device);
    if (status) fprintf(stderr, "vendors_kernels: %s\n", err.message);
    return status ? 1 : 0;
}
