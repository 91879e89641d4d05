/* SPDX-License-Identifier: Apache-2.0
 *
 * Observes the calls that a thread makes itself: a thread of each device samples the mark of the call that is being made. A
 * sample costs the calling thread nothing, and no clock is read for a call. Also reports a driver that calls exit.
 *
 * Drivers are state of the process: they are loaded once, start threads, and may call exit. Therefore the options below and
 * the function that is called at exit are state of the process, too. */
#include "core/run/driver.h"

#include <pthread.h>
#include <signal.h>

#include "core/base/clock.h"
#include "core/base/locale.h"
#include "core/base/option.h"
#include "core/base/trace.h"
#include "core/run/device.h"

enum { WORK_BITS = 7, REPORTED = 1 << WORK_BITS, NUMBER_SHIFT = WORK_BITS + 1 };
static const double DEFAULT_SECONDS = 60, DEFAULT_STALL_SECONDS = 600;
/* Samples are taken eight times within a limit, and at these intervals in seconds. */
static const double SHORTEST_NAP = 0.01, LONGEST_NAP = 0.25;

typedef struct strata_driver_watch {
    pthread_t thread;
    /* Taken while on_failure runs, so that a call that returns meanwhile waits. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ends;
} strata_driver_watch;

/* ---- options of the process ---- */

static pthread_mutex_t options_mutex = PTHREAD_MUTEX_INITIALIZER;
static strata_driver_options options; /* protected by options_mutex */
static atomic_bool some_call_hangs;

static strata_driver_options get_options(void) {
    pthread_mutex_lock(&options_mutex);
    const strata_driver_options copy = options;
    pthread_mutex_unlock(&options_mutex);
    return copy;
}

strata_status strata_drivers_configure(const strata_driver_options *opts, strata_error *err) {
    const strata_driver_options wanted = opts ? *opts : (strata_driver_options){0};
    if (strata_number_is_given(wanted.seconds) && !(wanted.seconds >= 0.01 && wanted.seconds <= 1e9))
        return strata_fail(err, STRATA_INVALID, "drivers: seconds is %g; it must be 0.01..1e9, or left out for its default, %g",
                           strata_number_shown(wanted.seconds), DEFAULT_SECONDS);
    pthread_mutex_lock(&options_mutex);
    options = wanted;
    pthread_mutex_unlock(&options_mutex);
    return STRATA_OK;
}

double strata_driver_seconds(void) {
    const double seconds = get_options().seconds;
    return seconds > 0 ? seconds : DEFAULT_SECONDS;
}

bool strata_drivers_hang(void) {
    return atomic_load(&some_call_hangs);
}

void strata_driver_hangs(void) {
    atomic_store(&some_call_hangs, true);
}

/* Calls on_failure. Returns false if there is none. */
static bool is_driver_failure(const strata_error *why) {
    const strata_driver_options now = get_options();
    if (now.on_failure) now.on_failure(why->status, why->message, now.user);
    return now.on_failure != NULL;
}

void strata_driver_report(const strata_device *device, const strata_error *why) {
    if (!is_driver_failure(why)) strata_device_warn(device, "%s", why->message);
}

/* ---- messages ---- */

/* What a call of each kind does, and the options that allow more time. */
static const struct {
    const char *does, *options;
} works[STRATA_DRIVER_WORKS] = {
#define DRIVER_OPTIONS "--driver-seconds, strata_driver_options.seconds"
#define STALL_OPTIONS  "--stall-seconds, strata_device_options.stall_seconds"
    [STRATA_DRIVER_START] = {"start", DRIVER_OPTIONS},
    [STRATA_DRIVER_LIST] = {"list its devices", DRIVER_OPTIONS},
    [STRATA_DRIVER_OPEN] = {"open the device", DRIVER_OPTIONS},
    [STRATA_DRIVER_CLOSE] = {"close the device", DRIVER_OPTIONS},
    [STRATA_DRIVER_COMPILE] = {"compile", "--compile-seconds, strata_device_options.compile_seconds"},
    [STRATA_DRIVER_SUBMIT] = {"submit a run", STALL_OPTIONS},
    [STRATA_DRIVER_WAIT] = {"wait for a run", STALL_OPTIONS},
    [STRATA_DRIVER_COPY] = {"copy memory", STALL_OPTIONS},
    [STRATA_DRIVER_ALLOCATE] = {"create a buffer", STALL_OPTIONS},
    [STRATA_DRIVER_FREE] = {"free a buffer or a program", STALL_OPTIONS},
    [STRATA_DRIVER_ASK] = {"say what it supports", STALL_OPTIONS},
};

/* "the driver (Acme 1.2)", or only "the driver" if its name is not known. */
typedef struct driver_text {
    char text[160];
} driver_text;

static driver_text text_of(const char *driver) {
    driver_text t;
    const bool named = driver && *driver;
    strata_format(t.text, sizeof t.text, "the driver%s%.128s%s", named ? " (" : "", named ? driver : "", named ? ")" : "");
    return t;
}

strata_status strata_driver_fail_hung(strata_driver_inside call, double seconds, strata_error *err) {
    return strata_fail(err, STRATA_TIMEOUT,
                       "%s: %s hangs: its call to %s has not returned for %.3g s. The call cannot be ended, so the device is "
                       "given up; try it again, try another device, or allow more time: %s",
                       call.subject, text_of(call.driver).text, works[call.work].does, seconds, works[call.work].options);
}

/* ---- the calls of this thread ---- */

static _Thread_local strata_driver_inside inside;

/* A driver may call exit, although it must not. The process then ends with the driver's exit code, which may be 0. */
static void report_exit(void) {
    strata_error why = {0};
    const strata_driver_inside call = inside;
    if (!call.subject) return;
    inside = (strata_driver_inside){0};
    strata_fail(&why, STRATA_DEVICE_LOST,
                "%s: %s ended the process: it called exit in its call to %s, which a driver must not do", call.subject,
                text_of(call.driver).text, works[call.work].does);
    is_driver_failure(&why);
}

static void register_exit(void) {
    (void)atexit(report_exit);
}

static pthread_once_t exit_once = PTHREAD_ONCE_INIT;

strata_driver_inside strata_driver_enter_thread(strata_driver_inside now) {
    (void)pthread_once(&exit_once, register_exit);
    const strata_driver_inside before = inside;
    inside = now;
    return before;
}

static unsigned next_mark(strata_driver_mark *mark, unsigned work) {
    return work ? ++mark->n << NUMBER_SHIFT | work : 0;
}

strata_driver_scope strata_driver_begin(strata_device *device, strata_driver_work work, int runs) {
    strata_driver_mark *mark = &device->driver;
    const strata_driver_scope scope = {device, atomic_load_explicit(&mark->now, memory_order_relaxed), inside};
    inside = (strata_driver_inside){device->info.id, device->info.driver, work};
    atomic_store_explicit(&mark->runs, runs, memory_order_relaxed);
    atomic_store_explicit(&mark->now, next_mark(mark, work), memory_order_release);
    return scope;
}

void strata_driver_end(strata_driver_scope *scope) {
    strata_driver_mark *mark = &scope->device->driver;
    inside = scope->outer;
    const unsigned was = atomic_exchange(&mark->now, next_mark(mark, scope->outer_mark & (REPORTED - 1)));
    if (!(was & REPORTED)) return;
    /* on_failure may be running now, and may end the process: until it has returned, this thread changes nothing */
    pthread_mutex_lock(&mark->watch->mutex);
    pthread_mutex_unlock(&mark->watch->mutex);
}

/* ---- the thread that observes ---- */

static double stall_of(const strata_device *device) {
    return device->stall_seconds > 0 ? device->stall_seconds : DEFAULT_STALL_SECONDS;
}

/* Some drivers end a wait at the limit by themselves, so a wait may take a little longer. */
static double limit_of(const strata_device *device, strata_driver_work work) {
    if (work == STRATA_DRIVER_COMPILE) return strata_driver_compile_seconds(device, 0);
    const int runs = atomic_load_explicit(&device->driver.runs, memory_order_relaxed);
    const double seconds = stall_of(device) * (runs > 1 ? runs : 1);
    return work == STRATA_DRIVER_WAIT ? 1.1 * seconds + 0.5 : seconds;
}

static void nap(strata_driver_watch *watch, double seconds) {
    const struct timespec until = strata_clock_after(seconds);
    pthread_cond_timedwait(&watch->changed, &watch->mutex, &until);
}

/* Writes the trace until now, since the process will probably end. */
static void save_trace(strata_trace *trace) {
    char *text = NULL;
    size_t bytes = 0;
    if (!trace || strata_trace_events(trace, &text, &bytes, NULL)) return;
    (void)!strata_trace_write(trace, (const char *const *)&text, 1, NULL);
    free(text);
}

static void report_hung(strata_device *device, strata_driver_work work, double seconds) {
    strata_error why = {0};
    strata_driver_hangs();
    save_trace(device->trace);
    (void)strata_driver_fail_hung((strata_driver_inside){device->info.id, device->info.driver, work}, seconds, &why);
    strata_driver_report(device, &why);
}

/* The time is the sum of naps, so that a process that is stopped (SIGSTOP) or suspended does not count as a driver that
 * hangs. */
static void *observe(void *data) {
    strata_device *device = data;
    strata_driver_watch *watch = device->driver.watch;
    const double eighth = stall_of(device) / 8;
    const double seconds = eighth < SHORTEST_NAP ? SHORTEST_NAP : eighth > LONGEST_NAP ? LONGEST_NAP : eighth;
    unsigned seen = 0;
    double waited = 0;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->ends) {
        nap(watch, seconds);
        unsigned now = atomic_load(&device->driver.now);
        const strata_driver_work work = (strata_driver_work)(now & (REPORTED - 1));
        waited = now == seen ? waited + seconds : 0;
        seen = now;
        if (watch->ends || !work || now & REPORTED || waited <= limit_of(device, work)) continue;
        if (atomic_compare_exchange_strong(&device->driver.now, &now, now | REPORTED))
            report_hung(device, work, limit_of(device, work));
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

static void destroy_watch(strata_device *device, strata_driver_watch *watch) {
    device->driver.watch = NULL;
    pthread_cond_destroy(&watch->changed);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

void strata_driver_watch_start(strata_device *device) {
    strata_driver_watch *watch = calloc(1, sizeof *watch);
    sigset_t all, before;
    if (!watch) return;
    strata_clock_cond_init(&watch->changed);
    pthread_mutex_init(&watch->mutex, NULL);
    device->driver.watch = watch;
    (void)pthread_once(&exit_once, register_exit);
    sigfillset(&all); /* the program's own threads handle signals */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int failed = pthread_create(&watch->thread, NULL, observe, device);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) destroy_watch(device, watch);
}

void strata_driver_watch_stop(strata_device *device) {
    strata_driver_watch *watch = device->driver.watch;
    if (!watch) return;
    pthread_mutex_lock(&watch->mutex);
    watch->ends = true;
    pthread_cond_signal(&watch->changed);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    destroy_watch(device, watch);
}
