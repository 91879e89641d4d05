/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the rules of a layout and places parameters by them (layout.h). */
#include "core/model/layout.h"

#include <inttypes.h>
#include <regex.h>
#include <stdio.h>

#include "core/base/ascii.h"
#include "core/base/json.h"
#include "core/model/mesh_spec.h"

enum { MOST_TEXT_BYTES = 1 << 20, MOST_PATTERN_BYTES = 255, MOST_PLUS = 8, MOST_NEAREST = 5 };

/* The axes over which a dimension is divided, by their names. */
typedef struct rule_dim {
    int n_axes;
    const char *axes[STRATA_MESH_MOST_AXES];
} rule_dim;

typedef struct strata_layout_rule {
    const char *pattern;
    regex_t expression;
    int rank;
    rule_dim dims[STRATA_MAX_RANK];
} strata_layout_rule;

/* ---- reading ---- */

/* Adds the name of an axis to those of a dimension. */
static strata_status read_axis(const strata_json *value, rule_dim *dim, strata_memory *memory, strata_error *err) {
    const char *name;
    STRATA_TRY(strata_json_to_string(value, &name, err));
    if (dim->n_axes == STRATA_MESH_MOST_AXES)
        return strata_json_fail(value, err, STRATA_DATA, "a dimension may have at most %d axes", STRATA_MESH_MOST_AXES);
    const char *copy = strata_memory_copy(memory, name, strlen(name) + 1);
    if (!copy) return strata_fail(err, STRATA_OUT_OF_MEMORY, "layout: no host memory for its rules");
    dim->axes[dim->n_axes++] = copy;
    return STRATA_OK;
}

static strata_status read_dim(const strata_json *value, rule_dim *dim, strata_memory *memory, strata_error *err) {
    strata_json axis;
    const strata_json_kind kind = strata_json_kind_of(value);
    if (kind == STRATA_JSON_NULL) return STRATA_OK;
    if (kind == STRATA_JSON_STRING) return read_axis(value, dim, memory, err);
    if (kind != STRATA_JSON_ARRAY)
        return strata_json_fail(value, err, STRATA_DATA, "must be null, an axis such as \"tensor\", or a list of axes");
    for (bool more = strata_json_first(value, &axis); more; more = strata_json_next(&axis))
        STRATA_TRY(read_axis(&axis, dim, memory, err));
    return STRATA_OK;
}

/* Why regcomp should not compile the pattern; NULL: it may. A plus sign and a count repeat what is before them in the compiled
 * expression, so that its size grows exponentially if they are nested. Python's classes, such as \d, would be other letters. */
static const char *obstacle(const char *pattern) {
    int n_plus = 0;
    if (!*pattern) return "the pattern is empty";
    if (strlen(pattern) > MOST_PATTERN_BYTES) return "the pattern has more than 255 bytes";
    for (const char *at = pattern; *at; at++) {
        if (*at == '{') return "braces are not supported; repeat the expression, or write * or +";
        if (*at == '+' && ++n_plus > MOST_PLUS) return "the pattern has more than 8 plus signs; write * instead";
        if (*at == '\\' && (strata_ascii_is_word(at[1])))
            return "a backslash before a letter or a digit is not supported; write [0-9] for digits";
        if (*at == '\\' && at[1]) at++;
    }
    return NULL;
}

static strata_status read_rule(const strata_json *value, strata_layout *layout, strata_error *err) {
    strata_layout_rule *rule = &layout->rules[layout->n_rules];
    strata_json dim;
    const char *reason = obstacle(value->name);
    if (reason) return strata_json_fail(value, err, STRATA_DATA, "%s", reason);
    rule->pattern = strata_memory_copy(&layout->memory, value->name, strlen(value->name) + 1);
    if (!rule->pattern) return strata_fail(err, STRATA_OUT_OF_MEMORY, "layout: no host memory for its rules");
    STRATA_TRY(strata_json_expect(value, STRATA_JSON_ARRAY, err));
    if (strata_json_length(value) > STRATA_MAX_RANK)
        return strata_json_fail(value, err, STRATA_DATA, "has %" PRId64 " dimensions; it must have at most %d",
                                strata_json_length(value), STRATA_MAX_RANK);
    for (bool more = strata_json_first(value, &dim); more; more = strata_json_next(&dim))
        STRATA_TRY(read_dim(&dim, &rule->dims[rule->rank++], &layout->memory, err));
    const int failed = regcomp(&rule->expression, rule->pattern, REG_EXTENDED | REG_NOSUB);
    if (failed) {
        char why[128];
        regerror(failed, &rule->expression, why, sizeof why);
        return strata_json_fail(value, err, failed == REG_ESPACE ? STRATA_OUT_OF_MEMORY : STRATA_DATA,
                                "is no extended regular expression: %s", why);
    }
    layout->n_rules++;
    return STRATA_OK;
}

