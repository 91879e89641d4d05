/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses a layout over the axis `tensor` (layout_choose.h).
 *
 * Values whose channels are divided together, since only layers that compute each channel by itself are between them, are a
 * region; the calls of a model are its values. A layer that may have columns or rows goes from the region of its input to that
 * of its output: if the latter is divided it has columns, if the former is, rows. So two regions with such a layer between them
 * are not both divided; those that save most are divided first. */
#include "core/model/layout_choose.h"

#include <stdio.h>

#include "core/layer/layer.h"
#include "core/model/mesh_spec.h"

/* What a call is for the search. */
typedef enum role {
    /* It takes and gives whole values. */
    ROLE_OTHER = 0,
    /* It computes each channel by itself. */
    ROLE_CHANNELS,
    /* It has columns or rows. */
    ROLE_PAIR,
    ROLE_HEADS,
    ROLE_TABLE
} role;

static const struct {
    const char *kind;
    role role;
} roles[] = {{"dense", ROLE_PAIR},
             {"conv1d", ROLE_PAIR},
             {"conv2d", ROLE_PAIR},
             {"multi_head_attention", ROLE_HEADS},
             {"embedding", ROLE_TABLE},
             {"activation", ROLE_CHANNELS},
             {"dropout", ROLE_CHANNELS},
             {"batch_norm", ROLE_CHANNELS},
             {"residual", ROLE_CHANNELS},
             {"add", ROLE_CHANNELS},
             {"multiply", ROLE_CHANNELS},
             {"max_pool1d", ROLE_CHANNELS},
             {"avg_pool1d", ROLE_CHANNELS},
             {"max_pool2d", ROLE_CHANNELS},
             {"avg_pool2d", ROLE_CHANNELS},
             {"global_average_pool", ROLE_CHANNELS},
             {"global_max_pool", ROLE_CHANNELS},
             {"flatten", ROLE_CHANNELS}};

typedef enum state { STATE_OPEN = 0, STATE_DIVIDED, STATE_WHOLE } state;

/* A call, its value, and the region whose first value it is. */
typedef struct node {
    role role;
    /* The parameter that is divided; -1: there is none. */
    int kernel;
    /* Its layer may have columns; its layer may have rows. */
    bool columns, rows;
    /* A parameter that is trained is before the value, so the value has a gradient. */
    bool trains;
    /* A call reads the value that needs all channels. */
    bool gathered;
    /* Bytes of the value, of all examples. */
    double bytes;
    /* Of the first call of a layer: it has rows if its input is divided, since this costs less than to gather it. */
    bool fed;
    /* Of the first call of a layer: what a division of the layer alone saves, in rows, heads or vocabulary. */
    double alone;
    /* The region that this one was joined with; its own index: none. */
    int joined;
    /* Of a region: it is not divided; what dividing it saves. */
    bool blocked;
    double saved;
} node;

typedef struct chooser {
    const strata_layout_model *model;
    const strata_mesh *mesh;
    int axis, n_devices;
    double examples;
    strata_memory *memory;
    strata_placement *placements;
    /* [model->n_calls] */
    node *nodes;
    /* [model->n_calls] Of regions. */
    state *states;
} chooser;

/* ---- layers and their parameters ---- */

/* The index of a parameter of the call's layer; -1: it has none of this name. */
static int find_parameter(const strata_layout_model *model, const strata_call *call, const char *name) {
    const size_t n = strlen(call->name);
    for (int i = 0; i < model->n_parameters; i++) {
        const char *full = model->parameters[i].name;
        if (!strncmp(full, call->name, n) && full[n] == '/' && !strcmp(full + n + 1, name)) return i;
    }
    return -1;
}

static bool has_trained(const strata_layout_model *model, const strata_call *call) {
    for (int i = 0; i < model->n_parameters; i++)
        if (!model->parameters[i].state && strata_layout_owns(call, model->parameters[i].name)) return true;
    return false;
}

static double bytes_of(const strata_layout_model *model, int parameter) {
    return parameter < 0 ? 0 : (double)strata_shape_elements(model->parameters[parameter].shape) * sizeof(float);
}

/* Whether the activation of the call, if there is one, computes each element by itself. */
static bool is_elementwise(const strata_call *call) {
    for (const strata_option *o = call->fields; o->name; o++) {
        const char *name;
        if (o->kind != STRATA_OPTION_ACTIVATION) continue;
        memcpy(&name, (const char *)call->options + o->offset, sizeof name);
        if (name && (!strcmp(name, "softmax") || strata_activation_check(name, NULL))) return false;
    }
    return true;
}

