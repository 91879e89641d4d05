/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates a communicator of processes. Each process connects to the store and publishes its own description. Rank 0 waits for
 * all descriptions, and publishes the list of all of them for the other ranks. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/collective/algorithm.h"
#include "cluster/collective/table.h"
#include "cluster/communicator.h"
#include "cluster/wire/socket.h"
#include "core/base/clock.h"

/* LIST_SECONDS: how much longer the other ranks wait, so that rank 0 can report first which ranks are absent. */
static const double CONNECT_SECONDS = 60, LIST_SECONDS = 15;
enum { LISTED = 128 }; /* descriptions of ranks in one value of the store */

/* Sets the cores that this process may use. */
static void find_cores(strata_core_set *out) {
    *out = (strata_core_set){0};
    if (sched_getaffinity(0, sizeof *out, (cpu_set_t *)(void *)out)) out->bits[0] = 1;
}

bool strata_communicator_shares_cores(const strata_communicator *comm) {
    strata_core_set all;
    int n_ranks = 0, n_cores = 0;
    find_cores(&all); /* ranks that are threads have published none */
    for (int r = 0; r < comm->world; r++) {
        if (strcmp(comm->peers[r].machine, comm->peers[comm->rank].machine)) continue;
        for (size_t i = 0; i < sizeof all.bits / sizeof *all.bits; i++) all.bits[i] |= comm->peers[r].cores.bits[i];
        n_ranks++;
    }
    for (size_t i = 0; i < sizeof all.bits / sizeof *all.bits; i++) n_cores += __builtin_popcountll(all.bits[i]);
    return n_ranks > n_cores;
}

int strata_communicator_ranks_here(const strata_communicator *comm) {
    int n = 0;
    for (int r = 0; r < comm->world; r++) n += !strcmp(comm->peers[r].machine, comm->peers[comm->rank].machine);
    return n;
}

/* A text that is equal for processes that can share memory: it consists of the kernel's boot id, its /dev/shm and the user. */
static void describe_machine(char out[STRATA_HOST_BYTES]) {
    char boot[40] = "";
    struct stat shm = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(boot, 37, file)) boot[0] = 0;
    if (file) fclose(file);
    if (stat("/dev/shm", &shm)) shm.st_ino = 0;
    snprintf(out, STRATA_HOST_BYTES, "%.8s%.27s %lx %lx %x", boot, boot + 9, (unsigned long)shm.st_dev & 0xffff,
             (unsigned long)shm.st_ino & 0xffff, (unsigned)geteuid() & 0xffff);
}

/* ---- options ---- */

static strata_status check(const strata_communicator_options *o, strata_error *err) {
    char host[256], port[8], names[64] = "";
    bool known = !o->transport;
    if (o->world < 1 || o->rank < 0 || o->rank >= o->world)
        return strata_fail(err, STRATA_INVALID, "rank %d of %d: a rank is 0 to world - 1", o->rank, o->world);
    for (int i = 0; strata_transport_names[i]; i++) {
        const size_t used = strlen(names);
        known = known || !strcmp(o->transport, strata_transport_names[i]);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", strata_transport_names[i]);
    }
    if (!known) return strata_fail(err, STRATA_INVALID, "\"%s\" is no transport; there are %s", o->transport, names);
    if (o->engine && strcmp(o->engine, "builtin") != 0 && strcmp(o->engine, "mpi") != 0)
        return strata_fail(err, STRATA_INVALID, "\"%s\" is no engine; there are builtin and mpi", o->engine);
    if (o->engine && !strcmp(o->engine, "mpi") && o->transport && strcmp(o->transport, "auto") != 0)
        return strata_fail(err, STRATA_INVALID, "transport %s with the engine mpi, which has its own", o->transport);
    if (o->interface) STRATA_TRY(strata_interface_address(o->interface, host, err));
    return strata_address_split(o->store, host, port, err);
}

/* ---- meeting ---- */

