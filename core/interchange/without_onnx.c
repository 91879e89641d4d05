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
#endif
