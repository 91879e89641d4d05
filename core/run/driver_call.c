/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of drivers that a thread of their own makes, with a limit. The thread that needs the result waits, and stops waiting if
 * it takes too long or is not needed any more. The memory of such an abandoned call then belongs to its thread. A compiler's
 * call may take minutes, and is reported if it is slow; after it was abandoned the device compiles nothing more. */
#include <math.h>
#include <pthread.h>
#include <signal.h>

#include "core/base/clock.h"
#include "core/run/device.h"

enum { STACK_BYTES = 8 << 20, MOST_TIMES = 5 };
static const double NOTICE_SECONDS = 20, COMPILE_SECONDS = 120, POLL_SECONDS = 0.05;

/* Shared by both threads; the one that ends last frees it. */
typedef struct made_call {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done, abandoned;
    strata_driver_inside what;
    void (*run)(void *call);
    void *call;
} made_call;

static void destroy(made_call *c) {
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c->call);
    free(c);
}

/* The texts of what->subject and what->driver are copied behind the call's own bytes, since they may be freed before it
 * ends. */
static made_call *create(const strata_driver_call *what) {
    made_call *c = calloc(1, sizeof *c);
    const char *driver = what->what.driver ? what->what.driver : "";
    const size_t subject_bytes = strlen(what->what.subject) + 1, driver_bytes = strlen(driver) + 1;
    char *call = malloc(what->bytes + subject_bytes + driver_bytes);
    if (!c || !call) {
        free(c);
        free(call);
        return NULL;
    }
    memcpy(call, what->call, what->bytes);
    memcpy(call + what->bytes, what->what.subject, subject_bytes);
    memcpy(call + what->bytes + subject_bytes, driver, driver_bytes);
    c->what = (strata_driver_inside){call + what->bytes, call + what->bytes + subject_bytes, what->what.work};
    c->run = what->run;
    c->call = call;
    strata_clock_cond_init(&c->changed);
    pthread_mutex_init(&c->mutex, NULL);
    return c;
}

/* LLVM, which drivers compile with, gives the thread another alternate stack for signals. AddressSanitizer frees its own one
 * when the thread ends, so that must be the thread's. */
static void *run(void *data) {
    made_call *c = data;
    stack_t signals;
    const bool known = !sigaltstack(NULL, &signals);
    (void)strata_driver_enter_thread(c->what);
    c->run(c->call);
    if (known) (void)sigaltstack(&signals, NULL);
    (void)strata_driver_enter_thread((strata_driver_inside){0});
    pthread_mutex_lock(&c->mutex);
    c->done = true;
    const bool abandoned = c->abandoned;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    if (abandoned) destroy(c);
    return NULL;
}

/* Starts the thread, without the signals that are sent to the process: the program's own threads handle these. The driver may
 * start threads in the call, which inherit this, and handle errors such as a division by zero by signals. */
