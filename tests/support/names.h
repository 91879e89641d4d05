/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of all optimizers and losses, from the tables of the library. */
#ifndef STRATA_TESTS_SUPPORT_NAMES_H
#define STRATA_TESTS_SUPPORT_NAMES_H

static const char *const test_optimizers[] = {
#define STRATA_OPTIMIZER(name) #name,
#include "core/optimizer/optimizers.def"
};
static const char *const test_losses[] = {
#define STRATA_LOSS(name) #name,
#include "core/loss/losses.def"
};
enum {
    TEST_OPTIMIZERS = sizeof test_optimizers / sizeof *test_optimizers,
    TEST_LOSSES = sizeof test_losses / sizeof *test_losses
};

#endif
