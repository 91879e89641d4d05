/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this device's kernels compute rightly. Drivers compile kernels wrongly, report no error, and a model then trains on
 * wrong numbers. So before a piece is compiled, the kernels of its nodes are run on small operands and compared with the ops'
 * references; what was found is kept in a text file beside the tuner's, for each device and driver.
 *
 * What is checked is a *variant*: the kernels of one node with their constants. Its *trial* is a copy of the node with small
 * operands for which the node has the very same kernels, so that each kernel also meets the ends of its operands: of a few ways
 * to make shapes small (`levels`) the cheapest that leaves the kernels as they are.
 *
 * All trials of a piece are compiled as one piece, in the nodes' order and with operands in the same arenas. So the driver
 * compiles nothing more than for the piece itself: it has the same kernels, bound in the same way, and the sequence that a CPU
 * makes of them (opencl/sequence.c) has the same text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/host/host.h"
#include "backends/kernel/lowering.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/compile/cost.h"
#include "core/op/element.h"
#include "strata/version.h"

enum { PATH_BYTES = 640, MAX_FILE_BYTES = 8 << 20, TEXT_BYTES = 400, MOST_ATTRS = 1024 };
static const char FORMAT[] = "strata-check 1";
/* Operations and bytes of a node: those that cost next to nothing, those that the reference computes in a hundredth of a
 * second, and the most that it and the host backend's loops are asked for. */
static const double CHEAP_WORK = 3e5, EASY_WORK = 2e6, MOST_WORK = 3e7, MOST_FAST_WORK = 1.5e9;

typedef struct verdict {
    uint64_t key;
    bool wrong;
    double error; /* the largest, as a part of the largest value */
    char *what;   /* the kernels; of a wrong one the complaint */
} verdict;

struct strata_checks {
    strata_device *device;
    char path[PATH_BYTES]; /* "" when nothing is kept */
    char device_name[128], driver[128];
    verdict *verdicts;
    int n, capacity, n_wrong;
    const strata_way *ways; /* of the nodes of the piece of trials, by id, while it is compiled */
};

/* ---- verdicts ---- */
#define HASH_START UINT64_C(0xcbf29ce484222325) /* FNV-1a */
static uint64_t hash(uint64_t seed, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) seed = (seed ^ at[i]) * UINT64_C(0x100000001b3);
    return seed;
}

static uint64_t hash_text(uint64_t seed, const char *text) {
    return hash(seed, text, strlen(text) + 1);
}

/* Of the code itself: its compressed form ends with a checksum. */
static uint64_t hash_code(uint64_t seed, const strata_shader_code *code) {
    enum { CHECKSUM = 64 };
    if (!code->pack) return hash(seed, code->plain, code->plain ? code->bytes : 0);
    const size_t n = code->pack->packed_bytes < CHECKSUM ? code->pack->packed_bytes : CHECKSUM;
    return hash(seed, code->pack->packed + code->pack->packed_bytes - n, n);
}

uint64_t strata_check_key(const strata_tensor *node, const strata_lowering *lowering) {
    uint64_t key = hash_text(hash_text(HASH_START, STRATA_VERSION), node->op->name);
    for (int l = 0; l < lowering->n; l++) {
        const strata_launch *launch = &lowering->launches[l];
        const strata_shader *shader = strata_shader_find(launch->kernel, launch->variant);
        key = hash_text(hash_text(key, launch->kernel), launch->variant ? launch->variant : "");
        if (shader) key = hash_code(hash_code(key, &shader->opencl), &shader->spirv);
        for (int c = 0; c < launch->n_constants; c++) {
            key = hash_text(key, launch->constants[c].name);
            key = hash(key, &launch->constants[c].value, sizeof launch->constants[c].value);
        }
        key = hash(key, launch->local, sizeof launch->local);
    }
    return key;
}

uint64_t strata_check_family_key(const strata_family *family) {
    return hash_text(hash_text(HASH_START, STRATA_VERSION), family->name);
}

static const verdict *find(const strata_checks *checks, uint64_t key) {
    for (int i = 0; i < checks->n; i++)
        if (checks->verdicts[i].key == key) return &checks->verdicts[i];
    return NULL;
}

static bool add(strata_checks *checks, uint64_t key, bool wrong, double error, const char *what) {
    if (find(checks, key)) return true;
    if (checks->n == checks->capacity) {
        const int capacity = checks->capacity ? 2 * checks->capacity : 64;
        verdict *verdicts = realloc(checks->verdicts, (size_t)capacity * sizeof *verdicts);
        if (!verdicts) return false;
        checks->verdicts = verdicts;
        checks->capacity = capacity;
    }
    char *copy = strdup(what);
    if (!copy) return false;
    checks->verdicts[checks->n++] = (verdict){key, wrong, error, copy};
    checks->n_wrong += wrong;
    return true;
}

bool strata_checks_complain(const strata_checks *checks) {
    return checks && checks->n_wrong > 0;
}

const char *strata_check_complaint(const strata_checks *checks, uint64_t key) {
    const verdict *v = checks ? find(checks, key) : NULL;
    return v && v->wrong ? v->what : NULL;
}

