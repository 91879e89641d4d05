/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts: which kernels compute correctly on a device and which do not. They are stored in a text file beside the tuner's
 * file, one for each device and driver. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernel/check.h"
#include "core/base/file.h"
#include "core/base/locale.h"
#include "core/base/text.h"
#include "strata/version.h"

enum { MAX_FILE_BYTES = 8 << 20 };
static const char FORMAT[] = "strata-check 1";

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

const strata_verdict *strata_verdict_find(const strata_checks *checks, uint64_t key) {
    for (int i = 0; i < checks->n; i++)
        if (checks->verdicts[i].key == key) return &checks->verdicts[i];
    return NULL;
}

bool strata_verdict_add(strata_checks *checks, uint64_t key, bool wrong, double error, const char *what) {
    if (strata_verdict_find(checks, key)) return true;
    if (checks->n == checks->capacity) {
        const int capacity = checks->capacity ? 2 * checks->capacity : 64;
        strata_verdict *verdicts = realloc(checks->verdicts, (size_t)capacity * sizeof *verdicts);
        if (!verdicts) return false;
        checks->verdicts = verdicts;
        checks->capacity = capacity;
    }
    char *copy = strdup(what);
    if (!copy) return false;
    checks->verdicts[checks->n++] = (strata_verdict){key, wrong, error, copy};
    checks->n_wrong += wrong;
    return true;
}

bool strata_checks_complain(const strata_checks *checks) {
    return checks && checks->n_wrong > 0;
}

const char *strata_check_complaint(const strata_checks *checks, uint64_t key) {
    const strata_verdict *v = checks ? strata_verdict_find(checks, key) : NULL;
    return v && v->wrong ? v->what : NULL;
}

const strata_way *strata_check_way(const strata_checks *checks, const strata_tensor *node) {
    return checks && checks->ways ? &checks->ways[node->id] : NULL;
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
            uint64_t key = 0;
            char word[8] = "";
            double error = 0;
            int at = 0;
            if (strata_scan(line, "%16" SCNx64 " %7s %lf %n", &key, word, &error, &at) != 3 || !at) continue;
            const bool wrong = !strcmp(word, "wrong");
            if (wrong || !strcmp(word, "right")) strata_verdict_add(checks, key, wrong, error, line + at);
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
        strata_text_add(&text, "%016" PRIx64 " %s %.3g %s\n", v->key, v->wrong ? "wrong" : "right", v->error, v->what);
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
        read_file(checks);
    }
    return checks;
}

void strata_checks_destroy(strata_checks *checks) {
    if (!checks) return;
    for (int i = 0; i < checks->n; i++) free(checks->verdicts[i].what);
    free(checks->verdicts);
    free(checks);
}
