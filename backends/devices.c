/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds and opens devices of all backends in backends/registry.c. */
#include <limits.h>
#include <stdio.h>

#include "backends/fallback/fallback.h"
#include "backends/host/host.h"
#include "backends/registry.h"
#include "core/base/ascii.h"
#include "core/base/option.h"

/* ---- threads and forks ---- */

/* Drivers are state of the process. Not all of them can be started by two threads at once, so one thread at a time lists or
 * opens devices. Most of them do not work in a child of fork after the parent has started them. */
static strata_lock opening;
static pthread_once_t opening_once = PTHREAD_ONCE_INIT;

enum { MOST_BACKENDS = 16 };
/* For each row of strata_backends: 0 while its driver was not started, then 1 + strata_forks() of the process that did. */
static unsigned started[MOST_BACKENDS];

/* For each row of strata_backends: the seconds after which listing its devices was given up; 0: it was not. It is not tried
 * again, since a thread is still in the driver. */
static double gave_up[MOST_BACKENDS];

static const char FORKED[] =
    "its driver was started before this process was forked and does not work in a child of fork; start processes by spawn "
    "(Python: multiprocessing.get_context(\"spawn\"))";

static void init_opening(void) {
    strata_lock_init(&opening);
}

static strata_status enter(strata_error *err) {
    (void)pthread_once(&opening_once, init_opening);
    if (!strata_lock_is_own(&opening) && !strata_lock_adopt(&opening, NULL, NULL))
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "another thread was opening devices when this process was forked; start processes by spawn (Python: "
                           "multiprocessing.get_context(\"spawn\"))");
    strata_lock_take(&opening);
    return STRATA_OK;
}

static void leave(void) {
    strata_lock_release(&opening);
}

static bool is_forked(int backend) {
    return !strata_backends[backend]->is_built_in && started[backend] && started[backend] != 1 + strata_forks();
}

/* ---- listing ---- */

/* Whether `which` is the backend's name, or begins with the name and a colon. */
static bool begins_with_name(const char *which, const char *name) {
    const size_t n = strlen(name);
    return !strncmp(which, name, n) && (which[n] == ':' || !which[n]);
}

/* Whether `which` names this backend. NULL names all backends except those on request. */
static bool names_backend(const char *which, const strata_backend *backend) {
    if (!which) return !backend->on_request;
    if (!backend->own_names) return begins_with_name(which, backend->name);
    for (const strata_backend *const *other = strata_backends; *other; other++)
        if (!(*other)->own_names && begins_with_name(which, (*other)->name)) return false;
    return true;
}

typedef struct list_call {
    const strata_backend *backend;
    strata_device_list list;
    strata_status status;
    strata_error err;
} list_call;

static void run_list(void *user) {
    list_call *call = user;
    call->status = call->backend->list(&call->list, &call->err);
}

/* Appends the devices of row `index` of strata_backends. If a driver hangs, one row has the reason. */
static strata_status list_backend(int index, strata_device_list *list, strata_error *err) {
    const strata_backend *backend = strata_backends[index];
    if (backend->is_built_in || backend->limits_list) return backend->list(list, err);
    list_call listing = {.backend = backend};
    const strata_driver_call call = {
        .what = {backend->name, NULL, STRATA_DRIVER_LIST}, .run = run_list, .call = &listing, .bytes = sizeof listing};
    const double limit = strata_driver_seconds();
    if (gave_up[index] > 0)
        (void)strata_driver_fail_hung(call.what, gave_up[index], &list->hung);
    else if (strata_driver_call_within(&call, limit, NULL, NULL, &list->hung))
        gave_up[index] = limit;
    if (gave_up[index] > 0) return strata_device_list_add_hung(list, backend->name, gave_up[index], err);
    STRATA_FREED strata_device_info *rows = listing.list.rows;
    if (listing.status) return strata_fail(err, listing.status, "%s", listing.err.message);
    for (int i = 0; i < listing.list.n; i++) STRATA_TRY(strata_device_list_add(list, &rows[i], err));
    return STRATA_OK;
}

/* Lists the devices of the backends that `which` names. The drivers of other backends are not started. *out_hung: why the
 * devices of a driver are missing; status OK: none are. */
