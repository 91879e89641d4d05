/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts, watches and ends the processes of `strata launch`, in one loop over poll, which waits for their pipes, our signals (a
 * signalfd) and our stdin. launch.c decides which processes there are. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

enum { MAX_LINE = 1 << 20, READ_BYTES = 1 << 16 };

/* ---- starting ---- */

static void close_pair(int pair[2]) {
    if (pair[0] >= 0) close(pair[0]);
    if (pair[1] >= 0) close(pair[1]);
    pair[0] = pair[1] = -1;
}

/* Runs the command in the child process, and does not return. If that fails, writes errno to the file descriptor `failure`. */
static void exec_child(const child *self, int in, int out, int err, int failure, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0); /* Ctrl-C of the terminal is sent only to this process, and the child's own children can be ended with it */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);
    static const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) signal(ours[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (self->cores) sched_setaffinity(0, sizeof *self->cores, self->cores);
    int code = 0;
    for (const char *const *row = self->environment; *row && !code; row++)
        code = strchr(*row, '=') ? putenv((char *)*row) : unsetenv(*row);
    if (!code && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0) execvp(self->argv[0], (char *const *)self->argv);
    int reason = errno;
    if (write(failure, &reason, sizeof reason) < 0) _exit(127);
    _exit(127);
}

static int cannot_start(const child *self, int reason) {
    for (int i = 0; commands[i]; i++)
        if (!strcmp(commands[i]->name, self->argv[0]))
            return usage_error("launch: \"%s\" is a command of strata: strata launch ... -- strata %s ...", self->argv[0],
                               self->argv[0]);
    int code = usage_error("launch: \"%s\" cannot be started: %s", self->argv[0], strerror(reason));
    return reason == ENOENT || reason == EACCES || reason == ENOEXEC ? code : EXIT_DATA;
}

static int start_child(child *self) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, failure[2] = {-1, -1}, reason = 0, code = EXIT_OK;
    pid_t parent = getpid(), pid = -1;
    self->input_fd = self->lines[0].fd = self->lines[1].fd = -1;
    if (self->input ? pipe2(in, O_CLOEXEC) : (in[0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0) goto failed;
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC) || pipe2(failure, O_CLOEXEC)) goto failed;
    fflush(NULL);
    pid = fork();
    if (pid < 0) goto failed;
    if (!pid) exec_child(self, in[0], out[1], err[1], failure[1], parent);
    close(failure[1]);
    failure[1] = -1;
    ssize_t n;
    do n = read(failure[0], &reason, sizeof reason);
    while (n < 0 && errno == EINTR);
    if (n > 0) { /* exec failed */
        waitpid(pid, NULL, 0);
        errno = reason;
        goto failed;
    }
    self->pid = pid;
    self->running = true;
    self->lines[0] = (line_stream){.fd = out[0], .target = 1, .rank = self->rank};
    self->lines[1] = (line_stream){.fd = err[0], .target = 2, .rank = self->rank};
    const bool heard = self->rank == 0 || self->evaluates;
    if (self->json && heard) self->lines[0].rank = -1;
    if (self->json && !heard && self->rank > 0) self->lines[0].target = 2;
    self->input_fd = in[1];
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    if (self->input) fcntl(in[1], F_SETFL, O_NONBLOCK);
    out[0] = err[0] = in[1] = -1;
    goto cleanup;
failed:
    code = cannot_start(self, errno);
cleanup:
    close_pair(in);
    close_pair(out);
    close_pair(err);
    close_pair(failure);
    return code;
}

/* ---- lines ---- */

static bool write_all(int fd, const char *bytes, size_t n) {
    while (n) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno != EINTR && errno != EAGAIN) return false;
        if (done > 0) bytes += done, n -= (size_t)done;
    }
    return true;
}

