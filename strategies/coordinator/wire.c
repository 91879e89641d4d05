/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing the heads of messages, and comparing the functions of two tasks. */
#include "strategies/coordinator/wire.h"

#include <string.h>

/* ---- bytes ---- */

void strata_remote_put(strata_remote_writer *w, uint64_t value, int n_bytes) {
    if (w->end - w->at < n_bytes) {
        w->full = true;
        return;
    }
    for (int i = 0; i < n_bytes; i++) *w->at++ = (unsigned char)(value >> (8 * i));
}

void strata_remote_put_text(strata_remote_writer *w, const char *text) {
    const size_t n = strlen(text);
    strata_remote_put(w, n, 2);
    if (w->full || n > UINT16_MAX || (size_t)(w->end - w->at) < n) {
        w->full = true;
        return;
    }
    memcpy(w->at, text, n);
    w->at += n;
}

void strata_remote_put_array(strata_remote_writer *w, const strata_array *array) {
    strata_remote_put(w, (uint64_t)array->dtype, 1);
    strata_remote_put(w, (uint64_t)array->shape.rank, 1);
    for (int i = 0; i < array->shape.rank; i++) strata_remote_put(w, (uint64_t)array->shape.dims[i], 8);
}

uint64_t strata_remote_get(strata_remote_reader *r, int n_bytes) {
    uint64_t value = 0;
    if (r->end - r->at < n_bytes) {
        r->wrong = true;
        return 0;
    }
    for (int i = 0; i < n_bytes; i++) value |= (uint64_t)*r->at++ << (8 * i);
    return value;
}

void strata_remote_get_text(strata_remote_reader *r, char *out, size_t n) {
    const size_t bytes = strata_remote_get(r, 2);
    *out = 0;
    if (r->wrong || bytes >= n || (size_t)(r->end - r->at) < bytes || memchr(r->at, 0, bytes)) {
        r->wrong = true;
        return;
    }
    memcpy(out, r->at, bytes);
    out[bytes] = 0;
    r->at += bytes;
}

static size_t padded(size_t bytes) {
    return (bytes + STRATA_REMOTE_ALIGNMENT - 1) / STRATA_REMOTE_ALIGNMENT * STRATA_REMOTE_ALIGNMENT;
}

strata_array strata_remote_get_array(strata_remote_reader *r, void *body, size_t body_bytes, size_t *in_out_offset) {
    strata_array none = {0};
    const strata_dtype dtype = (strata_dtype)strata_remote_get(r, 1);
    strata_shape shape = {.rank = (int)strata_remote_get(r, 1)};
    for (int i = 0; i < shape.rank && i < STRATA_MAX_RANK; i++) shape.dims[i] = (int64_t)strata_remote_get(r, 8);
    if (r->wrong || !strata_dtype_bytes(dtype) || strata_shape_check(shape, NULL)) {
        r->wrong = true;
        return none;
    }
    const strata_array array = strata_array_view(dtype, shape, body ? (char *)body + *in_out_offset : NULL);
    const size_t bytes = padded(strata_array_bytes(&array));
    if (bytes > body_bytes - *in_out_offset) {
        r->wrong = true;
        return none;
    }
    *in_out_offset += bytes;
    return array;
}

int strata_remote_add_piece(struct iovec *pieces, int n, const strata_array *array) {
    static const char zeros[STRATA_REMOTE_ALIGNMENT];
    const size_t bytes = strata_array_bytes(array), more = padded(bytes) - bytes;
    pieces[n++] = (struct iovec){array->data, bytes};
    if (more) pieces[n++] = (struct iovec){(void *)(uintptr_t)zeros, more};
    return n;
}

/* ---- functions ---- */

const strata_remote_function *strata_remote_find(const strata_remote_function *functions, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(functions[i].name, name)) return &functions[i];
    return NULL;
}

strata_status strata_remote_check_functions(const char *who, const strata_remote_function *functions, int n,
                                            strata_error *err) {
    if (n < 1 || !functions) return strata_fail(err, STRATA_INVALID, "%s has no functions that could be run", who);
    for (int i = 0; i < n; i++) {
        const strata_remote_function *f = &functions[i];
        const size_t bytes = f->name ? strnlen(f->name, STRATA_REMOTE_MAX_NAME + 1) : 0;
        if (!bytes || bytes > STRATA_REMOTE_MAX_NAME)
            return strata_fail(err, STRATA_INVALID, "%s: the name of function %d must have 1 to %d bytes", who, i,
                               STRATA_REMOTE_MAX_NAME);
        if (strata_remote_find(functions, i, f->name))
            return strata_fail(err, STRATA_INVALID, "%s: two functions are named \"%s\"", who, f->name);
        if (!f->run == !f->make)
            return strata_fail(err, STRATA_INVALID, "%s: function \"%s\" must have either run or make", who, f->name);
        if (f->n_results < 0 || f->n_results > STRATA_REMOTE_MAX_ARRAYS || (f->make && f->n_results))
            return strata_fail(err, STRATA_INVALID, "%s: function \"%s\" has %d results; 0 to %d are possible, and 0 with make",
                               who, f->name, f->n_results, STRATA_REMOTE_MAX_ARRAYS);
    }
    return STRATA_OK;
}

void strata_remote_put_functions(strata_remote_writer *w, const strata_remote_function *functions, int n) {
    strata_remote_put(w, (uint64_t)n, 2);
    for (int i = 0; i < n; i++) {
        strata_remote_put_text(w, functions[i].name);
        strata_remote_put(w, functions[i].make != NULL, 1);
        strata_remote_put(w, (uint64_t)functions[i].n_results, 1);
        strata_remote_put(w, functions[i].graph_hash, 8);
    }
}

strata_status strata_remote_compare(strata_remote_reader *r, const char *theirs_task, const char *own_task,
                                    const strata_remote_function *own, int n, strata_error *err) {
    const int n_theirs = (int)strata_remote_get(r, 2);
    for (int i = 0; i < n_theirs && !r->wrong; i++) {
        char name[STRATA_REMOTE_MAX_NAME + 1];
        strata_remote_get_text(r, name, sizeof name);
        const bool makes = strata_remote_get(r, 1);
        const int n_results = (int)strata_remote_get(r, 1);
        const uint64_t hash = strata_remote_get(r, 8);
        const strata_remote_function *f = strata_remote_find(own, n, name);
        if (r->wrong) break;
        if (!f)
            return strata_fail(err, STRATA_INVALID,
                               "%s has a function \"%s\" and %s does not: all tasks must run the same program", theirs_task,
                               name, own_task);
        if (makes != (f->make != NULL) || n_results != f->n_results)
            return strata_fail(err, STRATA_INVALID, "function \"%s\" %s with %d results on %s, and %s with %d on %s", name,
                               makes ? "makes values" : "runs", n_results, theirs_task, f->make ? "makes values" : "runs",
                               f->n_results, own_task);
        if (hash != f->graph_hash)
            return strata_fail(
                err, STRATA_INVALID,
                "function \"%s\" computes another graph on %s (%016llx) than on %s (%016llx): all tasks must run the "
                "same program with the same options",
                name, theirs_task, (unsigned long long)hash, own_task, (unsigned long long)f->graph_hash);
    }
    if (r->wrong) return strata_fail(err, STRATA_DATA, "the list of functions of %s is cut off", theirs_task);
    for (int i = 0; i < n && n_theirs < n; i++) /* names are unique, so the other task lacks one of them */
        return strata_fail(err, STRATA_INVALID, "%s has %d functions and %s has %d: all tasks must run the same program",
                           theirs_task, n_theirs, own_task, n);
    return STRATA_OK;
}
