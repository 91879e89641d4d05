/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts: which kernels compute wrongly on a device. They are stored in a text file beside the tuner's file, one for each
 * device and driver. A device that was wrong once may be right again, so verdicts are tried again at the next start, and those
 * that two starts have found are tried again after a month. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/kernel/check.h"
#include "core/base/file.h"
#include "core/base/locale.h"
#include "core/base/text.h"
#include "strata/version.h"

enum { MAX_FILE_BYTES = 8 << 20 };
static const char FORMAT[] = "strata-check 2";
/* A verdict of one start is tried again at the next, and so is one of several starts after this time. */
enum { CERTAIN_STARTS = 2, VALID_SECONDS = 30 * 24 * 3600 };

#define HASH_START UINT64_C(0xcbf29ce484222325) /* FNV-1a */
static uint64_t hash(uint64_t seed, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) seed = (seed ^ at[i]) * UINT64_C(0x100000001b3);
    return seed;
}

static uint64_t hash_text(uint64_t seed, const char *text) {
    return hash(seed, text, strlen(text) + 1);
}

/* Hashes the code by the checksum at the end of its compressed form. */
static uint64_t hash_code(uint64_t seed, const strata_shader_code *code) {
    enum { CHECKSUM = 64 };
    if (!code->pack) return hash(seed, code->plain, code->plain ? code->bytes : 0);
    const size_t n = code->pack->packed_bytes < CHECKSUM ? code->pack->packed_bytes : CHECKSUM;
    return hash(seed, code->pack->packed + code->pack->packed_bytes - n, n);
}

uint64_t strata_check_key(const strata_tensor *node, const strata_lowering *lowering) {
    uint64_t key = hash_text(hash_text(HASH_START, STRATA_VERSION), node->op->name);
    for (int l = 0; l < lowering->n; l++) {
        const strata_launch *launch = &lowering->launches[l];
        const strata_shader *shader = strata_shader_find(launch->kernel, launch->variant);
        key = hash_text(hash_text(key, launch->kernel), launch->variant ? launch->variant : "");
        if (shader) key = hash_code(hash_code(key, &shader->opencl), &shader->spirv);
        for (int c = 0; c < launch->n_constants; c++) {
            key = hash_text(key, launch->constants[c].name);
            key = hash(key, &launch->constants[c].value, sizeof launch->constants[c].value);
        }
        key = hash(key, launch->local, sizeof launch->local);
    }
    return key;
}

uint64_t strata_check_family_key(const strata_family *family) {
    return hash_text(hash_text(HASH_START, STRATA_VERSION), family->name);
}

static int64_t now(void) {
    return (int64_t)time(NULL);
}

static strata_verdict *find(const strata_checks *checks, uint64_t key) {
    for (int i = 0; i < checks->n; i++)
        if (checks->verdicts[i].key == key) return &checks->verdicts[i];
    return NULL;
}

static void finish(strata_verdict *verdict) {
    free(verdict->what);
}

/* Appends a verdict, whose `what` is copied. */
static bool append(strata_checks *checks, const strata_verdict *verdict) {
    if (checks->n == checks->capacity) {
        const int capacity = checks->capacity ? 2 * checks->capacity : 64;
        strata_verdict *verdicts = realloc(checks->verdicts, (size_t)capacity * sizeof *verdicts);
        if (!verdicts) return false;
        checks->verdicts = verdicts;
        checks->capacity = capacity;
    }
    char *what = strdup(verdict->what);
    if (!what) return false;
    checks->verdicts[checks->n] = *verdict;
    checks->verdicts[checks->n++].what = what;
    checks->n_wrong += !verdict->is_suspect;
    return true;
}

bool strata_verdict_add(strata_checks *checks, uint64_t key, double error, const char *what) {
    strata_verdict verdict = {.key = key, .error = error, .found = now(), .starts = 1, .what = (char *)what};
    const strata_verdict *old = find(checks, key);
    if (old && !old->is_suspect) return true;
    if (old) verdict.starts = old->starts + 1;
    strata_verdict_drop(checks, key);
    return append(checks, &verdict);
}

