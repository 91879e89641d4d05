/* SPDX-License-Identifier: Apache-2.0
 *
 * Line charts: in a terminal (chart_text.c) and as SVG (chart_svg.c). */
#ifndef STRATA_SAMPLES_CHART_H
#define STRATA_SAMPLES_CHART_H

#include "cli.h"
#include "strata/text.h"

enum { MOST_SERIES = 12 };

typedef struct chart_point {
    double x, y;
} chart_point;

typedef struct chart_series {
    char label[80];
    /* Sorted by x; x and y are finite. */
    chart_point *points;
    int n, capacity;
} chart_series;

typedef struct chart {
    const char *title, *x_label;
    chart_series series[MOST_SERIES];
    int n;
} chart;

/* The properties and the width of the terminal. */
typedef struct look {
    int columns, rows;
    bool colours, utf8;
} look;

/* Adds a series. Returns NULL if there is no memory or there are MOST_SERIES already. */
chart_series *chart_add_series(chart *c, const char *label);
bool chart_add_point(chart_series *s, double x, double y);
void chart_finish(chart *c);

/* The ranges of x and y of all points, which are wider than 0. */
typedef struct chart_range {
    double x0, x1, y0, y1;
} chart_range;
bool chart_get_range(const chart *c, chart_range *out);

/* chart_text.c: prints the chart, look->columns wide. `rows` is the height of the picture, without title, axis and names. */
void chart_print(const chart *c, const look *look, int rows);
/* The escape sequences that begin and end a series' colour; "" if there are no colours. */
const char *look_colour(const look *look, int series);
const char *look_plain(const look *look);

/* chart_svg.c */
/* Begin and end a picture of this size with a white background. */
void svg_begin(strata_text *svg, double width, double height);
void svg_end(strata_text *svg);
/* Adds text whose beginning (anchor "start"), middle ("middle") or end ("end") is at (x, y). */
void svg_text(strata_text *svg, double x, double y, int size, const char *anchor, const char *text);
const char *svg_colour(int series);
/* Draws the chart in the rectangle. */
void chart_svg(strata_text *svg, const chart *c, double x, double y, double width, double height);

#endif
