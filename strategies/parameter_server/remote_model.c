/* SPDX-License-Identifier: Apache-2.0
 *
 * A model whose parameters are on the servers, for closures of a coordinator (strata/coordinator.h): the same servers, messages
 * and gradients as in fit, without fit's chief, as the coordinator decides who computes what. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/base/text.h"
#include "core/loss/loss.h"
#include "strata/coordinator.h"
#include "strategies/parameter_server/task.h"

struct strata_remote_model {
    strata_ps_fit fit;
    /* Of the chief: [n_servers] */
    strata_rpc_client **servers;
    /* Of a worker. */
    strata_ps_stepper *stepper;
};

/* What all tasks must have alike. */
static strata_status make_terms(strata_ps_fit *fit, strata_error *err) {
    const strata_ps_task *task = fit->task;
    const strata_optimizer *optimizer = &fit->model->optimizer;
    char hash[STRATA_SHA256_TEXT_BYTES], *json = NULL;
    strata_text text = {0};
    STRATA_TRY(strata_model_to_json(fit->model, &json, err));
    const strata_status status = strata_sha256_of(json, strlen(json), hash, err);
    free(json);
    if (status) return status;
    hash[12] = 0; /* for people */
    strata_text_add(&text, "way of training\tclosures of a coordinator\noptimizer\t%s\nlearning rate\t%.17g\n", optimizer->name,
                    (double)optimizer->learning_rate);
    strata_text_add(&text,
                    "partitioner\t%s\ntype on the wire\t%s\nnumber of servers\t%d\nhash of the model's description\t%s\n",
                    task->partitioner_text, strata_dtype_name(task->wire), task->spec.jobs[STRATA_TASK_PS].n_tasks, hash);
    return strata_text_take(&text, &fit->terms, NULL, err);
}

static strata_status prepare(strata_model *model, strata_ps_fit *fit, strata_error *err) {
    if (!model->strategy || strcmp(model->strategy->name, "parameter_server") != 0)
        return strata_fail(err, STRATA_INVALID, "a remote model must be compiled under the strategy parameter_server, not %s",
                           model->strategy ? model->strategy->name : "without one");
    STRATA_TRY(strata_ps_check_model(model, err));
    *fit = (strata_ps_fit){.task = strata_ps_task_of(model), .model = model, .accumulate = 1};
    if (fit->task->pace.pace != STRATA_PACE_ASYNCHRONOUS)
        return strata_fail(
            err, STRATA_INVALID,
            "closures run when a worker is free: a remote model needs the pace ASYNCHRONOUS; other paces are for fit");
    if (fit->task->replicas)
        return strata_fail(err, STRATA_UNSUPPORTED,
                           "a remote model has no copies of its shards: replicas are for fit, whose chief watches the servers");
    if (strata_model_accumulates(model) > 1)
        return strata_fail(err, STRATA_INVALID, "gradient_accumulation_steps is %lld; a step of a remote model is one batch",
                           (long long)strata_model_accumulates(model));
    STRATA_TRY(
        strata_ps_plan_make(model, &fit->task->partitioner, fit->task->spec.jobs[STRATA_TASK_PS].n_tasks, &fit->plan, err));
    const strata_status status = make_terms(fit, err);
    if (status) strata_ps_plan_finish(&fit->plan);
    return status;
}

static void finish_fit(strata_ps_fit *fit) {
    free(fit->terms);
    strata_ps_plan_finish(&fit->plan);
}

strata_status strata_remote_model_serve(strata_model *model, strata_error *err) {
    strata_ps_fit fit;
    STRATA_TRY(prepare(model, &fit, err));
    const strata_status status =
        fit.task->spec.task_type == STRATA_TASK_PS
            ? strata_ps_fit_server(&fit, err)
            : strata_fail(err, STRATA_INVALID, "%s is no parameter server; only a task ps serves a model", fit.task->name);
    finish_fit(&fit);
    return status;
}