static strata_status list_devices(const char *which, strata_device_info **out_devices, int *out_n, strata_error *out_hung,
                                  strata_error *err) {
    strata_device_list list = {0};
    for (int i = 0; strata_backends[i]; i++) {
        const strata_backend *backend = strata_backends[i];
        if (!names_backend(which, backend)) continue;
        strata_device_info row = {0};
        snprintf(row.id, sizeof row.id, "%s", backend->name);
        snprintf(row.backend, sizeof row.backend, "%s", backend->name);
        snprintf(row.skipped, sizeof row.skipped, "%s", FORKED);
        const bool forked = is_forked(i);
        if (!forked) started[i] = 1 + strata_forks();
        strata_status status = forked ? strata_device_list_add(&list, &row, err) : list_backend(i, &list, err);
        if (status) {
            free(list.rows);
            return status;
        }
    }
    *out_devices = list.rows;
    *out_n = list.n;
    *out_hung = list.hung;
    return STRATA_OK;
}

static const strata_backend *backend_of(const strata_device_info *info);

typedef struct open_call {
    const strata_backend *backend;
    strata_device_info row;
    strata_device_options opts;
    char cache_dir[PATH_MAX];
    strata_device *device;
    strata_status status;
    strata_error err;
} open_call;

static void run_open(void *user) {
    open_call *call = user;
    if (call->opts.cache_dir) call->opts.cache_dir = call->cache_dir; /* the caller's own text may be gone */
    call->status = call->backend->open(&call->row, &call->opts, &call->device, &call->err);
}

/* Opens the device by its driver, with limits for this call and all later ones. */
static strata_status open_driver(const strata_backend *backend, const strata_device_info *row,
                                 const strata_device_options *opts, strata_device **out_device, strata_error *err) {
    open_call opening_row = {.backend = backend, .row = *row, .opts = *opts};
    const strata_driver_call call = {
        .what = {row->id, row->driver, STRATA_DRIVER_OPEN}, .run = run_open, .call = &opening_row, .bytes = sizeof opening_row};
    const size_t n = opts->cache_dir ? strlen(opts->cache_dir) : 0;
    if (n >= sizeof opening_row.cache_dir)
        return strata_fail(err, STRATA_INVALID, "device: cache_dir has %zu bytes; a path has at most %d", n, PATH_MAX - 1);
    if (n) memcpy(opening_row.cache_dir, opts->cache_dir, n);
    STRATA_TRY(strata_driver_call_within(&call, strata_driver_seconds(), opts->is_interrupted, opts->user, err));
    if (opening_row.status) return strata_fail(err, opening_row.status, "%s", opening_row.err.message);
    *out_device = opening_row.device;
    (*out_device)->has_driver = true;
    if (!((*out_device)->stall_seconds > 0)) (*out_device)->stall_seconds = opts->stall_seconds;
    strata_driver_watch_start(*out_device);
    return STRATA_OK;
}

static strata_status open_row(const strata_device_info *row, const strata_device_options *opts, strata_device **out_device,
                              strata_error *err) {
    const strata_backend *backend = backend_of(row);
    return backend->is_built_in ? backend->open(row, opts, out_device, err) : open_driver(backend, row, opts, out_device, err);
}

/* Writes the reason why the device does not open into its row, without the device's id at the begin of the message. */
static void write_reason(strata_device_info *row, const strata_error *why) {
    const size_t n = strlen(row->id);
    const bool named = !strncmp(why->message, row->id, n) && why->message[n] == ':';
    snprintf(row->skipped, sizeof row->skipped, "it does not open: %.200s", why->message + (named ? n + 2 : 0));
}

/* Opens the device for a moment and writes the reason into its row if this fails. Sub-devices are not tried: they
 * behave like their device. */
static void try_to_open(strata_device_info *row) {
    static const strata_device_options options = {.no_tune = true, .no_cache = true};
    strata_error why = {0};
    strata_device *device = NULL;
    if (row->skipped[0] || strchr(row->id, '.') || !backend_of(row)->is_tried) return;
    if (open_row(row, &options, &device, &why))
        write_reason(row, &why);
    else
        strata_device_close(device);
}

strata_status strata_devices_list(strata_device_info **out_devices, int *out_n, strata_error *err) {
    strata_error hung;
    STRATA_TRY(enter(err));
    const strata_status status = list_devices(NULL, out_devices, out_n, &hung, err);
    for (int i = 0; i < *out_n && !status; i++) try_to_open(&(*out_devices)[i]);
    leave();
    return status;
}

void strata_devices_free(strata_device_info *devices) {
    free(devices);
}

