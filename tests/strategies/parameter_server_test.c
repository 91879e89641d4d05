/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of the strategy parameter_server, tested without a network: how parameters are divided and placed on servers,
 * how a server's store processes pushes, and which worker may compute a step when. Whole jobs are tested by
 * tests/cli/parameter_server_test.sh. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "strata/strata.h"
#include "strategies/parameter_server/pace.h"

static strata_error err;
#define OK(call) cr_assert_eq((call), STRATA_OK, "%s", err.message)

/* ---- partitioners ---- */

static int64_t count(const char *text, int64_t rows, int64_t row_bytes, int n_servers) {
    strata_partitioner p;
    OK(strata_partitioner_parse(text, &p, &err));
    return strata_partitioner_count(&p, rows, row_bytes, n_servers);
}

Test(parameter_server, thirteen_rows_over_five_shards_are_3_3_3_2_2) {
    const int64_t expected[] = {3, 3, 3, 2, 2};
    int64_t next = 0;
    for (int i = 0; i < 5; i++) {
        int64_t first, n;
        strata_partition_rows(13, 5, i, &first, &n);
        cr_assert_eq(first, next);
        cr_assert_eq(n, expected[i]);
        next += n;
    }
    cr_assert_eq(next, 13);
}

Test(parameter_server, partitioners_follow_tensorflows_rules) {
    cr_assert_eq(count("fixed:2", 10, 40, 8), 2);
    cr_assert_eq(count("fixed:20", 10, 40, 8), 10, "no shard without rows");
    cr_assert_eq(count("min_size:256K", 1024, 1024, 8), 4, "1 MiB in shards of at least 256 KiB");
    cr_assert_eq(count("min_size:300K", 1024, 1024, 8), 3, "four would have less");
    cr_assert_eq(count("min_size:256K", 1024, 1024, 2), 2, "no more than servers");
    cr_assert_eq(count("min_size:4M", 1024, 1024, 8), 1);
    cr_assert_eq(count("max_size:256K", 1024, 1024, 2), 4, "as few as have at most 256 KiB");
    cr_assert_eq(count("max_size:300K", 1024, 1024, 2), 4);
    cr_assert_eq(count("max_size:10", 7, 40, 2), 7, "a row is not cut");
    cr_assert_eq(count("none", 1024, 1024, 8), 1);
    cr_assert_eq(count(NULL, 1024, 1024, 8), 1);
}

Test(parameter_server, wrong_partitioners_are_refused) {
    static const char *const texts[] = {"",
                                        "fixed",
                                        "fixed:0",
                                        "fixed:-1",
                                        "fixed:2K",
                                        "fixed:2x",
                                        "min_size:",
                                        "min_size:0K",
                                        "max_size:K",
                                        "max_size:1T",
                                        "largest:2",
                                        "max_size:9223372036854775807G",
                                        "min_size:99999999999999999999"};
    strata_partitioner p;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cr_assert_eq(strata_partitioner_parse(texts[i], &p, &err), STRATA_INVALID, "\"%s\" is taken", texts[i]);
        cr_assert_not_null(strstr(err.message, "fixed:N"), "%s", err.message);
    }
}

/* ---- a model and its plan ---- */

enum { FEATURES = 5, WORDS = 11 };

static strata_device *device;

static void open_device(void) {
    OK(strata_device_open("host", NULL, &device, &err));
}
static void close_device(void) {
    strata_device_close(device);
}
TestSuite(ps_store, .init = open_device, .fini = close_device);

/* A model of two dense layers with kernels (5, 6) and (6, 3) and biases. With `sparse` an embedding with 11 rows of 4 is
 * before them. */
static strata_model *make_model(strata_optimizer optimizer, bool sparse) {
    strata_model *model = NULL;
    OK(strata_model_create(STRATA_SHAPE(FEATURES), &model, &err));
    if (sparse) {
        OK(strata_model_set_input_dtype(model, STRATA_DTYPE_I32, &err));
        strata_model_add_embedding(model, (strata_embedding_options){.vocabulary = WORDS, .units = 4, .sparse = true});
        strata_model_add_flatten(model, (strata_flatten_options){0});
    }
    strata_model_add_dense(model, (strata_dense_options){.units = 6, .activation = "relu"});
    strata_model_add_dense(model, (strata_dense_options){.units = 3});
    OK(strata_model_compile(model, device, &(strata_compile_options){.optimizer = optimizer, .seed = 4}, &err));
    return model;
}

static strata_ps_plan make_plan(const strata_model *model, const char *partitioner, int n_servers) {
    strata_partitioner p;
    strata_ps_plan plan;
    OK(strata_partitioner_parse(partitioner, &p, &err));
    OK(strata_ps_plan_make(model, &p, n_servers, &plan, &err));
    return plan;
}

