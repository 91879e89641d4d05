/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the messages between a coordinator and its worker, through real connections. The first byte says whose message it
 * is: a request, which is sent to a worker, or a reply, which a coordinator gets for a closure. The second byte is the method of
 * a request, and the third is how many of the next bytes are the head; the rest is the body. Messages are used whole or refused,
 * nothing outside of them is read, and afterwards worker and coordinator still do right work. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/rpc/rpc.h"
#include "strategies/coordinator/wire.h"
#include "tests/support/ports.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const strata_communicator_options cluster = {.secret = "fuzz", .secret_bytes = 4, .connect_seconds = 30};

/* Reads all bytes of all arguments, and returns their number. */
static int32_t read_all(const strata_remote_call *call) {
    static volatile unsigned char sum;
    int32_t n = 0;
    for (int i = 0; i < call->n_inputs; i++) {
        const strata_array *array = &call->inputs[i].array;
        const size_t bytes = call->inputs[i].object ? 0 : strata_array_bytes(array);
        for (size_t b = 0; b < bytes; b++) sum ^= ((const unsigned char *)array->data)[b];
        n += (int32_t)bytes;
    }
    return n;
}

static strata_status count(const strata_remote_call *call, strata_array *results, int n, strata_error *err) {
    for (int i = 0; i < n; i++) STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(), &results[i], err));
    *(int32_t *)results[0].data = read_all(call);
    return STRATA_OK;
}

static strata_status make(const strata_remote_call *call, void **out_object, strata_error *err) {
    *out_object = malloc((size_t)read_all(call) + 1);
    return *out_object ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory");
}

static void unmake(void *object, void *user) {
    (void)user;
    free(object);
}

static const strata_remote_function functions[] = {{.name = "c", .run = count, .n_results = 2},
                                                   {.name = "m", .make = make, .unmake = unmake}};

/* ---- requests, to a worker ---- */

static char worker_address[32];

static void *be_worker(void *user) {
    const strata_coordinator_worker_options opts = {.n_workers = 1,
                                                    .address = worker_address,
                                                    .cluster = &cluster,
                                                    .functions = functions,
                                                    .n_functions = 2,
                                                    .coordinator_seconds = 1e6};
    (void)user;
    for (;;) { /* an END ends it */
        strata_error err = {0};
        const strata_status status = strata_coordinator_serve(&opts, &err);
        if (status && !err.message[0]) abort();
    }
    return NULL;
}

static strata_rpc_client *client;

static strata_status ask(uint32_t method, const void *head, size_t n_head, const void *body, size_t n_body) {
    unsigned char reply[STRATA_RPC_HEAD_BYTES];
    const struct iovec piece = {(void *)(uintptr_t)body, n_body};
    const strata_rpc_ask request = {
        .method = method, .head = head, .head_bytes = n_head, .body = &piece, .n_body = n_body > 0, .what = "an input"};
    strata_rpc_answer answer = {.head = reply, .head_bytes = sizeof reply};
    strata_error err = {0};
    const strata_status status = strata_rpc_client_call(client, &request, &answer, 20, &err);
    if (status && !err.message[0]) abort();
    if (status == STRATA_TIMEOUT) abort();
    free(answer.allocated);
    return status;
}

static void greet(void) {
    unsigned char head[512];
    strata_remote_writer w = {head, head + sizeof head, false};
    strata_remote_put(&w, 0, 4);
    strata_remote_put(&w, 1, 4);
    strata_remote_put_functions(&w, functions, 2);
    for (int tries = 0; ask(STRATA_REMOTE_GREET, head, (size_t)(w.at - head), NULL, 0); tries++)
        if (tries == 100) abort(); /* the worker starts again */
}

/* A right closure with 3 bytes. */
static void run_right(void) {
    unsigned char head[64], body[STRATA_REMOTE_ALIGNMENT] = "abc";
    strata_remote_writer w = {head, head + sizeof head, false};
    const strata_array array = strata_array_view(STRATA_DTYPE_BOOL, STRATA_SHAPE(3), body);
    strata_remote_put(&w, 7, 8);
    strata_remote_put(&w, 0, 4);
    strata_remote_put_text(&w, "c");
    strata_remote_put(&w, 1, 1);
    strata_remote_put(&w, 0, 1);
    strata_remote_put_array(&w, &array);
    if (ask(STRATA_REMOTE_RUN, head, (size_t)(w.at - head), body, sizeof body)) abort();
}

