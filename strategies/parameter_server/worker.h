/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of a worker share: units.c, pulls.c, gradients.c, pushes.c, worker.c and
 * remote_model.c.
 *
 * A *job* has the data of one unit in progress: its examples, the rows of sparse parameters that it uses, and the parameters
 * that were pulled for it. There are two jobs, which are used alternately. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_WORKER_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_WORKER_H

#include "core/data/batches.h"
#include "core/model/loop.h"
#include "core/run/device.h"
#include "strategies/parameter_server/rows.h"
#include "strategies/parameter_server/task.h"

/* An iterator over the batches of an epoch, and the number of the batch that it returns next. */
typedef struct strata_ps_reader {
    strata_batches *batches;
    int64_t epoch, next;
} strata_ps_reader;

/* A batch of a unit: `own` of its `n` examples belong to this worker, beginning with number `first` of the batch. */
typedef struct strata_ps_batch {
    int64_t n, first, own;
    /* The batch's data for each of the model's inputs and outputs. */
    void *x[STRATA_MAX_INPUTS], *y[STRATA_MAX_OUTPUTS];
    float *weights;
} strata_ps_batch;

/* A pull, a push or a part of a push, from or to one server, and the memory that it borrows, which is used again. */
typedef struct strata_ps_transfer {
    strata_ps_message message;
    /* The pieces of the body that is sent, or the rooms for the body that is received. */
    struct iovec *pieces;
    /* int64_t [tables] the numbers of rows, then their indices, n_ids i32. */
    void *numbers;
    int64_t n_ids;
    /* Where bf16 values are sent from or received, and where rows are received. */
    unsigned char *narrow, *rows;
} strata_ps_transfer;

typedef struct strata_ps_job {
    /* The unit, which is one of those of the lease. */
    strata_ps_unit unit;
    strata_ps_next_reply lease;
    /* The parameters are extrapolated, as in strata_ps_stock_pull. */
    bool ahead;
    /* [accumulate] */
    strata_ps_batch *batches;
    int n_batches;
    int64_t examples, whole;
    /* (all_size) The dense parameters and states that were pulled. */
    float *values;
    /* [n_sparse] Which rows of each sparse parameter it uses; their values are in the worker's tables. */
    strata_ps_row_set *rows;
    /* [n_sparse] The device's table has the rows in the order of the set, from its first row on, and the batches' inputs
     * contain positions in the set. */
    bool *renumbered;
    /* [n_servers] */
    strata_ps_transfer *pulls;
    bool pulling;
    /* When the pulls were sent, for the trace. */
    double pull_began;
} strata_ps_job;

/* Gradients of rows of a sparse parameter, (n, row). */
typedef struct strata_ps_row_gradients {
    const strata_ps_row_set *set;
    const float *values;
} strata_ps_row_gradients;

/* The sums of the unit that is computed. */
typedef struct strata_ps_unit_sums {
    /* (dense_size) Its gradients: `sums_of_dense` if batches are added, else the memory to which the device wrote them. */
    const float *gradients;
    float *sums_of_dense;
    /* (state_size) The changes that are added to the states, and the rates of the states' moving averages. */
    float *states, *rates;
    /* [sparse.n] The sums of the gradients of rows, if batches are added. */
    strata_ps_row_set *sums_of_rows;
    /* [sparse.n] The rows that have gradients: in `sums_of_rows`, or in the memory to which the device wrote them. */
    strata_ps_row_gradients *row_gradients;
    /* (n_sums) */
    float *sums;
    /* The learning rate of its update. */
    double rate;
} strata_ps_unit_sums;

/* The buckets of gradients that are pushed as soon as they are computed. */
typedef struct strata_ps_buckets {
    /* The layout of the program of the present batch (NULL: none is computed). The buckets of a unit's first batch are copied
     * to the unit's sums; those of later batches are added. */
    const strata_gradient_layout *layout;
    bool first_batch;
    /* This unit's buckets are pushed. `attempt` counts the units for which this is done, from a random number on. */
    bool streams;
    int64_t attempt;
    /* A bucket of the unit is not finite, so no more are pushed; and the error of a bucket that could not be pushed. */
    bool stopped;
    strata_status status;
    strata_error error;
    /* [n_servers * STRATA_MOST_BUCKETS] The parts that are being sent. */
    strata_ps_transfer *parts;
    int n_parts;
} strata_ps_buckets;

