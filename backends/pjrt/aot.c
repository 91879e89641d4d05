/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates topologies, compiles for them, and reads the compiler's estimates. The public header is strata/ahead.h. */
#include <math.h>

#include "backends/pjrt/plugin.h"
#include "core/base/alloc.h"
#include "core/base/ascii.h"
#include "core/run/driver.h"

/* The most ops without a time. Each of them counts as -1 s (strata_pjrt_read_costs), so a smaller sum is not an estimate. */
enum { MOST_UNTIMED = 1000 };

struct strata_ahead_topology {
    pjrt_plugin plugin;
    pjrt_api_topology *topology;
    int n_devices;
};

strata_status strata_ahead_topology_check(const char *name, int *out_n_chips, strata_error *err) {
    enum { MOST_CHIPS = 4096, MOST_AXES = 3 };
    int64_t n = 1;
    const char *at = name;
    while (strata_ascii_is_word(*at)) at++;
    if (at == name || *at != ':')
        return strata_fail(err, STRATA_INVALID, "%s: it must be a chip and the sides of a grid, for example v5e:2x2", name);
    for (int axis = 0; *at; axis++) {
        int64_t side = 0;
        const char *digits = ++at;
        for (; *at >= '0' && *at <= '9' && side <= MOST_CHIPS; at++) side = 10 * side + (*at - '0');
        if (at == digits || (*at && *at != 'x') || axis == MOST_AXES)
            return strata_fail(
                err, STRATA_INVALID,
                "%s: it must be a chip and the sides of a grid, one to %d numbers with x between them, for example "
                "v5e:2x2",
                name, MOST_AXES);
        if (side < 1 || side > MOST_CHIPS || n * side > MOST_CHIPS)
            return strata_fail(err, STRATA_INVALID,
                               "%s: it must be a chip and the sides of a grid, each at least 1, with %d chips at most", name,
                               MOST_CHIPS);
        n *= side;
    }
    if (out_n_chips) *out_n_chips = (int)n;
    return STRATA_OK;
}

static void release(strata_ahead_topology *topology) {
    if (topology->topology)
        strata_pjrt_destroy(&topology->plugin, PJRT_FUNCTION_TopologyDescription_Destroy, topology->topology);
}

static strata_status create_topology(const char *name, strata_ahead_topology *topology, strata_error *err) {
    const pjrt_plugin *plugin = &topology->plugin;
    pjrt_topology_create_args args = {
        .head = {PJRT_SIZE(pjrt_topology_create_args, topology), NULL}, .name = name, .name_size = strlen(name)};
    STRATA_TRY(strata_pjrt_call(plugin, PJRT_FUNCTION_TopologyDescription_Create, &args, name, STRATA_INVALID, err));
    topology->topology = args.topology;
    pjrt_topology_devices_args devices = {.head = {PJRT_SIZE(pjrt_topology_devices_args, n_descriptions), NULL},
                                          .topology = args.topology};
    const strata_status status =
        strata_pjrt_call(plugin, PJRT_FUNCTION_TopologyDescription_GetDeviceDescriptions, &devices, name, STRATA_INVALID, err);
    topology->n_devices = (int)devices.n_descriptions;
    if (status) release(topology);
    return status;
}

enum { NAME_BYTES = 256 };

typedef struct topology_call {
    char name[NAME_BYTES];
    strata_ahead_topology topology;
    strata_status status;
    strata_error err;
} topology_call;

static void run_topology(void *user) {
    topology_call *call = user;
    call->status = create_topology(call->name, &call->topology, &call->err);
}

strata_status strata_ahead_topology_create(const char *plugin, const char *name, strata_ahead_topology **out_topology,
                                           strata_error *err) {
    topology_call creating = {0};
    STRATA_TRY(strata_pjrt_load(plugin, &creating.topology.plugin, err));
    STRATA_TRY(strata_ahead_topology_check(name, NULL, err));
    if (strlen(name) >= sizeof creating.name)
        return strata_fail(err, STRATA_INVALID, "%s: the name of a target has %d bytes at most", name, NAME_BYTES - 1);
    strcpy(creating.name, name);
    const strata_driver_call call = {
        .what = {name, NULL, STRATA_DRIVER_OPEN}, .run = run_topology, .call = &creating, .bytes = sizeof creating};
    STRATA_TRY(strata_driver_call_within(&call, strata_driver_seconds(), NULL, NULL, err));
    if (creating.status) return strata_fail(err, creating.status, "%s", creating.err.message);
    const strata_status status = STRATA_NEW(*out_topology, 1, err, "%s: no host memory", name);
    if (status)
        release(&creating.topology);
    else
        **out_topology = creating.topology;
    return status;
}

void strata_ahead_topology_destroy(strata_ahead_topology *topology) {
    if (!topology) return;
    release(topology);
    free(topology);
}

int strata_ahead_topology_n_devices(const strata_ahead_topology *topology) {
    return topology->n_devices;
}

static bool is_named(const pjrt_named_value *value, const char *name) {
    return value->name_size == strlen(name) && !memcmp(value->name, name, value->name_size);
}

