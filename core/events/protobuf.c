/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the wire format of Protocol Buffers: varints, numbers of 4 and 8 bytes in little-endian order, and byte strings
 * after their lengths. */
#include "core/events/events.h"

enum { VARINT = 0, EIGHT_BYTES = 1, LENGTH = 2, FOUR_BYTES = 5 };

/* A varint has 7 bits of the value in each byte, the lowest bits first. The highest bit of a byte is set if more bytes
 * follow. */
static void add_varint(strata_text *message, uint64_t value) {
    unsigned char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (unsigned char)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        value >>= 7;
    } while (value);
    strata_text_add_bytes(message, bytes, n);
}

static void add_key(strata_text *message, int field, int type) {
    add_varint(message, (uint64_t)field << 3 | (uint64_t)type);
}

void strata_proto_little_endian(strata_text *message, uint64_t bits, size_t n_bytes) {
    unsigned char bytes[8];
    for (size_t i = 0; i < n_bytes; i++) bytes[i] = (unsigned char)(bits >> (8 * i));
    strata_text_add_bytes(message, bytes, n_bytes);
}

static uint64_t bits_of_double(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void strata_proto_integer(strata_text *message, int field, int64_t value) {
    add_key(message, field, VARINT);
    add_varint(message, (uint64_t)value);
}

void strata_proto_double(strata_text *message, int field, double value) {
    add_key(message, field, EIGHT_BYTES);
    strata_proto_little_endian(message, bits_of_double(value), 8);
}

void strata_proto_float(strata_text *message, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_key(message, field, FOUR_BYTES);
    strata_proto_little_endian(message, bits, 4);
}

static void add_bytes(strata_text *message, int field, const void *bytes, size_t n_bytes) {
    add_key(message, field, LENGTH);
    add_varint(message, n_bytes);
    if (n_bytes) strata_text_add_bytes(message, bytes, n_bytes);
}

void strata_proto_string(strata_text *message, int field, const char *value) {
    add_bytes(message, field, value, strlen(value));
}

void strata_proto_doubles(strata_text *message, int field, const double *values, int n) {
    add_key(message, field, LENGTH);
    add_varint(message, (uint64_t)n * 8);
    for (int i = 0; i < n; i++) strata_proto_little_endian(message, bits_of_double(values[i]), 8);
}

void strata_proto_message(strata_text *message, int field, strata_text *inner) {
    add_bytes(message, field, inner->bytes, inner->n_bytes);
    message->failed |= inner->failed;
    strata_text_finish(inner);
}
