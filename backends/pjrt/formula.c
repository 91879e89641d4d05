/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates formulas to StableHLO (strata_hlo_formula). Operators have the precedence of C. */
#include <assert.h>
#include <string.h>

#include "backends/pjrt/hlo.h"
#include "core/base/locale.h"

typedef struct parser {
    hlo *h;
    const char *at;
    const hlo_value *values;
} parser;

/* A value, or a number, which gets the type and shape of the value with which it is combined. */
typedef struct term {
    bool is_number;
    double number;
    hlo_value value;
} term;

/* The operators, and the functions with their numbers of arguments. Comparisons have upper-case names in StableHLO. */
static const struct {
    const char *text, *op;
    int level;
} operators[] = {{"||", "or", 1},      {"<=", "LE", 2},      {">=", "GE", 2},   {"==", "EQ", 2},
                 {"!=", "NE", 2},      {"<", "LT", 2},       {">", "GT", 2},    {"+", "add", 3},
                 {"-", "subtract", 3}, {"*", "multiply", 4}, {"/", "divide", 4}};
static const struct {
    const char *name, *op;
    int n_arguments;
} functions[] = {{"ABS", "abs", 1},          {"EXP", "exponential", 1}, {"EXPM1", "exponential_minus_one", 1},
                 {"LOG", "log", 1},          {"SIN", "sine", 1},        {"LOG1P", "log_plus_one", 1},
                 {"SQRT", "sqrt", 1},        {"RSQRT", "rsqrt", 1},     {"COS", "cosine", 1},
                 {"SIGMOID", "logistic", 1}, {"TANH", "tanh", 1},       {"SIGN", "sign", 1},
                 {"POW", "power", 2},        {"DIVIDE", "divide", 2},   {"MIN", "minimum", 2},
                 {"MAX", "maximum", 2},      {"LESS", "LT", 2},         {"EQUAL", "EQ", 2}};
enum { N_OPERATORS = sizeof operators / sizeof *operators, N_FUNCTIONS = sizeof functions / sizeof *functions };

static term conditional(parser *p);

static bool take(parser *p, const char *text) {
    while (*p->at == ' ') p->at++;
    if (strncmp(p->at, text, strlen(text)) != 0) return false;
    p->at += strlen(text);
    return true;
}

static hlo_value value_of(const parser *p, term t, term beside) {
    const hlo_value form = beside.is_number ? p->values[0] : beside.value;
    return t.is_number ? strata_hlo_fill(p->h, form.type, form.shape, t.number) : t.value;
}

static term apply(const parser *p, const char *op, term a, term b) {
    const hlo_value x = value_of(p, a, b), y = value_of(p, b, a);
    return (term){.value = op[0] < 'a' ? strata_hlo_compare(p->h, op, x, y) : strata_hlo_binary(p->h, op, x, y)};
}

/* StableHLO has no erf. Below 1 this is its series; from 1 on it is the rational approximation of erfc in Abramowitz &
 * Stegun, 7.1.26. shaders/glsl_math.h computes it in the same way. */
static hlo_value erf_of(hlo *h, hlo_value x) {
    const hlo_value square = HLO_FORMULA(h, "x * x", x), t = HLO_FORMULA(h, "1 / (ABS(x) * 0.3275911 + 1)", x);
    const hlo_value series =
        HLO_FORMULA(h,
                    "(((((((((1.3122533e-8 * x - 1.4503852e-7) * x + 1.4589169e-6) * x - 1.3227513e-5) * x + "
                    "1.0683761e-4) * x - 7.5757576e-4) * x + 4.6296296e-3) * x - 2.3809524e-2) * x + 0.1) * x "
                    "- 0.33333333) * x + 1",
                    square);
    const hlo_value rational =
        HLO_FORMULA(h, "((((1.061405429 * x - 1.453152027) * x + 1.421413741) * x - 0.284496736) * x + 0.254829592) * x", t);
    return HLO_FORMULA(h, "ABS(a) < 1 ? b * a * 1.1283791670955126 : SIGN(a) * (1 - c * EXP(-d))", x, series, rational, square);
}

/* A function of n letters, and its arguments in parentheses. */
static term call(parser *p, const char *name, size_t n) {
    const term a = conditional(p), b = take(p, ",") ? conditional(p) : (term){.is_number = true};
    const bool is_closed = take(p, ")");
    assert(is_closed);
    (void)is_closed;
    if (n == 3 && !strncmp(name, "ERF", n)) return (term){.value = erf_of(p->h, a.value)};
    if (n == 4 && !strncmp(name, "RELU", n)) return apply(p, "maximum", a, b);
    int i = 0;
    while (i < N_FUNCTIONS - 1 && (strlen(functions[i].name) != n || strncmp(functions[i].name, name, n) != 0)) i++;
    if (functions[i].n_arguments == 2) return apply(p, functions[i].op, a, b);
    return (term){.value = strata_hlo_unary(p->h, functions[i].op, a.value)};
}

static term primary(parser *p) {
    if (take(p, "(")) {
        const term inner = conditional(p);
        const bool is_closed = take(p, ")");
        assert(is_closed);
        (void)is_closed;
        return inner;
    }
    if (take(p, "!")) return (term){.value = strata_hlo_unary(p->h, "not", primary(p).value)};
    if (take(p, "-")) {
        const term t = primary(p);
        return t.is_number ? (term){.is_number = true, .number = -t.number}
                           : (term){.value = strata_hlo_unary(p->h, "negate", t.value)};
    }
    const size_t n = strspn(p->at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ1");
    if (take(p, "ZERO")) return (term){.is_number = true};
    if (*p->at >= 'A' && *p->at <= 'Z') {
        const char *name = p->at;
        p->at += n + 1; /* and the parenthesis */
        return call(p, name, n);
    }
    if (*p->at >= 'a') {
        const char letter = *p->at++;
        return (term){.value = p->values[letter == 'x' ? 0 : letter - 'a']};
    }
    char *end = NULL;
    const term number = {.is_number = true, .number = strata_scan_number(p->at, &end)};
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
    const bool has_else = take(p, ":");
    assert(has_else);
    (void)has_else;
    const term b = conditional(p);
    return (term){.value = strata_hlo_select(p->h, condition.value, value_of(p, a, b), value_of(p, b, a))};
}

hlo_value strata_hlo_formula(hlo *h, const char *formula, const hlo_value *values) {
    parser p = {.h = h, .at = formula, .values = values};
    const term t = conditional(&p);
    assert(!*p.at);
    return t.value;
}
