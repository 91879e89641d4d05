/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates strategies by name: chooses, opens and closes their devices. Also divides batches among the replicas. */
#include <stdio.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/model/mesh_spec.h"
#include "core/model/zero.h"
#include "core/run/device.h"
#include "core/run/schedule.h"
#include "strategies/kinds.h"

static const strata_strategy_kind *const kinds[] = {
#define STRATA_STRATEGY(name) &strata_strategy_##name,
#include "strategies/strategies.def"
#undef STRATA_STRATEGY
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

const char *const strata_strategy_names[] = {
#define STRATA_STRATEGY(name) #name,
#include "strategies/strategies.def"
#undef STRATA_STRATEGY
    NULL};

static const strata_strategy_kind *kind_of(const char *name) {
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(strata_strategy_names[i], name)) return kinds[i];
    return NULL;
}

static bool spans_processes(const strata_strategy_kind *kind) {
    return kind->mesh == STRATA_MESH_OF_JOB || kind->mesh == STRATA_MESH_OF_SYSTEM;
}

bool strata_strategy_spans_processes(const char *name) {
    const strata_strategy_kind *kind = kind_of(name);
    return kind && spans_processes(kind);
}

bool strata_strategy_averages(const char *name) {
    const strata_strategy_kind *kind = kind_of(name);
    return kind && kind->average;
}

