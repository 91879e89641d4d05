/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as the schedule of a pipeline: a message, or a schedule whose text is read back as the same. */
#include <stdlib.h>
#include <string.h>

#include "core/run/schedule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_schedule(const strata_pipeline_schedule *schedule) {
    STRATA_OWNED(strata_pipeline_schedule) *again = NULL;
    STRATA_FINISHED(strata_text) text = {0}, second = {0};
    strata_pipeline_prediction prediction = {0};
    strata_pipeline_schedule_write(schedule, &text);
    if (text.failed) return;
    if (strata_pipeline_schedule_read(text.bytes, &again, NULL)) abort();
    strata_pipeline_schedule_write(again, &second);
    if (!second.failed && strcmp(text.bytes, second.bytes) != 0) abort();
    if (!strata_pipeline_schedule_simulate(schedule, NULL, &prediction, NULL) && !(prediction.seconds > 0)) abort();
    free(prediction.stages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    STRATA_OWNED(strata_pipeline_schedule) *schedule = NULL;
    strata_error err = {0};
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (!strata_pipeline_schedule_read(text, &schedule, &err))
        check_schedule(schedule);
    else if (!*err.message || (err.status != STRATA_DATA && err.status != STRATA_OUT_OF_MEMORY))
        abort();
    free(text);
    return 0;
}
