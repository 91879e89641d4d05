/* SPDX-License-Identifier: Apache-2.0
 *
 * In a build without protobuf-c, this file replaces the import and export of ONNX by functions that fail with a message. */
#include "strata/interchange.h"

#if !STRATA_WITH_ONNX
static strata_status missing(strata_error *err) {
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "this build of Strata has no ONNX: build it with libprotobuf-c-dev and protobuf-c-compiler installed");
}

strata_status strata_model_load_onnx(const char *path, strata_onnx_options opts, strata_model **out_model, strata_error *err) {
    (void)path, (void)opts, (void)out_model;
    return missing(err);
}

strata_status strata_model_parse_onnx(const char *path, const void *bytes, size_t n_bytes, strata_onnx_options opts,
                                      strata_model **out_model, strata_error *err) {
    (void)path, (void)bytes, (void)n_bytes, (void)opts, (void)out_model;
    return missing(err);
}

strata_status strata_model_save_onnx(strata_model *model, const char *path, strata_error *err) {
    (void)model, (void)path;
    return missing(err);
}

strata_status strata_onnx_graph_open(const char *path, strata_onnx_graph **out_graph, strata_error *err) {
    (void)path, (void)out_graph;
    return missing(err);
}

/* Without a graph, the functions below are never called. */
void strata_onnx_graph_destroy(strata_onnx_graph *graph) {
    (void)graph;
}

const char *strata_onnx_graph_input(const strata_onnx_graph *graph, int index) {
    (void)graph, (void)index;
    return NULL;
}

strata_status strata_onnx_graph_set(strata_onnx_graph *graph, const char *name, const strata_array *array, strata_error *err) {
    (void)graph, (void)name, (void)array;
    return missing(err);
}

strata_status strata_onnx_graph_run(strata_onnx_graph *graph, strata_error *err) {
    (void)graph;
    return missing(err);
}

strata_onnx_result strata_onnx_graph_output(const strata_onnx_graph *graph, int index) {
    (void)graph, (void)index;
    return (strata_onnx_result){0};
}
#endif
