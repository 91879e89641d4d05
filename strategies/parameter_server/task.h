/* SPDX-License-Identifier: Apache-2.0
 *
 * A task of the strategy: the declarations that chief, workers and servers share, and the messages between them. */
#ifndef STRATA_STRATEGIES_PARAMETER_SERVER_TASK_H
#define STRATA_STRATEGIES_PARAMETER_SERVER_TASK_H

#include <pthread.h>

#include "cluster/rpc/rpc.h"
#include "core/base/locked.h"
#include "core/model/manifest.h"
#include "strata/cluster_spec.h"
#include "strategies/memory.h"
#include "strategies/parameter_server/pace.h"

enum { STRATA_PS_MOST_NOTICES = 32, STRATA_PS_MOST_REPLICATED = 256 };

/* Which servers have the values of a *bundle*. A bundle is all shards that the plan assigns to one server, its *owner*: ps:g
 * for bundle g. With replicas the next server, ps:((g + 1) mod n), has a *copy*. */
typedef enum strata_ps_holders {
    STRATA_PS_OWNER,
    /* Workers use the owner, which forwards each change to the copy before it replies. */
    STRATA_PS_BOTH,
    /* The owner was lost: workers use the copy. */
    STRATA_PS_COPY,
} strata_ps_holders;

/* For each bundle a strata_ps_holders; without replicas all are OWNER. The chief decides the route, and sends it to servers and
 * workers. */
typedef struct strata_ps_route {
    /* Grows with each decision; 0: this task has not received any. */
    int64_t number;
    uint8_t holders[STRATA_PS_MOST_REPLICATED];
} strata_ps_route;

static inline int strata_ps_copy_server(int bundle, int n_servers) {
    return (bundle + 1) % n_servers;
}

/* The server that workers use for a bundle. */
static inline int strata_ps_server_of(const strata_ps_route *route, int bundle, int n_servers) {
    const bool copy = bundle < STRATA_PS_MOST_REPLICATED && route->holders[bundle] == STRATA_PS_COPY;
    return copy ? strata_ps_copy_server(bundle, n_servers) : bundle;
}

/* The strategy's trainer_data. */
typedef struct strata_ps_task {
    /* Its entry among what the strategy destroys. */
    strata_owned owned;
    strata_cluster_spec spec;
    /* "worker:1". */
    char name[STRATA_RPC_TASK_BYTES];
    char role[160];
    uint64_t incarnation;
    strata_memory memory;
    strata_communicator_options communication;
    double connect_seconds;
    strata_ps_pace_options pace;
    strata_partitioner partitioner;
    char partitioner_text[64];
    strata_dtype wire;
    /* Old gradients are corrected (stale.c). */
    bool corrects;
    /* If so: whether a worker pulls only after its push, and how many updates old a gradient is then. */
    bool pulls_late;
    int staleness;
    /* How many copies of each server's shards other servers have: 0 or 1. */
    int replicas;
    /* Used by the chief. */
    pthread_mutex_t lock;
    strata_parameter_server_totals totals;
    /* [n_workers] */
    strata_parameter_server_worker *workers;
    strata_parameter_server_notice notices[STRATA_PS_MOST_NOTICES];
    /* The epochs of the fit whose callback runs; NULL: none does. */
    struct strata_ps_loop *loop;
    /* The worker whose gradient program runs; NULL: no training is in progress. */
    struct strata_ps_worker *worker;
} strata_ps_task;
/* pushes.c: takes bucket k of the worker's gradients from its program (strata_trainer.take). */
void strata_ps_take_bucket(void *task, int k, const void *values, size_t bytes);

/* The bin of a staleness in strata_parameter_server_load.staleness_histogram. */
static inline int strata_ps_staleness_bin(int64_t staleness) {
    int bin = 3;
    if (staleness < 4) return (int)staleness;
    while (bin < STRATA_STALENESS_BINS - 1 && staleness >= (int64_t)4 << (bin - 3)) bin++;
    return bin;
}

static inline strata_ps_task *strata_ps_task_of(const strata_model *model) {
    return model->strategy->trainer_data;
}