static bool by_mpi(const strata_communicator_options *opts) {
    return opts->engine && !strcmp(opts->engine, "mpi");
}

static strata_status tell_about_self(strata_communicator *comm, const strata_communicator_options *opts, const char *address,
                                     strata_error *err) {
    strata_peer self = {.job_rank = comm->rank, .pid = getpid()};
    gethostname(self.host, sizeof self.host - 1);
    describe_machine(self.machine);
    find_cores(&self.cores);
    snprintf(self.address, sizeof self.address, "%s", address);
    snprintf(self.transport, sizeof self.transport, "%s",
             by_mpi(opts)      ? "engine mpi"
             : opts->transport ? opts->transport
                               : "auto");
    snprintf(self.algorithm, sizeof self.algorithm, "%s", opts->algorithm ? opts->algorithm : "auto");
    comm->peers[comm->rank] = self;
    return strata_communicator_set_own(comm, "peer", comm->rank, &self, sizeof self, err);
}

/* The texts come from other processes, so each of them is terminated here. */
static void end_texts(strata_peer *p) {
    p->host[sizeof p->host - 1] = p->machine[sizeof p->machine - 1] = p->address[sizeof p->address - 1] = 0;
    p->transport[sizeof p->transport - 1] = p->algorithm[sizeof p->algorithm - 1] = 0;
}

/* Compares a rank's options with those of rank 0. With other transports the ranks would wait for each other. */
static strata_status compare_options(strata_communicator *comm, int r, strata_error *err) {
    const strata_peer *first = &comm->peers[0], *other = &comm->peers[r];
    const bool transports = strcmp(first->transport, other->transport) != 0;
    if (!transports && !strcmp(first->algorithm, other->algorithm)) return STRATA_OK;
    return strata_communicator_fail(comm, NULL, STRATA_INVALID, err,
                                    "the %s is %s on %s and %s on %s; give all ranks the same (%s)",
                                    transports ? "transport" : "algorithm", transports ? other->transport : other->algorithm,
                                    strata_peer_text(comm, r).text, transports ? first->transport : first->algorithm,
                                    strata_peer_text(comm, 0).text, transports ? "--transport, --engine" : "--algorithm");
}

/* Rank 0 waits for the descriptions of all ranks, and compares their options with its own. If some are absent, the call fails
 * with a verdict that lists them. */
static strata_status wait_for_all(strata_communicator *comm, double seconds, strata_error *err) {
    strata_patience patience = strata_patience_of(seconds);
    char absent[200] = "";
    int n_absent = 0;
    for (int r = 0; r < comm->world; r++) {
        strata_status status;
        do {
            const double left = strata_patience_left(&patience);
            comm->connect_seconds = left > STRATA_PATIENCE_TICK ? STRATA_PATIENCE_TICK : left > 0 ? left : 0;
            status = strata_communicator_get_of(comm, "peer", r, &comm->peers[r], sizeof comm->peers[r], err);
        } while (status == STRATA_TIMEOUT && patience.left > 0 && !strata_seat_failed(comm->seat));
        if (status && strata_seat_failed(comm->seat)) return status;
        end_texts(&comm->peers[r]);
        if (!status) status = compare_options(comm, r, err);
        if (!status) continue;
        if (status != STRATA_TIMEOUT) return status;
        const size_t used = strlen(absent);
        if (n_absent++ < 20) snprintf(absent + used, sizeof absent - used, "%s%d", used ? ", " : "", r);
    }
    comm->connect_seconds = seconds;
    if (!n_absent) return STRATA_OK;
    return strata_communicator_fail(comm, NULL, STRATA_TIMEOUT, err, "%d of %d ranks did not come within %g s: rank%s %s%s%s",
                                    n_absent, comm->world, seconds, n_absent > 1 ? "s" : "", absent,
                                    n_absent > 20 ? ", ..." : "", strata_member_refused(comm->member).text);
}

