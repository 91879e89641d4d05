/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that JAX sends to a PJRT plugin, read from VHLO bytecode: functions, blocks, operations, types and attributes. All
 * are in tables, and refer to each other by their indices there. The lowering walks these tables. */
#ifndef STRATA_FRONTEND_PROGRAM_H
#define STRATA_FRONTEND_PROGRAM_H

#include "strata/text.h"

/* An index of a table, or STRATA_PROGRAM_NONE. */
enum { STRATA_PROGRAM_NONE = -1, STRATA_PROGRAM_MAX_RANK = 16 };

typedef enum strata_program_type_kind {
    STRATA_PROGRAM_TYPE_UNREAD, /* a type of another dialect: its bytes are not interpreted */
    STRATA_PROGRAM_TYPE_SCALAR, /* `name`, `bits`                                           */
    STRATA_PROGRAM_TYPE_TENSOR, /* `element`, `rank`, `dims`                                */
    STRATA_PROGRAM_TYPE_FUNCTION,
    STRATA_PROGRAM_TYPE_TUPLE,
    STRATA_PROGRAM_TYPE_COMPLEX,
    STRATA_PROGRAM_TYPE_OTHER /* `name`: token, none, index */
} strata_program_type_kind;

typedef struct strata_program_type {
    strata_program_type_kind kind;
    /* The name that StableHLO prints, such as "f32" or "ui64". Static memory. */
    const char *name;
    int bits;
    int rank;
    int64_t *dims;
    /* The type of a tensor's elements or of a complex number's parts; NONE for others. */
    int element;
    /* The arguments of a function, then its results; or the elements of a tuple. */
    int n_arguments, n_parts, *parts;
} strata_program_type;

typedef enum strata_program_attribute_kind {
    STRATA_PROGRAM_UNREAD,     /* `data`: bytes of another dialect, such as a sharding, or assembly text */
    STRATA_PROGRAM_UNIT,       /* no value                                                               */
    STRATA_PROGRAM_BOOL,       /* `integer`                                                              */
    STRATA_PROGRAM_INTEGER,    /* `integer`, `type`                                                      */
    STRATA_PROGRAM_FLOAT,      /* `integer`: the bits of the number, `type`                              */
    STRATA_PROGRAM_STRING,     /* `text`                                                                 */
    STRATA_PROGRAM_ENUM,       /* `text`: the value's spelling, `integer`: its code                      */
    STRATA_PROGRAM_ARRAY,      /* `items`                                                                */
    STRATA_PROGRAM_DICTIONARY, /* `items`: name, value, name, value ...                                  */
    STRATA_PROGRAM_TENSOR,     /* `data`: little-endian elements, of which a splat has one; i1 as bits   */
    STRATA_PROGRAM_TYPE,       /* `type`                                                                 */
    STRATA_PROGRAM_NUMBERS,    /* `numbers`: the fields of an alias, of bounds or of a result's accuracy */
    STRATA_PROGRAM_LOCATION    /* `text` and `integer`: a file's name and line; `items`: other locations */
} strata_program_attribute_kind;

typedef struct strata_program_attribute {
    strata_program_attribute_kind kind;
    int type;
    int64_t integer;
    const char *text;
    int n_items, *items;
    int n_numbers;
    int64_t *numbers;
    /* Borrowed from the input, which must live as long as the program. */
    const unsigned char *data;
    size_t n_bytes;
    bool is_splat;
    /* The number of attributes below this one, itself included. */
    int64_t size;
} strata_program_attribute;

typedef struct strata_program_named {
    const char *name;
    int attribute;
} strata_program_named;

typedef struct strata_program_block {
    int n_arguments, *arguments; /* values     */
    int n_ops, *ops;             /* operations */
} strata_program_block;

typedef struct strata_program_region {
    int n_blocks;
    strata_program_block *blocks;
} strata_program_region;

typedef struct strata_program_op {
    /* "builtin", "vhlo" or "sdy", and a name such as "dot_general" with its version, 0 outside vhlo. */
    const char *dialect, *name;
    int version;
    int location;
    int n_operands, *operands;
    int n_results, *results;
    int n_attributes;
    strata_program_named *attributes;
    int n_regions;
    strata_program_region *regions;
} strata_program_op;

typedef struct strata_program {
    int n_types, n_attributes, n_values, n_ops;
    strata_program_type *types;
    strata_program_attribute *attributes;
    /* The type of each value. */
    int *values;
    /* Each operation comes after the one whose region contains it. */
    strata_program_op *ops;
    /* The operation builtin.module, which has the attributes mhlo.num_partitions and mhlo.num_replicas. */
    int module;
    /* The version of vhlo that the program was written for. */
    int vhlo_version[3];
    struct strata_program_tables *tables;
} strata_program;

/* Reads a program from n_bytes of MLIR bytecode, which are borrowed until strata_program_destroy. Memory is bounded by a
 * constant times n_bytes. Fails: DATA if bytes are missing or wrong; UNSUPPORTED if the version, a dialect, an operation, a
 * type or an attribute is none that this reader knows; the message names it. */
STRATA_MUST_USE strata_status strata_program_read(const void *bytes, size_t n_bytes, strata_program **out, strata_error *err);
void strata_program_destroy(strata_program *program);

/* The attribute of an operation, or NULL. */
const strata_program_attribute *strata_program_find(const strata_program *program, const strata_program_op *op,
                                                    const char *name);
/* The first file's name and line of a location, or NULL. */
const strata_program_attribute *strata_program_line(const strata_program *program, int location);
/* Appends the name of an operation, and the types of its operands and results. */
void strata_program_print_op(const strata_program *program, const strata_program_op *op, strata_text *out);
/* Appends a line for each operation: the same, and its attributes by name. */
void strata_program_print(const strata_program *program, strata_text *out);

#endif