typedef struct strata_ps_worker {
    strata_ps_fit *fit;
    strata_ps_task *task;
    strata_model *model;
    /* The arrays below that do not grow. */
    strata_memory memory;
    struct {
        strata_rpc_client *chief, **servers;
        int n_servers;
        /* A server could not be reached; the chief was lost, or started again. */
        bool lost_server, lost_chief;
    } links;
    struct {
        /* [n] The indices of the sparse parameters, and for each the rows as they were last pulled. */
        int *parameters;
        float **tables;
        int n;
    } sparse;
    /* The batches of an epoch and how they are prepared, and those of the validation data. */
    strata_ps_reader data, visits;
    strata_batch_form form;
    /* The evaluation for which the model has the parameters. */
    int64_t visits_epoch;
    strata_ps_job jobs[2];
    strata_ps_unit_sums unit;
    strata_ps_buckets buckets;
    /* The push in progress, of this unit, and when it began. */
    struct {
        /* [n_servers] */
        strata_ps_transfer *of_server;
        bool running;
        int64_t unit;
        double began;
        /* The number of slots of the program that computed the gradients. */
        int n_slots;
    } push;
    struct {
        /* For the unit that is being computed. */
        strata_ps_next_ask now;
        /* The units that were finished since the last request to the chief, and their sums (STRATA_PS_MOST_REPORTS, n_sums). */
        strata_ps_next_ask finished[STRATA_PS_MOST_REPORTS];
        float *sums;
        int n;
    } reports;
    /* The chief's last reply, and how many of its further units have begun. */
    struct {
        strata_ps_next_reply reply;
        int n_begun;
    } lease;
} strata_ps_worker;

/* ---- units.c ---- */