static bool keeps_channels(const strata_layout_model *model, const strata_call *call) {
    if (!strcmp(call->kind, "flatten")) return model->calls[call->inputs[0]].shape.rank == 2;
    if (!strcmp(call->kind, "batch_norm") && ((const strata_batch_norm_options *)call->options)->synchronized) return false;
    return is_elementwise(call);
}

static int64_t channels(const strata_call *call) {
    return call->shape.rank ? call->shape.dims[call->shape.rank - 1] : 0;
}

/* Sets what a layer with a kernel may have. The kernel of a convolution with groups has fewer channels than its input. */
static void find_pair(const chooser *c, const strata_call *call, node *x) {
    const int64_t in = channels(&c->model->calls[call->inputs[0]]);
    x->kernel = find_parameter(c->model, call, "kernel");
    if (x->kernel < 0) return;
    const strata_shape shape = c->model->parameters[x->kernel].shape;
    const bool whole = shape.dims[shape.rank - 2] == in;
    x->rows = whole && in >= c->n_devices;
    x->columns = whole && channels(call) >= c->n_devices && is_elementwise(call) &&
                 bytes_of(c->model, x->kernel) >= STRATA_LAYOUT_LEAST_BYTES;
}

/* ---- what divisions save ---- */

/* 4 P, once for a layer, and 3 F of a call, in bytes. */
static double work_saved(const chooser *c, int i, double parameter_bytes, double flops) {
    return (c->model->calls[i].first == i ? 4 * parameter_bytes : 0) + 3 * flops / STRATA_LAYOUT_FLOPS_PER_BYTE;
}

/* The bytes of the gradient of the call's input. */
static double gradient_bytes(const chooser *c, int i) {
    const node *x = &c->nodes[c->model->calls[i].inputs[0]];
    return x->trains ? x->bytes : 0;
}

/* What dividing the kernel of a call saves before exchanges: each element is used for each position of the output. */
static double pair_saved(const chooser *c, int i) {
    const strata_call *call = &c->model->calls[i];
    const double kernel = bytes_of(c->model, c->nodes[i].kernel) / sizeof(float);
    const double positions = c->examples * (double)strata_shape_elements(call->shape) / (double)channels(call);
    return work_saved(c, i, kernel * sizeof(float), 2 * positions * kernel);
}

static double heads_saved(const chooser *c, int i) {
    const strata_call *call = &c->model->calls[i];
    const strata_shape query = c->model->parameters[c->nodes[i].kernel].shape;
    const double width = (double)query.dims[1], places = (double)call->shape.dims[1];
    const double kernels = 4 * bytes_of(c->model, c->nodes[i].kernel) / sizeof(float);
    const double flops = 2 * c->examples * places * (kernels + 2 * places * width);
    return work_saved(c, i, kernels * sizeof(float), flops) - 2 * (c->nodes[i].bytes + gradient_bytes(c, i));
}

/* Adds to the layer's first call what dividing this call by itself saves. */
static void save_alone(const chooser *c, int i) {
    const strata_call *call = &c->model->calls[i];
    const node *x = &c->nodes[i];
    double *alone = &c->nodes[call->first].alone;
    if (x->kernel < 0) return;
    const double bytes = bytes_of(c->model, x->kernel);
    const int64_t rows = c->model->parameters[x->kernel].shape.dims[0];
    if (x->role == ROLE_PAIR && x->rows && bytes >= STRATA_LAYOUT_LEAST_BYTES)
        *alone += pair_saved(c, i) - 2 * x->bytes - gradient_bytes(c, i);
    if (x->role == ROLE_HEADS && 4 * bytes >= STRATA_LAYOUT_LEAST_BYTES &&
        ((const strata_multi_head_attention_options *)call->options)->heads >= c->n_devices)
        *alone += heads_saved(c, i);
    if (x->role == ROLE_TABLE && bytes > STRATA_LAYOUT_LARGE_BYTES && rows >= c->n_devices) *alone = bytes;
}

/* ---- regions ---- */

static int region_of(const chooser *c, int i) {
    while (c->nodes[i].joined != i) i = c->nodes[i].joined;
    return i;
}

static int region_before(const chooser *c, int i) {
    return region_of(c, c->model->calls[i].inputs[0]);
}

/* The region of the smaller index stays. */
static void join(const chooser *c, int i, int j) {
    const int a = region_of(c, i), b = region_of(c, j);
    c->nodes[a > b ? a : b].joined = a > b ? b : a;
}

/* Joins the regions of a call, and with those of the first call of its layer, which is divided in the same way. */
static void join_call(const chooser *c, int i) {
    const strata_call *call = &c->model->calls[i];
    for (int k = 0; k < call->n_inputs && c->nodes[i].role == ROLE_CHANNELS; k++) join(c, i, call->inputs[k]);
    if (call->first == i) return;
    join(c, i, call->first);
    if (c->nodes[i].role == ROLE_PAIR) join(c, call->inputs[0], c->model->calls[call->first].inputs[0]);
}

