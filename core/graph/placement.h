/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the elements of a value are when several devices compute a graph together: meshes, placements, and the rules of ops
 * that say which dimensions may be divided. core/compile/partition.c uses them to make each device's part of a graph. */
#ifndef STRATA_CORE_GRAPH_PLACEMENT_H
#define STRATA_CORE_GRAPH_PLACEMENT_H

#include "core/graph/graph.h"

/* ---- meshes ---- */

enum { STRATA_MESH_MOST_AXES = 8, STRATA_MESH_MOST_DEVICES = 4096 };

/* Devices in a grid with named axes. Device d has the coordinates of d in row-major order: the last axis changes first. */
typedef struct strata_mesh {
    int n_axes;
    struct {
        char name[16];
        int size;
    } axes[STRATA_MESH_MOST_AXES];
} strata_mesh;

/* The product of the sizes; 1 for a mesh without axes. */
int strata_mesh_n_devices(const strata_mesh *mesh);
int strata_mesh_coordinate(const strata_mesh *mesh, int device, int axis);
/* Fails with INVALID: a size below 1, too many axes or devices, a name that is empty or that two axes have. */
STRATA_MUST_USE strata_status strata_mesh_check(const strata_mesh *mesh, strata_error *err);

/* ---- placements ---- */

/* How one dimension is divided. The pieces are numbered in row-major order of the coordinates on `axes`, and piece p has
 * lengths[p] elements, which may be 0; the lengths add up to the size of the dimension. */
typedef struct strata_dim_split {
    /* 0: the dimension is not divided. */
    int n_axes;
    int axes[STRATA_MESH_MOST_AXES];
    /* [product of the sizes of `axes`]; borrowed. */
    const int64_t *lengths;
} strata_dim_split;

/* Which part of a value each device has. An axis of the mesh that the placement does not mention has copies: devices that
 * differ only in this coordinate have the same elements. {0}: every device has the whole value. Each axis is mentioned at most
 * once. */
typedef struct strata_placement {
    strata_dim_split dims[STRATA_MAX_RANK];
    /* Bit a: the value is the sum of what the devices along axis a have. */
    unsigned partial;
    /* Bit a: each device along axis a has a value of its own, such as the mean of its own examples. An exchange that is a node
     * of the graph makes one value of them. */
    unsigned own;
    /* Bit a: the value is at one coordinate of axis a: only the devices whose coordinate is coordinates[a] have it. */
    unsigned at;
    /* [axes] 0 for the axes that are not in `at`. */
    int coordinates[STRATA_MESH_MOST_AXES];
} strata_placement;

/* The placement with the value at this coordinate of the axis. */
strata_placement strata_placement_at(strata_placement placement, int axis, int coordinate);
/* Whether the device has a part of the value; false for devices at another coordinate than the value. */
bool strata_placement_has(const strata_mesh *mesh, const strata_placement *placement, int device);

int strata_dim_split_n_pieces(const strata_mesh *mesh, const strata_dim_split *split);
/* The piece that the device has; 0 if the dimension is not divided. */
int strata_dim_split_piece(const strata_mesh *mesh, const strata_dim_split *split, int device);
bool strata_dim_split_equal(const strata_mesh *mesh, const strata_dim_split *a, const strata_dim_split *b);
bool strata_placement_equal(const strata_mesh *mesh, int rank, const strata_placement *a, const strata_placement *b);
/* The shape of the device's part of a value, and the position of its first element (may be NULL). */
strata_shape strata_placement_part(const strata_mesh *mesh, const strata_placement *placement, strata_shape shape, int device,
                                   int64_t *out_begin);
/* Fails with INVALID if the placement does not fit the mesh and the shape: an axis that is not there or is used twice, a
 * dimension beyond the rank, lengths that are negative or do not add up. */
STRATA_MUST_USE strata_status strata_placement_fits(const strata_mesh *mesh, const strata_placement *placement,
                                                    strata_shape shape, strata_error *err);

/* "(128 over data: 43 43 42, 10), partial over tensor, own over stage", "(10), at coordinate 2 of data". A buffer that is too
 * small ends in "...". */
