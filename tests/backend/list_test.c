/* SPDX-License-Identifier: Apache-2.0
 *
 * Lowering of a piece of a program to kernel launches: the offsets of buffers, kernels that several launches share, the
 * sizes of work-groups within the device's limits, barriers, and which pieces are refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "backends/kernel/gpu_tiles.h"
#include "backends/kernel/lowering.h"
#include "strata/ops.h"

/* ---- pieces in which the test chooses the place of every tensor, in arena 2 ---- */
enum { MAX_TENSORS = 16, WORK = 2 };

typedef struct hand {
    strata_graph *graph;
    const strata_tensor *nodes[MAX_TENSORS];
    strata_place places[MAX_TENSORS];
    strata_arena arenas[3];
    strata_piece piece;
    strata_kernel_limits limits;
    strata_kernel_list list;
    strata_error err;
} hand;

static hand *hand_make(strata_device_class device_class) {
    static hand made;
    memset(&made, 0, sizeof made);
    hand *h = &made;
    cr_assert_eq(strata_graph_create(&h->graph, NULL), STRATA_OK);
    for (int i = 0; i < MAX_TENSORS; i++) h->places[i].arena = -1;
    for (int i = 0; i < 3; i++) h->arenas[i] = (strata_arena){.kind = (strata_arena_kind)i, .bytes = INT64_MAX};
    h->piece = (strata_piece){
        .nodes = h->nodes, .places = h->places, .n_places = MAX_TENSORS, .arenas = h->arenas, .n_arenas = 3, .n_slots = 1};
    h->limits = (strata_kernel_limits){.device_class = device_class,
                                       .opencl_c = true,
                                       .dtypes = ~0u,
                                       .max_workgroup = 256,
                                       .max_local = {256, 256},
                                       .max_groups = {65535, 65535},
                                       .local_bytes = 32768,
                                       .compute_units = 2,
                                       .vector_width = 1,
                                       .max_range_bytes = 1u << 30};
    return h;
}

static void place(hand *h, const strata_tensor *tensor, int64_t offset) {
    int64_t bytes = strata_shape_elements(tensor->shape) * (int64_t)strata_dtype_bytes(tensor->dtype);
    h->places[tensor->id] = (strata_place){.arena = WORK, .offset = offset, .bytes = bytes};
}

static void node(hand *h, const strata_tensor *tensor, int64_t offset) {
    place(h, tensor, offset);
    h->nodes[h->piece.n_nodes++] = tensor;
}

static strata_tensor *input(hand *h, const char *name, strata_dtype dtype, strata_shape shape, int64_t offset) {
    strata_tensor *tensor = strata_input(h->graph, name, dtype, shape);
    place(h, tensor, offset);
    return tensor;
}

static strata_status list(hand *h) {
    return strata_kernel_list_create(&h->limits, NULL, &h->piece, &h->list, &h->err);
}

static void hand_finish(hand *h) {
    strata_kernel_list_finish(&h->list);
    strata_graph_destroy(h->graph);
}

static uint32_t constant(const strata_kernel *kernel, const char *name) {
    for (int i = 0; i < kernel->shader->n_constants; i++)
        if (!strcmp(kernel->shader->constants[i].name, name)) return kernel->constants[i];
    cr_assert_fail("kernel %s has no constant %s", kernel->shader->stem, name);
    return 0;
}

Test(list, words_begin_with_offsets_in_elements) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *x = input(h, "x", STRATA_DTYPE_F32, STRATA_SHAPE(100), 512);
    node(h, strata_exp(x), 1024);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 1);
    const strata_kernel_launch *launch = &h->list.launches[0];
    cr_assert_eq(launch->n_buffers, 2);
    cr_assert_eq(launch->words[0].u32, 512 / 4);
    cr_assert_eq(launch->words[1].u32, 1024 / 4);
    cr_assert_eq(launch->buffers[0].begin, 512);
    cr_assert_eq(launch->buffers[0].end, 912);
    cr_assert_eq(launch->writes, 2);
    cr_assert_eq(launch->n_words, launch->n_buffers + 1);
    cr_assert_eq(launch->words[2].u32, 100);
    hand_finish(h);
}

