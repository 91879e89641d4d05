/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains small models under model_parallel. Losses, metrics, predictions and final parameters must be those of one device on
 * the same global batches; with micro-batches they must have the bits of one device that accumulates as many batches. */
#include <stdio.h>

#include "tests/strategies/mesh_case.h"

static bool there_is(const char *device) {
    strata_device *opened = NULL;
    if (strata_device_open(device, NULL, &opened, NULL)) return false;
    strata_device_close(opened);
    return true;
}

/* tolerance 0: the same bits. */
static void expect_like(const mesh_outcome *got, const mesh_outcome *wanted, double tolerance, const char *what) {
    cr_assert_eq(got->n_losses, wanted->n_losses, "%s: %d losses, not %d", what, got->n_losses, wanted->n_losses);
    for (int i = 0; i < wanted->n_losses; i++)
        cr_assert(mesh_near((double)got->losses[i], (double)wanted->losses[i], tolerance), "%s: loss %d is %.9g, not %.9g",
                  what, i, (double)got->losses[i], (double)wanted->losses[i]);
    cr_assert_eq(got->n_skipped, wanted->n_skipped, "%s: %lld steps skipped, not %lld", what, (long long)got->n_skipped,
                 (long long)wanted->n_skipped);
    mesh_expect_numbers(&got->parameters, &wanted->parameters, 2 * tolerance, what, "parameters");
    mesh_expect_metrics(&got->trained, &wanted->trained, tolerance, what);
    mesh_expect_metrics(&got->evaluated, &wanted->evaluated, 2 * tolerance, what);
    mesh_expect_numbers(&got->predictions, &wanted->predictions, 10 * tolerance, what, "predictions");
    cr_assert(got->equal, "%s: copies of the parameters differ", what);
}

/* The mesh trains as one device. */
static void expect_like_one(const mesh_job *j, const mesh_setup *s, double tolerance) {
    char what[96];
    snprintf(what, sizeof what, "%s, %d micro-batches", s->mesh, s->microbatches);
    mesh_outcome one = mesh_run(j, &(mesh_setup){0}), got = mesh_run(j, s);
    expect_like(&got, &one, tolerance, what);
    mesh_outcome_free(&one);
    mesh_outcome_free(&got);
}

/* With micro-batches, the mesh has the bits of one device that accumulates. */
static void expect_bits_of_accumulation(const mesh_job *j, const char *mesh, int microbatches, const char *schedule) {
    char what[96];
    mesh_job alone = *j;
    const int64_t own = j->optimizer.gradient_accumulation_steps;
    alone.batch /= microbatches;
    alone.optimizer.gradient_accumulation_steps = microbatches * (own ? own : 1);
    snprintf(what, sizeof what, "%s, %d micro-batches, %s", mesh, microbatches, schedule ? schedule : "no schedule");
    mesh_outcome one = mesh_run(&alone, &(mesh_setup){0}),
                 got = mesh_run(j, &(mesh_setup){.mesh = mesh, .microbatches = microbatches, .schedule = schedule});
    expect_like(&got, &one, 0, what);
    mesh_outcome_free(&one);
    mesh_outcome_free(&got);
}

/* ---- one device's results on every mesh ---- */

static void expect_every_mesh_like_one(const mesh_job *j) {
    for (int i = 0; i < N_MESHES; i++) expect_like_one(j, &(mesh_setup){.mesh = mesh_names[i]}, 1e-5);
}

Test(mesh, dense_layers_train_as_on_one_device) {
    expect_every_mesh_like_one(&mesh_dense);
}

/* Without batch norm, whose statistics are those of each device's examples. */
Test(mesh, slots_gradients_and_parameters_that_data_divides_train_as_on_one_device) {
    static const char *const meshes[] = {"data=2", "data=3", "data=2,tensor=2", "data=2,stage=2"};
    for (int zero = 1; zero <= 3; zero++)
        for (int i = 0; i < 4; i++)
            for (int m = 1; m <= 2; m++)
                expect_like_one(&mesh_wide, &(mesh_setup){.mesh = meshes[i], .microbatches = m, .zero = zero}, 1e-5);
}

