/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the module that reads Parquet files, and makes a table of the cells that the module returns. */
#define _GNU_SOURCE /* dladdr */
#include "core/data/format/parquet.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "core/data/format/csv.h"

#define MODULE "libstrata_parquet.so"

bool strata_is_parquet(const char *path) {
    char head[sizeof STRATA_PARQUET_MAGIC - 1];
    struct stat info;
    /* A pipe is not read, since its bytes could not be read a second time. */
    FILE *file = !stat(path, &info) && S_ISREG(info.st_mode) ? fopen(path, "rb") : NULL;
    const bool found =
        file && fread(head, 1, sizeof head, file) == sizeof head && !memcmp(head, STRATA_PARQUET_MAGIC, sizeof head);
    if (file) fclose(file);
    return found;
}

/* Loads the module from the folder of the file that contains this code (libstrata.so, or a program), or from where the system's
 * loader searches. The module is never unloaded, since Arrow's threads may run until the process ends. */
static strata_status open_module(const char *name, strata_parquet_read_function **out_read, strata_error *err) {
    static const char anchor = 0;
    Dl_info info;
    char path[PATH_MAX], reason[320] = "";
    void *module = NULL;
    if (dladdr(&anchor, &info) && info.dli_fname && realpath(info.dli_fname, path)) {
        char *file = strrchr(path, '/') + 1;
        if (file - path + sizeof MODULE <= sizeof path) {
            strcpy(file, MODULE);
            if (!(module = dlopen(path, RTLD_NOW | RTLD_LOCAL)) && !access(path, F_OK))
                snprintf(reason, sizeof reason, "%s", dlerror());
        }
    }
    if (!module && !*reason && !(module = dlopen(MODULE, RTLD_NOW | RTLD_LOCAL)))
        snprintf(reason, sizeof reason, "%s", dlerror());
    void *symbol = module ? dlsym(module, STRATA_PARQUET_READ) : NULL;
    if (!symbol)
        return strata_fail(
            err, STRATA_UNSUPPORTED,
            "%s: is a Parquet file, and Strata's module that reads such files cannot be loaded (%s). Build it where Apache "
            "Arrow is installed (-DSTRATA_PARQUET=ON), or convert the table: pandas.read_parquet('in.parquet')"
            ".to_csv('out.csv', index=False)",
            name, *reason ? reason : MODULE " is of another version");
    memcpy(out_read, &symbol, sizeof symbol);
    return STRATA_OK;
}

typedef struct cells {
    strata_text text;
    size_t max_bytes;
    const char *name;
} cells;

static void cells_finish(cells *cells) {
    strata_text_finish(&cells->text);
}

static strata_status take_cells(void *user, const char *bytes, size_t n, strata_error *err) {
    cells *cells = user;
    if (n > cells->max_bytes - cells->text.n_bytes)
        return strata_fail(err, STRATA_DATA, "%s: its cells have more than %zu bytes as text; at most so many can be read",
                           cells->name, cells->max_bytes);
    strata_text_add_bytes(&cells->text, bytes, n);
    return cells->text.failed ? strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for its table", cells->name)
                              : STRATA_OK;
}

strata_status strata_csv_read_parquet(const char *path, size_t max_bytes, strata_csv **out_csv, strata_error *err) {
    strata_parquet_read_function *read = NULL;
    STRATA_FINISHED(cells) cells = {.max_bytes = max_bytes, .name = path};
    char *bytes = NULL;
    size_t n_bytes = 0;
    int n_columns = 0;
    STRATA_TRY(open_module(path, &read, err));
    const strata_status status = read(path, take_cells, &cells, &n_columns, err);
    if (status) return strata_fail_in(err, status, "%s", path);
    STRATA_TRY(strata_text_take(&cells.text, &bytes, &n_bytes, err));
    return strata_csv_take_cells(path, bytes, n_bytes, n_columns, out_csv, err);
}
