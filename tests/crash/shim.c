/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces mkdir, write, fsync, rename, unlink and rmdir in the copy of the library that is linked into this program. */
#include "tests/crash/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PIECE = 8 };
static const int64_t never = INT64_MAX;

static _Atomic int64_t events, cut, room;
static atomic_bool cutting, filling;
static struct {
    const char *call, *part;
    atomic_int left;
} kills;

void crash_reset(void) {
    cutting = filling = false;
    events = 0;
    cut = room = never;
    kills.call = NULL;
}

void crash_cut_at(int64_t k) {
    crash_reset();
    cut = k;
    cutting = true;
}

int64_t crash_events(void) {
    return events;
}

void crash_kill_at(const char *call, const char *part, int n) {
    crash_reset();
    kills.part = part;
    kills.left = n;
    kills.call = call;
}

void crash_fill_disk(int64_t bytes) {
    crash_reset();
    room = bytes;
    filling = true;
}

static void maybe_die(const char *call, const char *path) {
    if (kills.call && !strcmp(kills.call, call) && strstr(path, kills.part) && --kills.left == 0) kill(getpid(), SIGKILL);
}

/* The path of an open file. */
static const char *path_of(int fd, char *room_for_it, size_t n) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, room_for_it, n - 1);
    room_for_it[length > 0 ? length : 0] = 0;
    return room_for_it;
}

/* Counts an event. Returns whether it still reaches the disk. */
static bool reaches(void) {
    return !cutting || ++events < cut;
}

int mkdir(const char *path, mode_t mode) {
    maybe_die("mkdir", path);
    return reaches() ? mkdirat(AT_FDCWD, path, mode) : 0;
}

int rename(const char *from, const char *to) {
    maybe_die("rename", to);
    return reaches() ? renameat(AT_FDCWD, from, AT_FDCWD, to) : 0;
}

int unlink(const char *path) {
    maybe_die("unlink", path);
    return reaches() ? unlinkat(AT_FDCWD, path, 0) : 0;
}

int rmdir(const char *path) {
    maybe_die("rmdir", path);
    return reaches() ? unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : 0;
}

int fsync(int fd) {
    char path[4096];
    if (kills.call) maybe_die("fsync", path_of(fd, path, sizeof path));
    if (cutting) events++;
    return 0;
}

ssize_t write(int fd, const void *bytes, size_t n) {
    char path[4096];
    if (fd <= STDERR_FILENO) return syscall(SYS_write, fd, bytes, n);
    if (kills.call) maybe_die("write", path_of(fd, path, sizeof path));
    if (filling) {
        const int64_t fits = room;
        if (fits <= 0) {
            errno = ENOSPC;
            return -1;
        }
        if (n > (size_t)fits) n = (size_t)fits;
        room -= (int64_t)n;
    }
    if (cutting) { /* a part of an interrupted write is on the disk */
        size_t written = 0;
        for (; written < n && reaches(); written += PIECE) {
        }
        if (written > n) written = n;
        if (written && syscall(SYS_write, fd, bytes, written) < 0) return -1;
        return (ssize_t)n;
    }
    return syscall(SYS_write, fd, bytes, n);
}
