/* SPDX-License-Identifier: Apache-2.0
 *
 * How the stages of a model run the micro-batches of a step in turns. core/run/schedule.h says in which order, and
 * core/run/flight.c runs them. */
#ifndef STRATA_CORE_MODEL_PIPELINE_H
#define STRATA_CORE_MODEL_PIPELINE_H

#include "core/model/parts.h"

/* Whether several stages compute several micro-batches. */
bool strata_model_has_pipeline(const strata_model *model);
/* How many micro-batches are in flight at once, and of how many a replica keeps values between its forward and its backward. 1:
 * programs of this kind run one after the other. */
STRATA_MUST_USE strata_status strata_model_count_flights(const strata_model *model, strata_program_kind kind, int replica,
                                                         int *out_slots, int *out_kept, strata_error *err);

/* What strata_group_run_schedule needs for the micro-batches of a program. */
typedef struct strata_model_flights {
    strata_group_schedule schedule;
    strata_memory memory;
} strata_model_flights;
/* Plans n micro-batches of the program and acquires their slots. */
STRATA_MUST_USE strata_status strata_model_plan_flights(const strata_model *model, const strata_model_program *program, int n,
                                                        strata_model_flights *out_flights, strata_error *err);
static inline void strata_model_flights_finish(strata_model_flights *flights) {
    strata_memory_finish(&flights->memory);
}

/* Begins to measure how long stages compute and wait in a fit. */
STRATA_MUST_USE strata_status strata_model_begin_stages(strata_model *model, strata_error *err);
/* Adds the times of the schedules that the program has run. */
void strata_model_time_stages(strata_model *model, const strata_model_program *program);
/* Adds up the times of all workers, at the end of a fit. */
STRATA_MUST_USE strata_status strata_model_share_stages(strata_model *model, strata_error *err);
/* Sets what the totals have about stages. */
void strata_model_report_stages(const strata_model *model, strata_communication_totals *totals);

#endif
