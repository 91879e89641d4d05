/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/wire/frame.h"

#include "cluster/wire/bytes.h"
#include "cluster/wire/crc32c.h"

static const uint32_t MAGIC = 0x32525453; /* "STR2" */

static unsigned char *put_call(unsigned char *at, const strata_call *call) {
    at = strata_put(at, call->kind, 1);
    at = strata_put(at, call->dtype, 1);
    at = strata_put(at, call->reducer, 1);
    at = strata_put(at, call->algorithm, 1);
    at = strata_put(at, (uint32_t)call->root, 4);
    at = strata_put(at, call->counts_crc, 4);
    at = strata_put(at, call->communicator, 4);
    at = strata_put(at, call->sequence, 8);
    return strata_put(at, call->count, 8);
}

static strata_call get_call(const unsigned char **at) {
    strata_call call = {0};
    call.kind = (uint8_t)strata_get(at, 1);
    call.dtype = (uint8_t)strata_get(at, 1);
    call.reducer = (uint8_t)strata_get(at, 1);
    call.algorithm = (uint8_t)strata_get(at, 1);
    call.root = (int32_t)(uint32_t)strata_get(at, 4);
    call.counts_crc = (uint32_t)strata_get(at, 4);
    call.communicator = (uint32_t)strata_get(at, 4);
    call.sequence = strata_get(at, 8);
    call.count = strata_get(at, 8);
    return call;
}

static unsigned char *put_part(unsigned char *at, const strata_part *part) {
    at = strata_put(at, part->flags, 1);
    at = strata_put(at, part->status, 1);
    at = strata_put(at, 0, 2);
    at = strata_put(at, part->head_bytes, 4);
    at = strata_put(at, part->n_unanswered, 4);
    at = strata_put(at, part->target, 4);
    at = strata_put(at, part->sequence, 8);
    return strata_put(at, part->body_bytes, 8);
}

/* False: a value is unknown. */
static bool get_part(const unsigned char **at, strata_part *out) {
    strata_part part = {0};
    part.flags = (uint8_t)strata_get(at, 1);
    part.status = (uint8_t)strata_get(at, 1);
    const uint64_t zero = strata_get(at, 2);
    part.head_bytes = (uint32_t)strata_get(at, 4);
    part.n_unanswered = (uint32_t)strata_get(at, 4);
    part.target = (uint32_t)strata_get(at, 4);
    part.sequence = strata_get(at, 8);
    part.body_bytes = strata_get(at, 8);
    *out = part;
    return !zero && part.flags <= (STRATA_PART_FIRST | STRATA_PART_SHARED) && part.status <= STRATA_INTERNAL;
}

void strata_frame_encode(const strata_frame *frame, unsigned char out[STRATA_FRAME_BYTES]) {
    unsigned char *at = strata_put(out, MAGIC, 4);
    at = strata_put(at, frame->type, 4);
    at = strata_put(at, frame->number, 4);
    at = strata_put(at, frame->bytes, 4);
    at = frame->type == STRATA_FRAME_DATA ? put_call(at, &frame->call) : put_part(at, &frame->part);
    at = strata_put(at, frame->payload_crc, 4);
    strata_put(at, strata_crc32c(0, out, STRATA_FRAME_BYTES - 4), 4);
}

strata_status strata_frame_decode(const unsigned char in[STRATA_FRAME_BYTES], uint32_t most_bytes, strata_frame *out_frame,
                                  strata_error *err) {
    const unsigned char *at = in, *sum = in + STRATA_FRAME_BYTES - 4;
    const uint32_t magic = (uint32_t)strata_get(&at, 4), crc = strata_crc32c(0, in, STRATA_FRAME_BYTES - 4),
                   told = (uint32_t)strata_get(&sum, 4);
    if (magic != MAGIC) return strata_fail(err, STRATA_DATA, "a frame begins with %08x, not %08x", magic, MAGIC);
    if (crc != told)
        return strata_fail(err, STRATA_DATA, "a frame's header was damaged on its way: checksum %08x, not %08x", crc, told);
    strata_frame f = {0};
    f.type = (uint32_t)strata_get(&at, 4);
    f.number = (uint32_t)strata_get(&at, 4);
    f.bytes = (uint32_t)strata_get(&at, 4);
    if (!f.type || f.type >= STRATA_FRAME_TYPES)
        return strata_fail(err, STRATA_DATA, "a frame has the unknown type %u", f.type);
    if (f.bytes > most_bytes)
        return strata_fail(err, STRATA_DATA, "a frame of %u bytes came; at most %u are taken", f.bytes, most_bytes);
    if (f.type == STRATA_FRAME_DATA)
        f.call = get_call(&at);
    else if (!get_part(&at, &f.part))
        return strata_fail(err, STRATA_DATA, "a frame has the flags %u and the status %u, which are unknown", f.part.flags,
                           f.part.status);
    f.payload_crc = (uint32_t)strata_get(&at, 4);
    *out_frame = f;
    return STRATA_OK;
}

uint32_t strata_frame_payload_crc(const unsigned char in[STRATA_FRAME_BYTES]) {
    const unsigned char *at = in + STRATA_FRAME_BYTES - 8;
    return (uint32_t)strata_get(&at, 4);
}
