/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a shared object before the system's loader maps it: the loader ends the process with SIGBUS for a file that is shorter
 * than its segments, and has no clear message for one that was built for another processor. */
#ifndef STRATA_CORE_BASE_ELF_H
#define STRATA_CORE_BASE_ELF_H

#include "strata/status.h"

/* Fails: INVALID where the file is an ELF file that this process cannot load: for another processor or word size, no shared
 * object, or shorter than its header says. The message does not name the file. A file that is no ELF file, or that cannot be
 * read, passes, since the loader reports it. */
STRATA_MUST_USE strata_status strata_elf_check(const char *path, strata_error *err);

#endif
