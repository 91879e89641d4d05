/* SPDX-License-Identifier: Apache-2.0
 *
 * The event file of strata/events.h. Records are queued, and a thread writes them. summary.c makes the contents of
 * records. */
#ifndef STRATA_CORE_EVENTS_EVENTS_H
#define STRATA_CORE_EVENTS_EVENTS_H

#include "core/base/alloc.h"
#include "core/base/text.h"
#include "strata/events.h"

/* Queues an Event at this step that has `content` as its field number `field` (5 is a summary, 4 a graph). Finishes
 * `content`. */
STRATA_MUST_USE strata_status strata_events_add(strata_events *events, int64_t step, int field, strata_text *content,
                                                strata_error *err);
/* Creates the folder and its parent folders, if they do not exist. */
STRATA_MUST_USE strata_status strata_events_make_folders(const char *folder, strata_error *err);
/* Fails with INVALID if the tag is empty or not UTF-8. */
STRATA_MUST_USE strata_status strata_events_check_tag(const char *tag, strata_error *err);

/* ---- protobuf.c ----
 *
 * Builds messages in the wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding). Each field of a
 * message is a key, which consists of a number and a type, and a value. A message is built as a strata_text and then
 * added to the message that contains it. If memory runs out, the text records this. */

/* Adds a number of up to 8 bytes without a key. */
void strata_proto_little_endian(strata_text *message, uint64_t bits, size_t n_bytes);
/* For fields of the types int32, int64, bool and enum. */
void strata_proto_integer(strata_text *message, int field, int64_t value);
void strata_proto_double(strata_text *message, int field, double value);
void strata_proto_float(strata_text *message, int field, float value);
/* For fields of the types string and bytes. */
void strata_proto_string(strata_text *message, int field, const char *value);
/* For a field of the type repeated double, packed. */
void strata_proto_doubles(strata_text *message, int field, const double *values, int n);
/* Adds a message as a field, and finishes `inner`. */
void strata_proto_message(strata_text *message, int field, strata_text *inner);

/* ---- png.c ---- */

/* Encodes a picture as PNG (W3C PNG, third edition), with zlib: (rows, columns, channels) of u8. It has 1 channel (grey), 3
 * (red, green, blue) or 4 (red, green, blue, opacity). Fails: OUT_OF_MEMORY; INVALID for a picture without pixels or with rows
 * of more than 2^31 bytes. */
STRATA_MUST_USE strata_status strata_png_encode(const unsigned char *pixels, int64_t rows, int64_t columns, int channels,
                                                strata_text *out_file, strata_error *err);

#endif
