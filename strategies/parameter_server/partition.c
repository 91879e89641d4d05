/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides parameters into shards by TensorFlow's rules (tf.distribute.experimental.partitioners): only along the first axis,
 * and scalars stay whole. Shards are assigned to servers by bytes: the largest first, each to the server with the fewest bytes
 * so far. */
#include "strategies/parameter_server/partition.h"

#include <errno.h>

#include "core/base/alloc.h"

strata_status strata_partitioner_parse(const char *text, strata_partitioner *out_partitioner, strata_error *err) {
    static const struct {
        const char *name;
        strata_partitioner_kind kind;
    } kinds[] = {
        {"fixed:", STRATA_PARTITION_FIXED}, {"min_size:", STRATA_PARTITION_MIN_SIZE}, {"max_size:", STRATA_PARTITION_MAX_SIZE}};
    *out_partitioner = (strata_partitioner){0};
    if (!text || !strcmp(text, "none")) return STRATA_OK;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i].name);
        if (strncmp(text, kinds[i].name, n) != 0) continue;
        char *end = NULL;
        errno = 0;
        const long long amount = strtoll(text + n, &end, 10);
        const char *unit = kinds[i].kind == STRATA_PARTITION_FIXED || !*end ? NULL : strchr("KMG", *end);
        const int shift = unit ? 10 * (int)(1 + (unit - "KMG")) : 0;
        if (unit) end++;
        if (end == text + n || *end || errno || amount < 1 || amount > INT64_MAX >> (shift + 1)) break;
        *out_partitioner = (strata_partitioner){kinds[i].kind, (int64_t)amount << shift};
        return STRATA_OK;
    }
    return strata_fail(
        err, STRATA_INVALID,
        "partitioner \"%.60s\": it is fixed:N (shards), min_size:BYTES or max_size:BYTES (of a shard, as 256K or "
        "4M), or none",
        text);
}

static int64_t within(int64_t n, int64_t most) {
    return n < 1 ? 1 : n > most ? most : n;
}

int64_t strata_partitioner_count(const strata_partitioner *p, int64_t rows, int64_t row_bytes, int n_servers) {
    if (rows < 1) return 1;
    switch (p->kind) {
        case STRATA_PARTITION_FIXED:
            return within(p->amount, rows);
        case STRATA_PARTITION_MIN_SIZE: {
            const int64_t most = rows < n_servers ? rows : n_servers;
            return within(rows * row_bytes / p->amount, most);
        }
        case STRATA_PARTITION_MAX_SIZE: {
            const int64_t each = within(p->amount / (row_bytes ? row_bytes : 1), rows);
            return (rows + each - 1) / each;
        }
        default:
            return 1;
    }
}

void strata_partition_rows(int64_t rows, int64_t n, int64_t index, int64_t *out_first, int64_t *out_n) {
    const int64_t least = rows / n, larger = rows % n;
    *out_first = index * least + (index < larger ? index : larger);
    *out_n = least + (index < larger);
}

/* ---- the plan ---- */

static strata_status no_memory(strata_error *err) {
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "parameter_server: no host memory for the shards");
}

/* How many shards a parameter becomes; a scalar is not cut. */
static int64_t count_of(const strata_parameter_spec *p, const strata_partitioner *partitioner, int n_servers) {
    if (p->state || !p->shape.rank) return 1;
    const int64_t rows = p->shape.dims[0];
    const int64_t row_bytes = rows ? strata_shape_elements(p->shape) / rows * (int64_t)sizeof(float) : 0;
    return strata_partitioner_count(partitioner, rows, row_bytes, n_servers);
}

static strata_status check_cut(const strata_model *model, const strata_parameter_spec *p, int64_t n, strata_error *err) {
    const bool norms = model->optimizer_kind->whole_parameters;
    if (n < 2 || (!norms && !(model->optimizer.clip_norm > 0))) return STRATA_OK;
    return strata_fail(err, STRATA_INVALID,
                       "parameter_server: the partitioner cuts %s %s into %lld shards, and %s takes the norm of each whole "
                       "parameter; use another partitioner or another optimizer",
                       p->name, strata_shape_text(p->shape).text, (long long)n, norms ? model->optimizer.name : "clip_norm");
}

static strata_status cut(const strata_model *model, const strata_partitioner *partitioner, strata_ps_plan *plan,
                         strata_error *err) {
    int64_t n_all = 1;
    for (int i = 0; i < model->parameters.n; i++) n_all += count_of(&model->parameters.items[i], partitioner, plan->n_servers);
    if (n_all > 1 << 20)
        return strata_fail(err, STRATA_INVALID,
                           "parameter_server: the partitioner makes %lld shards; at most %d can be managed, so ask for larger "
                           "ones",
                           (long long)n_all, 1 << 20);
    plan->shards = calloc((size_t)n_all, sizeof *plan->shards);
    if (!plan->shards) return no_memory(err);
    for (int i = 0; i < model->parameters.n; i++) {
        const strata_parameter_spec *p = &model->parameters.items[i];
        if (p->state) continue;
        const int64_t n = count_of(p, partitioner, plan->n_servers), rows = p->shape.rank ? p->shape.dims[0] : 1;
        STRATA_TRY(check_cut(model, p, n, err));
        for (int64_t k = 0; k < n; k++) {
            strata_ps_shard *shard = &plan->shards[plan->n_shards++];
            *shard = (strata_ps_shard){.kind = p->sparse ? STRATA_SHARD_TABLE : STRATA_SHARD_DENSE,
                                       .parameter = i,
                                       .row = rows ? strata_shape_elements(p->shape) / rows : 0};
            strata_partition_rows(rows, n, k, &shard->first_row, &shard->n_rows);
            shard->first = strata_model_place(model, p) + shard->first_row * shard->row;
            shard->n = shard->n_rows * shard->row;
        }
    }
    const int64_t n_states = model->parameters.state_size;
    if (n_states)
        plan->shards[plan->n_shards++] = (strata_ps_shard){.kind = STRATA_SHARD_STATE,
                                                           .parameter = -1,
                                                           .n_rows = 1,
                                                           .row = n_states,
                                                           .first = model->parameters.flat_size,
                                                           .n = n_states};
    return STRATA_OK;
}

