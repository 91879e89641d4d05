/* SPDX-License-Identifier: Apache-2.0
 *
 * Heartbeats. Each side of a connection sends something in each heartbeat interval. A side from which nothing was received for
 * STRATA_MISSED_BEATS intervals, of the slower side, is lost. Time in which this process itself did not run does not count. */
#ifndef STRATA_CLUSTER_WIRE_PULSE_H
#define STRATA_CLUSTER_WIRE_PULSE_H

#include <stdbool.h>

enum { STRATA_MISSED_BEATS = 5 };

/* The default interval in seconds. */
#define STRATA_HEARTBEAT_SECONDS 1.0

/* Whether this process has run. */
typedef struct strata_pulse {
    /* When this was checked last, and when the process ran again after it had been stopped. */
    double checked_at, awake_since;
} strata_pulse;

/* To be called more often than once in `longest` seconds: a longer time between two calls means that the process did not
 * run. */
static inline void strata_pulse_check(strata_pulse *p, double now, double longest) {
    if (now - p->checked_at > longest) p->awake_since = now;
    p->checked_at = now;
}

/* After how many seconds of silence the other side is lost. */
static inline double strata_pulse_limit(double own_heartbeat, double peers_heartbeat) {
    return STRATA_MISSED_BEATS * (own_heartbeat > peers_heartbeat ? own_heartbeat : peers_heartbeat);
}

/* Whether the other side, from which something was received last at `received`, is lost. */
static inline bool strata_pulse_is_lost(const strata_pulse *p, double now, double received, double limit) {
    return now - (received > p->awake_since ? received : p->awake_since) > limit;
}

#endif
