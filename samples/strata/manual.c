/* SPDX-License-Identifier: Apache-2.0
 *
 * Other output from the tables of commands and options: the manual page (`strata help man`), and the completion for shells
 * (`strata completion SHELL`). */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const char *dashes(const option_row *row) {
    return row->name[1] ? "--" : "-";
}

/* ---- the manual page ---- */

/* Text for troff: a backslash is escaped, and so is a dot or an apostrophe at the beginning of a line. */
static void print_roff(const char *text) {
    bool begins = true;
    for (const char *c = text; *c; c++) {
        if (begins && (*c == '.' || *c == '\'')) fputs("\\&", stdout);
        if (*c == '\\')
            fputs("\\e", stdout);
        else if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(*c);
        begins = *c == '\n';
    }
}

static void print_roff_option(const option_row *row) {
    if (row->kind == OPTION_HEADING) {
        printf(".PP\n.I ");
        print_roff(row->help);
        putchar('\n');
        return;
    }
    printf(".TP\n\\fB");
    print_roff(dashes(row));
    print_roff(row->name);
    printf("\\fR");
    if (row->value) {
        printf(" \\fI");
        print_roff(row->value);
        printf("\\fR");
    }
    putchar('\n');
    print_roff(row->help);
    putchar('\n');
}

static void print_roff_command(const command *command) {
    printf(".SS strata %s", command->name);
    if (*command->arguments) printf(" %s", command->arguments);
    printf(" [OPTIONS]\n");
    print_roff(command->summary);
    printf(".\n");
    if (command->details) {
        printf(".PP\n.nf\n");
        print_roff(command->details);
        printf("\n.fi\n");
    }
    for (const option_row *row = next_row(command, NULL); row; row = next_row(command, row)) print_roff_option(row);
}

void print_manual(const char *exit_codes) {
    printf(".TH STRATA 1 \"\" \"strata %s\" \"User Commands\"\n.SH NAME\nstrata \\- train neural networks on any accelerator\n",
           STRATA_VERSION);
    printf(".SH SYNOPSIS\n.B strata\n.I COMMAND\n[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n");
    printf(
        "Trains, evaluates and uses neural networks on GPUs and CPUs through OpenCL, Vulkan or the built-in host backend.\n");
    printf(".SH COMMANDS\n");
    for (int i = 0; commands[i]; i++) print_roff_command(commands[i]);
    printf(".SH EXIT STATUS\n.nf\n");
    print_roff(exit_codes);
    printf(".fi\n");
}

/* ---- completion ---- */

static void print_command_words(void) {
    for (int i = 0; commands[i]; i++) printf("%s ", commands[i]->name);
    printf("help");
}

static void print_option_words(const command *command) {
    for (const option_row *row = next_row(command, NULL); row; row = next_row(command, row))
        if (row->kind != OPTION_HEADING) printf("%s%s ", dashes(row), row->name);
    printf("--help");
}

/* Words that begin with a dash are options of the command, others are files; zsh reads the same function. */
static void print_bash(void) {
    printf("_strata() {\n    local word=${COMP_WORDS[COMP_CWORD]} words=\n    COMPREPLY=()\n");
    printf("    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '");
    print_command_words();
    printf("' -- \"$word\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; commands[i]; i++) {
        printf("    %s) words='", commands[i]->name);
        print_option_words(commands[i]);
        printf("' ;;\n");
    }
    printf("    help) words='");
    print_command_words();
    printf(" layers exit-codes man' ;;\n    esac\n");
    printf("    case $word in -*) ;; *) [ \"${COMP_WORDS[1]}\" = help ] || return ;; esac\n");
    printf("    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o default -F _strata strata\n");
}

static void print_zsh(void) {
    printf("#compdef strata\nautoload -U +X bashcompinit && bashcompinit\n");
    print_bash();
}

static void print_fish_text(const char *text) {
    putchar('\'');
    for (const char *c = text; *c; c++) {
        if (*c == '\'' || *c == '\\') putchar('\\');
        putchar(*c);
    }
    putchar('\'');
}

static void print_fish(void) {
    for (int i = 0; commands[i]; i++) {
        printf("complete -c strata -n __fish_use_subcommand -f -a %s -d ", commands[i]->name);
        print_fish_text(commands[i]->summary);
        putchar('\n');
        for (const option_row *row = next_row(commands[i], NULL); row; row = next_row(commands[i], row)) {
            if (row->kind == OPTION_HEADING) continue;
            printf("complete -c strata -n '__fish_seen_subcommand_from %s' %s %s%s -d ", commands[i]->name,
                   row->name[1] ? "-l" : "-s", row->name, row->value ? " -r" : "");
            print_fish_text(row->help);
            putchar('\n');
        }
    }
}

static const struct {
    const char *name;
    void (*print)(void);
} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

typedef struct completion_options {
    bool none;
} completion_options;

static int run(const command *command, int argc, char **argv) {
    completion_options options = {0};
    const char *shell = NULL;
    int n = 0;
    const int code = read_options(command, argc, argv, &options, &shell, &n);
    if (code) return code < 0 ? EXIT_OK : code;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(shells[i].name, shell)) {
            shells[i].print();
            return EXIT_OK;
        }
    return usage_error("completion: \"%s\" is not a shell that it knows; there are bash, zsh and fish", shell);
}

static const option_row rows[] = {{0}};

const command command_completion = {
    .name = "completion",
    .arguments = "bash|zsh|fish",
    .summary = "print what makes a shell complete commands and options",
    .details =
        "  bash   source <(strata completion bash)\n"
        "  zsh    strata completion zsh > a file _strata in a folder of $fpath\n"
        "  fish   strata completion fish > ~/.config/fish/completions/strata.fish\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .run = run,
};
