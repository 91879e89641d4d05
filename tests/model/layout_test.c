/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts that are written as rules: the placements that they give, and the messages about wrong ones. */
#include "core/model/layout.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/model/mesh_spec.h"
#include "core/model/model.h"
#include "strata/philox.h"
#include "tests/model/model_case.h"

static strata_error err;

static const strata_parameter_spec parameters[] = {
    {.name = "embedding/embeddings", .shape = {2, {1000, 300}}},
    {.name = "dense/kernel", .shape = {2, {300, 7}}},
    {.name = "dense/bias", .shape = {1, {7}}},
    {.name = "dense_1/kernel", .shape = {2, {7, 2}}},
    {.name = "dense_1/bias", .shape = {1, {2}}},
    {.name = "residual/dense/kernel", .shape = {2, {7, 7}}},
};
enum { N = sizeof parameters / sizeof *parameters };
static const strata_layout_model model = {.parameters = parameters, .n_parameters = N};

/* The placements of the parameters above, and their texts. */
typedef struct placed {
    strata_memory memory;
    strata_placement placements[N];
    const char *reasons[N];
    char texts[N][256];
} placed;

static strata_status apply(const char *mesh_text, const char *json, placed *out) {
    strata_layout layout;
    strata_mesh mesh;
    *out = (placed){0};
    OK(strata_mesh_read(mesh_text, 0, &mesh, &err));
    OK(strata_layout_read("layout.json", json, strlen(json), &layout, &err));
    const strata_status status = strata_layout_apply(&layout, &mesh, &model, &out->memory, out->placements, out->reasons, &err);
    strata_layout_finish(&layout);
    for (int i = 0; i < N && !status; i++) {
        OK(strata_placement_fits(&mesh, &out->placements[i], parameters[i].shape, &err));
        snprintf(out->texts[i], sizeof out->texts[i], "%s",
                 strata_placement_text(&mesh, &out->placements[i], parameters[i].shape).text);
    }
    if (status) strata_memory_finish(&out->memory);
    return status;
}

static void expect(const char *mesh, const char *json, const char *const wanted[N]) {
    placed p;
    OK(apply(mesh, json, &p));
    for (int i = 0; i < N; i++) cr_assert_str_eq(p.texts[i], wanted[i], "%s: %s", parameters[i].name, p.texts[i]);
    strata_memory_finish(&p.memory);
}

/* ---- placements ---- */

Test(layout, patterns_match_parts_of_names_and_pieces_are_as_even_as_possible) {
    expect("data=2,tensor=3",
           "{\"dense(_[0-9]+)?/kernel\": [null, \"tensor\"], \"^dense/bias$\": [\"tensor\"], \"embed\": [\"tensor\", null]}",
           (const char *const[]){"(1000 over tensor: 334 333 333, 300)", "(300, 7 over tensor: 3 2 2)",
                                 "(7 over tensor: 3 2 2)", "(7, 2 over tensor: 1 1 0)", "(2)", "(7, 7 over tensor: 3 2 2)"});
}

Test(layout, a_dimension_may_have_several_axes_and_dimensions_different_ones) {
    expect(
        "data=2,tensor=2",
        "{\"embedding\": [[\"tensor\", \"data\"], null], \"dense/kernel\": [\"data\", [\"tensor\"]], \"_1/bias\": [[]]}",
        (const char *const[]){"(1000 over tensor, data: 250 250 250 250, 300)", "(300 over data: 150 150, 7 over tensor: 4 3)",
                              "(7)", "(7, 2)", "(2)", "(7 over data: 4 3, 7 over tensor: 4 3)"});
}

Test(layout, the_rule_with_the_name_of_a_parameter_comes_before_patterns_in_any_order) {
    const char *const wanted[] = {"(1000, 300)", "(300 over tensor: 150 150, 7)", "(7)", "(7, 2 over tensor: 1 1)",
                                  "(2)",         "(7, 7 over tensor: 4 3)"};
    expect(
        "tensor=2",
        "{\"kernel\": [null, \"tensor\"], \"dense/kernel\": [\"tensor\", null], \"residual/dense/kernel\": [null, \"tensor\"]}",
        wanted);
    expect(
        "tensor=2",
        "{\"dense/kernel\": [\"tensor\", null], \"residual/dense/kernel\": [null, \"tensor\"], \"kernel\": [null, \"tensor\"]}",
        wanted);
}

