/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of a terminal, and printing text in its width. */
#ifndef STRATA_SAMPLES_TERMINAL_H
#define STRATA_SAMPLES_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether a line can be overwritten on this descriptor: it is a terminal, and TERM is not "dumb". */
bool terminal_draws(int fd);
/* Whether to print colours: terminal_draws is true, and NO_COLOR is not set (no-color.org). */
bool terminal_has_colours(int fd);
/* The columns of the terminal. If it is not a terminal: those of COLUMNS, else 80. */
int terminal_columns(int fd);
/* The rows of the terminal. If it is not a terminal: those of LINES, else 24. */
int terminal_rows(int fd);
/* Prints a row of help with two columns on stdout, in the terminal's width. The lines of `right` begin at a fixed column; if
 * the terminal is too narrow for that, `right` is printed below `left`. */
void print_columns(const char *left, const char *right);
/* Prints words in lines that begin with so many spaces. */
void print_indented(int indent, const char *text);
/* Prints text in the terminal's width. Consecutive lines without indentation are a paragraph, whose words are divided into
 * lines anew. In a line with a gap of two spaces or more, the text after the gap is printed below the text before it, if the
 * line is too long. */
void print_fitted(const char *text);
/* Prints lines on stdout. On a terminal, a line that is too long is broken at gaps of two spaces, else between words, and the
 * further lines begin with `indent` spaces. If stdout is not a terminal, lines are not broken, so that programs can read
 * them. */
void print_line(int indent, const char *text);
/* As print_line, for a line that is written in parts. line_begin returns the stream for the parts; line_end prints them and
 * ends the line. */
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
