/* SPDX-License-Identifier: Apache-2.0
 *
 * How long tests wait for what must happen. A test never asserts that something is quick, since the machine may be busy with
 * other programs; it waits for the event itself, and this limit ends it if the event never comes. Where a test needs a limit
 * of the library that is longer than the event takes, such as the time after which a silent rank is lost, that limit is longer
 * than TEST_PATIENCE, too. */
#ifndef STRATA_TESTS_SUPPORT_PATIENCE_H
#define STRATA_TESTS_SUPPORT_PATIENCE_H

/* Seconds. TEST_CALM_HEARTBEAT is an interval of heartbeats with which no rank is lost by its silence within TEST_PATIENCE. */
enum { TEST_PATIENCE = 120, TEST_CALM_HEARTBEAT = 30 };

#endif
