/* SPDX-License-Identifier: Apache-2.0
 *
 * flatten: (N, ...) -> (N, product of the rest), elements in their order. */
#include "layer_case.h"

Test(flatten, joins_all_but_the_batch) {
    const double values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const struct {
        strata_shape element, x, y;
    } cases[] = {{STRATA_SHAPE(2, 3), STRATA_SHAPE(2, 2, 3), STRATA_SHAPE(2, 6)},
                 {STRATA_SHAPE(2, 3, 1), STRATA_SHAPE(2, 2, 3, 1), STRATA_SHAPE(2, 6)},
                 {STRATA_SHAPE(4), STRATA_SHAPE(3, 4), STRATA_SHAPE(3, 4)},
                 {STRATA_SHAPE(), STRATA_SHAPE(12), STRATA_SHAPE(12, 1)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strata_array x = strata_test_array(STRATA_DTYPE_F32, cases[i].x, values);
        strata_model *model = layer_model(cases[i].element);
        strata_model_add_flatten(model, (strata_flatten_options){0});
        layer_gives(model, &x, NULL, cases[i].y, values);
        strata_model_destroy(model);
        strata_array_finish(&x);
    }
}