Test(list, equal_kernels_are_built_once) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *x = input(h, "x", STRATA_DTYPE_F32, STRATA_SHAPE(100), 0);
    node(h, strata_exp(x), 1024);
    node(h, strata_exp(strata_exp(x)), 2048);
    node(h, strata_log(x), 3072);
    h->places[h->nodes[1]->inputs[0]->id] = h->places[h->nodes[0]->id];
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 3);
    cr_assert_eq(h->list.n_kernels, 2);
    cr_assert_eq(h->list.launches[0].kernel, h->list.launches[1].kernel);
    cr_assert_neq(constant(&h->list.kernels[0], "OP"), constant(&h->list.kernels[1], "OP"));
    hand_finish(h);
}

Test(list, only_a_launch_that_depends_waits) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *x = input(h, "x", STRATA_DTYPE_F32, STRATA_SHAPE(100), 0);
    strata_tensor *a = strata_exp(x), *b = strata_log(x), *c = strata_add(a, b);
    node(h, a, 1024);
    node(h, b, 2048);
    node(h, c, 3072);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_not(h->list.launches[0].barrier_before);
    cr_assert_not(h->list.launches[1].barrier_before);
    cr_assert(h->list.launches[2].barrier_before);
    hand_finish(h);
}

Test(list, groups_stay_within_the_limits) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    h->limits.max_groups[0] = 7;
    h->limits.max_workgroup = 100;
    strata_tensor *x = input(h, "x", STRATA_DTYPE_F32, STRATA_SHAPE(1000003), 0);
    node(h, strata_exp(x), 8 << 20);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    const strata_kernel_launch *launch = &h->list.launches[0];
    cr_assert_leq(launch->groups[0], 7);
    cr_assert_eq(launch->local[0], 64, "a power of two within 100, not %u", launch->local[0]);
    cr_assert_eq(constant(&h->list.kernels[0], "LOCAL_X"), 64);
    hand_finish(h);
}

/* Matrix units compute products of the dtypes that they support. Products of f32 use them only where the option `fast`
 * allows other last bits. */
/* More columns than a launch has work-items: each work-item then processes several, and fewer indices in a launch. */
Test(list, sums_of_wide_rows_stay_within_the_limits_of_an_emulated_gpu) {
    hand *h = hand_make(STRATA_DEVICE_SOFTWARE_GPU);
    strata_tensor *rows = input(h, "rows", STRATA_DTYPE_F32, STRATA_SHAPE(70000, 3), 0);
    strata_tensor *wide = input(h, "wide", STRATA_DTYPE_F32, STRATA_SHAPE(10, 1000000), 1 << 20);
    strata_tensor *many = input(h, "many", STRATA_DTYPE_I32, STRATA_SHAPE(70000), 0);
    strata_tensor *few = input(h, "few", STRATA_DTYPE_I32, STRATA_SHAPE(10), 0);
    node(h, strata_unsorted_segment_sum(wide, few, 5), 1 << 28);
    node(h, strata_unsorted_segment_sum(rows, many, 5), 1 << 29);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 2 + 3, "each node is a fill, and 70000 indices take two launches");
    for (int l = 0; l < h->list.n_launches; l++) cr_expect_leq(h->list.launches[l].groups[0], 65535);
    hand_finish(h);
}

Test(list, products_go_to_matrix_units_where_the_precision_allows) {
    static const struct {
        strata_dtype dtype;
        bool units, fast, expected;
    } cases[] = {
        {STRATA_DTYPE_F16, false, false, false}, {STRATA_DTYPE_F16, true, false, true},
        {STRATA_DTYPE_BF16, true, false, false}, {STRATA_DTYPE_F32, true, false, false},
        {STRATA_DTYPE_F32, false, true, false},  {STRATA_DTYPE_F32, true, true, true},
    };
    if (!strata_shader_find("matrix_units/matmul", NULL)) cr_skip_test("this build has no kernels for matrix units");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
        h->limits.fast = cases[i].fast;
        if (cases[i].units) h->limits.f16_unit = (strata_matrix_unit){16, 8, 16};
        h->limits.unit_lanes = cases[i].units ? 32 : 0;
        strata_tensor *a = input(h, "a", cases[i].dtype, STRATA_SHAPE(128, 64), 0);
        strata_tensor *b = input(h, "b", cases[i].dtype, STRATA_SHAPE(64, 256), 1 << 20);
        node(h, strata_matmul(a, b, false, false), 2 << 20);
        cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
        const strata_kernel *kernel = &h->list.kernels[h->list.launches[0].kernel];
        cr_expect_eq(!strcmp(kernel->shader->stem, "matrix_units/matmul"), cases[i].expected, "case %zu: %s", i,
                     kernel->shader->stem);
        if (cases[i].expected) {
            cr_expect_eq(constant(kernel, "UNIT_N"), 8);
            cr_expect_eq(h->list.launches[0].local[0], 32 * constant(kernel, "GROUPS_M") * constant(kernel, "GROUPS_N"));
        }
        hand_finish(h);
    }
}

