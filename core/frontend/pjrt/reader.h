/* SPDX-License-Identifier: Apache-2.0
 *
 * A place in the bytes of a program, and the numbers of MLIR bytecode. A read beyond the end marks the place as failed and
 * gives 0, so that a caller checks once after several reads. */
#ifndef STRATA_FRONTEND_READER_H
#define STRATA_FRONTEND_READER_H

#include "core/base/bytes.h"
#include "core/base/memory.h"
#include "core/frontend/pjrt/program.h"

typedef struct reader {
    const unsigned char *at, *end;
    bool failed;
} reader;

/* The bytes of an attribute or a type, and the dialect that wrote them. */
typedef struct encoded {
    const char *dialect;
    reader bytes;
    bool is_text;
} encoded;

/* What the sections of the bytecode contain, besides the program itself. */
typedef struct strata_program_tables {
    strata_memory memory;
    int n_strings, n_dialects, n_names, n_properties;
    const char **strings, **dialects;
    struct {
        const char *dialect, *name;
    } * names;
    reader *properties;
    encoded *attributes, *types;
    /* The attributes of all operations so far, and how many there may be. */
    int64_t n_named, max_named;
} tables;

uint64_t strata_read_number(reader *from);
int64_t strata_read_signed(reader *from);
/* A number below the limit, which is an index or a count; a larger one fails the reader. */
int strata_read_below(reader *from, int64_t limit);
/* A count of things of which each takes at least a byte, or an index of a table with n entries. */
#define COUNT(from) strata_read_below(from, (from)->end - (from)->at + 1)

/* Reads all types and attributes of program->tables. */
STRATA_MUST_USE strata_status strata_program_read_types(strata_program *program, strata_error *err);
STRATA_MUST_USE strata_status strata_program_read_attributes(strata_program *program, strata_error *err);

#endif
