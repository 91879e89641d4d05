/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's mesh as a text, "data=2,tensor=4". Its axes are
 *   data    each device has a part of the examples
 *   stage   each device has some of the layers: a pipeline
 *   tensor  each device has parts of the parameters
 * An axis that the text does not name has the size 1. The order in the text is that of the mesh, so the devices of the last
 * axis are neighbours in the list of devices. */
#ifndef STRATA_CORE_MODEL_MESH_SPEC_H
#define STRATA_CORE_MODEL_MESH_SPEC_H

#include "core/graph/placement.h"

/* n_devices: how many devices there are; 0: as many as the mesh has.
 * Fails: INVALID, with what may be written, for another text than names and sizes, another axis, an axis that is named twice, a
 * size below 1, and a product of the sizes other than n_devices or above STRATA_MESH_MOST_DEVICES. */
STRATA_MUST_USE strata_status strata_mesh_read(const char *text, int n_devices, strata_mesh *out_mesh, strata_error *err);

/* The same with all three axes, in the order data, stage, tensor. */
STRATA_MUST_USE strata_status strata_mesh_read_all(const char *text, int n_devices, strata_mesh *out_mesh, strata_error *err);

/* The index of the axis with this name; -1: the mesh has none. strata_mesh_size: its size, or 1. */
int strata_mesh_find(const strata_mesh *mesh, const char *axis);
int strata_mesh_size(const strata_mesh *mesh, const char *axis);

/* The mesh as strata_mesh_read reads it; "of one device" for a mesh without axes. */
typedef struct strata_mesh_words {
    char text[STRATA_MESH_MOST_AXES * 24];
} strata_mesh_words;
strata_mesh_words strata_mesh_text(const strata_mesh *mesh);

#endif