Test(ps_store, every_element_has_one_owner_and_loads_are_alike) {
    strata_model *model = make_model(strata_adam_optimizer(0), true);
    for (int n = 1; n <= 4; n++) {
        strata_ps_plan plan = make_plan(model, "fixed:3", n);
        char *owners = calloc((size_t)strata_model_all_size(model), 1);
        int64_t most = 0, least = INT64_MAX, all = 0;
        for (int i = 0; i < plan.n_shards; i++)
            for (int64_t e = 0; e < plan.shards[i].n; e++) cr_assert_eq(owners[plan.shards[i].first + e]++, 0);
        for (int p = 0; p < model->parameters.n; p++) {
            const strata_parameter_spec *own = &model->parameters.items[p];
            for (int64_t e = 0; e < strata_shape_elements(own->shape); e++) cr_assert_eq(owners[own->offset + e], 1);
            all += strata_shape_elements(own->shape);
        }
        for (int s = 0; s < n; s++) {
            const int64_t load = plan.bundles[s].dense_elements + plan.bundles[s].table_elements;
            cr_assert_eq(strata_ps_plan_elements(&plan, s), 3 * load, "parameters and two slots");
            most = load > most ? load : most;
            least = load < least ? load : least;
        }
        cr_assert_leq(most - least, all / 5, "%d servers: %lld and %lld", n, (long long)least, (long long)most);
        free(owners);
        strata_ps_plan_finish(&plan);
    }
    strata_model_destroy(model);
}

Test(ps_store, plans_that_cannot_be_are_refused) {
    strata_model *model = make_model(strata_adam_optimizer(0), false);
    strata_partitioner none = {0}, two = {STRATA_PARTITION_FIXED, 2};
    strata_ps_plan plan;
    cr_assert_eq(strata_ps_plan_make(model, &none, 5, &plan, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "5 servers for 4 shards"), "%s", err.message);
    strata_model_destroy(model);
    model = make_model((strata_optimizer){.name = "lamb"}, false);
    cr_assert_eq(strata_ps_plan_make(model, &two, 2, &plan, &err), STRATA_INVALID);
    cr_assert_not_null(strstr(err.message, "norm of each whole parameter"), "%s", err.message);
    strata_model_destroy(model);
    static const strata_optimizer norms[] = {{.name = "lars"}, {.name = "adam", .clip_norm = 1}};
    static const char *const names[] = {"lars takes the norm", "clip_norm takes the norm"};
    for (int i = 0; i < 2; i++) {
        model = make_model(norms[i], false);
        cr_assert_eq(strata_ps_plan_make(model, &two, 2, &plan, &err), STRATA_INVALID, "%s", names[i]);
        cr_assert_not_null(strstr(err.message, names[i]), "%s", err.message);
        cr_assert_not_null(strstr(err.message, "the partitioner cuts "), "%s", err.message);
        OK(strata_ps_plan_make(model, &none, 2, &plan, &err)); /* parameters that are not divided are accepted */
        strata_ps_plan_finish(&plan);
        strata_model_destroy(model);
    }
}

/* y = gain x, where gain is a scalar parameter. */
static strata_tensor *build_gain(const void *options, strata_layer_context *context, strata_tensor *const *x, int n) {
    (void)options;
    strata_tensor *gain = strata_layer_parameter(context, strata_tensor_graph(x[n - 1]), "gain", STRATA_SHAPE(), "ones", 1, 1);
    return strata_mul(x[0], gain);
}

Test(ps_store, scalars_stay_whole_and_others_have_their_bytes) {
    static const char json[] =
        "{\"input\": [5], \"layers\": [{\"layer\": \"gain\"}, {\"layer\": \"dense\", \"units\": 64}], "
        "\"loss\": \"mse\"}";
    static const struct {
        const char *text;
        int64_t least, most; /* smallest and largest shard of the kernel (5, 64) in bytes; a row has 256 bytes */
        int n;
    } rules[] = {
        {"fixed:3", 256, 512, 3}, {"min_size:512", 512, 1280, 2}, {"max_size:600", 256, 512, 3}, {"none", 1280, 1280, 1}};
    strata_registry *registry = NULL;
    strata_model *model = NULL;
    OK(strata_registry_create(&registry, &err));
    OK(strata_layer_register(registry, &(strata_layer_definition){.name = "gain", .build = build_gain}, &err));
    OK(strata_model_from_json_with(registry, json, sizeof json - 1, "gain", &model, &err));
    strata_registry_destroy(registry);
    OK(strata_model_compile(model, device, NULL, &err));
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        strata_ps_plan plan = make_plan(model, rules[r].text, 2);
        int n_scalars = 0, n_kernels = 0;
        for (int i = 0; i < plan.n_shards; i++) {
            const strata_ps_shard *shard = &plan.shards[i];
            const strata_parameter_spec *p = &model->parameters.items[shard->parameter];
            if (!p->shape.rank) {
                n_scalars++;
                cr_assert_eq(shard->n, 1);
            }
            if (p->shape.rank != 2) continue;
            const int64_t bytes = shard->n * (int64_t)sizeof(float);
            cr_assert(bytes >= rules[r].least && bytes <= rules[r].most, "%s: %lld bytes", rules[r].text, (long long)bytes);
            n_kernels++;
        }
        cr_assert_eq(n_scalars, 1);
        cr_assert_eq(n_kernels, rules[r].n, "%s: %d shards", rules[r].text, n_kernels);
        strata_ps_plan_finish(&plan);
    }
    strata_model_destroy(model);
}

/* ---- stores, compared with one server that owns all parameters ---- */

typedef struct servers {
    strata_model *model;
    strata_ps_plan plan;
    strata_ps_stock *stores[4];
    /* (all_size) The initial values of the parameters. */
    float *values;
} servers;

