/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the weights of PyTorch models that are stored as safetensors. A map relates the names. PyTorch has a
 * layer's outputs first and the channels of images first, so most weights have their axes in another order. */
#include <stdio.h>

#include "core/interchange/weights.h"
#include "strata/formats.h"
#include "strata/interchange.h"

enum { MOST_MAP_BYTES = 16 << 20, WORD_BYTES = 256 };

/* The orders of axes in PyTorch: axis i of Strata's weight is axis axes[i] of the file's weight. */
static const struct {
    const char *name;
    int rank, axes[STRATA_MAX_RANK];
} orders[] = {{"linear", 2, {1, 0}},
              {"conv1d", 3, {2, 1, 0}},
              {"conv2d", 4, {2, 3, 1, 0}},
              {"conv2d_transpose", 4, {2, 3, 1, 0}},
              {"depthwise", 4, {2, 3, 0, 1}}};
enum { N_ORDERS = sizeof orders / sizeof *orders, SAME = -1 };

static bool fits(strata_shape theirs, strata_shape ours, int order) {
    if (order == SAME)
        return strata_shape_elements(theirs) == strata_shape_elements(ours) &&
               (theirs.rank == ours.rank || theirs.rank <= 1 || ours.rank <= 1);
    if (theirs.rank != orders[order].rank || ours.rank != theirs.rank) return false;
    for (int d = 0; d < ours.rank; d++)
        if (ours.dims[d] != theirs.dims[orders[order].axes[d]]) return false;
    return true;
}

/* A line of the map: the name in the file, the name in the model, and the order of axes ("": not given). */
typedef struct line {
    int number;
    char theirs[WORD_BYTES], ours[WORD_BYTES], order[WORD_BYTES];
    /* The index of the model's parameter; -1: the line only says that the tensors of the file are left out. */
    int parameter;
} line;

/* The order that the line names. If it names none, the order with which the shapes fit. */
static strata_status choose(const line *l, const char *map, strata_shape theirs, strata_shape ours, int *out,
                            strata_error *err) {
    *out = SAME;
    for (int i = 0; i < N_ORDERS && *l->order; i++)
        if (!strcmp(orders[i].name, l->order)) *out = i;
    if (*l->order && *out == SAME && strcmp(l->order, "same"))
        return strata_fail(err, STRATA_DATA,
                           "%s:%d: \"%.40s\" is no order of axes; there are: same, linear, conv1d, conv2d, conv2d_transpose, "
                           "depthwise",
                           map, l->number, l->order);
    if (!*l->order) { /* if both fit, PyTorch's order is more likely than the same order */
        for (int i = 0; i < N_ORDERS && *out == SAME; i++)
            if (fits(theirs, ours, i)) *out = i;
        if (*out == 0 && fits(theirs, ours, SAME) && strstr(l->ours, "embeddings")) *out = SAME;
    }
    if (fits(theirs, ours, *out)) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s:%d: %.80s is %s, which does not become %.80s, %s", map, l->number, l->theirs,
                       strata_shape_text(theirs).text, l->ours, strata_shape_text(ours).text);
}

/* ---- recurrent layers ---- */

/* PyTorch's LSTM and GRU have two biases, bias_ih and bias_hh, which two lines of a map may give to one parameter "bias". An
 * LSTM adds them. The bias of a GRU has a row for each, unless the layer has `no_reset_after`; then it is their sum, too.
 * PyTorch's GRU has its gates in the order r z n, Strata's in the order z r h. */
typedef struct recurrent {
    bool bias, swaps;
    /* The rows of the parameter: 2 for a bias that is not a sum. */
    int rows;
} recurrent;

static recurrent recurrent_of(const strata_model_structure *s, const strata_parameter *spec, const line *l) {
    const char *kind = "", *name = NULL;
    for (int i = 0; i < s->n_calls; i++) {
        const char *own = s->calls[i].options ? strata_name_in(spec->name, s->calls[i].name) : NULL;
        if (own && !strchr(own, '/')) kind = s->calls[i].kind, name = own;
    }
    const bool gru = !strcmp(kind, "gru"), bias = (gru || !strcmp(kind, "lstm")) && strstr(name, "bias");
    return (recurrent){bias, gru && strcmp(l->order, "same"), bias && spec->shape.rank == 2 ? 2 : 1};
}

/* The place of element i of rows of `width` numbers, with the first two of the three gates in each row exchanged. It is its own
 * inverse. */
static int64_t swapped(int64_t i, int64_t width) {
    const int64_t units = width / 3, gate = i % width / units;
    return gate == 0 ? i + units : gate == 1 ? i - units : i;
}

/* ---- the map ---- */

