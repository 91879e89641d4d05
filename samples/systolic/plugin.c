/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry point of the plugin: its options, and a board of cores, each of which is a device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "systolic.h"

/* Strata calls `start` once, before any other function; it sets these variables, which do not change afterwards. */
static board the_board = {.lock = PTHREAD_MUTEX_INITIALIZER};
static strata_plugin_device_info the_info;
static char the_version[64];
static const strata_plugin_host *the_host;

/* ---- options: "cores=8;chip=s1;patience=30;form=avx2" ---- */

typedef struct options {
    int64_t cores;
    double patience;
    char chip[16], form[16];
} options;

static strata_plugin_status set_cores(options *o, const char *value, strata_plugin_error *error) {
    char *end;
    errno = 0;
    o->cores = strtoll(value, &end, 10);
    if (!errno && end != value && !*end && o->cores >= 1 && o->cores <= MOST_CORES) return STRATA_PLUGIN_OK;
    return fail(error, STRATA_PLUGIN_INVALID, "cores is \"%s\"; it must be 1 to %d", value, MOST_CORES);
}

static strata_plugin_status set_patience(options *o, const char *value, strata_plugin_error *error) {
    char *end;
    o->patience = strtod(value, &end);
    if (end != value && !*end && o->patience > 0 && o->patience <= 3600) return STRATA_PLUGIN_OK;
    return fail(error, STRATA_PLUGIN_INVALID, "patience is \"%s\"; it must be seconds above 0, at most 3600", value);
}

static strata_plugin_status set_chip(options *o, const char *value, strata_plugin_error *error) {
    const char *names;
    if (!chip_find(value, &names)) return fail(error, STRATA_PLUGIN_INVALID, "chip is \"%s\"; there are %s", value, names);
    snprintf(o->chip, sizeof o->chip, "%s", value);
    return STRATA_PLUGIN_OK;
}

static strata_plugin_status set_form(options *o, const char *value, strata_plugin_error *error) {
    if (!op_choose(value))
        return fail(error, STRATA_PLUGIN_UNAVAILABLE,
                    "form is \"%s\"; it must be portable, avx2 or avx512, and one that this processor has", value);
    snprintf(o->form, sizeof o->form, "%s", value);
    return STRATA_PLUGIN_OK;
}

static const struct {
    const char *key;
    strata_plugin_status (*set)(options *o, const char *value, strata_plugin_error *error);
} keys[] = {{"cores", set_cores}, {"chip", set_chip}, {"patience", set_patience}, {"form", set_form}};

static strata_plugin_status read_option(options *o, char *text, strata_plugin_error *error) {
    char *value = strchr(text, '=');
    if (!value) return fail(error, STRATA_PLUGIN_INVALID, "the option \"%s\" has no value: it must be key=value", text);
    *value++ = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i].key, text)) return keys[i].set(o, value, error);
    return fail(error, STRATA_PLUGIN_INVALID, "there is no option \"%s\"; there are cores, chip, patience and form", text);
}

static strata_plugin_status read_options(options *o, const char *text, strata_plugin_error *error) {
    char *own = strdup(text), *rest = own;
    strata_plugin_status status = STRATA_PLUGIN_OK;
    if (!own) return fail(error, STRATA_PLUGIN_OUT_OF_MEMORY, "no host memory for the options");
    while (rest && !status) {
        char *next = strchr(rest, ';');
        if (next) *next++ = 0;
        if (*rest) status = read_option(o, rest, error);
        rest = next;
    }
    free(own);
    return status;
}

/* ---- the plugin ---- */

static strata_plugin_status start(const char *text, int32_t *out_n_devices, strata_plugin_error *error) {
    options o = {.cores = 1, .patience = 30, .chip = "s1"};
    const char *names;
    *out_n_devices = 0;
    if (text) {
        const strata_plugin_status status = read_options(&o, text, error);
        if (status) return status;
    }
    if (!*o.form) op_choose(NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&the_board.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    the_board.chip = chip_find(o.chip, &names);
    the_board.n_cores = (int)o.cores;
    the_board.patience = o.patience;
    snprintf(the_version, sizeof the_version, "1.0, %s", op_form());
    const uint32_t all = (1u << (STRATA_PLUGIN_BOOL + 1)) - 1;
    the_info = (strata_plugin_device_info){.size = sizeof the_info,
                                           .name = the_board.chip->title,
                                           .vendor = "Strata",
                                           .driver_version = the_version,
                                           .memory_bytes = the_board.chip->hbm_bytes,
                                           .compute_units = 1,
                                           .dtypes = all,
                                           .stall_seconds = 4 * o.patience,
                                           .product_dtype = STRATA_PLUGIN_BF16};
    if (the_host && STRATA_PLUGIN_HAS(the_host, strata_plugin_host, log) && the_host->log) {
        char message[128];
        snprintf(message, sizeof message, "systolic: %d cores of %s, computed with %s", the_board.n_cores,
                 the_board.chip->title, op_form());
        the_host->log(message);
    }
    *out_n_devices = the_board.n_cores;
    return STRATA_PLUGIN_OK;
}

static const strata_plugin_device_info *device_info(int32_t index) {
    return index >= 0 && index < the_board.n_cores ? &the_info : NULL;
}

static strata_plugin_status device_open(int32_t index, strata_plugin_device **out_device,
                                        const strata_plugin_device_calls **out_calls, strata_plugin_error *error) {
    *out_device = NULL;
    if (index < 0 || index >= the_board.n_cores)
        return fail(error, STRATA_PLUGIN_INVALID, "there is no core %d; the board has %d", index, the_board.n_cores);
    return core_open(&the_board, index, out_device, out_calls, error);
}

static const strata_plugin the_plugin = {.size = sizeof the_plugin,
                                         .version_major = STRATA_PLUGIN_VERSION_MAJOR,
                                         .version_minor = STRATA_PLUGIN_VERSION_MINOR,
                                         .name = "systolic",
                                         .start = start,
                                         .device_info = device_info,
                                         .device_open = device_open};

STRATA_PLUGIN_EXPORT const strata_plugin *strata_plugin_v1(const strata_plugin_host *host);
const strata_plugin *strata_plugin_v1(const strata_plugin_host *host) {
    the_host = host;
    return &the_plugin;
}
