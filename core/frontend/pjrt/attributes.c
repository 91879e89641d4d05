/* SPDX-License-Identifier: Apache-2.0
 *
 * The types and attributes of the dialects vhlo and builtin. Each is read on its own and refers to others by index; afterwards
 * those that contain themselves, or expand to too many, are refused. Those of sdy keep their bytes. */
#include "core/frontend/pjrt/reader.h"

enum { MAX_DEPTH = 64, MAX_SIZE = 1 << 20 };

static const struct {
    int code, bits;
    const char *name;
} vhlo_scalars[] = {
    {0, 1, "i1"},
    {2, 16, "bf16"},
    {3, 16, "f16"},
    {4, 32, "f32"},
    {5, 64, "f64"},
    {9, 0, "index"},
    {10, 4, "i4"},
    {11, 8, "i8"},
    {12, 16, "i16"},
    {13, 32, "i32"},
    {14, 64, "i64"},
    {15, 4, "ui4"},
    {16, 8, "ui8"},
    {17, 16, "ui16"},
    {18, 32, "ui32"},
    {19, 64, "ui64"},
    {22, 0, "!stablehlo.token"},
    {31, 2, "i2"},
    {32, 2, "ui2"},
    {33, 0, "none"},
};

static int *read_list(reader *from, strata_memory *memory, int limit, int *out_n) {
    const int n = COUNT(from);
    int *list = strata_memory_take(memory, n, sizeof *list);
    for (int i = 0; list && i < n; i++) list[i] = strata_read_below(from, limit);
    *out_n = list ? n : 0;
    return list;
}

static int64_t *read_numbers(reader *from, strata_memory *memory, int *out_n, bool is_signed) {
    const int n = COUNT(from);
    int64_t *list = strata_memory_take(memory, n, sizeof *list);
    for (int i = 0; list && i < n; i++) list[i] = is_signed ? strata_read_signed(from) : (int64_t)strata_read_number(from);
    *out_n = list ? n : 0;
    return list;
}

static void read_tensor_type(strata_program_type *type, reader *from, strata_program *program) {
    type->kind = STRATA_PROGRAM_TYPE_TENSOR;
    type->dims = read_numbers(from, &program->tables->memory, &type->rank, true);
    type->element = strata_read_below(from, program->n_types);
    if (type->rank > STRATA_PROGRAM_MAX_RANK) from->failed = true;
}

static void read_function_type(strata_program_type *type, reader *from, strata_program *program) {
    strata_memory *memory = &program->tables->memory;
    int n_results = 0;
    type->kind = STRATA_PROGRAM_TYPE_FUNCTION;
    int *arguments = read_list(from, memory, program->n_types, &type->n_arguments);
    int *results = read_list(from, memory, program->n_types, &n_results);
    type->parts = strata_memory_take(memory, type->n_arguments + n_results, sizeof(int));
    if (!arguments || !results || !type->parts) return;
    type->n_parts = type->n_arguments + n_results;
    memcpy(type->parts, arguments, (size_t)type->n_arguments * sizeof(int));
    memcpy(type->parts + type->n_arguments, results, (size_t)n_results * sizeof(int));
}

static bool read_vhlo_type(strata_program_type *type, int code, reader *from, strata_program *program) {
    for (size_t i = 0; i < sizeof vhlo_scalars / sizeof vhlo_scalars[0]; i++) {
        if (vhlo_scalars[i].code != code) continue;
        type->kind = vhlo_scalars[i].bits ? STRATA_PROGRAM_TYPE_SCALAR : STRATA_PROGRAM_TYPE_OTHER;
        type->name = vhlo_scalars[i].name;
        type->bits = vhlo_scalars[i].bits;
        return true;
    }
    if (code == 1) {
        type->kind = STRATA_PROGRAM_TYPE_COMPLEX;
        type->element = strata_read_below(from, program->n_types);
    } else if (code == 8) {
        read_function_type(type, from, program);
    } else if (code == 20) {
        read_tensor_type(type, from, program);
    } else if (code == 23) {
        type->kind = STRATA_PROGRAM_TYPE_TUPLE;
        type->parts = read_list(from, &program->tables->memory, program->n_types, &type->n_parts);
    } else {
        return false;
    }
    return true;
}

