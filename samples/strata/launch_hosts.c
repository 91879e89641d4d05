/* SPDX-License-Identifier: Apache-2.0
 *
 * Several hosts: `ssh HOST strata launch --agent` runs the workers of a remote host. The agent reads the job and its secret
 * from stdin, and ends its workers when stdin is closed. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "launch.h"
#include "strata/text.h"

/* ---- a job on several hosts ---- */

/* Adds a word, quoted for a shell. */
static void add_quoted(strata_text *text, const char *word) {
    strata_text_add(text, "'");
    for (; *word; word++) strata_text_add(text, *word == '\'' ? "'\\''" : "%c", *word);
    strata_text_add(text, "'");
}

/* Reads HOST or HOST:N. */
static bool read_host(const char *at, size_t length, host *out_host) {
    const char *colon = memrchr(at, ':', length), *bracket = memrchr(at, ']', length);
    size_t n_name = colon && colon > bracket ? (size_t)(colon - at) : length;
    char *end = (char *)at + length;
    long count = n_name < length ? strtol(colon + 1, &end, 10) : 1;
    if (!n_name || *at == '-' || end != at + length || (n_name < length && colon[1] < '1') || count < 1 || count > MAX_WORKERS)
        return false;
    *out_host = (host){.name = strndup(at, n_name), .n = (int)count};
    return true;
}

int read_hosts(const char *list, host **out_hosts, int *out_n) {
    host *hosts = *out_hosts = calloc(strlen(list) / 2 + 1, sizeof *hosts);
    *out_n = 0;
    if (!hosts) return no_memory();
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        host *h = &hosts[*out_n];
        if (!read_host(at, length, h))
            return usage_error("launch: --hosts is \"%s\"; \"%.*s\" must be HOST or HOST:N, N from 1 to %d", list, (int)length,
                               at, MAX_WORKERS);
        ++*out_n;
        if (!h->name) return no_memory();
        h->first = *out_n > 1 ? h[-1].first + h[-1].n : 0;
        if (h->first + h->n > MAX_WORKERS) return usage_error("launch: --hosts has more than %d workers", MAX_WORKERS);
        at += length;
        if (!*at) return EXIT_OK;
    }
}

void free_hosts(host *hosts, int n) {
    for (int i = 0; i < n; i++) free(hosts[i].name);
    free(hosts);
}

int choose_remote_addresses(job *j, const host *hosts, int n_hosts) {
    uint32_t chance = 0;
    if (getrandom(&chance, sizeof chance, 0) != sizeof chance) chance = (uint32_t)getpid();
    int base = j->options->port ? (int)j->options->port : 20000 + (int)(chance % 10000);
    for (int h = 0; h < n_hosts; h++) {
        const char *at = strchr(hosts[h].name, '@'), *name = at ? at + 1 : hosts[h].name;
        for (int i = 0; i < hosts[h].n; i++) {
            /* If a host is listed twice, its second entry gets the ports after those of the first. */
            int port = base + i;
            for (int other = 0; other < h; other++)
                if (!strcmp(hosts[other].name, hosts[h].name)) port += hosts[other].n;
            if (asprintf(&j->addresses[hosts[h].first + i], "%s:%d", name, port) < 0)
                return j->addresses[hosts[h].first + i] = NULL, no_memory();
        }
    }
    return EXIT_OK;
}