static servers make_servers_with(const strata_ps_stock_options *opts, strata_optimizer optimizer, bool sparse,
                                 const char *partitioner, int n) {
    servers s = {.model = make_model(optimizer, sparse)};
    s.plan = make_plan(s.model, partitioner, n);
    s.values = calloc((size_t)strata_model_all_size(s.model), sizeof *s.values);
    OK(strata_model_read_all(s.model, s.values, &err));
    for (int i = 0; i < n; i++) {
        float *own = calloc((size_t)strata_ps_plan_elements(&s.plan, i), sizeof *own);
        OK(strata_ps_stock_create(s.model, &s.plan, i, device, opts, &s.stores[i], &err));
        for (int k = 0; k < s.plan.bundles[i].n_shards; k++) {
            const strata_ps_shard *shard = &s.plan.bundles[i].shards[k];
            memcpy(own + strata_ps_plan_value(&s.plan, shard, 0), s.values + shard->first, (size_t)shard->n * sizeof *own);
        }
        OK(strata_ps_stock_set(s.stores[i], own, 0, 0, &err));
        free(own);
    }
    return s;
}

static servers make_servers(strata_optimizer optimizer, bool sparse, const char *partitioner, int n, int n_shares) {
    return make_servers_with(&(strata_ps_stock_options){.n_shares = n_shares}, optimizer, sparse, partitioner, n);
}

static void destroy_servers(servers *s) {
    for (int i = 0; i < s->plan.n_servers; i++) strata_ps_stock_destroy(s->stores[i]);
    strata_ps_plan_finish(&s->plan);
    strata_model_destroy(s->model);
    free(s->values);
}

/* Element `element` of the gradients of a push, which `number` determines. Sparse tables get the gradients of three rows. */
static float gradient(int64_t element, int number) {
    return sinf((float)(element * 7 + number * 31)) * 0.5f;
}

static const int32_t used_rows[] = {1, 2, 9};

/* Pushes gradients to server i and returns the staleness with which it replies. */
static int64_t push(servers *s, int i, strata_ps_unit unit, int number, int64_t version) {
    const strata_ps_bundle *group = &s->plan.bundles[i];
    const strata_ps_shard *shards = group->shards;
    float *dense = calloc((size_t)group->dense_elements + 1, sizeof *dense), rows[4][3 * 4];
    int32_t ids[4][3];
    strata_ps_rows tables[4] = {0};
    int64_t staleness = 0;
    for (int k = 0; k < group->n_dense; k++)
        for (int64_t e = 0; e < shards[k].n; e++) dense[shards[k].before + e] = gradient(shards[k].first + e, number);
    for (int k = 0; k < group->n_tables; k++) {
        const strata_ps_shard *table = &shards[group->n_dense + k];
        tables[k] = (strata_ps_rows){0, ids[k], rows[k]};
        for (int r = 0; r < 3; r++) {
            const int64_t row = used_rows[r] - table->first_row;
            if (row < 0 || row >= table->n_rows) continue;
            ids[k][tables[k].n] = (int32_t)row;
            for (int e = 0; e < 4; e++) rows[k][tables[k].n * 4 + e] = gradient(table->first + row * 4 + e, number);
            tables[k].n++;
        }
    }
    const strata_ps_gradients g = {
        .unit = unit, .version = version, .rate = STRATA_SCHEDULED_RATE, .dense = dense, .tables = tables};
    OK(strata_ps_stock_push(s->stores[i], &g, &staleness, &err));
    free(dense);
    return staleness;
}

/* Returns the servers' values of all parameters (all_size). */
static float *fetch(servers *s) {
    float *values = calloc((size_t)strata_model_all_size(s->model), sizeof *values);
    for (int i = 0; i < s->plan.n_servers; i++) {
        float *own = calloc((size_t)strata_ps_plan_elements(&s->plan, i), sizeof *own);
        int64_t t = 0;
        OK(strata_ps_stock_get(s->stores[i], own, &t, &err));
        for (int k = 0; k < s->plan.bundles[i].n_shards; k++) {
            const strata_ps_shard *shard = &s->plan.bundles[i].shards[k];
            memcpy(values + shard->first, own + strata_ps_plan_value(&s->plan, shard, 0), (size_t)shard->n * sizeof *own);
        }
        free(own);
    }
    return values;
}

static void assert_same_bits(servers *a, servers *b) {
    float *x = fetch(a), *y = fetch(b);
    cr_assert_arr_eq(x, y, (size_t)strata_model_all_size(a->model) * sizeof *x);
    cr_assert(memcmp(x, a->values, (size_t)strata_model_all_size(a->model) * sizeof *x) != 0, "nothing was updated");
    free(x);
    free(y);
}

Test(ps_store, shards_on_any_number_of_servers_have_the_bits_of_one) {
    const strata_optimizer optimizers[] = {strata_sgd_optimizer(0.1, 0.9, true),
                                           strata_adam_optimizer(0.01),
                                           {.name = "adagrad", .clip_value = 0.2},
                                           {.name = "rmsprop"}};
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        servers one = make_servers(optimizers[o], true, NULL, 1, 0), three = make_servers(optimizers[o], true, "fixed:3", 3, 0);
        for (int k = 0; k < 4; k++) {
            push(&one, 0, (strata_ps_unit){0, k, 0}, k, k);
            for (int i = 0; i < 3; i++) push(&three, i, (strata_ps_unit){0, k, 0}, k, k);
        }
        assert_same_bits(&one, &three);
        destroy_servers(&one);
        destroy_servers(&three);
    }
}

