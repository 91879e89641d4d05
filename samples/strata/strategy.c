/* SPDX-License-Identifier: Apache-2.0
 *
 * --strategy and its options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MOST = 64 };

/* The text cut at `separator`, in place; -1 after a message. */
static int cut(const char *option, char *text, const char *separator, const char *pieces[MOST]) {
    int n = 0;
    for (char *rest = text, *piece; (piece = strsep(&rest, separator));) {
        if (!*piece || n == MOST) {
            usage_error("--%s: %s; it is a list of 1 to %d parts with %s between them", option,
                        *piece ? "there are more" : "a part is empty", MOST, separator);
            return -1;
        }
        pieces[n++] = piece;
    }
    return n;
}

static int read_split(char *text, int64_t split[MOST]) {
    const char *pieces[MOST];
    const int n = cut("split", text, ":", pieces);
    for (int i = 0; i < n; i++) {
        char *end;
        errno = 0;
        split[i] = strtoll(pieces[i], &end, 10);
        if (*end || errno || split[i] < 1) {
            usage_error("--split: \"%s\" is no whole number of 1 or more; it is a share for each device, as 3:1, or auto",
                        pieces[i]);
            return -1;
        }
    }
    return n;
}

static int open_with(const strategy_flags *flags, const device_flags *device, char *devices, char *split,
                     strata_strategy **out_strategy) {
    const strata_device_options device_options = {
        .fast = device->fast, .no_tune = device->no_tune, .no_cache = device->no_cache};
    const char *names[MOST] = {device->which};
    int64_t weights[MOST];
    strata_strategy_options opts = {.device_options = &device_options, .parameter_device = flags->parameter_device};
    strata_error err = {0};
    if (device->which && flags->devices) return usage_error("give --device or --devices, not both");
    opts.n_devices = device->which ? 1 : devices ? cut("devices", devices, ",", names) : 0;
    if (opts.n_devices < 0) return EXIT_USAGE;
    if (opts.n_devices) opts.devices = names;
    if (split && !strcmp(split, "auto")) {
        opts.auto_split = true;
    } else if (split) {
        opts.n_split = read_split(split, weights);
        if (opts.n_split < 0) return EXIT_USAGE;
        opts.split = weights;
    }
    const char *name = flags->name ? flags->name : device->which ? "one_device" : devices ? "mirrored" : "default";
    strata_status status = strata_strategy_create(name, &opts, out_strategy, &err);
    return status ? report(FAILING_DEVICE, status, &err) : EXIT_OK;
}

int open_strategy(const strategy_flags *flags, const device_flags *device, strata_strategy **out_strategy) {
    char *devices = flags->devices ? strdup(flags->devices) : NULL, *split = flags->split ? strdup(flags->split) : NULL;
    const bool enough = (devices || !flags->devices) && (split || !flags->split);
    strata_error err = {0};
    const int code = enough ? open_with(flags, device, devices, split, out_strategy)
                            : report(FAILING_RUN, strata_fail(&err, STRATA_OUT_OF_MEMORY, "no host memory"), &err);
    free(devices);
    free(split);
    return code;
}
