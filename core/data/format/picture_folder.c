/* SPDX-License-Identifier: Apache-2.0
 *
 * Which files of a folder are pictures, by their names, and the folders that are left out. */
#include <stdio.h>

#include "core/base/ascii.h"
#include "core/data/format/picture_formats.h"

enum { LONGEST_PATH = 4096, ALL_LEVELS = LONGEST_PATH };

/* What the user reads about one entry, and about several. */
static const struct {
    const char *one, *several;
} kinds[STRATA_PICTURE_N_LEFT_OUT] = {
    [STRATA_PICTURE_BROKEN_LINK] = {"broken link", "broken links"},
    [STRATA_PICTURE_AGAIN] = {"link to a folder that was read already", "links to folders that were read already"},
    [STRATA_PICTURE_OUTSIDE] = {"picture outside of the folders of classes", "pictures outside of the folders of classes"},
    [STRATA_PICTURE_FOREIGN] = {"picture of a format that is not read, to be converted to PNG or JPEG",
                                "pictures of formats that are not read, to be converted to PNG or JPEG"},
    [STRATA_PICTURE_OTHER] = {"file that is not a picture", "files that are not pictures"},
    [STRATA_PICTURE_HIDDEN] = {"hidden file or folder", "hidden files or folders"},
    [STRATA_PICTURE_SYSTEM] = {"file or folder of an operating system", "files or folders of operating systems"}};

static void leave_out(strata_picture_folder *f, strata_picture_left_out kind, const char *name) {
    if (!f->left_out[kind].n++) snprintf(f->left_out[kind].first, sizeof f->left_out[kind].first, "%s", name);
}

static const char *last_part(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* What programs that show files or archives leave beside pictures. */
static bool is_of_system(const char *part) {
    static const char *const names[] = {
        "__MACOSX", "Thumbs.db", "ehthumbs.db", "desktop.ini", "@eaDir", "$RECYCLE.BIN", "System Volume Information"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strata_ascii_same(part, names[i])) return true;
    return false;
}

/* Leaves out a hidden entry, or one of an operating system. Returns whether it is one. */
static bool is_ignored(const char *name, strata_picture_folder *f) {
    const char *part = last_part(name);
    if (part[0] != '.' && !is_of_system(part)) return false;
    leave_out(f, part[0] == '.' ? STRATA_PICTURE_HIDDEN : STRATA_PICTURE_SYSTEM, name);
    return true;
}

/* Notes each folder directly in the root, which is that of a class. */
static bool enters(const char *name, void *user) {
    strata_picture_folder *f = user;
    if (is_ignored(name, f)) return false;
    if (!f->classes || strchr(name, '/')) return true;
    struct strata_picture_class *found = strata_grow(&f->found, f->n_found, sizeof *found);
    f->no_memory |= !found || !(found->name = strdup(name));
    f->n_found += !f->no_memory;
    return true;
}

static void skips(const char *name, strata_tree_skip why, void *user) {
    strata_picture_folder *f = user;
    if (why == STRATA_TREE_AGAIN && f->classes && !strchr(name, '/') && f->n_found) free(f->found[--f->n_found].name);
    static const strata_picture_left_out of[] = {[STRATA_TREE_BROKEN_LINK] = STRATA_PICTURE_BROKEN_LINK,
                                                 [STRATA_TREE_AGAIN] = STRATA_PICTURE_AGAIN,
                                                 [STRATA_TREE_NO_FILE] = STRATA_PICTURE_OTHER};
    leave_out(user, of[why], name);
}

static bool wants(const char *name, void *user) {
    strata_picture_folder *f = user;
    if (is_ignored(name, f)) return false;
    if (!strata_picture_is_named(name))
        leave_out(f, strata_picture_is_foreign(name) ? STRATA_PICTURE_FOREIGN : STRATA_PICTURE_OTHER, name);
    else if (f->classes && !strchr(name, '/'))
        leave_out(f, STRATA_PICTURE_OUTSIDE, name);
    else
        return true;
    return false;
}

static strata_status take(const char *name, const char *place, unsigned char *bytes, size_t n_bytes, void *user,
                          strata_error *err) {
    strata_picture_folder *f = user;
    if (f->n_found) f->found[f->n_found - 1].filled = true; /* the class whose folder was entered last */
    f->n++;
    return f->take(name, place, bytes, n_bytes, f->user, err);
}

static strata_status fail_with_list(const strata_picture_folder *f, strata_status code, const char *place, const char *what,
                                    strata_error *err) {
    STRATA_FINISHED(strata_text) list = {0};
    strata_picture_folder_describe(f, &list);
    return strata_fail(err, code, "%s: %s (%s)%s%s", place, what, STRATA_PICTURE_ENDINGS, list.n_bytes ? "; " : "",
                       list.n_bytes ? list.bytes : "");
}

/* Fails if a folder has no pictures. Otherwise its class would be left out without a message. */
static strata_status check_classes(const char *path, const strata_picture_folder *f, strata_error *err) {
    char place[LONGEST_PATH];
    for (int i = 0; i < f->n_found; i++) {
        if (f->found[i].filled) continue;
        snprintf(place, sizeof place, "%s/%s", path, f->found[i].name);
        return fail_with_list(f, STRATA_DATA, place, "the folder of a class has no pictures; put some there, or remove it",
                              err);
    }
    return f->no_memory ? strata_fail(err, STRATA_OUT_OF_MEMORY, "%s: no host memory", path) : STRATA_OK;
}

strata_status strata_picture_folder_visit(const char *path, strata_picture_folder *f, strata_error *err) {
    const strata_tree_visitor visitor = {wants, take, f, .depth = ALL_LEVELS, .enters = enters, .skips = skips};
    strata_status status = strata_tree_visit_folder(path, &visitor, err);
    if (!status && !f->n && f->left_out[STRATA_PICTURE_OUTSIDE].n)
        status = strata_fail(
            err, STRATA_UNAVAILABLE,
            "%s: its pictures are not in folders of classes; give a folder that contains a folder of pictures for each class",
            path);
    else if (!status && !f->n)
        status = fail_with_list(f, STRATA_UNAVAILABLE, path,
                                f->classes ? "has no pictures in folders of classes: <class>/<name>" : "has no pictures", err);
    else if (!status && f->classes)
        status = check_classes(path, f, err);
    for (int i = 0; i < f->n_found; i++) free(f->found[i].name);
    free(f->found);
    f->found = NULL;
    f->n_found = 0;
    return status;
}

void strata_picture_folder_describe(const strata_picture_folder *f, strata_text *out) {
    const char *before = "left out";
    for (int k = 0; k < STRATA_PICTURE_N_LEFT_OUT; k++) {
        const int64_t n = f->left_out[k].n;
        if (!n) continue;
        strata_text_add(out, "%s %lld %s (%s%s)", before, (long long)n, n == 1 ? kinds[k].one : kinds[k].several,
                        f->left_out[k].first, n == 1 ? "" : ", ...");
        before = ",";
    }
}
