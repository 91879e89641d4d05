/* SPDX-License-Identifier: Apache-2.0
 *
 * Random graphs over many ops, for tests that compile or divide them. Many nodes are twins of an earlier node: they differ
 * from it in one attribute. Variables are read, updated and read again, and values are used before and after that. Some graphs
 * have exchanges between replicas.
 *
 * Small whole numbers are exact in f32, so ops with jumps (maxima, comparisons, relu) only take such values. Other values are
 * to be compared with a tolerance. */
#ifndef STRATA_TESTS_COMPILE_RANDOM_GRAPH_H
#define STRATA_TESTS_COMPILE_RANDOM_GRAPH_H

#include "core/graph/graph.h"
#include "tests/support/eval.h"

enum { INPUTS = 3, VARIABLES = 2, LEAVES = INPUTS + VARIABLES, MOST_NODES = 64, MOST_OUTPUTS = 24, PARAMETERS = 10 };
/* Further variables of a wide graph. */
enum { MORE_VARIABLES = 6, WIDE_LEAVES = LEAVES + MORE_VARIABLES };

/* A value of the graph. `most` bounds the magnitude of its elements; 0: they are not whole numbers. */
typedef struct value {
    strata_tensor *tensor;
    double most;
    bool used;
} value;

/* How a node is made: the row of `makers`, its operands, and the numbers from which its attributes are computed. */
typedef struct recipe {
    int maker;
    int operands[3];
    uint64_t parameters[PARAMETERS];
} recipe;

typedef struct scene {
    strata_graph *graph;
    uint64_t state;
    value values[MOST_NODES];
    int n;
    recipe recipes[MOST_NODES];
    strata_variable *variables[VARIABLES];
    strata_variable *more[MORE_VARIABLES];
    strata_tensor *updates[MOST_NODES];
    int n_updates;
    /* The results of updates have no gradient, so graphs with gradients read the variable again instead. */
    bool differentiable;
    /* The graph has exchanges between replicas, which divide the program into segments. There is one replica. */
    bool divided;
    /* The graph also has values of other dtypes, optimizers, rows of tables, sequences and `more` variables. It has no
     * gradients. */
    bool wide;
    /* The largest number of nodes; 0: MOST_NODES. */
    int most_nodes;
    /* The graph repeats the recipes and the outputs of this scene instead of drawing them. A node that is `off` is left out:
     * its first operand takes its place, and so it does for a node that cannot be made any more. NULL: it is drawn. */
    const struct scene *of;
    bool off[MOST_NODES], is_output[MOST_NODES];
} scene;

/* Makes the graph of this seed, whose variables are on the device, and random values of the leaves. feeds[i] is leaf i with
 * arrays[i]; both have WIDE_LEAVES elements if the graph is wide, else LEAVES. The fields of the scene that say which graph it
 * is are set before. The caller finishes the arrays and destroys graph and variables. */
void random_graph_begin(scene *s, strata_device *device, uint64_t seed, strata_array *arrays, strata_test_feed *feeds);
/* Values that no node reads, and some others. Returns their number, at most MOST_OUTPUTS. */
int random_graph_outputs(scene *s, strata_tensor **outputs);
/* The gradients of a sum of all outputs, with weights that are different for each element, with respect to the leaves. Returns
 * their number, LEAVES. */
int random_graph_gradients(scene *s, strata_tensor *const *outputs, int n, strata_tensor **gradients);

#endif
