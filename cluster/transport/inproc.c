/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport for ranks that are threads of one process: rank 0 allocates the region, and the others get its address from the
 * store. */
#include "cluster/transport/memory.h"

typedef struct region {
    atomic_int references;
    void *bytes;
} region;

static void release(region *r) {
    if (r && atomic_fetch_sub(&r->references, 1) == 1) {
        free(r->bytes);
        free(r);
    }
}

static strata_status make_region(strata_communicator *comm, region **out_region, strata_error *err) {
    const size_t n_bytes = strata_memory_region_bytes(comm->world);
    region *r = *out_region = calloc(1, sizeof *r);
    if (r) r->references = 1;
    if (!r || posix_memalign(&r->bytes, 4096, n_bytes))
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory: %zu bytes for the messages of %d ranks", n_bytes,
                           comm->world);
    memset(r->bytes, 0, n_bytes);
    return strata_communicator_set_own(comm, "region", 0, &r, sizeof r, err);
}

static strata_status get_region(strata_communicator *comm, region **out_region, strata_error *err) {
    region *r;
    STRATA_TRY(strata_communicator_get_of(comm, "region", 0, &r, sizeof r, err));
    atomic_fetch_add(&r->references, 1);
    *out_region = r;
    return STRATA_OK;
}

static strata_status open_links(strata_communicator *comm, strata_error *err) {
    region *r = NULL;
    strata_status status = comm->rank ? get_region(comm, &r, err) : make_region(comm, &r, err);
    if (!status) status = strata_memory_open(comm, r->bytes, r, err);
    if (status) release(r);
    return status;
}

static void close_links(strata_communicator *comm) {
    release(strata_memory_close(comm));
}

const strata_transport strata_transport_inproc = {
    .name = "inproc",
    .shares_memory = true,
    .open = open_links,
    .close = close_links,
    .round = strata_memory_round,
};
