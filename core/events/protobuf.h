/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds messages in the wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding). Each field of a
 * message is a key, which consists of a number and a type, and a value. A message is built as a strata_text and then
 * added to the message that contains it. If memory runs out, the text records this. */
#ifndef STRATA_CORE_EVENTS_PROTOBUF_H
#define STRATA_CORE_EVENTS_PROTOBUF_H

#include <stdint.h>

#include "core/base/text.h"

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

#endif
