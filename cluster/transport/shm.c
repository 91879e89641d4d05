/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory transport, for ranks on one host. Rank 0 creates a file in /dev/shm with a name that cannot be guessed, and
 * the others map it. When all have mapped it, its name is removed, so a killed job leaves nothing behind. A killed rank is
 * detected by its connection to the store. If rank 0 cannot create the file (a container's /dev/shm is often small), all ranks
 * fail with UNSUPPORTED, and may use another transport. */
#include <stdlib.h>
#include <string.h>

#include "cluster/memory/shared.h"
#include "cluster/transport/memory.h"

typedef struct shm {
    strata_shared shared;
    strata_memory *memory;
} shm;

static void close_links(strata_communicator *comm) {
    shm *s = comm->link;
    if (!s) return;
    strata_memory_destroy(s->memory);
    strata_shared_close(&s->shared);
    free(s);
    comm->link = NULL;
}

/* Creates the file and publishes its name: "" if there is too little memory, since the other ranks wait for it also then. */
static strata_status make(strata_communicator *comm, shm *s, size_t bytes, strata_error *err) {
    strata_error why = {0};
    const strata_status status = strata_shared_make(&s->shared, bytes, &why);
    if (status) strata_fail(err, status, "%s; choose the transport tcp", why.message);
    if (status && status != STRATA_UNSUPPORTED) return status;
    STRATA_TRY(strata_communicator_set_own(comm, "shm", 0, s->shared.name, sizeof s->shared.name, status ? NULL : err));
    return status;
}

static strata_status attach(strata_communicator *comm, shm *s, size_t bytes, strata_error *err) {
    char name[STRATA_SHARED_NAME];
    STRATA_TRY(strata_communicator_get_of(comm, "shm", 0, name, sizeof name, err));
    name[sizeof name - 1] = 0;
    if (!*name) return strata_fail(err, STRATA_UNSUPPORTED, "rank 0 cannot share %zu bytes of memory in /dev/shm", bytes);
    return strata_shared_open(&s->shared, name, bytes, bytes, err);
}

static strata_status open_links(strata_communicator *comm, strata_error *err) {
    shm *s = comm->link = calloc(1, sizeof *s);
    if (!s) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for links");
    const size_t bytes = strata_memory_region_bytes(comm->world);
    comm->segment_bytes = strata_memory_segment_bytes(comm->world);
    strata_status status = comm->rank ? attach(comm, s, bytes, err) : make(comm, s, bytes, err);
    if (!status)
        status = strata_memory_create(s->shared.memory, comm->rank, comm->world, strata_communicator_shares_cores(comm),
                                      &s->memory, err);
    if (status) close_links(comm);
    return status;
}

static void opened(strata_communicator *comm) {
    strata_shared_hide(&((shm *)comm->link)->shared);
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