Test(ps_store, batches_with_a_number_that_cannot_be_are_refused) {
    static const int64_t wrong[] = {-1, -9, INT64_MIN, INT64_MAX};
    servers s = make_servers(strata_adam_optimizer(0), false, NULL, 1, 0);
    push(&s, 0, (strata_ps_unit){0, 0, 0}, 0, 0); /* the store has marks for applied units from now on */
    float *before = fetch(&s), *dense = calloc((size_t)s.plan.bundles[0].dense_elements + 1, sizeof *dense);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const strata_ps_gradients g = {.unit = {0, wrong[i], 0}, .version = 1, .rate = STRATA_SCHEDULED_RATE, .dense = dense};
        int64_t staleness = 0;
        cr_assert_eq(strata_ps_stock_push(s.stores[0], &g, &staleness, &err), STRATA_INVALID, "batch %lld",
                     (long long)wrong[i]);
    }
    float *after = fetch(&s);
    cr_assert_arr_eq(before, after, (size_t)strata_model_all_size(s.model) * sizeof *after);
    free(before);
    free(after);
    free(dense);
    destroy_servers(&s);
}

Test(ps_store, a_unit_is_applied_once) {
    servers once = make_servers(strata_adam_optimizer(0), true, NULL, 1, 0);
    servers twice = make_servers(strata_adam_optimizer(0), true, NULL, 1, 0);
    for (int k = 0; k < 3; k++) cr_assert_eq(push(&once, 0, (strata_ps_unit){1, k, 0}, k, k), 0);
    for (int k = 0; k < 3; k++) {
        cr_assert_eq(push(&twice, 0, (strata_ps_unit){1, k, 0}, k, 0), k, "made with the first version");
        cr_assert_eq(push(&twice, 0, (strata_ps_unit){1, k, 0}, k + 9, 0), -1);
    }
    cr_assert_eq(push(&twice, 0, (strata_ps_unit){0, 7, 0}, 5, 0), -1, "of an epoch that is over");
    assert_same_bits(&once, &twice);
    destroy_servers(&once);
    destroy_servers(&twice);
}

static strata_ps_close close_of(int64_t index, uint8_t counted, double scale) {
    strata_ps_close close = {.epoch = 0, .index = index, .scale = scale, .rate = STRATA_SCHEDULED_RATE, .square = -1};
    close.counted[0] = counted;
    return close;
}

Test(ps_store, the_order_of_pushes_changes_no_bit_of_a_synchronous_step) {
    static const int orders[][3] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
    servers all[3];
    for (int o = 0; o < 3; o++) {
        all[o] = make_servers(strata_adam_optimizer(0), true, "fixed:2", 2, 3);
        for (int step = 0; step < 3; step++) {
            for (int i = 0; i < 2; i++) {
                const strata_ps_close close = close_of(step, 7, 1);
                for (int w = 0; w < 3; w++)
                    push(&all[o], i, (strata_ps_unit){0, step, orders[o][w]}, 10 * step + orders[o][w], step);
                OK(strata_ps_stock_close(all[o].stores[i], &close, &err));
                OK(strata_ps_stock_close(all[o].stores[i], &close, &err)); /* closing the step again changes nothing */
            }
        }
    }
    assert_same_bits(&all[0], &all[1]);
    assert_same_bits(&all[0], &all[2]);
    for (int o = 0; o < 3; o++) destroy_servers(&all[o]);
}

Test(ps_store, shares_that_are_late_do_not_count) {
    servers with = make_servers(strata_sgd_optimizer(0.1, 0, false), false, NULL, 1, 3);
    servers without = make_servers(strata_sgd_optimizer(0.1, 0, false), false, NULL, 1, 3);
    const strata_ps_close close = close_of(0, 5, 1.5);
    for (int w = 0; w < 3; w++) push(&with, 0, (strata_ps_unit){0, 0, w}, w, 0);
    push(&without, 0, (strata_ps_unit){0, 0, 0}, 0, 0);
    push(&without, 0, (strata_ps_unit){0, 0, 2}, 2, 0);
    OK(strata_ps_stock_close(with.stores[0], &close, &err));
    OK(strata_ps_stock_close(without.stores[0], &close, &err));
    cr_assert_eq(push(&without, 0, (strata_ps_unit){0, 0, 1}, 1, 0), -1);
    assert_same_bits(&with, &without);
    const strata_ps_shard *shard = &with.plan.shards[0];
    float *values = fetch(&with);
    for (int64_t e = 0; e < shard->n; e++) {
        const float sum = (gradient(shard->first + e, 0) + gradient(shard->first + e, 2)) * 1.5f;
        cr_assert_float_eq(values[shard->first + e], with.values[shard->first + e] - 0.1f * sum, 1e-6);
    }
    free(values);
    const strata_ps_close missing = close_of(1, 1, 1);
    cr_assert_eq(strata_ps_stock_close(with.stores[0], &missing, &err), STRATA_INTERNAL);
    destroy_servers(&with);
    destroy_servers(&without);
}

/* The sum over several servers must be the square of the norm on one server that owns everything, before and after a step
 * is closed. A step that gets this sum must make the update with clipped gradients. */