/* Matrix units compute convolutions and their gradients, too, when the product has enough columns for a tile. */
Test(list, convolutions_go_to_matrix_units_where_they_have_enough_columns) {
    if (!strata_shader_find("matrix_units/conv2d", NULL)) cr_skip_test("this build has no kernels for matrix units");
    for (int64_t filters = 4; filters <= 16; filters += 12) {
        hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
        h->limits.f16_unit = (strata_matrix_unit){16, 16, 16};
        h->limits.unit_lanes = 32;
        strata_tensor *x = input(h, "x", STRATA_DTYPE_F16, STRATA_SHAPE(2, 8, 8, 9), 0), *dx[2];
        strata_tensor *f = input(h, "f", STRATA_DTYPE_F16, STRATA_SHAPE(3, 3, 9, filters), 1 << 20);
        strata_tensor *y = strata_conv2d(x, f, (strata_conv2d_window){.padding = STRATA_PADDING_SAME});
        strata_gradients(y, y, (strata_tensor *[]){x, f}, 2, dx);
        node(h, y, 2 << 20);
        node(h, dx[0], 3 << 20);
        node(h, dx[1], 4 << 20);
        cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
        static const char *const stems[] = {"matrix_units/conv2d", "matrix_units/conv2d", "matrix_units/conv2d_filter_grad"};
        for (int i = 0, l = 0; i < 3; i++) {
            const char *stem = h->list.kernels[h->list.launches[l].kernel].shader->stem;
            cr_expect_eq(!strcmp(stem, stems[i]), i == 1 || filters >= 8, "%d filters, product %d: %s", (int)filters, i, stem);
            const strata_tensor *own = h->list.launches[l].node;
            while (l < h->list.n_launches && h->list.launches[l].node == own) l++;
        }
        hand_finish(h);
    }
}

/* A kernel for matrix units needs work-groups of whole subgroups, and local memory for its tiles. */
Test(list, products_stay_off_matrix_units_that_do_not_fit) {
    for (int i = 0; i < 2; i++) {
        hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
        h->limits.f16_unit = (strata_matrix_unit){16, 16, 16};
        h->limits.unit_lanes = i == 0 ? 128 : 32;
        if (i == 1) h->limits.local_bytes = 4096;
        strata_tensor *a = input(h, "a", STRATA_DTYPE_F16, STRATA_SHAPE(128, 64), 0);
        strata_tensor *b = input(h, "b", STRATA_DTYPE_F16, STRATA_SHAPE(64, 256), 1 << 20);
        node(h, strata_matmul(a, b, false, false), 2 << 20);
        cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
        const char *stem = h->list.kernels[h->list.launches[0].kernel].shader->stem;
        cr_expect_str_neq(stem, "matrix_units/matmul", "case %d", i);
        hand_finish(h);
    }
}

static bool fits_nothing(const strata_kernel_limits *limits, const strata_tensor *node) {
    (void)limits, (void)node;
    return false;
}

