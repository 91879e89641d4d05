/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading with limits; atomic writing: the old file stays whatever goes wrong, and no temporary file is left. */
#include "core/base/file.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/folder.h"

static void content_is(const char *path, const char *wanted) {
    unsigned char *bytes = NULL;
    size_t n_bytes = 0;
    strata_error err = {0};
    cr_assert_eq(strata_file_read(path, 1 << 20, &bytes, &n_bytes, &err), STRATA_OK, "%s", err.message);
    cr_assert_eq(n_bytes, strlen(wanted));
    cr_assert_str_eq((char *)bytes, wanted);
    free(bytes);
}

TestSuite(file, .init = test_folder_make, .fini = test_folder_remove);

Test(file, write_then_read_gives_the_same_bytes) {
    const char *path = test_path("a");
    cr_assert_eq(strata_file_write(path, "", 0, NULL), STRATA_OK);
    content_is(path, "");
    cr_assert_eq(strata_file_write(path, "hello", 5, NULL), STRATA_OK);
    content_is(path, "hello");
    cr_assert_eq(test_folder_count(), 1);
}

Test(file, read_has_a_limit) {
    const char *path = test_path("a");
    unsigned char *bytes;
    size_t n_bytes;
    strata_error err;
    cr_assert_eq(strata_file_write(path, "hello", 5, NULL), STRATA_OK);
    cr_assert_eq(strata_file_read(path, 4, &bytes, &n_bytes, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "is longer than the 4 bytes"), "%s", err.message);
    cr_assert_eq(strata_file_read(path, 5, &bytes, &n_bytes, &err), STRATA_OK);
    free(bytes);
    cr_assert_eq(strata_file_read("/dev/zero", 100000, &bytes, &n_bytes, &err), STRATA_DATA);
    cr_assert_str_eq(err.message, "/dev/zero: is longer than the 100000 bytes that it may have");
}

Test(file, read_says_why_it_cannot) {
    unsigned char *bytes;
    size_t n_bytes;
    strata_error err;
    cr_assert_eq(strata_file_read(test_path("none"), 10, &bytes, &n_bytes, &err), STRATA_UNAVAILABLE);
    cr_assert(strstr(err.message, "none: cannot open: No such file or directory"), "%s", err.message);
    cr_assert_eq(strata_file_read(test_folder(), 10000, &bytes, &n_bytes, &err), STRATA_DATA);
    cr_assert(strstr(err.message, "it is a folder, not a file"), "%s", err.message);
}

Test(file, an_uncommitted_writer_leaves_the_old_file) {
    const char *path = test_path("a");
    strata_file_writer *writer;
    cr_assert_eq(strata_file_write(path, "old", 3, NULL), STRATA_OK);
    cr_assert_eq(strata_file_writer_create(path, &writer, NULL), STRATA_OK);
    cr_assert_eq(strata_file_writer_add(writer, "new", 3, NULL), STRATA_OK);
    cr_assert_eq(test_folder_count(), 2);
    content_is(path, "old");
    strata_file_writer_destroy(writer);
    cr_assert_eq(test_folder_count(), 1);
    content_is(path, "old");
    strata_file_writer_destroy(NULL);
}

Test(file, two_writers_of_one_file_do_not_collide) {
    const char *path = test_path("a");
    strata_file_writer *first, *second;
    cr_assert_eq(strata_file_writer_create(path, &first, NULL), STRATA_OK);
    cr_assert_eq(strata_file_writer_create(path, &second, NULL), STRATA_OK);
    cr_assert_eq(strata_file_writer_add(first, "1", 1, NULL), STRATA_OK);
    cr_assert_eq(strata_file_writer_add(second, "2", 1, NULL), STRATA_OK);
    cr_assert_eq(strata_file_writer_commit(second, NULL, NULL), STRATA_OK);
    cr_assert_eq(strata_file_writer_commit(first, NULL, NULL), STRATA_OK);
    strata_file_writer_destroy(first);
    strata_file_writer_destroy(second);
    content_is(path, "1");
    cr_assert_eq(test_folder_count(), 1);
}

Test(file, permissions_and_symbolic_links_stay) {
    const char *path = test_path("a"), *link = test_path("link");
    struct stat info;
    cr_assert_eq(strata_file_write(path, "old", 3, NULL), STRATA_OK);
    cr_assert_eq(chmod(path, 0640), 0);
    cr_assert_eq(symlink("a", link), 0);
    cr_assert_eq(strata_file_write(link, "new", 3, NULL), STRATA_OK);
    content_is(path, "new");
    cr_assert_eq(lstat(link, &info), 0);
    cr_assert(S_ISLNK(info.st_mode));
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(info.st_mode & 0777, 0640);
}

Test(file, write_refuses_what_is_not_a_file) {
    strata_error err;
    cr_assert_eq(strata_file_write(test_folder(), "x", 1, &err), STRATA_INVALID);
    cr_assert(strstr(err.message, "is a folder; give the name of a file"), "%s", err.message);
    cr_assert_eq(strata_file_write("/dev/null", "x", 1, &err), STRATA_INVALID);
    cr_assert_str_eq(err.message, "/dev/null: is not a regular file; give the name of a file");
    cr_assert_eq(strata_file_write("", "x", 1, &err), STRATA_INVALID);
    cr_assert_eq(strata_file_write(test_path("none/a"), "x", 1, &err), STRATA_UNAVAILABLE);
    cr_assert(strstr(err.message, "none/a: cannot write: there is no folder "), "%s", err.message);
}

Test(file, a_long_name_still_gets_its_temporary) {
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    cr_assert_eq(strata_file_write(test_path(name), "x", 1, NULL), STRATA_OK);
}

/* The limit of file size stands in for a full disk where mounting one is not allowed. */
Test(file, a_reached_limit_keeps_the_old_file) {
    const char *path = test_path("a");
    static char bytes[100000];
    strata_error err;
    cr_assert_eq(strata_file_write(path, "old", 3, NULL), STRATA_OK);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = 50000, .rlim_max = RLIM_INFINITY}, before;
    getrlimit(RLIMIT_FSIZE, &before);
    limit.rlim_max = before.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    strata_status status = strata_file_write(path, bytes, sizeof bytes, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    cr_assert_eq(status, STRATA_OUT_OF_DISK, "%s", err.message);
    cr_assert(strstr(err.message, "make room and try again"), "%s", err.message);
    content_is(path, "old");
    cr_assert_eq(test_folder_count(), 1);
}

Test(file, a_full_disk_keeps_the_old_file) {
    if (mount("strata", test_folder(), "tmpfs", 0, "size=64k") != 0) cr_skip_test("mounting a small tmpfs needs root");
    const char *path = test_path("a");
    static char bytes[100000];
    strata_error err = {0};
    strata_status small = strata_file_write(path, "old", 3, NULL);
    strata_status large = strata_file_write(path, bytes, sizeof bytes, &err);
    int n_files = test_folder_count();
    unsigned char *kept = NULL;
    size_t n_kept = 0;
    strata_status read = strata_file_read(path, 100, &kept, &n_kept, NULL);
    umount(test_folder());
    cr_assert_eq(small, STRATA_OK);
    cr_assert_eq(large, STRATA_OUT_OF_DISK);
    cr_assert(strstr(err.message, "No space left on device"), "%s", err.message);
    cr_assert_eq(n_files, 1);
    cr_assert(read == STRATA_OK && n_kept == 3 && memcmp(kept, "old", 3) == 0);
    free(kept);
}
