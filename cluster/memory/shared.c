/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/memory/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/locale.h"

static strata_status cannot(strata_shared *s, strata_status status, size_t bytes, int error, strata_error *err) {
    strata_shared_hide(s);
    return strata_fail(err, status, "cannot share %zu bytes of memory in /dev/shm: %s", bytes, strata_errno_text(error));
}

/* Maps the file and closes its descriptor. */
static strata_status map(strata_shared *s, int fd, size_t bytes, strata_error *err) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const int error = errno;
    close(fd);
    if (memory == MAP_FAILED) return cannot(s, STRATA_UNAVAILABLE, bytes, error, err);
    s->memory = memory;
    s->bytes = bytes;
    return STRATA_OK;
}

strata_status strata_shared_make(strata_shared *s, size_t bytes, strata_error *err) {
    unsigned char random[16];
    char name[STRATA_SHARED_NAME] = "/strata-";
    *s = (strata_shared){0};
    if (RAND_bytes(random, sizeof random) != 1) return strata_fail(err, STRATA_INTERNAL, "OpenSSL has no random numbers");
    for (size_t i = 0; i < sizeof random; i++) snprintf(name + 8 + 2 * i, 3, "%02x", random[i]);
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) return cannot(s, STRATA_UNSUPPORTED, bytes, errno, err);
    memcpy(s->name, name, sizeof name);
    const int full = posix_fallocate(fd, 0, (off_t)bytes);
    if (!full) return map(s, fd, bytes, err);
    close(fd);
    return cannot(s, STRATA_UNSUPPORTED, bytes, full, err);
}

strata_status strata_shared_open(strata_shared *s, const char *name, size_t least_bytes, size_t most_bytes, strata_error *err) {
    struct stat is;
    *s = (strata_shared){0};
    const bool ours = !strncmp(name, "/strata-", 8) && !strchr(name + 1, '/');
    const int fd = ours ? shm_open(name, O_RDWR, 0) : -1;
    if (fd < 0) return cannot(s, STRATA_UNAVAILABLE, least_bytes, ours ? errno : EINVAL, err);
    const bool fits =
        !fstat(fd, &is) && S_ISREG(is.st_mode) && is.st_size >= (off_t)least_bytes && is.st_size <= (off_t)most_bytes;
    if (fits) return map(s, fd, (size_t)is.st_size, err);
    close(fd);
    return cannot(s, STRATA_UNAVAILABLE, least_bytes, EINVAL, err);
}

void strata_shared_hide(strata_shared *s) {
    if (s->name[0]) shm_unlink(s->name);
    s->name[0] = '\0';
}

void strata_shared_close(strata_shared *s) {
    strata_shared_hide(s);
    if (s->memory) munmap(s->memory, s->bytes);
    s->memory = NULL;
}
