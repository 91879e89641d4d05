/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared library exports the functions of the public headers, and those between these two words in internal headers, which
 * the command `strata` calls. No installed header declares the latter: they may change with every version. */
#ifndef STRATA_CORE_EXPORT_H
#define STRATA_CORE_EXPORT_H

#define STRATA_EXPORT_BEGIN _Pragma("GCC visibility push(default)")
#define STRATA_EXPORT_END   _Pragma("GCC visibility pop")

#endif