/* Writes the complete lines of the stream, each with its prefix, in one write; with `all` also an incomplete line. */
static bool write_lines(line_stream *stream, bool all) {
    size_t n_lines = 0, n_whole = 0;
    for (size_t i = 0; i < stream->n; i++)
        if (stream->bytes[i] == '\n') n_lines++, n_whole = i + 1;
    bool tail = stream->n > n_whole && (all || stream->n - n_whole >= MAX_LINE);
    size_t n_used = tail ? stream->n : n_whole, n_text = 0;
    if (!n_used) return true;
    char prefix[16] = "";
    int n_prefix = stream->rank < 0 ? 0 : snprintf(prefix, sizeof prefix, "[%d] ", stream->rank);
    char *text = malloc(n_used + (n_lines + 1) * (size_t)(n_prefix + 1));
    if (!text) return false;
    for (size_t at = 0; at < n_used;) {
        const char *newline = memchr(stream->bytes + at, '\n', n_used - at);
        size_t n = newline ? (size_t)(newline - stream->bytes) - at : n_used - at;
        memcpy(text + n_text, prefix, (size_t)n_prefix);
        memcpy(text + n_text + n_prefix, stream->bytes + at, n);
        n_text += (size_t)n_prefix + n;
        text[n_text++] = '\n';
        at += n + 1;
    }
    bool written = write_all(stream->target, text, n_text);
    free(text);
    stream->n -= n_used;
    memmove(stream->bytes, stream->bytes + n_used, stream->n);
    return written;
}

