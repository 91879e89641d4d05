/* SPDX-License-Identifier: Apache-2.0
 *
 * Line charts: in a terminal (chart_text.c) and as SVG (chart_svg.c). */
#ifndef STRATA_SAMPLES_CHART_H
#define STRATA_SAMPLES_CHART_H

#include "cli.h"
#include "core/base/text.h"

enum { MOST_SERIES = 12 };

typedef struct chart_point {
    double x, y;
} chart_point;

typedef struct chart_series {
    char label[80];
    /* x ascends; both are finite. */
    chart_point *points;
    int n, capacity;
} chart_series;

typedef struct chart {
    const char *title, *x_label;
    chart_series series[MOST_SERIES];
    int n;
} chart;

/* What a terminal can show, and how much room there is. */
typedef struct look {
    int columns, rows;
    bool colours, utf8;
} look;

/* False: no memory, or there are MOST_SERIES. */
chart_series *chart_add_series(chart *c, const char *label);
bool chart_add_point(chart_series *s, double x, double y);
void chart_finish(chart *c);

/* The values of all points; false: there are none. Both ranges are wider than 0. */
typedef struct chart_range {
    double x0, x1, y0, y1;
} chart_range;
bool chart_get_range(const chart *c, chart_range *out);

/* chart_text.c: in look->columns columns; `rows` of the picture, without title, axis and names. */
void chart_print(const chart *c, const look *look, int rows);
/* The escape sequence of a series' colour, "" where there are no colours; and of its end. */
const char *look_colour(const look *look, int series);
const char *look_plain(const look *look);

/* chart_svg.c */
/* Begins and ends a picture of this size on a white ground. */
void svg_begin(strata_text *svg, double width, double height);
void svg_end(strata_text *svg);
/* Text in a picture, from its middle (anchor "middle"), "start" or "end". */
void svg_text(strata_text *svg, double x, double y, int size, const char *anchor, const char *text);
const char *svg_colour(int series);
/* The chart in the rectangle. */
void chart_svg(strata_text *svg, const chart *c, double x, double y, double width, double height);

#endif
