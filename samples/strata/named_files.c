/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the files that a command writes with those that it reads, before it reads any: an output that is one of the inputs
 * would destroy it. Two names are the same file if device and inode are equal, so links and other spellings are found. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "samples.h"
#include "strata/formats.h"

/* A file or folder that an option or an argument names. */
typedef struct named_file {
    const option_row *row; /* NULL: it is an argument */
    const char *path;
    bool written;
    /* The file; if it does not exist yet, the folder that it will be in, and its name there. */
    bool known, exists, is_folder;
    dev_t device;
    ino_t inode;
    char name[NAME_MAX + 1];
} named_file;

enum { MOST_NAMED_FILES = 256, MOST_LINKS = 40 };
typedef struct named_files {
    named_file items[MOST_NAMED_FILES];
    int n;
} named_files;

/* ---- identity ---- */

/* Replaces `path`, a symbolic link to a file that does not exist, by the name of that file. */
static bool follow_link(char path[PATH_MAX]) {
    char target[PATH_MAX];
    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) return false;
    target[n] = 0;
    char *slash = strrchr(path, '/');
    if (*target == '/' || !slash) return snprintf(path, PATH_MAX, "%s", target) < PATH_MAX;
    const size_t room = PATH_MAX - (size_t)(slash + 1 - path);
    return (size_t)snprintf(slash + 1, room, "%s", target) < room;
}

/* Finds the folder and the name of a file that does not exist. */
static void identify_new(named_file *f) {
    char path[PATH_MAX];
    struct stat folder;
    size_t n = (size_t)snprintf(path, sizeof path, "%s", f->path);
    if (n >= sizeof path) return;
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    for (int i = 0; i < MOST_LINKS && follow_link(path); i++) continue;
    char *slash = strrchr(path, '/');
    if ((size_t)snprintf(f->name, sizeof f->name, "%s", slash ? slash + 1 : path) >= sizeof f->name) return;
    if (slash) slash[slash == path] = 0; /* keeps the / of the root */
    if (stat(slash ? path : ".", &folder)) return;
    f->known = true;
    f->device = folder.st_dev;
    f->inode = folder.st_ino;
}

/* Devices, pipes and sockets are no files: /dev/null may be written several times. */
static void identify(named_file *f) {
    struct stat info;
    const bool is_stdin = !f->written && !strcmp(f->path, "-");
    if (is_stdin ? fstat(STDIN_FILENO, &info) : stat(f->path, &info)) {
        if (errno == ENOENT && f->written) identify_new(f);
        return;
    }
    f->known = f->exists = S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
    f->is_folder = S_ISDIR(info.st_mode);
    f->device = info.st_dev;
    f->inode = info.st_ino;
}

static bool is_same(const named_file *a, const named_file *b) {
    return a->known && b->known && a->exists == b->exists && a->device == b->device && a->inode == b->inode &&
           (a->exists || !strcmp(a->name, b->name));
}

/* ---- files in a folder of data ---- */

/* Whether the folder contains the existing file, in itself or in a folder of it. */
static bool contains(const named_file *folder, const named_file *file) {
    char path[PATH_MAX];
    struct stat info;
    if (!folder->is_folder || !file->exists || file->is_folder || !realpath(file->path, path)) return false;
    for (char *slash; (slash = strrchr(path, '/')) && slash != path;) {
        *slash = 0;
        if (!stat(path, &info) && info.st_dev == folder->device && info.st_ino == folder->inode) return true;
    }
    return false;
}

/* Whether the file can be a part of a folder of data: a picture, an array or a table. A log of training steps, which may be
 * continued, is none. */
static bool is_data(const char *path) {
    unsigned char head[16] = {0};
    size_t n = 0;
    if (strata_stream_peek_file(path, head, sizeof head, &n, NULL)) return false;
    if (strata_picture_matches(head, n)) return true;
    if (n >= 4 && (!memcmp(head, "\x93NUM", 4) || !memcmp(head, "PK\3\4", 4))) return true;
    if (n >= 4 && !head[0] && !head[1] && head[2] >= 8) return true; /* IDX */
    return is_table(path) && strncmp((const char *)head, "event,", 6) != 0;
}

/* ---- the command's files ---- */

static void add_file(named_files *list, const option_row *row, const char *path, bool written) {
    if (!path || list->n == MOST_NAMED_FILES) return;
    named_file *f = &list->items[list->n++];
    *f = (named_file){.row = row, .path = path, .written = written};
    identify(f);
}

static void add_row(named_files *list, const option_row *row, const void *options) {
    const void *value = (const char *)options + row->offset;
    if (row->kind == OPTION_INPUT || row->kind == OPTION_OUTPUT)
        add_file(list, row, *(const char *const *)value, row->kind == OPTION_OUTPUT);
    if (row->kind == OPTION_INPUTS)
        for (int i = 0; i < ((const text_list *)value)->n; i++)
            add_file(list, row, ((const text_list *)value)->items[i], false);
}

/* The name of the file's option, followed by a blank; "" for an argument. */
static const char *option_of(const named_file *f, char text[64]) {
    if (!f->row) return "";
    snprintf(text, 64, "%s%.50s ", f->row->name[1] ? "--" : "-", f->row->name);
    return text;
}

/* Whether the option writes files in a folder. Another option that names a folder fails later, with a better message. */
static bool takes_folder(const named_file *f) {
    return f->row && f->row->value && strstr(f->row->value, "DIR");
}

static int compare(const named_file *out, const named_file *other) {
    char a[64], b[64];
    if (out->is_folder && !takes_folder(out)) return EXIT_OK;
    if (other->written && takes_folder(out) && takes_folder(other)) return EXIT_OK; /* their files have different names */
    if (other->written && is_same(out, other))
        return usage_error("%s%s and %s%s are the same file, and both would be written; give two files", option_of(out, a),
                           out->path, option_of(other, b), other->path);
    if (!other->written && is_same(out, other))
        return usage_error("%s%s would overwrite %s%s, which the command reads; give the name of another %s", option_of(out, a),
                           out->path, option_of(other, b), other->path, out->is_folder ? "folder" : "file");
    if (!other->written && contains(other, out) && is_data(out->path))
        return usage_error(
            "%s%s would overwrite data: the command reads the folder %s%s, which contains this file; give the "
            "name of another file",
            option_of(out, a), out->path, option_of(other, b), other->path);
    return EXIT_OK;
}

int check_output(const char *option, const char *path, const char *input) {
    named_file out = {.path = path, .written = true}, in = {.path = input};
    identify(&out);
    identify(&in);
    if (!is_same(&out, &in)) return EXIT_OK;
    return usage_error("%s would overwrite %s as %s, which the command reads; choose another name", option, input, path);
}

int check_outputs(const command *command, const void *options, const char *const *arguments, int n_arguments) {
    named_files *list = calloc(1, sizeof *list);
    int code = list ? EXIT_OK : EXIT_DEVICE;
    for (const option_row *row = list ? next_row(command, NULL) : NULL; row; row = next_row(command, row))
        add_row(list, row, is_own_row(command, row) ? options : (const char *)options + command->also->offset);
    const char *role = command->files;
    for (int i = 0; list && role && i < n_arguments; i++) {
        if (*role != '-') add_file(list, NULL, arguments[i], *role == 'w');
        if (role[1]) role++;
    }
    for (int i = 0; list && i < list->n && !code; i++)
        for (int k = 0; k < list->n && list->items[i].written && !code; k++)
            if (k > i || !list->items[k].written) code = compare(&list->items[i], &list->items[k]);
    free(list);
    return code;
}
