/* SPDX-License-Identifier: Apache-2.0
 *
 * The binary version of CIFAR-10: records of one label byte and three planes of 32x32 bytes (red, green, blue). */
#ifndef STRATA_CORE_DATA_CIFAR10_H
#define STRATA_CORE_DATA_CIFAR10_H

#include "core/base/export.h"
#include "strata/tensor.h"

STRATA_EXPORT_BEGIN

enum { STRATA_CIFAR10_SIDE = 32, STRATA_CIFAR10_CLASSES = 10, STRATA_CIFAR10_RECORD = 1 + 3 * 32 * 32 };

/* Parses records, which may be compressed with gzip or xz. The caller finishes the images, u8 (N,32,32,3), and the labels, u8
 * (N).
 *   name   the file's name in messages
 * Fails: DATA with name, record and offset. */
STRATA_MUST_USE strata_status strata_cifar10_parse(const char *name, const void *bytes, size_t n_bytes,
                                                   strata_array *out_images, strata_array *out_labels, strata_error *err);

STRATA_EXPORT_END

#endif
