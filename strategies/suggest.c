/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices of the machine on which a model fits that is too large for one of them (strata/summary.h). */
#include <stdio.h>

#include "core/base/text.h"
#include "core/model/data.h"
#include "strategies/kinds.h"

static const strata_device_info *row_of(const strata_device_info *rows, const char *id) {
    while (rows->id != id) rows++;
    return rows;
}

/* Chooses the accelerators, and then the best CPU, which has other memory. */
static strata_status choose(const strata_device_info *rows, int n_rows, strata_device_choice *choice, strata_error *err) {
    const strata_device_info *cpu = NULL;
    STRATA_TRY(strata_choose_accelerators(rows, n_rows, choice, err));
    if (row_of(rows, choice->ids[0])->device_class <= STRATA_DEVICE_CPU) return STRATA_OK; /* it is the best CPU */
    for (int i = 0; i < n_rows; i++) {
        const strata_device_class own = rows[i].device_class;
        const bool is_cpu = own == STRATA_DEVICE_HOST || own == STRATA_DEVICE_CPU;
        if (is_cpu && !rows[i].skipped[0] && (!cpu || own > cpu->device_class)) cpu = &rows[i];
    }
    if (cpu) choice->ids[choice->n++] = cpu->id;
    return STRATA_OK;
}

/* No sum overflows a double. */
static double bytes_of(const strata_model_mesh *mesh, int device) {
    return (double)mesh->device_bytes[device] + (double)mesh->step_bytes[device];
}

/* The last batch of an epoch, which may be smaller, has a program of its own; so has an evaluation, which needs less. */
static bool fits(const strata_model_mesh *mesh, const strata_device_info *rows, const strata_device_choice *choice) {
    for (int d = 0; d < mesh->n_devices; d++) {
        const uint64_t all = row_of(rows, choice->ids[d])->memory_bytes;
        if (all && bytes_of(mesh, d) + (double)mesh->step_bytes[d] > (double)all) return false;
    }
    return true;
}

static strata_status describe(const strata_model_mesh *mesh, const strata_device_choice *choice, char **out_text,
                              strata_error *err) {
    strata_text text = {0};
    strata_text_add(&text, "--strategy model_parallel --mesh stage=%d --devices ", mesh->n_devices);
    for (int d = 0; d < mesh->n_devices; d++) strata_text_add(&text, "%s%s", d ? "," : "", choice->ids[d]);
    for (int d = 0; d < mesh->n_devices; d++)
        strata_text_add(&text, "%s %.1f MiB", d ? "," : ", which need", bytes_of(mesh, d) / 1048576);
    return strata_text_take(&text, out_text, NULL, err);
}

/* Tries pipelines of more and more of the chosen devices. A model that cannot be cut into so many stages fits none. */
static strata_status try_pipelines(strata_model *model, int64_t batch, const strata_device_info *rows,
                                   const strata_device_choice *choice, char **out_text, strata_error *err) {
    for (int n = 2; n <= choice->n && !*out_text; n++) {
        STRATA_FINISHED(strata_model_mesh) mesh = {0};
        char stages[32];
        snprintf(stages, sizeof stages, "stage=%d", n);
        if (strata_model_list_mesh(model, batch, &(strata_strategy_options){.mesh = stages}, &mesh, NULL)) return STRATA_OK;
        if (fits(&mesh, rows, choice)) STRATA_TRY(describe(&mesh, choice, out_text, err));
    }
    return STRATA_OK;
}

strata_status strata_model_suggest_mesh(strata_model *model, int64_t batch, char **out_text, strata_error *err) {
    strata_device_choice choice = {0};
    strata_device_info *rows = NULL;
    int n_rows = 0;
    *out_text = NULL;
    STRATA_TRY(strata_model_check_report(model, "suggest a mesh for", "mesh", true, &batch, err));
    if (model->strategy->n_devices > 1 || strata_strategy_has_workers(model->strategy) || strata_model_accumulates(model) > 1)
        return STRATA_OK;
    STRATA_TRY(strata_devices_list(&rows, &n_rows, err));
    strata_status status = STRATA_NEW(choice.ids, n_rows + 1, err, "mesh: no host memory for %d devices", n_rows);
    if (!status) status = choose(rows, n_rows, &choice, err);
    if (!status) status = try_pipelines(model, batch, rows, &choice, out_text, err);
    free(choice.ids);
    strata_devices_free(rows);
    return status;
}
