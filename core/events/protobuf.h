/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages in the wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding): each field is a key, which is its
 * number and a type, and a value. A message is built as a strata_text and added to the one around it.
 * Memory that runs out is remembered by the text. */
#ifndef STRATA_CORE_EVENTS_PROTOBUF_H
#define STRATA_CORE_EVENTS_PROTOBUF_H

#include <stdint.h>

#include "core/base/text.h"

/* int32, int64, bool, enum. */
void strata_proto_integer(strata_text *message, int field, int64_t value);
void strata_proto_double(strata_text *message, int field, double value);
void strata_proto_float(strata_text *message, int field, float value);
/* string; bytes. */
void strata_proto_string(strata_text *message, int field, const char *value);
void strata_proto_bytes(strata_text *message, int field, const void *bytes, size_t n_bytes);
/* repeated double, packed. */
void strata_proto_doubles(strata_text *message, int field, const double *values, int n);
/* A message as a field. The inner one is finished. */
void strata_proto_message(strata_text *message, int field, strata_text *inner);

#endif