Test(ps_store, squares_of_all_servers_add_up_and_clip_the_step) {
    const strata_optimizer clipped = {.name = "sgd", .learning_rate = 0.1, .clip_global_norm = 0.5};
    servers one = make_servers(clipped, true, NULL, 1, 2), three = make_servers(clipped, true, "fixed:3", 3, 2);
    strata_ps_close close = close_of(0, 3, 1.25);
    double whole = 0, sum = 0, own = 0, expected = 0;
    cr_assert_eq(strata_ps_stock_square(one.stores[0], &close, &own, &err), STRATA_INTERNAL, "nothing was pushed");
    for (int w = 0; w < 2; w++) {
        push(&one, 0, (strata_ps_unit){0, 0, w}, w, 0);
        for (int i = 0; i < 3; i++) push(&three, i, (strata_ps_unit){0, 0, w}, w, 0);
    }
    OK(strata_ps_stock_square(one.stores[0], &close, &whole, &err));
    for (int i = 0; i < 3; i++) {
        OK(strata_ps_stock_square(three.stores[i], &close, &own, &err));
        sum += own;
    }
    cr_assert_float_eq(sum, whole, 1e-5 * whole);
    for (int i = 0; i < one.plan.n_shards; i++) {
        const strata_ps_shard *shard = &one.plan.shards[i];
        for (int64_t e = 0; e < shard->n; e++) {
            const int64_t row = e / shard->row;
            if (shard->kind == STRATA_SHARD_TABLE && row != 1 && row != 2 && row != 9) continue;
            const double g = (double)(gradient(shard->first + e, 0) + gradient(shard->first + e, 1)) * 1.25;
            expected += g * g;
        }
    }
    cr_assert_float_eq(whole, expected, 1e-5 * expected);
    cr_assert_gt(sqrt(whole), 0.5, "nothing would be clipped");
    close.square = whole;
    for (int i = 0; i < 3; i++) OK(strata_ps_stock_close(three.stores[i], &close, &err));
    OK(strata_ps_stock_square(three.stores[0], &close, &own, &err)); /* a slower server may request it again */
    cr_assert(strata_ps_stock_has_closed(three.stores[0], &close));
    const strata_ps_shard *shard = &three.plan.shards[0];
    float *values = fetch(&three);
    for (int64_t e = 0; e < shard->n; e++) {
        const double g = (double)(gradient(shard->first + e, 0) + gradient(shard->first + e, 1)) * 1.25 * 0.5 / sqrt(whole);
        cr_assert_float_eq(values[shard->first + e], three.values[shard->first + e] - 0.1f * (float)g, 1e-6);
    }
    free(values);
    close.index = 0, close.epoch = -1;
    cr_assert_eq(strata_ps_stock_square(three.stores[0], &close, &own, &err), STRATA_PEER_LOST, "a step that is long over");
    destroy_servers(&one);
    destroy_servers(&three);
}

Test(ps_store, a_pull_is_of_one_version) {
    servers s = make_servers(strata_sgd_optimizer(0.1, 0, false), true, NULL, 1, 0);
    const strata_ps_shard *table = &s.plan.shards[s.plan.bundles[0].n_dense];
    const int32_t ids[] = {9, 0};
    float rows[2][4];
    const strata_ps_rows ask = {2, ids, rows};
    const size_t bytes = (size_t)s.plan.bundles[0].dense_elements * sizeof(float);
    float *before = malloc(bytes + 64), *after = malloc(bytes + 64);
    int64_t version = -1;
    OK(strata_ps_stock_pull(s.stores[0], &ask, false, before, &version, &err));
    cr_assert_eq(version, 0);
    cr_assert_arr_eq(rows[0], s.values + table->first + 9 * 4, sizeof rows[0]);
    cr_assert_arr_eq(before, s.values + s.plan.shards[0].first, sizeof(float));
    push(&s, 0, (strata_ps_unit){0, 0, 0}, 0, 0);
    OK(strata_ps_stock_pull(s.stores[0], &ask, false, after, &version, &err));
    cr_assert_eq(version, 1);
    cr_assert_arr_eq(before, s.values + s.plan.shards[0].first, sizeof(float), "it changed after the pull");
    cr_assert_neq(memcmp(after, before, bytes), 0);
    for (int e = 0; e < 4; e++) {
        const int64_t place = table->first + 9 * 4 + e;
        cr_assert_float_eq(rows[0][e], s.values[place] - 0.1f * gradient(place, 0), 1e-6);
        cr_assert_eq(rows[1][e], s.values[table->first + e], "row 0 was not used");
    }
    const int32_t wrong = WORDS;
    const strata_ps_rows bad = {1, &wrong, rows};
    cr_assert_eq(strata_ps_stock_pull(s.stores[0], &bad, false, after, &version, &err), STRATA_INVALID);
    free(before);
    free(after);
    destroy_servers(&s);
}

/* ---- corrections for old gradients ---- */

/* The staleness that occurs with four workers. */
enum { DELAY = 3 };
static const strata_ps_stock_options corrects = {.staleness = DELAY};

static void assert_same_pulls(servers *plain, servers *corrected) {
    const size_t bytes = (size_t)plain->plan.bundles[0].dense_elements * sizeof(float);
    float *of_plain = malloc(bytes + 64), *of_corrected = malloc(bytes + 64);
    const strata_ps_rows none = {0};
    int64_t version = -1;
    OK(strata_ps_stock_pull(plain->stores[0], &none, false, of_plain, &version, &err));
    OK(strata_ps_stock_pull(corrected->stores[0], &none, true, of_corrected, &version, &err));
    cr_assert_arr_eq(of_plain, of_corrected, bytes);
    free(of_plain);
    free(of_corrected);
}