const strata_way *strata_check_way(const strata_checks *checks, const strata_tensor *node) {
    return checks && checks->ways ? &checks->ways[node->id] : NULL;
}

/* ---- the file ---- */
static void header(const strata_checks *checks, char out[320]) {
    snprintf(out, 320, "%s\ndevice %s\ndriver %s\n", FORMAT, checks->device_name, checks->driver);
}

/* Lines that are not ours are passed over; a file of another device, driver or format is as none. */
static void read_file(strata_checks *checks) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    char head[320];
    header(checks, head);
    if (strata_file_read(checks->path, MAX_FILE_BYTES, &bytes, &n, NULL)) return;
    char *text = (char *)bytes, *rest = NULL;
    if (!strncmp(text, head, strlen(head))) {
        for (char *line = strtok_r(text + strlen(head), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            uint64_t key = 0;
            char word[8] = "";
            double error = 0;
            int at = 0;
            if (sscanf(line, "%16" SCNx64 " %7s %lf %n", &key, word, &error, &at) != 3 || !at) continue;
            const bool wrong = !strcmp(word, "wrong");
            if (wrong || !strcmp(word, "right")) add(checks, key, wrong, error, line + at);
        }
    }
    free(bytes);
}

static void write_file(const strata_checks *checks) {
    if (!checks->path[0]) return;
    strata_text text = {0};
    char head[320], *bytes = NULL;
    size_t n = 0;
    header(checks, head);
    strata_text_add(&text, "%s", head);
    for (int i = 0; i < checks->n; i++) {
        const verdict *v = &checks->verdicts[i];
        strata_text_add(&text, "%016" PRIx64 " %s %.3g %s\n", v->key, v->wrong ? "wrong" : "right", v->error, v->what);
    }
    if (strata_text_take(&text, &bytes, &n, NULL)) return;
    const strata_status status = strata_file_write(checks->path, bytes, n, NULL);
    (void)status; /* the next start checks again */
    free(bytes);
}

strata_checks *strata_checks_create(strata_device *device, const strata_cache *cache, const strata_device_options *opts) {
    if (opts && opts->trust) return NULL;
    strata_checks *checks = calloc(1, sizeof *checks);
    if (!checks) return NULL;
    checks->device = device;
    memcpy(checks->device_name, cache->device, sizeof checks->device_name);
    memcpy(checks->driver, cache->driver, sizeof checks->driver);
    if (cache->dir[0]) {
        const uint64_t name = hash_text(hash_text(HASH_START, cache->device), cache->driver);
        snprintf(checks->path, sizeof checks->path, "%s/%s-%016" PRIx64 ".checked", cache->dir, cache->backend, name);
        read_file(checks);
    }
    return checks;
}

void strata_checks_destroy(strata_checks *checks) {
    if (!checks) return;
    for (int i = 0; i < checks->n; i++) free(checks->verdicts[i].what);
    free(checks->verdicts);
    free(checks);
}

/* ---- one trial ---- */
/* A node with small operands. */
typedef struct trial {
    const strata_tensor *real;
    /* Of the real piece. */
    const strata_place *places;
    /* The real node's way, and the small one's, which has the same kernels. */
    strata_way way, small_way;
    uint64_t key;
    /* Nothing is known of its kernels, and no trial before has the same. */
    bool is_new;
    /* It has no operands that are small enough to compare. */
    bool is_too_large;
    /* Its operands are as large as the real ones: they may lie in each other as those do. */
    bool is_full;
    strata_tensor node;
    /* One for each operand; where the real node has a tensor, or two in the same bytes, twice, so has this. */
    strata_tensor *inputs, **pointers;
    void *attrs;
    /* What operands hold before the run, and the node's own value behind them, as the reference leaves them. */
    void **data;
} trial;

static int64_t bytes_of(const strata_tensor *tensor) {
    return strata_shape_elements(tensor->shape) * (int64_t)strata_dtype_bytes(tensor->dtype);
}

/* How shapes are made small. Each extent that is equal stays equal, so that operands still fit each other, and a rest of a
 * division by 16 stays one, so that what is left over at the end of a vector or a tile is there. */
typedef enum level {
    LEVEL_SMALL,  /* extents beyond 20 */
    LEVEL_IMAGES, /* few images, a quarter of their height and width */
    LEVEL_FIRST,  /* the first axis of operands, the batch: 3 to 5 */
    LEVEL_ONE,    /* the same: 1 */
    LEVEL_MIDDLE, /* extents beyond 80 */
    LEVEL_FULL,
    LEVELS
} level;

static int64_t shrink_to(int64_t extent, int64_t base) {
    return extent > base + 16 ? base + extent % 16 : extent;
}

