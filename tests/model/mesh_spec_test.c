/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a mesh, and the messages about texts that are none. */
#include "core/model/mesh_spec.h"

#include "tests/model/model_case.h"

Test(mesh_spec, axes_keep_the_order_of_the_text_and_absent_ones_have_the_size_1) {
    strata_error err = {0};
    strata_mesh mesh;
    OK(strata_mesh_read("tensor=3,data=2", 0, &mesh, &err));
    cr_assert_eq(mesh.n_axes, 2);
    cr_assert_eq(strata_mesh_n_devices(&mesh), 6);
    cr_assert_eq(strata_mesh_find(&mesh, "tensor"), 0);
    cr_assert_eq(strata_mesh_find(&mesh, "data"), 1);
    cr_assert_eq(strata_mesh_find(&mesh, "stage"), -1);
    cr_assert_eq(strata_mesh_size(&mesh, "tensor"), 3);
    cr_assert_eq(strata_mesh_size(&mesh, "stage"), 1);
    cr_assert_str_eq(strata_mesh_text(&mesh).text, "tensor=3,data=2");
    cr_assert_str_eq(strata_mesh_text(&(strata_mesh){0}).text, "of one device");
    OK(strata_mesh_read("data=64,stage=8,tensor=8", 4096, &mesh, &err));
    OK(strata_mesh_read("data=1", 1, &mesh, &err));
}

Test(mesh_spec, texts_that_are_no_mesh_are_refused) {
    strata_error err = {0};
    strata_mesh mesh;
    const char *const texts[] = {"",       "data",    "data=",   "=2",     "data=2,", ",data=2",
                                 "data=x", "data=2x", "data=-1", "data:2", NULL};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        FAILS(strata_mesh_read(texts[i], 0, &mesh, &err), STRATA_INVALID,
              "it must be sizes of the axes data, stage and tensor, such as data=2,tensor=4");
    FAILS(strata_mesh_read("batch=2", 0, &mesh, &err), STRATA_INVALID,
          "the mesh has the axis batch; its axes may be data (of the examples), stage (of a pipeline) and tensor");
    FAILS(strata_mesh_read("data=2,stage=2,tensor=2,data=2", 0, &mesh, &err), STRATA_INVALID, "two axes named data");
    FAILS(strata_mesh_read("stage=0", 0, &mesh, &err), STRATA_INVALID, "axis stage of the mesh has the size 0");
    FAILS(strata_mesh_read("data=64,tensor=65", 0, &mesh, &err), STRATA_INVALID, "more than 4096 devices");
    FAILS(strata_mesh_read("data=99999999999999999999", 0, &mesh, &err), STRATA_INVALID, "more than 4096 devices");
}

Test(mesh_spec, a_wrong_product_is_refused_with_the_products_that_would_do) {
    strata_error err = {0};
    strata_mesh mesh;
    FAILS(strata_mesh_read("data=2,tensor=2", 2, &mesh, &err), STRATA_INVALID,
          "mesh data=2,tensor=2 is for 4 devices, but there are 2; meshes of 2 devices: data=2 or stage=2 or tensor=2");
    cr_assert_str_eq(strrchr(err.message, 'r'), "r=2", "%s", err.message);
    FAILS(strata_mesh_read("data=2", 6, &mesh, &err), STRATA_INVALID,
          "meshes of 6 devices: data=6 or stage=6 or tensor=6 or data=3,stage=2 or data=3,tensor=2 or data=2,stage=3 or "
          "data=2,tensor=3 or stage=3,tensor=2 or stage=2,tensor=3");
    FAILS(strata_mesh_read("data=2", 8, &mesh, &err), STRATA_INVALID, "or data=2,stage=2,tensor=2");
    FAILS(strata_mesh_read("data=2", 12, &mesh, &err), STRATA_INVALID, "or data=2,tensor=6 or stage=6,tensor=2 or ...");
    FAILS(strata_mesh_read("data=2", 4096, &mesh, &err), STRATA_INVALID, " or ...");
    FAILS(strata_mesh_read("stage=2", 1, &mesh, &err), STRATA_INVALID,
          "mesh stage=2 is for 2 devices, but there is one; give 2 devices, or no mesh");
}
