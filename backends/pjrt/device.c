/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices of PJRT plugins: finding them in STRATA_PLUGINS, opening, waiting, closing. Each device has its own client. */
#include <stdio.h>

#include "backends/pjrt/pjrt.h"
#include "backends/registry.h"

/* ---- runs ---- */

strata_status strata_pjrt_check(const pjrt_device *device, strata_error *err) {
    const strata_error *given_up = &device->base.given_up;
    if (given_up->status) return strata_fail(err, given_up->status, "%s", given_up->message);
    if (!device->lost) return STRATA_OK;
    return strata_fail(err, STRATA_DEVICE_LOST, "pjrt: %s is lost: its plugin failed in an earlier run", device->base.info.id);
}

strata_status strata_pjrt_lose(pjrt_device *device, strata_status status) {
    if (status) device->lost = true;
    return status;
}

/* Waits for the first run of the queue. */
static strata_status finish_run(pjrt_device *device, strata_error *err) {
    pjrt_run *run = device->first;
    strata_status status = STRATA_OK;
    for (int i = 0; i < run->n_events; i++) {
        const strata_status one =
            strata_pjrt_await(&device->plugin, run->events[i], "run", STRATA_DEVICE_LOST, status ? NULL : err);
        if (!status) status = one;
    }
    for (int i = 0; i < run->n_copied; i++) strata_pjrt_destroy(&device->plugin, PJRT_FUNCTION_Buffer_Destroy, run->copied[i]);
    run->n_events = run->n_copied = 0;
    device->first = run->next;
    if (!device->first) device->last = NULL;
    return strata_pjrt_lose(device, status);
}

strata_status strata_pjrt_finish_runs(pjrt_device *device, uint64_t ticket, strata_error *err) {
    strata_status status = STRATA_OK;
    while (device->first && device->first->ticket <= ticket) {
        const strata_status one = finish_run(device, status ? NULL : err);
        if (!status) status = one;
    }
    return status;
}

static strata_status pjrt_wait(strata_device *base, uint64_t ticket, strata_error *err) {
    pjrt_device *device = (pjrt_device *)base;
    if (ticket > device->last_ticket)
        return strata_fail(err, STRATA_INVALID, "pjrt: ticket %llu was never given out; the last is %llu",
                           (unsigned long long)ticket, (unsigned long long)device->last_ticket);
    base->counters.waits++;
    STRATA_TRY(strata_pjrt_finish_runs(device, ticket, err));
    return strata_pjrt_check(device, err);
}

/* ---- opening ---- */

static void pjrt_close(strata_device *base) {
    pjrt_device *device = (pjrt_device *)base;
    if (base->given_up.status) return; /* a thread is still in the plugin's compiler */
    strata_status ignored = strata_pjrt_finish_runs(device, UINT64_MAX, NULL);
    (void)ignored;
    strata_pjrt_destroy(&device->plugin, PJRT_FUNCTION_Client_Destroy, device->client);
    free(device->path);
    free(device);
}

static const strata_device_api api = {
    .close = pjrt_close,
    .buffer_create = strata_pjrt_buffer_create,
    .buffer_destroy = strata_pjrt_buffer_destroy,
    .upload = strata_pjrt_upload,
    .download = strata_pjrt_download,
    .supports = strata_pjrt_supports,
    .compile = strata_pjrt_compile,
    .program_destroy = strata_pjrt_program_destroy,
    .program_input = strata_pjrt_program_input,
    .program_output = strata_pjrt_program_output,
    .run = strata_pjrt_run_slot,
    .wait = pjrt_wait,
};

/* A plugin with a client, and the client's devices. */
typedef struct client {
    pjrt_plugin plugin;
    pjrt_api_client *client;
    pjrt_api_device *const *devices;
    int n_devices;
} client;

static void destroy_client(client *c) {
    if (c->client) strata_pjrt_destroy(&c->plugin, PJRT_FUNCTION_Client_Destroy, c->client);
    c->client = NULL;
}

static strata_status create_client(const char *path, client *c, strata_error *err) {
    *c = (client){0};
    STRATA_TRY(strata_pjrt_load(path, &c->plugin, err));
    pjrt_client_create_args args = {.head = {PJRT_SIZE(pjrt_client_create_args, key_value_try), NULL}};
    STRATA_TRY(strata_pjrt_call(&c->plugin, PJRT_FUNCTION_Client_Create, &args, "create a client", STRATA_UNAVAILABLE, err));
    c->client = args.client;
    pjrt_client_devices_args devices = {.head = {PJRT_SIZE(pjrt_client_devices_args, n_devices), NULL}, .client = args.client};
    const strata_status status =
        strata_pjrt_call(&c->plugin, PJRT_FUNCTION_Client_AddressableDevices, &devices, "devices", STRATA_UNAVAILABLE, err);
    c->devices = devices.devices;
    c->n_devices = (int)devices.n_devices;
    if (status) destroy_client(c);
    return status;
}

/* Writes the text that the plugin returns, or "". */
static void get_text(const pjrt_plugin *plugin, int function, void *object, char *out, size_t room) {
    pjrt_text_args args = {.head = {PJRT_SIZE(pjrt_text_args, text_size), NULL}, .object = object};
    *out = '\0';
    if (!object || strata_pjrt_call(plugin, function, &args, "", STRATA_UNAVAILABLE, NULL) || !args.text) return;
    snprintf(out, room, "%.*s", args.text_size < room ? (int)args.text_size : (int)room - 1, args.text);
}