Test(layout, a_layout_without_rules_leaves_all_whole_and_large_parameters_get_a_reason) {
    placed p;
    OK(apply("tensor=2", "{}", &p));
    cr_assert_str_eq(p.texts[0], "(1000, 300)");
    cr_assert_str_eq(p.reasons[0], "no rule of the layout matches it");
    for (int i = 1; i < N; i++) cr_assert_null(p.reasons[i]);
    strata_memory_finish(&p.memory);
    OK(apply("tensor=2", "{\"embedding\": [null, null]}", &p));
    cr_assert_str_eq(p.reasons[0], "its rule of the layout does not divide it");
    strata_memory_finish(&p.memory);
    OK(apply("tensor=2", "{\"embedding\": [null, \"tensor\"]}", &p));
    cr_assert_null(p.reasons[0]);
    strata_memory_finish(&p.memory);
}

Test(layout, attention_is_divided_between_heads) {
    const char *const json =
        "{\"label\": \"t\", \"input\": [4, 60], \"layers\": [{\"layer\": \"multi_head_attention\", \"heads\": 6}]}";
    const char *const rules =
        "{\"(query|key|value)_kernel\": [null, \"tensor\"], \"query_bias\": [\"tensor\"], "
        "\"output_kernel\": [\"tensor\", \"data\"], \"output_bias\": [\"tensor\"]}";
    const char *const wanted[] = {"(60, 60 over tensor: 20 20 10 10)",
                                  "(60 over tensor: 20 20 10 10)",
                                  "(60, 60 over tensor: 20 20 10 10)",
                                  "(60)",
                                  "(60, 60 over tensor: 20 20 10 10)",
                                  "(60)",
                                  "(60 over tensor: 20 20 10 10, 60 over data: 30 30)",
                                  "(60 over tensor: 15 15 15 15)"};
    strata_model *attention = NULL;
    strata_model_structure structure;
    strata_memory memory = {0};
    strata_layout layout;
    strata_mesh mesh;
    strata_placement placements[8];
    const char *reasons[8];
    OK(strata_model_from_json(json, strlen(json), "model.json", &attention, &err));
    OK(strata_model_describe(attention, &structure, &err));
    const strata_layout_model divided = {.calls = structure.calls,
                                         .n_calls = structure.n_calls,
                                         .parameters = attention->parameters.items,
                                         .n_parameters = attention->parameters.n};
    OK(strata_mesh_read("data=2,tensor=4", 0, &mesh, &err));
    OK(strata_layout_read("layout.json", rules, strlen(rules), &layout, &err));
    OK(strata_layout_apply(&layout, &mesh, &divided, &memory, placements, reasons, &err));
    for (int i = 0; i < 8; i++)
        cr_assert_str_eq(strata_placement_text(&mesh, &placements[i], divided.parameters[i].shape).text, wanted[i], "%s",
                         divided.parameters[i].name);
    free(structure.calls);
    strata_layout_finish(&layout);
    strata_memory_finish(&memory);
    strata_model_destroy(attention);
}

/* ---- wrong layouts ---- */

static void refuses(const char *json, const char *text) {
    strata_layout layout;
    FAILS(strata_layout_read("layout.json", json, strlen(json), &layout, &err), STRATA_DATA, text);
    cr_assert_eq(layout.n_rules, 0);
}

Test(layout, json_of_another_form_is_refused_with_its_place) {
    refuses("{", "layout.json:1:");
    refuses("[]", "layout.json: must be an object, is an array");
    refuses("{\"a\": \"tensor\"}", "layout.json: a: must be an array");
    refuses("{\"a\": null}", "layout.json: a: must be an array");
    refuses("{\"a\": [1]}", "layout.json: a[0]: must be null, an axis such as \"tensor\", or a list of axes");
    refuses("{\"a\": [null, [null]]}", "layout.json: a[1][0]: must be a string");
    refuses("{\"a\": [null,null,null,null,null,null,null,null,null]}", "a: has 9 dimensions; it must have at most 8");
    refuses("{\"a\": [[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\"]]}",
            "a[0][8]: a dimension may have at most 8 axes");
    refuses("{\"a\": [null], \"a\": [null]}", "layout.json:1:");
}

