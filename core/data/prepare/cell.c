/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsing numbers and dates in cells. */
#include "core/data/prepare/cell.h"

#include <math.h>
#include <string.h>

#include "core/base/ascii.h"

static const char blanks[] = " \t";

/* The cell without the blanks around it. */
static const char *trim(const char *cell, size_t *out_length) {
    cell += strspn(cell, blanks);
    *out_length = strlen(cell);
    while (*out_length && strchr(blanks, cell[*out_length - 1])) --*out_length;
    return cell;
}

bool strata_cell_is_blank(const char *cell) {
    return !cell[strspn(cell, blanks)];
}

bool strata_cell_is_usual_marker(const char *cell) {
    static const char *const words[] = {"na", "n/a", "nan", "null", "none", "?", "-", "--"};
    size_t length = 0;
    cell = trim(cell, &length);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && strata_ascii_same_n(cell, words[i], length)) return true;
    return false;
}

bool strata_cell_is_listed(const char *cell, const char *const *words, int n) {
    size_t length = 0;
    double value = 0, other = 0;
    const char *const word = trim(cell, &length);
    const bool number = n && strata_cell_number(cell, strata_decimal_point, &value);
    for (int i = 0; i < n; i++) {
        if (strlen(words[i]) == length && !strncmp(word, words[i], length)) return true;
        if (number && strata_cell_number(words[i], strata_decimal_point, &other) && value == other) return true;
    }
    return false;
}

/* ---- numbers ---- */

const strata_number_format strata_decimal_point = {'.', ','}, strata_decimal_comma = {',', '.'};

/* The length of the first of these characters that is at `at`; 0: none is. */
static size_t length_of_any(const char *at, const char *const *characters, size_t n) {
    if (!*at || strata_ascii_is_digit(*at)) return 0; /* as in most cells */
    for (size_t i = 0; i < n; i++)
        if (*at == *characters[i] && !strncmp(at, characters[i], strlen(characters[i]))) return strlen(characters[i]);
    return 0;
}

/* The length of the separator of groups of digits at `at`: `thousands`, an apostrophe or a space; spaces that do not end a line
 * (U+00A0, U+202F) and the curved apostrophe (U+2019) too. 0: there is none. */
static size_t group_separator_length(const char *at, char thousands) {
    static const char *const others[] = {" ", "'", "\xc2\xa0", "\xe2\x80\xaf", "\xe2\x80\x99"};
    return *at && *at == thousands ? 1 : length_of_any(at, others, sizeof others / sizeof *others);
}

static int count_digits(const char *at) {
    int n = 0;
    while (strata_ascii_is_digit(at[n])) n++;
    return n;
}

/* Finds the end of an integer part that is written in groups, each after the same separator: one to three digits that do not
 * begin with 0, then groups of three; or, as in India, one or two digits, groups of two and at last one of three
 * ("12,34,567"). *out_separator: the separator and its length. Returns NULL if the digits are not in groups. */
static const char *end_of_digit_groups(const char *at, char thousands, const char **out_separator, size_t *out_length) {
    const int first = count_digits(at);
    const size_t length = group_separator_length(at + first, thousands);
    int pairs = 0, triples = 0;
    if (first < 1 || first > 3 || *at == '0' || !length) return NULL;
    at += first;
    *out_separator = at;
    *out_length = length;
    while (!strncmp(at, *out_separator, length) && strata_ascii_is_digit(at[length])) {
        const int n = count_digits(at + length);
        const bool fits = n == 3 ? !(pairs && triples) : n == 2 && first < 3 && !triples;
        if (!fits) return NULL;
        n == 3 ? triples++ : pairs++;
        at += length + (size_t)n;
    }
    return triples ? at : NULL;
}

/* The character after the sign at `at`, or `at` if there is none; "\xe2\x88\x92" is the minus of word processors. */
static const char *skip_sign(const char *at, bool *negative) {
    static const char minus[] = "\xe2\x88\x92";
    const bool long_minus = !strncmp(at, minus, sizeof minus - 1);
    *negative |= *at == '-' || long_minus;
    return long_minus ? at + sizeof minus - 1 : *at == '-' || *at == '+' ? at + 1 : at;
}

