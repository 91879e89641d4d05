/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of these headers. The build reads it from here, so this is the one place where it stands. */
#ifndef STRATA_VERSION_H
#define STRATA_VERSION_H

#define STRATA_VERSION_MAJOR 0
#define STRATA_VERSION_MINOR 1
#define STRATA_VERSION_PATCH 0
#define STRATA_VERSION       "0.1.0"

#endif
