/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport for ranks that are threads of one process: rank 0 allocates the region, and the others get its address from the
 * store. */
#include <stdlib.h>
#include <string.h>

#include "cluster/transport/memory.h"

typedef struct region {
    atomic_int references;
    void *bytes;
} region;

typedef struct inproc {
    region *region;
    strata_memory *memory;
} inproc;

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

static void close_links(strata_communicator *comm) {
    inproc *link = comm->link;
    if (!link) return;
    strata_memory_destroy(link->memory);
    release(link->region);
    free(link);
    comm->link = NULL;
}

static strata_status open_links(strata_communicator *comm, strata_error *err) {
    inproc *link = comm->link = calloc(1, sizeof *link);
    strata_status status = link ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for links");
    if (!status && comm->rank == 0) status = make_region(comm, &link->region, err);
    if (!status && comm->rank) {
        status = strata_communicator_get_of(comm, "region", 0, &link->region, sizeof link->region, err);
        if (!status) atomic_fetch_add(&link->region->references, 1);
    }
    if (!status)
        status = strata_memory_create(link->region->bytes, comm->rank, comm->world, strata_communicator_shares_cores(comm),
                                      &link->memory, err);
    comm->segment_bytes = strata_memory_segment_bytes(comm->world);
    if (status) close_links(comm);
    return status;
}

static strata_status exchange(strata_communicator *comm, const strata_call *call, const strata_send *sends, int n_sends,
                              strata_receive *receives, int n_receives, strata_error *err) {
    return strata_memory_exchange(((inproc *)comm->link)->memory, comm, call, sends, n_sends, receives, n_receives, err);
}

const strata_transport strata_transport_inproc = {
    .name = "inproc",
    .shares_memory = true,
    .open = open_links,
    .close = close_links,
    .exchange = exchange,
};
