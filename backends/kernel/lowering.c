/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the launches of one node. They come from the first family that fits the node and the device; else, on a CPU,
 * from the family that fits the node in f32 (widen.c); else from the op's portable kernels. Kernels that compute
 * wrongly on this device (check.c) are not used. list.c assigns memory afterwards. */
#include "backends/kernel/lowering.h"

#define STRATA_FAMILY(name) extern const strata_family strata_family_##name;
#include "backends/kernel/families.def"

const strata_family *const strata_families[] = {
#define STRATA_FAMILY(name) &strata_family_##name,
#include "backends/kernel/families.def"
    NULL};

/* ---- for families ---- */
bool strata_cpu_counts(const strata_tensor *node) {
    bool fits = strata_shape_elements(node->shape) <= INT32_MAX;
    for (int i = 0; i < node->n_inputs && i < 2; i++) fits = fits && strata_shape_elements(node->inputs[i]->shape) <= INT32_MAX;
    return fits;
}

strata_launch strata_cpu_launch(const strata_kernel_limits *limits, const char *kernel, int64_t groups) {
    const int lanes = strata_cpu_lanes(limits);
    return (strata_launch){.kernel = kernel,
                           .variant = lanes == 16  ? "x16"
                                      : lanes == 8 ? "x8"
                                                   : "x4",
                           .global = {groups},
                           .local = {1}};
}

/* ---- the way of a node ---- */
int strata_family_candidates(const strata_kernel_limits *limits, const strata_family *family, const strata_tensor *node,
                             strata_candidate *out) {
    *out = (strata_candidate){.exact = true};
    return family->candidates ? family->candidates(limits, node, out) : 1;
}

/* Removes candidates that the device's options do not allow; the first is always allowed. Returns how many are left. */
static int allowed(const strata_kernel_limits *limits, strata_candidate *candidates, int n) {
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (i == 0 || limits->fast || candidates[i].exact) candidates[kept++] = candidates[i];
    return kept;
}

strata_status strata_way_lower(const strata_kernel_limits *limits, const strata_way *way, const strata_tensor *node,
                               strata_lowering *lowering, strata_error *err) {
    strata_widened widened;
    if (!way->family) return node->op->lower(node, lowering, err);
    if (!way->widen) return way->family->lower(limits, node, &way->candidate, lowering, err);
    if (!strata_widen(limits, node, &widened)) return strata_fail(err, STRATA_INTERNAL, "%s cannot be widened", node->op->name);
    return strata_widened_lower(limits, &widened, way->family, &way->candidate, lowering, err);
}

/* The reason why this way of computing the node must not be used. NULL: it may be used. */
static const char *complaint_about(const strata_kernel_limits *limits, const strata_way *way, const strata_tensor *node) {
    strata_lowering lowering = {0};
    const char *complaint = way->family ? strata_check_complaint(limits->checks, strata_check_family_key(way->family)) : NULL;
    if (!complaint && !strata_way_lower(limits, way, node, &lowering, NULL))
        complaint = strata_check_complaint(limits->checks, strata_check_key(node, &lowering));
    strata_lowering_finish(&lowering);
    return complaint;
}

/* Chooses among the candidates of one family. Returns false if none may be used. `first`: this is the first family that fits,
 * whose candidates the tuner measures. */
static bool choose_candidate(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_family *family, bool widen,
                             bool first, const strata_tensor *node, const strata_tensor *as, strata_way *out_way,
                             const char **out_complaint) {
    strata_candidate candidates[STRATA_CANDIDATES];
    const int n = allowed(limits, candidates, strata_family_candidates(limits, family, as, candidates));
    const int best = first && n > 1 ? strata_tuner_choose(tuner, family, node, candidates, n) : 0;
    const bool any = !strata_checks_complain(limits->checks) || strata_tuner_is_trying(tuner);
    for (int i = 0; i < n; i++) { /* the tuner's choice, then the others in order */
        *out_way = (strata_way){family, widen, candidates[i == 0 ? best : i <= best ? i - 1 : i]};
        const char *complaint = any ? NULL : complaint_about(limits, out_way, node);
        if (!complaint) return true;
        *out_complaint = complaint;
    }
    return false;
}

