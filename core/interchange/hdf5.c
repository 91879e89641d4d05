/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads libhdf5 at run time. Its C interface is binary compatible from version 1.10 on: identifiers are int64_t, statuses
 * are ints that are below 0 for failures, and the identifiers of predefined objects are variables that H5open sets. */
#include "core/interchange/hdf5.h"

#include <dlfcn.h>

#include "core/interchange/owned.h"

typedef int64_t id;

/* TRUNCATE is H5F_ACC_TRUNC. */
enum { TRUNCATE = 2 };

/* The library's functions that are used: result, name here, symbol, arguments. And its variables. */
#define SYMBOLS                                                                                                         \
    FUNCTION(int, open, H5open, void)                                                                                   \
    FUNCTION(int, quiet, H5Eset_auto2, id stack, void *function, void *user)                                            \
    FUNCTION(id, create_list, H5Pcreate, id class)                                                                      \
    FUNCTION(int, close_list, H5Pclose, id list)                                                                        \
    FUNCTION(int, use_memory, H5Pset_fapl_core, id list, size_t increment, unsigned backing_store)                      \
    FUNCTION(int, set_image, H5Pset_file_image, id list, void *bytes, size_t n_bytes)                                   \
    FUNCTION(id, open_file, H5Fopen, const char *name, unsigned flags, id list)                                         \
    FUNCTION(int, close_file, H5Fclose, id file)                                                                        \
    FUNCTION(id, open_data, H5Dopen2, id file, const char *path, id list)                                               \
    FUNCTION(int, close_data, H5Dclose, id data)                                                                        \
    FUNCTION(id, space_of, H5Dget_space, id data)                                                                       \
    FUNCTION(int, close_space, H5Sclose, id space)                                                                      \
    FUNCTION(long long, elements, H5Sget_simple_extent_npoints, id space)                                               \
    FUNCTION(int, read, H5Dread, id data, id type, id memory, id space, id list, void *out)                             \
    FUNCTION(int, exists, H5Lexists, id file, const char *path, id list)                                                \
    FUNCTION(id, create_file, H5Fcreate, const char *name, unsigned flags, id create, id access)                        \
    FUNCTION(int, make_groups, H5Pset_create_intermediate_group, id list, unsigned make)                                \
    FUNCTION(int, keep_times, H5Pset_obj_track_times, id list, bool keep)                                               \
    FUNCTION(id, create_space, H5Screate_simple, int rank, const uint64_t *dims, const uint64_t *most)                  \
    FUNCTION(id, create_data, H5Dcreate2, id file, const char *path, id type, id space, id links, id create, id access) \
    FUNCTION(int, write, H5Dwrite, id data, id type, id memory, id space, id list, const void *in)                      \
    FUNCTION(int, flush, H5Fflush, id file, int scope)                                                                  \
    FUNCTION(ptrdiff_t, image, H5Fget_file_image, id file, void *out, size_t n_bytes)                                   \
    FUNCTION(int, has_attribute, H5Aexists_by_name, id file, const char *object, const char *name, id list)             \
    FUNCTION(id, open_attribute, H5Aopen_by_name, id file, const char *object, const char *name, id access, id list)    \
    FUNCTION(int, close_attribute, H5Aclose, id attribute)                                                              \
    FUNCTION(id, type_of, H5Aget_type, id attribute)                                                                    \
    FUNCTION(id, space_of_attribute, H5Aget_space, id attribute)                                                        \
    FUNCTION(int, read_attribute, H5Aread, id attribute, id type, void *out)                                            \
    FUNCTION(int, is_variable, H5Tis_variable_str, id type)                                                             \
    FUNCTION(size_t, bytes_of, H5Tget_size, id type)                                                                    \
    FUNCTION(int, close_type, H5Tclose, id type)                                                                        \
    FUNCTION(int, free_memory, H5free_memory, void *memory)                                                             \
    VARIABLE(file_access, H5P_CLS_FILE_ACCESS_ID_g)                                                                     \
    VARIABLE(native_float, H5T_NATIVE_FLOAT_g)                                                                          \
    VARIABLE(link_create, H5P_CLS_LINK_CREATE_ID_g)                                                                     \
    VARIABLE(data_create, H5P_CLS_DATASET_CREATE_ID_g)

