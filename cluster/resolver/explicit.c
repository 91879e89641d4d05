/* SPDX-License-Identifier: Apache-2.0
 *
 * A cluster that the user describes: `--cluster chief=a:1;worker=b:2,c:3 --task worker:1`, or a file of such lines.
 * Grammar:
 *   groups   group {(";" | newline) group}        group   [type "="] address {"," address}
 * Spaces are ignored, and so is the rest of a line after #. */
#include "cluster/resolver/resolver.h"
#include "core/base/alloc.h"
#include "core/base/file.h"

enum { MAX_FILE_BYTES = 8 << 20 };

static const char *cluster_text(const strata_cluster_options *opts) {
    return opts->cluster ? opts->cluster : strata_environment_get(opts, "STRATA_CLUSTER");
}

typedef struct piece {
    const char *at;
    size_t n;
} piece;

static piece trimmed(const char *at, size_t n) {
    while (n && strchr(" \t\r", *at)) at++, n--;
    while (n && strchr(" \t\r", at[n - 1])) n--;
    return (piece){at, n};
}

/* Adds a group such as "worker=a:1,b:2". `line` is its line in the file `name`, for messages. */
static strata_status add_group(const char *name, int line, piece group, strata_cluster_spec *spec, strata_error *err) {
    const char *equals = memchr(group.at, '=', group.n);
    strata_task_type type = STRATA_TASK_WORKER;
    if (equals) {
        piece word = trimmed(group.at, (size_t)(equals - group.at));
        type = strata_task_type_of(word.at, word.n);
        if (type == STRATA_TASK_TYPES)
            return strata_fail(err, STRATA_DATA,
                               "%s:%d: \"%.*s\" is no type of task; there are chief, worker, ps and evaluator", name, line,
                               (int)(word.n < 60 ? word.n : 60), word.at);
        group = trimmed(equals + 1, group.n - (size_t)(equals + 1 - group.at));
    }
    for (const char *at = group.at, *end = group.at + group.n; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t n = (size_t)((comma ? comma : end) - at);
        piece address = trimmed(at, n);
        STRATA_TRY(strata_cluster_spec_add(spec, type, address.at, address.n, err));
        const char *copy = spec->jobs[type].addresses[spec->jobs[type].n_tasks - 1],
                   *complaint = strata_address_complaint(copy);
        if (complaint) return strata_fail(err, STRATA_DATA, "%s:%d: the address \"%.300s\" %s", name, line, copy, complaint);
        at += n + 1;
    }
    return STRATA_OK;
}

static strata_status read_groups(const char *name, const char *text, strata_cluster_spec *spec, strata_error *err) {
    for (int line = 1; *text; line++) {
        size_t n_line = strcspn(text, "\n"), n = strcspn(text, "#\n");
        for (const char *at = text, *end = text + n; at < end;) {
            const char *semicolon = memchr(at, ';', (size_t)(end - at));
            size_t n_group = (size_t)((semicolon ? semicolon : end) - at);
            piece group = trimmed(at, n_group);
            if (group.n) STRATA_TRY(add_group(name, line, group, spec, err));
            at += n_group + 1;
        }
        text += n_line + (text[n_line] == '\n');
    }
    return STRATA_OK;
}

static strata_status read_cluster(const char *text, strata_cluster_spec *spec, strata_error *err) {
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes = 0;
    if (*text != '@') return read_groups("--cluster", text, spec, err);
    STRATA_TRY(strata_file_read(text + 1, MAX_FILE_BYTES, &bytes, &n_bytes, err));
    return strlen((char *)bytes) == n_bytes
               ? read_groups(text + 1, (char *)bytes, spec, err)
               : strata_fail(err, STRATA_DATA, "%s has a NUL byte; it must be a text of addresses", text + 1);
}

static strata_status read_task(const char *text, strata_cluster_spec *spec, strata_error *err) {
    size_t n_type = strcspn(text, ":");
    strata_task_type type = strata_task_type_of(text, n_type);
    const char *digits = text + n_type + (text[n_type] == ':');
    int index = *digits                                                      ? strata_digits(digits, strlen(digits))
                : type == STRATA_TASK_CHIEF || type == STRATA_TASK_EVALUATOR ? 0
                                                                             : -1;
    if (type == STRATA_TASK_TYPES && !text[n_type]) { /* it is only a number */
        type = STRATA_TASK_WORKER;
        index = strata_digits(text, n_type);
        if (index >= 0 && spec->jobs[STRATA_TASK_CHIEF].n_tasks)
            return strata_fail(err, STRATA_INVALID, "--task is %d, but there is a chief; say chief or worker:INDEX", index);
    }
    if (type == STRATA_TASK_TYPES || index < 0)
        return strata_fail(err, STRATA_INVALID,
                           "--task is \"%.60s\"; it must be TYPE:INDEX, as in worker:0, or chief or evaluator", text);
    spec->task_type = type;
    spec->task_index = index;
    return STRATA_OK;
}

strata_status strata_resolve_explicit(const strata_cluster_options *opts, strata_cluster_spec *spec, strata_error *err) {
    STRATA_TRY(read_cluster(cluster_text(opts), spec, err));
    const char *task = opts->task ? opts->task : strata_environment_get(opts, "STRATA_TASK");
    if (task) return read_task(task, spec, err);
    if (spec->jobs[STRATA_TASK_CHIEF].n_tasks + spec->jobs[STRATA_TASK_WORKER].n_tasks > 1)
        return strata_fail(err, STRATA_INVALID,
                           "--cluster names several tasks; say which one this process is: --task TYPE:INDEX, or STRATA_TASK");
    if (spec->jobs[STRATA_TASK_CHIEF].n_tasks) spec->task_type = STRATA_TASK_CHIEF;
    return STRATA_OK;
}
