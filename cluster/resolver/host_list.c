/* SPDX-License-Identifier: Apache-2.0
 *
 * Slurm's compressed lists: hosts, n[01-10,12],m5, and tasks per node, 3(x2),1. Lists come from the environment, so their
 * expansion is limited: the number of hosts, the length of a name, and the brackets in a name. */
#include "cluster/resolver/resolver.h"
#include "core/base/alloc.h"

enum { MAX_NAME = 255, MAX_BRACKETS = 8 };

typedef struct expansion {
    const char *name, *text; /* for messages: the variable's name and its whole value */
    strata_host_list *list;
    strata_error *err;
} expansion;

static strata_status fail_at(const expansion *e, const char *at, const char *message) {
    return strata_fail(e->err, STRATA_DATA, "%s: character %zu of \"%.200s\": %s", e->name, (size_t)(at - e->text) + 1, e->text,
                       message);
}

static strata_status add_host(const expansion *e, const char *at, const char *host) {
    strata_host_list *list = e->list;
    if (!*host) return fail_at(e, at, "a host has no name");
    if (list->n_hosts == STRATA_CLUSTER_MAX_TASKS) return fail_at(e, at, "the list has more than 65536 hosts");
    char **added = strata_grow(&list->hosts, list->n_hosts, sizeof *added);
    if (!added) return strata_fail(e->err, STRATA_OUT_OF_MEMORY, "no memory for %d hosts", 2 * list->n_hosts);
    *added = strdup(host);
    if (!*added) return strata_fail(e->err, STRATA_OUT_OF_MEMORY, "no memory for a host name");
    list->n_hosts++;
    return STRATA_OK;
}

static strata_status expand_rest(const expansion *e, const char *at, const char *end, char *host, size_t n_host,
                                 int n_brackets);

/* Expands a range of numbers, such as "3-5" or "07", in [at, end). Each number is written with at least as many digits as the
 * first one, followed by `rest`, the part after the bracket. */
static strata_status expand_range(const expansion *e, const char *at, const char *end, const char *rest, const char *rest_end,
                                  char *host, size_t n_host, int n_brackets) {
    const char *dash = memchr(at, '-', (size_t)(end - at));
    size_t width = (size_t)((dash ? dash : end) - at);
    int first = strata_digits(at, width), last = dash ? strata_digits(dash + 1, (size_t)(end - dash - 1)) : first;
    if (first < 0 || last < 0) return fail_at(e, at, "expected a number or a range of numbers, as in 3-5");
    if (last < first) return fail_at(e, at, "the range ends before it begins");
    for (int number = first; number <= last; number++) {
        char digits[10];
        size_t n = 0;
        for (int left = number; left || n < width; left /= 10) digits[n++] = (char)('0' + left % 10);
        if (n_host + n > MAX_NAME) return fail_at(e, at, "a host's name is longer than 255 bytes");
        for (size_t i = 0; i < n; i++) host[n_host + i] = digits[n - 1 - i];
        STRATA_TRY(expand_rest(e, rest, rest_end, host, n_host + n, n_brackets));
    }
    return STRATA_OK;
}

/* Expands the rest of an entry, after host[0..n_host). */
static strata_status expand_rest(const expansion *e, const char *at, const char *end, char *host, size_t n_host,
                                 int n_brackets) {
    const char *open = memchr(at, '[', (size_t)(end - at));
    size_t n = (size_t)((open ? open : end) - at);
    if (n_host + n > MAX_NAME) return fail_at(e, at, "a host's name is longer than 255 bytes");
    memcpy(host + n_host, at, n);
    host[n_host + n] = '\0';
    const char *stray = strpbrk(host + n_host, "] \t");
    if (stray) return fail_at(e, at + (stray - host - n_host), "a host's name has no such character");
    if (!open) return add_host(e, at, host);
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (n_brackets == MAX_BRACKETS) return fail_at(e, open, "a name has more than 8 brackets");
    for (const char *range = open + 1; range <= close;) {
        const char *comma = memchr(range, ',', (size_t)(close - range)), *range_end = comma ? comma : close;
        STRATA_TRY(expand_range(e, range, range_end, close + 1, end, host, n_host + n, n_brackets + 1));
        range = range_end + 1;
    }
    return STRATA_OK;
}

/* Returns the end of the entry that begins at `at`: a comma outside of brackets, or the end of the text. NULL: a bracket is
 * not closed. */
static const char *entry_end(const char *at) {
    bool inside = false;
    for (; *at && (inside || *at != ','); at++) inside = *at == '[' || (inside && *at != ']');
    return inside ? NULL : at;
}

strata_status strata_host_list_expand(const char *name, const char *text, strata_host_list *out_list, strata_error *err) {
    char host[MAX_NAME + 1];
    expansion e = {.name = name, .text = text, .list = out_list, .err = err};
    *out_list = (strata_host_list){0};
    strata_status status = STRATA_OK;
    for (const char *at = text; !status; at++) {
        const char *end = entry_end(at);
        status = end ? expand_rest(&e, at, end, host, 0, 0) : fail_at(&e, at, "a bracket is not closed");
        if (status || !*end) break;
        at = end;
    }
    if (status) strata_host_list_finish(out_list);
    return status;
}

void strata_host_list_finish(strata_host_list *list) {
    for (int i = 0; i < list->n_hosts; i++) free(list->hosts[i]);
    free(list->hosts);
    *list = (strata_host_list){0};
}

strata_status strata_task_counts_expand(const char *name, const char *text, int *counts, int n_nodes, strata_error *err) {
    int n = 0;
    for (const char *at = text;; at++) {
        size_t n_digits = strcspn(at, "(,"), n_times = 0;
        int count = strata_digits(at, n_digits), times = 1;
        at += n_digits;
        if (*at == '(') {
            n_times = at[1] == 'x' ? strcspn(at + 2, ")") : 0;
            times = n_times && at[2 + n_times] == ')' ? strata_digits(at + 2, n_times) : -1;
            if (times > 0) at += n_times + 3;
        }
        if (count < 1 || times < 1 || (*at && *at != ','))
            return strata_fail(err, STRATA_DATA, "%s is \"%.200s\"; it must be numbers of tasks a node, as in 3(x2),1", name,
                               text);
        for (; times && n < n_nodes; times--) counts[n++] = count;
        if (times)
            return strata_fail(err, STRATA_DATA, "%s is \"%.200s\": more than the %d nodes that there are", name, text,
                               n_nodes);
        if (!*at) break;
    }
    if (n < n_nodes)
        return strata_fail(err, STRATA_DATA, "%s is \"%.200s\": %d nodes, but there are %d", name, text, n, n_nodes);
    return STRATA_OK;
}
