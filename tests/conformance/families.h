/* SPDX-License-Identifier: Apache-2.0
 *
 * Forces each family of kernels in turn. A device uses the first family that fits a node (backends/kernel/families.def), so a
 * test that runs once does not test the later families and the op's portable kernels:
 *     conformance_families_begin();
 *     do run_test(); while (conformance_families_next("matmul"));
 * The second run has none of the families that the first run used for the op, and so on. The last run uses the portable
 * kernels. */
#ifndef STRATA_TESTS_CONFORMANCE_FAMILIES_H
#define STRATA_TESTS_CONFORMANCE_FAMILIES_H

#include <stdbool.h>

/* From now on all families are used again, and the families that nodes use are noted. */
void conformance_families_begin(void);
/* From now on the families that nodes of this op have used are refused. Returns false, and refuses none, if the nodes of the
 * op have used no family since the last call. */
bool conformance_families_next(const char *op);
/* The refused families for a message: " without cpu/matmul". "": none is refused. */
const char *conformance_families_text(void);

#endif
