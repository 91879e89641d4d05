/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges: sets of communication nodes of several replicas that belong together. match.c finds them, the group (group.h)
 * decides when each takes place, and exchange.c performs it on the host. A new communication op needs a row in the table of
 * exchange.c. */
#ifndef STRATA_CORE_RUN_EXCHANGE_H
#define STRATA_CORE_RUN_EXCHANGE_H

#include "core/base/memory.h"
#include "core/op/communication.h"
#include "core/run/cross_device.h"
#include "core/run/executable.h"
#include "core/run/strategy.h"

/* An exchange of the replicas of a group. */
typedef struct strata_exchange {
    /* The first replica that takes part, and its node. */
    int first;
    const strata_tensor *node;
    /* [replicas] The index of the replica's communication node; -1: it takes no part. */
    int *own;
    /* [replicas] Segments with smaller numbers need neither this exchange nor a later one. */
    int *limit;
    /* The workers that take part, of which first_replicas numbers the exchange's members. n 0: this worker alone, or one
     * message to another worker. */
    strata_workers workers;
    /* What the cross-device ops prepared for it; NULL: nothing. */
    void *plan;
    /* Its name in the trace, which outlives the group; NULL: not set yet. */
    const struct strata_trace_label *label;
} strata_exchange;

/* The replica's part in an exchange; NULL: it takes none. */
static inline const strata_communication *strata_exchange_part(const strata_exchange *exchange,
                                                               const strata_executable *executable, int replica) {
    const int own = exchange->own[replica];
    return own < 0 ? NULL : &executable->plan.communications[own];
}

/* Matches the replicas' communication nodes by team, in an order in which each replica has its own ones. *out_exchanges:
 * [*out_n + 1], in `memory`; the last one has no members, and its limits are the numbers of segments. workers: NULL: there are
 * no others. Fails as strata_group_create does. */
STRATA_MUST_USE strata_status strata_exchanges_match(strata_executable *const *replicas, int n_replicas,
                                                     const strata_workers *workers, strata_memory *memory,
                                                     strata_exchange **out_exchanges, int *out_n, strata_error *err);

/* Checks that all replicas have the same collectives, in the same order, also beside the exchanges: whenever the host waits for
 * a segment, all collectives up to it were submitted on every replica. *out_n: how many collectives each replica has; adds the
 * bytes that they read and write as strata_exchange_run does: each member of a sum gives a whole value and gets a whole one. */
STRATA_MUST_USE strata_status strata_exchanges_check_collectives(strata_executable *const *replicas, int n_replicas,
                                                                 const strata_exchange *exchanges, int n_exchanges, int *out_n,
                                                                 uint64_t *read, uint64_t *written, strata_error *err);

/* One device's part of an exchange, in one step. */
typedef struct strata_exchange_member {
    const strata_tensor *node;
    /* gives: the replica contributes a value. operand: its host memory; NULL for 0 bytes. */
    const void *operand;
    bool gives;
    /* takes: the replica receives a result that is read. result: its host memory; NULL for 0 bytes. */
    void *result;
    bool takes;
    /* False for a replica without examples, whose value is ignored in sums and means. */
    bool counts;
} strata_exchange_member;

/* An exchange that is being performed. */
typedef struct strata_exchange_job {
    /* In the order of the devices. */
    strata_exchange_member *members;
    int n;
    /* The workers whose devices take part; first_replicas numbers the members instead of all replicas. NULL: there are no other
     * workers. */
    const strata_workers *workers;
    /* The values of these workers are combined; false: only this worker's, or the exchange is a message. */
    bool over_workers;
    const strata_cross_device_ops *ops;
    /* What the cross-device ops prepared for this exchange; NULL: nothing. */
    void *plan;
    /* Scratch memory of strata_exchange_scratch_bytes bytes, and of [members]. */
    void *scratch;
    const void **operands;
    void **results;
    /* Set by strata_exchange_run. */
    int n_operands, n_results;
    /* Results are in memory that the host reads fast. */
    bool reads_results;
    /* strata_group_set_receiver, and the number of the exchange. */
    strata_receive *receive;
    void *receiver;
    int number;
    /* The bytes of the members' memory that were read and written are added to these. */
    uint64_t read, written;
    /* The bytes of the messages that were sent to other workers are added to this. */
    uint64_t sent;
} strata_exchange_job;

/* Performs an exchange. Allocates nothing. */
STRATA_MUST_USE strata_status strata_exchange_run(strata_exchange_job *job, strata_error *err);

/* Checks that two nodes of one team can be part of one exchange. Fails: INVALID, with the difference. */
STRATA_MUST_USE strata_status strata_exchange_check(const strata_tensor *a, const strata_tensor *b, strata_error *err);
/* Whether the exchange involves replicas of other workers. */
bool strata_exchange_spans_workers(const strata_tensor *node, const strata_workers *workers);
/* Whether the node is a send or a receive, and whether it gathers or scatters parts. */
bool strata_exchange_is_point(const strata_tensor *node);
bool strata_exchange_is_parts(const strata_tensor *node);
/* Whether the exchange uses the job's cross-device ops; if so, *out_elements and *out_reduction are the size and the reduction
 * for which they prepare. */
bool strata_exchange_folds(const strata_tensor *node, int64_t *out_elements, strata_reduction *out_reduction);
/* Whether the exchange is a message between workers, for which the receiving device waits and the sending one does not: a send,
 * a receive, or a broadcast among two devices. */
bool strata_exchange_is_message(const strata_tensor *node, const strata_workers *workers);
/* How many bytes of scratch memory an exchange of this node needs; -1: the number overflows. */
int64_t strata_exchange_scratch_bytes(const strata_tensor *node, const strata_workers *workers);
/* "sum", "mean", "broadcast", "all_gather": for messages and lists. */
const char *strata_exchange_name(const strata_tensor *node);

#endif
