/* SPDX-License-Identifier: Apache-2.0
 *
 * The witness of `strata plugin-check` (witness.h). Its state is that of the child process in which a plugin is checked.
 *
 * A *region* is memory that a call borrows: pages of their own, followed by one that nobody may access. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "tests/conformance/plugin/witness.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backends/plugin/plugin.h"

enum { MOST_REGIONS = 1024, MOST_DEVICES = 8, MOST_COPIES = 64, MOST_PATH = 300, CANARY = 0xC9 };
enum { TABLE_BYTES = 64 << 20, ALIGNMENT = 16, PROBE_EVERY = 4 };

/* ---- regions ---- */

typedef enum region_state { REGION_FREE = 0, REGION_READ_ONLY, REGION_WRITABLE, REGION_ENDED } region_state;

typedef struct region {
    region_state state;
    /* The mapping, with the page at its end that nobody may access. */
    char *begin;
    size_t mapped;
    /* The borrowed bytes in it. */
    char *data;
    size_t bytes;
    /* "the source of upload". */
    const char *what;
} region;

static region regions[MOST_REGIONS];
static int next_region;
static size_t page_bytes;
static witness_report *report_fault;

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* Takes a region for n bytes; NULL: there is no memory for it. */
static region *open_region(size_t n, const char *what) {
    region *r = NULL;
    for (int i = 0; i < MOST_REGIONS && !r; i++, next_region = (next_region + 1) % MOST_REGIONS)
        if (regions[next_region].state == REGION_FREE || regions[next_region].state == REGION_ENDED) r = &regions[next_region];
    if (!r) return NULL;
    if (r->state == REGION_ENDED) munmap(r->begin, r->mapped);
    *r = (region){.what = what, .bytes = n, .mapped = round_up(n ? n : 1, page_bytes) + page_bytes};
    r->begin = mmap(NULL, r->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->begin == MAP_FAILED) {
        *r = (region){0};
        return NULL;
    }
    r->data = r->begin + r->mapped - page_bytes - round_up(n ? n : 1, ALIGNMENT);
    r->state = REGION_WRITABLE;
    mprotect(r->begin + r->mapped - page_bytes, page_bytes, PROT_NONE);
    return r;
}

static void make_read_only(region *r) {
    r->state = REGION_READ_ONLY;
    mprotect(r->begin, r->mapped - page_bytes, PROT_READ);
}

/* The call has ended: from now on an access to the region is an error. */
static void end_region(region *r) {
    if (!r) return;
    madvise(r->begin, r->mapped - page_bytes, MADV_DONTNEED);
    mprotect(r->begin, r->mapped - page_bytes, PROT_NONE);
    r->state = REGION_ENDED;
}

static region *lend_copy(const void *source, size_t n, const char *what) {
    region *r = open_region(n, what);
    if (!r) return NULL;
    memcpy(r->data, source, n);
    make_read_only(r);
    return r;
}

/* Lends memory that the call writes. The bytes around it have a pattern. */
static region *lend_target(size_t n, const char *what) {
    region *r = open_region(n, what);
    if (!r) return NULL;
    memset(r->begin, CANARY, (size_t)(r->data - r->begin));
    memset(r->data + n, CANARY, (size_t)(r->begin + r->mapped - page_bytes - (r->data + n)));
    return r;
}

/* Whether the call wrote nothing but the target. */
static bool is_intact(const region *r) {
    const unsigned char *at = (const unsigned char *)r->begin, *data = (const unsigned char *)r->data;
    const unsigned char *end = at + r->mapped - page_bytes;
    for (; at < data; at++)
        if (*at != CANARY) return false;
    for (at = data + r->bytes; at < end; at++)
        if (*at != CANARY) return false;
    return true;
}