static void describe(const client *c, int index, strata_device_info *info) {
    const pjrt_plugin *plugin = &c->plugin;
    pjrt_api_device *device = c->devices[index];
    pjrt_device_description_args description = {.head = {PJRT_SIZE(pjrt_device_description_args, description), NULL},
                                                .device = device};
    pjrt_device_memory_args memory = {.head = {PJRT_SIZE(pjrt_device_memory_args, peak_pool.is_known), NULL}, .device = device};
    if (strata_pjrt_call(plugin, PJRT_FUNCTION_Device_GetDescription, &description, "", STRATA_UNAVAILABLE, NULL))
        description.description = NULL;
    get_text(plugin, PJRT_FUNCTION_DeviceDescription_Kind, description.description, info->name, sizeof info->name);
    get_text(plugin, PJRT_FUNCTION_Client_PlatformName, c->client, info->vendor, sizeof info->vendor);
    get_text(plugin, PJRT_FUNCTION_Client_PlatformVersion, c->client, info->driver, sizeof info->driver);
    for (char *at = info->driver; *at; at++)
        if (*at == '\n') *at = ' ';
    if (!strata_pjrt_call(plugin, PJRT_FUNCTION_Device_MemoryStats, &memory, "", STRATA_UNAVAILABLE, NULL) &&
        memory.limit.is_known && memory.limit.bytes > 0)
        info->memory_bytes = (uint64_t)memory.limit.bytes;
    info->max_allocation_bytes = info->max_range_bytes = info->memory_bytes ? info->memory_bytes : INT64_MAX;
}

static strata_device_info new_row(int number) {
    strata_device_info row = {.backend = "pjrt",
                              .device_class = STRATA_DEVICE_ACCELERATOR,
                              .max_workgroup = 1,
                              .vector_width = 1,
                              .dtypes = (1u << STRATA_DTYPE_COUNT) - 1};
    snprintf(row.id, sizeof row.id, "pjrt:%d", number);
    return row;
}

/* Adds the rows of a plugin's devices. A plugin that cannot be used has one row. */
static strata_status list_plugin(strata_device_list *list, const char *path, int *n, strata_error *err) {
    client c;
    strata_error reason = {0};
    strata_status status = create_client(path, &c, &reason);
    if (status || !c.n_devices) {
        strata_device_info row = new_row((*n)++);
        snprintf(row.name, sizeof row.name, "%.*s", (int)sizeof row.name - 1, path);
        snprintf(row.skipped, sizeof row.skipped, "%.*s", (int)sizeof row.skipped - 1,
                 status ? reason.message : "the plugin has no device here");
        destroy_client(&c);
        return strata_device_list_add(list, &row, err);
    }
    status = STRATA_OK;
    for (int i = 0; i < c.n_devices && !status; i++) {
        strata_device_info row = new_row((*n)++);
        describe(&c, i, &row);
        status = strata_device_list_add(list, &row, err);
    }
    destroy_client(&c);
    return status;
}

static strata_status pjrt_list(strata_device_list *list, strata_error *err) {
    const char *at = getenv("STRATA_PLUGINS");
    strata_status status = STRATA_OK;
    char *path = NULL;
    for (int n = 0; !status && !(status = strata_plugins_next(&at, true, &path, err)) && path; free(path))
        status = list_plugin(list, path, &n, err);
    return status;
}

/* Opens the device with this index among those of the client, which it takes. */
static strata_status make_device(client *c, const char *path, int index, const strata_device_info *info, bool fast,
                                 strata_device **out_device, strata_error *err) {
    STRATA_FREED pjrt_device *device = calloc(1, sizeof *device);
    STRATA_FREED char *own_path = strdup(path);
    if (!device || !own_path) {
        destroy_client(c);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "pjrt: no host memory for a device");
    }
    *device = (pjrt_device){.base = {.api = &api, .info = *info},
                            .plugin = {.api = c->plugin.api, .path = own_path},
                            .client = c->client,
                            .device = c->devices[index],
                            .fast = fast};
    device->path = strata_released(&own_path);
    device->plugin.device = *out_device = &device->base;
    device = NULL;
    return STRATA_OK;
}

static strata_status pjrt_open(const strata_device_info *info, const strata_device_options *opts, strata_device **out_device,
                               strata_error *err) {
    const char *at = getenv("STRATA_PLUGINS");
    const int wanted = atoi(info->id + strlen("pjrt:"));
    char *path = NULL;
    for (int before = 0;; free(path)) { /* the number of rows of the plugins before this one */
        client c;
        STRATA_TRY(strata_plugins_next(&at, true, &path, err));
        if (!path) return strata_fail(err, STRATA_UNAVAILABLE, "pjrt: %s is no longer there", info->id);
        strata_status status = create_client(path, &c, err);
        const int n = status || !c.n_devices ? 1 : c.n_devices;
        const bool here = wanted < before + n;
        if (here && !status) status = make_device(&c, path, wanted - before, info, opts->fast, out_device, err);
        if (here) {
            free(path);
            return status;
        }
        destroy_client(&c);
        before += n;
    }
}

const strata_backend strata_backend_pjrt = {.name = "pjrt", .is_compared = true, .list = pjrt_list, .open = pjrt_open};
