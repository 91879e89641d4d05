/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads MLIR bytecode, version 6: the sections, and the operations of the IR section. attributes.c reads types and
 * attributes. */
#include "core/frontend/pjrt/program.h"

#include "core/frontend/pjrt/reader.h"

enum { FORMAT_VERSION = 6, MAX_REGION_DEPTH = 48, N_SECTIONS = 9 };
enum { STRINGS, DIALECTS, DATA, OFFSETS, IR, RESOURCES, RESOURCE_OFFSETS, DIALECT_VERSION, PROPERTIES };

static const struct {
    const char *dialect, *name, *properties;
} rows[] = {
#define ROW(dialect, name, properties) {dialect, name, properties},
#include "core/frontend/pjrt/ops.def"
};

uint64_t strata_read_number(reader *from) {
    if (from->at >= from->end) {
        from->failed = true;
        return 0;
    }
    int n = 0;
    while (n < 8 && !(*from->at >> n & 1)) n++;
    if (from->end - from->at <= n) {
        from->at = from->end;
        from->failed = true;
        return 0;
    }
    const uint64_t value = n == 8 ? strata_little_endian(from->at + 1, 8) : strata_little_endian(from->at, n + 1) >> (n + 1);
    from->at += n + 1;
    return value;
}

int64_t strata_read_signed(reader *from) {
    const uint64_t number = strata_read_number(from);
    return (int64_t)(number >> 1 ^ (~(number & 1) + 1));
}

int strata_read_below(reader *from, int64_t limit) {
    const uint64_t number = strata_read_number(from);
    if (limit > 0 && limit <= INT32_MAX && number < (uint64_t)limit) return (int)number;
    from->failed = true;
    return 0;
}

static int read_byte(reader *from) {
    if (from->at == from->end) from->failed = true;
    return from->failed ? 0 : *from->at++;
}

static reader read_bytes(reader *from, int n) {
    if (n > from->end - from->at) from->failed = true;
    if (from->failed) return (reader){from->at, from->at, true};
    from->at += n;
    return (reader){from->at - n, from->at, false};
}

/* A section's id and content. The alignment of its content in memory does not matter here. */
static reader read_section(reader *from, int *out_id) {
    const int head = read_byte(from);
    const int n = COUNT(from);
    if (head & 0x80) {
        strata_read_number(from);
        while (from->at < from->end && *from->at == 0xCB) from->at++;
    }
    *out_id = head & 0x7F;
    return read_bytes(from, n);
}

static strata_status wrong(const char *what, strata_error *err) {
    return strata_fail(err, STRATA_DATA, "the program's bytecode is cut or wrong in its %s", what);
}

static strata_status no_memory(const char *what, strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "there is no memory for the program's %s", what);
}

static strata_status read_strings(tables *to, reader from, strata_error *err) {
    const int n = COUNT(&from);
    STRATA_TRY(STRATA_TAKE(&to->memory, to->strings, n, err, "there is no memory for %d strings of the program", n));
    STRATA_FREED int *lengths = NULL;
    STRATA_TRY(STRATA_NEW(lengths, n, err, "there is no memory for %d strings of the program", n));
    for (int i = n; i-- > 0;) lengths[i] = COUNT(&from);
    for (int i = 0; i < n; i++) {
        reader string = read_bytes(&from, lengths[i]);
        if (from.failed || !lengths[i] || string.end[-1]) return wrong("strings", err);
        to->strings[i] = (const char *)string.at;
    }
    to->n_strings = n;
    return from.failed || from.at != from.end ? wrong("strings", err) : STRATA_OK;
}