/* shaders/matrix_units/units.h says what its kernels need of a tile. */
Test(list, tiles_of_matrix_units_are_as_their_kernels_need_them) {
    static const strata_matrix_unit units[] = {{16, 16, 16}, {16, 8, 16}, {8, 8, 16}, {16, 16, 8}, {8, 8, 8}, {32, 8, 16}};
    static const strata_family none = {.name = "none", .fits = fits_nothing};
    const strata_tiled_product product = {.m = 1000, .n = 1000, .batch = 1};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        for (uint32_t lanes = 8; lanes <= 64; lanes *= 2)
            for (uint32_t items = 64; items <= 1024; items *= 2) {
                hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
                strata_candidate found[STRATA_CANDIDATES];
                h->limits.f16_unit = units[u];
                h->limits.unit_lanes = lanes;
                h->limits.max_workgroup = items;
                h->limits.max_local[0] = 512;
                strata_tensor *a = input(h, "a", STRATA_DTYPE_F16, STRATA_SHAPE(1000, 1000), 0);
                const strata_tensor *c = strata_matmul(a, a, false, false);
                const int n = strata_units_candidates(&h->limits, c, &product, &none, found);
                cr_assert_leq(n, STRATA_TILES_TRIED);
                if (units[u].m == 16 && lanes == 32 && items >= 128) cr_expect_gt(n, 0, "units %zu, %u items", u, items);
                for (int i = 0; i < n; i++) {
                    strata_launch launch = {.n_buffers = 3};
                    const int *t = found[i].values;
                    const uint32_t m = (uint32_t)(t[0] * t[2]) * units[u].m, columns = (uint32_t)(t[1] * t[3]) * units[u].n;
                    const uint32_t steps = 2 * units[u].k, own = (uint32_t)(t[0] * t[1]) * lanes;
                    const uint32_t words = (m + columns) * steps / 2 + 4 * (m + columns + 2 * steps) +
                                           (uint32_t)(t[0] * t[1]) * units[u].m * units[u].n + 2;
                    cr_expect(own <= items && own <= 512 && 4 * words <= h->limits.local_bytes, "%s", found[i].name);
                    cr_expect(m * steps / 2 % own == 0 && columns * steps / 2 % own == 0, "%s", found[i].name);
                    cr_expect(own % (steps / 2) == 0 && own % (m / 2) == 0 && own % (columns / 2) == 0, "%s", found[i].name);
                    strata_units_launch(&h->limits, c, &product, &found[i], false, &launch);
                    cr_expect_eq((uint32_t)launch.local[0], own);
                    cr_expect_eq(launch.global[0], (int64_t)own * ((999 / m + 1) * (999 / columns + 1)));
                }
                hand_finish(h);
            }
}

Test(list, a_cpu_gets_few_groups_of_one_item_with_enough_to_do) {
    hand *h = hand_make(STRATA_DEVICE_CPU);
    strata_tensor *small = input(h, "s", STRATA_DTYPE_F32, STRATA_SHAPE(100), 0);
    strata_tensor *large = input(h, "l", STRATA_DTYPE_F32, STRATA_SHAPE(1 << 20), 1024);
    node(h, strata_exp(small), 8 << 20);
    node(h, strata_exp(large), 16 << 20);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.launches[0].local[0], 1);
    cr_assert_eq(h->list.launches[0].groups[0], 1);
    cr_assert_eq(h->list.launches[1].groups[0], 8);
    hand_finish(h);
}

/* The product of (5, 7) at byte 0 and (7, 3) at byte 1024, with its result at byte 2048. */
static hand *product_on_a_cpu(strata_dtype dtype) {
    hand *h = hand_make(STRATA_DEVICE_CPU);
    h->limits.vector_width = 8;
    strata_tensor *a = input(h, "a", dtype, STRATA_SHAPE(5, 7), 0);
    strata_tensor *b = input(h, "b", dtype, STRATA_SHAPE(7, 3), 1024);
    node(h, strata_matmul(a, b, false, false), 2048);
    return h;
}

