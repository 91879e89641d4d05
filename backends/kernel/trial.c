/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy of a node with small operands for which the node has the same kernels. Sizes are chosen so that each kernel also
 * computes the boundaries of its operands. There are a few ways to reduce shapes (`level`); the cheapest one that does not
 * change the kernels is used. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/host.h"
#include "backends/kernel/check.h"
#include "core/op/element.h"

/* Limits of a node's operations and bytes: negligible work, the most work for the reference, and the most work for the host
 * backend's loops. */
static const double CHEAP_WORK = 3e5, MOST_WORK = 3e7, MOST_FAST_WORK = 1.5e9;

/* How shapes are reduced. Extents that are equal stay equal, so that operands still fit each other. An extent that is not a
 * multiple of 16 does not become one, so that incomplete vectors and tiles are computed too. */
typedef enum level {
    LEVEL_SMALL,  /* extents beyond 32 become 16 to 31 */
    LEVEL_IMAGES, /* few images, with a quarter of their height and width */
    LEVEL_FIRST,  /* the first axis of operands, which is the batch, becomes 3 to 5 */
    LEVEL_ONE,    /* the first axis becomes 1 */
    LEVEL_MIDDLE, /* extents beyond 80 become 64 to 79 */
    LEVEL_FULL,
    LEVELS
} level;

static int64_t shrink_to(int64_t extent, int64_t base) {
    return extent > base + 16 ? base + extent % 16 : extent;
}

static int64_t shrink(level how, const strata_tensor *real, const strata_tensor *tensor, int axis) {
    const int64_t extent = tensor->shape.dims[axis];
    const strata_shape first = real->inputs[0]->shape;
    const bool alike = tensor->shape.rank == first.rank;
    switch (how) {
        case LEVEL_SMALL:
            return shrink_to(extent, 16);
        case LEVEL_MIDDLE:
            return shrink_to(extent, 64);
        case LEVEL_IMAGES:
            if (!alike || first.rank != 4 || tensor->shape.dims[0] != first.dims[0] || axis == 3) return extent;
            return axis == 0 ? shrink_to(extent, 2) % 16 % 4 + 2 : extent >= 16 ? extent / 4 : extent;
        case LEVEL_FIRST:
            return alike && axis == 0 && extent == first.dims[0] && extent > 5 ? 3 + extent % 3 : extent;
        case LEVEL_ONE:
            return alike && axis == 0 && extent == first.dims[0] ? 1 : extent;
        default:
            return extent;
    }
}

/* Reduces the attributes that are sizes: a shape to broadcast to, the rows of a table, the height and width of an image. */
static void shrink_attributes(level how, strata_trial *t) {
    for (const strata_attr_field *field = t->real->op->attrs;
         t->attrs && field < t->real->op->attrs + STRATA_MAX_ATTR_FIELDS && field->name; field++) {
        char *at = (char *)t->attrs + field->offset;
        const int64_t base = how == LEVEL_SMALL ? 16 : 64;
        const bool by_value = how == LEVEL_SMALL || how == LEVEL_MIDDLE;
        if (field->kind == STRATA_ATTR_INT && by_value) *(int64_t *)at = shrink_to(*(int64_t *)at, base);
        if (field->kind == STRATA_ATTR_PAIR)
            for (int i = 0; i < 2; i++) {
                int64_t *value = (int64_t *)at + i;
                if (by_value) *value = shrink_to(*value, base);
                if (how == LEVEL_IMAGES && *value >= 16) *value /= 4;
            }
        if (field->kind == STRATA_ATTR_INTS && by_value)
            for (int i = 0; i < STRATA_MAX_RANK; i++) ((int64_t *)at)[i] = shrink_to(((int64_t *)at)[i], base);
        if (field->kind == STRATA_ATTR_SHAPE) {
            strata_shape *shape = (strata_shape *)at;
            const int64_t batch = t->real->inputs[0]->shape.dims[0];
            for (int i = 0; i < shape->rank && by_value; i++) shape->dims[i] = shrink_to(shape->dims[i], base);
            if (how == LEVEL_FIRST && shape->rank && shape->dims[0] == batch && batch > 5) shape->dims[0] = 3 + batch % 3;
            if (how == LEVEL_ONE && shape->rank && shape->dims[0] == batch) shape->dims[0] = 1;
        }
    }
}

/* Whether the op has attributes that are lists of positions in its operands. These are not valid for other sizes. */
static bool is_rigid(const strata_op *op) {
    for (const strata_attr_field *field = op->attrs; field < op->attrs + STRATA_MAX_ATTR_FIELDS && field->name; field++)
        if (field->kind == STRATA_ATTR_LIST || field->kind == STRATA_ATTR_POINTER) return true;
    return false;
}