Test(mesh, norms_and_optimizers_see_what_data_divides) {
    static const strata_optimizer optimizers[] = {{.name = "sgd", .learning_rate = 0.05},
                                                  {.name = "sgd", .learning_rate = 0.05, .momentum = 0.9},
                                                  {.name = "adamw", .learning_rate = 0.003, .clip_global_norm = 0.1},
                                                  {.name = "adam", .learning_rate = 0.003, .clip_norm = 0.05},
                                                  {.name = "lamb", .learning_rate = 0.01}};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (int zero = 1; zero <= 3; zero++) {
            mesh_job j = mesh_wide;
            j.optimizer = optimizers[i];
            expect_like_one(&j, &(mesh_setup){.mesh = "data=2,tensor=2", .microbatches = 2, .zero = zero}, 1e-5);
        }
}

Test(mesh, convolutions_train_as_on_one_device) {
    mesh_job plain = mesh_pictures;
    plain.model =
        "{\"input\": [6, 6, 3], \"layers\": [{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3},"
        "{\"layer\": \"batch_norm\", \"synchronized\": true, \"activation\": \"relu\"}, {\"layer\": \"max_pool2d\", \"size\": "
        "2},"
        "{\"layer\": \"dropout\", \"rate\": 0.25}, {\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 2},"
        "{\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    plain.optimizer = strata_sgd_optimizer(0.1, 0.9, false);
    expect_every_mesh_like_one(&plain);
}

Test(mesh, batch_norm_has_the_statistics_of_one_device) {
    mesh_job j = mesh_pictures;
    j.optimizer = strata_sgd_optimizer(0.1, 0.9, false);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=2"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=4"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "tensor=2"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=2,tensor=2"}, 1e-5);
}

Test(mesh, lstm_and_gru_train_as_on_one_device) {
    expect_every_mesh_like_one(&mesh_recurrent);
}

Test(mesh, attention_with_masks_trains_as_on_one_device) {
    expect_every_mesh_like_one(&mesh_attention);
}

Test(mesh, two_inputs_two_outputs_and_a_tied_layer_train_as_on_one_device) {
    expect_every_mesh_like_one(&mesh_functional);
}

/* ---- micro-batches ---- */

Test(mesh, micro_batches_have_the_bits_of_accumulated_batches) {
    static const char *const schedules[] = {"gpipe", "1f1b", "zero_bubble"};
    for (int i = 0; i < 3; i++) {
        expect_bits_of_accumulation(&mesh_dense, "stage=2", 4, schedules[i]);
        expect_bits_of_accumulation(&mesh_dense, "stage=4", 8, schedules[i]);
        expect_bits_of_accumulation(&mesh_functional, "stage=2", 4, schedules[i]);
    }
}

Test(mesh, micro_batches_of_every_kind_of_layer_have_the_bits_of_accumulated_batches) {
    expect_bits_of_accumulation(&mesh_pictures, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&mesh_pictures, "stage=3", 2, NULL);
    expect_bits_of_accumulation(&mesh_recurrent, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&mesh_attention, "stage=3", 4, NULL);
    expect_bits_of_accumulation(&mesh_functional, "stage=4", 2, NULL);
    /* The penalties of a stage are added before those of other stages. */
    expect_like_one(&mesh_penalized, &(mesh_setup){.mesh = "stage=3", .microbatches = 4, .schedule = "zero_bubble"}, 1e-6);
}

Test(mesh, batches_can_be_accumulated_besides_micro_batches) {
    mesh_job j = mesh_dense;
    j.optimizer = strata_adam_optimizer(0.003);
    j.optimizer.gradient_accumulation_steps = 2;
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&j, "stage=4", 2, "zero_bubble");
}

