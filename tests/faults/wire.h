/* SPDX-License-Identifier: Apache-2.0
 *
 * Between points.c and wire.c, which no file can hold together: core and cluster both have a strata_send. */
#ifndef STRATA_TESTS_FAULTS_WIRE_H
#define STRATA_TESTS_FAULTS_WIRE_H

enum { DAMAGE_NONE, DAMAGE_REPEAT, DAMAGE_DROP };

/* What is to happen to the message that this process is about to send; once. */
int points_take_damage(void);
/* This thread is about to send an answer. */
void points_answer(void);

#endif
