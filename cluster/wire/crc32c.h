/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC32C (Castagnoli, reflected polynomial 0x82F63B78), as in iSCSI and ext4. By the processor's instruction where it has
 * one. */
#ifndef STRATA_CLUSTER_WIRE_CRC32C_H
#define STRATA_CLUSTER_WIRE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of bytes that come in pieces: begin with 0, go on with what the piece before gave. */
uint32_t strata_crc32c(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