/* 43 = 5 x 8 + 3: the last batch has fewer examples than micro-batches. 45 = 5 x 8 + 5: their sizes differ. */
Test(mesh, micro_batches_need_not_divide_a_batch) {
    static const int64_t sizes[] = {43, 45, 41};
    for (int i = 0; i < 3; i++) {
        mesh_job j = mesh_dense;
        j.n = sizes[i];
        expect_like_one(&j, &(mesh_setup){.mesh = "stage=2", .microbatches = 4}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2", .microbatches = 3, .schedule = "gpipe"}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "tensor=2", .microbatches = 3}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "data=4", .microbatches = 1}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3, .schedule = "zero_bubble"},
                        1e-5);
    }
}

Test(mesh, five_rows_over_four_devices_train_as_on_one_device) {
    mesh_job j = mesh_dense;
    j.n = j.batch = 5;
    j.epochs = 10;
    expect_like_one(&j, &(mesh_setup){.mesh = "data=4"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "data=4,stage=2"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "data=4,stage=2", .microbatches = 2}, 1e-5);
    j.n = j.batch = 2;
    expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2", .microbatches = 2}, 1e-5);
}

/* ---- optimizers, clipping, weights, precision ---- */

Test(mesh, every_optimizer_trains_as_on_one_device) {
    const strata_optimizer optimizers[] = {strata_sgd_optimizer(0.1, 0.9, true),
                                           strata_adam_optimizer(0.003),
                                           {.name = "adamw", .learning_rate = 0.003},
                                           {.name = "lars", .learning_rate = 0.5},
                                           {.name = "lamb", .learning_rate = 0.01, .weight_decay = 0.01},
                                           {.name = "rmsprop", .learning_rate = 0.003},
                                           {.name = "adagrad", .learning_rate = 0.03}};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        mesh_job j = mesh_dense;
        j.optimizer = optimizers[i];
        expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2"}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "tensor=3"}, 1e-5);
        /* Norms of whole parameters are added up in another order than in the range of all parameters. */
        const bool has_norms = j.optimizer.name[0] == 'l';
        if (has_norms) expect_like_one(&j, &(mesh_setup){.mesh = "stage=2", .microbatches = 4}, 1e-5);
        if (!has_norms) expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
    }
}

Test(mesh, clipping_uses_the_norms_of_whole_gradients) {
    for (int i = 0; i < 3; i++) {
        mesh_job j = mesh_penalized;
        j.optimizer = strata_sgd_optimizer(0.1, 0, false);
        *(i == 0 ? &j.optimizer.clip_value : i == 1 ? &j.optimizer.clip_norm : &j.optimizer.clip_global_norm) = i ? 0.2 : 0.02;
        expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2"}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "stage=4"}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "tensor=3", .microbatches = 3}, 1e-5);
        expect_like_one(&j, &(mesh_setup){.mesh = "stage=2,tensor=2", .microbatches = 4, .schedule = "zero_bubble"}, 1e-5);
    }
}

Test(mesh, weights_of_classes_and_examples_count_as_on_one_device) {
    mesh_job j = mesh_dense;
    j.weighted = true;
    j.n = 43;
    expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=4", .microbatches = 4}, 1e-5);
    j.n = 40;
    expect_bits_of_accumulation(&j, "stage=2", 4, "zero_bubble");
}

Test(mesh, metrics_are_those_of_one_device) {
    mesh_job j = mesh_dense;
    j.metrics = "precision,recall,confusion_matrix,top_2_accuracy";
    j.n = 43;
    expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=2"}, 1e-5);
    j.model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 5, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 1, \"name\": \"y\"}], \"loss\": \"binary_crossentropy\"}";
    j.targets[0] = (mesh_column){.name = "y", .n_classes = 2};
    j.metrics = "auc,precision,confusion_matrix";
    expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2", .microbatches = 3}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "tensor=2"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=3", .microbatches = 4}, 1e-5);
    j.n = 40;
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
}

