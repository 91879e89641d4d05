/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of single rows, in place. A program gathers rows of a variable and of its optimizer slots, an optimizer's op
 * updates them, and scatter_update writes them back. Here the op's loop updates the rows directly in the variables, and
 * the gathers and scatters do not run. So each row is moved once instead of seven times, and the bits are the same. */
#include "backends/host/host.h"
#include "core/op/ops.h"
#include "core/op/update.h"

enum { ROWS_OF_SCATTER = 2 };

/* The number of ranges that an optimizer's op changes; 0: its loop cannot update single rows. */
static int n_ranges_of(const strata_tensor *node) {
    if (node->op == &strata_op_adam || node->op == &strata_op_rmsprop) return node->op == &strata_op_adam ? 3 : 4;
    return node->op == &strata_op_sgd || node->op == &strata_op_adagrad ? 2 : 0;
}

static bool is_range(const strata_tensor *update, int n_ranges, const strata_tensor *tensor) {
    for (int r = 0; r < n_ranges; r++)
        if (update->inputs[r] == tensor) return true;
    return false;
}

/* Whether the node reads a gathered range or the update's result, and is not the scatter_update that writes it back. */
static bool uses_otherwise(const strata_tensor *node, const strata_tensor *update, int n_ranges) {
    if (node == update) return false;
    for (int k = 0; k < node->n_inputs; k++) {
        const bool own = node->inputs[k] == update || is_range(update, n_ranges, node->inputs[k]);
        if (own && (node->op != &strata_op_scatter_update || k < ROWS_OF_SCATTER)) return true;
    }
    return false;
}

/* The scatter_update of the piece that writes range r back to where it was gathered; NULL if there is none. */
static const strata_tensor *find_scatter(const strata_piece *piece, const strata_tensor *update, int r) {
    const strata_tensor *range = update->inputs[r];
    for (int i = 0; i < piece->n_nodes; i++) {
        const strata_tensor *node = piece->nodes[i];
        if (node->op != &strata_op_scatter_update || node->inputs[1] != range->inputs[1]) continue;
        if (node->inputs[ROWS_OF_SCATTER] == range || (!r && node->inputs[ROWS_OF_SCATTER] == update)) return node;
    }
    return NULL;
}

static int64_t place_of(const strata_piece *piece, const strata_tensor *tensor, int *out_arena) {
    *out_arena = piece->places[tensor->id].arena;
    return piece->places[tensor->id].offset;
}

/* Whether the scatter_update writes the rows that the gather reads. */
static bool same_rows(const strata_piece *piece, const strata_tensor *gather, const strata_tensor *scatter) {
    int from = 0, to = 0;
    const strata_scatter_update_attrs *attrs = scatter->attrs;
    const int64_t begin = place_of(piece, gather->inputs[0], &from), variable = place_of(piece, scatter, &to);
    return from == to && begin == variable + attrs->first * (int64_t)sizeof(float) &&
           attrs->n_rows == gather->inputs[0]->shape.dims[0];
}

bool strata_host_moves_rows(const strata_tensor *node, const strata_tensor *update, int n_ranges) {
    if (node->op == &strata_op_gather) return is_range(update, n_ranges, node);
    if (node->op != &strata_op_scatter_update) return false;
    const strata_tensor *rows = node->inputs[ROWS_OF_SCATTER];
    return rows == update || is_range(update, n_ranges, rows);
}

/* Whether a node after the update reads or writes the table, other than the update's scatters. */
static bool touches_later(const strata_piece *piece, int at, int n_ranges, const strata_tensor *table) {
    const strata_tensor *update = piece->nodes[at];
    int arena = 0, other = 0;
    const int64_t begin = place_of(piece, table, &arena), end = begin + piece->places[table->id].bytes;
    for (int i = at + 1; i < piece->n_nodes; i++) {
        const strata_tensor *node = piece->nodes[i];
        if (strata_host_moves_rows(node, update, n_ranges)) continue;
        for (int k = -1; k < node->n_inputs; k++) {
            const strata_tensor *tensor = k < 0 ? node : node->inputs[k];
            const int64_t first = place_of(piece, tensor, &other);
            if (other == arena && first < end && first + piece->places[tensor->id].bytes > begin && tensor != update)
                return true;
        }
    }
    return false;
}

bool strata_host_updates_rows(const strata_piece *piece, int at, int *out_n_ranges) {
    const strata_tensor *update = piece->nodes[at];
    const int n = n_ranges_of(update);
    *out_n_ranges = n;
    if (!n || !strata_host_is_f32(update)) return false;
    const strata_tensor *first = update->inputs[0];
    for (int r = 0; r < n; r++) {
        const strata_tensor *range = update->inputs[r], *scatter;
        if (range->op != &strata_op_gather || range->inputs[1] != first->inputs[1]) return false;
        if (range->inputs[1]->dtype != STRATA_DTYPE_I32 || range->inputs[1]->shape.rank != 1) return false;
        if (range->inputs[0]->shape.rank != 2 || range->shape.dims[0] != range->inputs[1]->shape.dims[0]) return false;
        scatter = find_scatter(piece, update, r);
        if (!scatter || !same_rows(piece, range, scatter) || touches_later(piece, at, n, range->inputs[0])) return false;
    }
    for (int i = 0; i < piece->n_nodes; i++)
        if (uses_otherwise(piece->nodes[i], update, n)) return false;
    return true;
}

int64_t strata_host_next_rows(const host_rows *rows, int64_t *at, int64_t *out_row) {
    for (; *at < rows->n; ++*at) {
        const int64_t row = rows->ids[*at];
        int64_t run = 1;
        if (row < 0 || row >= rows->n_rows) continue;
        while (*at + run < rows->n && row + run < rows->n_rows && rows->ids[*at + run] == row + run) run++;
        *out_row = row;
        return run;
    }
    return 0;
}
