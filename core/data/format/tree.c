/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders are read with readdir. Tar archives are read by their 512-byte headers: the pax format of POSIX.1-2001, and GNU tar's
 * entries for long names. */
#include "core/data/format/tree.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/data/format/stream.h"

enum { LONGEST_PATH = 4096, TAR_BLOCK = 512 };
static const size_t LARGEST_FILE = STRATA_BYTES_LIMIT(33);

bool strata_tree_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The position of a byte in the order of names: that of '/' is before all others except for the end. */
static int rank_of(char byte) {
    return byte == '/' ? 1 : byte ? (unsigned char)byte + 1 : 0;
}

int strata_tree_compare_names(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return rank_of(*a) - rank_of(*b);
}

/* ---- folders ---- */

typedef struct walk {
    const strata_tree_visitor *visitor;
    /* The place that is visited. Its first root_length bytes are the root, which is not part of the visited names. */
    char path[LONGEST_PATH];
    size_t root_length;
    /* The root, and the folders that were visited below the same entry of the root. A loop of links ends at one of them. */
    struct folder_id {
        dev_t device;
        ino_t number;
    } * visited;
    int64_t n_visited, capacity;
    strata_error *err;
} walk;

/* Adds a folder to those that were visited. *out_again: it was one of them. */
static strata_status enter_once(walk *w, const struct stat *info, bool *out_again) {
    *out_again = false;
    for (int64_t i = 0; i < w->n_visited; i++)
        if (w->visited[i].device == info->st_dev && w->visited[i].number == info->st_ino) {
            *out_again = true;
            return STRATA_OK;
        }
    if (!strata_make_room(&w->visited, w->n_visited, &w->capacity, sizeof *w->visited))
        return strata_fail(w->err, STRATA_OUT_OF_MEMORY, "%s: no host memory", w->path);
    w->visited[w->n_visited++] = (struct folder_id){info->st_dev, info->st_ino};
    return STRATA_OK;
}

static strata_status visit_file(walk *w, const char *name) {
    const strata_tree_visitor *visitor = w->visitor;
    unsigned char *bytes;
    size_t n_bytes;
    if (!visitor->wants(name, visitor->user)) return STRATA_OK;
    STRATA_TRY(strata_file_read(w->path, LARGEST_FILE, &bytes, &n_bytes, w->err));
    return visitor->take(name, w->path, bytes, n_bytes, visitor->user, w->err);
}

static void skip_entry(const walk *w, const char *name, strata_tree_skip why) {
    if (w->visitor->skips) w->visitor->skips(name, why, w->visitor->user);
}

static strata_status visit_folder(walk *w, int depth);

/* Visits what is at w->path, an entry of a folder on this level. */
static strata_status visit_entry(walk *w, int depth) {
    struct stat info;
    bool again;
    const char *name = w->path + w->root_length + 1;
    if (stat(w->path, &info)) {
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
            return strata_file_fail(w->err, errno, w->path, "open this file");
        skip_entry(w, name, STRATA_TREE_BROKEN_LINK);
        return STRATA_OK;
    }
    if (S_ISREG(info.st_mode)) return visit_file(w, name);
    if (!S_ISDIR(info.st_mode)) {
        skip_entry(w, name, STRATA_TREE_NO_FILE);
        return STRATA_OK;
    }
    if (depth == w->visitor->depth || (w->visitor->enters && !w->visitor->enters(name, w->visitor->user))) return STRATA_OK;
    if (depth == 0) w->n_visited = 1;
    STRATA_TRY(enter_once(w, &info, &again));
    if (!again) return visit_folder(w, depth + 1);
    skip_entry(w, name, STRATA_TREE_AGAIN);
    return STRATA_OK;
}

/* Visits the folder w->path, on this level below the root. */
static strata_status visit_folder(walk *w, int depth) {
    DIR *folder = opendir(w->path);
    if (!folder) return strata_file_fail(w->err, errno, w->path, "open this folder");
    const size_t length = strlen(w->path);
    strata_status status = STRATA_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (length + strlen(entry->d_name) + 2 > LONGEST_PATH) {
            status = strata_fail(w->err, STRATA_DATA, "%s/%s: its name has more than %d bytes", w->path, entry->d_name,
                                 LONGEST_PATH);
            break;
        }
        snprintf(w->path + length, LONGEST_PATH - length, "/%s", entry->d_name);
        status = visit_entry(w, depth);
        w->path[length] = 0;
    }
    closedir(folder);
    return status;
}

