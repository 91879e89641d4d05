/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs: reading, lowering and compiling what JAX sends, and running it. A run is over when the call returns. */
#include <inttypes.h>
#include <stdio.h>

#include "core/frontend/pjrt/lower.h"
#include "core/frontend/pjrt/plugin.h"

STRATA_OWNER(strata_program)

/* ---- compiling ---- */

static void destroy(pjrt_api_loaded *loaded) {
    if (!loaded) return;
    strata_executable_destroy(loaded->executable);
    strata_jax_client_release(loaded->client);
    pthread_mutex_destroy(&loaded->lock);
    free(loaded->values);
    free(loaded);
}

static strata_status check_partitions(const strata_program *program, strata_error *err) {
    static const char *const names[] = {"mhlo.num_partitions", "mhlo.num_replicas"};
    for (int i = 0; i < 2; i++) {
        const strata_program_attribute *n = strata_program_find(program, &program->ops[program->module], names[i]);
        if (n && n->kind == STRATA_PROGRAM_INTEGER && n->integer != 1)
            return strata_fail(err, STRATA_UNSUPPORTED, "the program is for several devices (%s is %" PRId64 "); there is one",
                               names[i], n->integer);
    }
    return STRATA_OK;
}

static strata_status describe(pjrt_api_loaded *loaded, const strata_lowered *lowered, strata_error *err) {
    loaded->n_inputs = lowered->n_inputs;
    loaded->n_outputs = lowered->n_outputs;
    const int n = loaded->n_inputs + loaded->n_outputs;
    STRATA_TRY(STRATA_NEW(loaded->values, n, err, "no host memory for %d arguments and results", n));
    for (int i = 0; i < n; i++) {
        const bool is_input = i < loaded->n_inputs;
        const strata_tensor *tensor = is_input ? lowered->inputs[i] : lowered->outputs[i - loaded->n_inputs];
        loaded->values[i] = (struct strata_jax_value){.dtype = strata_tensor_dtype(tensor),
                                                      .shape = strata_tensor_shape(tensor),
                                                      .index = -1,
                                                      .is_donated = is_input && lowered->aliases[i] >= 0};
    }
    return STRATA_OK;
}

static strata_status compile(pjrt_api_loaded *loaded, const pjrt_program_text *text, strata_error *err) {
    const strata_executable_options options = {.n_slots = 1};
    STRATA_OWNED(strata_program) *program = NULL;
    STRATA_TRY(strata_program_read(text->code, text->code_size, &program, err));
    STRATA_TRY(check_partitions(program, err));
    const strata_program_attribute *name = strata_program_find(program, &program->ops[program->module], "sym_name");
    snprintf(loaded->name, sizeof loaded->name, "%s", name && name->text ? name->text : "");
    STRATA_FINISHED(strata_lowered) lowered = {0};
    STRATA_TRY(strata_lower(program, &lowered, err));
    STRATA_TRY(strata_graph_check(lowered.graph, err));
    STRATA_TRY(describe(loaded, &lowered, err));
    if (!lowered.n_outputs) return STRATA_OK;
    STRATA_TRY(strata_executable_create(loaded->client->device.device, lowered.outputs, lowered.n_outputs, NULL, 0, &options,
                                        &loaded->executable, err));
    for (int i = 0; i < loaded->n_inputs; i++) {
        char input[12];
        snprintf(input, sizeof input, "%d", i);
        loaded->values[i].index = strata_executable_input_index(loaded->executable, input);
    }
    return STRATA_OK;
}

/* The options are those of XLA's compiler, and the devices, of which there is one. */
strata_status strata_jax_Client_Compile(pjrt_client_compile_args *args, strata_error *err) {
    const pjrt_program_text *text = args->program;
    pjrt_api_loaded *loaded;
    args->executable = NULL;
    if (!text || !STRATA_JAX_HAS(text, format_size) || !text->code || text->format_size != 4 || memcmp(text->format, "mlir", 4))
        return strata_fail(err, STRATA_INVALID, "a program must have the format mlir");
    STRATA_TRY(STRATA_NEW(loaded, 1, err, "no host memory for a program"));
    pthread_mutex_init(&loaded->lock, NULL);
    loaded->client = args->client;
    strata_jax_client_retain(loaded->client);
    const strata_status status = compile(loaded, text, err);
    if (status) destroy(loaded);
    if (!status) args->executable = loaded;
    return status;
}

strata_status strata_jax_LoadedExecutable_Destroy(pjrt_object_args *args, strata_error *err) {
    (void)err;
    destroy(args->object);
    return STRATA_OK;
}

strata_status strata_jax_LoadedExecutable_GetExecutable(pjrt_loaded_executable_args *args, strata_error *err) {
    STRATA_TRY(STRATA_NEW(args->executable, 1, err, "no host memory for a program"));
    args->executable->n_outputs = (size_t)args->loaded->n_outputs;
    memcpy(args->executable->name, args->loaded->name, sizeof args->loaded->name);
    return STRATA_OK;
}

strata_status strata_jax_Executable_Destroy(pjrt_object_args *args, strata_error *err) {
    (void)err;
    free(args->object);
    return STRATA_OK;
}

static void keep(void *owner) {
    (void)owner;
}

/* One replica and one computation, on the device 0: field 1 is 1, field 2 is 1, field 3 is {field 1 is [0]}. */
strata_status strata_jax_LoadedExecutable_GetDeviceAssignment(pjrt_device_assignment_args *args, strata_error *err) {
    static const char assignment[] = {0x08, 1, 0x10, 1, 0x1a, 3, 0x0a, 1, 0};
    (void)err;
    args->bytes = assignment;
    args->n_bytes = sizeof assignment;
    args->owner = NULL;
    args->destroy = keep;
    return STRATA_OK;
}