/* The character after blanks and spaces that do not end a line, as word processors write before a unit. */
static const char *skip_spaces(const char *at) {
    static const char *const spaces[] = {" ", "\t", "\xc2\xa0", "\xe2\x80\xaf"};
    for (size_t n; (n = length_of_any(at, spaces, sizeof spaces / sizeof *spaces));) at += n;
    return at;
}

static const char *skip_unit(const char *at, bool percent) {
    static const char *const units[] = {"%", "$", "€", "£", "¥", "₹"};
    return at + length_of_any(at, units + !percent, sizeof units / sizeof *units - !percent);
}

/* The first character after blanks, a sign and a currency, in either order. */
static const char *skip_to_digits(const char *cell, bool *negative) {
    cell = skip_spaces(cell);
    const char *const number = skip_sign(cell, negative), *const amount = skip_unit(number, false);
    if (amount == number) return number;
    const char *const digits = skip_spaces(amount);
    return number == cell ? skip_sign(digits, negative) : digits;
}

bool strata_cell_has_groups(const char *cell, char thousands) {
    const char *separator = NULL;
    size_t length = 0;
    bool negative = false;
    cell = skip_to_digits(cell, &negative);
    return end_of_digit_groups(cell, thousands, &separator, &length) && *separator == thousands;
}

bool strata_cell_has_mark(const char *cell) {
    return cell[strcspn(cell, ".,")] != 0;
}