static void make_node(const chooser *c, int i) {
    const strata_call *call = &c->model->calls[i];
    node *x = &c->nodes[i];
    *x = (node){.kernel = -1, .joined = i};
    x->bytes = c->examples * (double)strata_shape_elements(call->shape) * (double)strata_dtype_bytes(call->dtype);
    for (int k = 0; k < call->n_inputs; k++) x->trains |= c->nodes[call->inputs[k]].trains;
    x->trains |= has_trained(c->model, call);
    if (!call->fields || call->own) return;
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
        if (!strcmp(roles[r].kind, call->kind)) x->role = roles[r].role;
    if (x->role == ROLE_PAIR) find_pair(c, call, x);
    if (x->role == ROLE_HEADS) x->kernel = find_parameter(c->model, call, "query_kernel");
    if (x->role == ROLE_TABLE) x->kernel = find_parameter(c->model, call, "embeddings");
    if (x->role == ROLE_CHANNELS && !keeps_channels(c->model, call)) x->role = ROLE_OTHER;
}

/* Adds what a call with columns and rows says about the regions before and behind it. */
static void weigh_pair(const chooser *c, int i) {
    const int in = region_before(c, i), out = region_of(c, i);
    node *before = &c->nodes[in], *behind = &c->nodes[out];
    node *x = &c->nodes[i], *input = &c->nodes[c->model->calls[i].inputs[0]], *first = &c->nodes[c->model->calls[i].first];
    const double saved = pair_saved(c, i), alone = x->alone > 0 ? x->alone : 0, by_rows = saved - 2 * x->bytes - alone;
    if (in == out || !x->columns) behind->blocked = true;
    if (x == first) x->fed = x->rows && by_rows > -input->bytes;
    if (first->fed)
        before->saved += by_rows;
    else
        input->gathered = true;
    behind->saved += saved - 2 * gradient_bytes(c, i) - alone;
}

/* Computes for each region whether it can be divided and what this saves. */
static void weigh(const chooser *c) {
    const strata_layout_model *model = c->model;
    for (int i = 0; i < model->n_calls; i++) {
        const role is = c->nodes[i].role;
        if (is == ROLE_PAIR && c->nodes[i].kernel >= 0) {
            weigh_pair(c, i);
            continue;
        }
        if (is == ROLE_CHANNELS) continue;
        c->nodes[region_of(c, i)].blocked = true;
        for (int k = 0; k < model->calls[i].n_inputs; k++) c->nodes[model->calls[i].inputs[k]].gathered = true;
    }
    for (int i = 0; i < model->n_outputs; i++) c->nodes[model->outputs[i]].gathered = true;
    for (int i = 0; i < model->n_calls; i++)
        if (c->nodes[i].gathered) c->nodes[region_of(c, i)].saved -= c->nodes[i].bytes;
}

/* Whether a layer is between the region and one that is divided. */
static bool conflicts(const chooser *c, int region) {
    for (int i = 0; i < c->model->n_calls; i++) {
        if (c->nodes[i].role != ROLE_PAIR) continue;
        const int in = region_before(c, i), out = region_of(c, i);
        if ((in == region && c->states[out] == STATE_DIVIDED) || (out == region && c->states[in] == STATE_DIVIDED)) return true;
    }
    return false;
}

/* Divides the regions, those that save most first. */
static void divide_regions(const chooser *c) {
    for (;;) {
        int next = -1;
        for (int i = 0; i < c->model->n_calls; i++) {
            const node *x = &c->nodes[i];
            if (x->joined != i || x->blocked || !(x->saved > 0) || c->states[i] != STATE_OPEN) continue;
            if (next < 0 || x->saved > c->nodes[next].saved) next = i;
        }
        if (next < 0) return;
        c->states[next] = conflicts(c, next) ? STATE_WHOLE : STATE_DIVIDED;
    }
}

/* ---- placements ---- */

/* Divides a dimension, counted from the last one, of a parameter of the call's layer, if it has this parameter. */
static strata_status divide(const chooser *c, const strata_call *call, const char *name, int from_last, strata_error *err) {
    const int i = find_parameter(c->model, call, name);
    if (i < 0) return STRATA_OK;
    const int d = c->model->parameters[i].shape.rank - 1 - from_last;
    return strata_layout_split(c->model, i, d, c->mesh, &c->axis, 1, c->memory, &c->placements[i].dims[d], err);
}