/* Fills comm->peers on every rank. */
static strata_status meet(strata_communicator *comm, strata_error *err) {
    const double seconds = comm->connect_seconds;
    strata_status status = STRATA_OK;
    if (comm->rank == 0)
        status = wait_for_all(comm, seconds, err);
    else
        comm->connect_seconds = seconds + LIST_SECONDS;
    for (int first = 0; first < comm->world && !status; first += LISTED) {
        const size_t n = (size_t)(comm->world - first < LISTED ? comm->world - first : LISTED) * sizeof *comm->peers;
        status = comm->rank == 0 ? strata_communicator_set_own(comm, "peers", first, &comm->peers[first], n, err)
                                 : strata_communicator_get_of(comm, "peers", first, &comm->peers[first], n, err);
    }
    for (int r = 0; r < comm->world; r++) end_texts(&comm->peers[r]);
    comm->connect_seconds = seconds;
    return status;
}

static strata_status open_links(strata_communicator *comm, const char *wanted, const char *table, strata_error *err) {
    const bool together = strata_communicator_ranks_here(comm) == comm->world;
    comm->several_hosts = !together;
    const bool chosen = !wanted || !strcmp(wanted, "auto");
    comm->transport = chosen ? strata_transport_next(NULL, !together) : strata_transport_find(wanted);
    if (comm->transport->shares_memory && !together)
        return strata_fail(err, STRATA_INVALID, "the transport %s is for ranks of one host and user; these are on several",
                           comm->transport->name);
    strata_status status = comm->transport->open(comm, err);
    while (status == STRATA_UNSUPPORTED && chosen) {
        const strata_transport *next = strata_transport_next(comm->transport, !together);
        if (!next) break;
        comm->transport = next;
        status = next->open(comm, err);
    }
    STRATA_TRY(status);
    STRATA_TRY(strata_communicator_barrier(comm, err));
    if (comm->transport->opened) comm->transport->opened(comm);
    STRATA_TRY(strata_table_share(comm, table, err));
    comm->sequence = 0; /* only collectives of the user are counted */
    return STRATA_OK;
}

strata_status strata_communicator_create(const strata_communicator_options *opts, strata_communicator **out_comm,
                                         strata_error *err) {
    strata_communicator_options o = *opts;
    char address[STRATA_ADDRESS_BYTES];
    strata_member *member;
    int algorithm;
    *out_comm = NULL;
    if (!o.world) o.world = 1;
    if (o.world == 1 && !o.store) return strata_communicator_create_local(1, &o, out_comm, err);
    if (!(o.connect_seconds > 0)) o.connect_seconds = CONNECT_SECONDS;
    STRATA_TRY(check(&o, err));
    /* All wrong options are reported before another rank begins to wait for this one. */
    STRATA_TRY(strata_algorithm_find(o.algorithm, &algorithm, err));
    if (by_mpi(&o)) STRATA_TRY(strata_mpi_find(err));
    STRATA_TRY(strata_member_create_remote(&o, &member, address, err));
    strata_status status = strata_communicator_allocate(o.rank, o.world, NULL, member, out_comm, err);
    strata_member_release(member);
    STRATA_TRY(status);
    strata_communicator *comm = *out_comm;
    strcpy(comm->names.own, "0");
    strcpy(comm->names.base, "0");
    strata_error why = {0};
    status = strata_communicator_set_options(comm, &o, &why);
    if (!status) status = tell_about_self(comm, &o, address, &why);
    if (!status) status = meet(comm, &why);
    if (!status && comm->rank) strata_member_set_rank0_name(comm->member, strata_peer_text(comm, 0).text);
    if (!status) status = open_links(comm, by_mpi(&o) ? "mpi" : o.transport, o.table, &why);
    if (!status) return STRATA_OK;
    status = strata_communicator_give_up(comm, status, &why);
    strata_communicator_destroy(comm);
    *out_comm = NULL;
    return strata_fail(err, status, "%s", why.message);
}