static bool start(made_call *c, pthread_t *out_thread) {
    static const int errors[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    pthread_attr_t attributes;
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) sigdelset(&others, errors[i]);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES); /* compilers recurse deeply, and musl's default stacks have 128 KiB */
    pthread_sigmask(SIG_BLOCK, &others, &before);
    const bool started = !pthread_create(out_thread, &attributes, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

/* Waits for about 50 ms at most; returns whether the call has returned. */
static bool wait_briefly(made_call *c) {
    const struct timespec until = strata_clock_after(POLL_SECONDS);
    pthread_mutex_lock(&c->mutex);
    if (!c->done) pthread_cond_timedwait(&c->changed, &c->mutex, &until);
    const bool done = c->done;
    pthread_mutex_unlock(&c->mutex);
    return done;
}

/* Abandons the call. Returns false if the call has returned meanwhile. */
static bool abandon(made_call *c) {
    pthread_mutex_lock(&c->mutex);
    const bool abandoned = c->abandoned = !c->done;
    pthread_mutex_unlock(&c->mutex);
    return abandoned;
}

/* How long the caller waits, and what it does meanwhile. */
typedef struct patience {
    double most;
    bool (*is_interrupted)(void *user);
    void *user;
    bool interrupted;
    /* A compilation of `name` that takes longer than `notice` is reported, once. device NULL: it is none. */
    strata_device *device;
    const char *name;
    double notice;
} patience;

/* Called about 20 times a second. Returns whether the call is abandoned. */
static bool gives_up(patience *p, double seconds) {
    p->interrupted = p->is_interrupted && p->is_interrupted(p->user);
    if (p->device && seconds > p->notice) {
        strata_device_warn(p->device, "%s: compiling %s has taken %.3g s so far, which the driver (%s) does once",
                           p->device->info.id, p->name, seconds, p->device->info.driver);
        p->notice = INFINITY;
    }
    return p->interrupted || seconds > p->most;
}

/* Returns whether the call has returned; false: it was abandoned. A process that was stopped (SIGSTOP) or suspended wakes after
 * a longer time than 50 ms, which counts only once. */
static bool wait_until(made_call *c, patience *p) {
    double seconds = 0, before = strata_clock_seconds();
    while (!wait_briefly(c)) {
        const double now = strata_clock_seconds(), passed = now - before;
        seconds += passed < 1 ? passed : 1;
        before = now;
        if (gives_up(p, seconds) && abandon(c)) return false;
    }
    return true;
}

/* Oclgrind's search for uninitialised reads keeps state of the thread that opened its device, and crashes in others. */
static bool makes_threads(void) {
    const char *set = getenv("STRATA_DRIVER_THREADS");
    return !set || strcmp(set, "0") != 0;
}

/* Makes the call and waits for it. Returns whether it has returned. */
static bool run_call(const strata_driver_call *what, patience *p) {
    pthread_t thread;
    made_call *c = makes_threads() ? create(what) : NULL;
    if (!c || !start(c, &thread)) { /* without memory or a thread, make the call here, without limits */
        if (c) destroy(c);
        what->run(what->call);
        return true;
    }
    if (!wait_until(c, p)) {
        pthread_detach(thread);
        strata_driver_hangs();
        return false;
    }
    pthread_join(thread, NULL);
    memcpy(what->call, c->call, what->bytes);
    destroy(c);
    return true;
}

strata_status strata_driver_call_within(const strata_driver_call *what, double seconds, bool (*is_interrupted)(void *user),
                                        void *user, strata_error *err) {
    patience p = {.most = seconds, .is_interrupted = is_interrupted, .user = user};
    if (run_call(what, &p)) return STRATA_OK;
    if (p.interrupted)
        return strata_fail(err, STRATA_INTERRUPTED, "%s: interrupted while its driver was called", what->what.subject);
    return strata_driver_fail_hung(what->what, seconds, err);
}

/* ---- compilers ---- */

static strata_status fail_abandoned(const patience *p) {
    static const char what_then[] = "; the driver goes on with it until the process ends, and the device compiles nothing more";
    strata_device *device = p->device;
    if (p->interrupted)
        return strata_fail(&device->given_up, STRATA_INTERRUPTED, "%s: interrupted while the driver compiled %s%s",
                           device->info.id, p->name, what_then);
    return strata_fail(&device->given_up, STRATA_TIMEOUT,
                       "%s: the driver (%s) has not compiled %s within %.3g s%s. Another device may do better (strata devices "
                       "lists them; the host needs no compiler), or allow more time: --compile-seconds, "
                       "strata_device_options.compile_seconds",
                       device->info.id, device->info.driver, p->name, p->most, what_then);
}

/* A limit of the user for a whole program is taken as it is. */
double strata_driver_compile_seconds(const strata_device *device, int n_kernels) {
    const bool given = device->compile_seconds > 0;
    const int n = n_kernels ? n_kernels : given ? 1 : MOST_TIMES, times = n < 1 ? 1 : n < MOST_TIMES ? n : MOST_TIMES;
    return times * (given ? device->compile_seconds : COMPILE_SECONDS);
}

strata_status strata_driver_compile_run(strata_device *device, const char *name, int n_kernels, void (*run)(void *call),
                                        void *call, size_t bytes, strata_error *err) {
    const double one = device->compile_seconds > 0 ? device->compile_seconds : COMPILE_SECONDS,
                 default_notice = one / 6 < NOTICE_SECONDS ? one / 6 : NOTICE_SECONDS;
    if (device->given_up.status) return strata_fail(err, device->given_up.status, "%s", device->given_up.message);
    patience p = {.most = strata_driver_compile_seconds(device, n_kernels),
                  .is_interrupted = device->is_interrupted,
                  .user = device->on_compile_user,
                  .device = device,
                  .name = name,
                  .notice = device->compile_notice_seconds > 0 ? device->compile_notice_seconds : default_notice};
    const strata_driver_call what = {
        .what = {device->info.id, device->info.driver, STRATA_DRIVER_COMPILE}, .run = run, .call = call, .bytes = bytes};
    if (run_call(&what, &p)) return STRATA_OK;
    return strata_fail(err, fail_abandoned(&p), "%s", device->given_up.message);
}
