/* SPDX-License-Identifier: Apache-2.0
 *
 * strata plugin-check: runs the conformance suite on a vendor's plugin. The plugin runs in a child process, so that a crash, an
 * exit or a hang becomes a line of the report. After that another child continues with the remaining cases. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "strata/conformance.h"

/* LARGE_SECONDS: after this time, or half of the limit if that is less, no more large shapes are begun. So a check takes two
 * minutes at most, and a limit leaves time for the other shapes. */
enum { NAME_BYTES = 96, MOST_RESTARTS = 64, LARGE_SECONDS = 90 };
/* The child's waits for the device end at the limit of a case, which is a tenth of that of the whole check, but at least
 * LEAST_SECONDS. If the child hangs elsewhere, it is killed MORE_SECONDS later. */
static const double MORE_SECONDS = 2, LEAST_SECONDS = 1;

static const option_row rows[] = {
    {"device", "NAME:1", "the device to check (the plugin's first)", OPTION_TEXT, offsetof(strata_check_options, device), 0, 0},
    {"ops", "A,B", "check only these ops", OPTION_TEXT, offsetof(strata_check_options, ops), 0, 0},
    {"limit", "S", "the longest time for the whole check, in seconds; a case may take a tenth of it (600)", OPTION_NUMBER,
     offsetof(strata_check_options, limit_s), 0.1, 1e6},
    {"quick", NULL, "leave out large shapes, which take most of the time", OPTION_FLAG, offsetof(strata_check_options, quick),
     0, 0},
    {"verbose", NULL, "show the plugin's messages on stderr", OPTION_VERBOSE, 0, 0, 0},
    {0}};

/* The result of a unit. */
typedef struct outcome {
    enum { OUT_OPEN, OUT_RIGHT, OUT_NOT_CLAIMED, OUT_BLOCKED, OUT_WRONG, OUT_CRASHED, OUT_HUNG } what;
    int n_right;
    char *text;
} outcome;

typedef struct watcher {
    const strata_check_options *options;
    outcome *outcomes;
    int n_units;
    /* The state of the current child: its unit, the operands of its case, and whether it has reported the end of its work. */
    int unit;
    char at_case[400];
    bool ended, named;
    /* The time of the whole check was over before its end. */
    bool cut;
    /* When the check began, and when the child sent its newest message. */
    double began, heard;
    pid_t child;
    int pipe;
} watcher;

static void settle(watcher *w, int unit, int what, int n_right, const char *text) {
    outcome *o = &w->outcomes[unit];
    o->what = what;
    o->n_right = n_right;
    free(o->text);
    o->text = strdup(text);
}

/* ---- the child ---- */