struct strata_hdf5 {
    const char *name;
    void *library;
    id file;
#define FUNCTION(result, name, symbol, ...) result (*name)(__VA_ARGS__);
#define VARIABLE(name, symbol)              id *name;
    SYMBOLS
#undef FUNCTION
#undef VARIABLE
};

/* The names on Debian and Ubuntu (libhdf5_serial), and on other distributions. On macOS there are no such names. */
static const char *const libraries[] = {"libhdf5_serial.so.103", "libhdf5_serial.so.310", "libhdf5_serial.so", "libhdf5.so.103",
                                        "libhdf5.so.200",        "libhdf5.so.310",        "libhdf5.so"};

static strata_status load(strata_hdf5 *h, strata_error *err) {
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !h->library; i++)
        h->library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (!h->library)
        return strata_fail(
            err, STRATA_UNSUPPORTED,
            "%s: the weights of .keras files are HDF5, and there is no libhdf5 here (Debian: libhdf5-103-1, or libhdf5-dev)",
            h->name);
    const struct {
        void *place;
        const char *symbol;
    } symbols[] = {
#define FUNCTION(result, name, symbol, ...) {&h->name, #symbol},
#define VARIABLE(name, symbol)              {&h->name, #symbol},
        SYMBOLS
#undef FUNCTION
#undef VARIABLE
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(h->library, symbols[i].symbol);
        if (!found)
            return strata_fail(err, STRATA_UNSUPPORTED, "%s: libhdf5 has no %s; 1.10 or later is needed", h->name,
                               symbols[i].symbol);
        *(void **)symbols[i].place = found;
    }
    return STRATA_OK;
}

/* Opens a file in memory: from an image of its bytes, or, if bytes is NULL, a new file. */
static strata_status open_image(strata_hdf5 *h, const void *bytes, size_t n_bytes, strata_error *err) {
    STRATA_TRY(load(h, err));
    h->open();
    h->quiet(0, NULL, NULL); /* otherwise the library prints its errors */
    const id list = h->create_list(*h->file_access);
    if (list >= 0 && h->use_memory(list, 1 << 16, 0) >= 0 && (!bytes || h->set_image(list, (void *)bytes, n_bytes) >= 0))
        h->file = bytes ? h->open_file("weights.h5", 0, list) : h->create_file("weights.h5", TRUNCATE, 0, list);
    if (list >= 0) h->close_list(list);
    if (h->file >= 0) return STRATA_OK;
    return bytes ? strata_fail(err, STRATA_DATA, "%s: its weights are no HDF5 file", h->name)
                 : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: libhdf5 makes no file in memory", h->name);
}

strata_status strata_hdf5_open(const char *name, const void *bytes, size_t n_bytes, strata_hdf5 **out, strata_error *err) {
    strata_hdf5 *h = NULL;
    STRATA_TRY(STRATA_NEW(h, 1, err, "%s: no host memory", name));
    h->name = name;
    h->file = -1;
    const strata_status status = open_image(h, bytes, n_bytes, err);
    if (status)
        strata_hdf5_close(h);
    else
        *out = h;
    return status;
}

/* The library is never unloaded, since it has handlers that run at the end of the program. */
void strata_hdf5_close(strata_hdf5 *h) {
    if (!h) return;
    if (h->file >= 0) h->close_file(h->file);
    free(h);
}

/* Whether the path and all groups in it exist. HDF5 reports an error if a link in a missing group is looked up. */
static bool is_there(strata_hdf5 *h, const char *path) {
    char part[512];
    for (size_t i = 0;; i++) {
        if (i >= sizeof part) return false;
        if (path[i] == '/' || !path[i]) {
            part[i] = 0;
            if (h->exists(h->file, part, 0) <= 0) return false;
            if (!path[i]) return true;
        }
        part[i] = path[i];
    }
}