strata_status strata_tree_visit_folder(const char *path, const strata_tree_visitor *visitor, strata_error *err) {
    walk w = {.visitor = visitor, .err = err};
    size_t length = strlen(path);
    struct stat info;
    bool again;
    while (length > 1 && path[length - 1] == '/') length--;
    if (length + 1 > sizeof w.path)
        return strata_fail(err, STRATA_INVALID, "the name of the data folder has %zu bytes; at most %d are possible", length,
                           LONGEST_PATH);
    memcpy(w.path, path, length);
    w.root_length = length;
    if (stat(w.path, &info) != 0) return strata_file_fail(err, errno, w.path, "open this data folder");
    if (!S_ISDIR(info.st_mode)) return strata_fail(err, STRATA_DATA, "%s: is not a folder", w.path);
    strata_status status = enter_once(&w, &info, &again);
    if (!status) status = visit_folder(&w, 0);
    free(w.visited);
    return status;
}

/* ---- tar ---- */

typedef struct tar {
    const char *name;
    strata_stream *stream;
    char long_name[LONGEST_PATH]; /* the name of the next file if an entry before it contained the name, else "" */
    const strata_tree_visitor *visitor;
    strata_error *err;
} tar;

/* `what` names the bytes in the message. */
static strata_status read_exactly(tar *t, void *out, size_t wanted, const char *what) {
    size_t n;
    STRATA_TRY(strata_stream_read(t->stream, out, wanted, &n, t->err));
    if (n == wanted) return STRATA_OK;
    return strata_fail(t->err, STRATA_DATA, "%s: the archive ends at expanded byte %zu, within %s; %zu bytes are missing",
                       t->name, strata_stream_offset(t->stream), what, wanted - n);
}

static strata_status skip(tar *t, size_t n, const char *what) {
    unsigned char block[16384];
    for (size_t some; n; n -= some) {
        some = n < sizeof block ? n : sizeof block;
        STRATA_TRY(read_exactly(t, block, some, what));
    }
    return STRATA_OK;
}

/* Reads a number: big-endian bytes if the first bit is set, else octal digits, padded with spaces and NULs. Returns false if
 * the field is malformed or the number too large. */
static bool read_number(const unsigned char *field, size_t n_field, size_t *out) {
    uint64_t value = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        value = field[0] & 0x7F;
        for (i = 1; i < n_field; i++) {
            if (value >> 55) return false;
            value = value << 8 | field[i];
        }
        *out = (size_t)value;
        return (size_t)value == value;
    }
    while (i < n_field && field[i] == ' ') i++;
    for (; i < n_field && field[i] >= '0' && field[i] <= '7'; i++) {
        if (value >> 60) return false;
        value = value << 3 | (uint64_t)(field[i] - '0');
    }
    while (i < n_field && (field[i] == ' ' || field[i] == 0)) i++;
    *out = (size_t)value;
    return i == n_field && (size_t)value == value;
}

/* The checksum is the sum of the header's bytes, where the bytes of the checksum itself count as spaces. Some old programs
 * added the bytes as signed numbers. */
static bool checksum_is_right(const unsigned char header[TAR_BLOCK]) {
    size_t wanted;
    long unsigned_sum = 0, signed_sum = 0;
    for (int i = 0; i < TAR_BLOCK; i++) {
        int byte = i >= 148 && i < 156 ? ' ' : header[i];
        unsigned_sum += byte;
        signed_sum += (signed char)byte;
    }
    return read_number(header + 148, 8, &wanted) && ((long)wanted == unsigned_sum || (long)wanted == signed_sum);
}

static void read_name(const tar *t, const unsigned char header[TAR_BLOCK], char out[LONGEST_PATH]) {
    bool has_prefix = !memcmp(header + 257, "ustar\0", 6) && header[345];
    if (t->long_name[0])
        snprintf(out, LONGEST_PATH, "%s", t->long_name);
    else if (has_prefix)
        snprintf(out, LONGEST_PATH, "%.155s/%.100s", (const char *)header + 345, (const char *)header);
    else
        snprintf(out, LONGEST_PATH, "%.100s", (const char *)header);
    if (!strncmp(out, "./", 2)) memmove(out, out + 2, strlen(out + 2) + 1);
}