static strata_status divide_each(const chooser *c, const strata_call *call, const char *const *names, int n,
                                 strata_error *err) {
    for (int i = 0; i < n; i++) STRATA_TRY(divide(c, call, names[i], 0, err));
    return STRATA_OK;
}

/* Places the parameters of the layer of its first call. */
static strata_status place(const chooser *c, int i, strata_error *err) {
    static const char *const by_channel[] = {"gamma", "beta", "moving_mean", "moving_variance"};
    static const char *const by_column[] = {"kernel", "bias"};
    static const char *const by_head[] = {"query_kernel", "query_bias", "key_kernel", "key_bias", "value_kernel", "value_bias"};
    const strata_call *call = &c->model->calls[i];
    const node *x = &c->nodes[i];
    const bool divided = c->states[region_of(c, i)] == STATE_DIVIDED;
    if (x->role == ROLE_CHANNELS) return divided ? divide_each(c, call, by_channel, 4, err) : STRATA_OK;
    if (x->role == ROLE_PAIR && divided) return divide_each(c, call, by_column, 2, err);
    const bool fed = x->fed && c->states[region_before(c, i)] == STATE_DIVIDED;
    if (!fed && !(x->alone > 0)) return STRATA_OK;
    if (x->role != ROLE_HEADS) return divide(c, call, x->role == ROLE_TABLE ? "embeddings" : "kernel", 1, err);
    STRATA_TRY(divide_each(c, call, by_head, 6, err));
    return divide(c, call, "output_kernel", 1, err);
}

/* Why a large parameter is whole. */
static const char *reason_of(const chooser *c, const strata_parameter_spec *parameter) {
    int i = 0;
    while (i < c->model->n_calls && !strata_layout_owns(&c->model->calls[i], parameter->name)) i++;
    if (c->n_devices == 1) return "the axis tensor of the mesh has the size 1";
    if (i == c->model->n_calls || c->nodes[i].role == ROLE_OTHER) {
        const char *kind = i == c->model->n_calls ? "" : c->model->calls[i].kind;
        if (!strcmp(kind, "lstm") || !strcmp(kind, "gru"))
            return "the devices would exchange the state of a recurrent layer in each of its steps";
        return "there is no rule for dividing this kind of layer";
    }
    if (c->nodes[i].role == ROLE_PAIR && !c->nodes[i].columns && !c->nodes[i].rows)
        return "its convolution has groups, or fewer channels than the axis tensor has devices";
    if (c->nodes[i].role != ROLE_PAIR && c->nodes[i].alone == 0)
        return "it has fewer heads or rows than the axis tensor has devices";
    return "the exchanges of its activations would cost more than its division saves";
}

static bool is_whole(const strata_placement *placement) {
    for (int d = 0; d < STRATA_MAX_RANK; d++)
        if (placement->dims[d].n_axes) return false;
    return true;
}

/* ---- choosing ---- */

static void search(const chooser *c) {
    for (int i = 0; i < c->model->n_calls; i++) make_node(c, i);
    for (int i = 0; i < c->model->n_calls; i++) join_call(c, i);
    for (int i = 0; i < c->model->n_calls; i++) save_alone(c, i);
    weigh(c);
    divide_regions(c);
}

strata_status strata_layout_choose(const strata_layout_model *model, const strata_mesh *mesh, int64_t examples,
                                   strata_memory *memory, strata_placement *out_placements, const char **out_reasons,
                                   strata_error *err) {
    chooser c = {.model = model, .mesh = mesh, .examples = (double)examples, .memory = memory, .placements = out_placements};
    STRATA_FREED node *nodes = NULL;
    STRATA_FREED state *states = NULL;
    c.axis = strata_mesh_find(mesh, "tensor");
    c.n_devices = strata_mesh_size(mesh, "tensor");
    STRATA_TRY(STRATA_NEW(nodes, model->n_calls, err, "layout: no host memory for %d calls", model->n_calls));
    STRATA_TRY(STRATA_NEW(states, model->n_calls, err, "layout: no host memory for %d calls", model->n_calls));
    c.nodes = nodes;
    c.states = states;
    memset(out_placements, 0, (size_t)model->n_parameters * sizeof *out_placements);
    if (c.n_devices > 1) search(&c);
    for (int i = 0; i < model->n_calls && c.n_devices > 1; i++)
        if (model->calls[i].first == i && model->calls[i].n_inputs) STRATA_TRY(place(&c, i, err));
    for (int i = 0; i < model->n_parameters; i++) {
        const bool large = bytes_of(model, i) > STRATA_LAYOUT_LARGE_BYTES;
        out_reasons[i] = large && is_whole(&out_placements[i]) ? reason_of(&c, &model->parameters[i]) : NULL;
    }
    return STRATA_OK;
}
