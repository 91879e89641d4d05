/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects, opens and closes the devices under test. */
#include "tests/conformance/devices.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if STRATA_WITH_VULKAN
#include "backends/vulkan/vulkan.h"
#endif

strata_kernel_limits *conformance_limits(strata_device *device) {
#if STRATA_WITH_OPENCL
    if (!strcmp(device->info.backend, "opencl")) return conformance_opencl_limits(device);
#endif
#if STRATA_WITH_VULKAN
    if (!strcmp(device->info.backend, "vulkan")) return &((vulkan_device *)device)->limits;
#endif
    (void)device;
    return NULL;
}

/* With STRATA_TEST_KERNELS=gpu every device runs the kernels for real GPUs, so that they are tested on machines without a
 * GPU. */
static void choose_kernels(strata_device *device) {
    const char *kernels = getenv("STRATA_TEST_KERNELS");
    strata_kernel_limits *limits = conformance_limits(device);
    if (limits && kernels && !strcmp(kernels, "gpu")) limits->device_class = STRATA_DEVICE_DISCRETE_GPU;
}

bool conformance_small(void) {
    const char *small = getenv("STRATA_TEST_SMALL");
    return small && *small && strcmp(small, "0") != 0;
}

bool conformance_has_row(int row) {
    const char *rows = getenv("STRATA_TEST_ROWS");
    int which = 0, n = 1;
    if (rows && *rows) cr_assert(sscanf(rows, "%d/%d", &which, &n) == 2 && n > 0, "STRATA_TEST_ROWS is %s, not K/N", rows);
    return row % n == which;
}

unsigned conformance_dtypes(unsigned dtypes) {
    const char *list = getenv("STRATA_TEST_DTYPES");
    unsigned chosen = 0;
    for (int d = 0; list && d < STRATA_DTYPE_COUNT; d++) {
        const char *name = strata_dtype_name((strata_dtype)d);
        for (const char *at = list; (at = strstr(at, name)); at += strlen(name)) {
            const char end = at[strlen(name)];
            if ((at == list || at[-1] == ',') && (!end || end == ',')) chosen |= 1u << d;
        }
    }
    return dtypes & chosen ? dtypes & chosen : dtypes;
}

/* Whether `id` begins with one of the prefixes in STRATA_TEST_DEVICES, which are separated by commas. */
static bool wanted(const char *id) {
    const char *list = getenv("STRATA_TEST_DEVICES");
    bool part = strchr(id, '.') != NULL;
    if (!list || !*list) return !part;
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n && !strncmp(id, list, n) && (!part || strlen(id) == n)) return true;
        list += n + (list[n] == ',');
    }
    return false;
}

int conformance_device_ids(char (*out_ids)[32], int most) {
    strata_device_info *rows = NULL;
    strata_error err = {0};
    int n = 0, found = 0;
    cr_assert_eq(strata_devices_list(&rows, &n, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < n && found < most; i++)
        if (!rows[i].skipped[0] && wanted(rows[i].id)) memcpy(out_ids[found++], rows[i].id, sizeof rows[i].id);
    strata_devices_free(rows);
    const char *list = getenv("STRATA_TEST_DEVICES"); /* strata_devices_list never lists the null device */
    if (list && *list && wanted("null") && found < most) strcpy(out_ids[found++], "null");
    return found;
}

bool conformance_computes(const strata_device *device) {
    return strcmp(device->info.backend, "null") != 0;
}

bool conformance_may_refuse(const strata_device *device) {
    return !strcmp(device->info.backend, "pjrt");
}

static void fail_of_warning(const char *message, void *user) {
    (void)user;
    cr_expect(false, "a warning: %s", message);
}

strata_device *conformance_open(const char *id, const strata_device_options *options) {
    strata_device_options trusting = *options, *opts = &trusting;
    strata_device *device = NULL;
    strata_error err = {0};
    trusting.trust = true;
    trusting.on_warning = fail_of_warning;
    trusting.compile_notice_seconds = 1e9; /* how long a compiler takes is no error */
    bool chosen = getenv("STRATA_VULKAN_VALIDATION") != NULL;
    if (!chosen) setenv("STRATA_VULKAN_VALIDATION", "1", 1);
    strata_status status = strata_device_open(id, opts, &device, &err);
    if (status && !chosen && strstr(err.message, "STRATA_VULKAN_VALIDATION")) {
        cr_log_warn("%s runs without validation: %s", id, err.message);
        unsetenv("STRATA_VULKAN_VALIDATION");
        status = strata_device_open(id, opts, &device, &err);
    }
    cr_assert_eq(status, STRATA_OK, "%s: %s", id, err.message);
    choose_kernels(device);
    return device;
}

void conformance_close(strata_device *device) {
    char id[32];
    memcpy(id, device->info.id, sizeof id);
#if STRATA_WITH_VULKAN
    if (!strcmp(device->info.backend, "vulkan")) {
        vulkan_messages messages = {0};
        strata_vulkan_report_close(device, &messages);
        strata_device_close(device);
        cr_assert_eq(messages.n, 0, "%s: %d validation messages, the first: %s", id, messages.n, messages.first);
        return;
    }
#endif
    strata_device_close(device);
}

void conformance_each_device(const strata_device_options *opts, void (*visit)(strata_device *device)) {
    enum { MOST = 32 };
    char ids[MOST][32];
    int n = conformance_device_ids(ids, MOST);
    const char *list = getenv("STRATA_TEST_DEVICES");
    if (!n) cr_skip_test("no device matches STRATA_TEST_DEVICES=%s", list ? list : "");
    for (int i = 0; i < n; i++) {
        strata_device *device = conformance_open(ids[i], opts);
        visit(device);
        conformance_close(device);
    }
}