static int64_t shrink(level how, const strata_tensor *real, const strata_tensor *tensor, int axis) {
    const int64_t extent = tensor->shape.dims[axis];
    const strata_shape first = real->inputs[0]->shape;
    const bool alike = tensor->shape.rank == first.rank;
    switch (how) {
        case LEVEL_SMALL:
            return shrink_to(extent, 16);
        case LEVEL_MIDDLE:
            return shrink_to(extent, 64);
        case LEVEL_IMAGES:
            if (!alike || first.rank != 4 || tensor->shape.dims[0] != first.dims[0] || axis == 3) return extent;
            return axis == 0 ? shrink_to(extent, 2) % 16 % 4 + 2 : extent >= 16 ? extent / 4 : extent;
        case LEVEL_FIRST:
            return alike && axis == 0 && extent == first.dims[0] && extent > 5 ? 3 + extent % 3 : extent;
        case LEVEL_ONE:
            return alike && axis == 0 && extent == first.dims[0] ? 1 : extent;
        default:
            return extent;
    }
}

/* Sizes among the attributes: a shape to broadcast to, the rows of a table, the height and width of an image. */
static void shrink_attributes(level how, trial *t) {
    for (const strata_attr_field *field = t->real->op->attrs;
         t->attrs && field < t->real->op->attrs + STRATA_MAX_ATTR_FIELDS && field->name; field++) {
        char *at = (char *)t->attrs + field->offset;
        const int64_t base = how == LEVEL_SMALL ? 16 : 64;
        const bool by_value = how == LEVEL_SMALL || how == LEVEL_MIDDLE;
        if (field->kind == STRATA_ATTR_INT && by_value) *(int64_t *)at = shrink_to(*(int64_t *)at, base);
        if (field->kind == STRATA_ATTR_PAIR)
            for (int i = 0; i < 2; i++) {
                int64_t *value = (int64_t *)at + i;
                if (by_value) *value = shrink_to(*value, base);
                if (how == LEVEL_IMAGES && *value >= 16) *value /= 4;
            }
        if (field->kind == STRATA_ATTR_INTS && by_value)
            for (int i = 0; i < STRATA_MAX_RANK; i++) ((int64_t *)at)[i] = shrink_to(((int64_t *)at)[i], base);
        if (field->kind == STRATA_ATTR_SHAPE) {
            strata_shape *shape = (strata_shape *)at;
            const int64_t batch = t->real->inputs[0]->shape.dims[0];
            for (int i = 0; i < shape->rank && by_value; i++) shape->dims[i] = shrink_to(shape->dims[i], base);
            if (how == LEVEL_FIRST && shape->rank && shape->dims[0] == batch && batch > 5) shape->dims[0] = 3 + batch % 3;
            if (how == LEVEL_ONE && shape->rank && shape->dims[0] == batch) shape->dims[0] = 1;
        }
    }
}

/* Whether its attributes are lists of places in its operands, which no other sizes fit. */
static bool is_rigid(const strata_op *op) {
    for (const strata_attr_field *field = op->attrs; field < op->attrs + STRATA_MAX_ATTR_FIELDS && field->name; field++)
        if (field->kind == STRATA_ATTR_LIST || field->kind == STRATA_ATTR_POINTER) return true;
    return false;
}

/* Whether operands are one: a variable before and after an update has the same bytes. */
static bool is_same(const trial *t, const strata_tensor *a, const strata_tensor *b) {
    const strata_place *p = &t->places[a->id], *q = &t->places[b->id];
    return a == b || (p->arena == q->arena && p->offset == q->offset && p->bytes == q->bytes && p->bytes > 0 &&
                      a->dtype == b->dtype && strata_shape_equal(a->shape, b->shape));
}

/* Makes the trial's operands; false where the op does not take such shapes. */
static bool resize(trial *t, level how) {
    const strata_tensor *real = t->real;
    t->node = *real;
    t->node.inputs = t->pointers;
    t->is_full = how == LEVEL_FULL;
    if (t->attrs) memcpy(t->attrs, real->attrs, real->op->attrs_bytes);
    t->node.attrs = t->attrs;
    for (int i = 0; i < real->n_inputs; i++) {
        int first = 0;
        while (!is_same(t, real->inputs[first], real->inputs[i])) first++;
        t->pointers[i] = &t->inputs[first];
        t->inputs[i] = *real->inputs[i];
        for (int axis = 0; axis < t->inputs[i].shape.rank; axis++)
            t->inputs[i].shape.dims[axis] = shrink(how, real, real->inputs[i], axis);
    }
    if (how == LEVEL_FULL) return true;
    if (is_rigid(real->op) || !real->n_inputs) return false;
    shrink_attributes(how, t);
    return !real->op->shape(&t->node, NULL) && strata_shape_elements(t->node.shape) > 0;
}

static double work_of(const strata_tensor *node) {
    return strata_node_flops(node) + strata_node_moved_bytes(node);
}

/* Whether a launch's buffer is of the trial: an op may name an operand's operand. */
static bool is_own(const trial *t, const strata_tensor *buffer) {
    bool own = !buffer || buffer == &t->node;
    for (int i = 0; i < t->real->n_inputs; i++) own = own || buffer == t->pointers[i];
    return own;
}

