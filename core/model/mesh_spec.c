/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a mesh from its text (mesh_spec.h). */
#include "core/model/mesh_spec.h"

#include <stdio.h>

#include "core/base/text.h"

enum { N_AXES = 3, MOST_PRODUCTS = 12 };
static const char *const axis_names[N_AXES] = {"data", "stage", "tensor"};

int strata_mesh_find(const strata_mesh *mesh, const char *axis) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (!strcmp(mesh->axes[a].name, axis)) return a;
    return -1;
}

int strata_mesh_size(const strata_mesh *mesh, const char *axis) {
    const int a = strata_mesh_find(mesh, axis);
    return a < 0 ? 1 : mesh->axes[a].size;
}

strata_mesh_words strata_mesh_text(const strata_mesh *mesh) {
    strata_mesh_words words = {"of one device"};
    size_t used = 0;
    for (int a = 0; a < mesh->n_axes && used < sizeof words.text; a++)
        used += (size_t)snprintf(words.text + used, sizeof words.text - used, "%s%s=%d", a ? "," : "", mesh->axes[a].name,
                                 mesh->axes[a].size);
    return words;
}

/* ---- which meshes there are ---- */

/* Adds "data=2,stage=3" for sizes that are not 1, after those that the text has. */
static void add_product(strata_text *text, const int sizes[N_AXES], int *n) {
    const char *before = *n ? " or " : "";
    if (++*n > MOST_PRODUCTS + 1) return;
    if (*n > MOST_PRODUCTS) {
        strata_text_add(text, " or ...");
        return;
    }
    for (int a = 0; a < N_AXES; a++) {
        if (sizes[a] == 1) continue;
        strata_text_add(text, "%s%s=%d", before, axis_names[a], sizes[a]);
        before = ",";
    }
}

/* Adds the meshes of this many devices: those of one axis, then those of two, then those of three. */
static void add_products(strata_text *text, int n_devices) {
    int n = 0;
    for (int n_larger = 1; n_larger <= N_AXES; n_larger++)
        for (int data = n_devices; data >= 1; data--)
            for (int stage = n_devices / data; stage >= 1 && n_devices % data == 0; stage--) {
                const int sizes[N_AXES] = {data, stage, n_devices / data / stage};
                if (n_devices / data % stage || (data > 1) + (stage > 1) + (sizes[2] > 1) != n_larger) continue;
                add_product(text, sizes, &n);
            }
}

static strata_status wrong_product(const strata_mesh *mesh, int n_devices, strata_error *err) {
    const strata_mesh_words words = strata_mesh_text(mesh);
    const int n = strata_mesh_n_devices(mesh);
    if (n_devices == 1)
        return strata_fail(err, STRATA_INVALID, "mesh %s is for %d devices, but there is one; give %d devices, or no mesh",
                           words.text, n, n);
    STRATA_FINISHED(strata_text) products = {0};
    add_products(&products, n_devices);
    return strata_fail(err, STRATA_INVALID, "mesh %s is for %d devices, but there are %d; meshes of %d devices: %s", words.text,
                       n, n_devices, n_devices, products.bytes ? products.bytes : "");
}

/* ---- reading ---- */

/* Reads "name=size" up to a comma or the end, which is returned; NULL if it is not written so. */
static const char *read_axis(const char *text, strata_mesh *mesh) {
    const size_t n = strcspn(text, "=,");
    long long size = 0;
    const char *end = text + n + 1;
    if (text[n] != '=' || n == 0 || n >= sizeof mesh->axes[0].name) return NULL;
    for (; *end >= '0' && *end <= '9'; end++)
        if (size <= STRATA_MESH_MOST_DEVICES) size = 10 * size + (*end - '0');
    if (end == text + n + 1 || (*end && *end != ',')) return NULL;
    memcpy(mesh->axes[mesh->n_axes].name, text, n);
    mesh->axes[mesh->n_axes++].size = (int)size;
    return end;
}

static bool is_axis(const char *name) {
    for (int a = 0; a < N_AXES; a++)
        if (!strcmp(name, axis_names[a])) return true;
    return false;
}

strata_status strata_mesh_read(const char *text, int n_devices, strata_mesh *out_mesh, strata_error *err) {
    strata_mesh *mesh = out_mesh;
    const char *at = text ? text : "";
    *mesh = (strata_mesh){.n_axes = 0};
    for (bool more = true; more; at++) {
        at = read_axis(at, mesh);
        if (!at)
            return strata_fail(err, STRATA_INVALID,
                               "mesh is \"%s\"; it must be sizes of the axes data, stage and tensor, such as data=2,tensor=4",
                               text ? text : "");
        if (!is_axis(mesh->axes[mesh->n_axes - 1].name))
            return strata_fail(
                err, STRATA_INVALID,
                "the mesh has the axis %s; its axes may be data (of the examples), stage (of a pipeline) and tensor "
                "(of the parameters)",
                mesh->axes[mesh->n_axes - 1].name);
        STRATA_TRY(strata_mesh_check(mesh, err));
        more = *at == ',';
    }
    return n_devices && strata_mesh_n_devices(mesh) != n_devices ? wrong_product(mesh, n_devices, err) : STRATA_OK;
}

strata_status strata_mesh_read_all(const char *text, int n_devices, strata_mesh *out_mesh, strata_error *err) {
    strata_mesh read;
    STRATA_TRY(strata_mesh_read(text, n_devices, &read, err));
    *out_mesh = (strata_mesh){.n_axes = N_AXES};
    for (int a = 0; a < N_AXES; a++) {
        snprintf(out_mesh->axes[a].name, sizeof out_mesh->axes[a].name, "%s", axis_names[a]);
        out_mesh->axes[a].size = strata_mesh_size(&read, axis_names[a]);
    }
    return STRATA_OK;
}
