/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared library exports the functions of the public headers. It also exports those functions of internal headers
 * that are declared between these two macros, because the command `strata` calls them. No installed header declares
 * these, so they may change with every version. */
#ifndef STRATA_CORE_EXPORT_H
#define STRATA_CORE_EXPORT_H

#define STRATA_EXPORT_BEGIN _Pragma("GCC visibility push(default)")
#define STRATA_EXPORT_END   _Pragma("GCC visibility pop")

#endif
