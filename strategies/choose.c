/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the devices of a strategy if the user names none. */
#include <stdio.h>

#include "backends/registry.h"
#include "core/base/ascii.h"
#include "core/run/device.h"
#include "strategies/kinds.h"

static bool is_accelerator(const strata_device_info *row) {
    return !row->skipped[0] && row->device_class > STRATA_DEVICE_CPU && !strchr(row->id, '.');
}

/* Compares only letters and digits: "NVIDIA H200" and "NVIDIA_H200" are the same name. */
static bool same_name(const char *a, const char *b) {
    for (;;) {
        while (*a && !strata_ascii_is_word(*a)) a++;
        while (*b && !strata_ascii_is_word(*b)) b++;
        if (!*a || !*b) return !*a && !*b;
        if (strata_ascii_lower(*a++) != strata_ascii_lower(*b++)) return false;
    }
}

static int count_like(const strata_device_info *rows, int n_rows, const strata_device_info *like, const char *backend) {
    int n = 0;
    for (int i = 0; i < n_rows; i++)
        n += is_accelerator(&rows[i]) && !strcmp(rows[i].backend, backend) && same_name(rows[i].name, like->name);
    return n;
}

/* A device may be listed by several APIs. Returns whether the row's API is the one that is used for devices of this name: the
 * API that lists the most of them, or, if several list as many, the first of these. */
static bool is_used_api(const strata_device_info *rows, int n_rows, const strata_device_info *row) {
    const int own = count_like(rows, n_rows, row, row->backend);
    bool before = true;
    for (int i = 0; i < n_rows; i++) {
        if (!strcmp(rows[i].backend, row->backend)) {
            before = false;
            continue;
        }
        const int other = count_like(rows, n_rows, row, rows[i].backend);
        if (other > own || (other == own && before)) return false;
    }
    return true;
}

strata_status strata_choose_best(const strata_device_info *rows, int n_rows, strata_device_choice *choice, strata_error *err) {
    const strata_device_info *best = strata_device_best(rows, n_rows);
    if (!best) return strata_fail(err, STRATA_UNAVAILABLE, "strategy: no device can be used; `strata devices` says why");
    const char *reason = is_accelerator(best) ? "the best device" : "there is no accelerator; the best CPU";
    snprintf(choice->reason, sizeof choice->reason, "%s", reason);
    choice->ids[choice->n++] = best->id;
    return STRATA_OK;
}

strata_status strata_choose_accelerators(const strata_device_info *rows, int n_rows, strata_device_choice *choice,
                                         strata_error *err) {
    for (int i = 0; i < n_rows; i++)
        if (is_accelerator(&rows[i]) && is_used_api(rows, n_rows, &rows[i])) choice->ids[choice->n++] = rows[i].id;
    snprintf(choice->reason, sizeof choice->reason, "%s", choice->n > 1 ? "all accelerators" : "the only accelerator");
    return choice->n ? STRATA_OK : strata_choose_best(rows, n_rows, choice, err);
}

void strata_choice_divide(strata_device_choice *choice, int local_rank, int local_size) {
    const int n = choice->n;
    if (n < 2 || local_size < 2) return; /* all workers of the machine share the one device */
    int first = (int)((int64_t)local_rank * n / local_size), end = (int)((int64_t)(local_rank + 1) * n / local_size);
    if (n < local_size) first = local_rank % n, end = first + 1;
    choice->n = end - first;
    memmove(choice->ids, choice->ids + first, (size_t)choice->n * sizeof *choice->ids);
    snprintf(choice->reason, sizeof choice->reason, "its part of %d accelerators, worker %d of %d on this machine", n,
             local_rank, local_size);
}
