/* SPDX-License-Identifier: Apache-2.0
 *
 * The event file of strata/events.h. Records are queued, and a thread writes them. summary.c makes the contents of
 * records. */
#ifndef STRATA_CORE_EVENTS_EVENTS_H
#define STRATA_CORE_EVENTS_EVENTS_H

#include "core/base/text.h"
#include "strata/events.h"

/* Queues an Event at this step that has `content` as its field number `field` (5 is a summary, 4 a graph). Finishes
 * `content`. */
STRATA_MUST_USE strata_status strata_events_add(strata_events *events, int64_t step, int field, strata_text *content,
                                                strata_error *err);
/* Creates the folder and its parent folders, if they do not exist. */
STRATA_MUST_USE strata_status strata_events_make_folders(const char *folder, strata_error *err);
/* Fails with INVALID if the tag is empty or not UTF-8. */
STRATA_MUST_USE strata_status strata_events_check_tag(const char *tag, strata_error *err);

#endif
