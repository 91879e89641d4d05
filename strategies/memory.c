/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of options of connections. */
#include "strategies/memory.h"

strata_status strata_memory_copy_cluster(strata_memory *memory, const strata_communicator_options *from,
                                         strata_communicator_options *out, strata_error *err) {
    *out = from ? *from : (strata_communicator_options){0};
    const char **texts[] = {&out->tls_cert, &out->tls_key, &out->tls_ca, &out->tls_name, &out->interface, &out->store};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i]) *texts[i] = strata_memory_copy(memory, *texts[i], strlen(*texts[i]) + 1);
    if (out->secret_bytes && !out->secret)
        return strata_fail(err, STRATA_INVALID, "secret_bytes is %zu without a secret", out->secret_bytes);
    out->secret = strata_memory_copy(memory, out->secret, out->secret_bytes);
    return memory->failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for the options of connections") : STRATA_OK;
}