static strata_status read_dialects(strata_program *program, reader from, strata_error *err) {
    tables *to = program->tables;
    const int n = COUNT(&from);
    STRATA_TRY(STRATA_TAKE(&to->memory, to->dialects, n, err, "there is no memory for %d dialects of the program", n));
    for (int i = 0; i < n; i++) {
        const int name = strata_read_below(&from, 2 * (int64_t)to->n_strings);
        if (from.failed) return wrong("dialects", err);
        to->dialects[i] = to->strings[name >> 1];
        int id = DIALECT_VERSION;
        reader version = {0};
        if (name & 1) version = read_section(&from, &id);
        if (from.failed || id != DIALECT_VERSION) return wrong("dialects", err);
        const bool is_vhlo = !strcmp(to->dialects[i], "vhlo");
        for (int k = 0; k < 3 && is_vhlo && (name & 1); k++) program->vhlo_version[k] = strata_read_below(&version, INT32_MAX);
        if (version.failed) return wrong("dialects", err);
    }
    to->n_dialects = n;
    to->n_names = COUNT(&from);
    to->names = strata_memory_take(&to->memory, to->n_names, sizeof *to->names);
    if (!to->names) return no_memory("names", err);
    for (int i = 0; i < to->n_names && !from.failed;) {
        const int dialect = strata_read_below(&from, n), n_group = strata_read_below(&from, to->n_names - i + 1);
        for (int k = 0; k < n_group && !from.failed; k++, i++) {
            const int name = strata_read_below(&from, 2 * (int64_t)to->n_strings) >> 1;
            if (from.failed) break;
            to->names[i].dialect = to->dialects[dialect];
            to->names[i].name = to->strings[name];
        }
        if (!n_group) from.failed = true;
    }
    return from.failed || from.at != from.end ? wrong("operation names", err) : STRATA_OK;
}

static void read_offsets(tables *to, reader *offsets, reader *data, encoded *out, int n) {
    for (int i = 0; i < n && !offsets->failed;) {
        const int dialect = strata_read_below(offsets, to->n_dialects), n_group = strata_read_below(offsets, n - i + 1);
        for (int k = 0; k < n_group && !offsets->failed; k++, i++) {
            const uint64_t size = strata_read_number(offsets);
            if (size >> 1 > (uint64_t)(data->end - data->at)) offsets->failed = true;
            if (offsets->failed) return;
            out[i] = (encoded){to->dialects[dialect], read_bytes(data, (int)(size >> 1)), !(size & 1)};
        }
        if (!n_group) offsets->failed = true;
    }
}

static strata_status read_tables(strata_program *program, reader offsets, reader data, strata_error *err) {
    tables *to = program->tables;
    program->n_attributes = COUNT(&offsets);
    program->n_types = COUNT(&offsets);
    to->attributes = strata_memory_take(&to->memory, program->n_attributes, sizeof *to->attributes);
    to->types = strata_memory_take(&to->memory, program->n_types, sizeof *to->types);
    program->attributes = strata_memory_take(&to->memory, program->n_attributes, sizeof *program->attributes);
    program->types = strata_memory_take(&to->memory, program->n_types, sizeof *program->types);
    if (to->memory.failed) return no_memory("attributes", err);
    read_offsets(to, &offsets, &data, to->attributes, program->n_attributes);
    read_offsets(to, &offsets, &data, to->types, program->n_types);
    if (offsets.failed || data.failed || offsets.at != offsets.end) return wrong("attributes", err);
    STRATA_TRY(strata_program_read_types(program, err));
    STRATA_TRY(strata_program_read_attributes(program, err));
    return to->memory.failed ? no_memory("attributes", err) : STRATA_OK;
}

static strata_status read_properties(tables *to, reader from, strata_error *err) {
    to->n_properties = COUNT(&from);
    to->properties = strata_memory_take(&to->memory, to->n_properties, sizeof *to->properties);
    if (!to->properties) return no_memory("properties", err);
    for (int i = 0; i < to->n_properties; i++) to->properties[i] = read_bytes(&from, COUNT(&from));
    return from.failed || from.at != from.end ? wrong("properties", err) : STRATA_OK;
}

/* The values that can be used where the reader is, by their number in the bytecode: first those of the outermost region. */
typedef struct scope {
    strata_program *program;
    int n_visible, n_defined, n_capacity;
    int *visible; /* an index of program->values, or NONE */
} scope;

static strata_status open_region(scope *scope, int n, strata_error *err) {
    const int wanted = scope->n_visible + n;
    if (wanted > scope->n_capacity) {
        int *more = realloc(scope->visible, (size_t)(2 * wanted) * sizeof *more);
        if (!more) return no_memory("values", err);
        scope->visible = more;
        scope->n_capacity = 2 * wanted;
    }
    for (int i = scope->n_visible; i < wanted; i++) scope->visible[i] = STRATA_PROGRAM_NONE;
    scope->n_defined = scope->n_visible;
    scope->n_visible = wanted;
    return STRATA_OK;
}

static strata_status define_value(scope *scope, int type, int *out, strata_error *err) {
    strata_program *program = scope->program;
    if (scope->n_defined >= scope->n_visible) return wrong("numbers of values", err);
    int *value = strata_grow(&program->values, program->n_values, sizeof *value);
    if (!value) return no_memory("values", err);
    *value = type;
    *out = scope->visible[scope->n_defined++] = program->n_values++;
    return STRATA_OK;
}

