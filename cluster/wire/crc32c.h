/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC32C (Castagnoli, reflected polynomial 0x82F63B78), as in iSCSI and ext4. It is computed by the processor's instruction,
 * if there is one. */
#ifndef STRATA_CLUSTER_WIRE_CRC32C_H
#define STRATA_CLUSTER_WIRE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of bytes that may be passed in several pieces. crc: 0 for the first piece, then the result for the previous piece. */
uint32_t strata_crc32c(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
