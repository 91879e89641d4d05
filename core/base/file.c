/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and atomic writing of whole files with POSIX calls. Because of the order write, fsync, rename, fsync of the
 * folder, a crash at any moment leaves either the old file or the new one. */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/locale.h"

strata_status strata_file_fail(strata_error *err, int error_number, const char *path, const char *verb) {
    switch (error_number) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return strata_fail(err, STRATA_OUT_OF_DISK, "%s: cannot %s: %s; make room and try again", path, verb,
                               strata_errno_text(error_number));
        case ENOMEM:
            return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: cannot %s: %s", path, verb, strata_errno_text(error_number));
        case EISDIR:
            return strata_fail(err, STRATA_DATA, "%s: cannot %s: it is a folder, not a file", path, verb);
        default:
            return strata_fail(err, STRATA_UNAVAILABLE, "%s: cannot %s: %s", path, verb, strata_errno_text(error_number));
    }
}

/* ---- reading ---- */

static strata_status too_long(strata_error *err, const char *path, size_t max_bytes) {
    return strata_fail(err, STRATA_DATA, "%s: is longer than the %zu bytes that it may have", path, max_bytes);
}

/* The memory has at first the size of a regular file, and a small size for a pipe. It grows if the file turns out to be
 * longer. */
static strata_status read_all(int fd, const char *path, size_t max_bytes, unsigned char **out_bytes, size_t *out_n_bytes,
                              strata_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0) return strata_file_fail(err, errno, path, "read");
    size_t expected = S_ISREG(info.st_mode) ? (size_t)info.st_size : 4096;
    if (S_ISREG(info.st_mode) && expected > max_bytes) return too_long(err, path, max_bytes);
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes = 0, capacity = 0;
    for (ssize_t n = 1; n != 0;) {
        if (n_bytes + 2 > capacity) { /* room for the NUL, and for one more byte, to notice the end */
            capacity = capacity ? capacity * 2 : expected + 2;
            unsigned char *larger = realloc(bytes, capacity);
            if (!larger) return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for its %zu bytes", path, capacity);
            bytes = larger;
        }
        n = read(fd, bytes + n_bytes, capacity - 1 - n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return strata_file_fail(err, errno, path, "read");
        n_bytes += (size_t)n;
        if (n_bytes > max_bytes) return too_long(err, path, max_bytes);
    }
    bytes[n_bytes] = '\0';
    *out_bytes = strata_released(&bytes);
    *out_n_bytes = n_bytes;
    return STRATA_OK;
}

strata_status strata_file_read(const char *path, size_t max_bytes, unsigned char **out_bytes, size_t *out_n_bytes,
                               strata_error *err) {
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return strata_file_fail(err, errno, path, "open");
    strata_status status = read_all(fd, path, max_bytes, out_bytes, out_n_bytes, err);
    close(fd);
    return status;
}

/* ---- writing ---- */

struct strata_file_writer {
    char *path;      /* where the file goes, symbolic links resolved */
    char *folder;    /* of path */
    char *temporary; /* NULL when there is none on disk */
    int fd;          /* of the temporary file, -1 when closed */
};

/* Splits path into folder and name: "a/b" -> "a", "b"; "b" -> ".", "b"; "/b" -> "/", "b". */
static bool split_path(const char *path, char **out_folder, const char **out_name) {
    const char *slash = strrchr(path, '/');
    *out_name = slash ? slash + 1 : path;
    *out_folder = !slash ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    return *out_folder != NULL;
}

/* Creates the temporary file under a hidden name in the same folder. O_EXCL ensures that no other process uses the
 * name. A name that a killed process has left is skipped. */
static strata_status open_temporary(strata_file_writer *writer, const char *name, mode_t mode, strata_error *err) {
    size_t size = strlen(writer->folder) + NAME_MAX + 2;
    STRATA_FREED char *temporary = NULL;
    STRATA_TRY(STRATA_NEW(temporary, size, err, "%s: no host memory to write it", writer->path));
    for (int attempt = 0; attempt < 1000 && writer->fd < 0; attempt++) {
        snprintf(temporary, size, "%s/.%.200s.tmp-%ld-%d", writer->folder, name, (long)getpid(), attempt);
        writer->fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (writer->fd < 0 && errno != EEXIST && errno != EINTR) break;
    }
    if (writer->fd < 0 && errno == ENOENT)
        return strata_fail(err, STRATA_UNAVAILABLE, "%s: cannot write: there is no folder %s; make it first", writer->path,
                           writer->folder);
    if (writer->fd < 0) return strata_file_fail(err, errno, writer->path, "write in its folder");
    writer->temporary = strata_released(&temporary);
    return STRATA_OK;
}