static bool has_kernels(const strata_kernel_limits *limits, const trial *t, const strata_way *way) {
    strata_lowering lowering = {0};
    bool same = !strata_way_lower(limits, way, &t->node, &lowering, NULL) && strata_check_key(&t->node, &lowering) == t->key;
    for (int l = 0; l < lowering.n; l++)
        for (int b = 0; b < lowering.launches[l].n_buffers; b++) same = same && is_own(t, lowering.launches[l].buffers[b]);
    strata_lowering_finish(&lowering);
    return same;
}

/* Finds a way in which the small node has the real one's kernels. It must be one that the family offers for the small node, as
 * kernels rely on what it asks of shapes. */
static bool find_way(const strata_kernel_limits *limits, trial *t) {
    const strata_family *family = t->way.family;
    strata_candidate candidates[STRATA_CANDIDATES];
    strata_widened widened;
    const strata_tensor *node = &t->node;
    t->small_way = t->way;
    if (!family || t->is_full) return has_kernels(limits, t, &t->small_way);
    if (t->way.widen && !strata_widen(limits, node, &widened)) return false;
    if (t->way.widen) node = &widened.node;
    if (!family->fits(limits, node)) return false;
    const int n = family->candidates(limits, node, candidates);
    for (int i = 0; i < n; i++) {
        t->small_way.candidate = candidates[i];
        if (has_kernels(limits, t, &t->small_way)) return true;
    }
    return false;
}

/* Small operands with which the node has the kernels that it has: the largest that cost next to nothing, as they have the most
 * ends and rests, else those that cost least; false where even those are too large to compare. */
static bool make_small(const strata_kernel_limits *limits, trial *t) {
    int best = LEVELS;
    double best_work = INFINITY;
    for (int how = 0; how < LEVELS; how++) {
        if (!resize(t, (level)how) || !find_way(limits, t)) continue;
        const double work = work_of(&t->node);
        if (best < LEVELS && (work <= CHEAP_WORK ? best_work <= CHEAP_WORK && work <= best_work : work >= best_work)) continue;
        best = how;
        best_work = work;
    }
    return best < LEVELS && resize(t, (level)best) && find_way(limits, t) &&
           best_work <= (strata_host_fast_find(&t->node) ? MOST_FAST_WORK : MOST_WORK);
}

static void finish_trial(trial *t) {
    for (int i = 0; t->data && i <= t->real->n_inputs; i++)
        if (i == t->real->n_inputs || t->pointers[i] == &t->inputs[i]) free(t->data[i]);
    free(t->data);
    free(t->inputs);
    free(t->pointers);
    free(t->attrs);
}

static strata_status make_trial(const strata_kernel_limits *limits, strata_tuner *tuner, const strata_piece *piece,
                                const strata_tensor *node, trial *t, strata_error *err) {
    strata_lowering lowering = {0};
    *t = (trial){.real = node, .places = piece->places};
    STRATA_TRY(strata_way_choose(limits, tuner, node, &t->way, err));
    strata_status status = strata_way_lower(limits, &t->way, node, &lowering, err);
    t->key = strata_check_key(node, &lowering);
    strata_lowering_finish(&lowering);
    const size_t n = (size_t)node->n_inputs + 1;
    t->inputs = calloc(n, sizeof *t->inputs);
    t->pointers = calloc(n, sizeof(*t->pointers));
    t->data = calloc(n, sizeof(*t->data));
    t->attrs = node->op->attrs_bytes && node->attrs ? malloc(node->op->attrs_bytes) : NULL;
    if (!status && (!t->inputs || !t->pointers || !t->data || (node->attrs && node->op->attrs_bytes && !t->attrs)))
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for a node of %d operands", node->n_inputs);
    return status;
}

/* ---- what operands hold ---- */
static int64_t smallest_extent(const strata_tensor *tensor) {
    int64_t least = 7;
    for (int axis = 0; axis < tensor->shape.rank; axis++)
        if (tensor->shape.dims[axis] < least) least = tensor->shape.dims[axis];
    return least > 0 ? least : 1;
}

/* Floats in [-1, 1), or in [0.25, 1) for ops that take roots and logarithms. Integers are small enough to be indices or labels
 * of what they come with; where rows are set by index they are all different. */
static void fill(const trial *t, int i, bool positive, uint32_t seed) {
    const strata_tensor *tensor = t->pointers[i];
    const int64_t n = strata_shape_elements(tensor->shape), most = smallest_extent(t->pointers[0]);
    const bool updates = t->node.op->flags & STRATA_OP_UPDATE;
    uint32_t random = seed + 12345u + 7919u * (uint32_t)i;
    for (int64_t e = 0; e < n; e++) {
        random = random * 1664525u + 1013904223u;
        const double uniform = (double)(random >> 8) / (1 << 23) - 1;
        if (strata_dtype_is_float(tensor->dtype))
            strata_element_set(tensor->dtype, t->data[i], e, positive ? 0.25 + 0.75 * fabs(uniform) : uniform);
        else if (tensor->dtype == STRATA_DTYPE_U8 || tensor->dtype == STRATA_DTYPE_BOOL)
            strata_integer_set(tensor->dtype, t->data[i], e, random >> 13);
        else
            strata_integer_set(tensor->dtype, t->data[i], e, updates ? e : (int64_t)(random >> 13) % most);
    }
}