static int larger_first(const void *a, const void *b) {
    const strata_ps_shard *x = a, *y = b;
    if (x->n != y->n) return x->n < y->n ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

static int by_server(const void *a, const void *b) {
    const strata_ps_shard *x = a, *y = b;
    if (x->server != y->server) return x->server - y->server;
    if (x->kind != y->kind) return (int)x->kind - (int)y->kind;
    return (x->first > y->first) - (x->first < y->first);
}

/* Assigns each shard to the server that has the fewest elements so far; if several have as few, to the first of them. */
static strata_status place(strata_ps_plan *plan, strata_error *err) {
    STRATA_FREED int64_t *loads = calloc((size_t)plan->n_servers, sizeof *loads);
    if (!loads) return no_memory(err);
    qsort(plan->shards, (size_t)plan->n_shards, sizeof *plan->shards, larger_first);
    for (int i = 0; i < plan->n_shards; i++) {
        int least = 0;
        for (int s = 1; s < plan->n_servers; s++)
            if (loads[s] < loads[least]) least = s;
        plan->shards[i].server = least;
        loads[least] += plan->shards[i].n;
    }
    qsort(plan->shards, (size_t)plan->n_shards, sizeof *plan->shards, by_server);
    return STRATA_OK;
}

static void make_bundles(strata_ps_plan *plan) {
    for (int i = 0; i < plan->n_shards; i++) {
        strata_ps_shard *shard = &plan->shards[i];
        strata_ps_bundle *bundle = &plan->bundles[shard->server];
        int64_t *size = shard->kind == STRATA_SHARD_DENSE   ? &bundle->dense_elements
                        : shard->kind == STRATA_SHARD_TABLE ? &bundle->table_elements
                                                            : &bundle->n_states;
        shard->before = *size;
        *size += shard->n;
        if (!bundle->n_shards++) bundle->shards = shard;
        bundle->n_dense += shard->kind == STRATA_SHARD_DENSE;
        bundle->n_tables += shard->kind == STRATA_SHARD_TABLE;
        bundle->tables = bundle->shards + bundle->n_dense;
    }
}

static strata_status check_servers(const strata_ps_plan *plan, strata_error *err) {
    for (int s = 0; s < plan->n_servers; s++)
        if (!plan->bundles[s].n_shards)
            return strata_fail(
                err, STRATA_INVALID,
                "parameter_server: %d servers for %d shards, so ps:%d would own nothing; use fewer servers, or a "
                "partitioner that makes more shards (fixed:%d)",
                plan->n_servers, plan->n_shards, s, plan->n_servers);
    return STRATA_OK;
}

strata_status strata_ps_plan_make(const strata_model *model, const strata_partitioner *partitioner, int n_servers,
                                  strata_ps_plan *out_plan, strata_error *err) {
    strata_ps_plan *plan = out_plan;
    *plan = (strata_ps_plan){.n_servers = n_servers, .n_slots = strata_model_n_slots(model)};
    plan->bundles = calloc((size_t)n_servers, sizeof *plan->bundles);
    strata_status status = plan->bundles ? STRATA_OK : no_memory(err);
    if (!status) status = cut(model, partitioner, plan, err);
    if (!status) status = place(plan, err);
    if (!status) {
        make_bundles(plan);
        status = check_servers(plan, err);
    }
    if (status) strata_ps_plan_finish(plan);
    return status;
}

size_t strata_ps_plan_shared_bytes(const strata_ps_plan *plan) {
    enum { SPARE = 256 << 10, USUAL = 16 << 20, MOST = 128 << 20 };
    size_t most = 0;
    for (int s = 0; s < plan->n_servers; s++) {
        const int64_t n = plan->bundles[s].dense_elements + plan->bundles[s].table_elements + plan->bundles[s].n_states;
        if ((size_t)n * sizeof(float) > most) most = (size_t)n * sizeof(float);
    }
    const size_t one = most + most / 8 + SPARE, two = most + one;
    return two < USUAL ? two : one < USUAL || one > MOST ? USUAL : one;
}

void strata_ps_plan_finish(strata_ps_plan *plan) {
    free(plan->shards);
    free(plan->bundles);
    *plan = (strata_ps_plan){0};
}

int64_t strata_ps_plan_elements(const strata_ps_plan *plan, int server) {
    const strata_ps_bundle *bundle = &plan->bundles[server];
    return (bundle->dense_elements + bundle->table_elements) * (1 + plan->n_slots) + bundle->n_states;
}

int64_t strata_ps_plan_value(const strata_ps_plan *plan, const strata_ps_shard *shard, int slot) {
    const strata_ps_bundle *bundle = &plan->bundles[shard->server];
    const int64_t values = 1 + plan->n_slots, tables = bundle->dense_elements * values;
    switch (shard->kind) {
        case STRATA_SHARD_DENSE:
            return slot * bundle->dense_elements + shard->before;
        case STRATA_SHARD_TABLE:
            return tables + shard->before * values + slot * shard->n;
        default:
            return tables + bundle->table_elements * values;
    }
}
