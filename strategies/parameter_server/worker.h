/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of a worker share: units.c, pulls.c, gradients.c, buckets.c, pushes.c, worker.c
 * and stepper.c.
 *
 * A *job* is one unit on its way: its examples, the rows of sparse parameters that it uses, the parameters that were pulled
 * for it. There are two, which take turns. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_WORKER_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_WORKER_H

#include "core/data/batches.h"
#include "core/run/device.h"
#include "strategies/parameter_server/rows.h"
#include "strategies/parameter_server/task.h"

/* A batch of a unit: `own` of its `n` examples are this worker's, the first of them number `first` of the batch. */
typedef struct strata_ps_batch {
    int64_t n, first, own;
    /* Of each of the model's inputs and outputs. */
    void *x[STRATA_MAX_INPUTS], *y[STRATA_MAX_OUTPUTS];
    float *weights;
} strata_ps_batch;

typedef struct strata_ps_pull {
    strata_rpc_request *request;
    /* Lends its body where the server is on this machine; the rooms are not used then. */
    strata_rpc_answer answer;
    struct iovec *rooms;
    int64_t version;
    /* What the request borrows. */
    unsigned char *head;
    int32_t *ids;
    int64_t n_ids;
    /* Where bf16 values and rows are received. */
    unsigned char *narrow, *rows;
} strata_ps_pull;

/* A server's part of a push. */
typedef struct strata_ps_push {
    /* NULL: none is under way. */
    strata_rpc_request *request;
    strata_rpc_answer answer;
    int64_t staleness;
    /* What the request borrows, besides the gradients. */
    unsigned char *head;
    struct iovec *pieces;
    int32_t *ids;
    unsigned char *narrow;
} strata_ps_push;

typedef struct strata_ps_job {
    strata_ps_unit unit;
    /* Of the data. */
    int64_t epoch;
    int64_t t;
    double rate;
    /* The unit is a batch of the validation data. */
    bool evaluates;
    /* Parameters are pulled ahead of what the server has, as in strata_ps_store_pull. */
    bool ahead;
    bool has_close;
    strata_ps_close close;
    /* [accumulate] */
    strata_ps_batch *batches;
    int n_batches;
    int64_t examples, whole;
    /* (all_size) What was pulled of dense parameters and states. */
    float *values;
    /* [n_sparse] Which rows of each sparse parameter it uses; their values are in the worker's tables. */
    strata_ps_row_set *rows;
    /* [n_sparse] The device's table has the rows in the order of the set, from its first row on, and the batches' inputs name
     * places of the set. */
    bool *renumbered;
    /* [n_servers] */
    strata_ps_pull *pulls;
    bool pulling;
    /* When the pulls were sent, for the trace. */
    double pull_began;
} strata_ps_job;

/* A bucket's gradients of a server's dense shards, on their way. */
typedef struct strata_ps_part {
    strata_rpc_request *request;
    unsigned char *head, *narrow;
    struct iovec *pieces;
} strata_ps_part;

