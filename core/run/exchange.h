/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges: performing a set of matching communication nodes of several replicas on the host. The group (group.h) decides when
 * an exchange takes place. A new communication op needs a row in the table of exchange.c. */
#ifndef STRATA_CORE_RUN_EXCHANGE_H
#define STRATA_CORE_RUN_EXCHANGE_H

#include "core/op/communication.h"
#include "core/run/cross_device.h"
#include "core/run/strategy.h"

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

/* What an exchange needs besides its members. */
typedef struct strata_exchange_context {
    /* The workers whose devices take part; first_replicas numbers the members instead of all replicas. NULL: there are no other
     * workers. */
    const strata_workers *workers;
    /* The values of these workers are combined; false: only this worker's, or the exchange is a message. */
    bool over_workers;
    const strata_cross_device_ops *ops;
    /* What the cross-device ops prepared for this exchange; NULL: nothing. */
    void *plan;
    /* Scratch memory of strata_exchange_scratch_bytes bytes. */
    void *scratch;
    /* [members] Scratch memory. */
    const void **operands;
    void **results;
    /* Results are in memory that the host reads fast. */
    bool reads_results;
    /* strata_group_set_receiver, and the number of the exchange. */
    strata_receive *receive;
    void *receiver;
    int number;
} strata_exchange_context;

/* Performs an exchange. members: in the order of the devices. Allocates nothing. Adds the bytes that it read and wrote to the
 * counts. */
STRATA_MUST_USE strata_status strata_exchange_run(const strata_exchange_context *context, const strata_exchange_member *members,
                                                  int n_members, uint64_t *bytes_read, uint64_t *bytes_written,
                                                  strata_error *err);

/* Checks that two nodes of one channel can be part of one exchange. Fails: INVALID, with the difference. */
STRATA_MUST_USE strata_status strata_exchange_check(const strata_tensor *a, const strata_tensor *b, strata_error *err);
/* Whether the exchange involves replicas of other workers. */
bool strata_exchange_spans_workers(const strata_tensor *node, const strata_workers *workers);
/* Whether the exchange uses the context's cross-device ops; if so, *out_elements and *out_reduction are the size and the
 * reduction for which they prepare. */
bool strata_exchange_folds(const strata_tensor *node, int64_t *out_elements, strata_reduction *out_reduction);
/* How many bytes of scratch memory an exchange of this node needs; -1: the number overflows. */
int64_t strata_exchange_scratch_bytes(const strata_tensor *node, const strata_workers *workers);
/* "sum", "mean", "broadcast", "all_gather": for messages and lists. */
const char *strata_exchange_name(const strata_tensor *node);

#endif
