/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/wire/frame.h"

#include <stddef.h>
#include <string.h>

#include "cluster/wire/crc32c.h"

static const uint32_t MAGIC = 0x32525453; /* "STR2" */

void strata_frame_seal(strata_frame *frame) {
    frame->magic = MAGIC;
    frame->header_crc = strata_crc32c(0, frame, offsetof(strata_frame, header_crc));
}

strata_status strata_frame_decode(const unsigned char in[STRATA_FRAME_BYTES], uint32_t most_bytes, strata_frame *out_frame,
                                  strata_error *err) {
    strata_frame f;
    memcpy(&f, in, sizeof f);
    const uint32_t crc = strata_crc32c(0, in, offsetof(strata_frame, header_crc));
    if (f.magic != MAGIC) return strata_fail(err, STRATA_DATA, "a frame begins with %08x, not %08x", f.magic, MAGIC);
    if (crc != f.header_crc)
        return strata_fail(err, STRATA_DATA, "a frame's header was damaged on its way: checksum %08x, not %08x", crc,
                           f.header_crc);
    if (!f.type || f.type >= STRATA_FRAME_TYPES)
        return strata_fail(err, STRATA_DATA, "a frame has the unknown type %u", f.type);
    if (f.bytes > most_bytes)
        return strata_fail(err, STRATA_DATA, "a frame of %u bytes came; at most %u are taken", f.bytes, most_bytes);
    const bool known =
        !f.part.zero && f.part.flags <= (STRATA_PART_FIRST | STRATA_PART_SHARED) && f.part.status <= STRATA_INTERNAL;
    if (f.type != STRATA_FRAME_DATA && !known)
        return strata_fail(err, STRATA_DATA, "a frame has the flags %u and the status %u, which are unknown", f.part.flags,
                           f.part.status);
    *out_frame = f;
    return STRATA_OK;
}