/* The chief meets the servers, and gives them the parameters. */
static strata_status open_chief(strata_remote_model *r, strata_error *err) {
    r->servers = calloc((size_t)r->fit.plan.n_servers, sizeof(*r->servers));
    if (!r->servers) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a remote model");
    for (int s = 0; s < r->fit.plan.n_servers; s++) {
        STRATA_TRY(strata_ps_connect(r->fit.task, STRATA_TASK_PS, s, 0, &r->servers[s], err));
        STRATA_TRY(strata_ps_say_hello(&r->fit, r->servers[s], r->fit.task->connect_seconds, NULL, err));
    }
    return strata_ps_send_values(&r->fit, r->servers, 0, err);
}

strata_status strata_remote_model_open(strata_model *model, strata_remote_model **out_remote, strata_error *err) {
    *out_remote = NULL;
    strata_remote_model *r = calloc(1, sizeof *r);
    if (!r) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a remote model");
    strata_status status = prepare(model, &r->fit, err);
    if (status) {
        free(r);
        return status;
    }
    const strata_task_type type = r->fit.task->spec.task_type;
    if (type == STRATA_TASK_CHIEF)
        status = open_chief(r, err);
    else if (type == STRATA_TASK_WORKER)
        status = strata_ps_stepper_create(&r->fit, &r->stepper, err);
    else
        status = strata_fail(err, STRATA_INVALID, "%s serves a model; only the chief and workers open one", r->fit.task->name);
    if (status)
        strata_remote_model_close(r);
    else
        *out_remote = r;
    return status;
}

/* INVALID where the array is not n elements of this dtype and size. */
static strata_status check_array(const strata_array *array, const char *what, strata_dtype dtype, size_t element_bytes,
                                 int64_t n, strata_error *err) {
    if (array->dtype == dtype && array->shape.rank >= 1 && array->shape.dims[0] == n && n >= 1 &&
        strata_array_bytes(array) == (size_t)n * element_bytes)
        return STRATA_OK;
    return strata_fail(err, STRATA_INVALID, "a step's %s are %s %s; the model takes %s of %zu bytes for each of n examples",
                       what, strata_dtype_name(array->dtype), strata_shape_text(array->shape).text, strata_dtype_name(dtype),
                       element_bytes);
}

strata_status strata_remote_model_step(strata_remote_model *r, int64_t number, const strata_array *x, const strata_array *y,
                                       double *out_loss, strata_error *err) {
    const strata_model *model = r->fit.model;
    if (!r->stepper)
        return strata_fail(err, STRATA_INVALID, "%s makes no steps; schedule closures, in which workers do", r->fit.task->name);
    if (number < 0) return strata_fail(err, STRATA_INVALID, "step %lld: steps are numbered from 0", (long long)number);
    const int64_t n = x->shape.rank ? x->shape.dims[0] : 0;
    const strata_dtype labels = strata_loss_label_dtype(model->outputs[0].loss);
    STRATA_TRY(check_array(x, "features", model->inputs[0].dtype, strata_input_bytes(&model->inputs[0]), n, err));
    STRATA_TRY(check_array(y, "labels", labels, strata_label_bytes(&model->outputs[0]), n, err));
    return strata_ps_stepper_step(r->stepper, number, x->data, y->data, n, out_loss, err);
}

strata_status strata_remote_model_fetch(strata_remote_model *r, strata_error *err) {
    if (r->servers) return strata_ps_fetch_values(&r->fit, r->servers, NULL, err);
    return strata_fail(err, STRATA_INVALID, "%s does not fetch a model; the chief does", r->fit.task->name);
}

void strata_remote_model_close(strata_remote_model *r) {
    if (!r) return;
    if (r->servers) {
        strata_ps_dismiss_servers(&r->fit, r->servers, STRATA_OK, "");
        for (int s = 0; s < r->fit.plan.n_servers; s++) strata_rpc_client_destroy(r->servers[s]);
        free(r->servers);
    }
    strata_ps_stepper_destroy(r->stepper);
    finish_fit(&r->fit);
    free(r);
}