/* Stores a notice for the user. */
__attribute__((format(printf, 2, 3))) void strata_ps_notice(strata_ps_task *task, const char *format, ...);

/* What a fit of any task needs. */
typedef struct strata_ps_fit {
    strata_ps_task *task;
    strata_model *model;
    const strata_dataset *dataset;
    /* Which parts of the elements the model takes, of the dataset and of the validation data. */
    strata_model_feed feed, validation_feed;
    const strata_fit_options *opts;
    strata_history *history;
    strata_ps_plan plan;
    /* Used by the chief and the workers. */
    strata_ps_route route;
    /* The terms: the settings that all tasks compare (strata_model_terms), followed by the strategy's lines. */
    char *terms;
    /* The number of batches in a step. */
    int64_t accumulate;
    /* The number of steps in an epoch. */
    int64_t n_steps;
    /* NULL: no trace is written. The tracks are those of a worker's device. */
    strata_trace *trace;
    int *tracks;
    /* The greatest serial number of an epoch that this task knows. A chief that starts again uses greater ones, which it learns
     * from the other tasks. */
    int64_t serial;
    /* Batches of the validation data, which workers evaluate; 0: there are none, or it is not known how many. */
    int64_t n_visits;
} strata_ps_fit;

strata_status strata_ps_fit_chief(strata_ps_fit *fit, strata_error *err);
strata_status strata_ps_fit_worker(strata_ps_fit *fit, strata_error *err);
strata_status strata_ps_fit_server(strata_ps_fit *fit, strata_error *err);
/* epochs.c: strata_trainer.settle and write_parts. */
strata_status strata_ps_settle(strata_model *model, bool values, strata_error *err);
strata_status strata_ps_write_parts(strata_model *model, const char *folder, strata_manifest *manifest, bool *out_written,
                                    strata_error *err);

/* Connects to another task, given by type and index. shared_bytes: as in strata_rpc_client_options. Fails with the task's name
 * after this many seconds. */
STRATA_MUST_USE strata_status strata_ps_connect(const strata_ps_task *task, strata_task_type type, int index, double seconds,
                                                size_t shared_bytes, strata_rpc_client **out_client, strata_error *err);
/* This task's server, at the address that the cluster has for it. */
STRATA_MUST_USE strata_status strata_ps_listen(const strata_ps_task *task, strata_rpc_handler handler,
                                               strata_rpc_on_peer on_peer, void *user, strata_rpc_server **out_server,
                                               strata_error *err);
/* The answer to a hello. */
typedef struct strata_ps_hello_reply {
    /* The route that the chief or the server has. */
    strata_ps_route route;
    /* From a server: it could not forward a change to its bundle's copy, so the copy cannot be used any more. */
    int32_t copy_failed;
    /* From a server: the greatest serial number that a chief has given it with values. */
    int64_t serial;
    /* From a server to the chief: the most pulls and pushes that it had at a time since the last such reply. */
    int32_t pulls, pushes;
} strata_ps_hello_reply;
/* Sends this task's terms to a chief or server, which compares them with its own. Sends them again if that task was started
 * again before it replied. out_reply: NULL if it is not needed. */
STRATA_MUST_USE strata_status strata_ps_say_hello(const strata_ps_fit *fit, strata_rpc_client *client, double seconds,
                                                  strata_ps_hello_reply *out_reply, strata_error *err);

/* The index of a worker by its name, "worker:1"; -1: it is not one of n workers. */
int strata_ps_worker_index(const char *task, int n);

/* Whether a task has ended and is not started again, so that nobody needs to wait for it. `strata launch` lists these tasks in
 * the file that STRATA_ENDED_TASKS names; without it nothing is known. *out_code: its exit code, or 128 + its signal. */
bool strata_ps_has_ended(strata_task_type type, int index, int *out_code);

/* Replies to such a call. *out_serial: the greatest serial number that the sender knows; 0: the call is no hello. */
strata_status strata_ps_answer_hello(const strata_ps_fit *fit, const strata_rpc_call *call, int64_t *out_serial,
                                     strata_error *err);

