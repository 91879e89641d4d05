/* SPDX-License-Identifier: Apache-2.0
 *
 * The witness of `strata plugin-check`: functions between Strata and a plugin's device. Each passes its call on, and checks
 * what strata/plugin.h says about memory:
 *   - what Strata passes to a call is only read by it, and not used after it. The memory is in pages of its own, which are
 *     read-only during the call and not accessible after it
 *   - what was uploaded can be read back, and a download writes only to its target
 *   - the arenas of a program's slots do not overlap, and stay where they are
 *   - a wait without time returns at once */
#ifndef STRATA_CONFORMANCE_PLUGIN_WITNESS_H
#define STRATA_CONFORMANCE_PLUGIN_WITNESS_H

#include "core/run/device.h"

/* Called in a signal's handler when the plugin used memory that it may not use. The process ends after it. */
typedef void witness_report(const char *text);

/* Prepares this process: `report` is called after an access to memory that was borrowed. Memory that the plugin frees is
 * overwritten, so that reading it again gives wrong results. */
void witness_begin(witness_report *report);
/* Puts the witness between Strata and an open device of a plugin, until the device is closed. */
void witness_watch(strata_device *device);
/* The bytes of address space that the witness uses. */
size_t witness_bytes(void);

#endif
