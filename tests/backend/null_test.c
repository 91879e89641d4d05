/* SPDX-License-Identifier: Apache-2.0
 *
 * The null backend: its device can be opened by name, but is neither listed nor chosen automatically. */
#include <criterion/criterion.h>
#include <string.h>

#include "core/run/device.h"

Test(null, is_opened_by_its_name) {
    strata_device *device = NULL;
    strata_error err = {0};
    cr_assert_eq(strata_device_open("null", NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_str_eq(strata_device_get_info(device)->backend, "null");
    cr_assert_eq(device->api->wait(device, 1, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "never given out"), "%s", err.message);
    strata_device_close(device);
}

Test(null, is_neither_listed_nor_chosen) {
    strata_device *device = NULL;
    strata_device_info *rows = NULL;
    strata_error err = {0};
    int n = 0;
    cr_assert_eq(strata_devices_list(&rows, &n, &err), STRATA_OK, "%s", err.message);
    for (int i = 0; i < n; i++) cr_expect_str_neq(rows[i].backend, "null");
    strata_devices_free(rows);
    cr_assert_eq(strata_device_open("runs nothing", NULL, &device, &err), STRATA_UNAVAILABLE);
    cr_assert_null(strstr(err.message, "null ("), "%s", err.message);
    cr_assert_eq(strata_device_open(NULL, NULL, &device, &err), STRATA_OK, "%s", err.message);
    cr_assert_str_neq(strata_device_get_info(device)->backend, "null");
    strata_device_close(device);
}