static strata_status read_rules(const strata_json *root, strata_layout *layout, strata_error *err) {
    strata_json rule;
    STRATA_TRY(strata_json_expect(root, STRATA_JSON_OBJECT, err));
    STRATA_TRY(
        STRATA_TAKE(&layout->memory, layout->rules, strata_json_length(root), err, "layout: no host memory for its rules"));
    for (bool more = strata_json_first(root, &rule); more; more = strata_json_next(&rule))
        STRATA_TRY(read_rule(&rule, layout, err));
    return STRATA_OK;
}

strata_status strata_layout_read(const char *name, const char *text, size_t n_bytes, strata_layout *out_layout,
                                 strata_error *err) {
    STRATA_FINISHED(strata_json) root = {0};
    *out_layout = (strata_layout){0};
    STRATA_TRY(strata_json_parse(name, text, n_bytes, MOST_TEXT_BYTES, &root, err));
    const strata_status status = read_rules(&root, out_layout, err);
    if (status) strata_layout_finish(out_layout);
    return status;
}

void strata_layout_finish(strata_layout *layout) {
    for (int i = 0; i < layout->n_rules; i++) regfree(&layout->rules[i].expression);
    strata_memory_finish(&layout->memory);
    *layout = (strata_layout){0};
}

/* ---- placing ---- */

bool strata_layout_owns(const strata_call *call, const char *parameter) {
    const char *end = strrchr(parameter, '/');
    const size_t n = end ? (size_t)(end - parameter) : 0;
    return call->fields && strlen(call->name) == n && !strncmp(call->name, parameter, n);
}

/* The number of neighbouring elements that stay together: those of a head in the columns of query, key and value and in the
 * rows of the output; else 1. */
static int64_t unit_of(const strata_layout_model *model, const strata_parameter_spec *parameter, int dim) {
    int i = 0;
    while (i < model->n_calls && !strata_layout_owns(&model->calls[i], parameter->name)) i++;
    if (i == model->n_calls || strcmp(model->calls[i].kind, "multi_head_attention")) return 1;
    const bool output = !strncmp(parameter->name + strlen(model->calls[i].name) + 1, "output_", strlen("output_"));
    const int from_last = parameter->shape.rank - 1 - dim;
    if (from_last != output) return 1;
    return parameter->shape.dims[dim] / ((const strata_multi_head_attention_options *)model->calls[i].options)->heads;
}

strata_status strata_layout_split(const strata_layout_model *model, int parameter, int dim, const strata_mesh *mesh,
                                  const int *axes, int n_axes, strata_memory *memory, strata_dim_split *out_split,
                                  strata_error *err) {
    const strata_parameter_spec *spec = &model->parameters[parameter];
    *out_split = (strata_dim_split){.n_axes = n_axes};
    for (int i = 0; i < n_axes; i++) out_split->axes[i] = axes[i];
    const int64_t n = strata_dim_split_n_pieces(mesh, out_split), unit = unit_of(model, spec, dim);
    const int64_t units = spec->shape.dims[dim] / unit;
    int64_t *lengths;
    STRATA_TRY(STRATA_TAKE(memory, lengths, n, err, "layout: no host memory for %" PRId64 " pieces", n));
    for (int64_t p = 0; p < n; p++) lengths[p] = (units / n + (p < units % n)) * unit;
    out_split->lengths = lengths;
    return STRATA_OK;
}

/* Finds the axes of a rule's dimension in the mesh. used: bits of the axes that are taken. */
static strata_status find_axes(const strata_layout_rule *rule, const rule_dim *dim, const strata_mesh *mesh, unsigned *used,
                               int *out_axes, strata_error *err) {
    for (int i = 0; i < dim->n_axes; i++) {
        const int axis = strata_mesh_find(mesh, dim->axes[i]);
        if (!strcmp(dim->axes[i], "stage"))
            return strata_fail(err, STRATA_INVALID,
                               "layout: rule \"%s\" divides over stage, but each stage has whole layers; divide over data or "
                               "tensor",
                               rule->pattern);
        if (axis < 0)
            return strata_fail(err, STRATA_INVALID,
                               "layout: rule \"%s\" divides over the axis %s, which the mesh %s does not have", rule->pattern,
                               dim->axes[i], strata_mesh_text(mesh).text);
        if (*used >> axis & 1)
            return strata_fail(err, STRATA_INVALID, "layout: rule \"%s\" has the axis %s twice", rule->pattern, dim->axes[i]);
        *used |= 1u << axis;
        out_axes[i] = axis;
    }
    return STRATA_OK;
}

static strata_status place(const strata_layout_rule *rule, const strata_mesh *mesh, const strata_layout_model *model, int i,
                           strata_memory *memory, strata_placement *placement, strata_error *err) {
    const strata_parameter_spec *parameter = &model->parameters[i];
    unsigned used = 0;
    int axes[STRATA_MESH_MOST_AXES];
    if (rule->rank != parameter->shape.rank)
        return strata_fail(err, STRATA_INVALID, "layout: rule \"%s\" has %d dimensions, but %s is %s", rule->pattern,
                           rule->rank, parameter->name, strata_shape_text(parameter->shape).text);
    for (int d = 0; d < rule->rank; d++) {
        const int n = rule->dims[d].n_axes;
        STRATA_TRY(find_axes(rule, &rule->dims[d], mesh, &used, axes, err));
        if (n) STRATA_TRY(strata_layout_split(model, i, d, mesh, axes, n, memory, &placement->dims[d], err));
    }
    return STRATA_OK;
}