typedef struct strata_ps_worker {
    strata_ps_fit *fit;
    strata_ps_task *task;
    strata_model *model;
    strata_rpc_client *chief, **servers;
    int n_servers, n_sparse;
    /* [n_sparse] Indices of sparse parameters, and of each the rows as they were pulled last. */
    int *sparse;
    float **tables;
    strata_batches *batches;
    int64_t batches_epoch, batches_next; /* the batch that `next` would give */
    strata_batch_form form;
    /* Of the validation data, and the batch that `next` would give; the evaluation for which the model got its parameters. */
    strata_batches *visits;
    int64_t visits_next, visits_epoch;
    /* [n_servers] A push is under way: of batch `pushed`, since when. */
    strata_ps_push *pushes;
    bool pushing;
    /* Of the program that computed the gradients. */
    int n_slots;
    int64_t pushed;
    double push_began;
    strata_ps_job jobs[2];
    /* (dense_size) The unit's gradients: `sums_of_dense` where batches are added up, else where the device wrote them. */
    const float *gradients;
    float *sums_of_dense;
    /* (state_size) What is added to states. */
    float *states;
    /* [n_sparse] The gradients of rows where batches are added up. */
    strata_ps_row_set *sums;
    /* [n_sparse] The rows that have gradients, and these (n, row): those of `sums`, or where the device wrote them. */
    struct strata_ps_row_gradients {
        const strata_ps_row_set *set;
        const float *values;
    } * row_gradients;
    float *unit_sums; /* (n_sums) */
    /* Of the unit that is computed. */
    strata_ps_next_ask report;
    /* The units that were finished since the chief was asked, and their sums (STRATA_PS_MOST_REPORTS, n_sums). */
    strata_ps_next_ask reports[STRATA_PS_MOST_REPORTS];
    float *report_sums;
    int n_reports;
    /* The chief's last reply, and how many of its further units were begun. */
    strata_ps_next_reply given;
    int n_begun;
    /* The learning rate of the unit that is computed. */
    double rate;
    /* Of the batch that is computed: its program's layout (NULL: none is). Nothing of the unit is in sums_of_dense
     * before its first batch, whose buckets are copied there; others are added. */
    const strata_gradient_layout *layout;
    bool first_batch;
    /* Buckets are pushed as they come. `attempt` counts the units whose buckets are. */
    bool streams;
    int64_t attempt;
    /* A bucket of the unit is not finite, so no more are pushed; why one could not be. */
    bool stopped;
    strata_status part_status;
    strata_error part_error;
    /* [n_servers * STRATA_MOST_BUCKETS] The parts that are on their way, and of each server, how many shards they have. */
    strata_ps_part *parts;
    int n_parts;
    int *n_parted;
    /* A server could not be reached; the chief was lost, or started again. */
    bool lost_server, lost_chief;
} strata_ps_worker;

/* ---- units.c ---- */