/* watch.c: the state of the servers, as the chief knows it. All fields except the functions must be zero before make. Threads:
 * one at a time. */
typedef struct strata_ps_watch {
    strata_ps_fit *fit;
    strata_memory memory;
    int n;
    /* [n] */
    strata_rpc_client **clients;
    /* [n] The incarnation of each server when it got its values. */
    uint64_t *incarnations;
    /* [n] With replicas: lost: the server was lost. cut: the copy of its shards lacks a change. */
    bool *lost, *cut;
    /* Called with each new route, which it stores in fit->route. */
    void (*on_route)(void *user, const strata_ps_route *route);
    void *user;
} strata_ps_watch;
STRATA_MUST_USE strata_status strata_ps_watch_make(strata_ps_watch *watch, strata_ps_fit *fit, strata_error *err);
void strata_ps_watch_finish(strata_ps_watch *watch); /* also after a failure */
/* Connects to all servers, and has them compare what is trained. */
STRATA_MUST_USE strata_status strata_ps_watch_meet(strata_ps_watch *watch, strata_error *err);
/* Sends the model's values to all servers that are connected, as strata_ps_send_values does. */
STRATA_MUST_USE strata_status strata_ps_watch_spread(strata_ps_watch *watch, int64_t serial, strata_error *err);
/* Checks whether each server is alive. If a server was lost or was started again, its copy serves its shards and the route is
 * changed; PEER_LOST if no copy has them. */
STRATA_MUST_USE strata_status strata_ps_watch_look(strata_ps_watch *watch, strata_error *err);
/* With replicas: servers that were lost and have been started again get their values, and all copies are complete again. May be
 * called only while no worker pushes and the model has the servers' values. */
STRATA_MUST_USE strata_status strata_ps_watch_take_back(strata_ps_watch *watch, int64_t serial, strata_error *err);
/* Marks all servers as available again. */
void strata_ps_watch_forget(strata_ps_watch *watch);

/* values.c, on the chief: servers[n_servers]. Sends the model's values to the holders of each bundle (fit->route). After that,
 * pushes with an epoch before `serial` are ignored. */
STRATA_MUST_USE strata_status strata_ps_send_values(const strata_ps_fit *fit, strata_rpc_client *const *servers, int64_t serial,
                                                    strata_error *err);
/* Copies the servers' values to the model, while no worker pushes. close: the last synchronous step; NULL: there is none. */
STRATA_MUST_USE strata_status strata_ps_fetch_values(const strata_ps_fit *fit, strata_rpc_client *const *servers,
                                                     const strata_ps_close *close, strata_error *err);
/* Tells the servers how the training ended. */
void strata_ps_dismiss_servers(const strata_ps_fit *fit, strata_rpc_client *const *servers, strata_status status,
                               const char *message);

/* save.c: a server writes a bundle's values, in the order of strata_ps_plan_value, to a file of a checkpoint. */
typedef struct strata_ps_save_reply {
    /* The optimizer's count of updates. */
    int64_t t;
    int64_t bytes;
    char sha256[STRATA_SHA256_TEXT_BYTES];
} strata_ps_save_reply;
STRATA_MUST_USE strata_status strata_ps_save_bundle(const strata_ps_fit *fit, int bundle, const float *values, const char *path,
                                                    strata_ps_save_reply *out_reply, strata_error *err);
/* Called by the chief while no worker pushes: the servers write all bundles into files of the folder, at the same time, and the
 * files are added to the manifest. *out_t: the optimizer's count of updates. */
STRATA_MUST_USE strata_status strata_ps_save_all(const strata_ps_watch *watch, const strata_ps_close *close, const char *folder,
                                                 strata_manifest *manifest, int64_t *out_t, strata_error *err);

/* ---- messages: structs in the machine's byte order; the magic number of the hello checks that both sides have the same
 * ---- */

enum { STRATA_PS_MAGIC = 0x53505335, STRATA_PS_CALL_SECONDS = 600 };