/* The state of reading a state dict into a model's values, or of writing it from them. */
typedef struct transfer {
    strata_model *model;
    strata_model_structure structure;
    const char *map;
    strata_weights weights;
    line *lines;
    int n_lines;
    /* When reading: `file` is the source. When writing: [n_lines] the tensors to be written, n_written of them. */
    const strata_safetensors *file;
    strata_array *arrays;
    strata_named_array *named;
    size_t n_written;
} transfer;

/* The lines before line `i` that have the same parameter, or, if i is n_lines, all that have it. */
static int count_lines(const transfer *t, int i, int parameter) {
    int n = 0;
    for (int k = 0; k < i; k++) n += t->lines[k].parameter == parameter;
    return n;
}

/* The row of a bias with two rows that line `i` gives: that of its name in PyTorch, or that of its place in the map. */
static int row_of(const transfer *t, int i) {
    const line *l = &t->lines[i];
    return strstr(l->theirs, "_hh") ? 1 : strstr(l->theirs, "_ih") ? 0 : count_lines(t, i, l->parameter);
}

static bool is_left_out(const line *l) {
    return !strcmp(l->ours, "-");
}

/* Whether the line names the tensor. The name of a line that leaves tensors out may end in '*'. */
static bool names(const line *l, const char *tensor) {
    const size_t n = strlen(l->theirs);
    if (is_left_out(l) && n && l->theirs[n - 1] == '*') return !strncmp(l->theirs, tensor, n - 1);
    return !strcmp(l->theirs, tensor);
}

static strata_status check_line(transfer *t, int i, strata_error *err) {
    line *l = &t->lines[i];
    l->parameter = -1;
    if (is_left_out(l)) return STRATA_OK;
    const int p = strata_parameter_find(t->model, NULL, l->ours);
    if (p < 0) return strata_fail(err, STRATA_DATA, "%s:%d: the model has no parameter \"%.100s\"", t->map, l->number, l->ours);
    l->parameter = p;
    const int before = count_lines(t, i, p);
    const strata_parameter spec = strata_model_parameter(t->model, p);
    const recurrent r = recurrent_of(&t->structure, &spec, l);
    bool twice = before > (r.bias ? 1 : 0);
    for (int k = 0; k < i && r.bias; k++)
        twice |= t->lines[k].parameter == p && (!strcmp(t->lines[k].theirs, l->theirs) ||
                                                (r.rows == 2 && (row_of(t, k) == row_of(t, i) || row_of(t, i) > 1)));
    if (twice) return strata_fail(err, STRATA_DATA, "%s:%d: \"%.100s\" is in the map twice", t->map, l->number, l->ours);
    return STRATA_OK;
}

/* Reads the lines of the map, and checks that they name each parameter. */
static strata_status read_lines(transfer *t, char *text, strata_error *err) {
    const char *map = t->map;
    int most = 1, number = 0;
    for (const char *at = text; *at; at++) most += *at == '\n';
    STRATA_TRY(STRATA_NEW(t->lines, most, err, "%s: no host memory", map));
    for (char *at = text, *end; *at; at = end) {
        char *stop = strchr(at, '\n'),
             *words[] = {t->lines[t->n_lines].theirs, t->lines[t->n_lines].ours, t->lines[t->n_lines].order};
        line *l = &t->lines[t->n_lines];
        end = stop ? stop + 1 : at + strlen(at);
        if (stop) *stop = 0;
        *l = (line){.number = ++number};
        int n = 0;
        size_t longest = 0;
        char *rest = NULL;
        for (char *w = strtok_r(at, " \t\r\v\f", &rest); w && n < 4; w = strtok_r(NULL, " \t\r\v\f", &rest), n++) {
            if (n < 3) snprintf(words[n], WORD_BYTES, "%s", w);
            if (strlen(w) > longest) longest = strlen(w);
        }
        if (n < 1 || *l->theirs == '#') continue;
        if (longest >= WORD_BYTES)
            return strata_fail(err, STRATA_DATA,
                               "%s:%d: a name has %zu bytes, and %d are the most; give the tensor a shorter name", map,
                               l->number, longest, WORD_BYTES - 1);
        if (n < 2 || n > 3)
            return strata_fail(err, STRATA_DATA, "%s:%d: a line has two names, and maybe an order of axes", map, l->number);
        STRATA_TRY(check_line(t, t->n_lines, err));
        t->n_lines++;
    }
    for (int p = 0; p < strata_model_n_parameters(t->model); p++)
        if (!count_lines(t, t->n_lines, p))
            return strata_fail(err, STRATA_DATA, "%s: no line gives the parameter \"%s\"", map,
                               strata_model_parameter(t->model, p).name);
    return STRATA_OK;
}

/* ---- reading ---- */