/* Whether `text` contains `part`, ignoring case. */
static bool contains(const char *text, const char *part) {
    size_t n = strlen(part);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && text[i] && strata_ascii_lower(text[i]) == strata_ascii_lower(part[i])) i++;
        if (i == n) return true;
    }
    return n == 0;
}

/* Whether `which` names this device: by the backend and a part of the name ("opencl:intel"), or by a part of the name
 * alone. */
static bool matches_name(const strata_device_info *info, const char *which) {
    size_t backend = strlen(info->backend);
    if (!strncmp(which, info->backend, backend) && which[backend] == ':') {
        which += backend + 1;
        /* A number that is not the id of a device must not match a part of a name like "2.5 GHz". */
        if (*which && !which[strspn(which, "0123456789.")]) return false;
    }
    return contains(info->name, which) || contains(info->vendor, which) || contains(info->driver, which);
}

/* Whether device a is preferred to b: a device before a sub-device (whose id has a dot), then the higher class, then
 * more memory. */
static bool better(const strata_device_info *a, const strata_device_info *b) {
    bool a_part = strchr(a->id, '.') != NULL, b_part = strchr(b->id, '.') != NULL;
    if (a_part != b_part) return b_part;
    if (a->device_class != b->device_class) return a->device_class > b->device_class;
    return a->memory_bytes > b->memory_bytes;
}

/* The index of the row that `which` names: the row with this id, or else the best usable device with this name. NULL:
 * the best usable device. -1: there is none. */
static int choose(const strata_device_info *rows, int n, const char *which) {
    for (int i = 0; which && i < n; i++)
        if (!strcmp(rows[i].id, which)) return i;
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (rows[i].skipped[0] || (which && !matches_name(&rows[i], which))) continue;
        if (best < 0 || better(&rows[i], &rows[best])) best = i;
    }
    return best;
}

const strata_device_info *strata_device_best(const strata_device_info *rows, int n) {
    const int best = choose(rows, n, NULL);
    return best < 0 ? NULL : &rows[best];
}

/* Fails with a list of all devices, and with the reasons why the devices of the backend in `which` cannot be used. */
static strata_status no_such_device(const strata_device_info *rows, int n, const char *which, strata_error *err) {
    char there[640] = "", why[400] = "";
    size_t used = 0, used_why = 0;
    const size_t backend = strcspn(which, ":");
    for (int i = 0; i < n && used < sizeof there - 1 && used_why < sizeof why - 1; i++) {
        int wrote;
        if (!rows[i].skipped[0]) {
            wrote = snprintf(there + used, sizeof there - used, "%s%s (%s)", used ? ", " : "", rows[i].id, rows[i].name);
            used += wrote > 0 ? (size_t)wrote : 0;
        } else if (!strncmp(rows[i].id, which, backend)) {
            const bool named = strchr(rows[i].id, ':') != NULL; /* otherwise the reason begins with the backend's name */
            wrote = snprintf(why + used_why, sizeof why - used_why, "; %s%s%s", named ? rows[i].id : "", named ? ": " : "",
                             rows[i].skipped);
            used_why += wrote > 0 ? (size_t)wrote : 0;
        }
    }
    return strata_fail(err, STRATA_UNAVAILABLE, "device: there is no \"%s\"; there are: %s%s", which, there, why);
}

static const strata_backend *backend_of(const strata_device_info *info) {
    for (const strata_backend *const *backend = strata_backends; *backend; backend++)
        if (!(*backend)->own_names && !strcmp((*backend)->name, info->backend)) return *backend;
    for (const strata_backend *const *backend = strata_backends; *backend; backend++)
        if ((*backend)->own_names) return *backend;
    return NULL;
}

static strata_status add_fallback(strata_device **device, strata_error *err) {
    strata_device *inner = *device;
    const strata_status status = strata_fallback_create(inner, device, err);
    if (status) strata_device_close(inner);
    if (status) return status;
    (*device)->on_print = inner->on_print;
    (*device)->on_warning = inner->on_warning;
    (*device)->on_compile_user = inner->on_compile_user;
    return STRATA_OK;
}