strata_status strata_hdf5_read(strata_hdf5 *h, const char *path, int64_t n, float *out, strata_error *err) {
    if (!is_there(h, path)) return strata_fail(err, STRATA_DATA, "%s: its weights have no \"%s\"", h->name, path);
    const id data = h->open_data(h->file, path, 0);
    if (data < 0) return strata_fail(err, STRATA_DATA, "%s: \"%s\" in its weights is no data set", h->name, path);
    const id space = h->space_of(data);
    const long long found = space >= 0 ? h->elements(space) : -1;
    strata_status status = STRATA_OK;
    if (found != n)
        status = strata_fail(err, STRATA_DATA, "%s: \"%s\" in its weights has %lld elements; the layer needs %lld", h->name,
                             path, found, (long long)n);
    else if (h->read(data, *h->native_float, 0, 0, 0, out) < 0)
        status = strata_fail(err, STRATA_DATA, "%s: \"%s\" in its weights cannot be read", h->name, path);
    if (space >= 0) h->close_space(space);
    h->close_data(data);
    return status;
}

bool strata_hdf5_matches(const void *bytes, size_t n_bytes) {
    return n_bytes > 8 && !memcmp(bytes, "\x89HDF\r\n\x1a\n", 8);
}

/* Texts of an attribute have one size, or are pointers to texts that the library allocates. */
strata_status strata_hdf5_text(strata_hdf5 *h, const char *group, const char *attribute, int64_t index, char **out_text,
                               strata_error *err) {
    id a = -1, type = -1, space = -1;
    char *memory = NULL;
    long long n = 0;
    *out_text = NULL;
    if ((!strcmp(group, "/") || is_there(h, group)) && h->has_attribute(h->file, group, attribute, 0) > 0)
        a = h->open_attribute(h->file, group, attribute, 0, 0);
    if (a >= 0) type = h->type_of(a), space = h->space_of_attribute(a);
    const size_t each = type >= 0 ? h->bytes_of(type) : 0;
    if (space >= 0) n = h->elements(space);
    const bool variable = type >= 0 && h->is_variable(type) > 0;
    if (index < n && each && (uint64_t)n < SIZE_MAX / each) memory = calloc((size_t)n + 1, each + 1);
    if (memory && h->read_attribute(a, type, memory) >= 0) {
        char **texts = (char **)memory;
        *out_text = variable ? texts[index] ? strdup(texts[index]) : NULL : strndup(memory + (size_t)index * each, each);
        for (long long i = 0; variable && i < n; i++)
            if (texts[i]) h->free_memory(texts[i]);
    }
    free(memory);
    if (type >= 0) h->close_type(type);
    if (space >= 0) h->close_space(space);
    if (a >= 0) h->close_attribute(a);
    if (*out_text) return STRATA_OK;
    return strata_fail(err, STRATA_DATA, "%s: \"%s\" has no text %lld in its attribute \"%s\"", h->name, group,
                       (long long)index, attribute);
}

strata_status strata_hdf5_write(strata_hdf5 *h, const char *path, strata_shape shape, const float *data, strata_error *err) {
    uint64_t dims[STRATA_MAX_RANK];
    for (int d = 0; d < shape.rank; d++) dims[d] = (uint64_t)shape.dims[d];
    const id links = h->create_list(*h->link_create), create = h->create_list(*h->data_create);
    const id space = h->create_space(shape.rank, dims, NULL);
    id set = -1;
    /* Without times, files with the same weights are equal. */
    if (links >= 0 && create >= 0 && space >= 0 && h->make_groups(links, 1) >= 0 && h->keep_times(create, false) >= 0)
        set = h->create_data(h->file, path, *h->native_float, space, links, create, 0);
    const bool written = set >= 0 && h->write(set, *h->native_float, 0, 0, 0, data) >= 0;
    if (set >= 0) h->close_data(set);
    if (space >= 0) h->close_space(space);
    if (create >= 0) h->close_list(create);
    if (links >= 0) h->close_list(links);
    return written ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: libhdf5 does not write \"%s\"", h->name, path);
}

strata_status strata_hdf5_take(strata_hdf5 *h, void **out_bytes, size_t *out_n_bytes, strata_error *err) {
    const ptrdiff_t n = h->flush(h->file, 0) >= 0 ? h->image(h->file, NULL, 0) : -1;
    *out_bytes = n > 0 ? malloc((size_t)n) : NULL;
    if (!*out_bytes || h->image(h->file, *out_bytes, (size_t)n) != n)
        return strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory for its weights", h->name);
    *out_n_bytes = (size_t)n;
    return STRATA_OK;
}