/* The name of builtin's integer type: signless, signed, unsigned. */
static const char *integer_name(int bits, int sign) {
    static const char *const names[][2] = {{"i1", "ui1"},   {"i2", "ui2"},   {"i4", "ui4"},  {"i8", "ui8"},
                                           {"i16", "ui16"}, {"i32", "ui32"}, {"i64", "ui64"}};
    for (int i = 0; i < 7; i++)
        if (bits == 1 << i) return names[i][sign == 2];
    return NULL;
}

static bool read_builtin_type(strata_program_type *type, int code, reader *from, strata_program *program) {
    static const struct {
        int bits;
        const char *name;
    } floats[] = {{16, "bf16"}, {16, "f16"}, {32, "f32"}, {64, "f64"}};
    if (code == 0) {
        const int packed = strata_read_below(from, 4 * 64 + 4);
        type->kind = STRATA_PROGRAM_TYPE_SCALAR;
        type->bits = packed >> 2;
        type->name = integer_name(type->bits, packed & 3);
        return type->name != NULL;
    }
    if (code >= 3 && code <= 6) {
        type->kind = STRATA_PROGRAM_TYPE_SCALAR;
        type->bits = floats[code - 3].bits;
        type->name = floats[code - 3].name;
    } else if (code == 1 || code == 12) {
        type->kind = STRATA_PROGRAM_TYPE_OTHER;
        type->name = code == 1 ? "index" : "none";
    } else if (code == 2) {
        read_function_type(type, from, program);
    } else if (code == 9) {
        type->kind = STRATA_PROGRAM_TYPE_COMPLEX;
        type->element = strata_read_below(from, program->n_types);
    } else if (code == 13) {
        read_tensor_type(type, from, program);
    } else {
        return false;
    }
    return true;
}

/* Whether a type contains itself, or lies deeper than `depth`: types are printed by recursion. */
static bool type_is_deep(const strata_program *program, int index, int depth) {
    const strata_program_type *type = &program->types[index];
    if (depth == 0) return true;
    if (type->element >= 0 && type_is_deep(program, type->element, depth - 1)) return true;
    for (int i = 0; i < type->n_parts; i++) {
        /* Functions and tuples contain no functions and tuples, which keeps this check linear. */
        if (program->types[type->parts[i]].n_parts || type_is_deep(program, type->parts[i], depth - 1)) return true;
    }
    return false;
}

strata_status strata_program_read_types(strata_program *program, strata_error *err) {
    for (int i = 0; i < program->n_types; i++) {
        encoded *from = &program->tables->types[i];
        strata_program_type *type = &program->types[i];
        type->element = STRATA_PROGRAM_NONE;
        const bool is_vhlo = !strcmp(from->dialect, "vhlo"), is_builtin = !strcmp(from->dialect, "builtin");
        if (from->is_text || (!is_vhlo && !is_builtin)) continue;
        const int code = strata_read_below(&from->bytes, 1 << 16);
        const bool known =
            is_vhlo ? read_vhlo_type(type, code, &from->bytes, program) : read_builtin_type(type, code, &from->bytes, program);
        if (!known && !from->bytes.failed)
            return strata_fail(err, STRATA_UNSUPPORTED,
                               "type %d of the program has the code %d of the dialect %s, which is none "
                               "that is known; pin the program's StableHLO version to at most 1.13.0",
                               i, code, from->dialect);
        if (from->bytes.failed || from->bytes.at != from->bytes.end)
            return strata_fail(err, STRATA_DATA,
                               "type %d of the program, code %d of the dialect %s, has wrong bytes, or a rank "
                               "above %d",
                               i, code, from->dialect, STRATA_PROGRAM_MAX_RANK);
    }
    for (int i = 0; i < program->n_types; i++)
        if (type_is_deep(program, i, 5))
            return strata_fail(err, STRATA_DATA, "type %d of the program contains itself, or too many others", i);
    return STRATA_OK;
}

static int read_attribute_index(reader *from, const strata_program *program) {
    return strata_read_below(from, program->n_attributes);
}

