/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes each allocation of a sequence of calls fail in turn. */
#ifndef STRATA_TESTS_ALLOC_SCENARIO_H
#define STRATA_TESTS_ALLOC_SCENARIO_H

#include <stdint.h>

#include "strata/status.h"

/* A sequence of calls that creates objects, uses them and destroys them. Returns the status of the first call that failed. */
typedef strata_status (*scenario)(strata_error *err);

/* Runs the scenario with its k-th allocation failing, for k = first, first + step, ... until no allocation fails any more,
 * but at most `most` times. The scenario must fail with OUT_OF_MEMORY or succeed, and must not leak. */
void fail_each_allocation(const char *name, scenario scenario, int64_t first, int64_t step, int64_t most);

#endif
