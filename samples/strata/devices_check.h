/* SPDX-License-Identifier: Apache-2.0
 *
 * strata devices --check. */
#ifndef STRATA_SAMPLES_DEVICES_CHECK_H
#define STRATA_SAMPLES_DEVICES_CHECK_H

#include "strata/device.h"

/* Compares every op on the device with its reference and prints the verdicts. Returns the exit code: EXIT_DEVICE if an op is
 * wrong or refused. */
int check_device(const strata_device_info *info, bool json);

#endif
