/* SPDX-License-Identifier: Apache-2.0
 *
 * One node to its launches: the family that fits the device, else, on a CPU, the one that would fit the node in f32, else the
 * op's portable kernels. Where the tensors lie is not known here (list.c). */
#include "backends/kernel/lowering.h"

#include <string.h>

static const strata_family *find_family(const strata_kernel_limits *limits, const strata_tensor *node) {
    for (const strata_family *const *row = strata_families; *row; row++)
        if (!strcmp((*row)->op, node->op->name) && (*row)->fits(limits, node)) return *row;
    return NULL;
}

/* Keeps the candidates that the device's options allow, in their order; the first always is. Returns how many. */
static int allowed(const strata_kernel_limits *limits, strata_candidate *candidates, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (i == 0 || limits->fast || candidates[i].exact) candidates[kept++] = candidates[i];
    return kept;
}

strata_status strata_lowering_run(strata_lowering *lowering, const strata_kernel_limits *limits, strata_tuner *tuner,
                                  const strata_tensor *node, strata_error *err) {
    const strata_family *family = find_family(limits, node);
    strata_widened widened;
    const bool widen = !family && limits->device_class == STRATA_DEVICE_CPU && strata_widen(limits, node, &widened);
    if (widen) family = find_family(limits, &widened.node);
    if (family) {
        strata_candidate candidates[STRATA_CANDIDATES];
        int n = allowed(limits, candidates, family->candidates(limits, widen ? &widened.node : node, candidates));
        int choice = n > 1 ? strata_tuner_choose(tuner, family, node, candidates, n) : 0;
        return widen ? strata_widened_lower(limits, &widened, family, &candidates[choice], lowering, err)
                     : family->lower(limits, node, &candidates[choice], lowering, err);
    }
    if (!node->op->lower) return strata_fail(err, STRATA_UNSUPPORTED, "%s has no kernel", node->op->name);
    return node->op->lower(node, lowering, err);
}

static bool has_dtype(const strata_kernel_limits *limits, const strata_tensor *tensor) {
    return limits->dtypes >> tensor->dtype & 1u;
}

/* Asks the shaders of the node's launches too: an op may have kernels for some of its dtypes only. */
strata_support strata_kernel_supports(const strata_kernel_limits *limits, const strata_tensor *node, const char **reason) {
    *reason = "its dtype is not one that kernels can store on this device";
    if (!has_dtype(limits, node)) return STRATA_SUPPORT_NO;
    for (int i = 0; i < node->n_inputs; i++)
        if (!has_dtype(limits, node->inputs[i])) return STRATA_SUPPORT_NO;

    strata_lowering lowering = {0};
    strata_status status = strata_lowering_run(&lowering, limits, NULL, node, NULL);
    bool supported = !status || status == STRATA_OUT_OF_MEMORY; /* that is for compile to say */
    for (int i = 0; !status && supported && i < lowering.n; i++)
        supported = strata_shader_find(lowering.launches[i].kernel, lowering.launches[i].variant) != NULL;
    strata_lowering_finish(&lowering);
    *reason = supported ? NULL : "there is no kernel for it";
    return supported ? STRATA_SUPPORT_YES : STRATA_SUPPORT_NO;
}
