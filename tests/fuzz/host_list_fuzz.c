/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as Slurm's lists: a message that names the variable, or hosts that have names and counts of at least one. */
#include <stdlib.h>
#include <string.h>

#include "cluster/resolver/resolver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_hosts(const char *text) {
    strata_host_list list;
    strata_error err = {0};
    if (strata_host_list_expand("HOSTS", text, &list, &err)) {
        if (strncmp(err.message, "HOSTS:", 6) != 0 && err.status != STRATA_OUT_OF_MEMORY) abort();
        return;
    }
    if (list.n_hosts < 1 || list.n_hosts > STRATA_CLUSTER_MAX_TASKS) abort();
    for (int i = 0; i < list.n_hosts; i++)
        if (!*list.hosts[i] || strlen(list.hosts[i]) > 255 || strpbrk(list.hosts[i], "[], \t")) abort();
    strata_host_list_finish(&list);
}

static void check_counts(const char *text) {
    int counts[5] = {0};
    strata_error err = {0};
    if (strata_task_counts_expand("COUNTS", text, counts, 5, &err)) {
        if (strncmp(err.message, "COUNTS is", 9) != 0) abort();
        return;
    }
    for (int i = 0; i < 5; i++)
        if (counts[i] < 1) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_hosts(text);
    check_counts(text);
    free(text);
    return 0;
}
