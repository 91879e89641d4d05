/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates the values that a program reads and does not compute, for a program that has not run yet. */
#include <string.h>

#include "core/op/element.h"
#include "core/op/ops.h"
#include "core/run/compare.h"

/* The tensor whose values these are: views and casts change none. */
static const strata_tensor *source_of(const strata_tensor *tensor) {
    while ((tensor->op->flags & STRATA_OP_VIEW) || tensor->op == &strata_op_cast) tensor = tensor->inputs[0];
    return tensor;
}

/* The value of the node's attribute with this name; 0: it has none. */
static int64_t attribute(const strata_tensor *node, const char *name) {
    for (const strata_attr_field *f = node->op->attrs; f < node->op->attrs + STRATA_MAX_ATTR_FIELDS && f->name; f++)
        if (f->kind == STRATA_ATTR_INT && !strcmp(f->name, name))
            return *(const int64_t *)((const char *)node->attrs + f->offset);
    return 0;
}

/* How an op uses integers: they are less than an attribute, or than an extent of operand 0. */
static const struct {
    const char *op;
    /* NULL: the extent of operand 0 along the axis that the attribute "axis" names, or, if `last`, along its last axis. */
    const char *attribute;
    bool last;
} bounds[] = {{"gather", NULL, false},
              {"gather_mean", NULL, false},
              {"gather_grad", "size", false},
              {"adam_gather", "rows", false},
              {"one_hot", "depth", false},
              {"first_index", "n", false},
              {"sparse_softmax_cross_entropy", NULL, true},
              {"sparse_softmax_cross_entropy_grad", NULL, true}};

/* The number that the integers which the node reads must not reach; 0: any integers are valid. */
static int64_t bound_of(const strata_tensor *node) {
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        const strata_shape shape = node->inputs[0]->shape;
        if (strcmp(bounds[b].op, node->op->name) != 0) continue;
        if (bounds[b].attribute) return attribute(node, bounds[b].attribute);
        int64_t axis = bounds[b].last ? shape.rank - 1 : attribute(node, "axis");
        if (axis < 0) axis += shape.rank;
        return axis < shape.rank ? shape.dims[axis] : 0;
    }
    return 0;
}

/* What all nodes of the piece that read the integers allow. *out_different: rows are set by these indices, so none may be there
 * twice. */
static int64_t smallest_bound(const strata_piece *piece, const strata_tensor *tensor, bool *out_different) {
    int64_t least = INT64_MAX;
    *out_different = false;
    for (int k = 0; k < piece->n_nodes; k++) {
        const strata_tensor *node = piece->nodes[k];
        bool reads = false;
        for (int i = 0; i < node->n_inputs; i++) reads = reads || source_of(node->inputs[i]) == tensor;
        const int64_t bound = reads ? bound_of(node) : 0;
        if (bound > 0 && bound < least) least = bound;
        *out_different = *out_different || (reads && node->op == &strata_op_scatter_update);
    }
    const int64_t unknown = tensor->dtype == STRATA_DTYPE_U8 ? 256 : 2;
    return least < INT64_MAX ? least : unknown;
}

void strata_check_generate(const strata_piece *piece, const strata_tensor *tensor, uint32_t random, void *data) {
    const bool real = strata_dtype_is_float(tensor->dtype);
    bool different = false;
    const int64_t bound = real ? 1 : smallest_bound(piece, tensor, &different);
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++) {
        random = random * 1664525u + 1013904223u;
        if (real)
            strata_element_set(tensor->dtype, data, e, 0.25 + 0.75 * (double)(random >> 8) / (1 << 24));
        else
            strata_integer_set(tensor->dtype, data, e, different ? e : (int64_t)(random >> 8) % bound);
    }
}