static void read_items(strata_program_attribute *out, strata_program_attribute_kind kind, reader *from,
                       strata_program *program) {
    const int per_item = kind == STRATA_PROGRAM_DICTIONARY ? 2 : 1, n = COUNT(from);
    out->kind = kind;
    out->items = strata_memory_take(&program->tables->memory, (int64_t)n * per_item, sizeof(int));
    if (!out->items) return;
    out->n_items = n * per_item;
    for (int i = 0; i < out->n_items; i++) out->items[i] = read_attribute_index(from, program);
}

static void read_fixed(strata_program_attribute *out, strata_program_attribute_kind kind, int n, reader *from,
                       strata_program *program) {
    out->kind = kind;
    out->items = strata_memory_take(&program->tables->memory, n, sizeof(int));
    if (!out->items) return;
    out->n_items = n;
    for (int i = 0; i < n; i++) out->items[i] = read_attribute_index(from, program);
}

static void read_string(strata_program_attribute *out, reader *from, const strata_program *program) {
    out->kind = STRATA_PROGRAM_STRING;
    const int index = strata_read_below(from, program->tables->n_strings);
    out->text = from->failed ? "" : program->tables->strings[index];
}

static void read_enum(strata_program_attribute *out, reader *from, const char *const *names, int n) {
    out->kind = STRATA_PROGRAM_ENUM;
    out->integer = strata_read_below(from, n);
    out->text = names[out->integer];
}

/* A number of its type's width: one byte up to 8 bits, a signed one above. */
static void read_scalar(strata_program_attribute *out, strata_program_attribute_kind kind, reader *from,
                        const strata_program *program) {
    out->kind = kind;
    out->type = strata_read_below(from, program->n_types);
    if (from->failed) return;
    const strata_program_type *type = &program->types[out->type];
    const bool is_index = type->name && !strcmp(type->name, "index");
    if (type->kind != STRATA_PROGRAM_TYPE_SCALAR && !is_index) {
        from->failed = true;
    } else if (type->bits && type->bits <= 8) {
        if (from->at == from->end) from->failed = true;
        out->integer = from->failed ? 0 : *from->at++;
        if (type->name[0] == 'i' && type->bits == 8) out->integer = (int8_t)out->integer;
    } else {
        out->integer = strata_read_signed(from);
    }
}

static void read_blob(strata_program_attribute *out, reader *from) {
    const int n = COUNT(from);
    if (from->failed || n > from->end - from->at) {
        from->failed = true;
        return;
    }
    out->data = from->at;
    out->n_bytes = (size_t)n;
    from->at += n;
}

/* Checks that the bytes are one element, or as many as the tensor's type has. */
static void read_tensor(strata_program_attribute *out, reader *from, const strata_program *program) {
    out->kind = STRATA_PROGRAM_TENSOR;
    out->type = strata_read_below(from, program->n_types);
    read_blob(out, from);
    if (from->failed) return;
    const strata_program_type *type = &program->types[out->type];
    const strata_program_type *element = type->element >= 0 ? &program->types[type->element] : NULL;
    int bits = 0;
    if (element && element->kind == STRATA_PROGRAM_TYPE_COMPLEX) bits = 2 * program->types[element->element].bits;
    if (element && element->kind == STRATA_PROGRAM_TYPE_SCALAR) bits = element->bits;
    if (type->kind != STRATA_PROGRAM_TYPE_TENSOR || !bits) {
        from->failed = true;
        return;
    }
    const int64_t limit = INT64_C(1) << 50;
    int64_t n = 1;
    for (int i = 0; i < type->rank; i++) {
        if (type->dims[i] < 0 || (type->dims[i] && n > limit / type->dims[i])) from->failed = true;
        if (!from->failed) n *= type->dims[i];
    }
    const int64_t all = bits == 1 ? (n + 7) / 8 : n * ((bits + 7) / 8), one = (bits + 7) / 8;
    const bool packed_splat = bits == 1 && out->n_bytes == 1 && (out->data[0] == 0 || out->data[0] == 0xFF);
    out->is_splat =
        n > 0 && (int64_t)out->n_bytes == one && (n == 1 || bits != 1 || packed_splat) && (bits != 1 || n != 8 || packed_splat);
    if (!out->is_splat && (int64_t)out->n_bytes != all) from->failed = true;
}

