/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled kernels, and the results of the tuner and of checks, on disk. Each kernel has a file with header, key and data.
 * Drivers may crash on binaries of other drivers, so everything that could differ is compared first: the format, Strata's
 * version, the device, the driver, the whole key (the source), and a hash of the data. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/kernel/lowering.h"
#include "core/base/file.h"
#include "strata/version.h"

enum { FORMAT = 1, MAX_FILE_BYTES = 512 << 20, MAX_RECORDS_BYTES = 8 << 20, PATH_BYTES = 640 };

/* The beginning of every file. It is in the machine's byte order, since a compiled kernel is not moved to another machine. */
typedef struct cache_header {
    char magic[8]; /* "STRATA-K" */
    uint32_t format;
    uint32_t header_bytes;
    char version[32], backend[16], device[128], driver[128];
    uint64_t key_bytes, data_bytes, data_hash;
} cache_header;

/* It detects damage, not an attack: an attacker who can write to the folder can also write a valid hash. */
uint64_t strata_hash(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t strata_hash_text(uint64_t hash, const char *text) {
    return strata_hash(hash, text, strlen(text) + 1);
}

static uint64_t hash_device(const strata_cache *cache) {
    return strata_hash_text(strata_hash_text(STRATA_HASH_START, cache->device), cache->driver);
}

/* ---- the folder ---- */
static bool make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700); /* a folder that exists already is fine */
        *slash = '/';
    }
    mkdir(path, 0700);
    return access(path, R_OK | W_OK | X_OK) == 0;
}

void strata_cache_open(strata_cache *cache, const strata_device_options *opts, const strata_device_info *info) {
    *cache = (strata_cache){0};
    memcpy(cache->backend, info->backend, sizeof cache->backend);
    memcpy(cache->device, info->name, sizeof cache->device);
    memcpy(cache->driver, info->driver, sizeof cache->driver);
    if (opts && opts->no_cache) return;

    const char *given = opts ? opts->cache_dir : NULL, *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (given)
        n = snprintf(cache->dir, sizeof cache->dir, "%s", given);
    else if (xdg && xdg[0] == '/')
        n = snprintf(cache->dir, sizeof cache->dir, "%s/strata", xdg);
    else if (home && home[0] == '/')
        n = snprintf(cache->dir, sizeof cache->dir, "%s/.cache/strata", home);
    if (n <= 0 || n >= (int)sizeof cache->dir || !make_folders(cache->dir)) cache->dir[0] = '\0';
}

/* ---- one file ---- */
static void file_path(const strata_cache *cache, const void *key, size_t key_bytes, char path[PATH_BYTES]) {
    const uint64_t hash = strata_hash(hash_device(cache), key, key_bytes);
    snprintf(path, PATH_BYTES, "%s/%s-%016llx.kernel", cache->dir, cache->backend, (unsigned long long)hash);
}

static void fill_header(const strata_cache *cache, size_t key_bytes, const void *data, size_t bytes, cache_header *header) {
    memset(header, 0, sizeof *header);
    memcpy(header->magic, "STRATA-K", sizeof header->magic);
    header->format = FORMAT;
    header->header_bytes = sizeof *header;
    snprintf(header->version, sizeof header->version, "%s", STRATA_VERSION);
    memcpy(header->backend, cache->backend, sizeof header->backend);
    memcpy(header->device, cache->device, sizeof header->device);
    memcpy(header->driver, cache->driver, sizeof header->driver);
    header->key_bytes = key_bytes;
    header->data_bytes = bytes;
    header->data_hash = strata_hash(STRATA_HASH_START, data, bytes);
}

void *strata_cache_load(const strata_cache *cache, const void *key, size_t key_bytes, size_t *out_bytes) {
    if (!cache->dir[0]) return NULL;
    char path[PATH_BYTES];
    file_path(cache, key, key_bytes, path);
    unsigned char *file = NULL;
    size_t n = 0;
    if (strata_file_read(path, MAX_FILE_BYTES, &file, &n, NULL)) return NULL;

    size_t before = sizeof(cache_header) + key_bytes;
    if (n >= before) {
        cache_header header, wanted;
        memcpy(&header, file, sizeof header);
        fill_header(cache, key_bytes, file + before, n - before, &wanted);
        if (!memcmp(&header, &wanted, sizeof header) && !memcmp(file + sizeof header, key, key_bytes)) {
            memmove(file, file + before, n - before);
            *out_bytes = n - before;
            return file;
        }
    }
    free(file);
    unlink(path);
    return NULL;
}

void strata_cache_store(const strata_cache *cache, const void *key, size_t key_bytes, const void *data, size_t bytes) {
    if (!cache->dir[0] || bytes > (size_t)MAX_FILE_BYTES / 2 || key_bytes > (size_t)MAX_FILE_BYTES / 4) return;
    char path[PATH_BYTES];
    file_path(cache, key, key_bytes, path);
    cache_header header;
    fill_header(cache, key_bytes, data, bytes, &header);

    /* Losing the newest file in a power failure does no harm, but an incomplete file would: so the file is written under a
     * temporary name and renamed. */
    STRATA_OWNED(strata_file_writer) *writer = NULL;
    if (strata_file_writer_create(path, &writer, NULL)) return;
    strata_status status = strata_file_writer_add(writer, &header, sizeof header, NULL);
    if (!status) status = strata_file_writer_add(writer, key, key_bytes, NULL);
    if (!status) status = strata_file_writer_add(writer, data, bytes, NULL);
    if (!status) status = strata_file_writer_commit(writer, NULL, NULL);
    (void)status; /* the next start compiles again */
}

/* ---- files of results ---- */
void strata_records_init(strata_records *records, const strata_cache *cache, const char *format, const char *ending) {
    *records = (strata_records){.path = ""};
    if (!cache->dir[0]) return;
    snprintf(records->path, sizeof records->path, "%s/%s-%016llx.%s", cache->dir, cache->backend,
             (unsigned long long)hash_device(cache), ending);
    snprintf(records->head, sizeof records->head, "%s\ndevice %s\ndriver %s\n", format, cache->device, cache->driver);
}

void strata_records_read(const strata_records *records, void (*take)(void *user, char *line), void *user) {
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n = 0;
    if (!records->path[0] || strata_file_read(records->path, MAX_RECORDS_BYTES, &bytes, &n, NULL)) return;
    char *text = (char *)bytes, *rest = NULL;
    if (!strncmp(text, records->head, strlen(records->head)))
        for (char *line = strtok_r(text + strlen(records->head), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            take(user, line);
}

void strata_records_write(const strata_records *records, strata_text *lines) {
    STRATA_FINISHED(strata_text) text = {0};
    STRATA_FREED char *bytes = NULL;
    size_t n = 0;
    strata_text_add(&text, "%s%s", records->head, lines->bytes ? lines->bytes : "");
    text.failed |= lines->failed;
    strata_text_finish(lines);
    if (!records->path[0] || strata_text_take(&text, &bytes, &n, NULL)) return;
    const strata_status status = strata_file_write(records->path, bytes, n, NULL);
    (void)status;
}