Test(layout, patterns_that_are_no_expressions_are_refused) {
    char longest[400] = "{\"";
    memset(longest + 2, 'a', 256);
    strcpy(longest + 258, "\": []}");
    refuses(longest, "the pattern has more than 255 bytes");
    refuses("{\"\": [null]}", "the pattern is empty");
    refuses("{\"dense(\": [null]}", "dense(: is no extended regular expression: ");
    refuses("{\"[a\": [null]}", "is no extended regular expression: ");
    refuses("{\"(?:a)\": [null]}", "is no extended regular expression: ");
    refuses("{\"a{2}\": [null]}", "braces are not supported; repeat the expression, or write * or +");
    refuses("{\"dense_\\\\d/kernel\": [null]}", "a backslash before a letter or a digit is not supported; write [0-9]");
    refuses("{\"(a)\\\\1\": [null]}", "a backslash before a letter or a digit is not supported");
    refuses("{\"(((((((((a+)+)+)+)+)+)+)+)+)\": [null]}", "the pattern has more than 8 plus signs; write * instead");
    strata_layout layout;
    strcpy(longest + 257, "\": [null,null,null,null,null,null,null,null]}");
    OK(strata_layout_read("layout.json", longest, strlen(longest), &layout, &err));
    strata_layout_finish(&layout);
    const char *escaped = "{\"a\\\\.b\\\\+\\\\+\\\\+\\\\+\\\\+\\\\+\\\\+\\\\+\\\\+\\\\{\": []}";
    OK(strata_layout_read("layout.json", escaped, strlen(escaped), &layout, &err));
    strata_layout_finish(&layout);
}

Test(layout, two_patterns_for_a_parameter_are_refused) {
    placed p;
    FAILS(apply("tensor=2", "{\"kernel\": [null, \"tensor\"], \"dense_1\": [null, \"tensor\"]}", &p), STRATA_INVALID,
          "layout: the rules \"kernel\" and \"dense_1\" both match dense_1/kernel; one of them must leave it out, or a third "
          "rule "
          "have its name");
}

Test(layout, a_rule_that_no_parameter_has_is_refused) {
    placed p;
    FAILS(apply("tensor=2", "{\"dence/kernel\": [null, \"tensor\"]}", &p), STRATA_INVALID,
          "layout: rule \"dence/kernel\" matches no parameter; the nearest are dense/kernel, dense_1/kernel");
    FAILS(apply("tensor=2", "{\"lstm/recurrent\": [null, \"tensor\"]}", &p), STRATA_INVALID,
          "rule \"lstm/recurrent\" matches no parameter; there are embedding/embeddings, dense/kernel, dense/bias, "
          "dense_1/kernel, "
          "dense_1/bias");
    FAILS(apply("tensor=2", "{\"dense_1/bias\": [null], \"1/bias\": [\"tensor\"]}", &p), STRATA_INVALID,
          "layout: rule \"1/bias\" only matches parameters that have a rule with their name, such as dense_1/bias; remove it");
}

Test(layout, wrong_axes_and_ranks_are_refused) {
    placed p;
    FAILS(apply("data=2", "{\"dense/bias\": [\"tensor\"]}", &p), STRATA_INVALID,
          "layout: rule \"dense/bias\" divides over the axis tensor, which the mesh data=2 does not have");
    FAILS(apply("data=2,tensor=2", "{\"dense/bias\": [\"model\"]}", &p), STRATA_INVALID,
          "divides over the axis model, which the mesh data=2,tensor=2 does not have");
    FAILS(apply("stage=2", "{\"dense/bias\": [\"stage\"]}", &p), STRATA_INVALID,
          "divides over stage, but each stage has whole layers; divide over data or tensor");
    FAILS(apply("data=2,tensor=2", "{\"^dense/kernel\": [\"tensor\", \"tensor\"]}", &p), STRATA_INVALID,
          "rule \"^dense/kernel\" has the axis tensor twice");
    FAILS(apply("data=2,tensor=2", "{\"^dense/kernel\": [[\"data\", \"data\"], null]}", &p), STRATA_INVALID,
          "rule \"^dense/kernel\" has the axis data twice");
    FAILS(apply("tensor=2", "{\"dense/\": [null, \"tensor\"]}", &p), STRATA_INVALID,
          "layout: rule \"dense/\" has 2 dimensions, but dense/bias is (7)");
}

/* ---- random rules and names, beside another matcher ---- */

