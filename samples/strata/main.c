/* SPDX-License-Identifier: Apache-2.0
 *
 * strata, the command: finds the command that argv names, and prints help if there is none. Each command has a file in this
 * folder. */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "strata/text.h"
#include "terminal.h"

const command *const commands[] = {&command_devices,    &command_train,
                                   &command_evaluate,   &command_predict,
                                   &command_serve,      &command_tune,
                                   &command_plot,       &command_summary,
                                   &command_inspect,    &command_data,
                                   &command_bench,      &command_launch,
                                   &command_cluster,    &command_trace,
                                   &command_graph,      &command_plugin_check,
                                   &command_plugin_new, &command_compile,
                                   &command_convert,    &command_export,
                                   &command_completion, NULL};

static const char exit_codes[] =
    "strata's exit codes\n"
    "    0  success\n"
    "    2  wrong usage: an option or argument is wrong\n"
    "    3  bad data: a file or folder is missing, damaged, or does not fit the model; the loss is not finite\n"
    "    4  no such device, or the device cannot do this (memory, dtype)\n"
    "    5  internal error: please report it\n"
    "  130  interrupted by Ctrl-C, after the step that was running, or while a driver compiled\n"
    "  143  ended by SIGTERM, after the step that was running\n"
    "A restart may cure these:\n"
    "  160  the device or its driver died, or a driver or plugin ended the process\n"
    "  161  no space left on the disk; the file that was there before is whole\n"
    "  162  another worker died\n"
    "  163  no progress until the deadline: of a worker, or of a driver or plugin in a call (--driver-seconds,\n"
    "       --compile-seconds, --stall-seconds); what was to be saved until then is saved\n";

static void print_help(void) {
    printf("strata trains neural networks on any accelerator.\n\nusage: strata COMMAND [ARGUMENTS] [OPTIONS]\n\n");
    for (int i = 0; commands[i]; i++) print_columns(commands[i]->name, commands[i]->summary);
    print_columns("help", "help on a command, or on layers, ops or exit-codes; man prints the manual page");
    print_fitted("\nstrata help COMMAND lists its options, with their defaults in parentheses. To begin: strata train mnist\n");
}

static const command *find_command(const char *name) {
    for (int i = 0; commands[i]; i++)
        if (!strcmp(commands[i]->name, name)) return commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *words[32] = {"help", "exit-codes", "layers", "ops", "man"};
    int n = 5;
    for (int i = 0; commands[i]; i++) words[n++] = commands[i]->name;
    static const char *const others[][2] = {{"fit", "train"},     {"test", "evaluate"},    {"score", "evaluate"},
                                            {"infer", "predict"}, {"run", "predict"},      {"server", "serve"},
                                            {"show", "summary"},  {"version", "--version"}};
    const char *near = strata_nearest_name(name, words, (size_t)n);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i][0])) near = others[i][1];
    if (near) return usage_error("\"%s\" is not a command. Did you mean \"%s\"? strata --help lists them", name, near);
    const char *ending = strrchr(name, '.');
    const bool model = ending && (!strcmp(ending, ".strata") || !strcmp(ending, ".safetensors"));
    if (!access(name, F_OK) && model)
        return usage_error("\"%s\" is not a command, but a model: strata predict %s DATA, or strata summary %s", name, name,
                           name);
    if (!access(name, F_OK)) return usage_error("\"%s\" is not a command, but a file: strata train %s", name, name);
    return usage_error("\"%s\" is not a command; strata --help lists them", name);
}

static int help(const char *about) {
    if (!about) {
        print_help();
        return EXIT_OK;
    }
    if (!strcmp(about, "help")) {
        printf(
            "strata help COMMAND tells a command's options; strata help layers what a model is made of; strata help "
            "exit-codes\n"
            "what a script may rely on.\n");
        return EXIT_OK;
    }
    if (!strcmp(about, "exit-codes")) {
        fputs(exit_codes, stdout);
        return EXIT_OK;
    }
    if (!strcmp(about, "man")) {
        print_manual(exit_codes);
        return EXIT_OK;
    }
    if (!strcmp(about, "layers")) return print_layers();
    if (!strcmp(about, "ops")) return print_ops();
    const command *found = find_command(about);
    if (!found) return unknown_command(about);
    print_command_help(found);
    return EXIT_OK;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_help();
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) return help(argc > 2 ? argv[2] : NULL);
    if (!strcmp(argv[1], "help")) return help(argc > 2 ? argv[2] : NULL);
    if (!strcmp(argv[1], "--version")) {
        printf("strata %s\n", STRATA_VERSION);
        return EXIT_OK;
    }
    for (int i = 2; i < argc && argv[1][0] == '-'; i++)
        if (find_command(argv[i]))
            return usage_error("\"%s\" is not an option of strata alone; options follow the command: strata %s ... %s", argv[1],
                               argv[i], argv[1]);
    if (argv[1][0] == '-') return usage_error("\"%s\" is not an option; see strata --help", argv[1]);
    const command *found = find_command(argv[1]);
    if (!found) return unknown_command(argv[1]);
    return found->run(found, argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    setlocale(LC_ALL, "C"); /* whatever a library that was loaded before chose */
    watch_drivers();
    int code = dispatch(argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && code == EXIT_OK) {
        usage_error("cannot write to standard output: %s", strerror(errno));
        code = EXIT_OUT_OF_DISK;
    }
    /* A driver may still be compiling or hang, and its exit handlers could crash or wait for that. */
    return end_of_command(code);
}