size_t witness_bytes(void) {
    size_t n = 0;
    for (int i = 0; i < MOST_REGIONS; i++) n += regions[i].mapped;
    return n;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    static const char *const texts[] = {[REGION_READ_ONLY] = "the plugin wrote to (or read beyond) ",
                                        [REGION_WRITABLE] = "the plugin wrote or read beyond ",
                                        [REGION_ENDED] = "after the call had returned, the plugin still used "};
    const char *address = info->si_addr;
    (void)context;
    for (int i = 0; i < MOST_REGIONS; i++) {
        const region *r = &regions[i];
        if (!r->state || address < r->begin || address >= r->begin + r->mapped) continue;
        char text[MOST_PATH];
        text[0] = 0;
        strncat(text, texts[r->state], sizeof text - 1);
        strncat(text, r->what, sizeof text - strlen(text) - 1);
        strncat(text, ", which it borrows until the call returns", sizeof text - strlen(text) - 1);
        report_fault(text);
        _exit(0);
    }
    signal(number, SIG_DFL); /* the access is repeated and ends the process */
}

void witness_begin(witness_report *report) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    report_fault = report;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
#if defined(__GLIBC__)
    mallopt(M_PERTURB, CANARY);
#endif
}

/* ---- copies of the tables of a piece ---- */

typedef struct bump {
    char *at, *end;
    bool full;
} bump;

static void *take(bump *b, size_t n) {
    char *memory = b->at;
    n = round_up(n ? n : 1, ALIGNMENT);
    if (b->full || (size_t)(b->end - b->at) < n) {
        b->full = true;
        return NULL;
    }
    b->at += n;
    return memory;
}

static void *copy_bytes(bump *b, const void *source, size_t n) {
    void *own = source ? take(b, n) : NULL;
    if (own && n) memcpy(own, source, n);
    return own;
}

static char *copy_text(bump *b, const char *text) {
    return text ? copy_bytes(b, text, strlen(text) + 1) : NULL;
}

static const strata_plugin_attribute *copy_attribute(bump *b, const strata_plugin_attribute *given) {
    strata_plugin_attribute *own = copy_bytes(b, given, sizeof *given);
    if (!own) return NULL;
    own->name = copy_text(b, given->name);
    own->ints = copy_bytes(b, given->ints, (size_t)given->n * sizeof *given->ints);
    own->floats = copy_bytes(b, given->floats, (size_t)given->n * sizeof *given->floats);
    own->text = copy_text(b, given->text);
    return own;
}

static const strata_plugin_node *copy_node(bump *b, const strata_plugin_node *given) {
    strata_plugin_node *own = copy_bytes(b, given, sizeof *given);
    const strata_plugin_attribute **attributes = take(b, (size_t)given->n_attributes * sizeof(*attributes));
    const strata_plugin_node **parts = take(b, (size_t)given->n_parts * sizeof(*parts));
    if (!own || !attributes || !parts) return NULL;
    for (int i = 0; i < given->n_attributes; i++) attributes[i] = copy_attribute(b, given->attributes[i]);
    for (int i = 0; i < given->n_parts; i++) parts[i] = copy_node(b, given->parts[i]);
    own->op = copy_text(b, given->op);
    own->name = copy_text(b, given->name);
    own->inputs = copy_bytes(b, given->inputs, (size_t)given->n_inputs * sizeof *given->inputs);
    own->writes = copy_bytes(b, given->writes, (size_t)given->n_writes * sizeof *given->writes);
    own->attributes = attributes;
    own->parts = parts;
    return own;
}

static const strata_plugin_value *copy_value(bump *b, const strata_plugin_value *given) {
    strata_plugin_value *own = copy_bytes(b, given, sizeof *given);
    if (!own) return NULL;
    own->dims = copy_bytes(b, given->dims, (size_t)given->rank * sizeof *given->dims);
    own->name = copy_text(b, given->name);
    own->data = copy_bytes(b, given->data, (size_t)given->bytes);
    return own;
}