/* A pax header consists of records "LENGTH KEY=VALUE\n", of which only the path is used. */
static void read_pax(tar *t, const char *text, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t length = 0, i = at;
        for (; i < n && text[i] >= '0' && text[i] <= '9' && length < n; i++) length = length * 10 + (size_t)(text[i] - '0');
        if (i >= n || text[i] != ' ' || length <= i - at || length > n - at) return;
        const char *key = text + i + 1;
        size_t n_key = length - (i + 1 - at);
        if (n_key > 6 && !memcmp(key, "path=", 5))
            snprintf(t->long_name, sizeof t->long_name, "%.*s", (int)(n_key - 6), key + 5);
        at += length;
    }
}

/* Reads an entry that contains the name of the next entry. */
static strata_status read_long_name(tar *t, char type, size_t size) {
    char text[65536];
    if (size >= sizeof text)
        return strata_fail(t->err, STRATA_DATA, "%s: at expanded byte %zu a name of %zu bytes; at most 65535 are read", t->name,
                           strata_stream_offset(t->stream), size);
    STRATA_TRY(read_exactly(t, text, size, "a long name"));
    text[size] = 0;
    if (type == 'L') snprintf(t->long_name, sizeof t->long_name, "%.*s", LONGEST_PATH - 1, text);
    if (type == 'x') read_pax(t, text, size);
    return STRATA_OK;
}

static strata_status read_file(tar *t, const char *name, size_t size) {
    char place[2 * LONGEST_PATH];
    snprintf(place, sizeof place, "%s: %s", t->name, name);
    if (size > LARGEST_FILE || size > strata_stream_bound(t->stream))
        return strata_fail(t->err, STRATA_DATA,
                           "%s: its tar header says that it has %zu bytes, more than the archive can contain", place, size);
    STRATA_FREED unsigned char *bytes = NULL;
    STRATA_TRY(STRATA_NEW(bytes, size + 1, t->err, "%s: no host memory for %zu bytes", place, size));
    STRATA_TRY(read_exactly(t, bytes, size, name));
    return t->visitor->take(name, place, strata_released(&bytes), size, t->visitor->user, t->err);
}

/* Reads or skips the entry that follows the header, and its padding. */
static strata_status read_entry(tar *t, const unsigned char header[TAR_BLOCK]) {
    char name[LONGEST_PATH], type = (char)header[156];
    size_t size, padding, offset = strata_stream_offset(t->stream) - TAR_BLOCK;
    if (!checksum_is_right(header))
        return strata_fail(t->err, STRATA_DATA, "%s: at expanded byte %zu there is no tar header: its checksum is wrong%s",
                           t->name, offset, offset ? "" : " (this must be a folder or a tar archive)");
    if (!read_number(header + 124, 12, &size))
        return strata_fail(t->err, STRATA_DATA, "%s: the size in the tar header at expanded byte %zu is not a number", t->name,
                           offset);
    padding = (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
    if (type == 'L' || type == 'x') {
        STRATA_TRY(read_long_name(t, type, size));
        return skip(t, padding, "padding");
    }
    read_name(t, header, name);
    t->long_name[0] = 0;
    if ((type == '0' || type == 0) && t->visitor->wants(name, t->visitor->user))
        STRATA_TRY(read_file(t, name, size));
    else
        STRATA_TRY(skip(t, size, name));
    return skip(t, padding, "padding");
}

strata_status strata_tree_visit_tar_bytes(const char *name, const void *bytes, size_t n_bytes,
                                          const strata_tree_visitor *visitor, strata_error *err) {
    unsigned char header[TAR_BLOCK];
    STRATA_OWNED(strata_stream) *stream = NULL;
    STRATA_TRY(strata_stream_create(name, bytes, n_bytes, &stream, err));
    tar t = {.name = name, .stream = stream, .visitor = visitor, .err = err};
    for (;;) { /* a block of zeros ends the archive; the bytes after it are padding */
        STRATA_TRY(read_exactly(&t, header, sizeof header, "a tar header"));
        if (!header[0] && !memcmp(header, header + 1, sizeof header - 1)) return STRATA_OK;
        STRATA_TRY(read_entry(&t, header));
    }
}

strata_status strata_tree_visit_tar(const char *path, const strata_tree_visitor *visitor, strata_error *err) {
    STRATA_FREED unsigned char *bytes = NULL;
    size_t n_bytes;
    STRATA_TRY(strata_file_read(path, LARGEST_FILE, &bytes, &n_bytes, err));
    return strata_tree_visit_tar_bytes(path, bytes, n_bytes, visitor, err);
}
