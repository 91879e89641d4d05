/* SPDX-License-Identifier: Apache-2.0
 *
 * The table is doubled when three quarters of its cells are used. The hash is FNV-1a with a final mixing step. Results do not
 * depend on the hash. */
#include "core/data/text/tokenizer.h"

static uint32_t hash_of(const void *key, size_t length) {
    const unsigned char *bytes = key;
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    return (uint32_t)(hash ^ hash >> 32);
}

void strata_dictionary_finish(strata_dictionary *dictionary) {
    free(dictionary->entries);
    free(dictionary->cells);
    strata_text_finish(&dictionary->pool);
    *dictionary = (strata_dictionary){0};
}

/* The cell that contains the key, or the free cell in which it would be stored. n_cells must be above 0. */
static uint32_t cell_of(const strata_dictionary *d, const void *key, size_t length, uint32_t hash) {
    uint32_t cell = hash & (d->n_cells - 1);
    for (; d->cells[cell]; cell = (cell + 1) & (d->n_cells - 1)) {
        const struct strata_dictionary_entry *e = &d->entries[d->cells[cell] - 1];
        if (e->hash == hash && e->length == length && !memcmp(d->pool.bytes + e->first, key, length)) break;
    }
    return cell;
}

int32_t strata_dictionary_find(const strata_dictionary *dictionary, const void *key, size_t length) {
    if (!dictionary->n_cells) return -1;
    return dictionary->cells[cell_of(dictionary, key, length, hash_of(key, length))] - 1;
}

static bool grow_cells(strata_dictionary *d) {
    uint32_t n_cells = d->n_cells ? d->n_cells * 2 : 64;
    int32_t *cells = calloc(n_cells, sizeof *cells);
    if (!cells) return false;
    for (int32_t i = 0; i < d->n; i++) {
        uint32_t cell = d->entries[i].hash & (n_cells - 1);
        while (cells[cell]) cell = (cell + 1) & (n_cells - 1);
        cells[cell] = i + 1;
    }
    free(d->cells);
    d->cells = cells;
    d->n_cells = n_cells;
    return true;
}

static bool make_room(strata_dictionary *d) {
    if (!strata_make_room(&d->entries, d->n, &d->capacity, sizeof *d->entries)) return false;
    return (uint32_t)d->n < d->n_cells / 4 * 3 || grow_cells(d);
}

strata_status strata_dictionary_add(strata_dictionary *dictionary, const void *key, size_t length, int32_t *out_index,
                                    strata_error *err) {
    strata_dictionary *d = dictionary;
    int32_t known = strata_dictionary_find(d, key, length);
    *out_index = known;
    if (known >= 0) return STRATA_OK;
    const size_t first = d->pool.n_bytes;
    if (d->n < 1 << 30 && length <= UINT32_MAX && make_room(d)) {
        strata_text_add_bytes(&d->pool, key, length);
        strata_text_add_bytes(&d->pool, "", 1);
    }
    if (d->pool.n_bytes != first + length + 1)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "no host memory for a table of %d strings", d->n + 1);
    uint32_t hash = hash_of(key, length);
    d->cells[cell_of(d, key, length, hash)] = d->n + 1;
    d->entries[d->n] = (struct strata_dictionary_entry){.first = first, .length = (uint32_t)length, .hash = hash};
    *out_index = d->n++;
    return STRATA_OK;
}

const char *strata_dictionary_string(const strata_dictionary *dictionary, int32_t index) {
    return dictionary->pool.bytes + dictionary->entries[index].first;
}
