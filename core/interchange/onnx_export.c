/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the predictions of a model as an ONNX graph. Each call of a layer becomes several nodes. */
#include "core/interchange/onnx_export.h"

#include <stdio.h>

#include "strata/file.h"
#include "strata/interchange.h"
#include "strata/version.h"

enum { OPSET = 17, IR_VERSION = 8 };

/* The function for a kind of layer; NULL: ONNX has no counterpart. */
static strata_onnx_layer_export *find_layer(const char *kind) {
    static const struct {
        const char *kind;
        strata_onnx_layer_export *export;
    } kinds[] = {
#define STRATA_ONNX_LAYER(kind, function) {#kind, strata_onnx_layer_##function},
#include "core/interchange/onnx.def"
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].kind, kind)) return kinds[i].export;
    return NULL;
}

/* Adds the nodes of a call. */
static void export_call(strata_onnx_export *ex, int index) {
    const strata_call *call = ex->call = &ex->structure.calls[index];
    ex->base = call->name;
    ex->names[index] = strata_onnx_x(ex, 0);
    strata_onnx_layer_export *export = call->own ? NULL : find_layer(call->kind);
    if (export)
        ex->names[index] = export(ex);
    else
        strata_onnx_refuse(ex, "");
}

/* ---- the preprocessing of numbers ----
 * The file of a model that learned from a table takes rows of the table's own numbers, and that of a model that learned from
 * arrays takes the arrays' own numbers. A number that is missing is NaN. Nodes compute the features from them; behind the model
 * they convert labels that are numbers back. When Strata reads the file again, it leaves these nodes out, since its own
 * preprocessing does their work (onnx_import.c). */

/* The column of features, or of labels, with this index. */
typedef strata_column_info column_of(const strata_preprocessing *p, int index);

/* Adds a list of numbers, one for each of n columns from `first` on, or one number. */
static const char *put_numbers(strata_onnx_export *ex, column_of *of, int first, int n, bool deviations) {
    const char *name = strata_onnx_new_name(ex);
    float *memory =
        strata_onnx_add_initializer(ex, name, STRATA_ONNX_TYPE_FLOAT, n > 1 ? STRATA_SHAPE(n) : STRATA_SHAPE(), NULL);
    for (int i = 0; memory && i < n; i++) {
        const strata_column_info column = of(ex->preprocessing, first + i);
        memory[i] = (float)(deviations ? column.deviation : column.mean);
    }
    return name;
}

/* isnan(x) ? 0 : (x - mean) / deviation */
static const char *scaled(strata_onnx_export *ex, int first, int n, const char *x) {
    const char *y = strata_onnx_two(ex, "Sub", x, put_numbers(ex, strata_preprocessing_column, first, n, false));
    y = strata_onnx_two(ex, "Div", y, put_numbers(ex, strata_preprocessing_column, first, n, true));
    const char *missing = strata_onnx_one(ex, "IsNaN", x);
    return strata_onnx_add_node(ex, "Where", (const char *[]){missing, strata_onnx_put_number(ex, 0), y}, 3, NULL);
}

/* Joins n values along axis 1. */
static const char *joined(strata_onnx_export *ex, const char *const *parts, int n) {
    const char *y = strata_onnx_add_node(ex, "Concat", parts, n, NULL);
    strata_onnx_set_int(ex, "axis", 1);
    return y;
}

/* A column of classes that are numbers: whether x is each of them. "" is a missing number. */
static const char *one_hot(strata_onnx_export *ex, const strata_column_info *column, const char *x) {
    const char **flags = strata_onnx_take(ex, (size_t)(column->n_words + 1) * sizeof(*flags));
    for (int k = 0; flags && k < column->n_words; k++) {
        double number = 0;
        const bool missing = !strata_cell_number(column->words[k], column->format, &number);
        flags[k] =
            missing ? strata_onnx_one(ex, "IsNaN", x) : strata_onnx_two(ex, "Equal", x, strata_onnx_put_number(ex, number));
        flags[k] = strata_onnx_converted(ex, flags[k], STRATA_ONNX_TYPE_FLOAT);
    }
    return flags ? joined(ex, flags, column->n_words) : x;
}