static strata_status find_kind(const char *name, const strata_strategy_kind **out_kind, strata_error *err) {
    *out_kind = kind_of(name);
    if (*out_kind) return STRATA_OK;
    const char *near = strata_nearest_name(name, strata_strategy_names, N_KINDS);
    if (near) return strata_fail(err, STRATA_INVALID, "there is no strategy \"%s\"; did you mean \"%s\"?", name, near);
    char names[256] = "";
    for (int i = 0; i < N_KINDS; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", strata_strategy_names[i]);
    return strata_fail(err, STRATA_INVALID, "there is no strategy \"%s\"; there are: %s", name, names);
}

/* ---- devices ---- */

static int find_device(const strata_strategy *strategy, const char *id) {
    for (int i = 0; i < strategy->n_devices; i++)
        if (!strcmp(strata_device_get_info(strategy->devices[i])->id, id)) return i;
    return -1;
}

static strata_status open_one(strata_strategy *strategy, const char *which, const strata_device_options *opts,
                              strata_error *err) {
    strata_device *device = NULL;
    STRATA_TRY(strata_device_open(which, opts, &device, err));
    const char *id = strata_device_get_info(device)->id;
    /* The host may be used by several replicas, for tests on a machine without a driver: each time that it is opened, it is a
     * separate device. */
    const bool several = strata_device_get_info(device)->device_class == STRATA_DEVICE_HOST;
    if (!several && find_device(strategy, id) >= 0) {
        strata_status status =
            strata_fail(err, STRATA_INVALID, "strategy %s: device %s is named twice (\"%s\")", strategy->name, id, which);
        strata_device_close(device);
        return status;
    }
    strategy->devices[strategy->n_devices++] = device;
    strategy->n_replicas++;
    return STRATA_OK;
}

static strata_status open_all(strata_strategy *strategy, const char *const *which, int n, const strata_device_options *opts,
                              strata_error *err) {
    strategy->devices = calloc((size_t)n + 1, sizeof(*strategy->devices)); /* one more, which stores the parameters */
    if (!strategy->devices) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d devices", n);
    for (int i = 0; i < n; i++) STRATA_TRY(open_one(strategy, which[i], opts, err));
    return STRATA_OK;
}

/* Opens the device that stores the parameters: the device of a replica, or another one. */
static strata_status open_parameter_device(strata_strategy *strategy, const char *which, const strata_device_options *opts,
                                           strata_error *err) {
    strata_device *device = NULL;
    strata_status status = strata_device_open(which ? which : "host", opts, &device, err);
    if (status) return strata_fail_in(err, status, "strategy %s: the parameter device", strategy->name);
    const int own = find_device(strategy, strata_device_get_info(device)->id);
    strategy->update = strata_placement_at((strata_placement){0}, 0, own < 0 ? strategy->n_devices : own);
    if (own < 0)
        strategy->devices[strategy->n_devices++] = device;
    else
        strata_device_close(device);
    return STRATA_OK;
}

static bool has_several_kinds(const strata_strategy *strategy) {
    const strata_device_info *first = strata_device_get_info(strategy->devices[0]);
    for (int i = 1; i < strategy->n_replicas; i++) {
        const strata_device_info *other = strata_device_get_info(strategy->devices[i]);
        if (strcmp(first->backend, other->backend) || strcmp(first->name, other->name) || strcmp(first->driver, other->driver))
            return true;
    }
    return false;
}

/* Devices of one kind round in the same way: each of them updates its own copy of the variables, and the copies keep the same
 * bits. Devices of different kinds may round differently (a square root, or a multiply-add that only one of them rounds once),
 * so one of them makes the updates for all. */
static strata_placement place_update(const strata_strategy *strategy) {
    return has_several_kinds(strategy) ? strata_placement_at((strata_placement){0}, 0, 0) : (strata_placement){0};
}

/* Under a mesh every device updates its parts. If the devices are of several kinds, the copies of a part become those of the
 * first of them. */
static strata_placement update_of_mesh(const strata_strategy *strategy) {
    strata_placement update = {0};
    const bool mixed = strategy->workers.mixed || has_several_kinds(strategy);
    for (int a = 0; a < strategy->mesh.n_axes && mixed; a++)
        if (strategy->mesh.axes[a].size > 1) update.own |= 1u << a;
    return update;
}

/* As strata_strategy_join, where the devices of all workers make updates. */
static strata_status join_mesh(strata_strategy *strategy, strata_communicator *communicator, strata_error *err) {
    STRATA_TRY(strata_strategy_join(strategy, communicator, err));
    int32_t mixed = strategy->workers.mixed || has_several_kinds(strategy);
    STRATA_TRY(strata_communicator_all_reduce(communicator, &mixed, 1, STRATA_DTYPE_I32, STRATA_REDUCER_MAX, err));
    strategy->workers.mixed = mixed != 0;
    return STRATA_OK;
}

/* The devices of a worker are all those of some coordinates of data, or are at one coordinate of it. */
static strata_status check_rows(const strata_strategy *strategy, strata_error *err) {
    const strata_mesh *mesh = &strategy->mesh;
    const int row = strata_mesh_n_devices(mesh) / mesh->axes[STRATA_DATA_AXIS].size, *firsts = strategy->workers.first_replicas;
    for (int w = 0; strata_strategy_has_workers(strategy) && w < strategy->workers.n; w++) {
        const int first = firsts[w], end = firsts[w + 1];
        if ((first % row == 0 && end % row == 0) || first / row == (end - 1) / row) continue;
        return strata_fail(
            err, STRATA_INVALID,
            "strategy %s: mesh %s has %d devices at each coordinate of data, and worker %d has devices %d to %d; "
            "give each worker a multiple of %d devices, or a number that divides %d",
            strategy->name, strata_mesh_text(mesh).text, row, w, first, end - 1, row, row);
    }
    return STRATA_OK;
}

/* Sets the mesh, whose axes are always in the same order. */
static strata_status set_mesh(strata_strategy *strategy, const strata_strategy_options *opts, strata_error *err) {
    char alone[32];
    const int n = strata_strategy_has_workers(strategy) ? strategy->workers.n_replicas : strategy->n_devices;
    snprintf(alone, sizeof alone, "stage=%d", n);
    STRATA_TRY(strata_mesh_read_all(opts->mesh ? opts->mesh : alone, n, &strategy->mesh, err));
    STRATA_TRY(check_rows(strategy, err));
    strategy->microbatches = opts->microbatches ? opts->microbatches : 1;
    strategy->zero = opts->zero;
    if (opts->zero < 0 || opts->zero > STRATA_ZERO_MOST_LEVEL)
        return strata_fail(err, STRATA_INVALID, "strategy %s: zero is %d; it must be 0 to %d", strategy->name, opts->zero,
                           STRATA_ZERO_MOST_LEVEL);
    if (opts->microbatches < 0 || opts->microbatches > STRATA_PIPELINE_MOST_MICROBATCHES)
        return strata_fail(err, STRATA_INVALID, "strategy %s: microbatches is %d; it must be 1 to %d", strategy->name,
                           opts->microbatches, STRATA_PIPELINE_MOST_MICROBATCHES);
    if (opts->layout && !(strategy->layout = strdup(opts->layout)))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for a layout");
    if (!(strategy->schedule = strdup(opts->schedule ? opts->schedule : "1f1b")))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for a schedule");
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL; /* whether there is one of this name */
    STRATA_TRY(strata_pipeline_schedule_create(strategy->schedule, strategy->mesh.axes[STRATA_STAGE_AXIS].size,
                                               strategy->microbatches, &schedule, err));
    if (schedule->n_chunks == schedule->n_stages) return STRATA_OK;
    return strata_fail(err, STRATA_UNSUPPORTED,
                       "strategy %s: schedule %s has several parts of the model at each stage, which devices do not run yet; "
                       "take gpipe, 1f1b or zero_bubble",
                       strategy->name, strategy->schedule);
}

static strata_status set_split(strata_strategy *strategy, const strata_strategy_options *opts, strata_error *err) {
    const int64_t most = 1000000;
    const int n = strategy->n_replicas;
    if (!opts->split && !opts->auto_split) return STRATA_OK;
    if (opts->split && opts->n_split != n)
        return strata_fail(err, STRATA_INVALID, "strategy %s: the split has %d parts, there are %d replicas", strategy->name,
                           opts->n_split, n);
    strategy->weights = calloc((size_t)n, sizeof *strategy->weights);
    if (!strategy->weights) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d weights", n);
    strategy->auto_split = opts->auto_split;
    for (int i = 0; i < n; i++) {
        strategy->weights[i] = opts->split ? opts->split[i] : 1;
        if (strategy->weights[i] < 1 || strategy->weights[i] > most)
            return strata_fail(err, STRATA_INVALID, "strategy %s: part %d of the split is %lld; it must be 1..%lld",
                               strategy->name, i, (long long)strategy->weights[i], (long long)most);
    }
    return STRATA_OK;
}

const char *strata_strategy_name_of(const strata_strategy_kind *kind, int n) {
    if (kind != &strata_strategy_auto || !n) return kind->name;
    return n > 1 ? strata_strategy_mirrored.name : strata_strategy_one_device.name;
}

/* Chooses and opens devices by the rule of the kind. */
static strata_status choose(strata_strategy *strategy, const strata_strategy_kind *kind, const strata_strategy_options *opts,
                            char reason[128], strata_error *err) {
    strata_device_info *rows = NULL;
    int n_rows = 0;
    strata_device_choice choice = {0};
    STRATA_TRY(strata_devices_list(&rows, &n_rows, err));
    choice.ids = calloc((size_t)n_rows + 1, sizeof(*choice.ids));
    strata_status status =
        choice.ids ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d devices", n_rows);
    if (!status) status = (kind->choose ? kind->choose : strata_choose_accelerators)(rows, n_rows, &choice, err);
    strategy->name = strata_strategy_name_of(kind, choice.n);
    if (!status && kind->mesh == STRATA_MESH_OF_JOB) strata_choice_divide(&choice, opts->local_rank, opts->local_size);
    if (!status) status = open_all(strategy, choice.ids, choice.n, opts->device_options, err);
    memcpy(reason, choice.reason, sizeof choice.reason);
    free(choice.ids);
    strata_devices_free(rows);
    return status;
}

static void describe(strata_strategy *strategy, const char *reason) {
    char *text = strategy->choice;
    const size_t size = sizeof strategy->choice;
    size_t used = (size_t)snprintf(text, size, "%s on ", strategy->name);
    for (int i = 0; i < strategy->n_replicas && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", strata_device_get_info(strategy->devices[i])->id);
    if (strategy->update.at && used < size)
        used += (size_t)snprintf(text + used, size - used, ", updated on %s",
                                 strata_device_get_info(strategy->devices[strata_strategy_root(strategy)])->id);
    if (strategy->average && used < size)
        used += (size_t)snprintf(text + used, size - used, ", averaged after every %lld steps", (long long)strategy->every);
    if (strategy->workers.n > 1 && used < size)
        used += (size_t)snprintf(text + used, size - used, ", worker %d of %d%s", strategy->workers.rank, strategy->workers.n,
                                 strategy->workers.mixed ? " (of several kinds: the chief's update counts)" : "");
    if (strategy->trainer && used < size)
        used += (size_t)snprintf(text + used, size - used, ", %s", strata_parameter_server_role(strategy));
    if (used < size) used += (size_t)snprintf(text + used, size - used, ": %s", reason);
    if (strategy->cores.n > 1 && used < size) snprintf(text + used, size - used, ", which add up by themselves");
}

/* Stores each device's replica and worker; they are shown with the values that its programs print. */
static void name_places(strata_strategy *strategy) {
    const strata_workers *workers = &strategy->workers;
    char worker[24] = "";
    if (strategy->trainer && workers->rank)
        snprintf(worker, sizeof worker, "worker %d", workers->rank - 1);
    else if (strategy->trainer)
        snprintf(worker, sizeof worker, "chief");
    else if (workers->n > 1)
        snprintf(worker, sizeof worker, "worker %d", workers->rank);
    for (int r = 0; r < strategy->n_replicas; r++) {
        char *place = strategy->devices[r]->place;
        const size_t size = sizeof strategy->devices[r]->place;
        if (strategy->n_replicas > 1)
            snprintf(place, size, "%s%sreplica %d", worker, worker[0] ? ", " : "", workers->first_replica + r);
        else
            snprintf(place, size, "%s", worker);
    }
}

/* Packs (buckets) of gradients save time because they are sent while a device computes. If the same cores compute and send,
 * each pack only costs one more exchange, so all gradients are sent at once. This is so if the devices are the host's cores,
 * and there are no other workers, or more workers on this machine than cores. */
static int64_t default_bucket_bytes(const strata_strategy *strategy, int local_size) {
    for (int r = 0; r < strategy->n_devices; r++)
        if (strata_device_get_info(strategy->devices[r])->device_class > STRATA_DEVICE_CPU) return STRATA_DEFAULT_BUCKET_BYTES;
    const bool crowded = local_size > sysconf(_SC_NPROCESSORS_ONLN);
    return crowded || !(strata_strategy_has_workers(strategy) || strategy->trainer) ? INT64_MAX : STRATA_DEFAULT_BUCKET_BYTES;
}

/* Buckets for parameter servers are separate messages, so they are larger. */
static int64_t choose_bucket_bytes(const strata_strategy *strategy, const strata_strategy_options *opts) {
    enum { LEAST_FOR_SERVERS = 1 << 20 };
    const int64_t chosen = default_bucket_bytes(strategy, opts->local_size);
    if (opts->bytes_per_pack) return opts->bytes_per_pack;
    return strategy->trainer && chosen < LEAST_FOR_SERVERS ? LEAST_FOR_SERVERS : chosen;
}

/* Sets the size of buckets. Without the option all workers use the smallest of their choices, since they make the same
 * exchanges; the option is compared at the beginning of a fit (core/model/agree.c). */
static strata_status set_bucket_bytes(strata_strategy *strategy, const strata_strategy_options *opts, strata_error *err) {
    int64_t least = strategy->bucket_bytes = choose_bucket_bytes(strategy, opts);
    if (!strata_strategy_has_workers(strategy) || strategy->trainer) return STRATA_OK;
    STRATA_TRY(
        strata_communicator_all_reduce(strategy->workers.communicator, &least, 1, STRATA_DTYPE_I64, STRATA_REDUCER_MIN, err));
    if (!opts->bytes_per_pack) strategy->bucket_bytes = least;
    return STRATA_OK;
}

/* Checks `every`, and the options that only the exchange of gradients in each step has. */
static strata_status check_average(const strata_strategy_kind *kind, const strata_strategy_options *opts, strata_error *err) {
    if (opts->every && !kind->average)
        return strata_fail(err, STRATA_INVALID,
                           "strategy %s: every is %lld, but no parameters are averaged after some steps; local_sgd does this",
                           kind->name, (long long)opts->every);
    if (opts->every < 0)
        return strata_fail(err, STRATA_INVALID,
                           "strategy %s: every is %lld; it must be a number of steps from 1 on, or 0 for the default, %d",
                           kind->name, (long long)opts->every, STRATA_DEFAULT_EVERY);
    if (!kind->average) return STRATA_OK;
    const char *option = opts->shard_optimizer == STRATA_SHARD_OPTIMIZER_YES ? "shard_optimizer is YES"
                         : opts->compress                                    ? "compress is given"
                         : opts->bytes_per_pack > 0                          ? "bytes_per_pack is given"
                                                                             : NULL;
    if (!option) return STRATA_OK;
    return strata_fail(
        err, STRATA_INVALID,
        "strategy %s: %s, but no gradients are exchanged, since every replica makes updates of its own; leave the "
        "option out, or use mirrored or multi_worker_mirrored",
        kind->name, option);
}

static strata_status check_options(const strata_strategy_kind *kind, const strata_strategy_options *opts, int n,
                                   strata_error *err) {
    const bool tasks = kind->mesh == STRATA_MESH_OF_TASK, several = spans_processes(kind);
    if (kind->most_devices >= 0 && n > kind->most_devices)
        return strata_fail(err, STRATA_INVALID, "strategy %s takes %s; %d devices are named", kind->name,
                           kind->most_devices ? "one device" : "no device by name", n);
    if (!kind->update.own != !kind->average)
        return strata_fail(err, STRATA_INTERNAL,
                           "strategy %s: its update is %s, and it has %s; the replicas' own parameters have an average, others "
                           "have none",
                           kind->name, kind->update.own ? "each replica's own" : "that of all replicas",
                           kind->average ? "an average" : "no average");
    STRATA_TRY(check_average(kind, opts, err));
    const char *of_mesh = opts->mesh           ? "mesh"
                          : opts->layout       ? "layout"
                          : opts->schedule     ? "schedule"
                          : opts->microbatches ? "microbatches"
                          : opts->zero         ? "zero"
                                               : NULL;
    if (!kind->has_mesh && of_mesh)
        return strata_fail(err, STRATA_INVALID, "strategy %s has no %s; model_parallel has", kind->name, of_mesh);
    const char *of_copies = opts->split || opts->auto_split                       ? "split"
                            : opts->shard_optimizer == STRATA_SHARD_OPTIMIZER_YES ? "shard_optimizer"
                            : opts->compress                                      ? "compress"
                                                                                  : NULL;
    if (kind->has_mesh && of_copies)
        return strata_fail(err, STRATA_INVALID,
                           "strategy %s: %s is given, but the mesh divides examples equally, and a layout the parameters",
                           kind->name, of_copies);
    if (opts->parameter_device && !kind->update.at && !tasks)
        return strata_fail(err, STRATA_INVALID,
                           "strategy %s has no parameter device; central_storage and parameter_server have", kind->name);
    if (opts->parameter_server && !tasks)
        return strata_fail(err, STRATA_INVALID, "strategy %s has no parameter servers; parameter_server has", kind->name);
    if (tasks) return strata_parameter_server_check(opts, err);
    if (!several && opts->communicator)
        return strata_fail(
            err, STRATA_INVALID,
            "strategy %s trains on the devices of one process; strategies whose mesh is of a job or a system, such as "
            "multi_worker_mirrored, take a communicator",
            kind->name);
    if (kind->mesh != STRATA_MESH_OF_SYSTEM && opts->tpu_address)
        return strata_fail(err, STRATA_INVALID, "strategy %s has no TPU address; tpu has", kind->name);
    if (several && (opts->communicator || !kind->average) && (opts->split || opts->auto_split))
        return strata_fail(err, STRATA_INVALID, "strategy %s: a split is for the devices of one worker", kind->name);
    if (opts->compress && (!several || (opts->compress != STRATA_DTYPE_F16 && opts->compress != STRATA_DTYPE_BF16)))
        return strata_fail(err, STRATA_INVALID,
                           "strategy %s: compress is %s; multi_worker_mirrored and tpu can send gradients as f16 or bf16",
                           kind->name, strata_dtype_name(opts->compress));
    if (opts->local_size < 0 || opts->local_rank < 0 || (opts->local_rank && opts->local_rank >= opts->local_size))
        return strata_fail(err, STRATA_INVALID, "strategy %s: worker %d of %d on this machine; it must be 0 to local_size - 1",
                           kind->name, opts->local_rank, opts->local_size);
    if (opts->bytes_per_pack < 0)
        return strata_fail(err, STRATA_INVALID, "strategy %s: bytes_per_pack is %lld; it must be 0 (the default) or more",
                           kind->name, (long long)opts->bytes_per_pack);
    if ((unsigned)opts->shard_optimizer > STRATA_SHARD_OPTIMIZER_NO)
        return strata_fail(err, STRATA_INVALID, "strategy %s: shard_optimizer is %d; it is AUTO, YES or NO", kind->name,
                           (int)opts->shard_optimizer);
    return STRATA_OK;
}

/* If the caller opened the devices, strategy->devices has them; otherwise they are opened here. */
static strata_status create(strata_strategy *strategy, const strata_strategy_kind *kind, const strata_strategy_options *opts,
                            strata_error *err) {
    const int n = opts->devices ? opts->n_devices : 0;
    const bool given = strategy->n_devices > 0;
    char reason[128];
    snprintf(reason, sizeof reason, given ? "given" : "as asked for");
    strategy->name = strata_strategy_name_of(kind, n);
    STRATA_TRY(check_options(kind, opts, n, err));
    strategy->shard_optimizer = opts->shard_optimizer;
    STRATA_TRY(strata_cross_device_find(opts->cross_device_ops, &strategy->cross_device, err));
    if (kind->mesh == STRATA_MESH_OF_TASK) STRATA_TRY(strata_parameter_server_join(strategy, opts, err));
    const char *device = kind->mesh == STRATA_MESH_OF_TASK ? strata_parameter_server_device(strategy, opts) : NULL;
    if (device)
        STRATA_TRY(open_all(strategy, &device, 1, opts->device_options, err));
    else if (n)
        STRATA_TRY(open_all(strategy, opts->devices, n, opts->device_options, err));
    else if (!given)
        STRATA_TRY(choose(strategy, kind, opts, reason, err));
    if (kind->has_mesh && opts->communicator) STRATA_TRY(join_mesh(strategy, opts->communicator, err));
    if (kind->has_mesh) STRATA_TRY(set_mesh(strategy, opts, err));
    if (kind->mesh == STRATA_MESH_OF_SYSTEM) STRATA_TRY(strata_tpu_arrange(strategy, opts, n || given, reason, err));
    if (kind->update.at)
        STRATA_TRY(open_parameter_device(strategy, opts->parameter_device, opts->device_options, err));
    else
        strategy->update = kind->update.own ? kind->update : kind->has_mesh ? update_of_mesh(strategy) : place_update(strategy);
    strategy->average = kind->average;
    strategy->every = opts->every ? opts->every : STRATA_DEFAULT_EVERY;
    STRATA_TRY(set_split(strategy, opts, err));
    if (spans_processes(kind) && !kind->has_mesh && opts->communicator)
        STRATA_TRY(strata_strategy_join(strategy, opts->communicator, err));
    if (kind->average) strategy->workers.mixed = false; /* no worker's updates have to be those of another */
    if (!kind->has_mesh) STRATA_TRY(strata_strategy_find_cores(strategy, err));
    strategy->workers.wire = opts->compress;
    STRATA_TRY(set_bucket_bytes(strategy, opts, err));
    describe(strategy, reason);
    name_places(strategy);
    return STRATA_OK;
}

strata_status strata_strategy_create(const char *name, const strata_strategy_options *opts, strata_strategy **out_strategy,
                                     strata_error *err) {
    const strata_strategy_kind *kind = NULL;
    STRATA_TRY(find_kind(name ? name : "default", &kind, err));
    return strata_strategy_of_kind(kind, opts, out_strategy, err);
}

/* Completes the strategy, or destroys it on failure. */
static strata_status complete(strata_strategy *strategy, const strata_strategy_kind *kind, const strata_strategy_options *opts,
                              strata_strategy **out_strategy, strata_error *err) {
    strata_strategy_options own = opts ? *opts : (strata_strategy_options){0};
    strata_status status = STRATA_OK;
    if (spans_processes(kind) && !own.communicator) {
        status = strata_strategy_meet(kind, &own, err);
        strategy->joined = own.communicator;
    }
    if (!status) status = create(strategy, kind, &own, err);
    if (status)
        strata_strategy_destroy(strategy);
    else
        *out_strategy = strategy;
    return status;
}

strata_status strata_strategy_of_kind(const strata_strategy_kind *kind, const strata_strategy_options *opts,
                                      strata_strategy **out_strategy, strata_error *err) {
    strata_strategy *strategy = calloc(1, sizeof(strata_strategy));
    if (!strategy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory");
    return complete(strategy, kind, opts, out_strategy, err);
}

strata_status strata_strategy_of_devices(const strata_strategy_kind *kind, strata_device *const *devices, int n_devices,
                                         const strata_strategy_options *opts, strata_strategy **out_strategy,
                                         strata_error *err) {
    strata_strategy *strategy = n_devices > 0 ? calloc(1, sizeof(strata_strategy)) : NULL;
    /* one more for a parameter device */
    if (strategy) strategy->devices = calloc((size_t)n_devices + 1, sizeof(*strategy->devices));
    if (!strategy || !strategy->devices) {
        free(strategy);
        for (int i = 0; i < n_devices; i++) strata_device_close(devices[i]);
        if (n_devices < 1) return strata_fail(err, STRATA_INVALID, "strategy: %d devices; it needs at least one", n_devices);
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "strategy: no host memory for %d devices", n_devices);
    }
    memcpy(strategy->devices, devices, (size_t)n_devices * sizeof(*devices));
    strategy->n_devices = strategy->n_replicas = n_devices;
    return complete(strategy, kind, opts, out_strategy, err);
}

strata_status strata_strategy_from_devices(strata_device *const *devices, int n_devices, strata_strategy **out_strategy,
                                           strata_error *err) {
    return strata_strategy_of_devices(&strata_strategy_mirrored, devices, n_devices, NULL, out_strategy, err);
}

bool strata_strategy_is_chief(const strata_strategy *strategy) {
    return strategy->workers.rank == 0;
}

void strata_strategy_destroy(strata_strategy *strategy) {
    if (!strategy) return;
    while (strategy->owned) strategy->owned->destroy(strategy->owned->object);
    for (int i = 0; i < strategy->n_devices; i++) strata_device_close(strategy->devices[i]);
    free(strategy->devices);
    free(strategy->weights);
    free(strategy->cores.numbers);
    free(strategy->layout);
    free(strategy->schedule);
    free(strategy->workers.first_replicas);
    strata_communicator_destroy(strategy->joined);
    free(strategy);
}
