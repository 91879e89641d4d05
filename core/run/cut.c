/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a chain of calls into stages by dynamic programming: the best cut of the first `end` calls into s + 1 stages is that of
 * the first `first` calls into s stages, and calls first..end-1 at stage s, for the best `first`. */
#include "core/run/cut.h"

#include <math.h>

#include "core/base/alloc.h"
#include "strata/text.h"

typedef struct cut {
    const strata_chain_calls *chain;
    /* [n_calls + 1] sums over the calls before each. Whole numbers of bytes below 2^53 are exact. */
    double *seconds, *held_bytes, *kept_bytes;
    /* [n_calls + 1] the cost of the best cut of so many calls into the stages up to the current one, and to the one before. */
    double *best, *before;
    /* [n_stages][n_calls + 1] where the stage begins in the best cut of so many calls. */
    int *first;
    /* The time of the slowest stage in the best cut. */
    double most_seconds;
} cut;

static void cut_finish(cut *c) {
    free(c->seconds);
    free(c->held_bytes);
    free(c->kept_bytes);
    free(c->best);
    free(c->before);
    free(c->first);
}

static strata_status cut_init(cut *c, const strata_chain_calls *chain, strata_error *err) {
    const char *message = "there is no memory to cut a chain of layers into stages";
    const int n = chain->n_calls;
    c->chain = chain;
    STRATA_TRY(STRATA_NEW(c->seconds, n + 1, err, "%s", message));
    STRATA_TRY(STRATA_NEW(c->held_bytes, n + 1, err, "%s", message));
    STRATA_TRY(STRATA_NEW(c->kept_bytes, n + 1, err, "%s", message));
    STRATA_TRY(STRATA_NEW(c->best, n + 1, err, "%s", message));
    STRATA_TRY(STRATA_NEW(c->before, n + 1, err, "%s", message));
    STRATA_TRY(STRATA_NEW(c->first, (int64_t)chain->n_stages * (n + 1), err, "%s", message));
    for (int i = 0; i < n; i++) {
        c->seconds[i + 1] = c->seconds[i] + chain->seconds[i];
        c->held_bytes[i + 1] = c->held_bytes[i] + (double)chain->held_bytes[i];
        c->kept_bytes[i + 1] = c->kept_bytes[i] + (chain->kept_bytes ? (double)chain->kept_bytes[i] : 0);
    }
    return STRATA_OK;
}

static strata_status check(const strata_chain_calls *chain, strata_error *err) {
    if (chain->n_stages < 1 || chain->n_calls < chain->n_stages)
        return strata_fail(err, STRATA_INVALID, "%d call%s of layers for %d stages; each stage needs at least one",
                           chain->n_calls, chain->n_calls == 1 ? "" : "s", chain->n_stages);
    for (int i = 0; i < chain->n_calls; i++)
        if (!isfinite(chain->seconds[i]) || chain->seconds[i] < 0 || chain->cut_bytes[i] < 0 || chain->held_bytes[i] < 0 ||
            (chain->kept_bytes && chain->kept_bytes[i] < 0))
            return strata_fail(err, STRATA_INVALID, "call %d has a time or a number of bytes below 0 or without a value", i);
    for (int s = 0; s < chain->n_stages; s++)
        if ((chain->speeds && !(chain->speeds[s] > 0 && isfinite(chain->speeds[s]))) ||
            (chain->limits && chain->limits[s] < 0) || (chain->n_in_flight && chain->n_in_flight[s] < 0))
            return strata_fail(err, STRATA_INVALID, "stage %d has a speed, a limit or a number of micro-batches below 0", s);
    return STRATA_OK;
}

/* ---- what calls first..end-1 cost at stage s ---- */

static double bytes_of(const cut *c, int s, int first, int end) {
    const double in_flight = c->chain->n_in_flight ? c->chain->n_in_flight[s] : 1;
    return c->held_bytes[end] - c->held_bytes[first] + in_flight * (c->kept_bytes[end] - c->kept_bytes[first]);
}

static double missing_bytes(const cut *c, int s, int first, int end) {
    return c->chain->limits ? fmax(0, bytes_of(c, s, first, end) - (double)c->chain->limits[s]) : 0;
}

static double seconds(const cut *c, int s, int first, int end) {
    if (missing_bytes(c, s, first, end) > 0) return INFINITY;
    return (c->seconds[end] - c->seconds[first]) / (c->chain->speeds ? c->chain->speeds[s] : 1);
}

static double sent_bytes(const cut *c, int s, int first, int end) {
    /* Sums that were rounded in another order are equal too. */
    if (seconds(c, s, first, end) > c->most_seconds * (1 + 1e-9)) return INFINITY;
    return first ? (double)c->chain->cut_bytes[first] : 0;
}

/* ---- the best cut ---- */

/* Minimises the largest cost of a stage, which must not become less for more calls, or the sum of the costs, if is_sum; returns
 * it. A stage whose cost is infinite is not possible, nor with more calls. */
static double solve(cut *c, double (*cost)(const cut *c, int s, int first, int end), bool is_sum) {
    const int n = c->chain->n_calls;
    for (int end = 0; end <= n; end++) c->best[end] = end ? INFINITY : 0;
    for (int s = 0; s < c->chain->n_stages; s++) {
        double *const before = c->best;
        c->best = c->before;
        c->before = before;
        for (int end = 0; end <= n; end++) {
            double least = INFINITY;
            for (int first = end - 1; first >= s; first--) {
                const double own = cost(c, s, first, end);
                if (own == INFINITY || (!is_sum && own >= least)) break;
                const double all = is_sum ? before[first] + own : fmax(before[first], own);
                if (all >= least) continue;
                least = all;
                c->first[(int64_t)s * (n + 1) + end] = first;
            }
            c->best[end] = least;
        }
    }
    return c->best[n];
}

static void read_cut(const cut *c, int *out_first) {
    const int n = c->chain->n_calls;
    for (int s = c->chain->n_stages - 1, end = n; s >= 0; end = out_first[s--])
        out_first[s] = c->first[(int64_t)s * (n + 1) + end];
}

static strata_status fail_without_memory(cut *c, int *out_first, strata_error *err) {
    const strata_chain_calls *chain = c->chain;
    STRATA_FINISHED(strata_text) text = {0};
    solve(c, missing_bytes, true);
    read_cut(c, out_first);
    for (int s = 0; s < chain->n_stages; s++) {
        const int end = s + 1 < chain->n_stages ? out_first[s + 1] : chain->n_calls;
        const double missing = missing_bytes(c, s, out_first[s], end);
        if (missing > 0)
            strata_text_add(&text, "; stage %d (calls %d to %d) needs %.0f bytes, %.0f more than it has", s, out_first[s],
                            end - 1, bytes_of(c, s, out_first[s], end), missing);
    }
    return strata_fail(
        err, STRATA_OUT_OF_MEMORY,
        "no cut of %d calls of layers into %d stages fits into memory. Where the fewest bytes are missing,%s. Use more "
        "stages or smaller micro-batches",
        chain->n_calls, chain->n_stages, text.bytes ? text.bytes + 1 : "");
}

strata_status strata_chain_cut(const strata_chain_calls *chain, int *out_first, strata_error *err) {
    STRATA_FINISHED(cut) c = {0};
    STRATA_TRY(check(chain, err));
    STRATA_TRY(cut_init(&c, chain, err));
    c.most_seconds = solve(&c, seconds, false);
    if (c.most_seconds == INFINITY) return fail_without_memory(&c, out_first, err);
    solve(&c, sent_bytes, true);
    read_cut(&c, out_first);
    return STRATA_OK;
}