Test(ps_store, without_other_workers_or_momentum_a_correction_changes_no_bit) {
    static const strata_ps_stock_options alone = {.staleness = 0};
    const struct {
        strata_optimizer optimizer;
        const strata_ps_stock_options *opts;
    } cases[] = {{strata_sgd_optimizer(0.1, 0.9, true), &alone},
                 {strata_adam_optimizer(0.01), &alone},
                 {strata_sgd_optimizer(0.1, 0, false), &corrects},
                 {{.name = "adagrad", .learning_rate = 0.1}, &corrects}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        servers plain = make_servers(cases[c].optimizer, true, NULL, 1, 0);
        servers corrected = make_servers_with(cases[c].opts, cases[c].optimizer, true, NULL, 1);
        for (int k = 0; k < 4; k++) {
            push(&plain, 0, (strata_ps_unit){0, k, 0}, k, k);
            push(&corrected, 0, (strata_ps_unit){0, k, 0}, k, k);
            assert_same_pulls(&plain, &corrected);
        }
        assert_same_bits(&plain, &corrected);
        destroy_servers(&plain);
        destroy_servers(&corrected);
    }
}

/* Returns the value of an element after n updates with the gradients 0 to n - 1, computed by the formula of the optimizer
 * with this momentum and learning rate. */
static double updated(const char *name, double value, int64_t element, int n, double momentum, double rate) {
    double m = 0, v = 0;
    for (int k = 0; k < n; k++) {
        const double g = (double)gradient(element, k);
        if (!strcmp(name, "sgd")) {
            m = momentum * m + g;
            value -= rate * m;
        } else {
            m += (1 - momentum) * (g - m);
            v += (1 - 0.999) * (g * g - v);
            value -= rate * sqrt(1 - pow(0.999, k + 1)) / (1 - pow(momentum, k + 1)) * m / (sqrt(v) + 1e-7);
        }
    }
    return value;
}

Test(ps_store, momentum_of_four_workers_lasts_four_times_as_many_updates) {
    const strata_optimizer optimizers[] = {strata_sgd_optimizer(0.1, 0.9, false), strata_adam_optimizer(0.01)};
    const double slower = pow(0.9, 0.25), rates[][2] = {{0.1, 0.1 * (1 - slower) / (1 - 0.9)}, {0.01, 0.01}};
    enum { PUSHES = 6 };
    for (int o = 0; o < 2; o++) {
        servers s = make_servers_with(&corrects, optimizers[o], true, NULL, 1);
        for (int k = 0; k < PUSHES; k++) cr_assert_eq(push(&s, 0, (strata_ps_unit){0, k, 0}, k, 0), k);
        float *now = fetch(&s);
        for (int i = 0; i < s.plan.n_shards; i++) {
            const strata_ps_shard *shard = &s.plan.shards[i];
            const bool table = i >= s.plan.bundles[0].n_dense;
            for (int64_t e = 0; e < shard->n; e++) {
                const int64_t at = shard->first + e, row = table ? e / 4 : used_rows[0];
                const bool is_used = row == used_rows[0] || row == used_rows[1] || row == used_rows[2];
                const double expected = updated(optimizers[o].name, (double)s.values[at], at, is_used ? PUSHES : 0,
                                                table ? 0.9 : slower, rates[o][!table]);
                cr_assert_float_eq(now[at], expected, 1e-5, "%s: element %lld is %g, not %g", optimizers[o].name, (long long)at,
                                   (double)now[at], expected);
            }
        }
        free(now);
        destroy_servers(&s);
    }
}

/* Expects that a pull returns the dense shards of the server plus `by` times the last update. */
static void assert_ahead(servers *s, const float *before, double by) {
    const strata_ps_rows none = {0};
    const size_t bytes = (size_t)s->plan.bundles[0].dense_elements * sizeof(float);
    float *expected = malloc(bytes + 64), *now = malloc(bytes + 64);
    int64_t version = -1;
    OK(strata_ps_stock_pull(s->stores[0], &none, true, expected, &version, &err));
    OK(strata_ps_stock_pull(s->stores[0], &none, false, now, &version, &err));
    for (int i = 0; i < s->plan.n_shards; i++)
        for (int64_t e = 0; e < s->plan.shards[i].n; e++) {
            const double value = (double)now[s->plan.shards[i].before + e];
            const double moved = value - (double)before[s->plan.shards[i].first + e];
            cr_assert_float_eq(expected[s->plan.shards[i].before + e], value + by * moved, 2e-5);
        }
    free(expected);
    free(now);
}

Test(ps_store, a_pull_is_extrapolated_twice_as_far_as_momentum_will_move_the_parameters) {
    const strata_optimizer optimizers[] = {strata_sgd_optimizer(0.1, 0.9, false), strata_adam_optimizer(0.01)};
    const double slower = pow(0.9, 1.0 / (1 + DELAY));
    double by = 0;
    for (int k = 1; k <= DELAY; k++) by += 2 * pow(slower, k);
    for (int o = 0; o < 2; o++) {
        servers s = make_servers_with(&corrects, optimizers[o], false, NULL, 1);
        assert_ahead(&s, s.values, 0); /* before the first update */
        for (int k = 0; k < 5; k++) {
            float *before = fetch(&s);
            push(&s, 0, (strata_ps_unit){0, k, 0}, k, 0);
            assert_ahead(&s, before, by);
            free(before);
        }
        destroy_servers(&s);
    }
}

