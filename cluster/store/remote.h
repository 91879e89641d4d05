/* SPDX-License-Identifier: Apache-2.0
 *
 * Members for ranks that are processes. Rank 0 has the board and answers the requests of the others. Each process has one
 * thread, the *loop*, which accepts connections, sends heartbeats and detects lost ranks while the program computes. */
#ifndef STRATA_CLUSTER_STORE_REMOTE_H
#define STRATA_CLUSTER_STORE_REMOTE_H

#include "cluster/store/member.h"
#include "cluster/transport.h"

/* Rank 0 listens at opts->store, the others connect to it; all listen for links. opts->store and the numbers were checked.
 * *out_address: the address at which this process accepts links; for rank 0 the address of the store. */
STRATA_MUST_USE strata_status strata_member_create_remote(const strata_communicator_options *opts, strata_member **out_member,
                                                          char out_address[STRATA_ADDRESS_BYTES], strata_error *err);

/* Sets the name of rank 0 for the error message when it is lost. For a member of strata_member_create_remote that is not rank
 * 0. */
void strata_member_set_rank0_name(strata_member *member, const char *name);

/* A text that is appended to the message "rank 2 did not come": where this process listens, how many connections it refused,
 * and why it refused the last one. */
typedef struct strata_refused_text {
    char text[480];
} strata_refused_text;
strata_refused_text strata_member_refused(strata_member *member);

#endif
