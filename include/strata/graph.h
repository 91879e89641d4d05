/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph: a description of a computation that does not depend on a device. Ops are declared in ops.h. executable.h compiles
 * a graph for a device and runs it.
 *
 * A strata_tensor is a symbolic value, the output of one node; it lives as long as its graph. Building is expression-like:
 *     y = strata_relu(strata_add(strata_matmul(x, w, false, false), b));
 * A building error (shapes that do not fit, memory that ran out) does not interrupt the expression: the graph stores the first
 * error, and the result is *poisoned*, as is every tensor that is built from it. Check once at the end, with strata_graph_check
 * or when the graph is compiled.
 *
 * Nodes run in the order in which they were created: the update of a variable changes what reads return that were created after
 * it, and does not change what earlier reads return.
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

/* For your own functions that build graphs (a layer, a loss, a replica's step): records an error in the graph, unless the graph
 * has one already, and returns a poisoned tensor, which your function returns. format: as of printf. */
STRATA_API strata_tensor *strata_graph_fail(strata_graph *graph, strata_status status, const char *format, ...)
    STRATA_PRINTF(3, 4);

/* Sets words, for example a layer's name, that are put before the message of each building error until the next call;
 * copied. NULL: none. */
STRATA_API void strata_graph_set_scope(strata_graph *graph, const char *scope);

/* A value that the caller sets before each run. `name` is copied and must be unique among the graph's inputs. */
STRATA_API strata_tensor *strata_input(strata_graph *graph, const char *name, strata_dtype dtype, strata_shape shape);
/* A constant; the elements are copied. */
STRATA_API strata_tensor *strata_constant(strata_graph *graph, const strata_array *value);
/* A scalar constant of the dtype. */
STRATA_API strata_tensor *strata_scalar(strata_graph *graph, strata_dtype dtype, double value);
/* The variable's value at this point of the program. The variable is borrowed and must outlive the graph. */
STRATA_API strata_tensor *strata_variable_read(strata_graph *graph, strata_variable *variable);

STRATA_API strata_shape strata_tensor_shape(const strata_tensor *tensor); /* of a poisoned tensor: () */
STRATA_API strata_dtype strata_tensor_dtype(const strata_tensor *tensor);
STRATA_API strata_graph *strata_tensor_graph(const strata_tensor *tensor);
/* Sets the name that messages and traces show; it is copied. Returns the tensor, so that the call can be part of an expression.
 * */
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

/* ---- variables: values that stay on a device between runs (parameters, optimizer slots, metric sums) ---- */

/* A variable whose elements are 0. The device is borrowed. Fails: OUT_OF_MEMORY, with the bytes that are needed and free. */
STRATA_API STRATA_MUST_USE strata_status strata_variable_create(strata_device *device, const char *name, strata_dtype dtype,
                                                                strata_shape shape, strata_variable **out_variable,
                                                                strata_error *err);
STRATA_API void strata_variable_destroy(strata_variable *variable);
/* Copy all elements from or to host memory, after the end of every run that was submitted before. `value` must have the
 * variable's dtype and number of elements. */
STRATA_API STRATA_MUST_USE strata_status strata_variable_set(strata_variable *variable, const strata_array *value,
                                                             strata_error *err);
STRATA_API STRATA_MUST_USE strata_status strata_variable_get(strata_variable *variable, strata_array *value, strata_error *err);
/* Copy a part of the variable: as many elements as `value` has, beginning at byte `offset` of the variable. */
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