Test(ps_store, an_owner_and_its_copy_have_the_same_versions) {
    servers s = make_servers_with(&corrects, strata_adam_optimizer(0.01), false, NULL, 1);
    float *values = calloc((size_t)strata_ps_plan_elements(&s.plan, 0), sizeof *values);
    int64_t t = -1;
    push(&s, 0, (strata_ps_unit){0, 0, 0}, 0, 0);
    OK(strata_ps_stock_get(s.stores[0], values, &t, &err));
    servers copy = make_servers_with(&corrects, strata_adam_optimizer(0.01), false, NULL, 1);
    OK(strata_ps_stock_set(copy.stores[0], values, t, 1, &err));
    for (int k = 0; k < 3; k++) {
        cr_assert_eq(push(&s, 0, (strata_ps_unit){1, k, 0}, k, 1), k);
        cr_assert_eq(push(&copy, 0, (strata_ps_unit){1, k, 0}, k, 1), k);
    }
    assert_same_bits(&s, &copy);
    free(values);
    destroy_servers(&s);
    destroy_servers(&copy);
}

/* ---- pace ---- */

static strata_ps_pace *make_pace(strata_pace kind, int64_t staleness, int n_workers, int backup) {
    const strata_ps_pace_options opts = {.pace = kind,
                                         .staleness = staleness,
                                         .n_shares = kind == STRATA_PACE_SYNCHRONOUS ? n_workers : 0,
                                         .backup = backup,
                                         .n_workers = n_workers};
    strata_ps_pace *pace = NULL;
    OK(strata_ps_pace_create(&opts, &pace, &err));
    for (int w = 0; w < n_workers; w++) strata_ps_pace_join(pace, w);
    return pace;
}

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Simulates workers that request steps, finish them, are lost and come back at random. Every batch must be counted once.
 * Returns by how many steps a worker was ahead of the slowest one at most when it was granted a step. */
static int64_t play(strata_ps_pace *pace, int n_workers, int n_steps, int n_shares, uint32_t seed, bool lose) {
    strata_ps_unit held[4][4];
    int n_held[4] = {0}, *counted = calloc((size_t)(n_steps * (n_shares ? n_shares : 1)), sizeof *counted);
    int64_t most = 0;
    strata_ps_pace_begin(pace, 3, 0, n_steps);
    for (int turn = 0; !strata_ps_pace_ended(pace); turn++) {
        cr_assert_lt(turn, 1000000, "nobody gets on");
        const int w = (int)(next_random(&seed) % (uint32_t)n_workers);
        const bool there = strata_ps_pace_clock(pace, w) >= 0;
        if (lose && next_random(&seed) % 50 == 0) {
            if (there)
                cr_assert_eq(strata_ps_pace_lose(pace, w), n_held[w]);
            else
                strata_ps_pace_join(pace, w);
            n_held[w] = 0;
        } else if (there && n_held[w] < 2 && next_random(&seed) % 2) {
            if (strata_ps_pace_ask(pace, w, &held[w][n_held[w]]) != STRATA_PS_GRANTED) continue;
            n_held[w]++;
            int64_t slowest = INT64_MAX;
            for (int v = 0; v < n_workers; v++)
                if (strata_ps_pace_clock(pace, v) >= 0 && strata_ps_pace_clock(pace, v) < slowest)
                    slowest = strata_ps_pace_clock(pace, v);
            const int64_t ahead = strata_ps_pace_started(pace, w) - 1 - slowest;
            most = ahead > most ? ahead : most;
        } else if (there && n_held[w] && (w != 0 || next_random(&seed) % 10 == 0)) { /* worker 0 is slow */
            const strata_ps_unit unit = held[w][0];
            held[w][0] = held[w][1];
            n_held[w]--;
            const strata_ps_finished done = strata_ps_pace_finish(pace, w, &unit, false);
            if (done != STRATA_PS_TOO_LATE) counted[unit.index * (n_shares ? n_shares : 1) + unit.share]++;
        }
    }
    cr_assert_eq(strata_ps_pace_steps(pace), n_steps);
    for (int i = 0; i < n_steps * (n_shares ? n_shares : 1); i++)
        cr_assert_eq(counted[i], 1, "unit %d: %d times", i, counted[i]);
    free(counted);
    return most;
}

Test(parameter_server, every_batch_counts_once_whoever_is_lost) {
    for (uint32_t seed = 0; seed < 20; seed++) {
        strata_ps_pace *asynchronous = make_pace(STRATA_PACE_ASYNCHRONOUS, 0, 4, 0);
        strata_ps_pace *together = make_pace(STRATA_PACE_SYNCHRONOUS, 0, 4, 0);
        play(asynchronous, 4, 200, 0, seed, true);
        play(together, 4, 60, 4, seed, true);
        strata_ps_pace_destroy(asynchronous);
        strata_ps_pace_destroy(together);
    }
}

Test(parameter_server, nobody_is_more_than_the_staleness_ahead_of_the_slowest) {
    for (int64_t staleness = 1; staleness <= 5; staleness++) {
        int64_t most = 0;
        for (uint32_t seed = 0; seed < 20; seed++) {
            strata_ps_pace *pace = make_pace(STRATA_PACE_BOUNDED, staleness, 4, 0);
            const int64_t ahead = play(pace, 4, 300, 0, seed, seed % 2);
            most = ahead > most ? ahead : most;
            strata_ps_pace_destroy(pace);
        }
        cr_assert_eq(most, staleness, "%lld steps ahead at most, %lld are allowed", (long long)most, (long long)staleness);
    }
}

Test(parameter_server, a_worker_without_bound_leaves_the_slowest_behind) {
    strata_ps_pace *pace = make_pace(STRATA_PACE_ASYNCHRONOUS, 0, 4, 0);
    cr_assert_gt(play(pace, 4, 300, 0, 1, false), 10);
    strata_ps_pace_destroy(pace);
}

