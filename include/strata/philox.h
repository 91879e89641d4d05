/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox-4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a bijection of 128
 * counter bits under a 64-bit key, so that any element of a random sequence is computed on its own. shaders/philox.h is the
 * same for kernels. */
#ifndef STRATA_CORE_PHILOX_H
#define STRATA_CORE_PHILOX_H

#include <stdint.h>

typedef struct strata_philox_block {
    uint32_t words[4];
} strata_philox_block;

static inline strata_philox_block strata_philox(strata_philox_block counter, uint32_t key0, uint32_t key1) {
    uint32_t *c = counter.words;
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * c[0], product1 = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(product1 >> 32) ^ c[1] ^ key0;
        c[1] = (uint32_t)product1;
        c[2] = (uint32_t)(product0 >> 32) ^ c[3] ^ key1;
        c[3] = (uint32_t)product0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

#endif
