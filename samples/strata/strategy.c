/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads --strategy and its options, and opens the strategy. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "strata/cluster_spec.h"
#include "strata/formats.h"

enum { MOST = 4096, STRATEGY_NAME_BYTES = 64 }; /* the most devices of a list */

/* Divides the text at each separator, in place. Returns the number of pieces; -1 after a message. */
static int cut(const char *option, char *text, const char *separator, const char *pieces[MOST]) {
    int n = 0;
    for (char *rest = text, *piece; (piece = strsep(&rest, separator));) {
        if (!*piece || n == MOST) {
            usage_error("--%s: %s; it must be a list of 1 to %d parts with %s between them", option,
                        *piece ? "there are more" : "a part is empty", MOST, separator);
            return -1;
        }
        pieces[n++] = piece;
    }
    return n;
}

static int read_split(char *text, int64_t split[MOST]) {
    const char *pieces[MOST];
    const int n = cut("split", text, ":", pieces);
    for (int i = 0; i < n; i++) {
        char *end;
        errno = 0;
        split[i] = strtoll(pieces[i], &end, 10);
        if (*end || errno || split[i] < 1) {
            usage_error(
                "--split: \"%s\" is not a whole number of 1 or more; give a share for each device, for example 3:1, or auto",
                pieces[i]);
            return -1;
        }
    }
    return n;
}

int resolve_tasks(const strategy_flags *flags, strata_cluster_spec *out_spec) {
    strata_error err = {0};
    const strata_cluster_options cluster = {.cluster = flags->cluster, .task = flags->task};
    const strata_status status = strata_cluster_spec_resolve(&cluster, out_spec, &err);
    return status ? report(FAILING_USAGE, status, &err) : EXIT_OK;
}

int resolve_workers(const strategy_flags *flags, strata_cluster_spec *out_spec) {
    strata_error err = {0};
    const int code = resolve_tasks(flags, out_spec);
    if (code || out_spec->rank >= 0) return code;
    return report(FAILING_USAGE,
                  strata_fail(&err, STRATA_INVALID, "this task is %s %d; multi_worker_mirrored and tpu have chief and workers",
                              strata_task_type_name(out_spec->task_type), out_spec->task_index),
                  &err);
}

/* The value of an environment variable; NULL: it is not set, or empty. */
static const char *set_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool wants_tls(const strategy_flags *flags) {
    return flags->tls_cert || set_variable("STRATA_TLS_CERT");
}

/* Sets secret, TLS and time limits from the flags and the environment. */
static void choose_communication(const strategy_flags *flags, strata_communicator_options *opts) {
    const char *secret = getenv("STRATA_SECRET");
    opts->secret = secret;
    opts->secret_bytes = secret ? strlen(secret) : 0;
    opts->tls_cert = flags->tls_cert ? flags->tls_cert : set_variable("STRATA_TLS_CERT");
    opts->tls_key = flags->tls_key ? flags->tls_key : set_variable("STRATA_TLS_KEY");
    opts->tls_ca = flags->tls_ca ? flags->tls_ca : set_variable("STRATA_TLS_CA");
    opts->tls_name = flags->tls_name ? flags->tls_name : set_variable("STRATA_TLS_NAME");
    opts->interface = flags->interface;
    opts->insecure = flags->insecure;
    opts->connect_seconds = flags->wait_s;
    opts->heartbeat_seconds = flags->heartbeat_s;
    opts->stall_seconds = flags->stall_s;
}

int join_workers(const strategy_flags *flags, const strata_cluster_spec *spec, const strata_communicator_options *more,
                 strata_communicator **out_comm) {
    strata_error err = {0};
    strata_communicator_options opts = *more;
    opts.rank = spec->rank;
    opts.world = spec->world_size;
    opts.store = spec->rendezvous;
    const strata_cluster_job *own = &spec->jobs[spec->task_type];
    opts.address = own->addresses && spec->task_index < own->n_tasks ? own->addresses[spec->task_index] : NULL;
    choose_communication(flags, &opts);
    const strata_status status = strata_communicator_create(&opts, out_comm, &err);
    return status ? report(FAILING_USAGE, status, &err) : EXIT_OK;
}

/* Joins the workers that --cluster or the environment names, and passes the communicator to the strategy. alone: the strategy
 * also works with a single worker, and no workers are joined if none are named. */
