/* SPDX-License-Identifier: Apache-2.0 */
#ifndef STRATA_CORE_OP_ADAM_H
#define STRATA_CORE_OP_ADAM_H

#include <stdint.h>

/* Inputs: parameters, m, v, gradients, step, and with has_gate the gate. A decay other than 0 is AdamW's. */
typedef struct strata_adam_attrs {
    double beta1, beta2, epsilon, decay;
    int64_t has_gate;
} strata_adam_attrs;

#endif