static void skip_use_orders(reader *from, int n_values) {
    if (!n_values) return;
    const int n = n_values == 1 ? 1 : COUNT(from);
    for (int i = 0; i < n && !from->failed; i++) {
        if (n_values > 1) strata_read_below(from, n_values);
        const int n_indices = strata_read_below(from, 2 * (from->end - from->at + 1)) >> 1;
        for (int k = 0; k < n_indices && !from->failed; k++) strata_read_number(from);
    }
}

static strata_status read_op(scope *scope, reader *from, int depth, int *out, strata_error *err);

static strata_status read_block(scope *scope, reader *from, int depth, strata_program_block *block, strata_error *err) {
    strata_memory *memory = &scope->program->tables->memory;
    const int head = strata_read_below(from, 2 * (from->end - from->at + 1));
    if (head & 1) {
        block->n_arguments = COUNT(from);
        STRATA_TRY(
            STRATA_TAKE(memory, block->arguments, block->n_arguments, err, "there is no memory for a block's arguments"));
        for (int i = 0; i < block->n_arguments; i++) {
            const int type = strata_read_below(from, 2 * (int64_t)scope->program->n_types);
            if (type & 1) strata_read_below(from, scope->program->n_attributes);
            if (from->failed) return wrong("arguments of a block", err);
            STRATA_TRY(define_value(scope, type >> 1, &block->arguments[i], err));
        }
        if (read_byte(from)) skip_use_orders(from, block->n_arguments);
    }
    if (from->failed || (head >> 1) > from->end - from->at) return wrong("blocks", err);
    block->n_ops = head >> 1;
    STRATA_TRY(STRATA_TAKE(memory, block->ops, block->n_ops, err, "there is no memory for a block's operations"));
    for (int i = 0; i < block->n_ops; i++) STRATA_TRY(read_op(scope, from, depth, &block->ops[i], err));
    return STRATA_OK;
}

static strata_status read_region(scope *scope, reader *from, int depth, strata_program_region *region, strata_error *err) {
    const int n_blocks = COUNT(from), n_visible = scope->n_visible, n_defined = scope->n_defined;
    if (from->failed) return wrong("regions", err);
    if (!n_blocks) return STRATA_OK;
    const int n_values = COUNT(from);
    if (from->failed) return wrong("regions", err);
    STRATA_TRY(open_region(scope, n_values, err));
    region->n_blocks = n_blocks;
    STRATA_TRY(STRATA_TAKE(&scope->program->tables->memory, region->blocks, n_blocks, err, "there is no memory for a region"));
    for (int i = 0; i < n_blocks; i++) STRATA_TRY(read_block(scope, from, depth, &region->blocks[i], err));
    if (scope->n_defined != scope->n_visible) return wrong("numbers of values", err);
    scope->n_visible = n_visible;
    scope->n_defined = n_defined;
    return STRATA_OK;
}

/* The regions of an isolated operation lie in a section of their own, and see none of the values around it. */
static strata_status read_regions(scope *outer, reader *from, int depth, strata_program_op *op, strata_error *err) {
    const int head = strata_read_below(from, 2 * (from->end - from->at + 1));
    reader section = *from, *at = from;
    scope inner = {.program = outer->program}, *used = outer;
    if (from->failed || depth == 0) return wrong(depth ? "regions" : "regions, which are nested too deep", err);
    if (head & 1) {
        int id = 0;
        section = read_section(from, &id);
        if (from->failed || id != IR) return wrong("isolated regions", err);
        at = &section;
        used = &inner;
    }
    op->n_regions = head >> 1;
    strata_status status = STRATA_TAKE(&outer->program->tables->memory, op->regions, op->n_regions, err,
                                       "there is no memory for the regions of %s", op->name);
    for (int i = 0; i < op->n_regions && !status; i++) status = read_region(used, at, depth - 1, &op->regions[i], err);
    free(inner.visible);
    if (!status && (head & 1) && section.at != section.end) return wrong("isolated regions", err);
    return status;
}