strata_status strata_way_choose(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_tensor *node,
                                strata_way *out_way, strata_error *err) {
    const char *complaint = NULL;
    strata_widened widened;
    for (int widen = 0, first = true; widen < 2; widen++) {
        if (widen && (!first || limits->device_class != STRATA_DEVICE_CPU || !strata_widen(limits, node, &widened))) break;
        const strata_tensor *as = widen ? &widened.node : node;
        for (const strata_family *const *row = strata_families; *row; row++) {
            if (strcmp((*row)->op, node->op->name) != 0 || !(*row)->fits(limits, as)) continue;
            if (choose_candidate(limits, tuner, *row, widen, first, node, as, out_way, &complaint)) return STRATA_OK;
            first = false;
        }
    }
    *out_way = (strata_way){0};
    if (!node->op->lower) return strata_fail(err, STRATA_UNSUPPORTED, "%s has no kernel", node->op->name);
    const char *portable = strata_checks_complain(limits->checks) ? complaint_about(limits, out_way, node) : NULL;
    return portable ? strata_fail(err, STRATA_UNSUPPORTED, "%s", portable) : STRATA_OK;
}

/* The first launch whose loops the device would end too early. NULL: there is none. */
static const strata_launch *launch_that_ends_early(const strata_kernel_limits *limits, const strata_lowering *lowering) {
    for (int i = 0; i < lowering->n; i++)
        if (strata_launch_ends_early(limits, &lowering->launches[i])) return &lowering->launches[i];
    return NULL;
}

strata_status strata_lowering_run(strata_lowering *lowering, const strata_kernel_limits *limits, strata_tuner *tuner,
                                  const strata_tensor *node, strata_error *err) {
    strata_way way;
    STRATA_TRY(strata_way_choose(limits, tuner, node, &way, err));
    STRATA_TRY(strata_way_lower(limits, &way, node, lowering, err));
    const strata_launch *early = launch_that_ends_early(limits, lowering);
    if (!early) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "a work-item of kernel %s makes about %d loop iterations; this device ends loops after 65535",
                       early->kernel, early->turns);
}

static bool has_dtype(const strata_kernel_limits *limits, const strata_tensor *tensor) {
    return limits->dtypes >> tensor->dtype & 1u;
}

/* Also checks that the kernels of the node's launches exist: an op may have kernels for some dtypes only. */
strata_support strata_kernel_supports(const strata_kernel_limits *limits, const strata_tensor *node, const char **reason) {
    *reason = "its dtype is not one that kernels can store on this device";
    if (!has_dtype(limits, node)) return STRATA_SUPPORT_NO;
    for (int i = 0; i < node->n_inputs; i++)
        if (!has_dtype(limits, node->inputs[i])) return STRATA_SUPPORT_NO;

    STRATA_FINISHED(strata_lowering) lowering = {0};
    strata_way portable = {0};
    if (node->op->lower && strata_checks_complain(limits->checks) &&
        strata_way_choose(limits, NULL, node, &(strata_way){0}, NULL)) {
        *reason = complaint_about(limits, &portable, node);
        return STRATA_SUPPORT_NO;
    }
    strata_status status = strata_lowering_run(&lowering, limits, NULL, node, NULL);
    bool supported = !status || status == STRATA_OUT_OF_MEMORY; /* compile reports a lack of memory */
    for (int i = 0; !status && supported && i < lowering.n; i++)
        supported = strata_shader_find(lowering.launches[i].kernel, lowering.launches[i].variant) != NULL;
    const bool ends_early = launch_that_ends_early(limits, &lowering) != NULL;
    *reason = supported    ? NULL
              : ends_early ? "its kernel's loops have more than the 65,535 iterations after which this device ends them"
                           : "there is no kernel for it";
    return supported ? STRATA_SUPPORT_YES : STRATA_SUPPORT_NO;
}