static int start_child(watcher *w, int first) {
    int ends[2];
    if (pipe(ends)) return usage_error("plugin-check: the system cannot make a pipe: %s", strerror(errno)), EXIT_DATA;
    fflush(stdout);
    w->child = fork();
    if (w->child < 0) return usage_error("plugin-check: the system cannot start a process: %s", strerror(errno)), EXIT_DATA;
    if (w->child == 0) {
        close(ends[0]);
        do_not_watch_drivers(); /* the parent does it */
        strata_check_run(w->options, first, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    w->pipe = ends[0];
    w->ended = false;
    return EXIT_OK;
}

static void take(watcher *w, const strata_check_message *message) {
    static const int what[] = {[STRATA_CHECK_RIGHT] = OUT_RIGHT,
                               [STRATA_CHECK_NOT_CLAIMED] = OUT_NOT_CLAIMED,
                               [STRATA_CHECK_BLOCKED] = OUT_BLOCKED,
                               [STRATA_CHECK_WRONG] = OUT_WRONG};
    w->unit = message->unit;
    if (message->kind == STRATA_CHECK_BEGIN)
        snprintf(w->at_case, sizeof w->at_case, "%.*s", (int)sizeof w->at_case - 1, message->text);
    else if (message->kind == STRATA_CHECK_DEVICE && !w->named)
        printf("device %s\n", message->text), w->named = true;
    else if (message->kind == STRATA_CHECK_END)
        w->ended = true;
    else if (message->kind != STRATA_CHECK_DEVICE)
        settle(w, message->unit, what[message->kind], message->n, message->text);
}

/* Seconds until the end of the whole check. */
static double seconds_left(const watcher *w) {
    const double left = w->began + w->options->limit_s - now_seconds();
    return left > 0 ? left : 0;
}

/* Reads messages until the child closes the pipe. Returns false if it sent none for too long, or if the check takes too
 * long. */
static bool listen(watcher *w) {
    strata_check_message message;
    size_t have = 0;
    for (;;) {
        struct pollfd wait = {.fd = w->pipe, .events = POLLIN};
        const double patience = w->options->case_s + MORE_SECONDS, left = seconds_left(w);
        const int ready = left > 0 ? poll(&wait, 1, (int)(1000 * (left < patience ? left : patience)) + 1) : 0;
        if (ready == 0) return false;
        if (ready < 0 && errno == EINTR) continue;
        const ssize_t n = ready < 0 ? -1 : read(w->pipe, (char *)&message + have, sizeof message - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return true;
        have += (size_t)n;
        if (have < sizeof message) continue;
        message.text[sizeof message.text - 1] = 0;
        w->heard = now_seconds();
        take(w, &message);
        have = 0;
    }
}

/* Records how the child ended, if it did not finish its work. silent_s: seconds since its newest message. */
static void settle_end(watcher *w, bool heard, double silent_s, int status) {
    char text[600];
    const char *colon = w->at_case[0] ? ": " : "";
    if (!heard && silent_s >= w->options->case_s) {
        snprintf(text, sizeof text, "%s%sit has not answered for %g s (--limit)", w->at_case, colon, w->options->case_s);
        settle(w, w->unit, OUT_HUNG, 0, text);
    } else if (!heard) {
        w->cut = true;
    } else if (WIFSIGNALED(status)) {
        snprintf(text, sizeof text, "%s%ssignal %d, %s", w->at_case, colon, WTERMSIG(status), strsignal(WTERMSIG(status)));
        settle(w, w->unit, OUT_CRASHED, 0, text);
    } else if (WEXITSTATUS(status)) {
        snprintf(text, sizeof text, "%s%sthe process ended with exit code %d", w->at_case, colon, WEXITSTATUS(status));
        settle(w, w->unit, OUT_CRASHED, 0, text);
    } else if (!w->ended && w->outcomes[w->unit].what == OUT_OPEN) {
        settle(w, w->unit, OUT_CRASHED, 0, "the plugin ended the process (exit)");
    }
}

static int watch(watcher *w, int first) {
    int status = 0;
    const int code = start_child(w, first);
    if (code) return code;
    w->unit = first > STRATA_CHECK_UNIT_MEMORY ? STRATA_CHECK_UNIT_OPEN : first;
    w->heard = now_seconds();
    const bool heard = listen(w);
    const double silent_s = now_seconds() - w->heard;
    if (!heard) kill(w->child, SIGKILL);
    while (waitpid(w->child, &status, 0) < 0 && errno == EINTR) {
    }
    close(w->pipe);
    settle_end(w, heard, silent_s, status);
    return EXIT_OK;
}

/* ---- the report ---- */

/* Whether some unit of the op was right. */
static bool is_op_right(const watcher *w, const char *op) {
    for (int u = STRATA_CHECK_FIRST_ROW; u < w->n_units; u++)
        if (w->outcomes[u].what == OUT_RIGHT && strata_check_unit_op(u) && !strcmp(strata_check_unit_op(u), op)) return true;
    return false;
}

/* A claim that no case could check counts as wrong. */
static bool is_bad(const watcher *w, int unit) {
    const outcome *o = &w->outcomes[unit];
    return o->what > OUT_BLOCKED || (o->what == OUT_BLOCKED && !is_op_right(w, strata_check_unit_op(unit)));
}

static const char *const words[] = {
    [OUT_BLOCKED] = "not checked", [OUT_WRONG] = "WRONG", [OUT_CRASHED] = "CRASH", [OUT_HUNG] = "HANG"};

/* Prints a line for the unit. Ops that are not claimed are listed at the end. */
static void print_unit(const watcher *w, int unit) {
    const outcome *o = &w->outcomes[unit];
    char name[NAME_BYTES];
    strata_check_unit_name(unit, name, NAME_BYTES);
    if (o->what == OUT_RIGHT)
        printf("  %-11s %-32s %d cases%s\n", "ok", name, o->n_right, o->text);
    else if (o->what >= OUT_BLOCKED)
        printf("  %-11s %-32s %s\n", words[o->what], name, o->text);
}

/* Whether a unit of the same op before this one was not claimed either. */
static bool said_before(const watcher *w, int unit) {
    for (int u = STRATA_CHECK_FIRST_ROW; u < unit; u++)
        if (w->outcomes[u].what == OUT_NOT_CLAIMED && !strcmp(strata_check_unit_op(u), strata_check_unit_op(unit))) return true;
    return false;
}

/* The device's reason, which follows the case in the text: "neg (7): it computes in f32". */
static const char *reason_of(const outcome *o) {
    const char *behind = o->text ? strstr(o->text, "): ") : NULL;
    return behind ? behind + 3 : o->text ? o->text : "";
}

static bool is_not_claimed(const watcher *w, int unit) {
    return w->outcomes[unit].what == OUT_NOT_CLAIMED && !said_before(w, unit);
}

/* Prints the ops, from unit `first` on, that are not claimed for the same reason as that unit, in lines of COLUMNS. */
static void print_same_reason(const watcher *w, int first) {
    enum { COLUMNS = 110 };
    const char *reason = reason_of(&w->outcomes[first]);
    int used = COLUMNS;
    printf("  %s:", reason);
    for (int u = first; u < w->n_units; u++) {
        if (!is_not_claimed(w, u) || strcmp(reason_of(&w->outcomes[u]), reason) != 0) continue;
        const char *name = strata_check_unit_op(u);
        const int n = (int)strlen(name) + 2;
        printf("%s%s", u == first ? "\n      " : used + n > COLUMNS ? ",\n      " : ", ", name);
        used = used + n > COLUMNS ? 6 + n : used + n;
    }
    putchar('\n');
}

static void print_not_claimed(const watcher *w) {
    bool any = false;
    for (int u = STRATA_CHECK_FIRST_ROW; u < w->n_units; u++) {
        if (!is_not_claimed(w, u)) continue;
        bool printed = false;
        for (int k = STRATA_CHECK_FIRST_ROW; k < u && !printed; k++)
            printed = is_not_claimed(w, k) && !strcmp(reason_of(&w->outcomes[k]), reason_of(&w->outcomes[u]));
        if (!any) printf("not claimed (Strata composes them of other ops where it can; else --allow-fallback host):\n");
        any = true;
        if (!printed) print_same_reason(w, u);
    }
}

static int print_report(const watcher *w) {
    int n_right = 0, n_bad = 0, n_ops = 0, n_not_claimed = 0;
    for (int u = 0; u < w->n_units; u++) {
        print_unit(w, u);
        n_right += w->outcomes[u].what == OUT_RIGHT;
        n_bad += is_bad(w, u);
        n_ops += strata_check_unit_op(u) && w->outcomes[u].what == OUT_RIGHT;
        n_not_claimed += w->outcomes[u].what == OUT_NOT_CLAIMED;
    }
    print_not_claimed(w);
    printf("%d right, %d wrong, %d not claimed (op and dtype each)\n", n_right, n_bad, n_not_claimed);
    if (w->cut)
        printf("the check was ended after %g s, before all was checked; --limit S allows more time\n", w->options->limit_s);
    if (!n_bad && !n_ops && !w->cut) printf("none of what is right is an op: a device must run at least one\n");
    return n_bad ? EXIT_DEVICE : w->cut ? EXIT_TIMEOUT : n_ops ? EXIT_OK : EXIT_DEVICE;
}

/* ---- the command ---- */

static int next_open(const watcher *w) {
    for (int u = w->unit + 1; u < w->n_units; u++)
        if (w->outcomes[u].what == OUT_OPEN) return u;
    return -1;
}

static int check(watcher *w) {
    int first = STRATA_CHECK_UNIT_OPEN, code = EXIT_OK;
    for (int i = 0; i < MOST_RESTARTS && first >= 0 && !code; i++) {
        code = watch(w, first);
        if (w->ended || w->cut || is_bad(w, STRATA_CHECK_UNIT_OPEN))
            break; /* if the device cannot be opened, another child would fail as well */
        first = next_open(w);
        w->cut = first >= 0 && !seconds_left(w);
        if (w->cut) break;
    }
    return code;
}

static int run(const command *command, int argc, char **argv) {
    strata_check_options options = {.limit_s = 600};
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &options.plugin, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    options.case_s = options.limit_s / 10;
    if (options.case_s < LEAST_SECONDS) options.case_s = options.limit_s < LEAST_SECONDS ? options.limit_s : LEAST_SECONDS;
    watcher w = {.options = &options, .n_units = strata_check_n_units(), .began = now_seconds()};
    options.large_until = w.began + (options.limit_s < 2 * LARGE_SECONDS ? options.limit_s / 2 : LARGE_SECONDS);
    w.outcomes = calloc((size_t)w.n_units, sizeof *w.outcomes);
    if (!w.outcomes) return usage_error("plugin-check: no host memory"), EXIT_DEVICE;
    printf("plugin %s\n", options.plugin);
    code = check(&w);
    if (!code) code = print_report(&w);
    for (int u = 0; u < w.n_units; u++) free(w.outcomes[u].text);
    free(w.outcomes);
    return code;
}

const command command_plugin_check = {
    .name = "plugin-check",
    .arguments = "FILE[,key=value]",
    .summary = "run the conformance suite against a vendor's plugin",
    .details =
        "The plugin runs in a child process. Each op that its device claims to run is compared with Strata's reference, in\n"
        "each dtype that the device has, in small shapes and in those of accelerators, and runs that are repeated must give\n"
        "the same bits. Products of large matrices are compared in all elements. Memory that the plugin borrows is\n"
        "protected, and what is left in use when calls are repeated is counted. Without --ops a small model is trained as\n"
        "well, where the host runs ops that the device does not have. --quick leaves out large shapes. The exit code is 0\n"
        "only if all results are right. A unit that does not answer is ended and reported, and the others are checked in\n"
        "another process. The exit code is 163 if the time was over before all was checked.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run};