/* Lends a copy of the piece. *out_copy stays the piece itself if there is no memory. */
static region *lend_piece(const strata_plugin_piece *given, const char *what, const strata_plugin_piece **out_copy) {
    size_t bytes = TABLE_BYTES;
    for (int i = 0; i < given->n_values; i++)
        if (given->values[i]->data) bytes += (size_t)given->values[i]->bytes + ALIGNMENT;
    region *r = open_region(bytes, what);
    if (!r) return NULL;
    bump b = {.at = r->data, .end = r->data + bytes};
    strata_plugin_piece *own = copy_bytes(&b, given, sizeof *given);
    const strata_plugin_node **nodes = take(&b, (size_t)given->n_nodes * sizeof(*nodes));
    const strata_plugin_value **values = take(&b, (size_t)given->n_values * sizeof(*values));
    for (int i = 0; i < given->n_nodes && nodes; i++) nodes[i] = copy_node(&b, given->nodes[i]);
    for (int i = 0; i < given->n_values && values; i++) values[i] = copy_value(&b, given->values[i]);
    if (!b.full) {
        own->nodes = nodes;
        own->values = values;
        *out_copy = own;
    }
    make_read_only(r);
    return r;
}

/* ---- devices and programs ---- */

/* A copy of the table "transfers" that has not been waited for. target: Strata's memory of a download. */
typedef struct copy {
    uint64_t ticket;
    region *lent;
    void *target;
} copy;

typedef struct watched {
    strata_plugin_device *device;
    strata_plugin_device_calls calls;
    strata_plugin_transfers transfers;
    copy copies[MOST_COPIES];
    int n_copies;
    /* Counts, so that a probe is made at each PROBE_EVERY-th call. */
    int n_runs, n_questions;
} watched;

typedef struct program {
    struct program *next;
    strata_plugin_program *program;
    watched *of;
    /* [2 slot + 1 for outputs] */
    const void **arenas;
    int64_t bytes[2];
    int n_slots;
} program;

static watched all[MOST_DEVICES];
static program *programs;

static watched *find(const strata_plugin_device *device) {
    for (int i = 0; i < MOST_DEVICES; i++)
        if (all[i].device == device) return &all[i];
    abort(); /* only devices that are watched have these functions */
}

static program *find_program(const strata_plugin_program *wanted) {
    program *p = programs;
    while (p && p->program != wanted) p = p->next;
    return p;
}

static strata_plugin_status broke(strata_plugin_error *error, const char *format, ...) STRATA_PRINTF(2, 3);
static strata_plugin_status broke(strata_plugin_error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return STRATA_PLUGIN_INTERNAL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- copies ---- */

static strata_plugin_status download_to(watched *w, strata_plugin_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                        strata_plugin_error *error) {
    region *r = lend_target((size_t)bytes, "the target of download");
    if (!r) return w->calls.download(w->device, buffer, offset, target, bytes, error);
    strata_plugin_status status = w->calls.download(w->device, buffer, offset, r->data, bytes, error);
    if (!status && !is_intact(r))
        status = broke(error, "a download of %lld bytes wrote outside of its target", (long long)bytes);
    if (!status) memcpy(target, r->data, (size_t)bytes);
    end_region(r);
    return status;
}

static strata_plugin_status watched_download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                             void *target, int64_t bytes, strata_plugin_error *error) {
    return download_to(find(device), buffer, offset, target, bytes, error);
}

static strata_plugin_status watched_upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                           const void *source, int64_t bytes, strata_plugin_error *error) {
    watched *w = find(device);
    region *r = lend_copy(source, (size_t)bytes, "the source of upload");
    strata_plugin_status status = w->calls.upload(device, buffer, offset, r ? r->data : source, bytes, error);
    end_region(r);
    char *back = status ? NULL : malloc((size_t)bytes);
    if (!back) return status;
    status = download_to(w, buffer, offset, back, bytes, error);
    if (!status && memcmp(back, source, (size_t)bytes) != 0) {
        const char *wanted = source;
        int64_t i = 0;
        while (back[i] == wanted[i]) i++;
        status =
            broke(error,
                  "byte %lld of an upload of %lld bytes at %lld reads back as %d instead of %d; upload must be done when it "
                  "returns, and download must read what is there",
                  (long long)i, (long long)bytes, (long long)offset, back[i] & 0xff, wanted[i] & 0xff);
    }
    free(back);
    return status;
}