/* Makes the command for the remote shell. The description of the job is passed by stdin, where `ps` does not show it. */
static bool describe_host(const job *j, host *h) {
    static const char default_ssh[] = "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=2";
    static const char *const tls_variables[] = {"STRATA_TLS_CERT", "STRATA_TLS_KEY", "STRATA_TLS_CA", "STRATA_TLS_NAME"};
    const launch_options *options = j->options;
    const char *ssh = options->ssh ? options->ssh : getenv("STRATA_SSH");
    char path[4096], folder[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (!getcwd(folder, sizeof folder)) return false;
    strata_text command = {0}, input = {0};
    strata_text_add(&command, "cd ");
    add_quoted(&command, folder);
    for (size_t i = 0; i < sizeof tls_variables / sizeof *tls_variables; i++) { /* these are paths and not secrets */
        const char *value = getenv(tls_variables[i]);
        if (!value || !*value) continue;
        strata_text_add(&command, " && export %s=", tls_variables[i]);
        add_quoted(&command, value);
    }
    strata_text_add(&command, " && exec ");
    add_quoted(&command, options->strata ? options->strata : path);
    strata_text_add(&command, " launch --agent -n %d --grace %g%s --", h->n, options->grace_s,
                    options->no_bind ? " --no-bind" : "");
    for (const char **word = j->command; *word; word++) strata_text_add(&command, " "), add_quoted(&command, *word);
    strata_text_add(&input, "%s %d %d %d", j->secret, h->first, j->restart, j->n_ranks);
    for (int i = 0; i < j->n_ranks; i++) strata_text_add(&input, " %s", j->addresses[i]);
    strata_text_add(&input, "\n");
    bool made = !strata_text_take(&command, &h->command, NULL, NULL);
    made = !strata_text_take(&input, &h->input, NULL, NULL) && made;
    if (asprintf(&h->script, "exec %s \"$@\"", ssh && *ssh ? ssh : default_ssh) < 0 ||
        asprintf(&h->label, "host %s", h->name) < 0)
        return false;
    const char *const argv[] = {"sh", "-c", h->script, "sh", h->name, h->command, NULL};
    memcpy(h->argv, argv, sizeof argv);
    return made;
}

static void finish_host(host *h) {
    free(h->script);
    free(h->command);
    free(h->input);
    free(h->label);
    h->script = h->command = h->input = h->label = NULL;
}

int run_hosts(const job *j, host *hosts, int n_hosts, bool *out_stopped) {
    static const char *const no_variables[] = {"STRATA_SECRET", NULL}; /* ssh does not need the secret */
    int code = EXIT_OK;
    child *children = calloc((size_t)n_hosts, sizeof *children);
    for (int i = 0; i < n_hosts && !code; i++) {
        if (!children || !describe_host(j, &hosts[i])) {
            code = no_memory();
            break;
        }
        children[i] = (child){
            .argv = hosts[i].argv, .environment = no_variables, .name = hosts[i].label, .rank = -1, .input = hosts[i].input};
    }
    /* Each agent first waits for the grace time itself. */
    const launch_patience limits = {.grace_s = j->options->grace_s + 5, .ended_fd = -1};
    if (!code) code = run_children(children, n_hosts, &limits, false, out_stopped);
    for (int i = 0; i < n_hosts; i++) finish_host(&hosts[i]);
    free(children);
    return code;
}

/* ---- the agent ---- */

/* The first line of stdin has the secret, the first rank, the number of the restart, the number of ranks, and the addresses. */
int read_job(job *j) {
    char *line = NULL, *rest = NULL;
    size_t capacity = 0, n = 0;
    int code = EXIT_OK;
    for (char c = 0; c != '\n';) { /* one byte at a time, since the following bytes are read later */
        if (n + 1 >= capacity) {
            char *grown = capacity < (1 << 24) ? realloc(line, capacity = 2 * capacity + 4096) : NULL;
            if (!grown) {
                free(line);
                return no_memory();
            }
            line = grown;
        }
        if (read(0, &c, 1) != 1) break;
        line[n++] = c;
    }
    if (line) line[n] = '\0';
    const char *secret = line ? strtok_r(line, " \n", &rest) : NULL, *words[3] = {NULL};
    for (int i = 0; i < 3; i++) words[i] = secret ? strtok_r(NULL, " \n", &rest) : NULL;
    long first = words[0] ? atol(words[0]) : -1, restart = words[1] ? atol(words[1]) : -1,
         ranks = words[2] ? atol(words[2]) : -1;
    if (first < 0 || restart < 0 || ranks < first + j->n_here || ranks > MAX_WORKERS) {
        code = usage_error("launch --agent: stdin does not describe a job; only `strata launch --hosts` starts this command");
    } else {
        snprintf(j->secret, sizeof j->secret, "%s", secret);
        j->first = (int)first, j->restart = (int)restart, j->n_ranks = (int)ranks;
        j->addresses = calloc((size_t)ranks, sizeof *j->addresses);
        for (int i = 0; j->addresses && i < j->n_ranks && !code; i++) {
            const char *address = strtok_r(NULL, " \n", &rest);
            if (!address || !(j->addresses[i] = strdup(address))) code = usage_error("launch --agent: addresses are missing");
        }
        if (!j->addresses) code = no_memory();
    }
    free(line);
    return code;
}
