/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/units.h"

#include <criterion/criterion.h>
#include <math.h>

#include "backends/kernel/lowering.h"

bool units_has(const strata_kernel_limits *limits, strata_dtype dtype) {
    static const char *const variants[] = {"f32", "f16", "bf16"};
    return limits && (dtype == STRATA_DTYPE_BF16 ? limits->bf16_unit.m : limits->f16_unit.m) &&
           strata_shader_find("matrix_units/matmul", variants[dtype]);
}

void units_each_device(void (*visit)(strata_device *device, strata_kernel_limits *limits)) {
    char ids[32][32];
    const int n = conformance_device_ids(ids, 32);
    int visited = 0;
    if (!strata_shader_find("matrix_units/matmul", NULL))
        cr_skip_test("this build has no kernels for matrix units: glslc or vulkan_core.h did not know them");
    for (int i = 0; i < n; i++) {
        strata_device *device = conformance_open(ids[i], &(strata_device_options){.no_tune = true});
        strata_kernel_limits *limits = conformance_limits(device);
        if (units_has(limits, STRATA_DTYPE_F16) || units_has(limits, STRATA_DTYPE_BF16)) {
            limits->device_class = STRATA_DEVICE_DISCRETE_GPU;
            visit(device, limits);
            visited++;
        }
        conformance_close(device);
    }
    if (!visited) cr_skip_test("no device here has matrix units (VK_KHR_cooperative_matrix with f32 sums)");
}

const char *units_family_of(const strata_kernel_limits *limits, const strata_tensor *node) {
    strata_way way;
    cr_assert_eq(strata_way_choose(limits, NULL, node, &way, NULL), STRATA_OK);
    return way.family ? way.family->name : "portable";
}

double units_largest_of(const float *x, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)x[i]));
    return largest;
}
