/* SPDX-License-Identifier: Apache-2.0
 *
 * Replaces the functions of the library that allocate and free memory; the build passes every __wrap_ function of this file to
 * the linker. A table contains the addresses of all blocks that the library has allocated and not yet freed. With it, the
 * functions recognize blocks that another library allocated or frees. */
#include "tests/alloc/shim.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/compile/partition.h"

void *__real_strata_memory_take(strata_memory *memory, int64_t n, size_t bytes);
strata_status __real_strata_partition_create(const strata_partition_options *opts, strata_partition **out, strata_error *err);
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);

enum { SLOTS = 1 << 17 };
static void *alive[SLOTS]; /* a hash table with open addressing; TOMB marks a deleted entry */
static char tomb;
#define TOMB ((void *)&tomb)

static int64_t count, live, fail_at;
static bool failed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* threads of a driver may free blocks that the library allocated */

static size_t slot_of(const void *memory) {
    return (size_t)(((uintptr_t)memory >> 4) * 0x9E3779B97F4A7C15u >> 20) % SLOTS;
}

static void *remember(void *memory) {
    if (!memory) return NULL;
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(memory);
    while (alive[slot] && alive[slot] != TOMB) slot = (slot + 1) % SLOTS;
    alive[slot] = memory;
    live++;
    pthread_mutex_unlock(&lock);
    return memory;
}

static void forget(const void *memory) {
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(memory);
    for (size_t i = 0; memory && alive[slot] && i < SLOTS; i++, slot = (slot + 1) % SLOTS) {
        if (alive[slot] != memory) continue;
        alive[slot] = TOMB;
        live--;
        break;
    }
    pthread_mutex_unlock(&lock);
}

/* Counts an allocation. Returns true if it must fail. */
static bool fails(void) {
    pthread_mutex_lock(&lock);
    bool now = ++count == fail_at;
    failed = failed || now;
    pthread_mutex_unlock(&lock);
    if (now) errno = ENOMEM;
    return now;
}

void shim_fail_at(int64_t k) {
    pthread_mutex_lock(&lock);
    count = 0;
    fail_at = k;
    failed = false;
    pthread_mutex_unlock(&lock);
}

bool shim_failed(void) {
    return failed;
}

int64_t shim_count(void) {
    return count;
}

int64_t shim_live(void) {
    return live;
}

void *__wrap_malloc(size_t bytes) {
    return fails() ? NULL : remember(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes) {
    return fails() ? NULL : remember(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *old, size_t bytes) {
    if (fails()) return NULL;
    forget(old);
    void *memory = __real_realloc(old, bytes);
    remember(memory ? memory : old);
    return memory;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? NULL : remember(__real_aligned_alloc(alignment, bytes));
}

int __wrap_posix_memalign(void **out_memory, size_t alignment, size_t bytes) {
    if (fails()) return ENOMEM;
    *out_memory = remember(__real_aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment));
    return *out_memory ? 0 : ENOMEM;
}

char *__wrap_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = __wrap_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *__wrap_strndup(const char *text, size_t most) {
    size_t bytes = strnlen(text, most);
    char *copy = __wrap_malloc(bytes + 1);
    if (!copy) return NULL;
    copy[bytes] = '\0';
    return memcpy(copy, text, bytes);
}

void __wrap_free(void *memory) {
    forget(memory);
    __real_free(memory);
}

/* ---- memory of objects, which seldom needs an allocation ---- */

static int64_t fail_after_partition, takes_left;

void shim_fail_after_partition(int64_t k) {
    shim_fail_at(0);
    fail_after_partition = k;
    takes_left = 0;
}

strata_status __wrap_strata_partition_create(const strata_partition_options *opts, strata_partition **out, strata_error *err) {
    const strata_status status = __real_strata_partition_create(opts, out, err);
    if (!status) takes_left = fail_after_partition;
    return status;
}

void *__wrap_strata_memory_take(strata_memory *memory, int64_t n, size_t bytes) {
    if (!takes_left || --takes_left) return __real_strata_memory_take(memory, n, bytes);
    fail_after_partition = 0;
    memory->failed = failed = true;
    return NULL;
}
