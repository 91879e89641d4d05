/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for a word in memory that processes share. */
#ifndef STRATA_CLUSTER_MEMORY_FUTEX_H
#define STRATA_CLUSTER_MEMORY_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while the word is `seen`, at most for the time limit. May return earlier. */
static inline void strata_futex_wait(atomic_uint *word, uint32_t seen, double seconds) {
    const struct timespec limit = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static inline void strata_futex_wake(atomic_uint *word, int most_threads) {
    syscall(SYS_futex, word, FUTEX_WAKE, most_threads, NULL, NULL, 0);
}

/* A pause of about 20 ns in a loop that waits for another core. */
static inline void strata_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
