/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as the messages between a coordinator and its worker. The first byte says whose message it is: a request, which a
 * worker answers, or a reply, from which a coordinator reads the results of a closure. The second byte is the method of a
 * request, and the third is how many of the next bytes are the head; the rest is the body. Messages are used whole or refused,
 * nothing outside of them is read, and a worker that got one still runs a right closure. */
#include <stdint.h>

/* The functions of these files that read messages are static. */
#define strata_remote_cancelled      fuzzed_remote_cancelled
#define strata_coordinator_serve     fuzzed_coordinator_serve
#define strata_remote_value_release  fuzzed_remote_value_release
#define strata_remote_value_fetch    fuzzed_remote_value_fetch
#define strata_remote_value_attempts fuzzed_remote_value_attempts
#define strata_coordinator_create    fuzzed_coordinator_create
#define strata_coordinator_destroy   fuzzed_coordinator_destroy
#define strata_coordinator_schedule  fuzzed_coordinator_schedule
#define strata_coordinator_join      fuzzed_coordinator_join
#define strata_coordinator_done      fuzzed_coordinator_done
#define strata_coordinator_count     fuzzed_coordinator_count
#define strata_per_worker_create     fuzzed_per_worker_create
#define greet                        worker_greet
#include "strategies/coordinator/worker.c"
#undef greet
#define TICK_SECONDS COORDINATOR_TICK_SECONDS
#include "strategies/coordinator/coordinator.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    (void)sum;
    return n;
}

static strata_status count_bytes(const strata_remote_call *call, strata_array *results, int n, strata_error *err) {
    for (int i = 0; i < n; i++) STRATA_TRY(strata_array_create(STRATA_DTYPE_I32, STRATA_SHAPE(), &results[i], err));
    *(int32_t *)results[0].data = read_all(call);
    return STRATA_OK;
}

static strata_status make_object(const strata_remote_call *call, void **out_object, strata_error *err) {
    *out_object = malloc((size_t)read_all(call) + 1);
    return *out_object ? STRATA_OK : strata_fail(err, STRATA_OUT_OF_MEMORY, "no memory");
}

static void unmake_object(void *own, void *user) {
    (void)user;
    free(own);
}

static const strata_remote_function functions[] = {{.name = "c", .run = count_bytes, .n_results = 2},
                                                   {.name = "m", .make = make_object, .unmake = unmake_object}};

/* Memory of exactly n bytes, so that AddressSanitizer sees one too many. */
static void *copy(const void *bytes, size_t n) {
    void *own = malloc(n);
    if (!own) abort();
    if (n) memcpy(own, bytes, n);
    return own;
}

/* Lets the worker answer a request. */
static strata_status ask(worker *w, uint32_t method, const void *head, size_t n_head, const void *body, size_t n_body) {
    static unsigned char reply_head[STRATA_RPC_HEAD_BYTES];
    static strata_rpc_piece pieces[STRATA_RPC_PIECES];
    unsigned char *own_head = copy(head, n_head), *own_body = n_body ? copy(body, n_body) : NULL;
    const strata_rpc_call call = {.task = "chief:0",
                                  .incarnation = 1,
                                  .method = method,
                                  .head = own_head,
                                  .head_bytes = n_head,
                                  .body = own_body,
                                  .body_bytes = n_body};
    strata_rpc_reply reply = {.head = reply_head, .body = pieces};
    strata_error err = {0};
    const strata_status status = answer(w, &call, &reply, &err);
    if (status && (!err.message[0] || err.status != status)) abort();
    if (!status && (reply.head_bytes > sizeof reply_head || reply.n_body > STRATA_REMOTE_PIECES)) abort();
    for (int i = 0; i < reply.n_body; i++)
        if (reply.body[i].release) reply.body[i].release(reply.body[i].user);
    free(own_head);
    free(own_body);
    return status;
}

static void send_greeting(worker *w) {
    unsigned char head[512];
    strata_remote_writer out = {head, head + sizeof head, false};
    strata_remote_put(&out, 0, 4);
    strata_remote_put(&out, 1, 4);
    strata_remote_put_functions(&out, functions, 2);
    if (ask(w, STRATA_REMOTE_GREET, head, (size_t)(out.at - head), NULL, 0)) abort();
}

/* A right closure with 3 bytes. */
static void run_right(worker *w) {
    unsigned char head[64], body[STRATA_REMOTE_ALIGNMENT] = "abc";
    strata_remote_writer out = {head, head + sizeof head, false};
    const strata_array array = strata_array_view(STRATA_DTYPE_BOOL, STRATA_SHAPE(3), body);
    strata_remote_put(&out, 7, 8);
    strata_remote_put(&out, 0, 4);
    strata_remote_put_text(&out, "c");
    strata_remote_put(&out, 1, 1);
    strata_remote_put(&out, 0, 1);
    strata_remote_put_array(&out, &array);
    if (ask(w, STRATA_REMOTE_RUN, head, (size_t)(out.at - head), body, sizeof body)) abort();
}

static void send_request(uint32_t method, const uint8_t *head, size_t n_head, const uint8_t *body, size_t n_body) {
    const strata_coordinator_worker_options opts = {.n_workers = 1, .functions = functions, .n_functions = 2};
    worker w = {.opts = &opts, .task = "worker:0"};
    const strata_status first = ask(&w, method, head, n_head, body, n_body); /* without a greeting */
    if (!first && method != STRATA_REMOTE_GREET) abort();
    send_greeting(&w);
    const strata_status second = ask(&w, method, head, n_head, body, n_body);
    if (method == STRATA_REMOTE_GREET && first != second) abort();
    run_right(&w);
    destroy_objects(&w);
}

/* As run_closure of the coordinator does. */
static void read_reply(const uint8_t *head, size_t n_head, const uint8_t *body, size_t n_body) {
    static const strata_dispatcher d = {.task = "worker:0"};
    const strata_closure k = {.function = &functions[0]};
    unsigned char *own_head = copy(head, n_head), *own_body = n_body ? copy(body, n_body) : NULL;
    strata_rpc_answer reply = {.head_bytes = n_head, .body_bytes = n_body, .allocated = own_body};
    strata_remote_reader r = {own_head, own_head + n_head, false};
    strata_array *results = NULL;
    strata_error result = {0}, err = {0};
    const strata_status status = get_result(&d, &r, "a closure", &result, &err);
    if (status && !err.message[0]) abort();
    if (!status && !result.status && read_results(&d, &k, &r, &reply, &results, &result) && !result.message[0]) abort();
    for (int i = 0; results && i < k.function->n_results; i++) {
        if (strata_array_bytes(&results[i]) > n_body) abort();
        strata_array_finish(&results[i]);
    }
    free(results);
    free(own_head);
    free(own_body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3 || size > 4096) return 0;
    const size_t n_head = data[2] < size - 3 ? data[2] : size - 3;
    if (data[0] % 2)
        read_reply(data + 3, n_head, data + 3 + n_head, size - 3 - n_head);
    else
        send_request(data[1] % 6, data + 3, n_head, data + 3 + n_head, size - 3 - n_head);
    return 0;
}