/* ---- running ---- */

/* What one run reads and writes. */
typedef struct run {
    pjrt_api_loaded *loaded;
    strata_jax_values **arguments;
    pjrt_api_buffer **results;
} run;

static void run_finish(run *r) {
    for (int i = 0; r->arguments && i < r->loaded->n_inputs; i++) strata_jax_values_release(r->arguments[i]);
    for (int i = 0; r->results && i < r->loaded->n_outputs; i++) strata_jax_buffer_destroy(r->results[i]);
    free(r->arguments);
    free(r->results);
}

static strata_status take_argument(run *r, int i, pjrt_api_buffer *buffer, strata_error *err) {
    const struct strata_jax_value *wanted = &r->loaded->values[i];
    r->arguments[i] = buffer ? strata_jax_buffer_values(buffer) : NULL;
    if (!r->arguments[i]) return strata_fail(err, STRATA_INVALID, "argument %d was deleted or donated", i);
    const strata_array *array = &r->arguments[i]->array;
    if (array->dtype == wanted->dtype && strata_shape_equal(array->shape, wanted->shape)) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "argument %d is %s %s, and %s %s in the program", i,
                       strata_dtype_name(array->dtype), strata_shape_text(array->shape).text, strata_dtype_name(wanted->dtype),
                       strata_shape_text(wanted->shape).text);
}

static strata_status run_init(run *r, pjrt_api_buffer *const *arguments, strata_error *err) {
    pjrt_api_loaded *loaded = r->loaded;
    const struct strata_jax_value *outputs = loaded->values + loaded->n_inputs;
    STRATA_TRY(STRATA_NEW(r->arguments, loaded->n_inputs, err, "no host memory to run a program"));
    STRATA_TRY(STRATA_NEW(r->results, loaded->n_outputs, err, "no host memory to run a program"));
    for (int i = 0; i < loaded->n_inputs; i++) STRATA_TRY(take_argument(r, i, arguments[i], err));
    for (int i = 0; i < loaded->n_outputs; i++)
        STRATA_TRY(strata_jax_buffer_create(loaded->client, outputs[i].dtype, outputs[i].shape, &r->results[i], err));
    return STRATA_OK;
}

static strata_status compute(const run *r, strata_error *err) {
    pjrt_api_loaded *loaded = r->loaded;
    strata_executable *exe = loaded->executable;
    int slot;
    if (!exe) return STRATA_OK;
    STRATA_LOCKED(&loaded->lock);
    STRATA_TRY(strata_executable_acquire(exe, &slot, err));
    for (int i = 0; i < loaded->n_inputs; i++) {
        const strata_array *array = &r->arguments[i]->array;
        const size_t bytes = loaded->values[i].index < 0 ? 0 : strata_array_bytes(array);
        if (bytes) memcpy(strata_executable_input(exe, slot, loaded->values[i].index), array->data, bytes);
    }
    STRATA_TRY(strata_executable_submit(exe, slot, err));
    STRATA_TRY(strata_executable_wait(exe, slot, err));
    for (int i = 0; i < loaded->n_outputs; i++) {
        const strata_array *array = &r->results[i]->values->array;
        if (strata_array_bytes(array)) memcpy(array->data, strata_executable_output(exe, slot, i), strata_array_bytes(array));
    }
    return STRATA_OK;
}

static bool may_donate(const pjrt_execute_options *options, int input) {
    if (!options || !STRATA_JAX_HAS(options, n_not_donated)) return true;
    for (size_t i = 0; i < options->n_not_donated; i++)
        if (options->not_donated[i] == input) return false;
    return true;
}

static strata_status check_arguments(const pjrt_execute_args *args, strata_error *err) {
    pjrt_api_loaded *loaded = args->executable;
    if (loaded->is_deleted) return strata_fail(err, STRATA_INVALID, "the program %s was deleted", loaded->name);
    if (args->n_devices != 1 || (args->device && args->device != &loaded->client->device))
        return strata_fail(err, STRATA_UNSUPPORTED, "a program is to run on %zu devices; there is one", args->n_devices);
    if (args->n_arguments != (size_t)loaded->n_inputs || (loaded->n_inputs && !args->arguments) ||
        (loaded->n_outputs && !args->outputs))
        return strata_fail(err, STRATA_INVALID, "a program with %d arguments was given %zu", loaded->n_inputs,
                           args->n_arguments);
    return STRATA_OK;
}

strata_status strata_jax_LoadedExecutable_Execute(pjrt_execute_args *args, strata_error *err) {
    pjrt_api_loaded *loaded = args->executable;
    STRATA_TRY(check_arguments(args, err));
    STRATA_FINISHED_BY(run_finish) run r = {.loaded = loaded};
    pjrt_api_buffer *const *arguments = loaded->n_inputs ? args->arguments[0] : NULL;
    STRATA_TRY(run_init(&r, arguments, err));
    STRATA_TRY(compute(&r, err));
    for (int i = 0; i < loaded->n_inputs; i++)
        if (loaded->values[i].is_donated && may_donate(args->options, i)) strata_jax_buffer_delete(arguments[i]);
    for (int i = 0; i < loaded->n_outputs; i++) args->outputs[0][i] = strata_released(&r.results[i]);
    if (args->done) args->done[0] = &strata_jax_ready;
    return STRATA_OK;
}
