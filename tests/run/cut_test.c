/* SPDX-License-Identifier: Apache-2.0
 *
 * The best cut of a chain of calls into stages, compared with all cuts of small random chains. */
#include "core/run/cut.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_CALLS = 9, MOST_STAGES = 4 };

/* A chain with memory of its own. Times and speeds are such that sums and quotients are exact. */
typedef struct drawn {
    double seconds[MOST_CALLS], speeds[MOST_STAGES];
    int64_t cut_bytes[MOST_CALLS], held_bytes[MOST_CALLS], kept_bytes[MOST_CALLS], limits[MOST_STAGES];
    int n_in_flight[MOST_STAGES];
    strata_chain_calls chain;
} drawn;

static int draw(uint64_t *state, int n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

static void draw_chain(uint64_t *state, drawn *d) {
    const int n = 1 + draw(state, MOST_CALLS), p = 1 + draw(state, n < MOST_STAGES ? n : MOST_STAGES);
    for (int i = 0; i < n; i++) {
        d->seconds[i] = draw(state, 6);
        d->cut_bytes[i] = draw(state, 5);
        d->held_bytes[i] = draw(state, 8);
        d->kept_bytes[i] = draw(state, 4);
    }
    for (int s = 0; s < p; s++) {
        d->speeds[s] = 0.5 * (1 << draw(state, 3));
        d->limits[s] = 2 + draw(state, 30);
        d->n_in_flight[s] = draw(state, 4);
    }
    d->chain = (strata_chain_calls){n, p, d->seconds, d->cut_bytes, d->held_bytes, NULL, NULL, NULL, NULL};
    if (draw(state, 2)) d->chain.kept_bytes = d->kept_bytes;
    if (draw(state, 2)) d->chain.n_in_flight = d->n_in_flight;
    if (draw(state, 2)) d->chain.speeds = d->speeds;
    if (draw(state, 4)) d->chain.limits = d->limits;
}

typedef struct value {
    double seconds;
    int64_t sent, missing;
} value;

/* The time of the slowest stage, the bytes that are sent and those that are missing. */
static value value_of(const strata_chain_calls *chain, const int *first) {
    value v = {0};
    for (int s = 0; s < chain->n_stages; s++) {
        const int end = s + 1 < chain->n_stages ? first[s + 1] : chain->n_calls;
        double seconds = 0;
        int64_t bytes = 0;
        cr_assert_lt(first[s], end);
        for (int i = first[s]; i < end; i++) {
            seconds += chain->seconds[i] / (chain->speeds ? chain->speeds[s] : 1);
            bytes += chain->held_bytes[i];
            if (chain->kept_bytes) bytes += chain->kept_bytes[i] * (chain->n_in_flight ? chain->n_in_flight[s] : 1);
        }
        if (seconds > v.seconds) v.seconds = seconds;
        if (s) v.sent += chain->cut_bytes[first[s]];
        if (chain->limits && bytes > chain->limits[s]) v.missing += bytes - chain->limits[s];
    }
    return v;
}

static bool is_better(value a, value b) {
    if (a.missing != b.missing) return a.missing < b.missing;
    if (a.missing) return false;
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.sent < b.sent;
}

/* Tries all ways to begin stages s, s + 1, ... */
static void try_all(const strata_chain_calls *chain, int *first, int s, value *best) {
    if (s == chain->n_stages) {
        const value v = value_of(chain, first);
        if (is_better(v, *best)) *best = v;
        return;
    }
    for (first[s] = first[s - 1] + 1; first[s] <= chain->n_calls - chain->n_stages + s; first[s]++) {
        const int at = first[s];
        try_all(chain, first, s + 1, best);
        first[s] = at;
    }
}

Test(cut, is_the_best_of_all_cuts) {
    uint64_t state = 1;
    int n_fit = 0, n_too_large = 0;
    for (int i = 0; i < 4000; i++) {
        drawn d;
        draw_chain(&state, &d);
        int first[MOST_STAGES] = {0}, got[MOST_STAGES];
        value best = {INFINITY, INT64_MAX, INT64_MAX};
        strata_error err = {0};
        try_all(&d.chain, first, 1, &best);
        const strata_status status = strata_chain_cut(&d.chain, got, &err);
        cr_assert_eq(status, best.missing ? STRATA_OUT_OF_MEMORY : STRATA_OK, "draw %d: %s", i, err.message);
        n_too_large += status != STRATA_OK;
        n_fit += status == STRATA_OK;
        if (status) continue;
        const value v = value_of(&d.chain, got);
        cr_assert_eq(got[0], 0);
        cr_assert(!v.missing && v.seconds == best.seconds && v.sent == best.sent,
                  "draw %d: %g s and %d bytes, but there is a cut with %g s and %d bytes", i, v.seconds, (int)v.sent,
                  best.seconds, (int)best.sent);
    }
    cr_assert(n_fit > 1000 && n_too_large > 500, "%d fit, %d do not", n_fit, n_too_large);
}

/* Adds up the numbers before " more than it has" in the message. */
static int64_t missing_in(const char *message) {
    int64_t sum = 0;
    for (const char *at = message; (at = strstr(at, " more than it has"));) {
        const char *digits = at++;
        while (digits[-1] >= '0' && digits[-1] <= '9') digits--;
        sum += strtoll(digits, NULL, 10);
    }
    return sum;
}

Test(cut, error_names_the_least_that_is_missing) {
    uint64_t state = 2;
    for (int i = 0; i < 4000; i++) {
        drawn d;
        draw_chain(&state, &d);
        int first[MOST_STAGES] = {0}, got[MOST_STAGES];
        value best = {INFINITY, INT64_MAX, INT64_MAX};
        strata_error err = {0};
        if (strata_chain_cut(&d.chain, got, &err) != STRATA_OUT_OF_MEMORY) continue;
        try_all(&d.chain, first, 1, &best);
        cr_assert_eq(missing_in(err.message), best.missing, "draw %d, %d bytes: %s", i, (int)best.missing, err.message);
    }
    const double seconds[] = {1, 1, 1};
    const int64_t bytes[] = {50, 20, 30}, limits[] = {40, 100}, none[3] = {0};
    const strata_chain_calls chain = {3, 2, seconds, none, bytes, .limits = limits};
    int got[2];
    strata_error err = {0};
    cr_assert_eq(strata_chain_cut(&chain, got, &err), STRATA_OUT_OF_MEMORY);
    cr_assert(strstr(err.message, "missing, stage 0 (calls 0 to 0) needs 50 bytes, 10 more than it has."), "%s", err.message);
}

Test(cut, equal_times_are_equal_however_they_are_rounded) {
    /* As sums of doubles, 0.3 + 0.2 + 0.1 is more than 0.3 + 0.3. */
    const double seconds[] = {0.3, 0.3, 0.2, 0.1};
    const int64_t none[4] = {0}, sent[2][4] = {{0, 1, 2, 0}, {0, 2, 1, 0}};
    for (int i = 0; i < 2; i++) {
        const strata_chain_calls chain = {4, 2, seconds, sent[i], none, .limits = NULL};
        int got[2];
        cr_assert_eq(strata_chain_cut(&chain, got, NULL), STRATA_OK);
        cr_assert_eq(got[1], 1 + i);
    }
}

Test(cut, a_chain_of_thousands_is_cut_in_equal_parts) {
    enum { N = 2048, P = 32 };
    static double seconds[N];
    static int64_t none[N];
    int got[P];
    for (int i = 0; i < N; i++) seconds[i] = 1;
    const strata_chain_calls chain = {N, P, seconds, none, none, .limits = NULL};
    cr_assert_eq(strata_chain_cut(&chain, got, NULL), STRATA_OK);
    for (int s = 0; s < P; s++) cr_assert_eq(got[s], s * N / P);
}

Test(cut, numbers_out_of_range_are_refused) {
    const double seconds[] = {1, 1}, nan[] = {1, NAN}, speeds[] = {1, 0};
    const int64_t bytes[] = {1, 1}, below[] = {1, -1};
    const int in_flight[] = {1, -1};
    const strata_chain_calls wrong[] = {
        {2, 3, seconds, bytes, bytes, .limits = NULL},
        {2, 0, seconds, bytes, bytes, .limits = NULL},
        {2, 2, nan, bytes, bytes, .limits = NULL},
        {2, 2, seconds, below, bytes, .limits = NULL},
        {2, 2, seconds, bytes, below, .limits = NULL},
        {2, 2, seconds, bytes, bytes, .kept_bytes = below},
        {2, 2, seconds, bytes, bytes, .speeds = speeds},
        {2, 2, seconds, bytes, bytes, .limits = below},
        {2, 2, seconds, bytes, bytes, .n_in_flight = in_flight},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int got[3];
        strata_error err = {0};
        cr_assert_eq(strata_chain_cut(&wrong[i], got, &err), STRATA_INVALID, "%d", (int)i);
        cr_assert(strstr(err.message, i < 2 ? "2 calls" : i < 6 ? "call 1" : "stage 1"), "%s", err.message);
    }
}