void strata_pjrt_read_costs(const pjrt_cost_args *costs, strata_ahead_topology_estimate *e) {
    double seconds = NAN;
    const struct {
        const char *name;
        double *value;
    } rows[] = {{"flops", &e->flops},
                {"transcendentals", &e->transcendentals},
                {"bytes accessed", &e->bytes_accessed},
                {"optimal_seconds", &seconds}};
    for (size_t i = 0; i < costs->n_properties; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            if (is_named(&costs->properties[i], rows[k].name) && costs->properties[i].type == PJRT_VALUE_FLOAT)
                *rows[k].value = (double)costs->properties[i].single;
    if (!(seconds >= -MOST_UNTIMED)) return; /* also if it is NaN: then there is no estimate */
    e->n_untimed = seconds < 0 ? (int)ceil(-seconds) : 0;
    e->seconds = seconds + e->n_untimed;
}

/* Whether the plugin has these numbers of the compiler. Fails only if it has them and cannot give them. */
static bool has_numbers(const pjrt_plugin *plugin, int function, void *args, const char *what, strata_status *status,
                        strata_error *err) {
    if (*status) return false;
    *status = strata_pjrt_call(plugin, function, args, what, STRATA_UNSUPPORTED, err);
    if (*status != STRATA_UNSUPPORTED) return !*status;
    *status = STRATA_OK;
    return false;
}

static strata_status request_estimate(const pjrt_plugin *plugin, pjrt_api_executable *executable,
                                      strata_ahead_topology_estimate *e, strata_error *err) {
    pjrt_executable_number_args size = {.head = {PJRT_SIZE(pjrt_executable_number_args, number), NULL},
                                        .executable = executable};
    pjrt_memory_stats_args memory = {
        .head = {PJRT_SIZE(pjrt_memory_stats_args, total), NULL}, .executable = executable, .peak = -1};
    pjrt_cost_args costs = {.head = {PJRT_SIZE(pjrt_cost_args, properties), NULL}, .executable = executable};
    strata_status status = STRATA_OK;
    if (has_numbers(plugin, PJRT_FUNCTION_Executable_SizeOfGeneratedCodeInBytes, &size, "code size", &status, err))
        e->code_bytes = (double)size.number;
    if (has_numbers(plugin, PJRT_FUNCTION_Executable_GetCompiledMemoryStats, &memory, "memory", &status, err)) {
        e->argument_bytes = (double)memory.arguments;
        e->output_bytes = (double)memory.outputs;
        e->alias_bytes = (double)memory.aliases;
        e->temporary_bytes = (double)memory.temporaries;
        e->peak_bytes = (double)memory.peak;
    }
    if (has_numbers(plugin, PJRT_FUNCTION_Executable_GetCostAnalysis, &costs, "cost", &status, err))
        strata_pjrt_read_costs(&costs, e);
    return status;
}

static strata_status compile_ahead(const strata_ahead_topology *topology, char *text, size_t n_bytes, int n_replicas,
                                   strata_ahead_topology_estimate *out, strata_error *err) {
    char options[PJRT_COMPILE_OPTIONS_BYTES];
    const pjrt_program_text program = strata_pjrt_program_text(text, n_bytes);
    pjrt_compile_args args = {.head = {PJRT_SIZE(pjrt_compile_args, executable), NULL},
                              .topology = topology->topology,
                              .program = &program,
                              .options = options,
                              .options_size = strata_pjrt_compile_options(n_replicas, options)};
    STRATA_TRY(strata_pjrt_call(&topology->plugin, PJRT_FUNCTION_Compile, &args, "compile", STRATA_UNSUPPORTED, err));
    const strata_status status = request_estimate(&topology->plugin, args.executable, out, err);
    strata_pjrt_destroy(&topology->plugin, PJRT_FUNCTION_Executable_Destroy, args.executable);
    return status;
}

typedef struct ahead_call {
    strata_ahead_topology topology;
    char *text;
    size_t n_bytes;
    int n_replicas;
    strata_ahead_topology_estimate estimate;
    strata_status status;
    strata_error err;
} ahead_call;

static void run_ahead(void *user) {
    ahead_call *call = user;
    call->status = compile_ahead(&call->topology, call->text, call->n_bytes, call->n_replicas, &call->estimate, &call->err);
}

strata_status strata_ahead_topology_compile(const strata_ahead_topology *topology, const char *text, size_t n_bytes,
                                            int n_replicas, double seconds, strata_ahead_topology_estimate *out_estimate,
                                            strata_error *err) {
    *out_estimate = (strata_ahead_topology_estimate){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0};
    ahead_call ahead = {.topology = *topology,
                        .text = malloc(n_bytes + 1), /* an abandoned call keeps it */
                        .n_bytes = n_bytes,
                        .n_replicas = n_replicas,
                        .estimate = *out_estimate};
    if (!ahead.text) return strata_fail(err, STRATA_OUT_OF_MEMORY, "compile: no host memory for %zu bytes", n_bytes);
    memcpy(ahead.text, text, n_bytes);
    const strata_driver_call call = {
        .what = {topology->plugin.path, NULL, STRATA_DRIVER_COMPILE}, .run = run_ahead, .call = &ahead, .bytes = sizeof ahead};
    STRATA_TRY(strata_driver_call_within(&call, seconds, NULL, NULL, err));
    free(ahead.text);
    *out_estimate = ahead.estimate;
    return ahead.status ? strata_fail(err, ahead.status, "%s", ahead.err.message) : STRATA_OK;
}