static void send_request(uint32_t method, const uint8_t *head, size_t n_head, const uint8_t *body, size_t n_body) {
    static int n;
    pthread_t thread;
    strata_error err;
    if (!client) {
        const strata_rpc_client_options opts = {
            .task = "chief:0", .server = "worker:0", .address = worker_address, .cluster = &cluster, .reconnect_seconds = 20};
        if (pthread_create(&thread, NULL, be_worker, NULL) || strata_rpc_client_create(&opts, &client, &err)) abort();
        greet();
    }
    const strata_status status = ask(method, head, n_head, body, n_body);
    const bool ended = method == STRATA_REMOTE_END && !status;
    if (ended || method == STRATA_REMOTE_GREET || ++n % 64 == 0) {
        greet(); /* also destroys the objects that were made */
        run_right();
    }
}

/* ---- replies, to a coordinator ---- */

/* The reply to the next RUN; NULL: the right one. */
static const uint8_t *reply_head, *reply_body;
static size_t n_reply_head, n_reply_body;

static strata_status answer(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    static unsigned char zeros[2 * STRATA_REMOTE_ALIGNMENT];
    strata_remote_writer w = {reply->head, (unsigned char *)reply->head + 64, false};
    (void)user, (void)err;
    if (call->method == STRATA_REMOTE_RUN && reply_head) {
        memcpy(reply->head, reply_head, n_reply_head);
        reply->head_bytes = n_reply_head;
        reply->body[0] = (strata_rpc_piece){reply_body, n_reply_body, NULL, NULL};
        reply->n_body = n_reply_body > 0;
        reply->repeatable = true; /* so that the body is not kept */
        return STRATA_OK;
    }
    if (call->method != STRATA_REMOTE_RUN) return STRATA_OK;
    strata_remote_put(&w, 0, 1);
    for (int i = 0; i < 2; i++) strata_remote_put_array(&w, &(strata_array){.dtype = STRATA_DTYPE_I32});
    reply->head_bytes = (size_t)(w.at - (unsigned char *)reply->head);
    reply->body[0] = (strata_rpc_piece){zeros, sizeof zeros, NULL, NULL};
    reply->n_body = 1;
    return STRATA_OK;
}

static strata_status run_closure(strata_coordinator *coordinator) {
    strata_remote_value *value = NULL;
    strata_array results[2];
    strata_error err = {0};
    if (strata_coordinator_schedule(coordinator, "c", NULL, 0, &value, &err)) abort();
    const strata_status status = strata_remote_value_fetch(value, results, 2, &err);
    if (status && !err.message[0]) abort();
    for (int i = 0; i < 2; i++) strata_array_finish(&results[i]);
    strata_remote_value_release(value);
    if (strata_coordinator_join(coordinator, &err) != status) abort();
    return status;
}

static void send_reply(const uint8_t *head, size_t n_head, const uint8_t *body, size_t n_body) {
    static strata_coordinator *coordinator;
    static strata_rpc_server *server;
    strata_error err;
    if (!coordinator) {
        const strata_rpc_server_options worker = {
            .task = "worker:0", .address = "127.0.0.1:0", .cluster = &cluster, .handler = answer};
        if (strata_rpc_server_create(&worker, &server, &err)) abort();
        const char *address = strata_rpc_server_address(server);
        const strata_coordinator_options opts = {
            .workers = &address, .n_workers = 1, .cluster = &cluster, .functions = functions, .n_functions = 2};
        if (strata_coordinator_create(&opts, &coordinator, &err)) abort();
    }
    reply_head = head, n_reply_head = n_head;
    reply_body = body, n_reply_body = n_body;
    const strata_status ignored = run_closure(coordinator);
    (void)ignored;
    reply_head = NULL;
    if (run_closure(coordinator)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned next;
    if (!worker_address[0] && !test_addresses(&next, 1, &worker_address)) abort();
    if (size < 3 || size > 4096) return 0;
    const size_t n_head = data[2] < size - 3 ? data[2] : size - 3;
    if (data[0] % 2)
        send_reply(data + 3, n_head, data + 3 + n_head, size - 3 - n_head);
    else
        send_request(data[1] % 6, data + 3, n_head, data + 3 + n_head, size - 3 - n_head);
    return 0;
}