/* Whether two operands are the same: a variable before and after an update has the same bytes. */
static bool is_same(const strata_trial *t, const strata_tensor *a, const strata_tensor *b) {
    const strata_place *p = &t->places[a->id], *q = &t->places[b->id];
    return a == b || (p->arena == q->arena && p->offset == q->offset && p->bytes == q->bytes && p->bytes > 0 &&
                      a->dtype == b->dtype && strata_shape_equal(a->shape, b->shape));
}

/* Whether an operand of indices has one for each row of the first operand, which has only one row now. The op may accept this
 * (gather_grad takes the row for all indices), but it is then another sum, with other rounding errors. */
static bool loses_rows(const strata_trial *t) {
    const strata_shape first = t->real->inputs[0]->shape;
    for (int i = 1; i < t->real->n_inputs; i++) {
        const strata_shape shape = t->real->inputs[i]->shape;
        if (!strata_dtype_is_float(t->real->inputs[i]->dtype) && shape.rank && first.rank && shape.dims[0] == first.dims[0] &&
            t->pointers[i]->shape.dims[0] != t->pointers[0]->shape.dims[0])
            return true;
    }
    return false;
}

/* Sets the shapes of the trial's operands. Returns false if the op does not support such shapes. */
static bool resize(strata_trial *t, level how) {
    const strata_tensor *real = t->real;
    t->node = *real;
    t->node.inputs = t->pointers;
    t->is_full = how == LEVEL_FULL;
    if (t->attrs) memcpy(t->attrs, real->attrs, real->op->attrs_bytes);
    t->node.attrs = t->attrs;
    for (int i = 0; i < real->n_inputs; i++) {
        int first = 0;
        while (!is_same(t, real->inputs[first], real->inputs[i])) first++;
        t->pointers[i] = &t->inputs[first];
        t->inputs[i] = *real->inputs[i];
        for (int axis = 0; axis < t->inputs[i].shape.rank; axis++)
            t->inputs[i].shape.dims[axis] = shrink(how, real, real->inputs[i], axis);
    }
    if (how == LEVEL_FULL) return true;
    if (is_rigid(real->op) || !real->n_inputs || loses_rows(t)) return false;
    shrink_attributes(how, t);
    return !real->op->shape(&t->node, NULL) && strata_shape_elements(t->node.shape) > 0;
}

/* Whether a launch's buffer belongs to the trial: an op may use the operand of an operand. */
static bool is_own(const strata_trial *t, const strata_tensor *buffer) {
    bool own = !buffer || buffer == &t->node;
    for (int i = 0; i < t->real->n_inputs; i++) own = own || buffer == t->pointers[i];
    return own;
}

static bool has_kernels(const strata_kernel_limits *limits, const strata_trial *t, const strata_way *way) {
    strata_lowering lowering = {0};
    bool same = !strata_way_lower(limits, way, &t->node, &lowering, NULL) && strata_check_key(&t->node, &lowering) == t->key;
    for (int l = 0; l < lowering.n; l++)
        for (int b = 0; b < lowering.launches[l].n_buffers; b++) same = same && is_own(t, lowering.launches[l].buffers[b]);
    strata_lowering_finish(&lowering);
    return same;
}

/* Finds a way for which the small node has the real node's kernels. The family must offer this way for the small node, since
 * kernels rely on the family's conditions for shapes. */
static bool find_way(const strata_kernel_limits *limits, strata_trial *t) {
    const strata_family *family = t->way.family;
    strata_candidate candidates[STRATA_CANDIDATES];
    strata_widened widened;
    const strata_tensor *node = &t->node;
    t->small_way = t->way;
    if (!family || t->is_full) return has_kernels(limits, t, &t->small_way);
    if (t->way.widen && !strata_widen(limits, node, &widened)) return false;
    if (t->way.widen) node = &widened.node;
    if (!family->fits(limits, node)) return false;
    const int n = family->candidates(limits, node, candidates);
    for (int i = 0; i < n; i++) {
        t->small_way.candidate = candidates[i];
        if (has_kernels(limits, t, &t->small_way)) return true;
    }
    return false;
}

bool strata_trial_shrink(const strata_kernel_limits *limits, strata_trial *t) {
    int best = LEVELS;
    double best_work = INFINITY;
    for (int how = 0; how < LEVELS; how++) {
        if (!resize(t, (level)how) || !find_way(limits, t)) continue;
        const double work = strata_check_work(&t->node);
        if (best < LEVELS && (work <= CHEAP_WORK ? best_work <= CHEAP_WORK && work <= best_work : work >= best_work)) continue;
        best = how;
        best_work = work;
    }
    return best < LEVELS && resize(t, (level)best) && find_way(limits, t) &&
           best_work <= (strata_host_fast_find(&t->node) ? MOST_FAST_WORK : MOST_WORK);
}