/* Ends the copies up to the ticket. If the wait for them failed, their targets stay as they are. */
static strata_plugin_status end_copies(watched *w, uint64_t ticket, bool failed, strata_plugin_error *error) {
    strata_plugin_status status = STRATA_PLUGIN_OK;
    int n = 0;
    for (int i = 0; i < w->n_copies; i++) {
        copy *c = &w->copies[i];
        if (c->ticket > ticket && !failed) {
            w->copies[n++] = *c;
            continue;
        }
        if (c->target && !failed && !is_intact(c->lent))
            status =
                broke(error, "a download of %zu bytes of the table \"transfers\" wrote outside of its target", c->lent->bytes);
        if (c->target && !failed) memcpy(c->target, c->lent->data, c->lent->bytes);
        end_region(c->lent);
    }
    w->n_copies = n;
    return status;
}

static strata_plugin_status begin_upload(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                         const void *source, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    watched *w = find(device);
    region *r = w->n_copies < MOST_COPIES
                    ? lend_copy(source, (size_t)bytes, "the source of an upload of the table \"transfers\"")
                    : NULL;
    const strata_plugin_status status =
        w->transfers.upload(device, buffer, offset, r ? r->data : source, bytes, out_ticket, error);
    if (!status && r)
        w->copies[w->n_copies++] = (copy){.ticket = *out_ticket, .lent = r};
    else
        end_region(r);
    return status;
}

static strata_plugin_status begin_download(strata_plugin_device *device, strata_plugin_buffer *buffer, int64_t offset,
                                           void *target, int64_t bytes, uint64_t *out_ticket, strata_plugin_error *error) {
    watched *w = find(device);
    region *r =
        w->n_copies < MOST_COPIES ? lend_target((size_t)bytes, "the target of a download of the table \"transfers\"") : NULL;
    const strata_plugin_status status =
        w->transfers.download(device, buffer, offset, r ? r->data : target, bytes, out_ticket, error);
    if (!status && r)
        w->copies[w->n_copies++] = (copy){.ticket = *out_ticket, .lent = r, .target = target};
    else
        end_region(r);
    return status;
}

/* ---- programs ---- */

static strata_plugin_support watched_supports(strata_plugin_device *device, const strata_plugin_piece *piece, int32_t node,
                                              const char **out_reason) {
    watched *w = find(device);
    region *r = lend_piece(piece, "the piece of supports", &piece);
    strata_plugin_support answer = w->calls.supports(device, piece, node, out_reason);
    const char *reason = NULL;
    if (++w->n_questions % PROBE_EVERY == 0 && w->calls.supports(device, piece, node, &reason) != answer) {
        *out_reason = "its supports answered the same question in two ways";
        answer = STRATA_PLUGIN_NO;
    }
    end_region(r);
    return answer;
}

static const void *arena_of(const program *p, int i) {
    return i % 2 ? p->of->calls.program_output(p->program, i / 2) : p->of->calls.program_input(p->program, i / 2);
}

/* Finds the program's arenas, and whether two of them overlap. */
static strata_plugin_status take_arenas(program *p, strata_plugin_error *error) {
    for (int i = 0; i < 2 * p->n_slots; i++) {
        if (p->bytes[i % 2]) p->arenas[i] = arena_of(p, i);
        for (int k = 0; k < i && p->arenas[i]; k++) {
            const uintptr_t a = (uintptr_t)p->arenas[i], b = (uintptr_t)p->arenas[k];
            if (b && a < b + (uint64_t)p->bytes[k % 2] && b < a + (uint64_t)p->bytes[i % 2])
                return broke(error, "the program's %s arena of slot %d and its %s arena of slot %d overlap",
                             i % 2 ? "output" : "input", i / 2, k % 2 ? "output" : "input", k / 2);
        }
    }
    return STRATA_PLUGIN_OK;
}

