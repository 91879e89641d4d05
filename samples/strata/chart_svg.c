/* SPDX-License-Identifier: Apache-2.0
 *
 * Charts as SVG. They consist only of text and lines, which browsers, README pages and office programs can show. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chart.h"

/* The colours of Okabe and Ito, which people with any colour vision can distinguish. */
const char *svg_colour(int series) {
    static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};
    return colours[series % 6];
}

void svg_begin(strata_text *svg, double width, double height) {
    strata_text_add(svg,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                    "font-family=\"sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                    width, height, width, height);
}

void svg_end(strata_text *svg) {
    strata_text_add(svg, "</svg>\n");
}

void svg_text(strata_text *svg, double x, double y, int size, const char *anchor, const char *text) {
    strata_text_add(svg, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" fill=\"#222\">", x, y, size, anchor);
    for (const char *c = text; *c; c++) {
        if (*c == '&' || *c == '<' || *c == '>')
            strata_text_add(svg, *c == '&' ? "&amp;" : *c == '<' ? "&lt;" : "&gt;");
        else if ((unsigned char)*c >= 0x20)
            strata_text_add_bytes(svg, c, 1);
    }
    strata_text_add(svg, "</text>\n");
}

/* The distance between two ticks: 1, 2 or 5 times a power of ten, so that the range has about n ticks. */
static double step_of(double range, int n) {
    const double rough = range / n, power = pow(10, floor(log10(rough))), first = rough / power;
    return power * (first < 1.5 ? 1 : first < 3.5 ? 2 : first < 7.5 ? 5 : 10);
}

static void grid(strata_text *svg, const chart_range *r, double x, double y, double width, double height) {
    char number[32];
    const double dx = fmax(1, step_of(r->x1 - r->x0, 8)), dy = step_of(r->y1 - r->y0, 5);
    for (double at = ceil(r->x0 / dx) * dx; at <= r->x1 + dx * 1e-6; at += dx) {
        const double place = x + (at - r->x0) / (r->x1 - r->x0) * width;
        strata_text_add(svg, "<path d=\"M%.1f %.1fv%.1f\" stroke=\"#e5e5e5\"/>\n", place, y, height);
        snprintf(number, sizeof number, "%.6g", fabs(at) < dx * 1e-6 ? 0 : at);
        svg_text(svg, place, y + height + 14, 11, "middle", number);
    }
    for (double at = ceil(r->y0 / dy) * dy; at <= r->y1 + dy * 1e-6; at += dy) {
        const double place = y + (r->y1 - at) / (r->y1 - r->y0) * height;
        strata_text_add(svg, "<path d=\"M%.1f %.1fh%.1f\" stroke=\"#e5e5e5\"/>\n", x, place, width);
        snprintf(number, sizeof number, "%.4g", fabs(at) < dy * 1e-6 ? 0 : at);
        svg_text(svg, x - 6, place + 4, 11, "end", number);
    }
    strata_text_add(svg, "<path d=\"M%.1f %.1fv%.1fh%.1f\" fill=\"none\" stroke=\"#888\"/>\n", x, y, height, width);
}

static void line(strata_text *svg, const chart_series *s, const chart_range *r, int number, double x, double y, double width,
                 double height) {
    if (s->n == 1)
        strata_text_add(svg, "<circle r=\"3\" fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\"/>\n", svg_colour(number),
                        x + (s->points[0].x - r->x0) / (r->x1 - r->x0) * width,
                        y + (r->y1 - s->points[0].y) / (r->y1 - r->y0) * height);
    strata_text_add(svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" stroke-linejoin=\"round\" points=\"",
                    svg_colour(number));
    for (int i = 0; i < s->n; i++)
        strata_text_add(svg, "%s%.1f,%.1f", i ? " " : "", x + (s->points[i].x - r->x0) / (r->x1 - r->x0) * width,
                        y + (r->y1 - s->points[i].y) / (r->y1 - r->y0) * height);
    strata_text_add(svg, "\"/>\n");
}

/* Adds the names of the series, in lines from y on. Returns the number of lines. svg NULL: only counts them. */
static int names(strata_text *svg, const chart *c, double x, double y, double width) {
    enum { SWATCH = 18, LINE = 16 };
    double at = x;
    int lines = 1;
    for (int i = 0; i < c->n; i++) {
        const double wide = SWATCH + 16 + 6.2 * (double)strlen(c->series[i].label);
        if (at > x && at + wide > x + width) at = x, lines++;
        const double line = y + LINE * (lines - 1);
        if (svg) {
            strata_text_add(svg, "<path d=\"M%.1f %.1fh%d\" stroke=\"%s\" stroke-width=\"3\"/>\n", at, line - 4, SWATCH,
                            svg_colour(i));
            svg_text(svg, at + SWATCH + 4, line, 11, "start", c->series[i].label);
        }
        at += wide;
    }
    return lines;
}

void chart_svg(strata_text *svg, const chart *c, double x, double y, double width, double height) {
    enum { LEFT = 60, TOP = 30, LINE = 16, BOTTOM = 36, RIGHT = 20 };
    chart_range r;
    svg_text(svg, x + LEFT, y + 18, 14, "start", c->title);
    if (!chart_get_range(c, &r)) {
        svg_text(svg, x + LEFT, y + TOP + 20, 12, "start", "no numbers");
        return;
    }
    const double left = x + LEFT, wide = width - LEFT - RIGHT;
    const int lines = names(NULL, c, left, 0, wide);
    const double top = y + TOP + LINE * lines, high = height - TOP - LINE * lines - BOTTOM;
    grid(svg, &r, left, top, wide, high);
    for (int i = 0; i < c->n; i++) line(svg, &c->series[i], &r, i, left, top, wide, high);
    svg_text(svg, left + wide, top + high + 30, 11, "end", c->x_label);
    names(svg, c, left, y + 36, wide);
}
