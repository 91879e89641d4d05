/* SPDX-License-Identifier: Apache-2.0
 *
 * Members that are processes. Rank 0 holds the board and serves the others; each process has one thread, the *loop*, that
 * accepts connections, gives signs of life, and learns of lost ranks, whatever the program does meanwhile. */
#ifndef STRATA_CLUSTER_STORE_REMOTE_H
#define STRATA_CLUSTER_STORE_REMOTE_H

#include "cluster/store/member.h"
#include "cluster/transport.h"

/* Rank 0 listens at opts->store, the others connect to it; all listen for links. opts->store and the numbers were checked.
 * *out_address: where this process takes links; of rank 0 the store's own address. */
STRATA_MUST_USE strata_status strata_member_create_remote(const strata_communicator_options *opts, strata_member **out_member,
                                                          char out_address[STRATA_ADDRESS_BYTES], strata_error *err);

/* How this process, not rank 0, is to name rank 0 where it is lost. The member is one of the above. */
void strata_member_name_first(strata_member *member, const char *name);

/* What follows "rank 2 did not come" in the message of a process that waited: how many connections it refused, and why the last
 * one; or nothing. */
typedef struct strata_refused_text {
    char text[320];
} strata_refused_text;
strata_refused_text strata_member_refused(strata_member *member);

#endif