static strata_plugin_status watched_compile(strata_plugin_device *device, const strata_plugin_piece *piece,
                                            strata_plugin_program **out_program, strata_plugin_error *error) {
    watched *w = find(device);
    program *own = calloc(1, sizeof *own);
    if (own) own->arenas = calloc(2 * (size_t)piece->n_slots + 1, sizeof(*own->arenas));
    if (!own || !own->arenas) abort();
    region *r = lend_piece(piece, "the piece of compile", &piece);
    own->of = w;
    own->n_slots = piece->n_slots;
    own->bytes[0] = piece->input_bytes;
    own->bytes[1] = piece->output_bytes;
    strata_plugin_status status = w->calls.compile(device, piece, out_program, error);
    end_region(r);
    own->program = *out_program;
    if (!status && own->program && find_program(own->program))
        status = broke(error, "compile returned a program that it has returned before and that was not destroyed");
    else if (!status && own->program) {
        status = take_arenas(own, error);
        if (status) w->calls.program_destroy(own->program);
    }
    if (status || !own->program) {
        free(own->arenas);
        free(own);
        return status;
    }
    own->next = programs;
    programs = own;
    return STRATA_PLUGIN_OK;
}

static void watched_program_destroy(strata_plugin_program *wanted) {
    program **at = &programs;
    while ((*at)->program != wanted) at = &(*at)->next;
    program *p = *at;
    *at = p->next;
    p->of->calls.program_destroy(wanted);
    free(p->arenas);
    free(p);
}

static strata_plugin_status watched_run(strata_plugin_program *wanted, int32_t first_slot, int32_t n, uint64_t *out_ticket,
                                        strata_plugin_error *error) {
    const program *p = find_program(wanted);
    watched *w = p->of;
    for (int i = 0; i < 2 * p->n_slots; i++)
        if (p->arenas[i] && arena_of(p, i) != p->arenas[i])
            return broke(error, "program_%s of slot %d has moved; its address must stay the same", i % 2 ? "output" : "input",
                         i / 2);
    const strata_plugin_status status = w->calls.run(wanted, first_slot, n, out_ticket, error);
    if (status || ++w->n_runs % PROBE_EVERY) return status;
    strata_plugin_error message = {.size = sizeof message};
    const double begin = now();
    const strata_plugin_status answer = w->calls.wait(w->device, *out_ticket, 0, &message);
    if (answer && answer != STRATA_PLUGIN_TIMEOUT) {
        *error = message;
        return answer;
    }
    if (answer && now() - begin > 1) return broke(error, "a wait with a timeout of 0 took %.2g s", now() - begin);
    return STRATA_PLUGIN_OK;
}

static strata_plugin_status watched_wait(strata_plugin_device *device, uint64_t ticket, int64_t timeout_ns,
                                         strata_plugin_error *error) {
    watched *w = find(device);
    const strata_plugin_status status = w->calls.wait(device, ticket, timeout_ns, error);
    const strata_plugin_status copied = end_copies(w, ticket, status && timeout_ns > 0, error);
    return status ? status : copied;
}

static void watched_close(strata_plugin_device *device) {
    watched *w = find(device);
    w->calls.close(device);
    *w = (watched){0};
}

void witness_watch(strata_device *device) {
    plugin_device *bridge = (plugin_device *)device;
    watched *w = find(NULL); /* a free row */
    *w = (watched){.device = bridge->device, .calls = bridge->calls, .transfers = bridge->transfers};
    bridge->calls.close = watched_close;
    bridge->calls.upload = watched_upload;
    bridge->calls.download = watched_download;
    bridge->calls.supports = watched_supports;
    bridge->calls.compile = watched_compile;
    bridge->calls.program_destroy = watched_program_destroy;
    bridge->calls.run = watched_run;
    bridge->calls.wait = watched_wait;
    if (bridge->transfers.upload) bridge->transfers.upload = begin_upload;
    if (bridge->transfers.download) bridge->transfers.download = begin_download;
}
