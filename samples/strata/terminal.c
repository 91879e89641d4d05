/* SPDX-License-Identifier: Apache-2.0 */
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_draws(int fd) {
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

bool terminal_has_colours(int fd) {
    const char *none = getenv("NO_COLOR");
    return terminal_draws(fd) && !(none && *none);
}

static int size_of(int fd, bool rows) {
    struct winsize size;
    if (!ioctl(fd, TIOCGWINSZ, &size) && size.ws_col && size.ws_row) return rows ? size.ws_row : size.ws_col;
    const char *said = getenv(rows ? "LINES" : "COLUMNS");
    const long n = said ? strtol(said, NULL, 10) : 0;
    return n > 0 && n < 10000 ? (int)n : rows ? 24 : 80;
}

int terminal_columns(int fd) {
    return size_of(fd, false);
}

int terminal_rows(int fd) {
    return size_of(fd, true);
}

/* ---- help in the terminal's width ---- */

enum { LEAST_WIDTH = 20, MOST_WIDTH = 110, HELP_COLUMN = 26, LEAST_BESIDE = 34 };

static int help_width(void) {
    const int columns = terminal_columns(STDOUT_FILENO);
    return columns < LEAST_WIDTH ? LEAST_WIDTH : columns > MOST_WIDTH ? MOST_WIDTH : columns;
}

/* Prints words from column `at` on, in lines that begin at column `indent` and end before column `width`. A word that is longer
 * than a line is not divided. A line feed in the text counts as a space. */
static void print_words(const char *text, size_t n, int at, int indent, int width) {
    bool begins = true;
    for (size_t i = 0; i < n;) {
        size_t length = 0;
        while (i + length < n && text[i + length] != ' ' && text[i + length] != '\n') length++;
        if (length) {
            if (!begins && at + 1 + (int)length > width) {
                printf("\n%*s", indent, "");
                at = indent;
            } else if (!begins) {
                putchar(' ');
                at++;
            }
            printf("%.*s", (int)length, text + i);
            at += (int)length;
            begins = false;
        }
        i += length + 1;
    }
    putchar('\n');
}

void print_columns(const char *left, const char *right) {
    const int width = help_width(), n = (int)strlen(left);
    const bool beside = width - HELP_COLUMN >= LEAST_BESIDE;
    const int indent = beside ? HELP_COLUMN : 6;
    printf("  ");
    if (beside && n + 3 <= HELP_COLUMN) {
        printf("%-*s", HELP_COLUMN - 2, left);
    } else {
        print_words(left, strlen(left), 2, 4, width);
        printf("%*s", indent, "");
    }
    print_words(right, strlen(right), indent, indent, width);
}

void print_indented(int indent, const char *text) {
    printf("%*s", indent, "");
    print_words(text, strlen(text), indent, indent, help_width());
}

static void print_fitted_line(const char *line, size_t n, int width) {
    size_t spaces = 0, gap = 0, behind = 0;
    while (spaces < n && line[spaces] == ' ') spaces++;
    for (size_t i = spaces; i + 1 < n && !gap; i++)
        if (line[i] == ' ' && line[i + 1] == ' ') gap = i;
    if ((int)n <= width || spaces == n) {
        printf("%.*s\n", (int)n, line);
        return;
    }
    const int indent = (int)spaces;
    printf("%*s", indent, "");
    if (!gap) {
        print_words(line + spaces, n - spaces, indent, spaces ? indent + 4 : 0, width);
        return;
    }
    for (behind = gap; behind < n && line[behind] == ' ';) behind++;
    print_words(line + spaces, gap - spaces, indent, indent + 4, width);
    printf("%*s", indent + 4, "");
    print_words(line + behind, n - behind, indent + 4, indent + 4, width);
}

/* Whether the line is part of a paragraph: it is not empty, is not indented and has no columns, between which are several
 * spaces. */
static bool is_prose(const char *line) {
    const size_t n = strcspn(line, "\n");
    const char *gap = strstr(line, "  ");
    return n && *line != ' ' && !(gap && gap < line + n);
}

void print_fitted(const char *text) {
    const int width = help_width();
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (is_prose(text)) {
            while (text[n] && is_prose(text + n + 1)) n += 1 + strcspn(text + n + 1, "\n");
            print_words(text, n, 0, 0, width);
        } else {
            print_fitted_line(text, n, width);
        }
        text += n;
        if (*text) text++;
    }
}

/* ---- lines in the terminal's width ---- */

/* Where to break a line of `width` columns: at the last gap of two spaces, else at the last space, else at the next one. */
static size_t line_break(const char *text, int width) {
    size_t gap = 0, space = 0, i = 0;
    for (int column = 0; text[i] && text[i] != '\n'; i++) {
        if (text[i] == ' ' && i) {
            if (text[i - 1] != ' ') space = i;
            if (text[i + 1] == ' ' && text[i - 1] != ' ') gap = i;
        }
        if (column >= width && (gap || space)) return gap ? gap : space;
        if (((unsigned char)text[i] & 0xC0) != 0x80) column++; /* further bytes of a UTF-8 character are not counted */
        if (column > width && (gap || space)) return gap ? gap : space;
    }
    return i;
}

void print_line(int indent, const char *text) {
    const int width = isatty(STDOUT_FILENO) ? terminal_columns(STDOUT_FILENO) : 0;
    if (width <= 2 * indent) {
        puts(text);
        return;
    }
    for (int at = 0; *text;) {
        const size_t n = line_break(text, width - at);
        printf("%*s%.*s\n", at, "", (int)n, text);
        at = text[n] == ' ' ? indent : 0;
        text += n;
        while (*text == ' ') text++;
        if (*text == '\n') text++;
    }
}

FILE *line_begin(line *l) {
    *l = (line){0};
    l->stream = open_memstream(&l->text, &l->n);
    return l->stream ? l->stream : stdout;
}

void line_end(line *l, int indent) {
    if (l->stream && !fclose(l->stream))
        print_line(indent, l->text);
    else
        putchar('\n');
    free(l->text);
}

bool locale_is_utf8(void) {
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]), *dot = value ? strchr(value, '.') : NULL;
        if (value && *value) return dot && (!strncasecmp(dot + 1, "utf-8", 5) || !strncasecmp(dot + 1, "utf8", 4));
    }
    return false;
}