/* digits x 10^exponent. The powers of the table are exact where a long double has 64 bits or more for its digits. */
static long double scale(uint64_t digits, int exponent) {
    static const long double tens[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,  1e7L,  1e8L,  1e9L,
                                       1e10L, 1e11L, 1e12L, 1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L,
                                       1e20L, 1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    const int most = sizeof tens / sizeof *tens - 1;
    if (exponent < -most || exponent > most) return (long double)digits * powl(10, exponent);
    return exponent < 0 ? (long double)digits / tens[-exponent] : (long double)digits * tens[exponent];
}

/* strtod is not used, since it depends on the program's locale. 19 digits in a long double are far more exact than the f32 that
 * the number becomes. */
bool strata_cell_number(const char *cell, strata_number_format format, double *out) {
    const char point = format.decimal;
    uint64_t digits = 0;
    int n_digits = 0, exponent = 0, written_exponent = 0;
    bool negative = false, after_point = false;
    const char *separator = NULL;
    size_t length = 0;
    cell = skip_to_digits(cell, &negative);
    const char *const groups = end_of_digit_groups(cell, format.thousands, &separator, &length);
    for (;; cell++) {
        if (groups && cell < groups && !strncmp(cell, separator, length)) cell += length;
        if (*cell == point && !after_point) {
            after_point = true;
            continue;
        }
        if (!strata_ascii_is_digit(*cell)) break;
        n_digits++;
        if (digits < UINT64_C(1000000000000000000))
            digits = digits * 10 + (uint64_t)(*cell - '0'), exponent -= after_point;
        else
            exponent += !after_point;
    }
    if (n_digits && (*cell == 'e' || *cell == 'E')) {
        bool down = cell[1] == '-';
        cell += cell[1] == '-' || cell[1] == '+' ? 2 : 1;
        if (*cell < '0' || *cell > '9') return false;
        for (; *cell >= '0' && *cell <= '9'; cell++)
            written_exponent = written_exponent < 100000 ? written_exponent * 10 + (*cell - '0') : written_exponent;
        exponent += down ? -written_exponent : written_exponent;
    }
    *out = (double)scale(digits, exponent) * (negative ? -1 : 1);
    if (digits == 0) *out = negative ? -0.0 : 0.0;
    return n_digits && !*skip_spaces(skip_unit(skip_spaces(cell), true)) && isfinite(*out);
}

/* ---- dates ---- */

const char *const strata_date_orders[] = {"", "dmy", "mdy", "ymd"};

/* The order of year, month and day, and the character between them. If a cell fits two formats, the other cells of the column
 * decide, and then those of other columns; if they fit both as well, the first format is used. */
static const struct {
    const char *name;
    char separator;
    strata_date_order order;
} formats[STRATA_DATE_FORMATS] = {
    {"YYYY-MM-DD", '-', STRATA_DATE_YMD}, {"YYYY/MM/DD", '/', STRATA_DATE_YMD}, {"YYYY.MM.DD", '.', STRATA_DATE_YMD},
    {"DD.MM.YYYY", '.', STRATA_DATE_DMY}, {"MM.DD.YYYY", '.', STRATA_DATE_MDY}, {"MM/DD/YYYY", '/', STRATA_DATE_MDY},
    {"DD/MM/YYYY", '/', STRATA_DATE_DMY}, {"DD-MM-YYYY", '-', STRATA_DATE_DMY}, {"MM-DD-YYYY", '-', STRATA_DATE_MDY}};

const char *strata_date_format_name(int format) {
    return formats[format].name;
}

strata_date_order strata_date_format_order(int format) {
    return formats[format].order;
}

int strata_date_format_with_order(int format, strata_date_order order) {
    int found = 0;
    while (formats[found].order != order || formats[found].separator != formats[format].separator) found++;
    return found;
}

/* Parses a number of least..most digits. Returns -1 if there is none. */
static int parse_digits(const char **at, int least, int most) {
    int n = 0, value = 0;
    for (; n < most && **at >= '0' && **at <= '9'; n++, ++*at) value = 10 * value + (**at - '0');
    return n < least || (**at >= '0' && **at <= '9') ? -1 : value;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar. The formula counts years from March on, so that a leap day is the
 * last day of a year. */
static int64_t days_of(int64_t year, int month, int day) {
    const int64_t y = year - (month <= 2), months = (month + 9) % 12;
    return 365 * y + y / 4 - y / 100 + y / 400 + (153 * months + 2) / 5 + day - 1 - 719468;
}

static int days_in(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = (year % 4 == 0 && year % 100) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

/* Parses the time of day after a date, for example "12:30:05.25+01:00", and converts it to seconds since midnight UTC. */
static bool parse_time(const char **at, double *out_seconds) {
    int part[3] = {0}, n = 0;
    double fraction = 0, place = 0.1;
    for (; n < 3 && (n == 0 || **at == ':'); n++) {
        if (n) ++*at;
        part[n] = parse_digits(at, n ? 2 : 1, 2);
        if (part[n] < 0) return false;
    }
    if (n == 3 && **at == '.')
        for (++*at; **at >= '0' && **at <= '9'; ++*at, place /= 10) fraction += place * (**at - '0');
    *out_seconds = part[0] * 3600.0 + part[1] * 60.0 + part[2] + fraction;
    if (**at == 'Z') {
        ++*at;
    } else if (**at == '+' || **at == '-') {
        const int sign = *(*at)++ == '-' ? 1 : -1, hours = parse_digits(at, 2, 2);
        if (**at == ':') ++*at;
        const int minutes = parse_digits(at, 2, 2);
        if (hours < 0 || minutes < 0) return false;
        *out_seconds += sign * (hours * 3600.0 + minutes * 60.0);
    }
    return n >= 2 && part[0] < 24 && part[1] < 60 && part[2] < 61;
}

/* Parses year, month and day, which need not exist, and returns the text after them; NULL: the cell has another form. */
static const char *parse_day(const char *cell, int format, int *year, int *month, int *day) {
    cell += strspn(cell, blanks);
    for (int i = 0; i < 3; i++) {
        const char which = strata_date_orders[formats[format].order][i];
        if (i && *cell++ != formats[format].separator) return NULL;
        const int value = parse_digits(&cell, which == 'y' ? 4 : 1, which == 'y' ? 4 : 2);
        if (value < 0) return NULL;
        *(which == 'y' ? year : which == 'm' ? month : day) = value;
    }
    return cell;
}

bool strata_cell_is_like_date(const char *cell, int format) {
    int year, month, day;
    return parse_day(cell, format, &year, &month, &day) != NULL;
}

bool strata_cell_date(const char *cell, int format, double *out_days, bool *out_time) {
    int year = 0, month = 0, day = 0;
    double seconds = 0;
    cell = parse_day(cell, format, &year, &month, &day);
    if (!cell) return false;
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in(year, month)) return false;
    *out_time = (*cell == 'T' || *cell == ' ') && cell[1] >= '0' && cell[1] <= '9';
    if (*out_time) {
        cell++;
        if (!parse_time(&cell, &seconds)) return false;
    }
    *out_days = (double)days_of(year, month, day) + seconds / 86400;
    return !cell[strspn(cell, blanks)];
}