static strata_status take_line(transfer *t, int i, strata_error *err) {
    const line *l = &t->lines[i];
    const char *map = t->map;
    if (l->parameter < 0) return STRATA_OK;
    const strata_parameter spec = strata_model_parameter(t->model, l->parameter);
    const strata_safetensor *tensor = strata_safetensors_find(t->file, l->theirs);
    const recurrent r = recurrent_of(&t->structure, &spec, l);
    strata_shape ours = spec.shape;
    STRATA_FINISHED_BY(strata_array_finish) strata_array array = {0}, ordered = {0};
    int order;
    if (!tensor) return strata_fail(err, STRATA_DATA, "%s:%d: %s has no \"%.100s\"", map, l->number, t->file->name, l->theirs);
    /* A tensor of one row is one of the two rows of the bias; a tensor of two is the whole bias. */
    const bool one_row = r.rows == 2 && strata_shape_elements(tensor->shape) != strata_shape_elements(ours);
    if (one_row) ours = STRATA_SHAPE(ours.dims[1]);
    STRATA_TRY(choose(l, map, tensor->shape, ours, &order, err));
    STRATA_TRY(strata_safetensors_load(t->file, l->theirs, &array, err));
    if (order == SAME) array.shape = ours;
    STRATA_TRY(strata_permuted(&array, order == SAME ? NULL : orders[order].axes, &ordered, err));
    const int64_t n = strata_shape_elements(ours), width = ours.rank ? ours.dims[ours.rank - 1] : 1;
    float *to = (float *)t->weights.arrays[l->parameter].data + (one_row ? row_of(t, i) * n : 0);
    for (int64_t k = 0; k < n; k++) {
        const int64_t place = r.swaps ? swapped(k, width) : k;
        const float value = (float)strata_element_get(ordered.dtype, ordered.data, k);
        to[place] = r.bias ? to[place] + value : value;
    }
    return STRATA_OK;
}

/* Fails with a list of the file's tensors that no line names. Counters of steps, which are no weights, are left out. */
static strata_status check_unused(const transfer *t, strata_error *err) {
    STRATA_FINISHED_BY(strata_text_finish) strata_text list = {0};
    int n = 0;
    for (size_t i = 0; i < t->file->n_tensors; i++) {
        const strata_safetensor *tensor = &t->file->tensors[i];
        bool used = strata_shape_elements(tensor->shape) == 1 && (*tensor->dtype_name == 'I' || *tensor->dtype_name == 'U');
        for (int k = 0; k < t->n_lines && !used; k++) used = names(&t->lines[k], tensor->name);
        if (!used) strata_text_add(&list, "%s%.100s", n++ ? ", " : "", tensor->name);
    }
    if (list.failed) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", t->map);
    if (!n) return STRATA_OK;
    return strata_fail(err, STRATA_DATA,
                       "%s: no line uses %d tensor%s of %s: %.800s%s. Add lines for them; \"NAME -\" leaves one out, "
                       "\"BEGINNING* -\" several. Both biases of an LSTM or GRU go to its one \"bias\"",
                       t->map, n, n > 1 ? "s" : "", t->file->name, list.bytes, list.n_bytes > 800 ? " ..." : "");
}

/* ---- writing ---- */

/* If the line names no order, it follows from the number of axes, as in PyTorch's layers. A table of embeddings and a bias keep
 * their order. */
static int order_of_axes(strata_shape ours, const char *name, bool bias) {
    for (int i = 0; i < N_ORDERS && !strstr(name, "embeddings") && !bias; i++)
        if (orders[i].rank == ours.rank) return i;
    return SAME;
}

static strata_status put_line(transfer *t, int k, strata_error *err) {
    const line *l = &t->lines[k];
    if (l->parameter < 0) return STRATA_OK;
    const strata_parameter spec = strata_model_parameter(t->model, l->parameter);
    const recurrent r = recurrent_of(&t->structure, &spec, l);
    const float *from = t->weights.arrays[l->parameter].data;
    strata_shape ours = spec.shape;
    const int n_lines = count_lines(t, t->n_lines, l->parameter), before = count_lines(t, k, l->parameter);
    if (r.rows == 2 && n_lines == 2) {
        ours = STRATA_SHAPE(ours.dims[1]);
        from += row_of(t, k) * ours.dims[0];
    } else if (r.rows == 2 && (strstr(l->theirs, "_ih") || strstr(l->theirs, "_hh"))) {
        return strata_fail(err, STRATA_DATA,
                           "%s:%d: %.80s has two rows, bias_ih and bias_hh of PyTorch; the map has one of them", t->map,
                           l->number, l->ours);
    }
    strata_shape theirs = ours;
    int order = order_of_axes(ours, spec.name, r.bias), axes[STRATA_MAX_RANK] = {0};
    for (int i = 0; i < N_ORDERS && *l->order; i++)
        if (!strcmp(orders[i].name, l->order)) order = i;
    if (!strcmp(l->order, "same")) order = SAME;
    for (int d = 0; order != SAME && orders[order].rank == theirs.rank && d < theirs.rank; d++) {
        theirs.dims[orders[order].axes[d]] = ours.dims[d];
        axes[orders[order].axes[d]] = d;
    }
    if (*l->order) STRATA_TRY(choose(l, t->map, theirs, ours, &order, err));
    STRATA_FINISHED_BY(strata_array_finish) strata_array own = {0};
    STRATA_TRY(strata_array_create(STRATA_DTYPE_F32, ours, &own, err));
    for (int64_t i = 0; i < strata_shape_elements(ours); i++) /* the second bias of a sum is 0 */
        ((float *)own.data)[i] = r.rows == 1 && before ? 0 : from[r.swaps ? swapped(i, ours.dims[ours.rank - 1]) : i];
    strata_array *array = &t->arrays[t->n_written];
    STRATA_TRY(strata_permuted(&own, order == SAME ? NULL : axes, array, err));
    t->named[t->n_written++] = (strata_named_array){.name = l->theirs, .array = *array};
    return STRATA_OK;
}

