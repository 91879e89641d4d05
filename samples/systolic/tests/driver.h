/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds pieces by hand and runs them through a plugin's tables of functions, without Strata. Used by the tests and by
 * squares.c. */
#ifndef SYSTOLIC_TESTS_DRIVER_H
#define SYSTOLIC_TESTS_DRIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <strata/plugin.h>

enum { MOST_VALUES = 64, MOST_NODES = 64, MOST_ATTRIBUTES = 12 };

/* An opened device of a plugin. */
typedef struct machine {
    const strata_plugin *plugin;
    strata_plugin_device *device;
    const strata_plugin_device_calls *calls;
} machine;

/* Loads and starts a plugin. If that fails, it ends the program, with exit code 77 if the plugin is unavailable. */
const strata_plugin *load_plugin(const char *file, const char *options, int32_t *out_n_devices);
machine open_machine(const strata_plugin *plugin, int index);

/* A piece that is being built. Each value has one array on the host. Inputs are in the INPUT arena, outputs in the OUTPUT
 * arena. */
typedef struct sketch {
    strata_plugin_piece piece;
    strata_plugin_value values[MOST_VALUES];
    const strata_plugin_value *value_list[MOST_VALUES];
    int64_t dims[MOST_VALUES][8];
    strata_plugin_node nodes[MOST_NODES];
    const strata_plugin_node *node_list[MOST_NODES];
    int32_t inputs[MOST_NODES][8], writes[MOST_NODES][4];
    strata_plugin_attribute attributes[MOST_NODES][MOST_ATTRIBUTES];
    const strata_plugin_attribute *attribute_list[MOST_NODES][MOST_ATTRIBUTES];
    int64_t ints[MOST_NODES][MOST_ATTRIBUTES][8];
    double floats[MOST_NODES][MOST_ATTRIBUTES];
    strata_plugin_node parts[MOST_NODES];
    int n_parts;
} sketch;

void sketch_init(sketch *s, int n_slots);
/* Adds a value and returns its index. `dims` ends with -1. */
int sketch_value(sketch *s, strata_plugin_role role, strata_plugin_dtype dtype, const int64_t *dims);
#define DIMS(...) ((const int64_t[]){__VA_ARGS__, -1})
#define SCALAR    ((const int64_t[]){-1})
/* Adds a node and returns its index. `inputs` ends with -1. */
int sketch_node(sketch *s, const char *op, const int *inputs, int output);
#define IDS(...) ((const int[]){__VA_ARGS__, -1})
void sketch_ints(sketch *s, int node, const char *name, int n, const int64_t *ints);
void sketch_float(sketch *s, int node, const char *name, double x);
void sketch_text(sketch *s, int node, const char *name, const char *text);
/* Sets the first and the last node of each value. Called when all nodes were added. */
void sketch_finish(sketch *s);

/* Compiles the piece. Returns NULL, with *message, if that fails. */
strata_plugin_program *sketch_compile(machine m, sketch *s, strata_plugin_error *message);
/* The address of a value in the slot's host memory. */
void *sketch_memory(machine m, const sketch *s, strata_plugin_program *program, int slot, int value);

/* Returns the next of a fixed sequence of random numbers. */
float next_random(void);

#endif