static int find_and_join_workers(const strategy_flags *flags, bool alone, opened_strategy *opened,
                                 strata_strategy_options *opts) {
    strata_cluster_spec spec = {0};
    int code = resolve_workers(flags, &spec);
    opened->chief = spec.is_chief;
    if (!code && alone && spec.world_size == 1) {
        strata_cluster_spec_finish(&spec);
        return EXIT_OK;
    }
    if (!code && !strcmp(spec.source, "none"))
        fprintf(stderr, "strata: nothing names a cluster (--cluster, TF_CONFIG, a launcher): this is the only worker\n");
    const strata_communicator_options more = {.engine = flags->engine, .transport = flags->transport};
    if (!code) code = join_workers(flags, &spec, &more, &opened->communicator);
    opts->communicator = opened->communicator;
    opts->local_rank = spec.local_rank;
    opts->local_size = spec.local_size;
    strata_cluster_spec_finish(&spec);
    return code;
}

/* Combines --cluster-role ps with --task 0 or ps:0 to "ps:0", in `room`. */
static int read_task(const strategy_flags *flags, char *room, size_t bytes, const char **out_task) {
    const char *task = flags->task;
    *out_task = task;
    if (!flags->role) return EXIT_OK;
    const size_t n = strlen(flags->role);
    int type = 0;
    while (type < STRATA_TASK_TYPES && strcmp(flags->role, strata_task_type_name((strata_task_type)type)) != 0) type++;
    if (type == STRATA_TASK_TYPES)
        return usage_error("--cluster-role %s: it must be chief, worker, ps or evaluator", flags->role);
    if (task && strchr(task, ':') && (strncmp(task, flags->role, n) != 0 || task[n] != ':'))
        return usage_error("--cluster-role %s and --task %s name different roles", flags->role, task);
    if (task && strchr(task, ':')) return EXIT_OK;
    if ((size_t)snprintf(room, bytes, "%s:%s", flags->role, task ? task : "0") >= bytes)
        return usage_error("--task %s: it must be the number of the %s", task, flags->role);
    *out_task = room;
    return EXIT_OK;
}

/* Reads --staleness, --sync, --backup, --ps-replicas and --old-gradients. */
static int read_pace(const strategy_flags *flags, strata_parameter_server_options *servers) {
    servers->pace = flags->sync ? STRATA_PACE_SYNCHRONOUS : STRATA_PACE_ASYNCHRONOUS;
    servers->backup = (int)flags->backup;
    servers->replicas = (int)flags->ps_replicas;
    if (flags->staleness) {
        char *end;
        errno = 0;
        servers->staleness = strtoll(flags->staleness, &end, 10);
        if (end == flags->staleness || *end || errno || servers->staleness < 0)
            return usage_error("--staleness %s: it must be a whole number of steps, 0 (as --sync) or more", flags->staleness);
        if (flags->sync && servers->staleness)
            return usage_error("--sync and --staleness %s: synchronous training has a staleness of 0; give one of them",
                               flags->staleness);
        servers->pace = servers->staleness ? STRATA_PACE_BOUNDED : STRATA_PACE_SYNCHRONOUS;
    }
    if (flags->backup && servers->pace != STRATA_PACE_SYNCHRONOUS)
        return usage_error("--backup %lld is for synchronous training; give --sync", (long long)flags->backup);
    if (!flags->old_gradients) return EXIT_OK;
    if (strcmp(flags->old_gradients, "corrected") != 0 && strcmp(flags->old_gradients, "plain") != 0)
        return usage_error("--old-gradients %s: it must be plain or corrected", flags->old_gradients);
    if (!strcmp(flags->old_gradients, "plain")) servers->old_gradients = STRATA_OLD_GRADIENTS_PLAIN;
    return EXIT_OK;
}

/* Memory that the options of parameter_server borrow. */
typedef struct server_setup {
    strata_parameter_server_options options;
    strata_communicator_options communication;
    char task[64];
} server_setup;