/* Adds the properties of an operation to its attributes, under the names of its row. */
static strata_status add_properties(strata_program *program, strata_program_op *op, const char *names, reader from,
                                    strata_error *err) {
    while (*names) {
        const size_t length = strcspn(names, "? ");
        const bool is_optional = names[length] == '?';
        int index = strata_read_below(&from, (int64_t)program->n_attributes * (is_optional ? 2 : 1));
        if (from.failed) break;
        if (!is_optional || index & 1) {
            char *name = strata_memory_take(&program->tables->memory, (int64_t)length + 1, 1);
            if (!name) return no_memory("names", err);
            memcpy(name, names, length);
            op->attributes[op->n_attributes++] = (strata_program_named){name, is_optional ? index >> 1 : index};
        }
        names += length + is_optional;
        names += *names == ' ';
    }
    if (from.failed || from.at != from.end)
        return strata_fail(err, STRATA_DATA, "the properties of the operation %s.%s_v%d are cut or wrong", op->dialect,
                           op->name, op->version);
    return STRATA_OK;
}

static strata_status read_attributes(strata_program *program, strata_program_op *op, const char *names, int dictionary,
                                     int properties, strata_error *err) {
    const strata_program_attribute *all = dictionary < 0 ? NULL : &program->attributes[dictionary];
    if (all && all->kind != STRATA_PROGRAM_DICTIONARY) return wrong("attributes of operations", err);
    int n = (all ? all->n_items / 2 : 0) + (*names != '\0');
    for (const char *at = names; *at; at++) n += *at == ' ';
    /* Many operations may name one long dictionary. */
    program->tables->n_named += n;
    if (program->tables->n_named > program->tables->max_named)
        return wrong("attributes of operations, which are too many", err);
    STRATA_TRY(STRATA_TAKE(&program->tables->memory, op->attributes, n, err, "there is no memory for attributes"));
    if (properties >= 0) STRATA_TRY(add_properties(program, op, names, program->tables->properties[properties], err));
    for (int i = 0; all && i < all->n_items; i += 2)
        op->attributes[op->n_attributes++] = (strata_program_named){program->attributes[all->items[i]].text, all->items[i + 1]};
    return STRATA_OK;
}

/* Sets the name and version of an operation from its name in the bytecode; *out_row is its row of ops.def. */
static strata_status name_op(strata_program *program, strata_program_op *op, int index, int *out_row, strata_error *err) {
    const char *dialect = program->tables->names[index].dialect, *name = program->tables->names[index].name;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].dialect, dialect) != 0 || strcmp(rows[i].name, name) != 0) continue;
        const size_t length = strlen(name), suffix = strcmp(dialect, "vhlo") ? 0 : 3;
        char *copy = strata_memory_copy(&program->tables->memory, name, length + 1);
        if (!copy) return no_memory("names", err);
        copy[length - suffix] = '\0';
        op->dialect = dialect;
        op->name = copy;
        op->version = suffix ? name[length - 1] - '0' : 0;
        *out_row = (int)i;
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_UNSUPPORTED, "the program has the operation %s.%s, which this reader does not know", dialect,
                       name);
}

static strata_status read_operands(scope *scope, reader *from, strata_program_op *op, strata_error *err) {
    op->n_operands = COUNT(from);
    STRATA_TRY(
        STRATA_TAKE(&scope->program->tables->memory, op->operands, op->n_operands, err, "there is no memory for operands"));
    for (int i = 0; i < op->n_operands; i++) {
        const int value = strata_read_below(from, scope->n_visible);
        if (from->failed || scope->visible[value] < 0)
            return strata_fail(err, STRATA_DATA, "an operand of the operation %s.%s is no value that was defined before it",
                               op->dialect, op->name);
        op->operands[i] = scope->visible[value];
    }
    return STRATA_OK;
}

static strata_status read_results(scope *scope, reader *from, strata_program_op *op, reader *types, strata_error *err) {
    (void)err;
    op->n_results = COUNT(from);
    *types = *from;
    for (int i = 0; i < op->n_results; i++) strata_read_below(from, scope->program->n_types);
    return from->failed ? wrong("results of operations", err) : STRATA_OK;
}