/* Inputs are large and the loss is multiplied by 2^15 at first, so gradients of the first layer are too large for f16. */
Test(mesh, an_overflow_at_one_stage_skips_the_update_of_all) {
    mesh_job j = mesh_dense;
    j.model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 11, \"activation\": \"relu\"},"
        "{\"layer\": \"dense\", \"units\": 9}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.precision = STRATA_DTYPE_F16;
    j.optimizer = strata_sgd_optimizer(0.05, 0, false);
    j.inputs[0].scale = 30;
    mesh_outcome one = mesh_run(&j, &(mesh_setup){0}), two = mesh_run(&j, &(mesh_setup){.mesh = "stage=2"});
    cr_assert_gt(one.n_skipped, 0);
    expect_like(&two, &one, 1e-3, "f16");
    mesh_outcome_free(&one);
    mesh_outcome_free(&two);
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
}

Test(mesh, devices_of_several_kinds_train_as_one) {
    static const char *const mixed[] = {"host", "opencl:0", "vulkan:0", "host"};
    if (!there_is("opencl:0") || !there_is("vulkan:0")) cr_skip_test("opencl:0 or vulkan:0 is not there");
    mesh_job j = mesh_dense;
    j.optimizer = strata_adam_optimizer(0.003);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=3", .devices = mixed}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "tensor=3", .devices = mixed}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "data=2,stage=2", .devices = mixed, .microbatches = 4}, 1e-5);
    expect_like_one(&mesh_functional, &(mesh_setup){.mesh = "stage=2,tensor=2", .devices = mixed, .microbatches = 2}, 1e-5);
}

/* ---- sparse embeddings, and layouts by hand ---- */

Test(mesh, a_sparse_embedding_trains_at_its_stage) {
    mesh_job j = mesh_recurrent;
    j.model =
        "{\"input\": [5], \"input_dtype\": \"i32\", \"layers\": [{\"layer\": \"embedding\", \"vocabulary\": 12,"
        "\"units\": 8, \"sparse\": true}, {\"layer\": \"flatten\"}, {\"layer\": \"dense\", \"units\": 7,"
        "\"activation\": \"relu\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.optimizer = strata_sgd_optimizer(0.1, 0, false);
    for (int i = 0; i < N_MESHES; i++) expect_like_one(&j, &(mesh_setup){.mesh = mesh_names[i]}, 1e-5);
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
}

Test(mesh, a_layout_by_hand_trains_as_one_device) {
    static const char layout[] = "{\"^(a|d|tied)/kernel\": [null, \"tensor\"], \"^(a|d|tied)/bias\": [\"tensor\"]}";
    expect_like_one(&mesh_functional, &(mesh_setup){.mesh = "tensor=2", .layout = layout}, 1e-5);
    expect_like_one(&mesh_functional, &(mesh_setup){.mesh = "stage=2,tensor=2", .layout = layout}, 1e-5);
    expect_like_one(&mesh_functional, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2", .layout = layout, .microbatches = 2},
                    1e-5);
}

/* ---- other layers ---- */