typedef struct strata_placement_words {
    char text[256];
} strata_placement_words;
strata_placement_words strata_placement_text(const strata_mesh *mesh, const strata_placement *placement, strata_shape shape);

/* ---- rules ---- */

/* The rule of a node: which dimensions of its operands and its result are divided together. Dimensions with the same factor
 * are the same index of the computation: for a product (m,k)(k,n) -> (m,n) there are the factors m, k and n. A factor that the
 * result has no dimension of is summed, so that the result is partial if the factor is divided. */
enum { STRATA_NO_FACTOR = -1, STRATA_MOST_FACTORS = 48 };

typedef struct strata_factor_dims {
    /* STRATA_NO_FACTOR: this dimension must not be divided. */
    int factor[STRATA_MAX_RANK];
    /* How many elements of the dimension belong to one of the factor: 28 for the dimension of 784 in a reshape of (28,28) to
     * (784), whose factor is the first dimension. */
    int64_t unit[STRATA_MAX_RANK];
} strata_factor_dims;

/* How partial operands make a partial result. An operand that must be complete is added up first. A complete operand of an op
 * that is linear in all operands together counts once: the first device along the axis has it, the others have zeros. */
typedef enum strata_linearity {
    STRATA_LINEAR_NOT = 0,
    /* The result is linear in all operands together, or in those of `linear_operands`: x + y. */
    STRATA_LINEAR_JOINTLY,
    /* The result is linear in each operand if the others are complete: x y. */
    STRATA_LINEAR_EACH,
    /* The result is linear in the first operand if the others are complete: x / y. */
    STRATA_LINEAR_FIRST
} strata_linearity;

struct strata_factors {
    int n;
    int64_t sizes[STRATA_MOST_FACTORS];
    /* [n_inputs] */
    strata_factor_dims *inputs;
    strata_factor_dims result;
    strata_linearity linearity;
    /* Bit i: operand i is one of those in which the result is linear together (STRATA_LINEAR_JOINTLY). All by default. */
    uint64_t linear_operands;
    /* Bit f: no part of factor f may be empty. */
    uint64_t filled;
    /* Bit f: if factor f, which the result does not have, is divided, the result is not partial but each device's own. */
    uint64_t own;
};

/* Gives a dimension of the operand (n_inputs: of the result) a factor of the same size with unit 1. The factor's number is
 * below STRATA_MOST_FACTORS. */
void strata_factors_set(strata_factors *factors, const strata_tensor *node, int operand, int dim, int factor);

/* Fills the rule from a row such as "...k,kn->...n": operands, "->", the result. Lower-case letters are factors; a dimension
 * with an upper-case letter must not be divided. "..." are the leading dimensions, which are aligned at the last of them and
 * broadcast. If the row has fewer operands than the node, the last one stands for the rest. */
void strata_factors_row(const char *row, const strata_tensor *node, strata_factors *factors);

/* The bit of a row's letter in `filled`. */
static inline uint64_t strata_factor_bit(char letter) {
    return (uint64_t)1 << (letter - 'a');
}

/* Fills the rule of the node: by the op's function `factors`, its row `dims`, or, for an element-wise op, the row "...->...".
 * An op without a rule gets one without factors. factors->inputs: [n_inputs], of the caller. own_statistics: each device
 * computes the statistics of its own examples (strata_op.own_dims). */
void strata_factors_of(const strata_tensor *node, bool own_statistics, strata_factors *factors);

/* A device's part of a node, for strata_op.part. */
struct strata_node_part {
    const strata_tensor *node;
    strata_graph *graph;
    /* The parts of the operands. */
    strata_tensor *const *inputs;
    /* The shape of the part of the result, and the position of its first element. */
    strata_shape shape;
    int64_t begin[STRATA_MAX_RANK];
    /* [n_inputs] The position of the first element of each operand's part. */
    int64_t (*input_begins)[STRATA_MAX_RANK];
};

/* A node of the same op and attributes, except that attributes which are the shape of the result become the shape of the
 * part. */
strata_tensor *strata_node_part_copy(const strata_node_part *part);
/* The same with these attributes. */
strata_tensor *strata_node_part_with(const strata_node_part *part, const void *attrs);

#endif