/* Reads what the pipe contains and writes its lines. Returns false if our own output is closed. */
static bool read_lines(line_stream *stream) {
    for (;;) {
        if (stream->capacity - stream->n < READ_BYTES) {
            char *grown = realloc(stream->bytes, stream->n + 2 * READ_BYTES);
            if (!grown) return false;
            stream->bytes = grown;
            stream->capacity = stream->n + 2 * READ_BYTES;
        }
        ssize_t n = read(stream->fd, stream->bytes + stream->n, READ_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return true;
        if (n <= 0) {
            close(stream->fd);
            stream->fd = -1;
            return write_lines(stream, true);
        }
        stream->n += (size_t)n;
        if (!write_lines(stream, false)) return false;
    }
}

static void finish_stream(line_stream *stream) {
    if (stream->fd >= 0) close(stream->fd);
    free(stream->bytes);
    *stream = (line_stream){.fd = -1};
}

/* ---- watching and ending ---- */

typedef enum watch_phase {
    PHASE_RUNNING,
    PHASE_ASKING,  /* one failed because it lost another, whose own end will be noticed soon */
    PHASE_ENDING,  /* all were told to end */
    PHASE_KILLING, /* all were killed */
} watch_phase;

typedef struct watch {
    child *children;
    int n, n_running, signals, code;
    int64_t restarts; /* how many restarts of replaceable children are left */
    bool patient;     /* some are replaceable: if another one fails, all have a second to print why */
    const launch_patience *limits;
    /* When the last child that is not replaceable ended with exit code 0; 0: one of them still runs, or all are replaceable. */
    double led_until;
    /* Since when all children that still run are stopped; 0: one of them is not. */
    double stopped_since;
    /* Those that still ran after `linger_s` were told to end, and at this time they are killed; 0: they were not. */
    double kill_at;
    watch_phase phase;
    double deadline, grace_s;
    bool stopped;     /* this process was told to stop */
    bool mute;        /* our output is closed */
    bool obeys_stdin; /* words from stdin are obeyed, and it is still open */
} watch;

/* Ends a child: an agent on a remote host gets a word on stdin, a worker gets the signal. */
static void tell(child *c, int signal_number) {
    const char *word = signal_number == SIGINT ? "INT\n" : "TERM\n";
    if (!c->running) return;
    if (!c->input || *c->input || signal_number == SIGKILL) /* a worker, or an agent that has not read its job yet */
        kill(-c->pid, signal_number);
    else if (write(c->input_fd, word, strlen(word)) < 0)
        kill(-c->pid, SIGKILL); /* the agent notices that stdin is closed, and ends */
}

/* Writes as much of the child's input as its pipe accepts. If the child has already ended, its exit code is reported rather
 * than the broken pipe. */
static void feed(child *c) {
    ssize_t n = write(c->input_fd, c->input, strlen(c->input));
    if (n > 0) c->input += n;
    if (n < 0 && errno != EINTR && errno != EAGAIN) c->input += strlen(c->input);
}

static void end_all(watch *w, int signal_number) {
    w->phase = signal_number == SIGKILL ? PHASE_KILLING : PHASE_ENDING;
    w->deadline = now_seconds() + w->grace_s;
    for (int i = 0; i < w->n; i++) tell(&w->children[i], signal_number);
}

static void stop_for(watch *w, int signal_number) {
    if (w->stopped) {
        end_all(w, SIGKILL);
        return;
    }
    w->stopped = true;
    w->code = signal_number == SIGINT ? EXIT_INTERRUPTED : 128 + signal_number;
    end_all(w, signal_number == SIGINT ? SIGINT : SIGTERM);
}

static void print_failure(const child *c, const char *then) {
    char how[80];
    if (c->code > 128 && c->code < 128 + 65 && c->code < EXIT_DEVICE_LOST)
        snprintf(how, sizeof how, "was ended by signal %d (%s)", c->code - 128, strsignal(c->code - 128));
    else
        snprintf(how, sizeof how, "ended with exit code %d", c->code);
    fprintf(stderr, "strata: %s %s%s\n", c->name, how, then);
}

/* Records the end of a child. A worker that only lost a peer (162) is not reported as the cause, since the end of that peer was
 * noticed or will be noticed soon. */
static void note_end(watch *w, const child *c) {
    const double patience_s = 1;
    if (w->phase == PHASE_ENDING || w->phase == PHASE_KILLING || !c->code) return;
    if (c->code == EXIT_PEER_LOST && w->n_running && !w->patient) {
        if (w->phase == PHASE_RUNNING) {
            fprintf(stderr, "strata: %s lost another worker\n", c->name);
            w->deadline = now_seconds() + patience_s;
            w->phase = PHASE_ASKING;
        }
        if (!w->code) w->code = c->code;
        return;
    }
    if (w->patient && w->phase == PHASE_ASKING) return;
    w->code = c->code;
    print_failure(c, w->n_running ? "; the others are ended" : "");
    if (!w->patient) {
        end_all(w, SIGTERM);
        return;
    }
    w->deadline = now_seconds() + patience_s;
    w->phase = PHASE_ASKING;
}

/* Adds the child to the list of those that ended, which the others read. It has no effect if there is no memory for it. */
static void list_ended(const watch *w, const child *c) {
    char line[64];
    const int n = snprintf(line, sizeof line, "%.40s %d\n", c->name, c->code);
    if (w->limits->ended_fd >= 0 && write(w->limits->ended_fd, line, (size_t)n) < 0) return;
}

/* Handles the end of a replaceable child, without which the others continue: after a signal or a lost peer it is started
 * again, unless the chief has ended, with which the training was over. */
static void replace(watch *w, child *c) {
    const bool again = c->code > 128 && c->code != EXIT_INTERRUPTED && w->restarts > 0 && (c->evaluates || w->led_until <= 0);
    print_failure(c, again ? "; it is started again" : w->n_running ? "; the others continue" : "");
    if (!again && c->evaluates) w->code = c->code;
    if (!again) list_ended(w, c);
    if (!again) return;
    w->restarts--;
    if (!start_child(c)) w->n_running++;
}

static void reap(watch *w) {
    for (int i = 0; i < w->n; i++) {
        child *c = &w->children[i];
        siginfo_t info = {0};
        if (!c->running || waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid) continue;
        /* Ends processes that the child started and that still run. The group's number is not reused before the wait below. */
        kill(-c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
        c->running = false;
        c->code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
        w->n_running--;
        if (!c->replaceable && !c->code) w->led_until = now_seconds();
        for (int k = 0; k < 2; k++) {
            line_stream *stream = &c->lines[k];
            if (stream->fd >= 0 && !w->mute) w->mute = !read_lines(stream) || (stream->n && !write_lines(stream, true));
            finish_stream(stream);
        }
        if (c->input_fd >= 0) close(c->input_fd);
        c->input_fd = -1;
        if (c->replaceable && c->code && w->phase == PHASE_RUNNING && (w->n_running || c->evaluates || c->straggles))
            replace(w, c);
        else
            note_end(w, c);
        if (c->replaceable && !c->code) list_ended(w, c);
    }
}

static void read_signals(watch *w) {
    struct signalfd_siginfo info;
    while (read(w->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) stop_for(w, (int)info.ssi_signo);
}

/* Reads words from the host that started this process. The end of stdin means that the host has ended, and this process ends as
 * well. */
static void read_words(watch *w) {
    char words[256];
    ssize_t n = read(0, words, sizeof words);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
        w->obeys_stdin = false;
        end_all(w, SIGTERM);
        w->stopped = true;
        w->code = 128 + SIGHUP;
        return;
    }
    stop_for(w, memchr(words, 'I', (size_t)n) ? SIGINT : SIGTERM);
}

/* ---- children that would be waited for in vain ---- */

/* Whether a process of the group is stopped (SIGSTOP). Its parent may be a shell that waits for it. */
static bool group_is_stopped(int group) {
    DIR *all = opendir("/proc");
    bool stopped = false;
    for (struct dirent *e; all && !stopped && (e = readdir(all));) {
        char path[300], text[512] = "", state = 0;
        int own_group = 0;
        if (e->d_name[0] < '0' || e->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        FILE *file = fopen(path, "r");
        const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[n] = '\0';
        const char *end = strrchr(text, ')'); /* of the program's name */
        stopped = end && sscanf(end + 1, " %c %*d %d", &state, &own_group) == 2 && own_group == group && state == 'T';
    }
    if (all) closedir(all);
    return stopped;
}

/* Whether what the children do together is over: one has ended, and those that still run are only stragglers, or a chief that
 * all others have left. */
static bool is_over(const watch *w) {
    bool leads = false, follows = false;
    for (int i = 0; i < w->n; i++) {
        leads |= w->children[i].running && !w->children[i].replaceable;
        follows |= w->children[i].running && w->children[i].replaceable && !w->children[i].evaluates;
    }
    return w->phase == PHASE_RUNNING && w->n_running && w->n_running < w->n && !(leads && follows);
}

/* A child that is stopped while no other one runs is never continued by anything that this process waits for. An evaluator
 * that runs does not count: it waits for a chief. */
static void end_stopped(watch *w, double now) {
    bool all = true, alone = true;
    for (int i = 0; i < w->n; i++) alone &= !w->children[i].running || w->children[i].evaluates;
    for (int i = 0; i < w->n && all; i++) {
        const child *c = &w->children[i];
        all = !c->running || (c->evaluates && !alone) || group_is_stopped(c->pid);
    }
    if (!all) w->stopped_since = 0;
    if (all && w->stopped_since <= 0) w->stopped_since = now;
    if (!all || now < w->stopped_since + w->grace_s) return;
    w->stopped_since = 0;
    for (int i = 0; i < w->n; i++) {
        child *c = &w->children[i];
        if (!c->running || (c->evaluates && !alone)) continue;
        fprintf(stderr, "strata: %s is stopped (SIGSTOP), and the others have ended; it is killed\n", c->name);
        c->straggles = true;
        tell(c, SIGKILL);
    }
}

/* After the chief has ended, workers and servers have a limited time to end as well. */
static void end_lingering(watch *w, double now) {
    if (w->led_until <= 0 || now < w->led_until + w->limits->linger_s || !w->patient) return;
    const bool kills = w->kill_at > 0;
    if (kills && now < w->kill_at) return;
    for (int i = 0; i < w->n; i++) {
        child *c = &w->children[i];
        if (!c->running || c->evaluates) continue;
        if (!kills)
            fprintf(stderr, "strata: %s still runs %.0f s after the chief has ended; it is ended (--linger)\n", c->name,
                    w->limits->linger_s);
        c->straggles = true;
        tell(c, kills ? SIGKILL : SIGTERM);
    }
    w->kill_at = now + (w->grace_s > 0.1 ? w->grace_s : 0.1);
}

static void end_stragglers(watch *w) {
    if (!is_over(w)) return;
    end_stopped(w, now_seconds());
    end_lingering(w, now_seconds());
}

static int milliseconds_left(const watch *w) {
    const int tick_ms = 500;
    if (w->phase == PHASE_RUNNING) return is_over(w) ? tick_ms : -1;
    double left = (w->deadline - now_seconds()) * 1e3;
    return left < 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

static void pass_deadline(watch *w) {
    if (w->phase == PHASE_RUNNING || now_seconds() < w->deadline) return;
    end_all(w, w->phase == PHASE_ASKING ? SIGTERM : SIGKILL);
}

static void watch_all(watch *w, struct pollfd *polls) {
    while (w->n_running) {
        int n = 0;
        polls[n++] = (struct pollfd){.fd = w->signals, .events = POLLIN};
        polls[n++] = (struct pollfd){.fd = w->obeys_stdin ? 0 : -1, .events = POLLIN};
        for (int i = 0; i < 2 * w->n; i++)
            polls[n++] = (struct pollfd){.fd = w->mute ? -1 : w->children[i / 2].lines[i % 2].fd, .events = POLLIN};
        for (int i = 0; i < w->n; i++) {
            const child *c = &w->children[i];
            polls[n++] = (struct pollfd){.fd = c->running && c->input && *c->input ? c->input_fd : -1, .events = POLLOUT};
        }
        if (poll(polls, (nfds_t)n, milliseconds_left(w)) < 0 && errno != EINTR) break;
        for (int i = 0; i < 2 * w->n && !w->mute; i++)
            if (polls[2 + i].revents) w->mute = !read_lines(&w->children[i / 2].lines[i % 2]);
        for (int i = 0; i < w->n; i++)
            if (polls[2 + 2 * w->n + i].revents) feed(&w->children[i]);
        if (w->mute && !w->stopped) stop_for(w, SIGPIPE);
        if (polls[0].revents) read_signals(w);
        if (polls[1].revents) read_words(w);
        reap(w);
        pass_deadline(w);
        end_stragglers(w);
    }
}

static int start_all(watch *w) {
    for (int i = 0; i < w->n; i++) {
        child *c = &w->children[i];
        int code = start_child(c);
        if (code) return code;
        w->n_running++;
    }
    return EXIT_OK;
}

int run_children(child *children, int n, const launch_patience *limits, bool obeys_stdin, bool *out_stopped) {
    watch w = {.children = children,
               .n = n,
               .limits = limits,
               .grace_s = limits->grace_s,
               .restarts = limits->restarts,
               .obeys_stdin = obeys_stdin,
               .signals = -1};
    for (int i = 0; i < n; i++) w.patient |= children[i].replaceable;
    struct pollfd *polls = calloc(2 + 3 * (size_t)n, sizeof *polls);
    sigset_t ours, before;
    sigemptyset(&ours);
    static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) sigaddset(&ours, watched[i]);
    sigprocmask(SIG_BLOCK, &ours, &before);
    void (*pipe_before)(int) = signal(SIGPIPE, SIG_IGN);
    if (obeys_stdin) prctl(PR_SET_PDEATHSIG, 0); /* inherited from ssh, whose end is noticed by the end of stdin instead */
    w.signals = signalfd(-1, &ours, SFD_NONBLOCK | SFD_CLOEXEC);
    for (int i = 0; i < n; i++)
        children[i].running = false, children[i].lines[0].fd = children[i].lines[1].fd = children[i].input_fd = -1;
    if (!polls || w.signals < 0) {
        w.code =
            report(FAILING_RUN, STRATA_OUT_OF_MEMORY, &(strata_error){.message = "launch: no memory to watch the workers"});
    } else {
        int code = start_all(&w);
        if (code) end_all(&w, SIGKILL);
        watch_all(&w, polls);
        if (code) w.code = code;
    }
    if (w.signals >= 0) close(w.signals);
    free(polls);
    signal(SIGPIPE, pipe_before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    *out_stopped = w.stopped;
    return w.code;
}