static bool has_nan(const strata_tensor *tensor, const void *data) {
    if (!strata_dtype_is_float(tensor->dtype)) return false;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++)
        if (isnan(strata_element_get(tensor->dtype, data, e))) return true;
    return false;
}

/* Large ones by the host backend's own loops, where it has some for the node. */
static strata_status refer(const trial *t, void **inputs, void *output, strata_error *err) {
    const strata_op_call call = {.node = &t->node, .inputs = (const void *const *)inputs, .output = output};
    const host_fast_op *fast = work_of(&t->node) > EASY_WORK ? strata_host_fast_find(&t->node) : NULL;
    if (!fast) return t->node.op->reference(&call, err);
    const int64_t bytes = fast->scratch_bytes ? fast->scratch_bytes(&t->node) : 0;
    void *scratch = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (!scratch) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %lld bytes", (long long)bytes);
    fast->run(&(host_call){.call = call, .scratch = scratch, .n_parts = 1});
    free(scratch);
    return STRATA_OK;
}

/* Memory of the operands, filled. */
static strata_status make_data(trial *t, bool positive, uint32_t seed, strata_error *err) {
    const int n = t->real->n_inputs;
    for (int i = 0; i <= n; i++) {
        const strata_tensor *tensor = i < n ? t->pointers[i] : &t->node;
        if (i < n && tensor != &t->inputs[i]) {
            int first = 0;
            while (&t->inputs[first] != tensor) first++;
            t->data[i] = t->data[first];
            continue;
        }
        if (!t->data[i]) t->data[i] = calloc(1, (size_t)bytes_of(tensor) + 1);
        if (!t->data[i])
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %lld bytes", (long long)bytes_of(tensor));
        if (i < n) fill(t, i, positive, seed);
    }
    return STRATA_OK;
}

/* ---- the piece of all trials ---- */
typedef struct rehearsal {
    strata_device *device;
    const strata_piece *real;
    /* While a model trains, once more: nothing is kept. */
    bool again;
    /* Of what operands hold. */
    uint32_t seed;
    trial *trials;
    int n;
    /* The real nodes' trials, as a piece. */
    const strata_tensor **nodes;
    strata_way *ways;
    strata_place *places;
    strata_arena *arenas;
    strata_piece piece;
    strata_program *program;
} rehearsal;

static bool is_new(const strata_checks *checks, const rehearsal *r, int k) {
    if (find(checks, r->trials[k].key)) return false;
    for (int j = 0; j < k; j++)
        if (r->trials[j].key == r->trials[k].key) return false;
    return true;
}

/* Whether the list has a launch of the node; a part of a pack in its place has none. */
static bool is_launched(const strata_kernel_list *list, const strata_tensor *node) {
    for (int l = 0; l < list->n_launches; l++)
        if (list->launches[l].node == node) return true;
    return false;
}

/* A trial for each node that launches something; *out_new: how many have kernels of which nothing is known. */
static strata_status make_trials(rehearsal *r, const strata_checks *checks, const strata_kernel_limits *limits,
                                 strata_tuner *tuner, int *out_new, strata_error *err) {
    strata_kernel_list list = {0};
    *out_new = 0;
    r->trials = calloc((size_t)r->real->n_nodes + 1, sizeof *r->trials);
    if (!r->trials) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %d nodes", r->real->n_nodes);
    STRATA_TRY(strata_kernel_list_create(limits, tuner, r->real, &list, err));
    strata_status status = STRATA_OK;
    for (int i = 0; i < r->real->n_nodes && !status; i++) {
        if (!is_launched(&list, r->real->nodes[i])) continue;
        status = make_trial(limits, tuner, r->real, r->real->nodes[i], &r->trials[r->n], err);
        r->trials[r->n].is_new = r->real->nodes[i]->op->reference && is_new(checks, r, r->n);
        *out_new += r->trials[r->n++].is_new;
    }
    strata_kernel_list_finish(&list);
    return status;
}

/* On some devices the host can only read what is in the outputs' arena. There operands from it lie in an arena of their own. */
static int arena_of(const rehearsal *r, const strata_tensor *real, bool is_operand) {
    const int arena = r->real->places[real->id].arena;
    const bool unreachable = is_operand && arena == STRATA_ARENA_OUTPUT && !r->device->reads_outputs;
    return arena < 0 || unreachable ? r->real->n_arenas : arena;
}

static void place(rehearsal *r, strata_tensor *tensor, int arena, int *ids) {
    strata_arena *a = &r->arenas[arena];
    const int64_t bytes = bytes_of(tensor);
    tensor->id = (*ids)++;
    r->places[tensor->id] = (strata_place){.arena = arena, .offset = a->bytes, .bytes = bytes};
    a->bytes += (bytes + STRATA_PLACE_ALIGNMENT - 1) / STRATA_PLACE_ALIGNMENT * STRATA_PLACE_ALIGNMENT;
}

