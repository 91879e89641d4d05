/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory transport, for ranks on one host. Rank 0 creates a file in /dev/shm with a name that cannot be guessed, and
 * the others map it. When all have mapped it, its name is removed, so a killed job leaves nothing behind. A killed rank is
 * detected by its connection to the store. If rank 0 cannot create the file (a container's /dev/shm is often small), all ranks
 * fail with UNSUPPORTED, and may use another transport. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cluster/transport/memory.h"
#include "core/base/locale.h"

typedef struct shm {
    char name[48];
    void *region;
    size_t n_bytes;
    strata_memory *memory;
} shm;

static void close_links(strata_communicator *comm) {
    shm *s = comm->link;
    if (!s) return;
    strata_memory_destroy(s->memory);
    if (s->region) munmap(s->region, s->n_bytes);
    if (comm->rank == 0 && s->name[0]) shm_unlink(s->name);
    free(s);
    comm->link = NULL;
}

static strata_status map(shm *s, int fd, strata_error *err) {
    void *region = fd < 0 ? MAP_FAILED : mmap(NULL, s->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (region == MAP_FAILED)
        return strata_fail(err, STRATA_UNAVAILABLE,
                           "cannot share %zu bytes of memory in /dev/shm: %s; choose the transport tcp", s->n_bytes,
                           strata_errno_text(errno));
    s->region = region;
    return STRATA_OK;
}

static const char no_name[sizeof((shm *)0)->name] = "";

/* Creates the file. Memory is reserved now, since otherwise the first access without memory would raise a signal. */
static strata_status make(strata_communicator *comm, shm *s, strata_error *err) {
    unsigned char random[16];
    char name[sizeof s->name] = "/strata-";
    if (RAND_bytes(random, sizeof random) != 1) return strata_fail(err, STRATA_INTERNAL, "OpenSSL has no random numbers");
    for (size_t i = 0; i < sizeof random; i++) snprintf(name + 8 + 2 * i, 3, "%02x", random[i]);
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) memcpy(s->name, name, sizeof name);
    const int full = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)s->n_bytes);
    strata_status status = STRATA_OK;
    if (full)
        status =
            strata_fail(err, STRATA_UNSUPPORTED, "cannot share %zu bytes of memory in /dev/shm: %s; choose the transport tcp",
                        s->n_bytes, strata_errno_text(full));
    if (!status) status = map(s, fd, err);
    if (fd >= 0) close(fd);
    if (status && status != STRATA_UNSUPPORTED) return status;
    const char *told = status ? no_name : s->name; /* the other ranks wait for the name, also after a failure */
    STRATA_TRY(strata_communicator_set_own(comm, "shm", 0, told, sizeof s->name, status ? NULL : err));
    return status;
}

static strata_status attach(strata_communicator *comm, shm *s, strata_error *err) {
    char name[sizeof s->name];
    STRATA_TRY(strata_communicator_get_of(comm, "shm", 0, name, sizeof name, err));
    name[sizeof name - 1] = 0;
    if (!*name) return strata_fail(err, STRATA_UNSUPPORTED, "rank 0 cannot share %zu bytes of memory in /dev/shm", s->n_bytes);
    const int fd = shm_open(name, O_RDWR, 0);
    strata_status status = map(s, fd, err);
    if (fd >= 0) close(fd);
    return status;
}

static strata_status open_links(strata_communicator *comm, strata_error *err) {
    shm *s = comm->link = calloc(1, sizeof *s);
    if (!s) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for links");
    s->n_bytes = strata_memory_region_bytes(comm->world);
    comm->segment_bytes = strata_memory_segment_bytes(comm->world);
    strata_status status = comm->rank ? attach(comm, s, err) : make(comm, s, err);
    if (!status)
        status =
            strata_memory_create(s->region, comm->rank, comm->world, strata_communicator_ranks_here(comm), &s->memory, err);
    if (status) close_links(comm);
    return status;
}

static void opened(strata_communicator *comm) {
    shm *s = comm->link;
    if (comm->rank == 0) shm_unlink(s->name);
    s->name[0] = 0;
}

static strata_status exchange(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                              strata_receive *receives, int n_receives, strata_error *err) {
    return strata_memory_exchange(((shm *)comm->link)->memory, comm, call, sends, n_sends, receives, n_receives, err);
}

const strata_transport strata_transport_shm = {
    .name = "shm",
    .shares_memory = true,
    .automatic = true,
    .open = open_links,
    .opened = opened,
    .close = close_links,
    .exchange = exchange,
};
