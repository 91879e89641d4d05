/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stream's terminal can show. */
#ifndef STRATA_SAMPLES_TERMINAL_H
#define STRATA_SAMPLES_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether lines can be drawn over again on this descriptor: it is a terminal, and TERM is not "dumb". */
bool terminal_draws(int fd);
/* Whether it gets colours: such a terminal, and NO_COLOR is not set (no-color.org). */
bool terminal_has_colours(int fd);
/* Columns of the terminal; of what is none COLUMNS, else 80. */
int terminal_columns(int fd);
/* Rows, likewise; LINES, else 24. */
int terminal_rows(int fd);
/* Prints help on stdout, in the terminal's width. Two columns: `right` begins at a fixed place behind `left`, and goes on there
 * in further lines; where that leaves it too little room, it stands below. */
void print_columns(const char *left, const char *right);
/* Words in lines that begin behind so many spaces. */
void print_indented(int indent, const char *text);
/* Lines of text: a line that is too long is broken between words. Where a line has a gap of two spaces or more, what is behind
 * it goes below what is before. */
void print_fitted(const char *text);
/* Prints lines on stdout. A terminal that is narrower than one gets it in several, the further ones behind `indent` spaces: it
 * is broken at gaps of two spaces, and where there are none in reach between words. Whatever is no terminal gets the lines as
 * they are, for programs that read them. */
void print_line(int indent, const char *text);
/* The same, for what is written in parts: line_begin returns the stream for them, line_end prints what was written and ends the
 * line. */
typedef struct line {
    FILE *stream;
    char *text;
    size_t n;
} line;
FILE *line_begin(line *l);
void line_end(line *l, int indent);
/* Whether the locale's characters are UTF-8: LC_ALL, else LC_CTYPE, else LANG. */
bool locale_is_utf8(void);

#endif