/* Where the operand lies in the real node's value. */
static bool lies_within(const rehearsal *r, const strata_tensor *real, int i, int64_t *out_offset) {
    const strata_place *whole = &r->real->places[real->id], *part = &r->real->places[real->inputs[i]->id];
    *out_offset = part->offset - whole->offset;
    return (real->op->flags & STRATA_OP_SLICES) && part->arena == whole->arena && part->offset >= whole->offset &&
           part->offset + part->bytes <= whole->offset + whole->bytes;
}

/* Whether some operand lies in the node's value, so that the host writes there. */
static bool contains_operands(const rehearsal *r, const trial *t) {
    int64_t offset = 0;
    for (int i = 0; i < t->real->n_inputs && t->is_full; i++)
        if (t->pointers[i] == &t->inputs[i] && lies_within(r, t->real, i, &offset)) return true;
    return false;
}

static void place_trial(rehearsal *r, trial *t, int *ids) {
    const strata_tensor *real = t->real;
    const bool updates = real->op->flags & STRATA_OP_UPDATE;
    if (!updates) place(r, &t->node, arena_of(r, real, contains_operands(r, t)), ids);
    for (int i = 0; i < real->n_inputs; i++) {
        int64_t offset = 0;
        if (t->pointers[i] != &t->inputs[i]) continue;
        const bool within = t->is_full && lies_within(r, real, i, &offset);
        if (!within) {
            place(r, &t->inputs[i], arena_of(r, real->inputs[i], true), ids);
            continue;
        }
        t->inputs[i].id = (*ids)++;
        const strata_place whole = r->places[t->node.id];
        r->places[t->inputs[i].id] = (strata_place){whole.arena, whole.offset + offset, bytes_of(&t->inputs[i])};
    }
    if (updates) {
        t->node.id = (*ids)++;
        r->places[t->node.id] = r->places[t->pointers[0]->id];
    }
}

/* Gives all trials that can be made a place. */
static strata_status make_piece(rehearsal *r, const strata_kernel_limits *limits, strata_error *err) {
    size_t n_tensors = 1;
    int ids = 0, n = 0;
    for (int k = 0; k < r->n; k++) n_tensors += (size_t)r->trials[k].real->n_inputs + 1;
    r->nodes = calloc((size_t)r->n + 1, sizeof(*r->nodes));
    r->ways = calloc(n_tensors, sizeof *r->ways);
    r->places = calloc(n_tensors, sizeof *r->places);
    r->arenas = calloc((size_t)r->real->n_arenas + 1, sizeof *r->arenas);
    if (!r->nodes || !r->ways || !r->places || !r->arenas)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory for %zu tensors", n_tensors);
    for (int a = 0; a < r->real->n_arenas; a++) r->arenas[a].kind = r->real->arenas[a].kind;
    r->arenas[r->real->n_arenas].kind = STRATA_ARENA_WORK;
    for (int k = 0; k < r->n; k++) {
        trial *t = &r->trials[k];
        if (!make_small(limits, t)) {
            t->is_too_large = true;
            continue;
        }
        place_trial(r, t, &ids);
        r->ways[t->node.id] = t->small_way;
        r->nodes[n++] = &t->node;
    }
    r->piece = (strata_piece){.nodes = r->nodes,
                              .n_nodes = n,
                              .places = r->places,
                              .n_places = ids,
                              .arenas = r->arenas,
                              .n_arenas = r->real->n_arenas + (r->arenas[r->real->n_arenas].bytes > 0),
                              .n_slots = 1};
    for (int a = STRATA_ARENA_OUTPUT + 1; a < r->piece.n_arenas; a++)
        if (r->arenas[a].bytes)
            STRATA_TRY(r->device->api->buffer_create(r->device, r->arenas[a].bytes, &r->arenas[a].buffer, err));
    return STRATA_OK;
}

/* Memory of a tensor that the host reaches; NULL: it lies in a buffer. */
static char *host_place(const rehearsal *r, const strata_tensor *tensor) {
    const strata_place *p = &r->places[tensor->id];
    char *base = NULL;
    if (p->arena == STRATA_ARENA_INPUT) base = r->device->api->program_input(r->program, 0);
    if (p->arena == STRATA_ARENA_OUTPUT) base = (char *)r->device->api->program_output(r->program, 0);
    return base ? base + p->offset : NULL;
}

static strata_status send(const rehearsal *r, const strata_tensor *tensor, const void *data, strata_error *err) {
    char *host = host_place(r, tensor);
    const strata_place *p = &r->places[tensor->id];
    if (!p->bytes) return STRATA_OK;
    if (!host) return r->device->api->upload(r->device, r->arenas[p->arena].buffer, p->offset, data, p->bytes, err);
    memcpy(host, data, (size_t)p->bytes);
    return STRATA_OK;
}

