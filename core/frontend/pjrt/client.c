/* SPDX-License-Identifier: Apache-2.0
 *
 * The client and its device: the one that the variable STRATA_DEVICE names, or the best one. */
#include <inttypes.h>
#include <stdio.h>

#include "core/frontend/pjrt/plugin.h"

void strata_jax_client_retain(pjrt_api_client *client) {
    atomic_fetch_add(&client->references, 1);
}

void strata_jax_client_release(pjrt_api_client *client) {
    if (!client || atomic_fetch_sub(&client->references, 1) > 1) return;
    strata_device_close(client->device.device);
    free(client);
}

/* JAX passes the number of processes after jax.distributed.initialize. */
static strata_status check_processes(const pjrt_client_create_args *args, strata_error *err) {
    static const char name[] = "num_nodes";
    for (size_t i = 0; i < args->n_options; i++) {
        const pjrt_named_value *option = &args->options[i];
        if (!STRATA_JAX_HAS(option, value_size) || option->name_size != sizeof name - 1 || option->type != PJRT_VALUE_INT64 ||
            memcmp(option->name, name, sizeof name - 1) != 0 || option->number == 1)
            continue;
        return strata_fail(err, STRATA_UNSUPPORTED, "JAX was started with %" PRId64 " processes; Strata's plugin is for one",
                           option->number);
    }
    return STRATA_OK;
}

/* A node that the device cannot run is run by the host, since programs of JAX contain ops that some device lacks. */
strata_status strata_jax_Client_Create(pjrt_client_create_args *args, strata_error *err) {
    const strata_device_options options = {.fallback_to_host = true};
    const char *which = getenv("STRATA_DEVICE");
    pjrt_api_client *client;
    args->client = NULL;
    STRATA_TRY(check_processes(args, err));
    STRATA_TRY(STRATA_NEW(client, 1, err, "no host memory for a client"));
    pjrt_api_device *device = &client->device;
    const strata_status status = strata_device_open(which && which[0] ? which : NULL, &options, &device->device, err);
    if (status) {
        free(client);
        return which && which[0] ? strata_fail_in(err, status, "STRATA_DEVICE=%s", which) : status;
    }
    const strata_device_info *info = strata_device_get_info(device->device);
    snprintf(device->kind, sizeof device->kind, "%s", info->name);
    snprintf(device->text, sizeof device->text, "StrataDevice(id=0, %s)", info->id);
    device->memory.client = client;
    device->memories[0] = &device->memory;
    client->devices[0] = device;
    client->references = 1;
    args->client = client;
    return STRATA_OK;
}

strata_status strata_jax_Client_Destroy(pjrt_object_args *args, strata_error *err) {
    (void)err;
    strata_jax_client_release(args->object);
    return STRATA_OK;
}

strata_status strata_jax_Client_LookupDevice(pjrt_lookup_device_args *args, strata_error *err) {
    if (args->id) return strata_fail(err, STRATA_INVALID, "there is no device with the id %d; the only one is 0", args->id);
    args->device = &args->client->device;
    return STRATA_OK;
}

strata_status strata_jax_Client_LookupAddressableDevice(pjrt_lookup_device_args *args, strata_error *err) {
    return strata_jax_Client_LookupDevice(args, err);
}
