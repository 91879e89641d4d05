/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the order in which Keras lists the layers of a functional model after reading it. The names of the groups of
 * weights follow this order ("layers/dense_1" is the second layer of its class). */
#include "core/interchange/keras_export.h"

/* Visits a call and, recursively, the calls that compute its inputs. after: the visited calls, each after those of its
 * inputs. */
static void reach(strata_keras_export *ex, int index, int *n_reached, int *after, int *n_after) {
    strata_keras_call *call = &ex->calls[index];
    strata_keras_layer *layer = &ex->layers[call->layer];
    if (call->reached) return;
    call->reached = true;
    if (layer->reached < 0) layer->reached = (*n_reached)++;
    for (int i = 0; i < call->n_inputs; i++) reach(ex, call->inputs[i], n_reached, after, n_after);
    after[(*n_after)++] = index;
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

/* Computes the depths. In `after` each call comes after its inputs, so the calls at the end are nearest to the outputs. */
static void measure_depths(strata_keras_export *ex, const int *after, int n_after) {
    for (int i = n_after - 1; i >= 0; i--) {
        strata_keras_call *call = &ex->calls[after[i]];
        strata_keras_layer *layer = &ex->layers[call->layer];
        call->depth = layer->depth = larger(call->depth, layer->depth);
        for (int k = 0; k < call->n_inputs; k++) {
            int *before = &ex->calls[call->inputs[k]].depth;
            *before = larger(*before, call->depth + 1);
        }
    }
}

/* Whether layer a comes before layer b. */
static bool in_front(const strata_keras_export *ex, int a, int b) {
    const strata_keras_layer *x = &ex->layers[a], *y = &ex->layers[b];
    return x->depth > y->depth || (x->depth == y->depth && x->reached < y->reached);
}

void strata_keras_put_in_order(strata_keras_export *ex) {
    int n_reached = 0, n_after = 0, *after = ex->order; /* this array has room for all calls */
    for (int i = 0; i < ex->n_layers; i++) ex->layers[i].reached = -1;
    for (int i = 0; i < strata_model_n_outputs(ex->model); i++) reach(ex, ex->outputs[i], &n_reached, after, &n_after);
    measure_depths(ex, after, n_after);
    for (int i = 0; i < ex->n_calls; i++)
        if (ex->calls[i].reached) ex->calls[i].number = ex->layers[ex->calls[i].layer].n_calls++;
    ex->n_order = 0;
    for (int i = 0; i < ex->n_layers; i++) {
        int place = ex->n_order;
        if (ex->layers[i].layer && ex->layers[i].reached < 0) continue; /* inputs that no output needs are kept */
        for (; place > 0 && in_front(ex, i, ex->order[place - 1]); place--) ex->order[place] = ex->order[place - 1];
        ex->order[place] = i;
        ex->n_order++;
    }
}