Test(list, a_cpu_does_products_of_halves_by_its_kernel_of_f32_between_conversions) {
    static const char *const stems[] = {"cast", "cast", "cpu/matmul", "cast"};
    hand *h = product_on_a_cpu(STRATA_DTYPE_BF16);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 4);
    for (int i = 0; i < 4; i++) cr_expect_str_eq(h->list.kernels[h->list.launches[i].kernel].shader->stem, stems[i]);
    const int scratch = h->piece.n_arenas;
    const strata_kernel_launch *l = h->list.launches;
    for (int i = 0; i < 2; i++) { /* the product reads what the conversions write; each conversion writes its own range */
        cr_expect_eq(l[i].buffers[1].arena, scratch);
        cr_expect_eq(l[2].buffers[i].begin, l[i].buffers[1].begin);
        cr_expect_eq(l[2].buffers[i].end, l[i].buffers[1].end);
    }
    cr_expect_eq(l[0].buffers[1].end - l[0].buffers[1].begin, 5 * 7 * 4);
    cr_expect_leq(l[0].buffers[1].end, l[1].buffers[1].begin);
    cr_expect_leq(l[1].buffers[1].end, l[2].buffers[4].begin);
    cr_expect_eq(l[3].buffers[0].begin, l[2].buffers[4].begin);
    cr_expect_eq(l[3].buffers[1].begin, 2048);
    cr_expect_eq(l[3].buffers[1].end, 2048 + 5 * 3 * 2);
    cr_expect_leq(l[3].buffers[0].end, h->list.scratch_bytes);
    cr_expect(l[2].barrier_before && l[3].barrier_before);
    hand_finish(h);
}

Test(list, products_of_halves_beyond_the_scratch_buffer_stay_portable) {
    hand *h = product_on_a_cpu(STRATA_DTYPE_F16);
    h->limits.max_range_bytes = 256;
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 1);
    cr_expect_eq(h->list.scratch_bytes, 0);
    hand_finish(h);
}

Test(list, an_offset_beyond_32_bits_is_refused_with_the_node) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *x = input(h, "x", STRATA_DTYPE_F32, STRATA_SHAPE(100), 0);
    strata_tensor *y = strata_tensor_set_name(strata_exp(x), "far away");
    node(h, y, (int64_t)4 << 32);
    cr_assert_eq(list(h), STRATA_UNSUPPORTED);
    cr_assert(strstr(h->err.message, "far away"), "%s", h->err.message);
    h->places[y->id].offset -= 256;
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    hand_finish(h);
}

Test(list, a_tensor_without_a_place_is_our_bug) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *x = input(h, "x", STRATA_DTYPE_F32, STRATA_SHAPE(100), 0);
    node(h, strata_exp(x), 1024);
    h->places[x->id].arena = -1;
    cr_assert_eq(list(h), STRATA_INTERNAL);
    hand_finish(h);
}

Test(list, a_pack_of_tensors_in_their_place_launches_nothing) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *parts[] = {input(h, "a", STRATA_DTYPE_F32, STRATA_SHAPE(64), 4096),
                              input(h, "b", STRATA_DTYPE_F32, STRATA_SHAPE(64), 4096 + 256)};
    strata_tensor *pack = strata_pack(parts, (int64_t[]){0, 64}, 2, 128);
    node(h, pack, 4096);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 0);
    strata_kernel_list_finish(&h->list);

    place(h, parts[1], 0);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 1, "the part that lies elsewhere is copied");
    cr_assert_eq(h->list.launches[0].words[1].u32, 4096 / 4 + 64);
    hand_finish(h);
}

Test(list, an_empty_tensor_launches_nothing) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *x = input(h, "x", STRATA_DTYPE_F32, STRATA_SHAPE(0, 5), 0);
    node(h, strata_exp(x), 256);
    cr_assert_eq(list(h), STRATA_OK, "%s", h->err.message);
    cr_assert_eq(h->list.n_launches, 0);
    hand_finish(h);
}

Test(list, supports_asks_for_the_dtypes_storage) {
    hand *h = hand_make(STRATA_DEVICE_DISCRETE_GPU);
    strata_tensor *x = input(h, "x", STRATA_DTYPE_I64, STRATA_SHAPE(5), 0), *y = strata_add(x, x);
    const char *reason = NULL;
    cr_assert(strata_kernel_supports(&h->limits, y, &reason));
    h->limits.dtypes = 1u << STRATA_DTYPE_F32;
    cr_assert_not(strata_kernel_supports(&h->limits, y, &reason));
    cr_assert(strstr(reason, "dtype"));
    hand_finish(h);
}