bool strata_verdict_drop(strata_checks *checks, uint64_t key) {
    strata_verdict *verdict = find(checks, key);
    if (!verdict || !verdict->is_suspect) return false;
    finish(verdict);
    *verdict = checks->verdicts[--checks->n];
    return true;
}

bool strata_checks_suspect(const strata_checks *checks) {
    return checks->n > checks->n_wrong;
}

bool strata_checks_complain(const strata_checks *checks) {
    return checks && checks->n_wrong > 0;
}

const char *strata_check_complaint(const strata_checks *checks, uint64_t key) {
    const strata_verdict *v = checks ? find(checks, key) : NULL;
    return v && !v->is_suspect ? v->what : NULL;
}

/* ---- the file ---- */
static void header(const strata_checks *checks, char out[320]) {
    snprintf(out, 320, "%s\ndevice %s\ndriver %s\n", FORMAT, checks->device_name, checks->driver);
}

/* Invalid lines are skipped; a file of another device, driver or format is ignored. */
static void read_file(strata_checks *checks) {
    unsigned char *bytes = NULL;
    size_t n = 0;
    char head[320];
    header(checks, head);
    if (strata_file_read(checks->path, MAX_FILE_BYTES, &bytes, &n, NULL)) return;
    char *text = (char *)bytes, *rest = NULL;
    if (!strncmp(text, head, strlen(head))) {
        for (char *line = strtok_r(text + strlen(head), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            strata_verdict v = {0};
            int at = 0;
            if (strata_scan(line, "%16" SCNx64 " %d %" SCNd64 " %lf %n", &v.key, &v.starts, &v.found, &v.error, &at) != 4 ||
                !at)
                continue;
            v.is_suspect = v.starts < CERTAIN_STARTS || now() - v.found > VALID_SECONDS || v.found > now();
            v.what = line + at;
            if (!find(checks, v.key) && !append(checks, &v)) break;
        }
    }
    free(bytes);
}

void strata_verdicts_write(const strata_checks *checks) {
    if (!checks->path[0]) return;
    strata_text text = {0};
    char head[320], *bytes = NULL;
    size_t n = 0;
    header(checks, head);
    strata_text_add(&text, "%s", head);
    for (int i = 0; i < checks->n; i++) {
        const strata_verdict *v = &checks->verdicts[i];
        strata_text_add(&text, "%016" PRIx64 " %d %" PRId64 " %.3g %s\n", v->key, v->starts, v->found, v->error, v->what);
    }
    if (strata_text_take(&text, &bytes, &n, NULL)) return;
    const strata_status status = strata_file_write(checks->path, bytes, n, NULL);
    (void)status; /* the next start checks again */
    free(bytes);
}

strata_checks *strata_checks_create(strata_device *device, const strata_cache *cache, const strata_device_options *opts) {
    if (opts && opts->trust) return NULL;
    strata_checks *checks = calloc(1, sizeof *checks);
    if (!checks) return NULL;
    checks->device = device;
    memcpy(checks->device_name, cache->device, sizeof checks->device_name);
    memcpy(checks->driver, cache->driver, sizeof checks->driver);
    if (cache->dir[0]) {
        const uint64_t name = hash_text(hash_text(HASH_START, cache->device), cache->driver);
        snprintf(checks->path, sizeof checks->path, "%s/%s-%016" PRIx64 ".checked", cache->dir, cache->backend, name);
        if (opts && opts->check_again)
            remove(checks->path); /* if it cannot be removed, it is written again with the first verdict */
        else
            read_file(checks);
    }
    return checks;
}

void strata_checks_destroy(strata_checks *checks) {
    if (!checks) return;
    for (int i = 0; i < checks->n; i++) finish(&checks->verdicts[i]);
    free(checks->verdicts);
    free(checks);
}
