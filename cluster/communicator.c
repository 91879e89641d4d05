/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators: creating, splitting, shrinking and destroying them, their keys in the store, and error messages. The
 * collectives are in collective/. */
#include "cluster/communicator.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cluster/collective/algorithm.h"
#include "cluster/collective/table.h"
#include "cluster/subset.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/locale.h"
#include "strata/sha256.h"

static const double CONNECT_SECONDS = 60, STALL_SECONDS = 300;

/* ---- messages ---- */

strata_peer_string strata_peer_text(const strata_communicator *comm, int rank) {
    strata_peer_string s;
    const strata_peer *peer = &comm->peers[rank];
    snprintf(s.text, sizeof s.text, "rank %d (host %s, process %d)", peer->job_rank, peer->host, peer->pid);
    return s;
}

strata_status strata_communicator_fail(strata_communicator *comm, const strata_call *call, strata_status status,
                                       strata_error *err, const char *format, ...) {
    char text[STRATA_ERROR_MESSAGE_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    strata_format_v(text, sizeof text, format, arguments);
    va_end(arguments);
    char whole[STRATA_ERROR_MESSAGE_BYTES];
    if (call)
        snprintf(whole, sizeof whole, "%s%s: %s", strata_call_text(call).text, strata_member_step(comm->member).text, text);
    else
        snprintf(whole, sizeof whole, "%s", text);
    return comm->member->report(comm->member, comm->seat, status, whole, err);
}

strata_status strata_communicator_give_up(strata_communicator *comm, strata_status status, strata_error *err) {
    if (strata_seat_failed(comm->seat)) return strata_seat_verdict(comm->seat, err);
    /* the other ranks do not know this communicator yet */
    if (comm->seat->communicator == STRATA_NO_COMMUNICATOR) return status;
    return strata_communicator_fail(comm, NULL, status, err, "%s could not connect to the others: %s",
                                    strata_peer_text(comm, comm->rank).text, err->message);
}

strata_status strata_communicator_check(strata_communicator *comm, const strata_call *mine, int peer, const strata_call *theirs,
                                        size_t bytes, size_t wanted, strata_error *err) {
    if (!memcmp(theirs, mine, sizeof *mine))
        return bytes == wanted ? STRATA_OK
                               : strata_communicator_fail(comm, mine, STRATA_INTERNAL, err,
                                                          "a message of %s has %zu bytes; it should have %zu",
                                                          strata_peer_text(comm, peer).text, bytes, wanted);
    return strata_communicator_fail(
        comm, NULL, STRATA_INVALID, err,
        "the ranks call different things: %s calls %s, and %s calls %s%s; all must call the same collectives, with the same "
        "arguments, in the same order",
        strata_peer_text(comm, comm->rank).text, strata_call_text(mine).text, strata_peer_text(comm, peer).text,
        strata_call_text(theirs).text,
        mine->algorithm != theirs->algorithm && mine->kind == theirs->kind ? " (by another algorithm)" : "");
}

strata_status strata_communicator_stalled(strata_communicator *comm, const strata_call *call, const strata_receive *receives,
                                          int n_receives, strata_error *err) {
    for (int i = 0; i < n_receives; i++)
        if (!receives[i].view)
            return strata_communicator_fail(comm, call, STRATA_TIMEOUT, err, "no progress for %g s: %s sends nothing",
                                            comm->stall_seconds, strata_peer_text(comm, receives[i].peer).text);
    return strata_communicator_fail(comm, call, STRATA_TIMEOUT, err, "no progress for %g s: nobody takes what this rank sends",
                                    comm->stall_seconds);
}

/* ---- keys ---- */

static strata_status key_of(const strata_communicator *comm, const char *what, int rank, char out_key[STRATA_STORE_KEY_BYTES],
                            strata_error *err) {
    const int n = snprintf(out_key, STRATA_STORE_KEY_BYTES, "strata/%s/%s/%d", comm->names.own, what, rank);
    return n < STRATA_STORE_KEY_BYTES ? STRATA_OK : strata_fail(err, STRATA_INVALID, "communicators are split too often");
}

strata_status strata_communicator_set_own(strata_communicator *comm, const char *what, int rank, const void *value,
                                          size_t n_bytes, strata_error *err) {
    char key[STRATA_STORE_KEY_BYTES];
    STRATA_TRY(key_of(comm, what, rank, key, err));
    return strata_communicator_set(comm, key, value, n_bytes, err);
}

strata_status strata_communicator_get_of(strata_communicator *comm, const char *what, int rank, void *out_value, size_t n_bytes,
                                         strata_error *err) {
    char key[STRATA_STORE_KEY_BYTES];
    STRATA_FREED void *value = NULL;
    size_t n = 0;
    STRATA_TRY(key_of(comm, what, rank, key, err));
    const strata_status status = strata_communicator_get(comm, key, comm->connect_seconds, &value, &n, err);
    if (status == STRATA_TIMEOUT && !strata_seat_failed(comm->seat))
        return strata_fail(err, status, "rank %d of %d did not come within %g s", rank, comm->world, comm->connect_seconds);
    if (status) return status;
    if (n != n_bytes)
        return strata_fail(err, STRATA_INVALID, "key \"%s\" has %zu bytes, not %zu: the ranks run different versions", key, n,
                           n_bytes);
    memcpy(out_value, value, n);
    return STRATA_OK;
}

/* out_number: for requests whose reply is a number, else NULL. Without a seat the request is sent although the communicator has
 * failed: the store still works then. */
static strata_status ask(strata_communicator *comm, bool seat, const strata_store_request *request, int64_t *out_number,
                         strata_error *err) {
    STRATA_FINISHED(strata_store_reply) reply = {0};
    if (seat) STRATA_TRY(strata_seat_verdict(comm->seat, err));
    STRATA_TRY(comm->member->store(comm->member, seat ? comm->seat : NULL, request, comm->connect_seconds, &reply, err));
    if (out_number && reply.n_value != sizeof *out_number)
        return strata_fail(err, STRATA_DATA, "the store replied with %zu bytes, not with a number", reply.n_value);
    if (out_number) memcpy(out_number, reply.value, sizeof *out_number);
    return STRATA_OK;
}

strata_status strata_communicator_set(strata_communicator *comm, const char *key, const void *value, size_t n_bytes,
                                      strata_error *err) {
    const strata_store_request request = {.op = STRATA_STORE_SET, .key = key, .value = value, .n_value = n_bytes};
    return ask(comm, true, &request, NULL, err);
}

strata_status strata_communicator_get(strata_communicator *comm, const char *key, double seconds, void **out_value,
                                      size_t *out_n_bytes, strata_error *err) {
    strata_store_reply reply;
    const strata_store_request request = {.op = STRATA_STORE_GET, .key = key};
    *out_value = NULL;
    *out_n_bytes = 0;
    STRATA_TRY(strata_seat_verdict(comm->seat, err));
    STRATA_TRY(comm->member->store(comm->member, comm->seat, &request, seconds, &reply, err));
    *out_value = reply.value;
    *out_n_bytes = reply.n_value;
    return STRATA_OK;
}

strata_status strata_communicator_add(strata_communicator *comm, const char *key, int64_t amount, int64_t *out_sum,
                                      strata_error *err) {
    const strata_store_request request = {.op = STRATA_STORE_ADD, .key = key, .amount = amount};
    return ask(comm, true, &request, out_sum, err);
}

strata_status strata_communicator_compare_and_set(strata_communicator *comm, const char *key, const void *expected,
                                                  size_t n_expected, const void *value, size_t n_bytes, bool *out_swapped,
                                                  strata_error *err) {
    int64_t swapped = 0;
    const strata_store_request request = {.op = STRATA_STORE_SWAP,
                                          .key = key,
                                          .value = value,
                                          .n_value = n_bytes,
                                          .expected = expected,
                                          .n_expected = n_expected};
    STRATA_TRY(ask(comm, true, &request, &swapped, err));
    *out_swapped = swapped != 0;
    return STRATA_OK;
}

/* ---- creating and destroying ---- */

static void *at_least(const strata_communicator *comm, size_t n_bytes, void **memory, size_t *memory_bytes, strata_error *err) {
    if (n_bytes <= *memory_bytes) return *memory;
    void *bytes = NULL;
    if (posix_memalign(&bytes, 64, n_bytes)) {
        strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory: %zu bytes for a collective of %d ranks", n_bytes, comm->world);
        return NULL;
    }
    free(*memory);
    *memory = bytes;
    *memory_bytes = n_bytes;
    return bytes;
}

void *strata_communicator_scratch(strata_communicator *comm, size_t n_bytes, strata_error *err) {
    return at_least(comm, n_bytes, &comm->scratch.memory, &comm->scratch.bytes, err);
}

void *strata_communicator_narrow(strata_communicator *comm, size_t n_bytes, strata_error *err) {
    return at_least(comm, n_bytes, &comm->scratch.narrow, &comm->scratch.narrow_bytes, err);
}

/* The communicator of a channel's members. */
typedef struct strata_subset {
    struct strata_subset *next;
    strata_communicator *comm;
    int n_members;
    int64_t members[];
} subset;

void strata_communicator_destroy(strata_communicator *comm) {
    if (!comm) return;
    while (comm->subsets) {
        subset *first = comm->subsets;
        comm->subsets = first->next;
        strata_communicator_destroy(first->comm);
        free(first);
    }
    strata_requests_finish(comm);
    if (comm->link) comm->transport->close(comm);
    strata_seat_destroy(comm->seat);
    strata_member_release(comm->member);
    pthread_cond_destroy(&comm->requests.changed);
    pthread_mutex_destroy(&comm->requests.lock);
    free(comm->table);
    free(comm->scratch.memory);
    free(comm->scratch.narrow);
    strata_memory_finish(&comm->arrays);
    free(comm);
}

strata_status strata_communicator_allocate(int rank, int world, const int *job_ranks, strata_member *member,
                                           strata_communicator **out_comm, strata_error *err) {
    strata_communicator *comm = *out_comm = calloc(1, sizeof *comm);
    if (!comm) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a communicator");
    pthread_mutex_init(&comm->requests.lock, NULL);
    strata_clock_cond_init(&comm->requests.changed);
    comm->rank = rank;
    comm->world = world;
    comm->member = strata_member_retain(member);
    comm->algorithm = -1;
    comm->peers = strata_memory_take(&comm->arrays, world, sizeof *comm->peers);
    comm->scratch.sends = strata_memory_take(&comm->arrays, (int64_t)world * 2 + 2, sizeof *comm->scratch.sends);
    comm->scratch.receives = strata_memory_take(&comm->arrays, (int64_t)world * 2 + 2, sizeof *comm->scratch.receives);
    comm->scratch.spans = strata_memory_take(&comm->arrays, (int64_t)world * 2, sizeof *comm->scratch.spans);
    strata_status status = STRATA_OK;
    if (comm->arrays.failed)
        status = strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a communicator of %d ranks", world);
    else
        status = strata_seat_create(member->roster, job_ranks ? STRATA_NO_COMMUNICATOR : 0, rank, world, job_ranks, &comm->seat,
                                    err);
    if (!status) return STRATA_OK;
    strata_communicator_destroy(comm);
    *out_comm = NULL;
    return status;
}

strata_status strata_communicator_set_options(strata_communicator *comm, const strata_communicator_options *opts,
                                              strata_error *err) {
    /* STRATA_ZERO has a sign, too. */
    if (signbit(opts->connect_seconds) || signbit(opts->heartbeat_seconds) || signbit(opts->stall_seconds))
        return strata_fail(err, STRATA_INVALID,
                           "connect_seconds is %g, heartbeat_seconds %g, stall_seconds %g; each must be above 0, or left out",
                           opts->connect_seconds, opts->heartbeat_seconds, opts->stall_seconds);
    comm->connect_seconds = opts->connect_seconds > 0 ? opts->connect_seconds : CONNECT_SECONDS;
    comm->stall_seconds = opts->stall_seconds > 0 ? opts->stall_seconds : STALL_SECONDS;
    return strata_algorithm_find(opts->algorithm, &comm->algorithm, err);
}

strata_status strata_communicator_create_local(int world, const strata_communicator_options *opts,
                                               strata_communicator **out_comms, strata_error *err) {
    const strata_communicator_options defaults = {0};
    if (world < 1) return strata_fail(err, STRATA_INVALID, "world is %d; it must be at least 1", world);
    memset(out_comms, 0, (size_t)world * sizeof *out_comms);
    STRATA_FREED strata_member **members = NULL;
    STRATA_TRY(STRATA_NEW(members, world, err, "no memory for %d ranks", world));
    strata_status status = strata_member_create_local(world, members, err);
    for (int r = 0; r < world && !status; r++) {
        status = strata_communicator_allocate(r, world, NULL, members[r], &out_comms[r], err);
        if (status) break;
        strata_communicator *comm = out_comms[r];
        strcpy(comm->names.own, "0");
        strcpy(comm->names.base, "0");
        for (int p = 0; p < world; p++) comm->peers[p] = (strata_peer){.job_rank = p, .pid = getpid(), .host = "local"};
        comm->transport = &strata_transport_inproc;
        status = strata_communicator_set_options(comm, opts ? opts : &defaults, err);
        if (!status) status = comm->transport->open(comm, err);
    }
    for (int r = 0; r < world; r++) strata_member_release(members[r]);
    for (int r = 0; r < world && status; r++) {
        strata_communicator_destroy(out_comms[r]);
        out_comms[r] = NULL;
    }
    return status;
}

/* ---- splitting ---- */

typedef struct choice {
    int32_t color, key;
} choice;

/* Lists the child's ranks in the order of key and rank, and returns their number. *out_rank: this rank's position among
 * them. */
static int list_group(const strata_communicator *comm, const choice *choices, int *ranks, int *out_rank) {
    int n = 0;
    for (int r = 0; r < comm->world; r++) {
        if (choices[r].color != choices[comm->rank].color) continue;
        int at = n++;
        for (; at > 0 && choices[ranks[at - 1]].key > choices[r].key; at--) ranks[at] = ranks[at - 1];
        ranks[at] = r;
    }
    for (int i = 0; i < n; i++)
        if (ranks[i] == comm->rank) *out_rank = i;
    return n;
}

/* Gives the communicator its id: its lowest rank gets a new id from the store, and the others read it. */
static strata_status assign_id(strata_communicator *child, strata_error *err) {
    int64_t id;
    if (child->rank == 0) {
        STRATA_TRY(strata_communicator_add(child, "strata/communicators", 1, &id, err));
        child->id = (uint32_t)id;
        STRATA_TRY(strata_communicator_set_own(child, "id", 0, &child->id, sizeof child->id, err));
    } else {
        STRATA_TRY(strata_communicator_get_of(child, "id", 0, &child->id, sizeof child->id, err));
    }
    strata_seat_set_communicator(child->seat, child->id);
    return STRATA_OK;
}

/* ranks: the child's ranks as ranks of `comm`, in the child's order. */
static strata_status make_child(strata_communicator *comm, const char *name, strata_communicator *child, const int *ranks,
                                strata_error *err) {
    if (strlen(name) >= sizeof child->names.own) return strata_fail(err, STRATA_INVALID, "communicators are split too often");
    strcpy(child->names.own, name);
    strcpy(child->names.base, name);
    child->algorithm = comm->algorithm;
    if (comm->table) {
        child->table = malloc(sizeof *child->table);
        if (!child->table) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a table of algorithms");
        *child->table = *comm->table;
    }
    child->connect_seconds = comm->connect_seconds;
    child->stall_seconds = comm->stall_seconds;
    for (int i = 0; i < child->world; i++) child->peers[i] = comm->peers[ranks[i]];
    child->several_hosts = strata_communicator_ranks_here(child) < child->world;
    child->transport = comm->transport;
    STRATA_TRY(assign_id(child, err));
    STRATA_TRY(child->transport->open(child, err));
    STRATA_TRY(strata_communicator_barrier(child, err));
    if (child->transport->opened) child->transport->opened(child);
    child->sequence = 0; /* only collectives of the user are counted */
    return STRATA_OK;
}

/* Creates a communicator of n ranks of `comm`; `rank` is this rank's position among them. All of these ranks call it. */
static strata_status create_child(strata_communicator *comm, const char *name, int rank, const int *ranks, int n,
                                  strata_communicator **out_comm, strata_error *err) {
    STRATA_FREED int *job_ranks = NULL;
    STRATA_TRY(STRATA_NEW(job_ranks, n, err, "no memory for a communicator of %d ranks", n));
    for (int i = 0; i < n; i++) job_ranks[i] = comm->peers[ranks[i]].job_rank;
    STRATA_TRY(strata_communicator_allocate(rank, n, job_ranks, comm->member, out_comm, err));
    strata_error why = {0};
    strata_status status = make_child(comm, name, *out_comm, ranks, &why);
    if (!status) return STRATA_OK;
    status = strata_communicator_give_up(*out_comm, status, &why);
    strata_communicator_destroy(*out_comm);
    *out_comm = NULL;
    return strata_fail(err, status, "%s", why.message);
}

strata_status strata_communicator_split(strata_communicator *comm, int color, int key, strata_communicator **out_comm,
                                        strata_error *err) {
    *out_comm = NULL;
    const size_t world = (size_t)comm->world;
    STRATA_FREED choice *choices = malloc(world * (sizeof *choices + sizeof(int)));
    if (!choices) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory to split %d ranks", comm->world);
    char name[2 * sizeof comm->names.own];
    int *ranks = (int *)(choices + world), rank = 0;
    snprintf(name, sizeof name, "%s/%d.%d", comm->names.own, comm->names.splits++, color);
    choices[comm->rank] = (choice){color, key};
    STRATA_TRY(strata_communicator_all_gather(comm, NULL, choices, sizeof *choices, NULL, STRATA_DTYPE_U8, err));
    if (color < 0) return STRATA_OK;
    const int n = list_group(comm, choices, ranks, &rank);
    return create_child(comm, name, rank, ranks, n, out_comm, err);
}

static strata_status make_subset(strata_communicator *comm, const int *ranks, int n, subset *made, strata_error *err) {
    char hash[STRATA_SHA256_TEXT_BYTES], name[sizeof comm->names.own + 40];
    int rank = 0;
    while (rank < n && ranks[rank] != comm->rank) rank++;
    if (rank == n) return strata_fail(err, STRATA_INVALID, "rank %d is not among the %d ranks", comm->rank, n);
    STRATA_TRY(strata_sha256_of(made->members, (size_t)made->n_members * sizeof *made->members, hash, err));
    snprintf(name, sizeof name, "%s/%.32s", comm->names.own, hash);
    return create_child(comm, name, rank, ranks, n, &made->comm, err);
}

strata_status strata_communicator_subset(strata_communicator *comm, const int *ranks, int n, const int64_t *members,
                                         int n_members, strata_communicator **out_subset, strata_error *err) {
    const size_t bytes = (size_t)n_members * sizeof *members;
    for (subset *s = comm->subsets; s; s = s->next)
        if (s->n_members == n_members && !memcmp(s->members, members, bytes)) {
            *out_subset = s->comm;
            return STRATA_OK;
        }
    subset *made = calloc(1, sizeof *made + bytes);
    if (!made) return strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory for a communicator of %d ranks", n);
    made->n_members = n_members;
    memcpy(made->members, members, bytes);
    const strata_status status = make_subset(comm, ranks, n, made, err);
    if (status) {
        free(made);
        return status;
    }
    made->next = comm->subsets;
    comm->subsets = made;
    *out_subset = made->comm;
    return STRATA_OK;
}

/* ---- shrinking ---- */

/* Whether a rank of the job was lost or has left. */
static bool is_lost(const strata_communicator *comm, int job_rank) {
    strata_event event;
    for (int i = 0; strata_roster_event(comm->member->roster, i, &event); i++)
        if ((event.kind == STRATA_EVENT_LOST || event.kind == STRATA_EVENT_LEFT) && (int)event.subject == job_rank) return true;
    return false;
}

/* Waits until a rank of the job has called shrink, too, or is lost. The wait is a series of short requests to the store. */
static strata_status await_survivor(strata_communicator *comm, const char *name, int job_rank, double deadline, bool *out_came,
                                    strata_error *err) {
    const double step = 0.1;
    char key[STRATA_STORE_KEY_BYTES];
    snprintf(key, sizeof key, "strata/%s/here/%d", name, job_rank);
    const strata_store_request request = {.op = STRATA_STORE_GET, .key = key};
    *out_came = false;
    while (!*out_came && !is_lost(comm, job_rank)) {
        STRATA_FINISHED(strata_store_reply) reply = {0};
        const strata_status status = comm->member->store(comm->member, NULL, &request, step, &reply, err);
        *out_came = !status;
        if (status && status != STRATA_TIMEOUT) return status;
        if (status && strata_clock_seconds() > deadline)
            return strata_fail(err, STRATA_TIMEOUT, "%s is not lost, and did not come to shrink the communicator within %g s",
                               strata_peer_text(comm, strata_seat_find(comm->seat, job_rank)).text, comm->connect_seconds);
    }
    return STRATA_OK;
}

/* Agrees on the ranks of the job that continue. The first list that a survivor proposes is used by all. list: room for
 * [world] ranks. */
static strata_status agree_on_survivors(strata_communicator *comm, const char *name, int32_t *list, int *out_n,
                                        strata_error *err) {
    const double deadline = strata_clock_seconds() + comm->connect_seconds;
    char here[STRATA_STORE_KEY_BYTES], key[STRATA_STORE_KEY_BYTES];
    snprintf(here, sizeof here, "strata/%s/here/%d", name, comm->peers[comm->rank].job_rank);
    snprintf(key, sizeof key, "strata/%s/survivors", name);
    STRATA_FINISHED(strata_store_reply) reply = {0};
    const strata_store_request come = {.op = STRATA_STORE_SET, .key = here, .value = ""};
    STRATA_TRY(ask(comm, false, &come, NULL, err));
    int n = 0;
    for (int r = 0; r < comm->world; r++) {
        bool came;
        STRATA_TRY(await_survivor(comm, name, comm->peers[r].job_rank, deadline, &came, err));
        if (came) list[n++] = comm->peers[r].job_rank;
    }
    const strata_store_request propose = {
        .op = STRATA_STORE_SWAP, .key = key, .value = list, .n_value = (size_t)n * sizeof *list, .expected = ""};
    STRATA_TRY(ask(comm, false, &propose, NULL, err));
    const strata_store_request read = {.op = STRATA_STORE_GET, .key = key};
    STRATA_TRY(comm->member->store(comm->member, NULL, &read, comm->connect_seconds, &reply, err));
    *out_n = (int)(reply.n_value / sizeof *list);
    if (reply.n_value % sizeof *list || *out_n > comm->world)
        return strata_fail(err, STRATA_INTERNAL, "the list of survivors has %zu bytes", reply.n_value);
    memcpy(list, reply.value, reply.n_value);
    return STRATA_OK;
}

/* Fills `ranks` (room for [world]) with the survivors, as ranks of `comm`. *out_rank: this rank's position among them. */
static strata_status find_survivors(strata_communicator *comm, const char *name, int *ranks, int *out_n, int *out_rank,
                                    strata_error *err) {
    STRATA_FREED int32_t *list = NULL;
    STRATA_TRY(STRATA_NEW(list, comm->world, err, "no memory for a list of %d ranks", comm->world));
    STRATA_TRY(agree_on_survivors(comm, name, list, out_n, err));
    *out_rank = -1;
    for (int i = 0; i < *out_n; i++) {
        ranks[i] = strata_seat_find(comm->seat, list[i]);
        if (ranks[i] < 0) return strata_fail(err, STRATA_INTERNAL, "rank %d of the job is no survivor", (int)list[i]);
        if (ranks[i] == comm->rank) *out_rank = i;
    }
    if (*out_rank >= 0) return STRATA_OK;
    return strata_fail(err, STRATA_PEER_LOST, "the other ranks went on without this one, which they count as lost");
}

strata_status strata_communicator_shrink(strata_communicator *comm, strata_communicator **out_comm, strata_error *err) {
    char name[2 * sizeof comm->names.own];
    int n = 0, rank = -1;
    *out_comm = NULL;
    if (comm->transport == &strata_transport_mpi)
        return strata_fail(err, STRATA_UNSUPPORTED, "the engine %s cannot go on without a rank", comm->transport->name);
    STRATA_FREED int *ranks = NULL;
    STRATA_TRY(STRATA_NEW(ranks, comm->world, err, "no memory for a communicator of %d ranks", comm->world));
    snprintf(name, sizeof name, "%s/s%d", comm->names.base, ++comm->names.shrinks);
    STRATA_TRY(find_survivors(comm, name, ranks, &n, &rank, err));
    STRATA_TRY(create_child(comm, name, rank, ranks, n, out_comm, err));
    memcpy((*out_comm)->names.base, comm->names.base, sizeof comm->names.base);
    (*out_comm)->names.shrinks = comm->names.shrinks;
    return STRATA_OK;
}

/* ---- properties that users query ---- */

int strata_communicator_rank(const strata_communicator *comm) {
    return comm->rank;
}
int strata_communicator_world(const strata_communicator *comm) {
    return comm->world;
}
const char *strata_communicator_transport(const strata_communicator *comm) {
    return comm->transport->name;
}
const char *strata_communicator_algorithm(const strata_communicator *comm, size_t n_bytes) {
    return strata_algorithms[strata_algorithm_choose(comm, n_bytes)].name;
}
uint64_t strata_communicator_bytes_sent(const strata_communicator *comm) {
    return atomic_load(&((strata_communicator *)comm)->bytes_sent);
}

void strata_communicator_set_step(strata_communicator *comm, int64_t step) {
    atomic_store_explicit(&comm->member->step, step, memory_order_relaxed);
}

void strata_communicator_abort(strata_communicator *comm, const char *text) {
    strata_status told = strata_communicator_fail(comm, NULL, STRATA_INTERRUPTED, NULL, "%s gave up: %s",
                                                  strata_peer_text(comm, comm->rank).text, text);
    (void)told; /* the other ranks get the message; this rank does not need the verdict */
}
