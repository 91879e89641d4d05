/* SPDX-License-Identifier: Apache-2.0
 *
 * A piece of a graph as plain tables, the structs of strata/plugin.h: op names, attributes by name, values by number.
 * Everything that leaves the library is made from these tables: programs for vendors' compilers, exchange formats,
 * hashes. */
#ifndef STRATA_CORE_DESCRIBE_H
#define STRATA_CORE_DESCRIBE_H

#include "core/compile/piece.h"
#include "strata/plugin.h"

typedef struct strata_description {
    strata_plugin_piece piece;
    /* The graph that owns the memory to which `piece` points. */
    strata_graph *memory;
} strata_description;

/* Returns the plugin's buffer of a strata_buffer, for the tables of values. */
typedef strata_plugin_buffer *strata_describe_buffer(const strata_buffer *buffer);

/* Describes a piece. First come the values that nodes read or compute, in the order in which nodes refer to them, then
 * those that occur only in parts of nodes. Names, constants' data and buffers are borrowed from the graph and the
 * piece. buffer_of may be NULL: values have no buffers. */
STRATA_MUST_USE strata_status strata_describe(const strata_piece *piece, strata_describe_buffer *buffer_of,
                                              strata_description *out_description, strata_error *err);
/* Describes one node and its operands, without places, for queries about ops, shapes and dtypes. */
STRATA_MUST_USE strata_status strata_describe_node(const strata_tensor *node, strata_description *out_description,
                                                   strata_error *err);
/* Copies what the description borrows, the data of constants and names, so that it may outlive the graph. Buffers are still
 * borrowed. */
STRATA_MUST_USE strata_status strata_description_own(strata_description *description, strata_error *err);
void strata_description_finish(strata_description *description); /* a zeroed struct is fine */

#endif
