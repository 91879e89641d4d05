/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph: what is to be computed, before any device is chosen. Ops are in ops.h; running is in executable.h.
 *
 * A strata_tensor is a symbolic value, the output of one node; it lives as long as its graph. Building is expression-like:
 *     y = strata_relu(strata_add(strata_matmul(x, w, false, false), b));
 * A building error (shapes that do not fit, memory that ran out) does not interrupt the expression: the graph keeps the
 * first error, the result is poisoned and so is all that is built from it. Check once, with strata_graph_check or at compile.
 * Order is meaning: a node that updates a variable is seen by the reads created after it, not by those created before.
 *
 * Threads: one at a time per graph. */
#ifndef STRATA_GRAPH_H
#define STRATA_GRAPH_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_graph strata_graph;
typedef struct strata_tensor strata_tensor;
typedef struct strata_device strata_device;
typedef struct strata_variable strata_variable;

STRATA_API STRATA_MUST_USE strata_status strata_graph_create(strata_graph **out_graph, strata_error *err);
STRATA_API void strata_graph_destroy(strata_graph *graph); /* NULL is fine; frees every tensor of it */

/* OK, or the first error met while building. */
STRATA_API STRATA_MUST_USE strata_status strata_graph_check(const strata_graph *graph, strata_error *err);

/* Records an error of a function of one's own that builds a graph (a layer, a loss, a replica's step), unless there was one
 * before, and returns a poisoned tensor, which that function returns in turn. format: as of printf. */
STRATA_API strata_tensor *strata_graph_fail(strata_graph *graph, strata_status status, const char *format, ...)
    STRATA_PRINTF(3, 4);

/* Words put before the message of a building error until the next call, for example a layer's name; copied. NULL: none. */
STRATA_API void strata_graph_set_scope(strata_graph *graph, const char *scope);

/* A value fed anew for each run. `name` is copied and must be unique among the graph's inputs. */
STRATA_API strata_tensor *strata_input(strata_graph *graph, const char *name, strata_dtype dtype, strata_shape shape);
/* A value known now; the elements are copied. */
STRATA_API strata_tensor *strata_constant(strata_graph *graph, const strata_array *value);
/* A scalar constant of the dtype. */
STRATA_API strata_tensor *strata_scalar(strata_graph *graph, strata_dtype dtype, double value);
/* The variable's value at this point of the program. The variable is borrowed and must outlive the graph. */
STRATA_API strata_tensor *strata_variable_read(strata_graph *graph, strata_variable *variable);

STRATA_API strata_shape strata_tensor_shape(const strata_tensor *tensor); /* of a poisoned tensor: () */
STRATA_API strata_dtype strata_tensor_dtype(const strata_tensor *tensor);
STRATA_API strata_graph *strata_tensor_graph(const strata_tensor *tensor);
/* For messages and traces; copied. Returns the tensor, so that it can stand inside an expression. */
STRATA_API strata_tensor *strata_tensor_set_name(strata_tensor *tensor, const char *name);
STRATA_API const char *strata_tensor_name(const strata_tensor *tensor); /* its name, else its op's name */

/* Reverse-mode gradients: out_dx[i] = d sum(y * dy) / d x[i], of the shape and dtype of x[i]; zeros where y does not depend on
 * x[i].
 *   y       a float tensor of any shape
 *   dy      of y's shape; NULL: ones
 *   x       [n_x] tensors of the same graph that were made before y
 *   out_dx  [n_x]
 * Where several paths from x[i] to y exist, their gradients are added in a fixed order. An op without a gradient on a path
 * poisons the result: the graph's error is UNSUPPORTED and names the op. */
STRATA_API void strata_gradients(strata_tensor *y, strata_tensor *dy, strata_tensor *const *x, int n_x, strata_tensor **out_dx);

/* ---- variables: values that live on a device between runs (parameters, optimizer slots, metric sums) ---- */

/* Zeros. The device is borrowed. OUT_OF_MEMORY says bytes wanted and free. */
STRATA_API STRATA_MUST_USE strata_status strata_variable_create(strata_device *device, const char *name, strata_dtype dtype,
                                                                strata_shape shape, strata_variable **out_variable,
                                                                strata_error *err);
STRATA_API void strata_variable_destroy(strata_variable *variable);
/* Copy all elements in or out; both are ordered after every run submitted before. `value` must have the variable's dtype and
 * number of elements. */
STRATA_API STRATA_MUST_USE strata_status strata_variable_set(strata_variable *variable, const strata_array *value,
                                                             strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_variable_get(strata_variable *variable, strata_array *value, strata_error *err);
/* The same for a part: the elements from byte `offset` on that `value` has room for. */
STRATA_API STRATA_MUST_USE strata_status strata_variable_set_range(strata_variable *variable, int64_t offset,
                                                                   const strata_array *value, strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_variable_get_range(strata_variable *variable, int64_t offset,
                                                                   strata_array *value, strata_error *err);
STRATA_API const char *strata_variable_name(const strata_variable *variable);
STRATA_API strata_dtype strata_variable_dtype(const strata_variable *variable);
STRATA_API strata_shape strata_variable_shape(const strata_variable *variable);

#ifdef __cplusplus
}
#endif
#endif