static strata_status read_op(scope *scope, reader *from, int depth, int *out, strata_error *err) {
    strata_program *program = scope->program;
    strata_program_op op = {0};
    reader types = {0};
    int row = 0, dictionary = STRATA_PROGRAM_NONE, properties = STRATA_PROGRAM_NONE;
    const int name = strata_read_below(from, program->tables->n_names), mask = read_byte(from);
    op.location = strata_read_below(from, program->n_attributes);
    if (from->failed || mask & 0x80) return wrong("operations", err);
    STRATA_TRY(name_op(program, &op, name, &row, err));
    if (mask & 1) dictionary = strata_read_below(from, program->n_attributes);
    if (mask & 64) properties = strata_read_below(from, program->tables->n_properties);
    if (from->failed) return wrong("operations", err);
    if (!(mask & 64) && *rows[row].properties && !strchr(rows[row].properties, '?')) return wrong("properties", err);
    STRATA_TRY(read_attributes(program, &op, rows[row].properties, dictionary, properties, err));
    if (mask & 2) STRATA_TRY(read_results(scope, from, &op, &types, err));
    if (mask & 4) STRATA_TRY(read_operands(scope, from, &op, err));
    if (mask & 8) return strata_fail(err, STRATA_UNSUPPORTED, "the operation %s.%s has successors", op.dialect, op.name);
    if (mask & 32) skip_use_orders(from, op.n_results);
    STRATA_TRY(STRATA_TAKE(&program->tables->memory, op.results, op.n_results, err, "there is no memory for results"));
    for (int i = 0; i < op.n_results; i++)
        STRATA_TRY(define_value(scope, strata_read_below(&types, program->n_types), &op.results[i], err));
    strata_program_op *added = strata_grow(&program->ops, program->n_ops, sizeof op);
    if (!added) return no_memory("operations", err);
    const int index = *out = program->n_ops++;
    *added = op;
    if (mask & 16) STRATA_TRY(read_regions(scope, from, depth, &op, err));
    program->ops[index] = op;
    return from->failed ? wrong("operations", err) : STRATA_OK;
}

/* The IR section is a block with the module alone. */
static strata_status read_ir(strata_program *program, reader from, strata_error *err) {
    scope scope = {.program = program};
    const int head = strata_read_below(&from, 1 << 16);
    if (from.failed || head != 2) return wrong("module", err);
    const strata_status status = read_op(&scope, &from, MAX_REGION_DEPTH, &program->module, err);
    free(scope.visible);
    STRATA_TRY(status);
    if (from.at != from.end || strcmp(program->ops[program->module].name, "module") != 0) return wrong("module", err);
    return STRATA_OK;
}

static strata_status read_program(strata_program *program, reader from, strata_error *err) {
    static const unsigned char magic[] = {0x4D, 0x4C, 0xEF, 0x52};
    reader sections[N_SECTIONS] = {{0}};
    const reader start = read_bytes(&from, sizeof magic);
    if (start.failed || memcmp(start.at, magic, sizeof magic) != 0)
        return strata_fail(err, STRATA_DATA, "the program is no MLIR bytecode: it does not begin with 4D 4C EF 52");
    const uint64_t version = strata_read_number(&from);
    if (version != FORMAT_VERSION && !from.failed)
        return strata_fail(err, STRATA_UNSUPPORTED, "the program's bytecode has version %llu, and this reader reads version %d",
                           (unsigned long long)version, FORMAT_VERSION);
    while (!from.failed && read_byte(&from)) {
    }
    while (!from.failed && from.at < from.end) {
        int id = 0;
        const reader content = read_section(&from, &id);
        if (id >= N_SECTIONS || sections[id].at) return wrong("list of sections", err);
        sections[id] = content;
    }
    if (from.failed) return wrong("list of sections", err);
    STRATA_TRY(read_strings(program->tables, sections[STRINGS], err));
    STRATA_TRY(read_dialects(program, sections[DIALECTS], err));
    STRATA_TRY(read_tables(program, sections[OFFSETS], sections[DATA], err));
    if (sections[PROPERTIES].at) STRATA_TRY(read_properties(program->tables, sections[PROPERTIES], err));
    return read_ir(program, sections[IR], err);
}

strata_status strata_program_read(const void *bytes, size_t n_bytes, strata_program **out, strata_error *err) {
    *out = NULL;
    if (n_bytes > INT32_MAX / 4)
        return strata_fail(err, STRATA_UNSUPPORTED, "the program has %zu bytes, and at most %d are read", n_bytes,
                           INT32_MAX / 4);
    strata_program *program = strata_zeroed(1, sizeof *program);
    if (program) program->tables = strata_zeroed(1, sizeof *program->tables);
    if (program && program->tables) program->tables->max_named = 8 * (int64_t)n_bytes;
    strata_status status = program && program->tables
                               ? read_program(program, (reader){bytes, (const unsigned char *)bytes + n_bytes, false}, err)
                               : no_memory("tables", err);
    if (status)
        strata_program_destroy(program);
    else
        *out = program;
    return status;
}

void strata_program_destroy(strata_program *program) {
    if (!program) return;
    if (program->tables) strata_memory_finish(&program->tables->memory);
    free(program->tables);
    free(program->values);
    free(program->ops);
    free(program);
}
