/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a driver's compiler with limits. Compiling is one call that may take minutes and cannot be stopped, so it runs in a
 * separate thread. The thread that needs the kernel waits, reports a slow compilation, and stops waiting if it takes too long
 * or is not needed any more. The memory of such an abandoned call then belongs to its thread, and the device compiles nothing
 * more. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/kernel/kernel.h"
#include "core/base/clock.h"

enum { STACK_BYTES = 8 << 20, MOST_TIMES = 5 };
static const double NOTICE_SECONDS = 20, COMPILE_SECONDS = 120, POLL_SECONDS = 0.05;

/* Shared by both threads; the one that ends last frees it. */
typedef struct build {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done, abandoned;
    void (*run)(void *call);
    void *call;
} build;

static void destroy(build *b) {
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
    free(b->call);
    free(b);
}

static build *create(const strata_kernel_build *what) {
    build *b = calloc(1, sizeof *b);
    void *call = malloc(what->call_bytes);
    if (!b || !call) {
        free(b);
        free(call);
        return NULL;
    }
    memcpy(call, what->call, what->call_bytes);
    b->run = what->run;
    b->call = call;
    strata_clock_cond_init(&b->changed);
    pthread_mutex_init(&b->mutex, NULL);
    return b;
}

static void *run(void *data) {
    build *b = data;
    b->run(b->call);
    pthread_mutex_lock(&b->mutex);
    b->done = true;
    const bool abandoned = b->abandoned;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->mutex);
    if (abandoned) destroy(b);
    return NULL;
}

/* Starts the thread, with all signals blocked: the program's own threads handle them. */
static bool start(build *b, pthread_t *out_thread) {
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES); /* compilers recurse deeply, and musl's default stacks have 128 KiB */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const bool started = !pthread_create(out_thread, &attributes, run, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

/* Waits for about 50 ms at most; returns whether the call has returned. */
static bool wait_briefly(build *b) {
    const struct timespec until = strata_clock_after(POLL_SECONDS);
    pthread_mutex_lock(&b->mutex);
    if (!b->done) pthread_cond_timedwait(&b->changed, &b->mutex, &until);
    const bool done = b->done;
    pthread_mutex_unlock(&b->mutex);
    return done;
}

/* Abandons the call. Returns false if the call has returned meanwhile. */
static bool abandon(build *b) {
    pthread_mutex_lock(&b->mutex);
    const bool abandoned = b->abandoned = !b->done;
    pthread_mutex_unlock(&b->mutex);
    return abandoned;
}

static strata_status fail_abandoned(strata_device *device, const char *name, double seconds, bool interrupted) {
    static const char what_then[] = "; the driver goes on with it until the process ends, and the device compiles nothing more";
    if (interrupted)
        return strata_fail(&device->given_up, STRATA_INTERRUPTED, "%s: interrupted while the driver compiled %s%s",
                           device->info.id, name, what_then);
    return strata_fail(&device->given_up, STRATA_TIMEOUT,
                       "%s: the driver (%s) has not compiled %s within %.3g s%s. Another device may do better (strata devices "
                       "lists them; the host needs no compiler), or allow more time: --compile-seconds, "
                       "strata_device_options.compile_seconds",
                       device->info.id, device->info.driver, name, seconds, what_then);
}

/* Waits until the call returns. *out_abandoned: the call took too long or is not needed any more, and was abandoned. */
static strata_status wait_with_limits(strata_device *device, build *b, const strata_kernel_build *what, bool *out_abandoned) {
    const int times = what->n_kernels < 1 ? 1 : what->n_kernels < MOST_TIMES ? what->n_kernels : MOST_TIMES;
    const double one = device->compile_seconds > 0 ? device->compile_seconds : COMPILE_SECONDS, most = times * one,
                 default_notice = one / 6 < NOTICE_SECONDS ? one / 6 : NOTICE_SECONDS,
                 notice = device->compile_notice_seconds > 0 ? device->compile_notice_seconds : default_notice,
                 began = strata_clock_seconds();
    bool noticed = false;
    *out_abandoned = false;
    while (!wait_briefly(b)) {
        const double seconds = strata_clock_seconds() - began;
        const bool interrupted = device->is_interrupted && device->is_interrupted(device->on_compile_user);
        if (!noticed && seconds > notice)
            strata_device_warn(device, "%s: compiling %s has taken %.3g s so far, which the driver (%s) does once",
                               device->info.id, what->name, seconds, device->info.driver);
        noticed |= seconds > notice;
        if (!interrupted && seconds <= most) continue;
        *out_abandoned = abandon(b);
        if (*out_abandoned) return fail_abandoned(device, what->name, seconds, interrupted);
    }
    return STRATA_OK;
}

strata_status strata_kernel_build_run(strata_device *device, const strata_kernel_build *what, strata_error *err) {
    if (device->given_up.status) return strata_fail(err, device->given_up.status, "%s", device->given_up.message);
    pthread_t thread;
    bool abandoned = false;
    build *b = create(what);
    if (!b || !start(b, &thread)) { /* without memory or a thread, call the compiler here, without limits */
        if (b) destroy(b);
        what->run(what->call);
        return STRATA_OK;
    }
    const strata_status status = wait_with_limits(device, b, what, &abandoned);
    if (abandoned) {
        pthread_detach(thread);
        return strata_fail(err, status, "%s", device->given_up.message);
    }
    pthread_join(thread, NULL);
    memcpy(what->call, b->call, what->call_bytes);
    destroy(b);
    return STRATA_OK;
}
