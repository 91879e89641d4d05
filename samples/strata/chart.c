/* SPDX-License-Identifier: Apache-2.0 */
#include "chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

chart_series *chart_add_series(chart *c, const char *label) {
    if (c->n == MOST_SERIES) return NULL;
    chart_series *s = &c->series[c->n++];
    *s = (chart_series){0};
    snprintf(s->label, sizeof s->label, "%s", label);
    return s;
}

bool chart_add_point(chart_series *s, double x, double y) {
    if (!isfinite(x) || !isfinite(y)) return true;
    if (s->n == s->capacity) {
        const int capacity = s->capacity ? 2 * s->capacity : 64;
        chart_point *points = realloc(s->points, (size_t)capacity * sizeof *points);
        if (!points) return false;
        s->points = points;
        s->capacity = capacity;
    }
    s->points[s->n++] = (chart_point){x, y};
    return true;
}

void chart_finish(chart *c) {
    for (int i = 0; i < c->n; i++) free(c->series[i].points);
    c->n = 0;
}

/* Widens a range that is empty, or so narrow that the numbers of an axis would differ only in their rounding. */
static void widen(double *least, double *most) {
    const double largest = fmax(fabs(*least), fabs(*most));
    if (*most - *least > 1e-9 * largest) return;
    const double by = largest > 0 ? largest * 0.05 : 1;
    *least -= by;
    *most += by;
}

bool chart_get_range(const chart *c, chart_range *out) {
    *out = (chart_range){INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->series[i].n; k++) {
            const chart_point p = c->series[i].points[k];
            out->x0 = fmin(out->x0, p.x), out->x1 = fmax(out->x1, p.x);
            out->y0 = fmin(out->y0, p.y), out->y1 = fmax(out->y1, p.y);
        }
    if (!(out->x0 <= out->x1)) return false;
    widen(&out->x0, &out->x1);
    widen(&out->y0, &out->y1);
    return true;
}