/* ---- the whole ---- */

/* Reads the map, for the weights that the caller has made. */
static strata_status open_transfer(transfer *t, strata_error *err) {
    size_t n_bytes;
    STRATA_FREED unsigned char *text = NULL;
    STRATA_TRY(strata_model_describe(t->model, &t->structure, err));
    STRATA_TRY(strata_file_read(t->map, MOST_MAP_BYTES, &text, &n_bytes, err));
    if (strlen((char *)text) != n_bytes) return strata_fail(err, STRATA_DATA, "%s: it is no text", t->map);
    return read_lines(t, (char *)text, err);
}

static void close_transfer(transfer *t) {
    for (size_t i = 0; i < t->n_written; i++) strata_array_finish(&t->arrays[i]);
    strata_weights_finish(&t->weights);
    free(t->structure.calls);
    free(t->arrays);
    free(t->named);
    free(t->lines);
}

/* Reads the file's tensors into new weights. */
static strata_status take_file(transfer *t, const char *path, strata_safetensors *file, strata_error *err) {
    STRATA_TRY(strata_weights_create(t->model, &t->weights, err));
    STRATA_TRY(strata_safetensors_read(path, file, err));
    for (int i = 0; i < t->n_lines; i++) STRATA_TRY(take_line(t, i, err));
    return STRATA_OK;
}

strata_status strata_model_take_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    STRATA_FINISHED_BY(strata_safetensors_finish) strata_safetensors file = {0};
    STRATA_FINISHED_BY(close_transfer) transfer t = {.model = model, .map = map_path, .file = &file};
    STRATA_TRY(open_transfer(&t, err));
    STRATA_TRY(take_file(&t, path, &file, err));
    STRATA_TRY(check_unused(&t, err));
    for (int i = 0; i < t.weights.n; i++) STRATA_TRY(strata_model_set_parameter(model, i, &t.weights.arrays[i], err));
    return STRATA_OK;
}

/* Reads the written tensors again, and compares them with the model's values. */
static strata_status read_back(const char *path, void *context, strata_error *err) {
    const transfer *t = context;
    STRATA_FINISHED_BY(strata_safetensors_finish) strata_safetensors file = {0};
    transfer again = *t;
    again.file = &file;
    strata_status status = take_file(&again, path, &file, err);
    for (int i = 0; i < t->weights.n && !status; i++)
        for (int64_t k = 0; k < strata_shape_elements(t->weights.arrays[i].shape) && !status; k++) {
            const float a = ((float *)t->weights.arrays[i].data)[k], b = ((float *)again.weights.arrays[i].data)[k];
            if (a != b && !(a != a && b != b))
                status = strata_fail(err, STRATA_INTERNAL, "%s has other values", strata_model_parameter(t->model, i).name);
        }
    strata_weights_finish(&again.weights);
    return status;
}

strata_status strata_model_save_state_dict(strata_model *model, const char *path, const char *map_path, strata_error *err) {
    STRATA_FINISHED_BY(close_transfer) transfer t = {.model = model, .map = map_path};
    STRATA_TRY(open_transfer(&t, err));
    STRATA_TRY(strata_weights_read(model, "save_state_dict", &t.weights, err));
    STRATA_TRY(STRATA_NEW(t.arrays, t.n_lines + 1, err, "%s: no host memory", path));
    STRATA_TRY(STRATA_NEW(t.named, t.n_lines + 1, err, "%s: no host memory", path));
    for (int i = 0; i < t.n_lines; i++) STRATA_TRY(put_line(&t, i, err));
    return strata_safetensors_write(path, t.named, t.n_written, NULL, 0,
                                    &(strata_safetensors_writing){.check = &(strata_file_check){read_back, &t}}, err);
}
