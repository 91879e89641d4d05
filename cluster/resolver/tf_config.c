/* SPDX-License-Identifier: Apache-2.0
 *
 * TF_CONFIG, in TensorFlow's format:
 *   {"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...], "evaluator": [...]}, "task": {"type": "worker", "index":
 *   0}}
 * Other keys (rpc_layer, environment, session_master, job names that are none of the four) are ignored; {} means a single
 * process. */
#include "cluster/resolver/resolver.h"
#include "core/base/alloc.h"
#include "core/base/json.h"

enum { MAX_BYTES = 8 << 20 }; /* enough for 65536 addresses of 100 bytes */

static strata_status read_job(const strata_json *cluster, strata_task_type type, strata_cluster_spec *spec, strata_error *err) {
    strata_json list, item;
    if (!strata_json_find(cluster, strata_task_type_name(type), &list)) return STRATA_OK;
    STRATA_TRY(strata_json_expect(&list, STRATA_JSON_ARRAY, err));
    for (bool more = strata_json_first(&list, &item); more; more = strata_json_next(&item)) {
        const char *address = NULL;
        STRATA_TRY(strata_json_to_string(&item, &address, err));
        const char *complaint = strata_address_complaint(address);
        if (complaint) return strata_json_fail(&item, err, STRATA_DATA, "\"%.300s\" %s", address, complaint);
        STRATA_TRY(strata_cluster_spec_add(spec, type, address, strlen(address), err));
    }
    return STRATA_OK;
}

static strata_status read_task(const strata_json *root, strata_cluster_spec *spec, strata_error *err) {
    strata_json task, type;
    const char *name = NULL;
    int64_t index = 0;
    if (!strata_json_find(root, "task", &task))
        return strata_json_fail(
            root, err, STRATA_DATA,
            "\"task\" is missing; each process says which it is, as in \"task\": {\"type\": \"worker\", \"index\": 0}");
    STRATA_TRY(strata_json_expect(&task, STRATA_JSON_OBJECT, err));
    STRATA_TRY(strata_json_get(&task, "type", &type, err));
    STRATA_TRY(strata_json_to_string(&type, &name, err));
    spec->task_type = strata_task_type_of(name, strlen(name));
    if (spec->task_type == STRATA_TASK_TYPES)
        return strata_json_fail(&type, err, STRATA_DATA, "must be chief, worker, ps or evaluator, is \"%.60s\"", name);
    STRATA_TRY(strata_json_get_int(&task, "index", STRATA_JSON_REQUIRED, 0, STRATA_CLUSTER_MAX_TASKS - 1, &index, err));
    spec->task_index = (int)index;
    return STRATA_OK;
}

/* If the task's job is missing, its name may have been mistyped. */
static strata_status check_own_job(const strata_json *cluster, const strata_cluster_spec *spec, strata_error *err) {
    const char *own = strata_task_type_name(spec->task_type);
    strata_json item;
    if (spec->jobs[spec->task_type].n_tasks || spec->task_type == STRATA_TASK_EVALUATOR) return STRATA_OK;
    for (bool more = strata_json_first(cluster, &item); more; more = strata_json_next(&item))
        if (strata_nearest_name(item.name, &own, 1) && strcmp(item.name, own) != 0)
            return strata_json_fail(cluster, err, STRATA_DATA,
                                    "this task is %s:%d, but there is no \"%s\"; is \"%.60s\" meant to be it?", own,
                                    spec->task_index, own, item.name);
    return STRATA_OK;
}

static strata_status read(const strata_json *root, strata_cluster_spec *spec, strata_error *err) {
    strata_json cluster;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    if (!strata_json_find(root, "cluster", &cluster)) {
        strata_json task;
        if (strata_json_find(root, "task", &task))
            return strata_json_fail(root, err, STRATA_DATA,
                                    "there is a \"task\" but no \"cluster\"; it must list the addresses, as in \"cluster\": "
                                    "{\"worker\": [\"host1:2222\", \"host2:2222\"]}");
        spec->jobs[STRATA_TASK_WORKER].n_tasks = 1;
        return STRATA_OK;
    }
    STRATA_TRY(strata_json_expect(&cluster, STRATA_JSON_OBJECT, err));
    for (int type = 0; type < STRATA_TASK_TYPES; type++) STRATA_TRY(read_job(&cluster, (strata_task_type)type, spec, err));
    STRATA_TRY(read_task(root, spec, err));
    return check_own_job(&cluster, spec, err);
}

strata_status strata_resolve_tf_config(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    const char *text = strata_environment_get(opts, "TF_CONFIG");
    STRATA_FINISHED(strata_json) root = {0};
    STRATA_TRY(strata_json_parse("TF_CONFIG", text, strlen(text), MAX_BYTES, &root, err));
    return read(&root, spec, err);
}
