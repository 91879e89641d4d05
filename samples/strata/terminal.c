/* SPDX-License-Identifier: Apache-2.0 */
#include "terminal.h"

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

bool locale_is_utf8(void) {
    static const char *const variables[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(variables[i]), *dot = value ? strchr(value, '.') : NULL;
        if (value && *value) return dot && (!strncasecmp(dot + 1, "utf-8", 5) || !strncasecmp(dot + 1, "utf8", 4));
    }
    return false;
}
