/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges: the communication nodes of several graphs that belong together, and how each kind of them is carried out on the
 * host. The group (group.h) decides when; here is what. A new communication op needs a row in exchange.c's table. */
#ifndef STRATA_CORE_RUN_EXCHANGE_H
#define STRATA_CORE_RUN_EXCHANGE_H

#include "core/op/communication.h"
#include "core/run/cross_device.h"
#include "core/run/strategy.h"

/* One device's part of an exchange, in one step. */
typedef struct strata_exchange_member {
    const strata_tensor *node;
    /* Host memory of the value that it gives; gives is false for none. NULL for 0 bytes. */
    const void *operand;
    bool gives;
    /* Host memory for what it takes; takes is false where nothing is taken or read. NULL for 0 bytes. */
    void *result;
    bool takes;
    /* False for a replica without examples, whose value does not count in sums and means. */
    bool counts;
} strata_exchange_member;

/* What carrying out needs, besides the members. */
typedef struct strata_exchange_context {
    /* NULL: this worker is alone. */
    const strata_workers *workers;
    const strata_cross_device_ops *ops;
    /* Of ops, for this exchange; NULL: none. */
    void *plan;
    /* Scratch of as many bytes as strata_exchange_room says. */
    void *room;
    /* [members] Scratch. */
    const void **operands;
    void **results;
    /* Results lie in memory that the host reads fast. */
    bool reads_results;
} strata_exchange_context;

/* Carries it out. members: in the order of the devices. Allocates nothing. Adds what was read and written to the counts. */
STRATA_MUST_USE strata_status strata_exchange_run(const strata_exchange_context *context, const strata_exchange_member *members,
                                                  int n_members, uint64_t *bytes_read, uint64_t *bytes_written,
                                                  strata_error *err);

/* Whether two nodes of one channel can be parts of one exchange; INVALID with what differs. */
STRATA_MUST_USE strata_status strata_exchange_check(const strata_tensor *a, const strata_tensor *b, strata_error *err);
/* Whether values of several workers take part. */
bool strata_exchange_spans_workers(const strata_tensor *node, const strata_workers *workers);
/* Whether the exchange adds values up by the context's cross-device ops; then those that it plans for: *out_elements,
 * *out_reduction. */
bool strata_exchange_folds(const strata_tensor *node, int64_t *out_elements, strata_reduction *out_reduction);
/* Bytes of scratch that an exchange of this node needs; -1: more than a size can say. */
int64_t strata_exchange_room(const strata_tensor *node, const strata_workers *workers);
/* Whether the exchange is made in this step; else strata_exchange_keep gives each member that takes its own value. */
bool strata_exchange_is_due(const strata_tensor *node, int64_t step);
void strata_exchange_keep(const strata_tensor *node, const void *operand, void *result);
/* "sum", "mean", "broadcast", "all_gather": for messages and lists. */
const char *strata_exchange_name(const strata_tensor *node);

#endif