static strata_status check_options(const strata_device_options *opts, strata_error *err) {
    if (opts && opts->stall_seconds == 0 && strata_number_is_given(opts->stall_seconds))
        return strata_fail(err, STRATA_INVALID, "device: stall_seconds is 0; leave it out for its default");
    const double seconds[] = {opts ? opts->compile_notice_seconds : 0, opts ? opts->compile_seconds : 0};
    for (int i = 0; i < 2; i++)
        if (strata_number_is_given(seconds[i]) && !(seconds[i] >= 0.01 && seconds[i] <= 1e9))
            return strata_fail(err, STRATA_INVALID,
                               "device: %s is %g; it must be 0.01..1e9 seconds; leave it out for its default",
                               i ? "compile_seconds" : "compile_notice_seconds", strata_number_shown(seconds[i]));
    return STRATA_OK;
}

/* Without a name a child of fork gets no worse device than its parent without a word. */
static bool misses_best(const strata_device_info *rows, int n, const char *which) {
    bool misses = false;
    for (int i = 0; i < n && !which; i++) misses |= !strcmp(rows[i].skipped, FORKED);
    return misses;
}

/* Gives the open device its lock and, if its programs are compared, the host that computes them again. */
static strata_status complete(strata_device **device, bool compares, strata_error *err) {
    strata_device *own = *device;
    strata_status status = STRATA_NEW(own->lock, 1, err, "device: no host memory");
    if (!status) strata_lock_init(own->lock);
    if (!status && compares) status = strata_host_open(&own->referee, err);
    if (!status) return STRATA_OK;
    strata_device_close(own);
    *device = NULL;
    return status;
}

static strata_status open_locked(const char *which, const strata_device_options *opts, strata_device **out_device,
                                 strata_error *err) {
    static const strata_device_options defaults = {0};
    STRATA_FREED strata_device_info *rows = NULL;
    strata_error hung;
    int n = 0;
    STRATA_TRY(list_devices(which, &rows, &n, &hung, err));
    int index = choose(rows, n, which);
    if (index < 0 && !hung.status) { /* `which` may be a name instead of an id; if not, the error lists all devices */
        free(strata_released(&rows));
        STRATA_TRY(list_devices(NULL, &rows, &n, &hung, err));
        index = choose(rows, n, which);
    }
    strata_status status;
    if (misses_best(rows, n, which))
        status = strata_fail(err, STRATA_UNAVAILABLE, "device: the best device cannot be chosen: %s", FORKED);
    else if (index < 0 && hung.status)
        status = strata_fail(err, hung.status, "%s", hung.message);
    else if (index < 0)
        status = no_such_device(rows, n, which ? which : "", err);
    else if (rows[index].skipped[0])
        status = strata_fail(err, STRATA_UNAVAILABLE, "device %s cannot be used: %s", rows[index].id, rows[index].skipped);
    else
        status = open_row(&rows[index], opts ? opts : &defaults, out_device, err);
    /* If the user named no device and the best one does not open, the next best one is tried. */
    while (status && status != STRATA_INVALID && !which && !misses_best(rows, n, which) && backend_of(&rows[index])->is_tried) {
        strata_error why = {0};
        if (err) why = *err;
        write_reason(&rows[index], &why);
        index = choose(rows, n, which);
        status = open_row(&rows[index], opts ? opts : &defaults, out_device, err);
    }
    if (!status && opts) {
        (*out_device)->on_compile = opts->on_compile;
        (*out_device)->on_compile_user = opts->user;
        (*out_device)->on_warning = opts->on_warning;
        (*out_device)->on_print = opts->on_print;
        (*out_device)->compile_notice_seconds = opts->compile_notice_seconds;
        (*out_device)->compile_seconds = opts->compile_seconds;
        (*out_device)->is_interrupted = opts->is_interrupted;
    }
    /* If the user named no device, a driver that hangs may have had a better one. */
    if (!status && !which && hung.status) strata_device_warn(*out_device, "%s", hung.message);
    if (!status && opts && opts->fast && !(*out_device)->has_fast)
        strata_device_warn(*out_device, "%s: fast changes nothing, as this device has neither matrix units nor CLBlast",
                           (*out_device)->info.id);
    const bool compares = !status && (!opts || !opts->trust) && backend_of(&(*out_device)->info)->is_compared;
    if (!status && opts && opts->fallback_to_host) status = add_fallback(out_device, err);
    return status ? status : complete(out_device, compares, err);
}

strata_status strata_device_open(const char *which, const strata_device_options *opts, strata_device **out_device,
                                 strata_error *err) {
    STRATA_TRY(check_options(opts, err));
    STRATA_TRY(enter(err));
    const strata_status status = open_locked(which, opts, out_device, err);
    leave();
    return status;
}