/* The features of a table whose columns are not all numbers without missing values. */
static const char *by_column(strata_onnx_export *ex, const char *x) {
    const int n_columns = strata_preprocessing_n_columns(ex->preprocessing);
    const char **parts = strata_onnx_take(ex, (size_t)(2 * n_columns + 1) * sizeof(*parts));
    int n = 0;
    for (int i = 0; parts && i < n_columns; i++) {
        const strata_column_info column = strata_preprocessing_column(ex->preprocessing, i);
        const int64_t place = i;
        const char *cell = strata_onnx_two(ex, "Gather", x, strata_onnx_put_ints(ex, &place, 1));
        strata_onnx_set_int(ex, "axis", 1);
        parts[n++] = column.kind == STRATA_COLUMN_WORDS ? one_hot(ex, &column, cell) : scaled(ex, i, 1, cell);
        if (column.kind != STRATA_COLUMN_WORDS && column.has_missing)
            parts[n++] = strata_onnx_converted(ex, strata_onnx_one(ex, "IsNaN", cell), STRATA_ONNX_TYPE_FLOAT);
    }
    return parts ? joined(ex, parts, n) : x;
}

/* Adds the columns that cannot be numbers to ex->unsupported. */
static void check_columns(strata_onnx_export *ex, const strata_preprocessing *p) {
    static const char *const kinds[] = {"numbers", "words", "dates", "text"};
    for (int i = 0; strata_takes_numbers(p) && i < strata_preprocessing_n_columns(p); i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        if (column.kind == STRATA_COLUMN_NUMBER || (column.kind == STRATA_COLUMN_WORDS && column.numeric && !column.n_rare))
            continue;
        strata_text_add(&ex->unsupported, "%sthe column \"%.60s\" of %s", ex->unsupported.n_bytes ? ", " : "",
                        column.name ? column.name : "x", kinds[column.kind]);
        ex->columns = true;
    }
}

/* The features of x, (N, columns) or arrays. */
static const char *features(strata_onnx_export *ex, const strata_preprocessing *p, const char *x) {
    const int n = strata_preprocessing_n_columns(p);
    bool plain = true;
    ex->base = STRATA_ONNX_FEATURES;
    for (int i = 0; i < n; i++) {
        const strata_column_info column = strata_preprocessing_column(p, i);
        plain &= column.kind == STRATA_COLUMN_NUMBER && !column.has_missing;
    }
    return plain ? scaled(ex, 0, n, x) : by_column(ex, x);
}

/* y deviation + mean */
static const char *restored(strata_onnx_export *ex, const strata_preprocessing *p, const char *y) {
    const int n = strata_preprocessing_n_labels(p);
    ex->base = STRATA_ONNX_FEATURES;
    y = strata_onnx_two(ex, "Mul", y, put_numbers(ex, strata_preprocessing_label_column, 0, n, true));
    return strata_onnx_two(ex, "Add", y, put_numbers(ex, strata_preprocessing_label_column, 0, n, false));
}

/* ---- the file ---- */

/* Describes an input or output of the graph: its shape is the batch, which is not fixed, and the shape of one example. */
static StrataOnnx__ValueInfo *value_info(strata_onnx_export *ex, const char *name, int type, strata_shape example) {
    StrataOnnx__ValueInfo *info = strata_onnx_take(ex, sizeof *info);
    StrataOnnx__Type *of = strata_onnx_take(ex, sizeof *of);
    StrataOnnx__TensorType *tensor = strata_onnx_take(ex, sizeof *tensor);
    StrataOnnx__Shape *shape = strata_onnx_take(ex, sizeof *shape);
    StrataOnnx__Dimension *dims = strata_onnx_take(ex, (STRATA_MAX_RANK + 1) * sizeof *dims),
                          **list = strata_onnx_take(ex, (STRATA_MAX_RANK + 1) * sizeof(*list));
    if (ex->failed) return NULL;
    strata_onnx__value_info__init(info);
    strata_onnx__type__init(of);
    strata_onnx__tensor_type__init(tensor);
    strata_onnx__shape__init(shape);
    for (int d = 0; d <= example.rank; d++) {
        strata_onnx__dimension__init(&dims[d]);
        list[d] = &dims[d];
        if (d) dims[d].has_dim_value = 1, dims[d].dim_value = example.dims[d - 1];
    }
    dims[0].dim_param = (char *)"batch";
    shape->dim = list, shape->n_dim = (size_t)example.rank + 1;
    tensor->shape = shape, tensor->has_elem_type = 1, tensor->elem_type = type;
    of->tensor_type = tensor;
    info->type = of, info->name = strata_onnx_copy_text(ex, name);
    return info;
}

