/* SPDX-License-Identifier: Apache-2.0
 *
 * Data for the replicas: either a dataset's batches are divided among the replicas, or each replica gets its own batches from a
 * dataset that the user's function makes for its worker. */
#include "core/data/stage/stage.h"
#include "core/data/worker_batches.h"
#include "strategies/context.h"

enum { PARTS = 2, DEFAULT_BATCH = 32 };

struct strata_distributed_batches {
    strata_strategy *strategy;
    bool labels;
    strata_per_replica parts[PARTS]; /* features, labels; memory for the largest part so far */
    /* for a dataset that is divided among the replicas */
    strata_worker_batches *batches;             /* NULL: each worker has its own dataset */
    const strata_dataset *whole;                /* borrowed */
    strata_distributed_batches_options options; /* with the current epoch */
    strata_shape example[PARTS];
    strata_dtype dtypes[PARTS];
    /* for a worker's own dataset, which the user's function has made */
    strata_dataset *dataset;
    strata_iterator *iterator;
    strata_element *elements; /* [parts[0].n] */
    bool ended;
    /* The end of the epoch was already reported; the next batch is then the first one of the next epoch. */
    bool over;
    /* The workers have compared their data. */
    bool agreed;
    strata_owned owned;
};

static void destroy_owned(void *batches) {
    strata_distributed_batches_destroy(batches);
}

static strata_status make(strata_strategy *strategy, strata_distributed_batches **out, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("distributed batches", "make them before the run", err));
    strata_distributed_batches *d = calloc(1, sizeof *d);
    if (!d) return strata_fail(err, STRATA_OUT_OF_MEMORY, "distributed batches: no host memory");
    d->strategy = strategy;
    strata_strategy_own(strategy, &d->owned, destroy_owned, d);
    *out = d;
    for (int i = 0; i < PARTS; i++)
        STRATA_TRY(strata_per_replica_create(strata_strategy_n_functions(strategy), &d->parts[i], err));
    return STRATA_OK;
}

void strata_distributed_batches_destroy(strata_distributed_batches *d) {
    if (!d) return;
    strata_owned_forget(&d->owned);
    for (int r = 0; d->elements && r < d->parts[0].n; r++) strata_element_finish(&d->elements[r]);
    free(d->elements);
    for (int i = 0; i < PARTS; i++) strata_per_replica_finish(&d->parts[i]);
    strata_worker_batches_destroy(d->batches);
    strata_iterator_destroy(d->iterator);
    strata_dataset_destroy(d->dataset);
    free(d);
}

/* ---- a dataset that is divided ---- */

static strata_status open_divided(strata_distributed_batches *d, strata_error *err) {
    const strata_batches_options batches = {.batch = d->options.global_batch,
                                            .shuffle = d->options.shuffle,
                                            .seed = d->options.seed,
                                            .epoch = d->options.epoch,
                                            .n_inputs = 1,
                                            .inputs = {{0, d->example[0], 0}},
                                            .n_targets = d->labels,
                                            .targets = {{1, d->example[1], 0}}};
    return strata_worker_batches_create(d->strategy, d->whole, d->options.auto_shard, &batches, &d->batches, err);
}

static strata_status refuse_own_batches(const strata_strategy *strategy, strata_error *err) {
    return strata_fail(
        err, STRATA_UNSUPPORTED,
        "distributed batches: the workers of strategy %s compute parts of the same batches; let all read the same "
        "dataset, with auto_shard DATA",
        strategy->name);
}

static strata_status divide(strata_distributed_batches *d, const strata_dataset *dataset,
                            const strata_distributed_batches_options *opts, strata_error *err) {
    const int64_t batch = opts && opts->global_batch ? opts->global_batch : DEFAULT_BATCH;
    if (batch < 1)
        return strata_fail(err, STRATA_INVALID, "distributed batches: global_batch is %lld; it must be at least 1",
                           (long long)batch);
    STRATA_TRY(strata_batches_check_size(dataset, "distributed batches", err));
    const strata_element_spec spec = strata_dataset_element_spec(dataset);
    for (int i = 1; i < spec.n_parts; i++)
        if (strata_spec_role(&spec, i) == STRATA_PART_INPUT || (i > 1 && strata_spec_role(&spec, i) == STRATA_PART_TARGET))
            return strata_fail(
                err, STRATA_UNSUPPORTED,
                "distributed batches: the data have several inputs or targets, of which \"%s\" would be left out; "
                "strata_model_fit takes them all",
                spec.names[i]);
    d->labels = strata_dataset_has_labels(dataset);
    d->example[0] = strata_dataset_element_shape(dataset);
    d->dtypes[0] = strata_dataset_feature_dtype(dataset);
    if (d->labels) d->dtypes[1] = strata_dataset_label_dtype(dataset), d->example[1] = strata_dataset_label_shape(dataset);
    d->whole = dataset;
    if (opts) d->options = *opts;
    d->options.global_batch = batch;
    if (strata_strategy_mesh_has_workers(d->strategy)) {
        if (d->options.auto_shard != STRATA_SHARD_AUTO && d->options.auto_shard != STRATA_SHARD_DATA)
            return refuse_own_batches(d->strategy, err);
        d->options.auto_shard = STRATA_SHARD_DATA;
    }
    return open_divided(d, err);
}