typedef enum strata_ps_method {
    /* head: strata_ps_hello_ask; body: terms. Reply: strata_ps_hello_reply. */
    STRATA_PS_HELLO = 1,
    /* To the chief: head strata_ps_next_ask [n], n from 1 to STRATA_PS_MOST_REPORTS, where the last one also has the worker's
     * request; body: the units' sums, f32 (n, n_sums). Reply: strata_ps_next_reply. */
    STRATA_PS_NEXT,
    /* To the chief, from a worker that fails. body: the reason, text. */
    STRATA_PS_FAIL,
    /* To a server: head strata_ps_pull_ask; body: int64_t [tables] how many rows, their indices, i32. Reply: int64_t version;
     * body: the dense shards, the states, the rows, as in strata_ps_stock_pull. */
    STRATA_PS_PULL,
    /* To a server, the last push of a unit: head strata_ps_push_ask; body: dense gradients in the type `wire` (padded to 4
     * bytes), states, int64_t [tables] how many rows, their indices, i32, the rows. Reply: int64_t staleness. */
    STRATA_PS_PUSH,
    /* From the chief to a server: head strata_ps_set_ask; body: all values. */
    STRATA_PS_SET,
    /* To a server, before that: the same head, of which unit, version and rate are not used; body: dense gradients. They are
     * applied with the PUSH. */
    STRATA_PS_PART,
    /* From the chief to a server: head strata_ps_pull_ask. Reply: int64_t t; body: all values. */
    STRATA_PS_GET,
    /* Likewise: head int32_t status, 0 when the training is over; body: message. */
    STRATA_PS_OVER,
    /* Likewise: head strata_ps_route. */
    STRATA_PS_ROUTE,
    /* From an owner to its copy: head strata_ps_pull_ask. An owner also forwards each PUSH unchanged. */
    STRATA_PS_CLOSE,
    /* From one server to the others, with clip_global_norm: head strata_ps_pull_ask. Reply: double, the sum of the squares of
     * the bundle's gradients of that step. */
    STRATA_PS_SQUARE,
    /* From the chief to a server: head strata_ps_pull_ask; body: the path of a file, which gets the bundle's values, text.
     * Reply: strata_ps_save_reply. */
    STRATA_PS_SAVE,
    STRATA_PS_METHODS,
} strata_ps_method;

/* task.c: what the methods have in common on both sides. */
typedef struct strata_ps_method_row {
    /* The size of the head. A NEXT has one such head or several. */
    size_t head_bytes;
    /* "a pull of parameters": for error messages; and the name in the trace of a server, NULL: it has none. */
    const char *what, *trace;
} strata_ps_method_row;
extern const strata_ps_method_row strata_ps_methods[STRATA_PS_METHODS];

/* A request of this method. */
strata_rpc_ask strata_ps_ask(strata_ps_method method, const void *head, const struct iovec *body, int n_body);

typedef struct strata_ps_hello_ask {
    /* STRATA_PS_MAGIC. */
    int64_t magic;
    /* As in strata_ps_fit. */
    int64_t serial;
} strata_ps_hello_ask;

/* The most units that one reply of the chief leases, and that one request reports: those of a reply, and one from before. */
enum { STRATA_PS_MOST_UNITS = 8, STRATA_PS_MOST_REPORTS = STRATA_PS_MOST_UNITS + 1 };

typedef struct strata_ps_next_ask {
    /* A unit that is finished; index -1: none. */
    strata_ps_unit unit;
    /* It is a batch of the validation data. */
    int32_t evaluates;
    /* Its gradients were left out: not finite (`what` is the first such tensor), or f16 that overflowed. */
    int32_t refused, overflow;
    /* The chief should delay its reply until it can lease a unit. */
    int32_t waits;
    /* A server could not be reached: the worker returns its leases, and `what` is the reason. */
    int32_t gives_back;
    /* Examples of the unit, and of its whole step. */
    int64_t examples, whole;
    /* In asynchronous training, if the model needs it: the norm of the gradients before clipping; else 0. */
    double norm;
    /* The number of its pushes, and the sum and the maximum of their staleness. */
    int64_t n_staleness, staleness_sum, staleness_max;
    int32_t staleness_bins[STRATA_STALENESS_BINS];
    double seconds, rate;
    /* The bytes that were pushed and pulled since the previous report. */
    int64_t bytes;
    char what[200];
} strata_ps_next_ask;

