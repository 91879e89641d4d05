/* SPDX-License-Identifier: Apache-2.0
 *
 * strata devices --check: prints how every op of a device compares with its reference (strata/conformance.h). */
#include "devices_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"
#include "strata/conformance.h"
#include "terminal.h"

static const char *const words[] = {[STRATA_VERDICT_NOT_RUN] = "-",
                                    [STRATA_VERDICT_RIGHT] = "right",
                                    [STRATA_VERDICT_REPLACED] = "replaced",
                                    [STRATA_VERDICT_REFUSED] = "refused",
                                    [STRATA_VERDICT_WRONG] = "WRONG"};

static void print_table(const strata_device_info *info, const strata_op_verdict *verdicts, int n_ops) {
    printf("%s, %s, driver %s\n  %-34s", info->id, info->name, info->driver, "");
    for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
        if (info->dtypes >> d & 1) printf(" %-8s", strata_dtype_name((strata_dtype)d));
    putchar('\n');
    for (int i = 0; i < n_ops; i++) {
        const strata_op_verdict *row = &verdicts[i * STRATA_DTYPE_COUNT];
        bool any = false;
        for (int d = 0; d < STRATA_DTYPE_COUNT; d++) any = any || row[d].verdict;
        if (!any) continue;
        printf("  %-34s", row->op);
        for (int d = 0; d < STRATA_DTYPE_COUNT; d++)
            if (info->dtypes >> d & 1) printf(" %-8s", words[row[d].verdict]);
        putchar('\n');
    }
    for (int i = 0; i < n_ops * STRATA_DTYPE_COUNT; i++)
        if (verdicts[i].verdict > STRATA_VERDICT_RIGHT)
            printf("  %s %s: %s: %s\n", verdicts[i].op, strata_dtype_name((strata_dtype)(i % STRATA_DTYPE_COUNT)),
                   words[verdicts[i].verdict], verdicts[i].why);
}

static void print_json(const strata_device_info *info, const strata_op_verdict *verdicts, int n_ops) {
    bool first = true;
    printf("{\"id\":");
    print_json_string(info->id);
    printf(",\"name\":");
    print_json_string(info->name);
    printf(",\"driver\":");
    print_json_string(info->driver);
    printf(",\"ops\":[");
    for (int i = 0; i < n_ops * STRATA_DTYPE_COUNT; i++) {
        const strata_op_verdict *place = &verdicts[i];
        if (!place->verdict) continue;
        printf("%s{\"op\":\"%s\",\"dtype\":\"%s\",\"verdict\":\"%s\",\"reason\":", first ? "" : ",", place->op,
               strata_dtype_name((strata_dtype)(i % STRATA_DTYPE_COUNT)),
               place->verdict == STRATA_VERDICT_WRONG ? "wrong" : words[place->verdict]);
        if (place->why[0])
            print_json_string(place->why);
        else
            printf("null");
        putchar('}');
        first = false;
    }
    printf("]}");
}

static void print_progress(const char *op, void *user) {
    fprintf(stderr, "\r\033[Kchecking %s on %s", op, (const char *)user);
}

int check_device(const strata_device_info *info, bool json) {
    const bool draws = terminal_draws(STDERR_FILENO);
    char *id = (char *)info->id;
    strata_device_info opened;
    strata_op_verdict *verdicts = NULL;
    strata_error err = {0};
    int n_ops = 0, code = EXIT_OK;
    const strata_status status = strata_check_device(id, draws ? print_progress : NULL, id, &opened, &verdicts, &n_ops, &err);
    if (draws) fprintf(stderr, "\r\033[K");
    if (status) return report(FAILING_DEVICE, status, &err);
    for (int i = 0; i < n_ops * STRATA_DTYPE_COUNT; i++)
        if (verdicts[i].verdict >= STRATA_VERDICT_REFUSED) code = EXIT_DEVICE;
    if (json)
        print_json(&opened, verdicts, n_ops);
    else
        print_table(&opened, verdicts, n_ops);
    free(verdicts);
    return code;
}