static strata_status match(const strata_layout_rule *rule, const char *name, bool *out_matches, strata_error *err) {
    const int failed = regexec(&rule->expression, name, 0, NULL, 0);
    *out_matches = !failed;
    if (failed != REG_ESPACE) return STRATA_OK;
    return strata_fail(err, STRATA_OUT_OF_MEMORY, "layout: no host memory to compare \"%s\" with %s", rule->pattern, name);
}

/* The rule whose pattern is the name, else the one that matches it; NULL: there is none. */
static strata_status find_rule(const strata_layout *layout, const char *name, const strata_layout_rule **out_rule,
                               strata_error *err) {
    *out_rule = NULL;
    for (int i = 0; i < layout->n_rules && !*out_rule; i++)
        if (!strcmp(layout->rules[i].pattern, name)) *out_rule = &layout->rules[i];
    if (*out_rule) return STRATA_OK;
    for (int i = 0; i < layout->n_rules; i++) {
        const strata_layout_rule *rule = &layout->rules[i];
        bool matches;
        STRATA_TRY(match(rule, name, &matches, err));
        if (!matches) continue;
        if (*out_rule)
            return strata_fail(
                err, STRATA_INVALID,
                "layout: the rules \"%s\" and \"%s\" both match %s; one of them must leave it out, or a third rule "
                "have its name",
                (*out_rule)->pattern, rule->pattern, name);
        *out_rule = rule;
    }
    return STRATA_OK;
}

/* Fails with the names that are most like the pattern, or some names if none is. */
static strata_status matches_nothing(const strata_layout_rule *rule, const strata_layout_model *model, strata_error *err) {
    const int n = model->n_parameters;
    STRATA_FREED const char **names = NULL;
    STRATA_FINISHED(strata_text) listed = {0};
    STRATA_TRY(STRATA_NEW(names, n, err, "layout: no host memory for %d names", n));
    for (int i = 0; i < n; i++) {
        bool matches;
        names[i] = model->parameters[i].name;
        STRATA_TRY(match(rule, names[i], &matches, err));
        if (!matches) continue;
        return strata_fail(err, STRATA_INVALID,
                           "layout: rule \"%s\" only matches parameters that have a rule with their name, such "
                           "as %s; remove it",
                           rule->pattern, names[i]);
    }
    const bool similar = strata_nearest_name(rule->pattern, names, (size_t)n);
    for (int k = 0; k < MOST_NEAREST && k < n; k++) {
        const char *name = similar ? strata_nearest_name(rule->pattern, names, (size_t)n) : names[k];
        if (!name) break;
        for (int i = 0; i < n; i++)
            if (names[i] == name) names[i] = "";
        strata_text_add(&listed, "%s%s", k ? ", " : "", name);
    }
    return strata_fail(err, STRATA_INVALID, "layout: rule \"%s\" matches no parameter; %s %s", rule->pattern,
                       similar ? "the nearest are" : "there are", listed.bytes ? listed.bytes : "none");
}

/* Why a parameter with this placement is a line of a report; NULL: it is none. */
static const char *reason_of(const strata_layout_rule *rule, const strata_parameter_spec *parameter,
                             const strata_placement *placement) {
    for (int d = 0; d < parameter->shape.rank; d++)
        if (placement->dims[d].n_axes) return NULL;
    if (strata_shape_elements(parameter->shape) <= STRATA_LAYOUT_LARGE_BYTES / (int64_t)sizeof(float)) return NULL;
    return rule ? "its rule of the layout does not divide it" : "no rule of the layout matches it";
}

strata_status strata_layout_apply(const strata_layout *layout, const strata_mesh *mesh, const strata_layout_model *model,
                                  strata_memory *memory, strata_placement *out_placements, const char **out_reasons,
                                  strata_error *err) {
    STRATA_FREED bool *used = NULL;
    STRATA_TRY(STRATA_NEW(used, layout->n_rules, err, "layout: no host memory for %d rules", layout->n_rules));
    for (int i = 0; i < model->n_parameters; i++) {
        const strata_parameter_spec *parameter = &model->parameters[i];
        const strata_layout_rule *rule;
        out_placements[i] = (strata_placement){0};
        STRATA_TRY(find_rule(layout, parameter->name, &rule, err));
        if (rule) {
            used[rule - layout->rules] = true;
            STRATA_TRY(place(rule, mesh, model, i, memory, &out_placements[i], err));
        }
        out_reasons[i] = reason_of(rule, parameter, &out_placements[i]);
    }
    for (int i = 0; i < layout->n_rules; i++)
        if (!used[i]) return matches_nothing(&layout->rules[i], model, err);
    return STRATA_OK;
}
