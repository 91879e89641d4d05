/* SPDX-License-Identifier: Apache-2.0
 *
 * A chart in a terminal. A cell has 2 x 4 dots of Braille, or is one character if the locale is not UTF-8. Series are
 * distinguished by colours; without colours by dashes or characters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart.h"

enum { MARGIN = 10 }; /* the width of the numbers at the left and the axis */

const char *look_colour(const look *look, int series) {
    static const char *const colours[] = {"\033[36m", "\033[33m", "\033[32m", "\033[35m", "\033[31m", "\033[34m"};
    return look->colours ? colours[series % 6] : "";
}

const char *look_plain(const look *look) {
    return look->colours ? "\033[0m" : "";
}

static const char marks[] = "*+ox#@%&=~$^";

typedef struct canvas {
    int columns, rows;
    bool utf8;
    unsigned char *dots; /* [rows * columns] the dots of a cell, as the bits of a Braille character */
    signed char *series; /* the series that was drawn last in the cell; -1: none */
} canvas;

static int across(const canvas *c) {
    return c->utf8 ? 2 : 1;
}

static int down(const canvas *c) {
    return c->utf8 ? 4 : 1;
}

static void set_dot(canvas *c, int x, int y, int series) {
    static const unsigned char bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    const int column = x / across(c), row = y / down(c);
    if (x < 0 || y < 0 || column >= c->columns || row >= c->rows) return;
    c->dots[row * c->columns + column] |= c->utf8 ? bits[x % 2][y % 4] : 1;
    c->series[row * c->columns + column] = (signed char)series;
}

/* Whether the dot at this position of a line is left out. Without colours, series differ by such gaps. */
static bool is_gap(const look *look, int series, long place) {
    static const int periods[] = {0, 6, 3, 10};
    const int period = look->colours || !look->utf8 ? 0 : periods[series % 4];
    return period && place % period >= (period + 1) / 2;
}

static void draw_series(canvas *c, const chart *ch, const chart_range *range, const look *look, int number) {
    const chart_series *s = &ch->series[number];
    const double width = c->columns * across(c) - 1, height = c->rows * down(c) - 1;
    long place = 0;
    int before_x = 0, before_y = 0;
    for (int i = 0; i < s->n; i++) {
        const int x = (int)lround((s->points[i].x - range->x0) / (range->x1 - range->x0) * width);
        const int y = (int)lround((range->y1 - s->points[i].y) / (range->y1 - range->y0) * height);
        const int dx = i ? x - before_x : 0, dy = i ? y - before_y : 0;
        const int steps = abs(dx) > abs(dy) ? abs(dx) : abs(dy);
        for (int k = steps ? 1 : 0; k <= steps; k++, place++) {
            const double share = steps ? (double)k / steps : 1;
            const int from_x = x - dx, from_y = y - dy;
            if (!is_gap(look, number, place) || s->n == 1)
                set_dot(c, from_x + (int)lround(dx * share), from_y + (int)lround(dy * share), number);
        }
        before_x = x, before_y = y;
    }
}

static void print_cell(const canvas *c, int at) {
    if (!c->dots[at])
        putchar(' ');
    else if (c->utf8) /* the Braille characters begin at U+2800 */
        printf("\xe2%c%c", 0xa0 | c->dots[at] >> 6, 0x80 | (c->dots[at] & 0x3f));
    else
        putchar(marks[c->series[at] % MOST_SERIES]);
}

static void print_row(const canvas *c, const look *look, const chart_range *range, int row) {
    const int every = c->rows > 12 ? 4 : c->rows > 6 ? 3 : 2;
    if (row % every == 0 || row == c->rows - 1) {
        const double value = range->y1 - (range->y1 - range->y0) * row / (c->rows > 1 ? c->rows - 1 : 1);
        printf("%*.3g %s", MARGIN - 2, fabs(value) < 1e-9 * (range->y1 - range->y0) ? 0 : value, look->utf8 ? "┤" : "+");
    } else {
        printf("%*s %s", MARGIN - 2, "", look->utf8 ? "│" : "|");
    }
    int last = c->columns;
    while (last && !c->dots[row * c->columns + last - 1]) last--;
    for (int i = 0, now = -1; i < last; i++) {
        const int at = row * c->columns + i;
        if (c->dots[at] && c->series[at] != now && look->colours) {
            now = c->series[at];
            fputs(look_colour(look, now), stdout);
        }
        print_cell(c, at);
    }
    printf("%s\n", look_plain(look));
}

static void print_axis(const canvas *c, const look *look, const chart_range *range, const char *label) {
    char left[24], right[48];
    printf("%*s %s", MARGIN - 2, "", look->utf8 ? "└" : "+");
    for (int i = 0; i < c->columns; i++) fputs(look->utf8 ? "─" : "-", stdout);
    snprintf(left, sizeof left, "%.4g", range->x0);
    snprintf(right, sizeof right, "%s %.5g", label, range->x1);
    const int gap = c->columns - (int)strlen(left) - (int)strlen(right);
    printf("\n%*s%s%*s%s\n", MARGIN, "", left, gap > 1 ? gap : 1, "", right);
}

/* Prints the names of the series, for example "── train_loss   ╌╌ val_loss", in as many lines as needed. */
static void print_names(const chart *c, const look *look) {
    static const char *const lines[] = {"━━", "╍╍", "┅┅", "┉┉"};
    const int margin = look->columns < 4 * MARGIN ? 1 : MARGIN;
    int used = 0;
    for (int i = 0; i < c->n; i++) {
        const int room = look->columns - margin - 4;
        const int width = (int)strlen(c->series[i].label) < room ? (int)strlen(c->series[i].label) : room;
        if (used && used + width + 6 > look->columns) used = 0, putchar('\n');
        if (used) printf("   ");
        if (!used) used = printf("%*s", margin, "");
        const char *line = !look->utf8 ? "" : look->colours ? lines[0] : lines[i % 4];
        printf("%s%s", look_colour(look, i), line);
        if (!look->utf8) printf("%c%c", marks[i % MOST_SERIES], marks[i % MOST_SERIES]);
        printf("%s %.*s", look_plain(look), width, c->series[i].label);
        used += width + 6;
    }
    printf("\n");
}

static bool has_lines(const chart *c) {
    for (int i = 0; i < c->n; i++)
        if (c->series[i].n > 1) return true;
    return false;
}

void chart_print(const chart *c, const look *look, int rows) {
    chart_range range;
    canvas own = {.columns = look->columns - MARGIN, .rows = rows, .utf8 = look->utf8};
    printf("%s\n", c->title);
    if (own.columns < 4) own.columns = 4;
    if (!chart_get_range(c, &range)) {
        printf("%*s(no numbers)\n", MARGIN, "");
        return;
    }
    if (!has_lines(c)) {
        for (int i = 0; i < c->n; i++)
            if (c->series[i].n)
                printf("%*.4g  %.*s\n", MARGIN, c->series[i].points[0].y, look->columns - MARGIN - 2, c->series[i].label);
        return;
    }
    own.dots = calloc((size_t)own.columns * (size_t)rows, 1);
    own.series = calloc((size_t)own.columns * (size_t)rows, 1);
    for (int i = 0; i < c->n && own.dots && own.series; i++) draw_series(&own, c, &range, look, i);
    for (int row = 0; row < rows && own.dots && own.series; row++) print_row(&own, look, &range, row);
    print_axis(&own, look, &range, c->x_label);
    print_names(c, look);
    free(own.dots);
    free(own.series);
}