static int set_up_servers(const strategy_flags *flags, server_setup *setup, opened_strategy *opened) {
    strata_error err = {0};
    const char *task = NULL;
    strata_cluster_spec spec = {0};
    int code = read_task(flags, setup->task, sizeof setup->task, &task);
    if (!code) code = read_pace(flags, &setup->options);
    if (!code && (flags->transport || flags->engine))
        code = usage_error("--%s is for multi_worker_mirrored and tpu; parameter_server talks over TCP",
                           flags->transport ? "transport" : "engine");
    if (code) return code;
    choose_communication(flags, &setup->communication);
    setup->options.cluster = flags->cluster;
    setup->options.task = task;
    setup->options.partitioner = flags->partitioner;
    setup->options.communication = &setup->communication;
    const strata_cluster_options cluster = {.cluster = flags->cluster, .task = task};
    const strata_status status = strata_cluster_spec_resolve(&cluster, &spec, &err);
    if (status) return report(FAILING_USAGE, status, &err);
    opened->chief = spec.task_type == STRATA_TASK_CHIEF;
    opened->evaluates = spec.task_type == STRATA_TASK_EVALUATOR;
    opened->has_evaluator = opened->evaluates || spec.jobs[STRATA_TASK_EVALUATOR].n_tasks > 0;
    if (!opened->chief)
        snprintf(opened->task, sizeof opened->task, "%s%d", strata_task_type_name(spec.task_type), spec.task_index);
    strata_cluster_spec_finish(&spec);
    return EXIT_OK;
}

static bool names_servers(const strategy_flags *f) {
    return f->role || f->staleness || f->sync || f->backup || f->ps_replicas || f->old_gradients || f->partitioner;
}

/* The strategy that --strategy names, or else the one for which the tasks of the job were started: with parameter servers
 * parameter_server, with several workers multi_worker_mirrored. out_name "": there is only this task, and no name. */
static int choose_strategy(const strategy_flags *flags, char out_name[STRATEGY_NAME_BYTES]) {
    strata_cluster_spec spec = {0};
    strata_error err = {0};
    char room[64];
    const char *task = NULL, *name = flags->name;
    int code = read_task(flags, room, sizeof room, &task);
    snprintf(out_name, STRATEGY_NAME_BYTES, "%s", name ? name : "");
    if (code || (name && (!strcmp(name, "parameter_server") || strata_strategy_spans_processes(name)))) return code;
    const strata_status status =
        strata_cluster_spec_resolve(&(strata_cluster_options){.cluster = flags->cluster, .task = task}, &spec, &err);
    if (status && (flags->cluster || task)) return report(FAILING_USAGE, status, &err);
    if (status)
        fprintf(stderr, "strata: this task trains alone, since the cluster of the environment is wrong: %s\n", err.message);
    const bool servers = !status && spec.jobs[STRATA_TASK_PS].n_tasks > 0;
    if (status || (!servers && spec.world_size == 1)) return EXIT_OK;
    const char *right = servers ? "parameter_server" : "multi_worker_mirrored";
    if (!name) {
        snprintf(out_name, STRATEGY_NAME_BYTES, "%s", right);
        if (spec.is_chief)
            fprintf(stderr, "strata: --strategy %s, since %s names %d tasks\n", right, spec.source, spec.all_size);
    } else if (servers) {
        code = usage_error("--strategy %s: %s names parameter servers; leave the strategy out, or give --strategy %s", name,
                           spec.source, right);
    } else if (spec.rank == 0) {
        fprintf(stderr,
                "strata: %s names %d workers, and each trains alone: the strategy is %s; --strategy %s trains them "
                "together\n",
                spec.source, spec.world_size, name, right);
    }
    strata_cluster_spec_finish(&spec);
    return code;
}

static bool names_workers(const strategy_flags *f) {
    return f->cluster || f->task || f->tls_cert || f->tls_key || f->tls_ca || f->tls_name || f->transport || f->interface ||
           f->insecure || f->wait_s > 0 || f->heartbeat_s > 0 || f->stall_s > 0;
}

int read_compress(const char *text, strata_dtype *out_wire) {
    *out_wire = !text ? STRATA_DTYPE_F32 : !strcmp(text, "bf16") ? STRATA_DTYPE_BF16 : STRATA_DTYPE_F16;
    if (!text || *out_wire == STRATA_DTYPE_BF16 || !strcmp(text, "f16")) return EXIT_OK;
    return usage_error("--compress %s: it must be bf16 or f16", text);
}

static int read_shard_optimizer(const char *text, strata_shard_optimizer *out_choice) {
    static const char *const names[] = {
        [STRATA_SHARD_OPTIMIZER_AUTO] = "auto", [STRATA_SHARD_OPTIMIZER_YES] = "yes", [STRATA_SHARD_OPTIMIZER_NO] = "no"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *out_choice = (strata_shard_optimizer)i;
        if (!text || !strcmp(text, names[i])) return EXIT_OK;
    }
    return usage_error("--shard-optimizer %s: it must be auto, yes or no", text);
}

