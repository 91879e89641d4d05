/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between points.c and wire.c. They are two files because points.c includes headers of core and wire.c includes
 * headers of cluster, and both declare a function strata_send. */
#ifndef STRATA_TESTS_FAULTS_WIRE_H
#define STRATA_TESTS_FAULTS_WIRE_H

enum { FRAME_NONE, FRAME_REPEAT, FRAME_DROP };

/* Returns the fault of the message that this process is about to send, and resets it to FRAME_NONE. */
int points_take_frame_fault(void);
/* wire.c calls this when a thread is about to send a reply. */
void points_answer(void);

#endif