strata_status strata_file_writer_create(const char *path, strata_file_writer **out_writer, strata_error *err) {
    *out_writer = NULL;
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode))
        return strata_fail(err, STRATA_INVALID, "%s: is %s; give the name of a file", path,
                           S_ISDIR(info.st_mode) ? "a folder" : "not a regular file");
    char resolved[PATH_MAX];
    if (exists && realpath(path, resolved)) path = resolved;
    const char *name;
    STRATA_OWNED(strata_file_writer) *writer = NULL;
    STRATA_TRY(STRATA_NEW(writer, 1, err, "%s: no host memory to write it", path));
    writer->fd = -1;
    if (!(writer->path = strdup(path)) || !split_path(path, &writer->folder, &name))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory to write it", path);
    if (name[0] == '\0') return strata_fail(err, STRATA_INVALID, "\"%s\" ends without the name of a file", path);
    STRATA_TRY(open_temporary(writer, name, 0666, err));
    if (exists) (void)!fchmod(writer->fd, info.st_mode & 0777); /* best effort: a foreign file system may have no modes */
    *out_writer = strata_released(&writer);
    return STRATA_OK;
}

strata_status strata_file_writer_add(strata_file_writer *writer, const void *bytes, size_t n_bytes, strata_error *err) {
    const size_t most_at_once = (size_t)1 << 30; /* Linux writes at most 2 GiB a call */
    const char *at = bytes;
    while (n_bytes > 0) {
        ssize_t n = write(writer->fd, at, n_bytes < most_at_once ? n_bytes : most_at_once);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return strata_file_fail(err, n < 0 ? errno : EIO, writer->path, "write");
        at += n;
        n_bytes -= (size_t)n;
    }
    return STRATA_OK;
}

static strata_status sync_folder(const strata_file_writer *writer, strata_error *err) {
    int fd = open(writer->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return strata_file_fail(err, errno, writer->folder, "open, to make sure of a new file in it");
    int result = fsync(fd);
    int error_number = errno;
    close(fd);
    if (result != 0 && error_number != EINVAL) { /* EINVAL: this file system has no such call */
        return strata_file_fail(err, error_number, writer->folder, "sync, to make sure of a new file in it");
    }
    return STRATA_OK;
}

/* Reads the temporary file. The message of a failure names the final file. */
static strata_status read_back(const strata_file_writer *writer, const strata_file_check *check, strata_error *err) {
    strata_error reason = {0};
    const strata_status status = check->read(writer->temporary, check->context, &reason);
    const size_t n = strlen(writer->temporary);
    const char *why = reason.message;
    if (!status) return STRATA_OK;
    if (!strncmp(why, writer->temporary, n)) why += n + strspn(why + n, ": ");
    return strata_fail(err, status == STRATA_DATA || status == STRATA_INVALID ? STRATA_UNSUPPORTED : status,
                       "%s: it is not written, because it could not be read back: %s", writer->path, why);
}

strata_status strata_file_writer_commit(strata_file_writer *writer, const strata_file_check *check, strata_error *err) {
    int result;
    if (check) STRATA_TRY(read_back(writer, check, err));
    do {
        result = fsync(writer->fd);
    } while (result != 0 && errno == EINTR);
    if (result != 0) return strata_file_fail(err, errno, writer->path, "sync");
    result = close(writer->fd);
    writer->fd = -1;
    if (result != 0 && errno != EINTR) return strata_file_fail(err, errno, writer->path, "close");
    if (rename(writer->temporary, writer->path) != 0)
        return strata_file_fail(err, errno, writer->path, "put the new file in place");
    free(writer->temporary);
    writer->temporary = NULL;
    return sync_folder(writer, err);
}

void strata_file_writer_destroy(strata_file_writer *writer) {
    if (!writer) return;
    if (writer->fd >= 0) close(writer->fd);
    if (writer->temporary) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->folder);
    free(writer->path);
    free(writer);
}

strata_status strata_file_write(const char *path, const void *bytes, size_t n_bytes, strata_error *err) {
    return strata_file_write_checked(path, bytes, n_bytes, NULL, err);
}

strata_status strata_file_write_checked(const char *path, const void *bytes, size_t n_bytes, const strata_file_check *check,
                                        strata_error *err) {
    STRATA_OWNED(strata_file_writer) *writer = NULL;
    STRATA_TRY(strata_file_writer_create(path, &writer, err));
    STRATA_TRY(strata_file_writer_add(writer, bytes, n_bytes, err));
    return strata_file_writer_commit(writer, check, err);
}