int read_layout(const char *layout, char **out_text) {
    enum { MOST_BYTES = 64 << 20 };
    strata_error err = {0};
    unsigned char *bytes = NULL;
    size_t n = 0;
    *out_text = NULL;
    if (!layout || !strcmp(layout, "auto")) return EXIT_OK;
    const strata_status status = strata_stream_read_file(layout, MOST_BYTES, &bytes, &n, &err);
    *out_text = (char *)bytes; /* a NUL follows them */
    return status ? report(FAILING_DATA, status, &err) : EXIT_OK;
}

static int open_with(const strategy_flags *flags, const device_flags *device, char *devices, char *split, const char *layout,
                     opened_strategy *opened) {
    strata_device_options device_options;
    const char *names[MOST] = {device->which};
    int64_t weights[MOST];
    strata_strategy_options opts = {.device_options = &device_options,
                                    .parameter_device = flags->parameter_device,
                                    .bytes_per_pack = flags->bytes_per_pack,
                                    .tpu_address = flags->tpu_address,
                                    .every = flags->every,
                                    .mesh = flags->mesh,
                                    .layout = layout,
                                    .microbatches = (int)flags->microbatches,
                                    .zero = (int)flags->zero,
                                    .schedule = flags->schedule,
                                    .cross_device_ops = flags->cross_device_ops};
    strata_error err = {0};
    if (read_device_flags(device, &device_options)) return EXIT_USAGE;
    if (read_compress(flags->compress, &opts.compress)) return EXIT_USAGE;
    if (read_shard_optimizer(flags->shard_optimizer, &opts.shard_optimizer)) return EXIT_USAGE;
    if (device->which && flags->devices) return usage_error("give --device or --devices, not both");
    opts.n_devices = device->which ? 1 : devices ? cut("devices", devices, ",", names) : 0;
    if (opts.n_devices < 0) return EXIT_USAGE;
    if (opts.n_devices) opts.devices = names;
    if (split && !strcmp(split, "auto")) {
        opts.auto_split = true;
    } else if (split) {
        opts.n_split = read_split(split, weights);
        if (opts.n_split < 0) return EXIT_USAGE;
        opts.split = weights;
    }
    char name[STRATEGY_NAME_BYTES];
    if (choose_strategy(flags, name)) return EXIT_USAGE;
    if (!*name) snprintf(name, sizeof name, "%s", device->which ? "one_device" : devices ? "mirrored" : "default");
    opened->chief = true;
    server_setup servers = {0};
    const bool has_servers = !strcmp(name, "parameter_server");
    if (!has_servers && names_servers(flags))
        return usage_error(
            "--cluster-role, --staleness, --sync, --backup, --ps-replicas, --old-gradients and --partitioner are for "
            "--strategy parameter_server");
    if (has_servers) {
        const int code = set_up_servers(flags, &servers, opened);
        if (code) return code;
        opts.parameter_server = &servers.options;
    } else if (strata_strategy_spans_processes(name)) {
        const int code = find_and_join_workers(flags, strcmp(name, "multi_worker_mirrored") != 0, opened, &opts);
        if (code) return code;
    } else if (names_workers(flags)) {
        return usage_error(
            "--cluster, --task, --tls-..., --transport, --interface, --insecure, --wait, --heartbeat and --stall are for "
            "--strategy multi_worker_mirrored, local_sgd, model_parallel, parameter_server or tpu");
    }
    strata_status status = strata_strategy_create(name, &opts, &opened->strategy, &err);
    return status ? report(has_servers && status == STRATA_INVALID ? FAILING_USAGE : FAILING_DEVICE, status, &err) : EXIT_OK;
}

int open_strategy(const strategy_flags *flags, const device_flags *device, opened_strategy *out_opened) {
    char *devices = flags->devices ? strdup(flags->devices) : NULL, *split = flags->split ? strdup(flags->split) : NULL;
    char *layout = NULL;
    const bool enough = (devices || !flags->devices) && (split || !flags->split);
    strata_error err = {0};
    int code = enough ? read_layout(flags->layout, &layout)
                      : report(FAILING_RUN, strata_fail(&err, STRATA_OUT_OF_MEMORY, "no host memory"), &err);
    if (!code) code = open_with(flags, device, devices, split, layout, out_opened);
    free(layout);
    free(devices);
    free(split);
    return code;
}

void close_strategy(opened_strategy *opened) {
    strata_strategy_destroy(opened->strategy);
    strata_communicator_destroy(opened->communicator);
}