static void write_inputs(strata_onnx_export *ex) {
    const strata_preprocessing *p = ex->preprocessing;
    ex->out.input = strata_onnx_take(ex, STRATA_MAX_INPUTS * sizeof(*ex->out.input));
    for (int i = 0; i < strata_model_n_inputs(ex->model) && !ex->failed; i++) {
        const strata_model_port input = strata_model_input_port(ex->model, i);
        const bool whole = input.dtype == STRATA_DTYPE_I32, numbers = i == 0 && !whole && strata_takes_numbers(p);
        const bool table = numbers && strata_preprocessing_get_kind(p) == STRATA_PREPROCESSING_TABLE;
        ex->names[i] = strata_onnx_copy_text(ex, input.name);
        ex->out.input[ex->out.n_input++] = value_info(ex, input.name, whole ? STRATA_ONNX_TYPE_INT32 : STRATA_ONNX_TYPE_FLOAT,
                                                      table ? STRATA_SHAPE(strata_preprocessing_n_columns(p)) : input.shape);
        if (numbers) ex->names[i] = ex->features = features(ex, p, ex->names[i]);
    }
}

static void write_outputs(strata_onnx_export *ex) {
    ex->out.output = strata_onnx_take(ex, STRATA_MAX_OUTPUTS * sizeof(*ex->out.output));
    for (int i = 0; i < strata_model_n_outputs(ex->model) && !ex->failed; i++) {
        const strata_model_port output = strata_model_output_port(ex->model, i);
        ex->base = "predict";
        const char *y = strata_onnx_activate(ex, ex->structure.activations[i], ex->names[ex->structure.outputs[i]]);
        if (i == 0 && strata_restores_label(ex->preprocessing)) {
            ex->output = y;
            y = restored(ex, ex->preprocessing, y);
        }
        char name[STRATA_ONNX_NAME_BYTES];
        snprintf(name, sizeof name, "%.100s", output.name);
        for (int k = 0; k < strata_model_n_inputs(ex->model); k++) /* inputs and outputs must have different names in ONNX */
            if (!strcmp(name, strata_model_input_port(ex->model, k).name))
                snprintf(name, sizeof name, "%.100s.out", output.name);
        const char *own = strata_onnx_add_node(ex, "Identity", &y, 1, strata_onnx_copy_text(ex, name));
        ex->out.output[ex->out.n_output++] = value_info(ex, own, STRATA_ONNX_TYPE_FLOAT, output.shape);
    }
}