static uint32_t draw(uint64_t *state, uint32_t below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* Whether the expression of single letters, ".", "*", "+" and "?" matches a beginning of the text. */
static bool matches_here(const char *expression, const char *text) {
    if (!*expression || (expression[0] == '$' && !expression[1])) return !*expression || !*text;
    const char after = expression[1];
    const bool one = *text && (*expression == '.' || *expression == *text);
    if (after == '*') return matches_here(expression + 2, text) || (one && matches_here(expression, text + 1));
    if (after == '?') return matches_here(expression + 2, text) || (one && matches_here(expression + 2, text + 1));
    if (after != '+') return one && matches_here(expression + 1, text + 1);
    for (const char *at = text; *at && (*expression == '.' || *expression == *at); at++)
        if (matches_here(expression + 2, at + 1)) return true;
    return false;
}

static bool matches(const char *expression, const char *text) {
    if (*expression == '^') return matches_here(expression + 1, text);
    for (const char *at = text;; at++) {
        if (matches_here(expression, at)) return true;
        if (!*at) return false;
    }
}

static void draw_pattern(uint64_t *state, char *out) {
    if (!draw(state, 4)) *out++ = '^';
    for (uint32_t n = 1 + draw(state, 3); n; n--) {
        *out++ = "ab/."[draw(state, 4)];
        if (!draw(state, 3)) *out++ = "*+?"[draw(state, 3)];
    }
    if (!draw(state, 4)) *out++ = '$';
    *out = '\0';
}

enum { MOST_RULES = 3, NAMES = 4 };

/* The number of the rule that each name has by the oracle, -1 for none; false: the layout is wrong. */
static bool oracle(char rules[][32], int n_rules, char names[][8], int out_rules[NAMES]) {
    bool used[MOST_RULES] = {false};
    for (int i = 0; i < NAMES; i++) {
        int n_found = 0;
        out_rules[i] = -1;
        for (int r = 0; r < n_rules; r++)
            if (matches(rules[r], names[i])) n_found++, out_rules[i] = r;
        for (int r = 0; r < n_rules; r++)
            if (!strcmp(rules[r], names[i])) n_found = 1, out_rules[i] = r;
        if (n_found > 1) return false;
        if (n_found) used[out_rules[i]] = true;
    }
    for (int r = 0; r < n_rules; r++)
        if (!used[r]) return false;
    return true;
}

/* Returns whether the layout was right. */
static bool check_draw(uint64_t seed) {
    uint64_t state = seed;
    char rules[MOST_RULES][32], names[NAMES][8], json[256] = "{";
    int wanted[NAMES];
    strata_parameter_spec specs[NAMES];
    const int n_rules = 1 + (int)draw(&state, MOST_RULES);
    for (int i = 0; i < NAMES; i++) {
        for (int k = 0; k < 6; k++) names[i][k] = k < 3 + (int)draw(&state, 3) || k < 3 ? "ab/"[draw(&state, 3)] : '\0';
        names[i][6] = '\0';
        specs[i] = (strata_parameter_spec){.name = names[i], .shape = STRATA_SHAPE(8, 8, 8)};
    }
    for (int r = 0; r < n_rules; r++) {
        if (draw(&state, 3))
            draw_pattern(&state, rules[r]);
        else
            snprintf(rules[r], sizeof rules[r], "%s", names[draw(&state, NAMES)]);
        for (int q = 0; q < r; q++)
            if (!strcmp(rules[q], rules[r])) return false; /* duplicate keys are no JSON */
        const char *dims[] = {"[\"tensor\",null,null]", "[null,\"tensor\",null]", "[null,null,\"tensor\"]"};
        snprintf(json + strlen(json), sizeof json - strlen(json), "%s\"%s\": %s", r ? "," : "", rules[r], dims[r]);
    }
    strcat(json, "}");
    const bool right = oracle(rules, n_rules, names, wanted);
    strata_layout layout;
    strata_memory memory = {0};
    strata_mesh mesh;
    strata_placement placements[NAMES];
    const char *reasons[NAMES];
    OK(strata_mesh_read("tensor=2", 0, &mesh, &err));
    OK(strata_layout_read("layout.json", json, strlen(json), &layout, &err));
    const strata_status status = strata_layout_apply(
        &layout, &mesh, &(strata_layout_model){.parameters = specs, .n_parameters = NAMES}, &memory, placements, reasons, &err);
    cr_assert_eq(status, right ? STRATA_OK : STRATA_INVALID, "seed %" PRIu64 ", %s: %s", seed, json, err.message);
    for (int i = 0; i < NAMES && right; i++)
        for (int d = 0; d < 3; d++)
            cr_assert_eq(placements[i].dims[d].n_axes, wanted[i] == d, "seed %" PRIu64 ", %s, %s", seed, json, names[i]);
    strata_layout_finish(&layout);
    strata_memory_finish(&memory);
    return right;
}

Test(layout, random_rules_place_as_an_oracle_does) {
    int n_right = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) n_right += check_draw(seed);
    cr_assert_gt(n_right, 400, "only %d draws are right layouts", n_right);
}
