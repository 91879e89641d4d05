/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of the command when a driver or plugin hangs in a call, or calls exit: what is in memory is saved, and the process
 * ends by _exit, because exit could wait for the thread that is in the driver. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "terminal.h"

/* If saving, and then flushing files, takes longer than so many seconds, the process ends without it. */
enum { SAVING_SECONDS = 20, FLUSHING_SECONDS = 2 };

static void (*saves)(void *user);
static void *saves_user;
static double seconds;
static volatile sig_atomic_t exit_code, ends;

void save_at_driver_failure(void (*save)(void *user), void *user) {
    saves_user = user;
    saves = save;
}

static void end_now(int number) {
    (void)number;
    _exit(exit_code);
}

/* stdout and other files that are open. The thread in the driver may have locked one of them. */
static void flush_files(void) {
    if (!ftrylockfile(stdout)) {
        fflush(stdout);
        funlockfile(stdout);
    }
    alarm(FLUSHING_SECONDS);
    fflush(NULL);
}

/* stderr is not used as a FILE, which the thread in the driver may have locked. */
static void print(const char *text) {
    const char *clear = terminal_draws(STDERR_FILENO) ? "\r\033[K" : "";
    char line[STRATA_ERROR_MESSAGE_BYTES + 32];
    const int n = snprintf(line, sizeof line, "%sstrata: %s\n", clear, text);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0) return;
}

static void fail(strata_status status, const char *message, void *user) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER; /* a second device may hang too; it waits for the end */
    (void)user;
    pthread_mutex_lock(&once);
    exit_code = status == STRATA_TIMEOUT ? EXIT_TIMEOUT : EXIT_DEVICE_LOST;
    signal(SIGALRM, end_now);
    alarm(SAVING_SECONDS);
    print(message);
    if (saves) saves(saves_user);
    flush_files();
    _exit(exit_code);
}

/* Runs in exit. If the command has not ended by itself, code of a driver has called exit, perhaps in a thread of its own. */
static void check_end(void) {
    if (!ends)
        fail(STRATA_DEVICE_LOST,
             "the process ended before the command did: a driver, a plugin or another library called exit; strata "
             "plugin-check FILE finds out whether a plugin does it",
             NULL);
}

int set_driver_seconds(double limit) {
    strata_error err = {0};
    const strata_driver_options options = {.seconds = limit, .on_failure = fail};
    const strata_status status = strata_drivers_configure(&options, &err);
    seconds = limit;
    return status ? report(FAILING_USAGE, status, &err) : EXIT_OK;
}

void watch_drivers(void) {
    (void)set_driver_seconds(0);
    (void)atexit(check_end);
}

void do_not_watch_drivers(void) {
    const strata_driver_options options = {.seconds = seconds};
    const strata_status status = strata_drivers_configure(&options, NULL);
    (void)status;
    ends = 1;
}

int end_of_command(int code) {
    ends = 1;
    if (code >= EXIT_INTERRUPTED || strata_drivers_hang()) _exit(code);
    return code;
}