void strata_trial_finish(strata_trial *t) {
    for (int i = 0; t->data && t->pointers && i <= t->real->n_inputs; i++)
        if (i == t->real->n_inputs || t->pointers[i] == &t->inputs[i]) free(t->data[i]);
    free(t->data);
    free(t->inputs);
    free(t->pointers);
    free(t->attrs);
}

strata_status strata_trial_init(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_piece *piece,
                                const strata_tensor *node, strata_trial *t, strata_error *err) {
    strata_lowering lowering = {0};
    *t = (strata_trial){.real = node, .places = piece->places};
    STRATA_TRY(strata_way_choose(limits, tuner, node, &t->way, err));
    strata_status status = strata_way_lower(limits, &t->way, node, &lowering, err);
    t->key = strata_check_key(node, &lowering);
    strata_lowering_finish(&lowering);
    const size_t n = (size_t)node->n_inputs + 1;
    t->inputs = calloc(n, sizeof *t->inputs);
    t->pointers = calloc(n, sizeof(*t->pointers));
    t->data = calloc(n, sizeof(*t->data));
    t->attrs = node->op->attrs_bytes && node->attrs ? malloc(node->op->attrs_bytes) : NULL;
    if (!status && (!t->inputs || !t->pointers || !t->data || (node->attrs && node->op->attrs_bytes && !t->attrs)))
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for a node of %d operands", node->n_inputs);
    return status;
}

/* ---- the values of operands ---- */
static int64_t smallest_extent(const strata_tensor *tensor) {
    int64_t least = 7;
    for (int axis = 0; axis < tensor->shape.rank; axis++)
        if (tensor->shape.dims[axis] < least) least = tensor->shape.dims[axis];
    return least > 0 ? least : 1;
}

/* Floats in [-1, 1), or in [0.25, 1) for ops that take roots and logarithms. Integers are small enough to be indices or labels
 * for the other operands; if rows are set by index, all indices differ. */
static void fill(const strata_trial *t, int i, bool positive, uint32_t seed) {
    const strata_tensor *tensor = t->pointers[i];
    const int64_t n = strata_shape_elements(tensor->shape), most = smallest_extent(t->pointers[0]);
    const bool updates = t->node.op->flags & STRATA_OP_UPDATE;
    uint32_t random = seed + 12345u + 7919u * (uint32_t)i;
    for (int64_t e = 0; e < n; e++) {
        random = random * 1664525u + 1013904223u;
        const double uniform = (double)(random >> 8) / (1 << 23) - 1;
        if (strata_dtype_is_float(tensor->dtype))
            strata_element_set(tensor->dtype, t->data[i], e, positive ? 0.25 + 0.75 * fabs(uniform) : uniform);
        else if (tensor->dtype == STRATA_DTYPE_U8 || tensor->dtype == STRATA_DTYPE_BOOL)
            strata_integer_set(tensor->dtype, t->data[i], e, random >> 13);
        else
            strata_integer_set(tensor->dtype, t->data[i], e, updates ? e : (int64_t)(random >> 13) % most);
    }
}

strata_status strata_trial_fill(strata_trial *t, bool positive, uint32_t seed, strata_error *err) {
    const int n = t->real->n_inputs;
    for (int i = 0; i <= n; i++) {
        const strata_tensor *tensor = i < n ? t->pointers[i] : &t->node;
        if (i < n && tensor != &t->inputs[i]) {
            int first = 0;
            while (&t->inputs[first] != tensor) first++;
            t->data[i] = t->data[first];
            continue;
        }
        if (!t->data[i]) t->data[i] = calloc(1, (size_t)strata_check_bytes(tensor) + 1);
        if (!t->data[i])
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %lld bytes",
                               (long long)strata_check_bytes(tensor));
        if (i < n) fill(t, i, positive, seed);
    }
    return STRATA_OK;
}

void strata_check_name_kernels(const strata_kernel_limits *limits, const strata_way *way, const strata_tensor *node,
                               char out[128]) {
    strata_lowering lowering = {0};
    snprintf(out, 128, "?");
    if (!strata_way_lower(limits, way, node, &lowering, NULL) && lowering.n) {
        const strata_launch *main = &lowering.launches[way->widen && lowering.n > 2 ? lowering.n - 2 : 0];
        snprintf(out, 128, "%s%s%s", main->kernel, main->variant ? " " : "", main->variant ? main->variant : "");
    }
    strata_lowering_finish(&lowering);
}