strata_status strata_distributed_batches_create(strata_strategy *strategy, const strata_dataset *dataset,
                                                const strata_distributed_batches_options *opts,
                                                strata_distributed_batches **out_batches, strata_error *err) {
    strata_distributed_batches *d = NULL;
    strata_status status = make(strategy, &d, err);
    if (!status) status = divide(d, dataset, opts, err);
    if (status)
        strata_distributed_batches_destroy(d);
    else
        *out_batches = d;
    return status;
}

/* Makes room for n examples in a replica's part. */
static strata_status make_part(const strata_distributed_batches *d, int part, int replica, int64_t n, strata_error *err) {
    strata_array *array = &d->parts[part].arrays[replica];
    strata_shape shape = {.rank = d->example[part].rank + 1, .dims = {n}};
    memcpy(shape.dims + 1, d->example[part].dims, (size_t)d->example[part].rank * sizeof(int64_t));
    if (array->data && strata_shape_equal(array->shape, shape)) return STRATA_OK;
    strata_array_finish(array);
    return strata_array_create(d->dtypes[part], shape, array, err);
}

static strata_status next_divided(strata_distributed_batches *d, int64_t *out_n, strata_error *err) {
    strata_worker_step step;
    if (!d->agreed && strata_strategy_has_workers(d->strategy))
        STRATA_TRY(strata_batches_agree(d->strategy, d->whole, &d->options, err));
    d->agreed = true;
    STRATA_TRY(strata_worker_batches_next(d->batches, &step, err));
    *out_n = step.n;
    const bool has_mesh = strata_strategy_has_mesh(d->strategy); /* the function of each worker gets the whole batch */
    if (has_mesh) step.first = step.offset = 0;
    for (int i = 0; i < 2; i++) d->parts[i].n_rows = step.n, d->parts[i].first_row = step.first;
    for (int r = 0; r < d->parts[0].n && step.n; r++) {
        int64_t first = 0, n = step.n;
        if (!has_mesh) strata_strategy_local_share(d->strategy, step.own, r, &first, &n);
        STRATA_TRY(make_part(d, 0, r, n, err));
        if (d->labels) STRATA_TRY(make_part(d, 1, r, n, err));
        if (n)
            strata_batches_write(strata_worker_batches_batch(d->batches), step.offset + first, n, &d->parts[0].arrays[r].data,
                                 &d->parts[1].arrays[r].data);
    }
    return STRATA_OK;
}

/* ---- a worker's own dataset ---- */

strata_status strata_input_context_per_replica_batch(const strata_input_context *context, int64_t global_batch,
                                                     int64_t *out_batch, strata_error *err) {
    if (global_batch > 0 && global_batch % context->num_replicas_in_sync == 0) {
        *out_batch = global_batch / context->num_replicas_in_sync;
        return STRATA_OK;
    }
    return strata_fail(err, STRATA_INVALID, "a global batch of %lld does not divide among %d replicas", (long long)global_batch,
                       context->num_replicas_in_sync);
}

static strata_status open_made(strata_distributed_batches *d, strata_dataset_function function, void *user, uint64_t seed,
                               uint64_t epoch, strata_error *err) {
    const bool workers = strata_strategy_has_workers(d->strategy);
    if (strata_strategy_mesh_has_workers(d->strategy)) return refuse_own_batches(d->strategy, err);
    const strata_input_context context = {strata_strategy_num_workers(d->strategy), workers ? d->strategy->workers.rank : 0,
                                          strata_strategy_n_functions_in_sync(d->strategy)};
    STRATA_TRY(function(&context, user, &d->dataset, err));
    if (!strata_dataset_element_spec(d->dataset).is_batch)
        return strata_fail(err, STRATA_INVALID,
                           "distributed batches: the function's dataset gives single elements; end it with "
                           "strata_dataset_batch of a replica's batch");
    d->elements = calloc((size_t)d->parts[0].n, sizeof *d->elements);
    if (!d->elements) return strata_fail(err, STRATA_OUT_OF_MEMORY, "distributed batches: no host memory");
    d->labels = strata_dataset_element_spec(d->dataset).n_parts > 1;
    d->options.seed = seed;
    d->options.epoch = epoch;
    return strata_iterator_create(d->dataset, seed, epoch, 0, &d->iterator, err);
}

