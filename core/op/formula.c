/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes of a formula, from which element-wise ops are composed (strata_formula). Operators have the precedence of C. */
#include <assert.h>

#include "core/base/locale.h"
#include "core/op/compose.h"
#include "core/op/ops.h"

typedef struct parser {
    const char *at;
    strata_tensor *const *values;
} parser;

/* A value, or (NULL) a number, which gets the dtype of the value with which it is combined. */
typedef struct term {
    strata_tensor *value;
    double number;
} term;

static const struct {
    const char *text;
    const strata_op *op;
    int level;
} operators[] = {{"||", NULL, 1},
                 {"<=", &strata_op_less_equal, 2},
                 {">=", &strata_op_greater_equal, 2},
                 {"==", &strata_op_equal, 2},
                 {"!=", &strata_op_not_equal, 2},
                 {"<", &strata_op_less, 2},
                 {">", &strata_op_greater, 2},
                 {"+", &strata_op_add, 3},
                 {"-", &strata_op_sub, 3},
                 {"*", &strata_op_mul, 4},
                 {"/", &strata_op_div, 4}};

/* A word is an op, or the formula of its argument. Near 0, exp(x) - 1 and log(1 + x) would lose digits. The usual remedy for
 * log, a division by (1 + x) - 1, is none where a compiler makes x of it, as XLA does; so it is a series there. */
static const struct {
    const char *name;
    const strata_op *op;
    const char *formula;
} words[] = {{"ABS", &strata_op_abs, NULL},
             {"EXP", &strata_op_exp, NULL},
             {"LOG", &strata_op_log, NULL},
             {"SIN", &strata_op_sin, NULL},
             {"COS", &strata_op_cos, NULL},
             {"SQRT", &strata_op_sqrt, NULL},
             {"RSQRT", &strata_op_rsqrt, NULL},
             {"TANH", &strata_op_tanh, NULL},
             {"SIGN", &strata_op_sign, NULL},
             {"SIGMOID", &strata_op_sigmoid, NULL},
             {"ERF", &strata_op_erf, NULL},
             {"RELU", &strata_op_relu, NULL},
             {"POW", &strata_op_pow, NULL},
             {"MIN", &strata_op_min, NULL},
             {"MAX", &strata_op_max, NULL},
             {"EQUAL", &strata_op_equal, NULL},
             {"LESS", &strata_op_less, NULL},
             {"EXPM1", NULL, "2 * TANH(x * 0.5) / (1 - TANH(x * 0.5))"},
             {"LOG1P", NULL,
              "x < 0.125 ? ((((((x * 0.14285714 - 0.16666667) * x + 0.2) * x - 0.25) * x + 0.33333333) * x - 0.5) * x + 1) * x "
              ": LOG(1 + x)"}};
enum { N_OPERATORS = sizeof operators / sizeof *operators, N_WORDS = sizeof words / sizeof *words };

static term conditional(parser *p);

static bool take(parser *p, const char *text) {
    while (*p->at == ' ') p->at++;
    if (strncmp(p->at, text, strlen(text)) != 0) return false;
    p->at += strlen(text);
    return true;
}

static void expect(parser *p, const char *text) {
    const bool is_there = take(p, text);
    assert(is_there);
    (void)is_there;
}

static strata_tensor *value_of(const parser *p, term t, term beside) {
    const strata_tensor *like = beside.value ? beside.value : p->values[0];
    return t.value ? t.value : strata_scalar(like->graph, like->dtype, t.number);
}

static term truth(const parser *p, bool value) {
    return (term){.value = strata_scalar(p->values[0]->graph, STRATA_DTYPE_BOOL, value)};
}

/* The op of a and, if it has two operands, b. NULL: a or b. */
static term apply(const parser *p, const strata_op *op, term a, term b) {
    if (!op) return (term){.value = strata_where(a.value, truth(p, true).value, b.value)};
    strata_tensor *x[] = {value_of(p, a, b), op->n_inputs > 1 ? value_of(p, b, a) : NULL};
    return (term){.value = strata_node(NULL, op, op->n_inputs, x, NULL)};
}

/* A word of n letters, and its arguments in parentheses. */
static term call(parser *p, const char *name, size_t n) {
    const term a = conditional(p), b = take(p, ",") ? conditional(p) : (term){0};
    int i = 0;
    expect(p, ")");
    while (i < N_WORDS - 1 && (strlen(words[i].name) != n || strncmp(words[i].name, name, n) != 0)) i++;
    return words[i].op ? apply(p, words[i].op, a, b) : (term){.value = strata_formula(words[i].formula, &a.value)};
}

static term primary(parser *p) {
    if (take(p, "(")) {
        const term inner = conditional(p);
        expect(p, ")");
        return inner;
    }
    if (take(p, "!")) return apply(p, &strata_op_equal, primary(p), truth(p, false));
    if (take(p, "-")) {
        const term t = primary(p);
        return t.value ? apply(p, &strata_op_neg, t, t) : (term){.number = -t.number};
    }
    if (take(p, "ZERO")) return (term){0};
    if (*p->at >= 'A' && *p->at <= 'Z') {
        const char *name = p->at;
        const size_t n = strcspn(name, "(");
        p->at += n + 1;
        return call(p, name, n);
    }
    if (*p->at >= 'a') {
        const char letter = *p->at++;
        return (term){.value = p->values[letter == 'x' ? 0 : letter - 'a']};
    }
    char *end = NULL;
    const term number = {.number = strata_scan_number(p->at, &end)};
    assert(end > p->at);
    p->at = *end == 'f' ? end + 1 : end;
    return number;
}

static term operation(parser *p, int level) {
    term left = primary(p);
    for (int i = 0; i < N_OPERATORS; i++) {
        if (operators[i].level < level || !take(p, operators[i].text)) continue;
        left = apply(p, operators[i].op, left, operation(p, operators[i].level + 1));
        i = -1;
    }
    return left;
}

static term conditional(parser *p) {
    const term condition = operation(p, 1);
    if (!take(p, "?")) return condition;
    const term a = conditional(p);
    expect(p, ":");
    const term b = conditional(p);
    return (term){.value = strata_where(condition.value, value_of(p, a, b), value_of(p, b, a))};
}

strata_tensor *strata_formula(const char *formula, strata_tensor *const *values) {
    parser p = {.at = formula, .values = values};
    const term t = conditional(&p);
    assert(!*p.at);
    return t.value;
}

strata_tensor *strata_formula_compose(strata_tensor *node) {
    return strata_formula(node->op->formula, node->inputs);
}