/* Of an example, as the worker keeps it until the device takes it. */
size_t strata_ps_input_bytes(const strata_ps_worker *w, int input);
/* Memory for the worker's own examples. */
STRATA_MUST_USE strata_status strata_ps_reserve_batch(const strata_ps_worker *w, strata_ps_batch *b, strata_error *err);
/* The unit's examples. A step's last batches may be missing at the end of the data. */
STRATA_MUST_USE strata_status strata_ps_read_unit(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* The program that computes the gradients of a batch of this size. */
STRATA_MUST_USE strata_status strata_ps_program_of(strata_ps_worker *w, const strata_ps_batch *b,
                                                   strata_model_program **out_program, strata_error *err);
/* Which rows of sparse parameters the unit uses: those that its tokens name, or all where that is not known before. */
STRATA_MUST_USE strata_status strata_ps_find_rows(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* Goes to batch `index` of the validation data, which come in their order. */
STRATA_MUST_USE strata_status strata_ps_seek_visit(strata_ps_worker *w, int64_t index, int64_t *out_n, strata_error *err);

/* ---- pulls.c ---- */

/* The client of the server that has a group's shards now. One that was lost when this worker began is met here. */
STRATA_MUST_USE strata_status strata_ps_reach(strata_ps_worker *w, int group, strata_rpc_client **out_client,
                                              strata_error *err);
/* Which of the sparse parameters a parameter is. */
int strata_ps_sparse_index(const strata_ps_worker *w, int parameter);
/* The set's rows that a table has, as the table counts them; returns how many. */
int64_t strata_ps_rows_of_table(const strata_ps_row_set *set, const strata_ps_shard *table, int32_t *out_ids);
/* Asks all servers for what the job needs. */
STRATA_MUST_USE strata_status strata_ps_start_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* A slice of the trace, on the track of this thread, from `began` until now. */
void strata_ps_trace_slice(const strata_ps_worker *w, const char *name, const strata_ps_job *j, double began);
/* Waits for the replies, and takes what has to be on the host. */
STRATA_MUST_USE strata_status strata_ps_finish_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* Waits for what is under way without looking at it. */
void strata_ps_drop_pulls(const strata_ps_worker *w, const strata_ps_job *j);
/* The worker's copy of a sparse parameter: what the device has at first, then each row as it was last pulled. */
STRATA_MUST_USE strata_status strata_ps_make_table(strata_ps_worker *w, int k, strata_error *err);
/* Brings what was pulled to the device. */
STRATA_MUST_USE strata_status strata_ps_upload(const strata_ps_worker *w, strata_ps_job *j, strata_error *err);

/* ---- gradients.c ---- */

/* Adds a batch's outputs to what the unit has so far. */
STRATA_MUST_USE strata_status strata_ps_take_outputs(strata_ps_worker *w, const strata_ps_job *j,
                                                     const strata_model_program *program, int slot, strata_error *err);
/* Before the first batch of a unit. */
void strata_ps_clear_sums(strata_ps_worker *w, const strata_ps_job *j);
/* Batch number i of the unit is submitted, at least up to what it sends first. */
STRATA_MUST_USE strata_status strata_ps_submit(strata_ps_worker *w, const strata_ps_job *j, int i,
                                               strata_model_program **out_program, int *out_slot, strata_error *err);
/* Submits the rest of it, takes what it sends, and waits for it. */
STRATA_MUST_USE strata_status strata_ps_finish_batch(const strata_model_program *program, int slot, strata_error *err);
/* The first tensor of the unit that is not finite, in the order of the loss and then the parameters; NULL: all are finite. */
const char *strata_ps_first_not_finite(const strata_ps_worker *w);
/* The first tensor of the data that is not finite, for a message: "input x", "target y". False: the data are all finite, or are
 * whole numbers. */
bool strata_ps_name_wrong_data(const strata_ps_worker *w, const strata_ps_job *j, char *out, size_t room);
/* The norm of all gradients, for the report, and clipping by it. Where a push is an update by itself only the worker has them
 * together; of a synchronous step the servers clip the sum of all shares. */
void strata_ps_clip_all(strata_ps_worker *w);
/* Undoes the scale of f16, which follows what the gradients are as in fit. */
void strata_ps_follow_scale(strata_ps_worker *w, bool finite);

/* ---- buckets.c ---- */

/* Before a batch of a unit, the first or last of those with examples: where its buckets go. */
void strata_ps_begin_buckets(strata_ps_worker *w, const strata_model_program *program, bool first, bool last);
/* Waits for the parts that are on their way; fails if one of them did. */
STRATA_MUST_USE strata_status strata_ps_finish_parts(strata_ps_worker *w, strata_error *err);
/* Whether all dense shards of a server were pushed as parts. */
bool strata_ps_was_parted(const strata_ps_worker *w, int server);
bool strata_ps_all_finite(const float *values, int64_t n);

/* ---- pushes.c ---- */

/* Sends the unit's gradients to all servers. They stay where they are until finish, which is called also after a failure. */
STRATA_MUST_USE strata_status strata_ps_start_push(strata_ps_worker *w, const strata_ps_job *j, strata_error *err);
/* Waits for the servers' answers, if a push is under way; the report gets how stale the gradients were. */
STRATA_MUST_USE strata_status strata_ps_finish_push(strata_ps_worker *w, strata_ps_next_ask *report, strata_error *err);
/* Both. */
STRATA_MUST_USE strata_status strata_ps_push_all(strata_ps_worker *w, const strata_ps_job *j, strata_ps_next_ask *report,
                                                 strata_error *err);

/* ---- worker.c ---- */

STRATA_MUST_USE strata_status strata_ps_worker_no_memory(strata_error *err);
/* Memory of the worker; finish also after a failure. */
STRATA_MUST_USE strata_status strata_ps_worker_make(strata_ps_worker *w, strata_error *err);
void strata_ps_worker_finish(strata_ps_worker *w);
/* With replicas a server that is lost just now is met by the pull that needs it, or its copy is. */
STRATA_MUST_USE strata_status strata_ps_meet_servers(strata_ps_worker *w, strata_error *err);

#endif