typedef struct strata_ps_next_reply {
    /* strata_ps_grant, or OVER. */
    int32_t grant;
    int32_t has_close;
    /* The unit is a batch of the validation data, to be evaluated with the parameters that the servers have now. */
    int32_t evaluates;
    /* In asynchronous training: the number of further units, which the worker computes before its next request. */
    int32_t n_more;
    strata_ps_unit unit, more[STRATA_PS_MOST_UNITS - 1];
    /* The epoch of the data. The epoch in `unit` is a serial number, which also grows when an epoch is begun again after a
     * server was lost. */
    int64_t epoch;
    /* The optimizer's count of updates before the epoch's first step. */
    int64_t t;
    /* The learning rate of the unit's update, as in strata_ps_gradients. */
    double rate;
    /* The previous synchronous step, which the worker sends to servers with its next pull. */
    strata_ps_close close;
    strata_ps_route route;
} strata_ps_next_reply;
enum { STRATA_PS_TRAINING_OVER = 100 };

typedef struct strata_ps_set_ask {
    int64_t bundle;
    /* The optimizer's count of updates. */
    int64_t t;
    /* The first epoch whose units are accepted. */
    int64_t serial;
} strata_ps_set_ask;

typedef struct strata_ps_pull_ask {
    int32_t has_close;
    int32_t bundle;
    /* For a pull: as in strata_ps_stock_pull. */
    int64_t ahead;
    strata_ps_close close;
} strata_ps_pull_ask;

typedef struct strata_ps_push_ask {
    strata_ps_unit unit;
    int64_t version;
    int64_t bundle;
    double rate;
    /* A number of the worker: from 1, a different one for each unit of which it sends parts. */
    int64_t attempt;
    /* The body begins with elements [first, first + n) of the bundle's dense gradients. A PUSH without all of them comes after
     * the other ones of its attempt. */
    int64_t first, n;
} strata_ps_push_ask;

/* A request to a server in progress. It is zero at first. */
typedef struct strata_ps_message {
    /* NULL: none is in progress. */
    strata_rpc_request *request;
    union {
        strata_ps_pull_ask pull;
        strata_ps_push_ask push;
        strata_ps_set_ask set;
    } head;
    strata_rpc_answer answer;
    /* The head of the reply: a version, a staleness, a count of updates, or the reply to a SAVE. */
    union {
        int64_t number;
        strata_ps_save_reply saved;
    } reply;
} strata_ps_message;
/* The head of a request about a bundle and the end of the last synchronous step; close NULL: there is none. */
static inline strata_ps_pull_ask strata_ps_about(int bundle, const strata_ps_close *close) {
    strata_ps_pull_ask ask = {.has_close = close != NULL, .bundle = bundle};
    if (close) ask.close = *close;
    return ask;
}

/* Sends the message, whose head is filled. The body is borrowed until it has been waited for. rooms: [n_rooms] the memory for
 * the body of the reply. */
STRATA_MUST_USE strata_status strata_ps_start(strata_ps_message *message, strata_rpc_client *client, strata_ps_method method,
                                              const struct iovec *body, int n_body, const struct iovec *rooms, int n_rooms,
                                              strata_error *err);
/* Writes the head of a reply. */
static inline void strata_ps_reply(strata_rpc_reply *reply, const void *head, size_t bytes) {
    memcpy(reply->head, head, bytes);
    reply->head_bytes = bytes;
}
/* For a failure that another call will find. */
static inline void strata_ps_ignore(strata_status status) {
    (void)status;
}
/* Waits for the reply, if the message is in progress. A failure is stored in *status and err unless *status is one already. */
void strata_ps_wait(strata_ps_message *message, strata_status *status, strata_error *err);

#endif