/* Writes the label, the loss and the notes, which strata_model_load_onnx reads. */
static size_t write_metadata(strata_onnx_export *ex, StrataOnnx__Entry ***out) {
    const strata_model *model = ex->model;
    STRATA_FREED char *losses = NULL;
    char shape[STRATA_ONNX_NAME_BYTES] = "";
    size_t n = 0, most = 5;
    while (strata_model_note_key(model, (int)most - 5)) most++;
    StrataOnnx__Entry **list = strata_onnx_take(ex, most * sizeof(*list)),
                      *entries = strata_onnx_take(ex, most * sizeof *entries);
    if (strata_model_losses_text(model, &losses, NULL)) ex->failed = true;
    const strata_shape input = strata_model_input_port(model, 0).shape;
    for (int d = 0; d < input.rank; d++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%lld", d ? "," : "", (long long)input.dims[d]);
    const char *label = strata_model_label(model), *own[][2] = {{"strata.label", *label ? label : NULL},
                                                                {"strata.loss", losses},
                                                                {STRATA_ONNX_FEATURES, ex->features},
                                                                {STRATA_ONNX_FEATURES_SHAPE, ex->features ? shape : NULL},
                                                                {STRATA_ONNX_RAW_OUTPUT, ex->output}};
    for (size_t i = 0; i < most && !ex->failed; i++) {
        char key[STRATA_ONNX_NAME_BYTES];
        const char *note = i < 5 ? NULL : strata_model_note_key(model, (int)i - 5);
        const char *text = note ? strata_model_note(model, note) : own[i][1];
        if (!text) continue;
        snprintf(key, sizeof key, "%s%.100s", note ? "strata.note." : "", note ? note : own[i][0]);
        strata_onnx__entry__init(&entries[n]);
        list[n] = &entries[n];
        entries[n].key = strata_onnx_copy_text(ex, key);
        entries[n++].value = strata_onnx_copy_text(ex, text);
    }
    *out = list;
    return n;
}

static strata_status read_back(const char *path, void *context, strata_error *err) {
    strata_model *model = NULL;
    (void)context;
    const strata_status status = strata_model_load_onnx(path, (strata_onnx_options){0}, &model, err);
    strata_model_destroy(model);
    return status;
}

static strata_status write_model(strata_onnx_export *ex, const char *path, strata_error *err) {
    StrataOnnx__Model file = STRATA_ONNX__MODEL__INIT;
    StrataOnnx__OperatorSet set = STRATA_ONNX__OPERATOR_SET__INIT, *sets[] = {&set};
    file.n_metadata_props = write_metadata(ex, &file.metadata_props);
    if (ex->failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    set.domain = (char *)"", set.has_version = 1, set.version = OPSET;
    file.has_ir_version = 1, file.ir_version = IR_VERSION;
    file.producer_name = (char *)"strata", file.producer_version = (char *)STRATA_VERSION;
    file.opset_import = sets, file.n_opset_import = 1;
    ex->out.name = (char *)"strata";
    file.graph = &ex->out;
    const size_t bytes = strata_onnx__model__get_packed_size(&file);
    if (bytes >= (size_t)1 << 31)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: it would have %zu bytes; an ONNX file has less than 2^31", path,
                           bytes);
    STRATA_FREED unsigned char *packed = NULL;
    STRATA_TRY(STRATA_NEW(packed, bytes + 1, err, "%s: no host memory for %zu bytes", path, bytes));
    strata_onnx__model__pack(&file, packed);
    return strata_file_write_checked(path, packed, bytes, &(strata_file_check){read_back, NULL}, err);
}

static strata_status walk(strata_onnx_export *ex, const char *path, strata_error *err) {
    ex->names = strata_onnx_take(ex, (size_t)ex->structure.n_calls * sizeof(*ex->names));
    write_inputs(ex);
    for (int i = strata_model_n_inputs(ex->model); i < ex->structure.n_calls && !ex->failed; i++) export_call(ex, i);
    check_columns(ex, ex->preprocessing);
    if (ex->unsupported.n_bytes)
        return strata_fail(err, STRATA_UNSUPPORTED, "%s: ONNX has no counterpart of: %.800s%s", path, ex->unsupported.bytes,
                           ex->columns ? ". The file takes rows of numbers: strata export --c writes a program that takes such "
                                         "columns too"
                                       : "");
    write_outputs(ex);
    return write_model(ex, path, err);
}

static void finish(strata_onnx_export *ex) {
    strata_preprocessing_destroy(ex->preprocessing);
    strata_text_finish(&ex->unsupported);
    strata_onnx_free_all(ex);
    free(ex->structure.calls);
    strata_weights_finish(&ex->weights);
}

strata_status strata_model_save_onnx(strata_model *model, const char *path, strata_error *err) {
    STRATA_FINISHED_BY(finish) strata_onnx_export ex = {.model = model};
    strata_onnx__graph__init(&ex.out);
    STRATA_TRY(strata_weights_read(model, "save_onnx", &ex.weights, err));
    STRATA_TRY(strata_model_describe(model, &ex.structure, err));
    if (strata_model_note(model, "preprocessing")) STRATA_TRY(strata_model_preprocessing(model, &ex.preprocessing, err));
    return walk(&ex, path, err);
}