Test(parameter_server, a_step_ends_without_its_backup_workers) {
    strata_ps_pace *pace = make_pace(STRATA_PACE_SYNCHRONOUS, 0, 3, 1);
    strata_ps_unit units[3], more;
    strata_ps_close close;
    strata_ps_pace_begin(pace, 0, 0, 2);
    for (int w = 0; w < 3; w++) cr_assert_eq(strata_ps_pace_ask(pace, w, &units[w]), STRATA_PS_GRANTED);
    cr_assert_eq(strata_ps_pace_finish(pace, 2, &units[2], false), STRATA_PS_COUNTS);
    cr_assert_eq(strata_ps_pace_ask(pace, 2, &more), STRATA_PS_WAIT);
    cr_assert_not(strata_ps_pace_closed(pace, &close));
    cr_assert_eq(strata_ps_pace_finish(pace, 0, &units[0], false), STRATA_PS_ENDS_STEP);
    cr_assert(strata_ps_pace_closed(pace, &close));
    cr_assert_eq(close.counted[0], 5);
    cr_assert_eq(strata_ps_pace_ask(pace, 2, &more), STRATA_PS_GRANTED);
    cr_assert_eq(more.index, 1);
    cr_assert_eq(more.share, 2);
    cr_assert_eq(strata_ps_pace_finish(pace, 1, &units[1], false), STRATA_PS_TOO_LATE);
    strata_ps_pace_destroy(pace);
}

Test(parameter_server, a_stop_ends_the_step_that_began) {
    strata_ps_pace *pace = make_pace(STRATA_PACE_SYNCHRONOUS, 0, 2, 0);
    strata_ps_unit first, second, more;
    strata_ps_pace_begin(pace, 0, 0, 9);
    cr_assert_eq(strata_ps_pace_ask(pace, 0, &first), STRATA_PS_GRANTED);
    strata_ps_pace_stop(pace, true);
    cr_assert_not(strata_ps_pace_ended(pace));
    cr_assert_eq(strata_ps_pace_ask(pace, 1, &second), STRATA_PS_GRANTED);
    strata_ps_pace_finish(pace, 0, &first, false);
    strata_ps_pace_finish(pace, 1, &second, false);
    cr_assert(strata_ps_pace_ended(pace));
    cr_assert_eq(strata_ps_pace_ask(pace, 0, &more), STRATA_PS_NONE_LEFT);
    cr_assert_eq(strata_ps_pace_steps(pace), 1);
    strata_ps_pace_destroy(pace);
}

/* ---- options ---- */

static void assert_refused(strata_parameter_server_options options, strata_strategy_options more, const char *says) {
    strata_strategy *strategy = NULL;
    more.parameter_server = &options;
    cr_assert_eq(strata_strategy_create("parameter_server", &more, &strategy, &err), STRATA_INVALID, "%s is taken", says);
    cr_assert_not_null(strstr(err.message, says), "\"%s\" is not in: %s", says, err.message);
}

Test(parameter_server, options_that_do_not_fit_are_refused) {
    const strata_strategy_options none = {0};
    const char *cluster = "chief=a:1;worker=b:1,c:1;ps=d:1", *workers = "worker=b:1,c:1", *no_ps = "chief=a:1;worker=b:1";
    assert_refused((strata_parameter_server_options){.cluster = workers, .task = "worker:0"}, none,
                   "0 chief, 2 workers and 0 ps");
    assert_refused((strata_parameter_server_options){.cluster = no_ps, .task = "worker:0"}, none, "at least one ps");
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .staleness = -1}, none,
                   "staleness is -1");
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .pace = STRATA_PACE_BOUNDED}, none,
                   "staleness is 0");
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .backup = 1}, none, "backup is 1");
    assert_refused(
        (strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .pace = STRATA_PACE_SYNCHRONOUS, .backup = 2},
        none, "backup is 2 with 2 workers");
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .old_gradients = 2}, none,
                   "old_gradients is 2");
    assert_refused(
        (strata_parameter_server_options){
            .cluster = cluster, .task = "ps:0", .pace = STRATA_PACE_SYNCHRONOUS, .old_gradients = STRATA_OLD_GRADIENTS_PLAIN},
        none, "no gradient is old");
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .partitioner = "halves"}, none,
                   "partitioner \"halves\"");
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0"},
                   (strata_strategy_options){.compress = STRATA_DTYPE_F16}, "compress");
    static const int64_t halves[] = {1, 1};
    static const struct {
        strata_strategy_options options;
        const char *says;
    } of_others[] = {{{.auto_split = true}, "a split"},
                     {{.split = halves, .n_split = 2}, "a split"},
                     {{.shard_optimizer = STRATA_SHARD_OPTIMIZER_YES}, "a sharded optimizer"},
                     {{.cross_device_ops = "ring"}, "cross-device ops"},
                     {{.tpu_address = "a:1"}, "a TPU address"}};
    for (size_t i = 0; i < sizeof of_others / sizeof *of_others; i++)
        assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0"}, of_others[i].options,
                       of_others[i].says);
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .replicas = 1}, none,
                   "the cluster has 1");
    assert_refused((strata_parameter_server_options){.cluster = cluster, .task = "ps:0", .replicas = 2}, none, "replicas is 2");
    strata_strategy *strategy = NULL;
    const strata_parameter_server_options options = {.cluster = cluster, .task = "ps:0"};
    const strata_strategy_options wrong = {.parameter_server = &options};
    cr_assert_eq(strata_strategy_create("mirrored", &wrong, &strategy, &err), STRATA_INVALID);
}
