/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared-memory transport, for ranks on one host. Rank 0 creates a file in /dev/shm with a name that cannot be guessed, and
 * the others map it. When all have mapped it, its name is removed, so a killed job leaves nothing behind. A killed rank is
 * detected by its connection to the store. If rank 0 cannot create the file (a container's /dev/shm is often small), all ranks
 * fail with UNSUPPORTED, and may use another transport. */
#include "cluster/memory/shared.h"
#include "cluster/transport/memory.h"

/* Creates the file and publishes its name: "" if there is too little memory, since the other ranks wait for it also then. */
static strata_status make(strata_communicator *comm, strata_shared *s, size_t bytes, strata_error *err) {
    strata_error why = {0};
    const strata_status status = strata_shared_make(s, bytes, &why);
    if (status) strata_fail(err, status, "%s; choose the transport tcp", why.message);
    if (status && status != STRATA_UNSUPPORTED) return status;
    STRATA_TRY(strata_communicator_set_own(comm, "shm", 0, s->name, sizeof s->name, status ? NULL : err));
    return status;
}

static strata_status attach(strata_communicator *comm, strata_shared *s, size_t bytes, strata_error *err) {
    char name[STRATA_SHARED_NAME];
    STRATA_TRY(strata_communicator_get_of(comm, "shm", 0, name, sizeof name, err));
    name[sizeof name - 1] = 0;
    if (!*name) return strata_fail(err, STRATA_UNSUPPORTED, "rank 0 cannot share %zu bytes of memory in /dev/shm", bytes);
    return strata_shared_open(s, name, bytes, bytes, err);
}

static void release(strata_shared *s) {
    strata_shared_close(s);
    free(s);
}

static strata_status open_links(strata_communicator *comm, strata_error *err) {
    strata_shared *s = calloc(1, sizeof *s);
    if (!s) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for links");
    const size_t bytes = strata_memory_region_bytes(comm->world);
    strata_status status = comm->rank ? attach(comm, s, bytes, err) : make(comm, s, bytes, err);
    if (!status) status = strata_memory_open(comm, s->memory, s, err);
    if (status) release(s);
    return status;
}

static void opened(strata_communicator *comm) {
    strata_shared_hide(strata_memory_owner(comm));
}

static void close_links(strata_communicator *comm) {
    release(strata_memory_close(comm));
}

const strata_transport strata_transport_shm = {
    .name = "shm",
    .shares_memory = true,
    .automatic = true,
    .open = open_links,
    .opened = opened,
    .close = close_links,
    .round = strata_memory_round,
};