static strata_status receive(const rehearsal *r, const strata_tensor *tensor, void *data, strata_error *err) {
    const char *host = host_place(r, tensor);
    const strata_place *p = &r->places[tensor->id];
    if (!p->bytes) return STRATA_OK;
    if (!host) return r->device->api->download(r->device, r->arenas[p->arena].buffer, p->offset, data, p->bytes, err);
    memcpy(data, host, (size_t)p->bytes);
    return STRATA_OK;
}

/* Fills and computes a new trial; operands go to the device as they are before the reference runs. */
static strata_status prepare(rehearsal *r, trial *t, strata_error *err) {
    const int n = t->real->n_inputs;
    const bool updates = t->node.op->flags & STRATA_OP_UPDATE;
    for (int positive = 0; positive < 2; positive++) {
        STRATA_TRY(make_data(t, positive, r->seed, err));
        for (int i = 0; i < n; i++)
            if (t->pointers[i] == &t->inputs[i]) STRATA_TRY(send(r, &t->inputs[i], t->data[i], err));
        STRATA_TRY(refer(t, t->data, updates ? t->data[0] : t->data[n], err));
        if (!has_nan(&t->node, updates ? t->data[0] : t->data[n])) break;
    }
    return STRATA_OK;
}

/* ---- comparing ---- */
/* What an element may differ by, as a part of the tensor's largest: far above roundings, far below what a wrong kernel does. */
static double tolerance_of(strata_dtype dtype) {
    return dtype == STRATA_DTYPE_BF16 ? 4e-2 : dtype == STRATA_DTYPE_F16 ? 5e-3 : dtype == STRATA_DTYPE_F32 ? 3e-4 : 0;
}

/* The largest difference as a part of the largest value. */
static double difference(const strata_tensor *tensor, const void *got, const void *want) {
    double largest = 0, most = 0;
    for (int64_t e = 0; e < strata_shape_elements(tensor->shape); e++) {
        const double g = strata_element_get(tensor->dtype, got, e), w = strata_element_get(tensor->dtype, want, e);
        if (isfinite(w)) largest = fmax(largest, fabs(w));
        if (g == w || (isnan(g) && isnan(w))) continue;
        most = fmax(most, isfinite(g) && isfinite(w) ? fabs(g - w) : INFINITY);
    }
    return most > 0 ? most / fmax(largest, 1e-30) : 0;
}

/* The largest error of what the node writes, over what is allowed there: above 1 it is wrong. */
static strata_status judge(const rehearsal *r, const trial *t, double *out_error, bool *out_wrong, strata_error *err) {
    const int n = t->real->n_inputs;
    const bool updates = t->node.op->flags & STRATA_OP_UPDATE;
    *out_error = 0;
    *out_wrong = false;
    for (int i = 0; i <= n; i++) {
        const bool written = i == n ? !updates : updates && (i == 0 || t->node.op->also_writes >> i & 1);
        const strata_tensor *tensor = i < n ? t->pointers[i] : &t->node;
        if (!written || (i < n && tensor != &t->inputs[i])) continue;
        void *got = malloc((size_t)bytes_of(tensor) + 1);
        if (!got) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory");
        const strata_status status = receive(r, tensor, got, err);
        const double error = status ? 0 : difference(tensor, got, t->data[i]);
        free(got);
        STRATA_TRY(status);
        if (error > *out_error) *out_error = error;
        if (!(error <= tolerance_of(tensor->dtype))) *out_wrong = true;
    }
    return STRATA_OK;
}

/* "cpu/matmul f32", and how many others it has with it. */
static void name_kernels(const strata_kernel_limits *limits, const trial *t, char out[128]) {
    strata_lowering lowering = {0};
    snprintf(out, 128, "?");
    if (!strata_way_lower(limits, &t->small_way, &t->node, &lowering, NULL) && lowering.n) {
        const strata_launch *main = &lowering.launches[t->way.widen && lowering.n > 2 ? lowering.n - 2 : 0];
        snprintf(out, 128, "%s%s%s", main->kernel, main->variant ? " " : "", main->variant ? main->variant : "");
    }
    strata_lowering_finish(&lowering);
}

static strata_status judge_all(strata_checks *checks, const rehearsal *r, const strata_kernel_limits *limits, int *out_wrong,
                               strata_error *err) {
    for (int k = 0; k < r->n; k++) {
        const trial *t = &r->trials[k];
        double error = 0;
        bool wrong = false;
        char kernels[128], text[TEXT_BYTES];
        if (!t->is_new) continue;
        if (!t->is_too_large) STRATA_TRY(judge(r, t, &error, &wrong, err));
        name_kernels(limits, t, kernels);
        if (r->again) {
            if (wrong)
                strata_device_warn(
                    checks->device,
                    "%s: kernel %s computed %s rightly before and wrongly now, off by %.3g of the largest value: "
                    "the device or its memory may be failing, and what was trained may be wrong (driver %s)",
                    checks->device->info.id, kernels, t->node.op->name, error, checks->driver);
            continue;
        }
        if (wrong)
            snprintf(text, sizeof text, "kernel %s computes %s wrongly: off by %.3g of the largest value (driver %s)", kernels,
                     t->node.op->name, error, checks->driver);
        else
            snprintf(text, sizeof text, "%s %s%s", kernels, t->node.op->name,
                     t->is_too_large ? ", not compared: small operands have other kernels" : "");
        if (!add(checks, t->key, wrong, error, text)) return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory");
        if (!wrong) continue;
        (*out_wrong)++;
        checks->device->n_distrusted++;
        const uint64_t family = t->way.family ? strata_check_family_key(t->way.family) : t->key;
        if (family != t->key && find(checks, family)) continue; /* it was said */
        if (family != t->key && !add(checks, family, true, error, text))
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "check: no host memory");
        strata_device_warn(checks->device, "%s: %s; it is not used", checks->device->info.id, text);
    }
    return STRATA_OK;
}

