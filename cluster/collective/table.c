/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the file of measured choices. It is read when a communicator is created, and written by `strata bench
 * allreduce --tune`. */
#include "cluster/collective/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cluster/collective/algorithm.h"
#include "cluster/communicator.h"
#include "core/base/alloc.h"
#include "core/base/locale.h"
#include "strata/file.h"
#include "strata/text.h"

/* Finds the path of the user's file; "": there is no folder for it. */
static void find_file(const char *path, char out[STRATA_TABLE_PATH]) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (path)
        n = snprintf(out, STRATA_TABLE_PATH, "%s", path);
    else if (xdg && xdg[0] == '/')
        n = snprintf(out, STRATA_TABLE_PATH, "%s/strata/allreduce.table", xdg);
    else if (home && home[0] == '/')
        n = snprintf(out, STRATA_TABLE_PATH, "%s/.cache/strata/allreduce.table", home);
    if (n < 0 || n >= STRATA_TABLE_PATH) out[0] = 0;
}

static bool read_row(const char *line, strata_table_row *out) {
    char bytes[24], algorithm[24], *end;
    int row;
    *out = (strata_table_row){0};
    if (strata_scan(line, "%7s %" SCNd32 " %23s %23s", out->transport, &out->ranks, bytes, algorithm) != 4) return false;
    out->most_bytes = !strcmp(bytes, "any") ? UINT64_MAX : strtoull(bytes, &end, 10);
    if (strcmp(bytes, "any") != 0 && (*end || bytes[0] == '-')) return false;
    if (out->ranks < 2 || strata_algorithm_find(algorithm, &row, NULL)) return false;
    out->algorithm = (uint32_t)row;
    return true;
}

/* Reads the rows of the file at `path` (NULL: the user's file; "": no file). If the file does not exist, the table has no
 * rows. */
static void read_table(const char *path, strata_algorithm_table *out_table) {
    char file[STRATA_TABLE_PATH], line[128];
    out_table->n = 0;
    find_file(path, file);
    FILE *in = file[0] ? fopen(file, "r") : NULL;
    while (in && out_table->n < STRATA_TABLE_ROWS && fgets(line, sizeof line, in))
        out_table->n += read_row(line, &out_table->rows[out_table->n]);
    if (in) fclose(in);
}

int strata_table_find(const strata_algorithm_table *table, const char *transport, int ranks, size_t n_bytes) {
    for (uint64_t i = 0; table && i < table->n; i++) {
        const strata_table_row *row = &table->rows[i];
        if (row->ranks == ranks && n_bytes <= row->most_bytes && !strcmp(row->transport, transport)) return (int)row->algorithm;
    }
    return -1;
}

strata_status strata_table_share(strata_communicator *comm, const char *path, strata_error *err) {
    STRATA_FREED strata_algorithm_table *table = NULL;
    STRATA_TRY(STRATA_NEW(table, 1, err, "no memory for a table of algorithms"));
    if (comm->rank == 0) read_table(path, table);
    STRATA_TRY(strata_communicator_broadcast(comm, &table->n, sizeof table->n, STRATA_DTYPE_U8, 0, err));
    if (!table->n) return STRATA_OK;
    if (table->n > STRATA_TABLE_ROWS) return strata_fail(err, STRATA_INVALID, "rank 0's table has too many rows");
    STRATA_TRY(strata_communicator_broadcast(comm, table->rows, table->n * sizeof *table->rows, STRATA_DTYPE_U8, 0, err));
    for (uint64_t i = 0; i < table->n; i++) {
        table->rows[i].transport[sizeof table->rows[i].transport - 1] = 0;
        if (table->rows[i].algorithm >= strata_n_algorithms)
            return strata_fail(err, STRATA_INVALID, "rank 0 has another version");
    }
    comm->table = table;
    table = NULL;
    return STRATA_OK;
}

/* ---- writing ---- */

static void make_folders(char *path) {
    for (char *at = path + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
}

static void add_row(strata_text *text, const char *transport, int ranks, uint64_t most_bytes, const char *algorithm) {
    char bytes[24] = "any";
    if (most_bytes != UINT64_MAX) snprintf(bytes, sizeof bytes, "%" PRIu64, most_bytes);
    strata_text_add(text, "%s %d %s %s\n", transport, ranks, bytes, algorithm);
}

strata_status strata_algorithm_table_save(const char *path, const strata_algorithm_choice *choices, int n, strata_error *err) {
    char file[STRATA_TABLE_PATH];
    int row;
    find_file(path, file);
    if (!file[0] || n < 1)
        return strata_fail(err, STRATA_INVALID, "table of algorithms: %s",
                           n < 1 ? "there are no rows" : "neither XDG_CACHE_HOME nor HOME names a folder");
    for (int i = 0; i < n; i++) {
        STRATA_TRY(strata_algorithm_find(choices[i].algorithm, &row, err));
        if (choices[i].ranks != choices[0].ranks || strcmp(choices[i].transport, choices[0].transport) != 0 ||
            (i && choices[i].most_bytes <= choices[i - 1].most_bytes))
            return strata_fail(err, STRATA_INVALID,
                               "table of algorithms: row %d; rows are of one transport and number of ranks, by ascending bytes",
                               i);
    }
    STRATA_FREED strata_algorithm_table *others = NULL;
    STRATA_TRY(STRATA_NEW(others, 1, err, "no memory for a table of algorithms"));
    read_table(file, others);
    strata_text text = {0};
    strata_text_add(
        &text,
        "# transport ranks most_bytes algorithm: which all_reduce strata takes; strata bench allreduce --tune measures it\n");
    for (uint64_t i = 0; i < others->n; i++) {
        const strata_table_row *r = &others->rows[i];
        if (r->ranks != choices[0].ranks || strcmp(r->transport, choices[0].transport) != 0)
            add_row(&text, r->transport, r->ranks, r->most_bytes, strata_algorithms[r->algorithm].name);
    }
    for (int i = 0; i < n; i++)
        add_row(&text, choices[i].transport, choices[i].ranks, choices[i].most_bytes, choices[i].algorithm);
    STRATA_FREED char *bytes = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_text_take(&text, &bytes, &n_bytes, err));
    make_folders(file);
    return strata_file_write(file, bytes, n_bytes, err);
}