/* The bytes of an example's input in the worker's memory. */
size_t strata_ps_input_bytes(const strata_ps_worker *w, int input);
/* Memory for the worker's own examples. */
STRATA_MUST_USE strata_status strata_ps_reserve_batch(const strata_ps_worker *w, strata_ps_batch *b, strata_error *err);
/* The unit's examples. A step's last batches may be missing at the end of the data. */
STRATA_MUST_USE strata_status strata_ps_read_unit(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* The program that computes the gradients of a batch of this size. */
STRATA_MUST_USE strata_status strata_ps_program_of(strata_ps_worker *w, const strata_ps_batch *b,
                                                   strata_model_program **out_program, strata_error *err);
/* Compiles the program of an epoch's last batch, if that has fewer examples than the others and another epoch follows. Without
 * this, each worker would compile it when it first gets this batch, while all others wait for the end of that epoch. */
void strata_ps_prepare_last(strata_ps_worker *w);
/* Finds which rows of sparse parameters the unit uses: those of its tokens, or all rows if that is not known in advance. */
STRATA_MUST_USE strata_status strata_ps_find_rows(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* Reads batch `index` of the validation data. */
STRATA_MUST_USE strata_status strata_ps_seek_visit(strata_ps_worker *w, int64_t index, int64_t *out_n, strata_error *err);

/* ---- pulls.c ---- */

/* The client of the server that now has a bundle's shards. If the server was lost when this worker began, it is connected
 * here. */
STRATA_MUST_USE strata_status strata_ps_reach(strata_ps_worker *w, int bundle, strata_rpc_client **out_client,
                                              strata_error *err);
/* Which of the sparse parameters a parameter is. */
int strata_ps_sparse_index(const strata_ps_worker *w, int parameter);
/* Lists the set's rows that belong to a table, by their numbers in the table; returns how many there are. */
int64_t strata_ps_rows_of_table(const strata_ps_row_set *set, const strata_ps_shard *table, int32_t *out_ids);
/* Sends all servers the requests for the parameters that the job needs. */
STRATA_MUST_USE strata_status strata_ps_start_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* A slice of the trace, on the track of this thread, from `began` until now. */
void strata_ps_trace_slice(const strata_ps_worker *w, const char *name, const strata_ps_job *j, double began);
/* Waits for the replies, and copies what is needed on the host. */
STRATA_MUST_USE strata_status strata_ps_finish_pull(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* Pulls and waits for the replies. */
STRATA_MUST_USE strata_status strata_ps_pull_now(strata_ps_worker *w, strata_ps_job *j, strata_error *err);
/* Waits for pulls in progress and ignores their results. */
void strata_ps_drop_pulls(const strata_ps_worker *w, const strata_ps_job *j);
/* Creates the worker's copy of a sparse parameter: at first the device's values, then each row as it was last pulled. */
STRATA_MUST_USE strata_status strata_ps_make_table(strata_ps_worker *w, int k, strata_error *err);
/* Copies the pulled parameters to the device. */
STRATA_MUST_USE strata_status strata_ps_upload(const strata_ps_worker *w, strata_ps_job *j, strata_error *err);

/* ---- gradients.c ---- */

/* Adds the outputs of a batch of the unit, by its index, to the sums of the unit. */
STRATA_MUST_USE strata_status strata_ps_take_outputs(strata_ps_worker *w, const strata_ps_job *j, int batch,
                                                     const strata_model_program *program, int slot, strata_error *err);
/* Instead of strata_ps_take_outputs, for a batch of which this worker has no examples: the changes of the states by the batches
 * before it become older by one batch. */
void strata_ps_skip_batch(strata_ps_worker *w);
/* Called before the first batch of a unit. */
void strata_ps_clear_sums(strata_ps_worker *w, const strata_ps_job *j);
/* Submits batch number i of the unit, at least up to its first send. If the device computes in the calling thread, only the
 * batch's inputs are written, and finish computes it: the caller may do something else in between, such as send requests. */
STRATA_MUST_USE strata_status strata_ps_submit(strata_ps_worker *w, const strata_ps_job *j, int i,
                                               strata_model_program **out_program, int *out_slot, strata_error *err);
/* Submits the rest of the batch, takes the values that it sends, and waits for it. */
STRATA_MUST_USE strata_status strata_ps_finish_batch(const strata_ps_worker *w, const strata_ps_job *j,
                                                     const strata_model_program *program, int slot, strata_error *err);
/* Undoes the loss scale of the unit's gradients, adapts the scale as fit does, and clips the gradients by their norm. Returns
 * the first tensor that is not finite, in the order of the loss and then the parameters; the gradients are not pushed then.
 * NULL: all are finite. *out_overflow: the loss is finite, and the next unit has a smaller loss scale. */
const char *strata_ps_prepare_push(strata_ps_worker *w, bool *out_overflow);
/* The first tensor of the data that is not finite, for a message: "input x", "target y". False: all data are finite, or are
 * integers. */
bool strata_ps_name_wrong_data(const strata_ps_worker *w, const strata_ps_job *j, char *out, size_t room);

/* ---- pushes.c ---- */

/* Called before a batch of a unit: sets where its buckets are stored. first, last: whether it is the first or last batch with
 * examples. */
void strata_ps_begin_buckets(strata_ps_worker *w, const strata_model_program *program, bool first, bool last);
bool strata_ps_all_finite(const float *values, int64_t n);
/* Sends the unit's gradients to all servers. The gradients must not change until finish, which must be called also after a
 * failure. */
STRATA_MUST_USE strata_status strata_ps_start_push(strata_ps_worker *w, const strata_ps_job *j, strata_error *err);
/* Waits for the servers' replies, if a push is in progress, and stores the staleness of the gradients in the report. */
STRATA_MUST_USE strata_status strata_ps_finish_push(strata_ps_worker *w, strata_ps_next_ask *report, strata_error *err);

/* ---- worker.c ---- */

STRATA_MUST_USE strata_status strata_ps_worker_no_memory(strata_error *err);
/* Grows memory that is used again. */
STRATA_MUST_USE strata_status strata_ps_reserve(void **memory, size_t bytes, strata_error *err);
/* Allocates the worker's memory. finish must be called also after a failure. */
STRATA_MUST_USE strata_status strata_ps_worker_make(strata_ps_worker *w, strata_error *err);
void strata_ps_worker_finish(strata_ps_worker *w);
/* Connects to the servers. With replicas, a server that has just been lost (or its copy) is connected by the pull that needs
 * it. */
STRATA_MUST_USE strata_status strata_ps_meet_servers(strata_ps_worker *w, strata_error *err);

#endif
