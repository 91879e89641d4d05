/* SPDX-License-Identifier: Apache-2.0
 *
 * strata plugin-new: writes the source of a simple plugin. Its files are those of samples/plugin, which the build embeds as
 * text (sample_plugin.h), with another name. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "sample_plugin.h"

enum { MOST_NAME = 15, PATH_BYTES = 4096 };

typedef struct new_options {
    const char *to;
} new_options;

static const option_row rows[] = {
    {"to", "DIR", "the folder to write to; it is created if it does not exist", OPTION_TEXT, offsetof(new_options, to), 0, 0},
    {0}};

/* The name and the text of each file. In both, "acme" is replaced by the name, and "Acme" by the name with a capital letter. */
static const struct {
    const char *file, *text;
} files[] = {{"acme.c", plugin_acme_c}, {"CMakeLists.txt", plugin_CMakeLists_txt}, {"README.md", plugin_README_md}};

static void write_named(FILE *file, const char *text, const char *name) {
    for (; *text; text++) {
        const bool capital = !strncmp(text, "Acme", 4);
        if (!capital && strncmp(text, "acme", 4) != 0) {
            fputc(*text, file);
            continue;
        }
        fputc(capital ? toupper((unsigned char)*name) : *name, file);
        fputs(name + 1, file);
        text += 3;
    }
}

static int write_file(const char *folder, const char *file_name, const char *text, const char *name) {
    char path[PATH_BYTES];
    const bool named = !strncmp(file_name, "acme", 4);
    const int wrote =
        snprintf(path, sizeof path, "%s/%s%s", folder, named ? name : "", named ? file_name + strlen("acme") : file_name);
    if (wrote < 0 || (size_t)wrote >= sizeof path) return usage_error("plugin-new: the path of %s is too long", folder);
    FILE *file = fopen(path, "wx"); /* existing files are not overwritten */
    if (!file) return usage_error("plugin-new: %s cannot be written: %s", path, strerror(errno));
    write_named(file, text, name);
    const bool failed = ferror(file) != 0;
    if (fclose(file) || failed) {
        usage_error("plugin-new: %s cannot be written: %s", path, strerror(errno));
        return EXIT_OUT_OF_DISK;
    }
    printf("wrote %s\n", path);
    return EXIT_OK;
}

static int check_name(const char *name) {
    static const char *const taken[] = {"host", "null", "opencl", "vulkan", "plugin", "pjrt"};
    const size_t n = strlen(name);
    bool fits = n > 0 && n <= MOST_NAME && isalpha((unsigned char)name[0]);
    for (size_t i = 0; i < n && fits; i++) fits = isalnum((unsigned char)name[i]) || name[i] == '-';
    if (!fits)
        return usage_error("plugin-new: \"%s\" cannot be a name, which is: a letter, then letters, digits and '-', %d at most",
                           name, MOST_NAME);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strcmp(taken[i], name)) return usage_error("plugin-new: \"%s\" is Strata's own; take another name", name);
    return EXIT_OK;
}

static int run(const command *command, int argc, char **argv) {
    new_options options = {0};
    const char *name = NULL;
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, &name, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    if (!options.to) return usage_error("plugin-new needs --to DIR");
    code = check_name(name);
    if (!code && mkdir(options.to, 0755) && errno != EEXIST)
        code = usage_error("plugin-new: the folder %s cannot be made: %s", options.to, strerror(errno));
    for (size_t i = 0; i < sizeof files / sizeof *files && !code; i++)
        code = write_file(options.to, files[i].file, files[i].text, name);
    if (!code)
        printf(
            "build it:  cmake -S %s -B %s/build && cmake --build %s/build\n"
            "check it:  strata plugin-check %s/build/lib%s.so\n",
            options.to, options.to, options.to, options.to, name);
    return code;
}

const command command_plugin_new = {
    .name = "plugin-new",
    .arguments = "NAME",
    .summary = "write the source of a simple plugin for an accelerator",
    .details = "The plugin is a CMake project that builds against the installed Strata and passes plugin-check.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run};
