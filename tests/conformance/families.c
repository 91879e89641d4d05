/* SPDX-License-Identifier: Apache-2.0
 *
 * The linker puts these functions before those of backends/kernel/verdicts.c, which report the kernels that compute wrongly on
 * a device. A refused family is reported as one that does. */
#include "tests/conformance/families.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernel/lowering.h"

enum { MOST_FAMILIES = 64 };
static bool is_noting, is_used[MOST_FAMILIES], is_refused[MOST_FAMILIES];
static char text[256];

bool __real_strata_checks_complain(const strata_checks *checks);
bool __wrap_strata_checks_complain(const strata_checks *checks);
bool __wrap_strata_checks_complain(const strata_checks *checks) {
    return is_noting || __real_strata_checks_complain(checks);
}

const char *__real_strata_check_complaint(const strata_checks *checks, uint64_t key);
const char *__wrap_strata_check_complaint(const strata_checks *checks, uint64_t key);
const char *__wrap_strata_check_complaint(const strata_checks *checks, uint64_t key) {
    for (int i = 0; is_noting && i < MOST_FAMILIES && strata_families[i]; i++) {
        if (key != strata_check_family_key(strata_families[i])) continue;
        if (is_refused[i]) return "the test refuses this family";
        is_used[i] = true;
    }
    return __real_strata_check_complaint(checks, key);
}

void conformance_families_begin(void) {
    is_noting = true;
    memset(is_used, 0, sizeof is_used);
    memset(is_refused, 0, sizeof is_refused);
    text[0] = '\0';
}

bool conformance_families_next(const char *op) {
    bool any = false;
    /* A driver that takes long to compile a kernel (Intel's runtime) is tested with the families that it prefers. */
    const char *preferred = getenv("STRATA_TEST_PREFERRED");
    if (preferred && *preferred) return false;
    for (int i = 0; i < MOST_FAMILIES && strata_families[i]; i++) {
        const bool refuse = is_used[i] && !strcmp(strata_families[i]->op, op);
        is_used[i] = false;
        if (!refuse) continue;
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : " without ", strata_families[i]->name);
        is_refused[i] = any = true;
    }
    return any;
}

const char *conformance_families_text(void) {
    return text;
}