static bool read_vhlo_attribute(strata_program_attribute *out, int code, reader *from, strata_program *program) {
    static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
    static const char *const comparisons[] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
    static const char *const api_versions[] = {"API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL",
                                               "API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED",
                                               "API_VERSION_TYPED_FFI"};
    static const char *const ffts[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
    static const char *const precisions[] = {"DEFAULT", "HIGH", "HIGHEST"};
    static const char *const algorithms[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
    static const char *const distributions[] = {"UNIFORM", "NORMAL"};
    static const char *const transposes[] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
    static const char *const accuracies[] = {"DEFAULT", "HIGHEST", "TOLERANCE"};
    strata_memory *memory = &program->tables->memory;
    switch (code) {
        case 1:
            read_items(out, STRATA_PROGRAM_ARRAY, from, program);
            return true;
        case 2:
            out->kind = STRATA_PROGRAM_BOOL;
            out->integer = strata_read_below(from, 2);
            return true;
        case 3:
            read_enum(out, from, directions, 6);
            return true;
        case 4:
            read_enum(out, from, comparisons, 5);
            return true;
        case 5:
            read_enum(out, from, api_versions, 5);
            return true;
        case 6:
            read_items(out, STRATA_PROGRAM_DICTIONARY, from, program);
            return true;
        case 7:
            read_enum(out, from, ffts, 4);
            return true;
        case 8:
            read_scalar(out, STRATA_PROGRAM_FLOAT, from, program);
            return true;
        case 9:
            read_scalar(out, STRATA_PROGRAM_INTEGER, from, program);
            return true;
        case 10: {
            /* output_tuple_indices in `numbers`, the operand in `integer`, operand_tuple_indices are not kept. */
            int n_dropped = 0;
            out->kind = STRATA_PROGRAM_NUMBERS;
            out->numbers = read_numbers(from, memory, &out->n_numbers, true);
            out->integer = strata_read_signed(from);
            read_numbers(from, memory, &n_dropped, true);
            return true;
        }
        case 11:
            read_enum(out, from, precisions, 3);
            return true;
        case 12:
            read_enum(out, from, algorithms, 3);
            return true;
        case 13:
            read_enum(out, from, distributions, 2);
            return true;
        case 14:
            read_string(out, from, program);
            return true;
        case 15:
            read_tensor(out, from, program);
            return true;
        case 16:
            read_enum(out, from, transposes, 4);
            return true;
        case 17:
            out->kind = STRATA_PROGRAM_TYPE;
            out->type = strata_read_below(from, program->n_types);
            return true;
        case 18:
            out->kind = STRATA_PROGRAM_NUMBERS;
            out->numbers = read_numbers(from, memory, &out->n_numbers, true);
            return true;
        case 19:
            read_enum(out, from, accuracies, 3);
            return true;
        case 20:
            out->kind = STRATA_PROGRAM_NUMBERS;
            out->numbers = strata_memory_take(memory, 3, sizeof(int64_t));
            for (int i = 0; i < 3 && out->numbers; i++) out->numbers[i] = strata_read_signed(from);
            out->n_numbers = out->numbers ? 3 : 0;
            out->integer = read_attribute_index(from, program);
            return true;
        default:
            return false;
    }
}

static bool read_builtin_attribute(strata_program_attribute *out, int code, reader *from, strata_program *program) {
    switch (code) {
        case 0:
            read_items(out, STRATA_PROGRAM_ARRAY, from, program);
            return true;
        case 1:
            read_items(out, STRATA_PROGRAM_DICTIONARY, from, program);
            return true;
        case 2:
            read_string(out, from, program);
            return true;
        case 3:
            read_string(out, from, program);
            out->type = strata_read_below(from, program->n_types);
            return true;
        case 4:
            read_fixed(out, STRATA_PROGRAM_ARRAY, 1, from, program);
            return true;
        case 6:
            out->kind = STRATA_PROGRAM_TYPE;
            out->type = strata_read_below(from, program->n_types);
            return true;
        case 7:
            out->kind = STRATA_PROGRAM_UNIT;
            return true;
        case 8:
            read_scalar(out, STRATA_PROGRAM_INTEGER, from, program);
            return true;
        case 9:
            read_scalar(out, STRATA_PROGRAM_FLOAT, from, program);
            return true;
        case 10:
            read_fixed(out, STRATA_PROGRAM_LOCATION, 2, from, program);
            return true;
        case 11:
            read_fixed(out, STRATA_PROGRAM_LOCATION, 1, from, program);
            out->integer = strata_read_below(from, INT32_MAX);
            strata_read_number(from);
            return true;
        case 12:
            read_items(out, STRATA_PROGRAM_LOCATION, from, program);
            return true;
        case 13:
            read_items(out, STRATA_PROGRAM_LOCATION, from, program);
            read_attribute_index(from, program);
            return true;
        case 14:
            read_fixed(out, STRATA_PROGRAM_LOCATION, 2, from, program);
            return true;
        case 15:
            out->kind = STRATA_PROGRAM_LOCATION;
            return true;
        case 22:
            read_fixed(out, STRATA_PROGRAM_LOCATION, 1, from, program);
            out->numbers = read_numbers(from, &program->tables->memory, &out->n_numbers, false);
            out->integer = out->n_numbers ? out->numbers[0] : 0;
            return true;
        default:
            return false;
    }
}

/* Sets the sizes of an attribute and of those below it. */
static strata_status measure(strata_program *program, int index, int depth, strata_error *err) {
    strata_program_attribute *attribute = &program->attributes[index];
    if (attribute->size > 0) return STRATA_OK;
    if (attribute->size < 0 || depth == 0)
        return strata_fail(err, STRATA_DATA, "attribute %d of the program contains itself, or more than %d levels", index,
                           MAX_DEPTH);
    attribute->size = -1;
    int64_t size = 1;
    for (int i = 0; i < attribute->n_items; i++) {
        STRATA_TRY(measure(program, attribute->items[i], depth - 1, err));
        size += program->attributes[attribute->items[i]].size;
    }
    if (size > MAX_SIZE)
        return strata_fail(err, STRATA_DATA, "attribute %d of the program has more than %d parts", index, MAX_SIZE);
    attribute->size = size;
    return STRATA_OK;
}

/* Names of dictionaries and of files are strings. */
static strata_status check_strings(strata_program *program, int index, strata_error *err) {
    strata_program_attribute *attribute = &program->attributes[index];
    const bool is_dictionary = attribute->kind == STRATA_PROGRAM_DICTIONARY;
    const bool is_line = attribute->kind == STRATA_PROGRAM_LOCATION && attribute->integer > 0;
    const int n = is_dictionary ? attribute->n_items : is_line && attribute->n_items == 1;
    for (int i = 0; i < n; i += 2) {
        const strata_program_attribute *name = &program->attributes[attribute->items[i]];
        if (name->kind != STRATA_PROGRAM_STRING)
            return strata_fail(err, STRATA_DATA, "attribute %d of the program has a name that is no string", index);
        if (is_line) attribute->text = name->text;
    }
    return STRATA_OK;
}

strata_status strata_program_read_attributes(strata_program *program, strata_error *err) {
    for (int i = 0; i < program->n_attributes; i++) {
        encoded *from = &program->tables->attributes[i];
        strata_program_attribute *out = &program->attributes[i];
        out->type = STRATA_PROGRAM_NONE;
        out->data = from->bytes.at;
        out->n_bytes = (size_t)(from->bytes.end - from->bytes.at);
        const bool is_vhlo = !strcmp(from->dialect, "vhlo"), is_builtin = !strcmp(from->dialect, "builtin");
        if (from->is_text || (!is_vhlo && !is_builtin)) continue;
        const int code = strata_read_below(&from->bytes, 1 << 16);
        const bool known = is_vhlo ? read_vhlo_attribute(out, code, &from->bytes, program)
                                   : read_builtin_attribute(out, code, &from->bytes, program);
        if (!known && !from->bytes.failed)
            return strata_fail(err, STRATA_UNSUPPORTED,
                               "attribute %d of the program has the code %d of the dialect %s, which is "
                               "none that is known; pin the program's StableHLO version to at most 1.13.0",
                               i, code, from->dialect);
        if (from->bytes.failed || from->bytes.at != from->bytes.end)
            return strata_fail(err, STRATA_DATA, "attribute %d of the program, code %d of the dialect %s, has wrong bytes", i,
                               code, from->dialect);
    }
    for (int i = 0; i < program->n_attributes; i++) {
        STRATA_TRY(measure(program, i, MAX_DEPTH, err));
        STRATA_TRY(check_strings(program, i, err));
    }
    return STRATA_OK;
}