strata_status strata_distributed_batches_from_function(strata_strategy *strategy, strata_dataset_function function, void *user,
                                                       uint64_t seed, uint64_t epoch, strata_distributed_batches **out_batches,
                                                       strata_error *err) {
    strata_distributed_batches *d = NULL;
    strata_status status = make(strategy, &d, err);
    if (!status) status = open_made(d, function, user, seed, epoch, err);
    if (status)
        strata_distributed_batches_destroy(d);
    else
        *out_batches = d;
    return status;
}

/* An empty part with the dataset's dtype and shape; dimensions that vary have their smallest size. */
static strata_status make_empty(const strata_distributed_batches *d, int part, strata_array *out, strata_error *err) {
    const strata_element_spec spec = strata_dataset_element_spec(d->dataset);
    strata_shape shape = spec.parts[part].shape;
    shape.dims[0] = 0;
    for (int i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0) shape.dims[i] = 0;
    return strata_array_create(spec.parts[part].dtype, shape, out, err);
}

/* Reads a batch for each replica of this worker, as long as there are batches. */
static strata_status take_batches(strata_distributed_batches *d, int64_t *out_n, strata_error *err) {
    *out_n = 0;
    for (int r = 0; r < d->parts[0].n; r++) {
        strata_element *element = &d->elements[r];
        strata_element_finish(element);
        if (!d->ended) {
            bool more;
            STRATA_TRY(strata_iterator_next(d->iterator, element, &more, err));
            d->ended = !more;
        }
        for (int i = 0; i < 1 + d->labels; i++) {
            const strata_array *part = &element->parts[i];
            strata_array_finish(&d->parts[i].arrays[r]);
            if (d->ended)
                STRATA_TRY(make_empty(d, i, &d->parts[i].arrays[r], err));
            else
                d->parts[i].arrays[r] = strata_array_view(part->dtype, part->shape, part->data);
        }
        if (!d->ended) *out_n += element->parts[0].shape.dims[0];
    }
    return STRATA_OK;
}

/* The epoch ends when no worker has a batch. */
static strata_status next_made(strata_distributed_batches *d, int64_t *out_n, strata_error *err) {
    const strata_workers *workers = &d->strategy->workers;
    STRATA_TRY(take_batches(d, out_n, err));
    int64_t own = *out_n, first = 0;
    STRATA_FREED int64_t *all = NULL;
    STRATA_TRY(STRATA_NEW(all, workers->n, err, "distributed batches: no host memory"));
    if (strata_strategy_has_workers(d->strategy)) {
        STRATA_TRY(strata_workers_gather(workers, &own, all, sizeof own, err));
        *out_n = 0;
        for (int w = 0; w < workers->n; w++) *out_n += all[w], first += w < workers->rank ? all[w] : 0;
    }
    for (int i = 0; i < 2; i++) d->parts[i].n_rows = *out_n, d->parts[i].first_row = first;
    return STRATA_OK;
}

strata_status strata_distributed_batches_next(strata_distributed_batches *d, strata_per_replica values[2], int64_t *out_n,
                                              strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_batches_next", "give the function its inputs with the run", err));
    if (d->over) STRATA_TRY(strata_distributed_batches_set_epoch(d, d->options.epoch + 1, err));
    STRATA_TRY(d->batches ? next_divided(d, out_n, err) : next_made(d, out_n, err));
    d->over = !*out_n;
    for (int i = 0; i < 1 + d->labels; i++) values[i] = d->parts[i];
    return STRATA_OK;
}

strata_status strata_distributed_batches_set_epoch(strata_distributed_batches *d, uint64_t epoch, strata_error *err) {
    STRATA_TRY(strata_need_cross_replica("strata_distributed_batches_set_epoch", "begin epochs before the run", err));
    d->options.epoch = epoch;
    d->over = false;
    if (d->dataset) {
        strata_iterator *iterator = NULL;
        STRATA_TRY(strata_iterator_create(d->dataset, d->options.seed, epoch, 0, &iterator, err));
        strata_iterator_destroy(d->iterator);
        d->iterator = iterator;
        d->ended = false;
        return STRATA_OK;
    }
    strata_worker_batches *before = d->batches;
    d->batches = NULL;
    const strata_status status = open_divided(d, err);
    if (status)
        d->batches = before;
    else
        strata_worker_batches_destroy(before);
    return status;
}
