/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts: which kernels compute wrongly on a device. They are stored in a text file beside the tuner's file, one for each
 * device and driver. A device that was wrong once may be right again, so verdicts are tried again at the next start, and those
 * that two starts have found are tried again after a month. */
#include <inttypes.h>
#include <time.h>

#include "backends/kernel/check.h"
#include "core/base/locale.h"
#include "strata/version.h"

/* A verdict of one start is tried again at the next, and so is one of several starts after this time. */
enum { CERTAIN_STARTS = 2, VALID_SECONDS = 30 * 24 * 3600 };

/* Hashes the code by the checksum at the end of its compressed form. */
static uint64_t hash_code(uint64_t seed, const strata_shader_code *code) {
    enum { CHECKSUM = 64 };
    if (!code->pack) return strata_hash(seed, code->plain, code->plain ? code->bytes : 0);
    const size_t n = code->pack->packed_bytes < CHECKSUM ? code->pack->packed_bytes : CHECKSUM;
    return strata_hash(seed, code->pack->packed + code->pack->packed_bytes - n, n);
}

uint64_t strata_check_key(const strata_tensor *node, const strata_lowering *lowering) {
    uint64_t key = strata_hash_text(strata_hash_text(STRATA_HASH_START, STRATA_VERSION), node->op->name);
    for (int l = 0; l < lowering->n; l++) {
        const strata_launch *launch = &lowering->launches[l];
        const strata_shader *shader = strata_shader_find(launch->kernel, launch->variant);
        key = strata_hash_text(strata_hash_text(key, launch->kernel), launch->variant ? launch->variant : "");
        if (shader) key = hash_code(hash_code(key, &shader->opencl), &shader->spirv);
        for (int c = 0; c < launch->n_constants; c++) {
            key = strata_hash_text(key, launch->constants[c].name);
            key = strata_hash(key, &launch->constants[c].value, sizeof launch->constants[c].value);
        }
        key = strata_hash(key, launch->local, sizeof launch->local);
    }
    return key;
}

uint64_t strata_check_family_key(const strata_family *family) {
    return strata_hash_text(strata_hash_text(STRATA_HASH_START, STRATA_VERSION), family->name);
}

static int64_t now(void) {
    return (int64_t)time(NULL);
}

static strata_verdict *find(const strata_checks *checks, uint64_t key) {
    for (int i = 0; i < checks->n; i++)
        if (checks->verdicts[i].key == key) return &checks->verdicts[i];
    return NULL;
}

/* Appends a verdict, whose `what` is copied. */
static bool append(strata_checks *checks, const strata_verdict *verdict) {
    char *what = strdup(verdict->what);
    if (!what || !strata_make_room(&checks->verdicts, checks->n, &checks->capacity, sizeof *checks->verdicts)) {
        free(what);
        return false;
    }
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
    free(verdict->what);
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
/* Invalid lines are skipped. */
static void take_line(void *user, char *line) {
    strata_checks *checks = user;
    strata_verdict v = {0};
    int at = 0;
    if (strata_scan(line, "%16" SCNx64 " %d %" SCNd64 " %lf %n", &v.key, &v.starts, &v.found, &v.error, &at) != 4 || !at)
        return;
    v.is_suspect = v.starts < CERTAIN_STARTS || now() - v.found > VALID_SECONDS || v.found > now();
    v.what = line + at;
    if (!find(checks, v.key)) (void)append(checks, &v);
}

void strata_verdicts_write(const strata_checks *checks) {
    strata_text text = {0};
    for (int i = 0; i < checks->n; i++) {
        const strata_verdict *v = &checks->verdicts[i];
        strata_text_add(&text, "%016" PRIx64 " %d %" PRId64 " %.3g %s\n", v->key, v->starts, v->found, v->error, v->what);
    }
    strata_records_write(&checks->file, &text);
}

strata_checks *strata_checks_create(strata_device *device, const strata_cache *cache, const strata_device_options *opts) {
    if (opts && opts->trust) return NULL;
    strata_checks *checks = calloc(1, sizeof *checks);
    if (!checks) return NULL;
    checks->device = device;
    memcpy(checks->driver, cache->driver, sizeof checks->driver);
    strata_records_init(&checks->file, cache, "strata-check 2", "checked");
    if (opts && opts->check_again)
        remove(checks->file.path); /* if it cannot be removed, it is written again with the first verdict */
    else
        strata_records_read(&checks->file, take_line, checks);
    return checks;
}

void strata_checks_destroy(strata_checks *checks) {
    if (!checks) return;
    for (int i = 0; i < checks->n; i++) free(checks->verdicts[i].what);
    free(checks->verdicts);
    free(checks);
}
