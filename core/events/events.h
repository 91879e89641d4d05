/* SPDX-License-Identifier: Apache-2.0
 *
 * The file behind strata/events.h: records are queued, and a thread writes them. What is in a record is made by summary.c. */
#ifndef STRATA_CORE_EVENTS_EVENTS_H
#define STRATA_CORE_EVENTS_EVENTS_H

#include "core/base/text.h"
#include "strata/events.h"

/* Queues an Event with this field (5 is a summary, 4 a graph), which is finished, at the step. */
STRATA_MUST_USE strata_status strata_events_add(strata_events *events, int64_t step, int field, strata_text *content,
                                                strata_error *err);
/* Makes the folder and those above it. */
STRATA_MUST_USE strata_status strata_events_make_folders(const char *folder, strata_error *err);
/* INVALID for an empty tag or one that is not UTF-8. */
STRATA_MUST_USE strata_status strata_events_check_tag(const char *tag, strata_error *err);

#endif
