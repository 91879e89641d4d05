/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates an ONNX graph as it is, without a batch and without making a model of it. All inputs are constants of the import,
 * so that each node is folded: the references of the ops compute it on the host. Shapes may therefore depend on the inputs,
 * and the graph needs no weights. */
#include "core/interchange/onnx.h"
#include "strata/formats.h"
#include "strata/interchange.h"

/* The number of elements that a value may have. */
enum { MOST_ELEMENTS = 1 << 28 };

struct strata_onnx_graph {
    char *path;
    unsigned char *bytes;
    size_t n_bytes;
    StrataOnnx__Model *file;
    /* [n_input of the graph] The arrays that were given, as f32, i64 or bool; data NULL: none was. */
    strata_onnx_given *given;
    /* [n_output of the graph] */
    strata_array *outputs;
};

static size_t n_inputs(const strata_onnx_graph *graph) {
    return graph->file->graph->n_input;
}

/* The bytes of the file are needed as long as the graph, since its weights are read again in each run. */
static strata_status open_file(strata_onnx_graph *graph, strata_error *err) {
    STRATA_TRY(strata_file_read(graph->path, STRATA_BYTES_LIMIT(31), &graph->bytes, &graph->n_bytes, err));
    graph->file = strata_onnx__model__unpack(NULL, graph->n_bytes, graph->bytes);
    if (!graph->file || !graph->file->graph)
        return strata_fail(err, STRATA_DATA, "%s: it is no ONNX model: its bytes are no such message", graph->path);
    const StrataOnnx__Graph *g = graph->file->graph;
    STRATA_TRY(STRATA_NEW(graph->given, g->n_input + 1, err, "%s: no host memory", graph->path));
    STRATA_TRY(STRATA_NEW(graph->outputs, g->n_output + 1, err, "%s: no host memory", graph->path));
    for (size_t i = 0; i < g->n_input; i++) {
        if (!g->input[i]->name) return strata_fail(err, STRATA_DATA, "%s: input %zu has no name", graph->path, i);
        graph->given[i].name = g->input[i]->name;
    }
    return STRATA_OK;
}

strata_status strata_onnx_graph_open(const char *path, strata_onnx_graph **out_graph, strata_error *err) {
    strata_onnx_graph *graph = calloc(1, sizeof *graph);
    if (graph) graph->path = strdup(path);
    strata_status status =
        graph && graph->path ? open_file(graph, err) : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path);
    if (status && graph && graph->bytes)
        status = strata_file_explain(path, graph->bytes, graph->n_bytes, STRATA_FILE_ONNX, status, err);
    if (status)
        strata_onnx_graph_destroy(graph);
    else
        *out_graph = graph;
    return status;
}

void strata_onnx_graph_destroy(strata_onnx_graph *graph) {
    if (!graph) return;
    for (size_t i = 0; graph->given && i < n_inputs(graph); i++) strata_array_finish(&graph->given[i].array);
    for (size_t i = 0; graph->outputs && i < graph->file->graph->n_output; i++) strata_array_finish(&graph->outputs[i]);
    if (graph->file) strata_onnx__model__free_unpacked(graph->file, NULL);
    free(graph->given);
    free(graph->outputs);
    free(graph->bytes);
    free(graph->path);
    free(graph);
}

/* Up to IR version 3 the inputs also list the weights. These are not inputs here. */
const char *strata_onnx_graph_input(const strata_onnx_graph *graph, int index) {
    const StrataOnnx__Graph *g = graph->file->graph;
    for (size_t i = 0; i < g->n_input; i++)
        if (!strata_onnx_is_initializer(g, g->input[i]->name) && index-- == 0) return g->input[i]->name;
    return NULL;
}

static strata_status unknown_input(const strata_onnx_graph *graph, const char *name, strata_error *err) {
    STRATA_FINISHED_BY(strata_text_finish) strata_text list = {0};
    for (int i = 0; strata_onnx_graph_input(graph, i); i++)
        strata_text_add(&list, "%s\"%.60s\"", i ? ", " : "", strata_onnx_graph_input(graph, i));
    return strata_fail(err, STRATA_INVALID, "%s: it has no input \"%.60s\"; its inputs are %.600s", graph->path, name,
                       list.bytes ? list.bytes : "none");
}

strata_status strata_onnx_graph_set(strata_onnx_graph *graph, const char *name, const strata_array *array, strata_error *err) {
    const StrataOnnx__Graph *g = graph->file->graph;
    const strata_dtype dtype = strata_dtype_is_float(array->dtype) ? STRATA_DTYPE_F32
                               : array->dtype == STRATA_DTYPE_BOOL ? STRATA_DTYPE_BOOL
                                                                   : STRATA_DTYPE_I64;
    strata_array copy;
    size_t place = 0;
    while (place < g->n_input && (strcmp(g->input[place]->name, name) || strata_onnx_is_initializer(g, name))) place++;
    if (place == g->n_input) return unknown_input(graph, name, err);
    STRATA_TRY(strata_onnx_convert(array, dtype, &copy, err));
    strata_array_finish(&graph->given[place].array);
    graph->given[place].array = copy;
    return STRATA_OK;
}

static strata_status take_outputs(strata_onnx_graph *graph, strata_onnx_import *im) {
    const StrataOnnx__Graph *g = graph->file->graph;
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->output[i]->name ? g->output[i]->name : "";
        int value = strata_onnx_find(im, name);
        if (!value) return strata_onnx_fail(im, STRATA_DATA, "no node gives the output \"%.80s\"", name);
        value = strata_onnx_in_front(im, value);
        if (im->status) return im->status;
        const strata_array *from = &im->values[value].array;
        strata_array_finish(&graph->outputs[i]);
        STRATA_TRY(strata_onnx_convert(from, from->dtype, &graph->outputs[i], im->err));
    }
    return STRATA_OK;
}

strata_status strata_onnx_graph_run(strata_onnx_graph *graph, strata_error *err) {
    strata_onnx_import *im = NULL;
    strata_error reason = {0};
    const strata_onnx_given_list list = {graph->given, n_inputs(graph), MOST_ELEMENTS};
    strata_status status = strata_onnx_open(graph->path, graph->bytes, graph->n_bytes, true, &list, &im, &reason);
    if (!status) status = take_outputs(graph, im);
    strata_onnx_close(im);
    if (status == STRATA_INVALID) status = STRATA_DATA;
    return status ? strata_fail(err, status, "%s: %s", graph->path, reason.message) : STRATA_OK;
}

strata_onnx_result strata_onnx_graph_output(const strata_onnx_graph *graph, int index) {
    const StrataOnnx__Graph *g = graph->file->graph;
    if (index < 0 || (size_t)index >= g->n_output) return (strata_onnx_result){0};
    const StrataOnnx__ValueInfo *info = g->output[index];
    const strata_array *array = &graph->outputs[index];
    const StrataOnnx__TensorType *type = info->type ? info->type->tensor_type : NULL;
    const char *own = array->dtype == STRATA_DTYPE_F32 ? "FLOAT" : array->dtype == STRATA_DTYPE_BOOL ? "BOOL" : "INT64";
    return (strata_onnx_result){.name = info->name ? info->name : "",
                                .type = type && type->elem_type ? strata_onnx_type_name(type->elem_type) : own,
                                .array = strata_array_view(array->dtype, array->shape, array->data)};
}