Test(mesh, other_layers_train_as_on_one_device) {
    mesh_job j = mesh_pictures;
    j.model =
        "{\"input\": [6, 6, 4], \"layers\": [{\"layer\": \"depthwise_conv2d\", \"kernel_size\": 3, \"padding\": \"same\"},"
        "{\"layer\": \"group_norm\", \"groups\": 2}, {\"layer\": \"separable_conv2d\", \"filters\": 6, \"kernel_size\": 3},"
        "{\"layer\": \"avg_pool2d\", \"size\": 2},"
        "{\"layer\": \"conv2d_transpose\", \"filters\": 4, \"kernel_size\": 2, \"stride\": 2, \"activation\": \"relu\"},"
        "{\"layer\": \"reshape\", \"shape\": [16, 4]}, {\"layer\": \"conv1d\", \"filters\": 6, \"kernel_size\": 3},"
        "{\"layer\": \"rms_norm\"}, {\"layer\": \"max_pool1d\", \"size\": 2}, {\"layer\": \"global_max_pool\"},"
        "{\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.inputs[0].shape.dims[2] = 4;
    expect_every_mesh_like_one(&j);
    expect_bits_of_accumulation(&j, "stage=4", 4, "zero_bubble");
    mesh_job tokens = mesh_recurrent;
    tokens.model =
        "{\"input\": [5], " TOKENS
        "{\"layer\": \"lstm\", \"units\": 6, \"return_sequences\": true, \"bidirectional\": \"concat\","
        "\"dropout\": 0.1, \"recurrent_dropout\": 0.1}, {\"layer\": \"multi_head_attention\", \"heads\": 3, \"causal\": true},"
        "{\"layer\": \"gru\", \"units\": 5, \"no_reset_after\": true}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    expect_every_mesh_like_one(&tokens);
    expect_bits_of_accumulation(&tokens, "stage=3", 2, NULL);
}

/* A residual network, whose residuals are one call each. */
Test(mesh, a_residual_network_trains_as_on_one_device) {
    mesh_job j = mesh_pictures;
    j.model =
        "{\"input\": [6, 6, 4], \"layers\": [{\"layer\": \"residual\", \"activation\": \"relu\", \"layers\": ["
        "{\"layer\": \"conv2d\", \"filters\": 4, \"kernel_size\": 3, \"padding\": \"same\"}, {\"layer\": \"batch_norm\"}]},"
        "{\"layer\": \"residual\", \"layers\": [{\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 3, \"padding\": "
        "\"same\"},"
        "{\"layer\": \"batch_norm\"}], \"shortcut\": [{\"layer\": \"conv2d\", \"filters\": 6, \"kernel_size\": 1}]},"
        "{\"layer\": \"global_average_pool\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    j.inputs[0].shape.dims[2] = 4;
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=2"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=4"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "tensor=2"}, 1e-5);
    expect_like_one(&j, &(mesh_setup){.mesh = "stage=2,tensor=2"}, 1e-5);
    expect_bits_of_accumulation(&j, "stage=2", 4, NULL);
    expect_bits_of_accumulation(&j, "stage=3", 4, "zero_bubble");
}

/* bf16 rounds sums of parts in another order. */
Test(mesh, half_precision_trains_nearly_as_on_one_device) {
    mesh_job j = mesh_dense;
    j.precision = STRATA_DTYPE_BF16;
    expect_bits_of_accumulation(&j, "stage=2", 4, "zero_bubble");
    mesh_outcome one = mesh_run(&j, &(mesh_setup){0}), got = mesh_run(&j, &(mesh_setup){.mesh = "data=2,stage=2,tensor=2"});
    for (int i = 0; i < one.n_losses; i++) cr_assert_float_eq(got.losses[i], one.losses[i], 0.03, "loss %d", i);
    cr_assert(got.equal);
    mesh_outcome_free(&one);
    mesh_outcome_free(&got);
}

/* The print layer, weights of a function's own, and a call of an op. */
Test(mesh, layers_without_a_rule_of_their_own_train_as_on_one_device) {
    mesh_job j = mesh_dense;
    j.model =
        "{\"input\": [6], \"layers\": [{\"layer\": \"dense\", \"units\": 8, \"activation\": \"relu\"},"
        "{\"layer\": \"print\", \"every\": 1000}, {\"layer\": \"dense\", \"units\": 6}, {\"layer\": \"op\", \"op\": \"abs\"},"
        "{\"layer\": \"activation\", \"function\": \"sigmoid\"}, {\"layer\": \"dense\", \"units\": 4, \"name\": \"y\"}]}";
    expect_every_mesh_like_one(&j);
    expect_bits_of_accumulation(&j, "stage=3", 4, NULL);
}