/* Such a GPU ends the loops of a work-item after 65,535 iterations, and the result would be wrong. */
Test(list, loops_that_an_emulated_gpu_would_end_early_are_refused) {
    static const strata_device_class classes[] = {STRATA_DEVICE_SOFTWARE_GPU, STRATA_DEVICE_DISCRETE_GPU, STRATA_DEVICE_CPU};
    const strata_dtype f32 = STRATA_DTYPE_F32, f16 = STRATA_DTYPE_F16, i32 = STRATA_DTYPE_I32;
    for (size_t c = 0; c < sizeof classes / sizeof *classes; c++) {
        hand *h = hand_make(classes[c]);
        strata_tensor *columns = input(h, "columns", f32, STRATA_SHAPE(100000, 3), 0);
        strata_tensor *row = input(h, "row", f32, STRATA_SHAPE(1, 6000000), 0);
        strata_tensor *losses = input(h, "losses", f32, STRATA_SHAPE(600), 0);
        strata_tensor *logits = input(h, "logits", f32, STRATA_SHAPE(600, 10000), 0);
        strata_tensor *labels = input(h, "labels", i32, STRATA_SHAPE(600), 0);
        strata_tensor *wide = input(h, "wide", f32, STRATA_SHAPE(2, 70000), 0);
        strata_tensor *tall = input(h, "tall", f32, STRATA_SHAPE(70000, 3), 0);
        strata_tensor *halves = input(h, "halves", f16, STRATA_SHAPE(200000, 2), 0);
        strata_tensor *indices = input(h, "indices", i32, STRATA_SHAPE(200000), 0);
        const strata_tensor *long_ones[] = {
            strata_argmax(columns, 0),
            strata_argmax(row, 1),
            strata_log_softmax(row),
            strata_classification_sums(losses, logits, labels),
            strata_binary_sums(losses, logits, logits, 0.5),
            strata_unsorted_segment_sum(halves, indices, 3),
            strata_matmul(wide, tall, false, false),
            strata_conv2d(strata_reshape(wide, STRATA_SHAPE(2, 1, 1, 70000)),
                          strata_reshape(tall, STRATA_SHAPE(1, 1, 70000, 3)), (strata_conv2d_window){.groups = 1})};
        const strata_tensor *short_ones[] = {strata_argmax(columns, 1), strata_argmax(logits, 1), strata_log_softmax(logits),
                                             strata_reduce_sum(row, NULL, 0, false)};
        cr_assert_eq(strata_graph_check(h->graph, &h->err), STRATA_OK, "%s", h->err.message);
        for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; i++) {
            const char *reason = NULL;
            const bool supported = strata_kernel_supports(&h->limits, long_ones[i], &reason);
            cr_expect_eq(supported, c > 0, "class %zu: %s", c, long_ones[i]->op->name);
            cr_expect(supported || strstr(reason, "65,535"), "%s: %s", long_ones[i]->op->name, reason);
        }
        for (size_t i = 0; i < sizeof short_ones / sizeof *short_ones; i++) {
            const char *reason = NULL;
            cr_expect(strata_kernel_supports(&h->limits, short_ones[i], &reason), "class %zu: %s: %s", c,
                      short_ones[i]->op->name, reason);
        }
        hand_finish(h);
    }
}

/* On Intel's GPUs the 8 x 8 sums of a tile do not fit into the registers of a work-item, and 8 x 4 sums hardly do,
 * according to Intel's compiler (tests/vendors.sh). */
Test(list, few_registers_leave_tiles_of_four_by_four_sums) {
    hand *h = hand_make(STRATA_DEVICE_INTEGRATED_GPU);
    const strata_tiled_product product = {.m = 1024, .n = 1024, .batch = 1};
    strata_candidate candidates[STRATA_TILES_TRIED];
    cr_assert_gt(strata_tiles_candidates(&h->limits, &product, candidates), 0);
    cr_assert_eq(candidates[0].values[TILE_WORK_M] * candidates[0].values[TILE_WORK_N], 64);
    h->limits.item_registers = STRATA_INTEL_ITEM_REGISTERS;
    const int n = strata_tiles_candidates(&h->limits, &product, candidates);
    cr_assert_gt(n, 1, "the tuner has a choice");
    for (int i = 0; i < n; i++)
        cr_assert_eq(candidates[i].values[TILE_WORK_M] * candidates[i].values[TILE_WORK_N], 16, "%s", candidates[i].name);
    cr_assert(strata_tiles_fit(&h->limits));
    hand_finish(h);
}