/* ---- all of it ---- */
static strata_status rehearse(strata_checks *checks, rehearsal *r, const strata_kernel_limits *limits, int *out_wrong,
                              strata_error *err) {
    const strata_device_api *api = r->device->api;
    uint64_t ticket = 0;
    STRATA_TRY(make_piece(r, limits, err));
    if (!r->piece.n_nodes) return judge_all(checks, r, limits, out_wrong, err);
    checks->ways = r->ways;
    const strata_status compiled = api->compile(r->device, &r->piece, &r->program, err);
    checks->ways = NULL;
    STRATA_TRY(compiled);
    for (int k = 0; k < r->n; k++)
        if (r->trials[k].is_new && !r->trials[k].is_too_large) STRATA_TRY(prepare(r, &r->trials[k], err));
    STRATA_TRY(api->run(r->program, 0, &ticket, err));
    STRATA_TRY(api->wait(r->device, ticket, err));
    return judge_all(checks, r, limits, out_wrong, err);
}

static void finish(rehearsal *r) {
    if (r->program) r->device->api->program_destroy(r->program);
    for (int a = 0; a < r->piece.n_arenas; a++)
        if (r->arenas[a].buffer) r->device->api->buffer_destroy(r->device, r->arenas[a].buffer);
    for (int k = 0; k < r->n; k++) finish_trial(&r->trials[k]);
    free(r->trials);
    free(r->nodes);
    free(r->ways);
    free(r->places);
    free(r->arenas);
}

/* One round: what is found may bring other kernels, of which nothing is known, into the piece. */
static strata_status check_once(strata_checks *checks, const strata_kernel_limits *limits, strata_tuner *tuner,
                                const strata_piece *piece, int *out_wrong, strata_error *err) {
    rehearsal r = {.device = checks->device, .real = piece};
    int n_new = 0;
    *out_wrong = 0;
    strata_status status = make_trials(&r, checks, limits, tuner, &n_new, err);
    if (!status && n_new) {
        strata_error why = {0};
        status = rehearse(checks, &r, limits, out_wrong, &why);
        /* What does not compile, or has no room, is for the piece itself to say. */
        if (status == STRATA_UNSUPPORTED || status == STRATA_OUT_OF_MEMORY) status = STRATA_OK;
        if (status) status = strata_fail(err, status, "checking kernels: %.900s", why.message);
        write_file(checks);
    }
    finish(&r);
    return status;
}

/* The counters are those of what the program's owner asked for; compiled kernels count. */
static void restore_counters(strata_device *device, const strata_device_counters *before) {
    const uint64_t compilations = device->counters.compilations;
    device->counters = *before;
    device->counters.compilations = compilations;
}

strata_status strata_checks_again(const strata_kernel_limits *limits, strata_tuner *tuner, strata_device *device,
                                  const strata_piece *piece, uint32_t random, strata_error *err) {
    strata_checks *checks = limits->checks;
    rehearsal r = {.device = device, .real = piece, .again = true, .seed = random};
    const strata_device_counters before = device->counters;
    int n_new = 0, n_wrong = 0, n_candidates = 0;
    if (!checks || device->trace) return STRATA_OK;
    strata_status status = make_trials(&r, checks, limits, tuner, &n_new, err);
    for (int k = 0; k < r.n; k++) n_candidates += r.trials[k].real->op->reference != NULL;
    int chosen = n_candidates ? (int)(random % (uint32_t)n_candidates) : 0;
    for (int k = 0; k < r.n; k++) r.trials[k].is_new = r.trials[k].real->op->reference && chosen-- == 0;
    if (!status && n_candidates) status = rehearse(checks, &r, limits, &n_wrong, err);
    finish(&r);
    restore_counters(device, &before);
    return status;
}

strata_status strata_checks_run(const strata_kernel_limits *limits, strata_tuner *tuner, strata_device *device,
                                const strata_piece *piece, strata_error *err) {
    strata_checks *checks = limits->checks;
    if (!checks || checks->ways || strata_tuner_is_trying(tuner) || device->trace) return STRATA_OK;
    const strata_device_counters before = device->counters;
    int n_wrong = 0;
    strata_status status;
    do {
        status = check_once(checks, limits, tuner, piece, &n_wrong, err);
    } while (!status && n_wrong);
    restore_counters(device, &before);
    return status;
}
