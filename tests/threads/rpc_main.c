/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests remote calls (cluster/rpc) under faults. A proxy closes connections and damages, drops and repeats bytes; each
 * request must be executed exactly once. Servers end and start again, processes are stopped or killed or have another
 * secret, connections are made that do not belong to the job, and handlers block. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "cluster/rpc/rpc.h"
#include "tests/support/certificate.h"
#include "tests/support/patience.h"
#include "tests/support/ports.h"
#include "tests/threads/proxy.h"

enum { PUT = 1, ECHO, SUM, FAIL, BLOCK, LARGE, NAP, LOG = 1 << 16, BIG = 1 << 20, VAST = (32 << 20) + 4711 };
/* The shared memory has BIG bytes. A body of this size takes more than half of it, so only one such body at a time fits as
 * one block. */
enum { OVER_HALF = 700001 };
/* A client with this incarnation shares no memory with the server, so that all bytes go through the socket. */
enum { BY_SOCKET = 5 };
static const char secret[] = "only for tasks";
static const double SECONDS = TEST_PATIENCE;
/* The interval of heartbeats of tests that wait until a silent peer is lost, which takes 5 times as long. The other tests have
 * TEST_CALM_HEARTBEAT. */
static const double BRIEF = 0.5;
static int failures;

/* Returns a port for a server that starts later, or starts again. */
static uint16_t find_port(void) {
    static unsigned next;
    const uint16_t port = test_port(&next);
    if (port) return port;
    puts("skipped: no sockets here");
    exit(77);
}

static void check(bool ok, const char *what, const char *more) {
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, more);
    failures++;
}

/* What a server has observed. */
typedef struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* The values of PUT, in the order in which they were executed. */
    uint32_t log[LOG];
    int n_log, n_connected, n_lost, n_left, n_blocked;
    bool open_gate;
    double lost_at;
    char why[256];
    unsigned char *large;
    atomic_int n_released;
    strata_rpc_server *server;
} world;

static void released(void *user) {
    atomic_fetch_add(&((world *)user)->n_released, 1);
}

/* PUT appends a number to the log, ECHO returns the body, SUM adds up its bytes, FAIL fails, BLOCK waits until open_gate is
 * set, LARGE returns memory that it lends to the library. */
static strata_status handle(void *user, const strata_rpc_call *call, strata_rpc_reply *reply, strata_error *err) {
    world *w = user;
    uint32_t value = 0;
    uint64_t sum = 0;
    switch (call->method) {
        case PUT:
            if (call->head_bytes != sizeof value) return strata_fail(err, STRATA_DATA, "a head of %zu bytes", call->head_bytes);
            memcpy(&value, call->head, sizeof value);
            pthread_mutex_lock(&w->lock);
            if (w->n_log < LOG) w->log[w->n_log++] = value;
            pthread_mutex_unlock(&w->lock);
            memcpy(reply->head, &value, sizeof value);
            reply->head_bytes = sizeof value;
            return STRATA_OK;
        case ECHO:
            reply->head_bytes = call->head_bytes;
            memcpy(reply->head, call->head, call->head_bytes);
            reply->body[0] = (strata_rpc_piece){call->body, call->body_bytes, NULL, NULL};
            reply->n_body = call->body_bytes > 0;
            reply->repeatable = true; /* the body is not valid any more after the call */
            return STRATA_OK;
        case SUM:
            for (size_t i = 0; i < call->body_bytes; i++) sum += ((unsigned char *)call->body)[i];
            memcpy(reply->head, &sum, sizeof sum);
            reply->head_bytes = sizeof sum;
            return STRATA_OK;
        case BLOCK:
            pthread_mutex_lock(&w->lock);
            w->n_blocked++;
            pthread_cond_broadcast(&w->changed);
            while (!w->open_gate && !strata_rpc_call_ended(call)) pthread_cond_wait(&w->changed, &w->lock);
            w->n_blocked--;
            pthread_mutex_unlock(&w->lock);
            return STRATA_OK;
        case LARGE:
            for (int i = 0; i < 4; i++)
                reply->body[i] = (strata_rpc_piece){w->large + i * (BIG / 4), BIG / 4, i ? NULL : released, w};
            reply->n_body = 4;
            return STRATA_OK;
        case NAP:
            usleep(450000);
            return STRATA_OK;
        default:
            return strata_fail(err, STRATA_UNSUPPORTED, "%s asks for method %u", call->task, call->method);
    }
}

static void on_peer(void *user, strata_rpc_event event, const char *task, uint64_t incarnation, const char *why) {
    world *w = user;
    (void)task, (void)incarnation;
    pthread_mutex_lock(&w->lock);
    w->n_connected += event == STRATA_RPC_CONNECTED;
    w->n_left += event == STRATA_RPC_LEFT;
    if (event == STRATA_RPC_LOST) {
        w->n_lost++;
        w->lost_at = now();
        snprintf(w->why, sizeof w->why, "%s", why);
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static strata_communicator_options security = {.secret = secret, .secret_bytes = sizeof secret, .heartbeat_seconds = BRIEF};

static int most_peers; /* of the next server; 0: the default */

static world *start_world(const char *address) {
    world *w = calloc(1, sizeof *w);
    strata_error err = {0};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->large = malloc(BIG);
    for (int i = 0; i < BIG; i++) w->large[i] = (unsigned char)(i * 7 + i / 256);
    const strata_rpc_server_options opts = {.task = "ps:0",
                                            .address = address ? address : "127.0.0.1:0",
                                            .cluster = &security,
                                            .handler = handle,
                                            .on_peer = on_peer,
                                            .most_peers = most_peers,
                                            .user = w};
    if (strata_rpc_server_create(&opts, &w->server, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return w;
}

static void stop_world(world *w) {
    strata_rpc_server_destroy(w->server);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->large);
    free(w);
}

static strata_status connect_as(const char *task, uint64_t incarnation, const char *address, double reconnect_seconds,
                                strata_rpc_client **out, strata_error *err) {
    strata_communicator_options cluster = security;
    cluster.connect_seconds = 2 * TEST_PATIENCE;
    const strata_rpc_client_options opts = {.task = task,
                                            .incarnation = incarnation,
                                            .server = "ps:0",
                                            .address = address,
                                            .cluster = &cluster,
                                            .reconnect_seconds = reconnect_seconds,
                                            .shared_bytes = incarnation == BY_SOCKET ? 0 : BIG};
    return strata_rpc_client_create(&opts, out, err);
}

static strata_rpc_client *must_connect(const char *task, uint64_t incarnation, const char *address) {
    strata_rpc_client *client = NULL;
    strata_error err = {0};
    if (connect_as(task, incarnation, address, TEST_PATIENCE, &client, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return client;
}

static strata_status call(strata_rpc_client *client, uint32_t method, double seconds, strata_error *err) {
    const uint32_t value = 7;
    const strata_rpc_ask ask = {.method = method, .head = &value, .head_bytes = sizeof value, .what = "a try"};
    return strata_rpc_client_call(client, &ask, NULL, seconds, err);
}

/* Returns how many values were logged. It takes the lock only for ThreadSanitizer: a reply through shared memory is sent
 * after its request was executed, but ThreadSanitizer cannot see that, because both sides map the memory at different
 * addresses. */
static int n_logged(world *w) {
    pthread_mutex_lock(&w->lock);
    const int n = w->n_log;
    pthread_mutex_unlock(&w->lock);
    return n;
}

/* Waits until *number, a field of the world, is at least n. Returns false after TEST_PATIENCE. */
static bool wait_until(world *w, const int *number, int n) {
    const double limit = now() + TEST_PATIENCE;
    bool there = false;
    while (!there && now() < limit) {
        pthread_mutex_lock(&w->lock);
        there = *number >= n;
        pthread_mutex_unlock(&w->lock);
        if (!there) usleep(2000);
    }
    return there;
}

/* ---- without faults ---- */

static void echo_sizes(strata_rpc_client *client) {
    static const size_t sizes[] = {0, 1, 8137, 32768, 262143, 262145, OVER_HALF, BIG, VAST};
    unsigned char *data = malloc(VAST), *room = malloc(VAST);
    strata_error err = {0};
    for (int i = 0; i < VAST; i++) data[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t n = sizes[s], a = n / 3, b = n / 2 - a;
        char head[16] = "";
        memset(room, 0, n);
        const struct iovec out[3] = {{data, a}, {data + a, b}, {data + a + b, n - a - b}},
                           in[3] = {{room, b}, {NULL, 0}, {room + b, n - b}};
        const strata_rpc_ask ask = {.method = ECHO, .head = "a head", .head_bytes = 6, .body = out, .n_body = 3};
        strata_rpc_answer answer = {.head = head, .head_bytes = sizeof head, .body = in, .n_body = 3};
        check(!strata_rpc_client_call(client, &ask, &answer, SECONDS, &err), "an echo", err.message);
        check(answer.body_bytes == n && answer.head_bytes == 6 && !memcmp(head, "a head", 6) && !memcmp(data, room, n),
              "an echo", "other bytes came back");
        strata_rpc_answer any = {.head = head, .head_bytes = sizeof head};
        check(!strata_rpc_client_call(client, &ask, &any, SECONDS, &err), "an echo", err.message);
        check(any.body_bytes == n && (!n || !memcmp(any.allocated, data, n)), "an echo", "other bytes were allocated");
        free(any.allocated);
    }
    free(data);
    free(room);
}

static void use_errors(strata_rpc_client *client) {
    strata_error err = {0};
    char head[4], room[10];
    const struct iovec in = {room, sizeof room};
    check(call(client, FAIL, SECONDS, &err) == STRATA_UNSUPPORTED && strstr(err.message, "ps:0 at 127.0.0.1") &&
              strstr(err.message, "a try") && strstr(err.message, "worker:1 asks for method 4"),
          "an error of a handler", err.message);
    const strata_rpc_ask ask = {.method = LARGE};
    strata_rpc_answer answer = {.head = head, .head_bytes = sizeof head, .body = &in, .n_body = 1};
    check(strata_rpc_client_call(client, &ask, &answer, SECONDS, &err) == STRATA_INVALID && strstr(err.message, "1048576") &&
              strstr(err.message, "10"),
          "a reply that is too large", err.message);
    const strata_rpc_ask wrong = {.method = PUT, .head_bytes = STRATA_RPC_HEAD_BYTES + 1};
    check(strata_rpc_client_call(client, &wrong, NULL, SECONDS, &err) == STRATA_INVALID, "a head that is too large",
          err.message);
    check(call(client, PUT, 0, &err) == STRATA_INVALID, "no time", err.message);
}

static void lend_memory(world *w, strata_rpc_client *client) {
    const strata_rpc_ask ask = {.method = LARGE};
    strata_error err = {0};
    check(!call(client, PUT, SECONDS, &err), "memory on loan", err.message); /* releases the memory of earlier replies */
    const int before = atomic_load(&w->n_released);
    for (int i = 0; i < 5; i++) {
        strata_rpc_answer answer = {0};
        check(!strata_rpc_client_call(client, &ask, &answer, SECONDS, &err), "memory on loan", err.message);
        check(answer.body_bytes == BIG && !memcmp(answer.allocated, w->large, BIG), "memory on loan", "other bytes");
        free(answer.allocated);
    }
    /* reports to the server that the replies have arrived */
    check(!call(client, PUT, SECONDS, &err), "memory on loan", err.message);
    check(atomic_load(&w->n_released) == before + 5, "memory on loan", "a reply was not released once");
}

enum { FLIGHT = 1000 };
static void fly(world *w, strata_rpc_client *client) {
    strata_rpc_request *requests[FLIGHT];
    strata_rpc_answer answers[FLIGHT];
    uint32_t values[FLIGHT], got[FLIGHT];
    char bytes[4096] = "";
    const struct iovec body = {bytes, sizeof bytes};
    strata_error err = {0};
    const int before = n_logged(w);
    for (int i = 0; i < FLIGHT; i++) {
        values[i] = (uint32_t)i;
        const strata_rpc_ask ask = {.method = PUT, .head = &values[i], .head_bytes = 4, .body = &body, .n_body = 1};
        answers[i] = (strata_rpc_answer){.head = &got[i], .head_bytes = 4};
        check(!strata_rpc_client_start(client, &ask, &answers[i], SECONDS, &requests[i], &err), "1,000 requests", err.message);
    }
    for (int i = FLIGHT - 1; i >= 0; i--) {
        check(!strata_rpc_request_wait(requests[i], &err), "1,000 requests", err.message);
        check(got[i] == values[i], "1,000 requests", "a reply of another request");
    }
    check(n_logged(w) == before + FLIGHT && w->log[w->n_log - 1] == FLIGHT - 1, "1,000 requests", "another order");
}

/* The first body is sent as one block. While it is in use there is no room for another one, so the next bodies are sent in
 * segments. */
static void send_large_ones_at_once(strata_rpc_client *client) {
    enum { N = 4 };
    unsigned char *data = malloc(N * (size_t)OVER_HALF);
    struct iovec bodies[N];
    strata_rpc_request *requests[N];
    strata_rpc_answer answers[N];
    uint64_t got[N], sums[N] = {0};
    strata_error err = {0};
    for (int r = 0; r < N; r++) {
        unsigned char *own = data + (size_t)r * OVER_HALF;
        for (int i = 0; i < OVER_HALF; i++) sums[r] += own[i] = (unsigned char)(i * 13 + i / 241 + r);
        bodies[r] = (struct iovec){own, OVER_HALF};
        const strata_rpc_ask ask = {.method = SUM, .body = &bodies[r], .n_body = 1};
        answers[r] = (strata_rpc_answer){.head = &got[r], .head_bytes = sizeof got[r]};
        check(!strata_rpc_client_start(client, &ask, &answers[r], SECONDS, &requests[r], &err), "large bodies", err.message);
    }
    for (int r = 0; r < N; r++) {
        check(!strata_rpc_request_wait(requests[r], &err), "large bodies", err.message);
        check(got[r] == sums[r], "large bodies", "another sum");
    }
    free(data);
}

typedef struct crew {
    strata_rpc_client *client;
    int number;
    bool wrong;
} crew;

static void *work(void *user) {
    crew *c = user;
    unsigned char bytes[5000];
    uint64_t sum = 0, got = 0;
    for (int i = 0; i < 100 && !c->wrong; i++) {
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (unsigned char)(c->number * 17 + i + (int)k);
        sum = 0;
        for (size_t k = 0; k < sizeof bytes; k++) sum += bytes[k];
        const struct iovec body = {bytes, sizeof bytes};
        const strata_rpc_ask ask = {.method = SUM, .body = &body, .n_body = 1};
        strata_rpc_answer answer = {.head = &got, .head_bytes = sizeof got};
        strata_error err = {0};
        c->wrong = strata_rpc_client_call(c->client, &ask, &answer, SECONDS, &err) || got != sum;
        if (c->wrong) fprintf(stderr, "threads: %s\n", err.message);
    }
    return NULL;
}

static void share(strata_rpc_client *client) {
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    crew crews[THREADS];
    for (int i = 0; i < THREADS; i++) {
        crews[i] = (crew){client, i, false};
        pthread_create(&threads[i], NULL, work, &crews[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        check(!crews[i].wrong, "threads that share a client", "a wrong sum");
    }
}

static void use_all(bool tls, uint64_t incarnation) {
    char certificate[TEST_CERTIFICATE_BYTES];
    const strata_communicator_options before = security;
    if (tls) {
        test_certificate_make(certificate);
        security.tls_cert = security.tls_ca = certificate;
    }
    world *w = start_world(NULL);
    strata_rpc_client *client = must_connect("worker:1", incarnation, strata_rpc_server_address(w->server));
    echo_sizes(client);
    send_large_ones_at_once(client);
    use_errors(client);
    lend_memory(w, client);
    fly(w, client);
    share(client);
    strata_rpc_client_destroy(client);
    check(wait_until(w, &w->n_left, 1) && !w->n_lost, "a client that leaves", w->why);
    if (tls) { /* the server uses TLS, the client does not */
        strata_error err = {0};
        security.tls_cert = security.tls_ca = NULL;
        check(connect_as("worker:1", 2, strata_rpc_server_address(w->server), 1, &client, &err) == STRATA_UNAVAILABLE &&
                  strstr(err.message, "TLS"),
              "a client without TLS", err.message);
        unlink(certificate);
    }
    stop_world(w);
    security = before;
}

/* A client closes its socket right after it has sent that it leaves. The server must process the message before it notices
 * that the connection was closed. */
static void leave_often(uint64_t incarnation) {
    enum { TIMES = 50 };
    world *w = start_world(NULL);
    strata_error err = {0};
    for (int i = 0; i < TIMES; i++) {
        strata_rpc_client *client = must_connect("worker:1", incarnation, strata_rpc_server_address(w->server));
        check(!call(client, PUT, SECONDS, &err), "a client that stays for a moment", err.message);
        strata_rpc_client_destroy(client);
        check(wait_until(w, &w->n_left, i + 1), "a client that stays for a moment", "it did not leave");
    }
    check(n_logged(w) == TIMES, "a client that stays for a moment", "a request was not executed once");
    stop_world(w);
}

/* ---- faults of the connection ---- */

/* The faults that the proxy makes: one after about `every` bytes. */
typedef struct weather {
    unsigned seed;
    int64_t left, every;
    int n_faults, n_of[4];
    atomic_bool calm;
} weather;

static bool hand_on(void *user, int connection, int direction, int to, char *bytes, size_t n, int64_t before) {
    weather *w = user;
    (void)connection, (void)direction;
    w->left -= (int64_t)n;
    if (w->left > 0 || atomic_load(&w->calm) || before < 200) return send_all(to, bytes, n);
    const int fault = rand_r(&w->seed) % 4;
    w->left = w->every / 2 + rand_r(&w->seed) % w->every;
    w->n_faults++;
    w->n_of[fault]++;
    if (fault == 0) return send_all(to, bytes, n / 2) && false; /* closes the connection within a frame */
    if (fault == 1) bytes[(size_t)rand_r(&w->seed) % n] ^= 1;   /* damages a byte */
    if (fault == 2) return true;                                /* drops the bytes */
    if (fault == 3 && !send_all(to, bytes, n)) return false;    /* sends the bytes twice */
    return send_all(to, bytes, n);
}

static uint16_t port_of(const char *address) {
    return (uint16_t)atoi(strrchr(address, ':') + 1);
}

static void weather_faults(unsigned seed) {
    enum { PUTS = 400, AHEAD = 16 };
    world *w = start_world(NULL);
    weather sky = {.seed = seed, .every = 60000, .left = 30000};
    char address[32], text[128], bytes[3000];
    strata_rpc_request *requests[AHEAD] = {NULL};
    strata_rpc_answer answers[AHEAD];
    uint32_t values[AHEAD], got[AHEAD];
    strata_error err = {0};
    memset(bytes, 5, sizeof bytes);
    middle = (proxy){.hand_on = hand_on, .user = &sky, .target = port_of(strata_rpc_server_address(w->server))};
    start_proxy();
    snprintf(address, sizeof address, "127.0.0.1:%u", middle.port);
    strata_rpc_client *client = must_connect("worker:2", BY_SOCKET, address);
    for (int i = 0; i < PUTS + AHEAD; i++) {
        const int slot = i % AHEAD;
        if (i >= AHEAD) {
            check(!strata_rpc_request_wait(requests[slot], &err), "a push through the storm", err.message);
            check(got[slot] == values[slot], "a push through the storm", "it has another reply");
        }
        if (i >= PUTS) continue;
        const struct iovec body = {bytes, sizeof bytes};
        values[slot] = (uint32_t)i;
        const strata_rpc_ask ask = {.method = PUT, .head = &values[slot], .head_bytes = 4, .body = &body, .n_body = 1};
        answers[slot] = (strata_rpc_answer){.head = &got[slot], .head_bytes = 4};
        if (strata_rpc_client_start(client, &ask, &answers[slot], SECONDS, &requests[slot], &err)) {
            fprintf(stderr, "a push through the storm: %s\n", err.message);
            exit(1);
        }
    }
    bool in_order = w->n_log == PUTS;
    for (int i = 0; i < w->n_log && in_order; i++) in_order = w->log[i] == (uint32_t)i;
    snprintf(text, sizeof text, "%d of %d pushes were executed, or in another order, after %d faults, seed %u", w->n_log, PUTS,
             sky.n_faults, seed);
    check(in_order, "exactly once", text);
    check(sky.n_faults >= 5, "exactly once", "there were too few faults");
    atomic_store(&sky.calm, true);
    strata_rpc_client_destroy(client);
    stop_proxy();
    stop_world(w);
}

static bool hand_on_until_cut(void *user, int connection, int direction, int to, char *bytes, size_t n, int64_t before) {
    (void)connection, (void)direction, (void)before;
    return !atomic_exchange((atomic_bool *)user, false) && send_all(to, bytes, n);
}

/* The connection is cut while a handler blocks. The handler must be woken, and must run again when the client has
 * reconnected. */
static void cut_a_wait(uint64_t incarnation) {
    world *w = start_world(NULL);
    atomic_bool cut = false;
    char address[32];
    strata_rpc_request *request;
    strata_error err = {0};
    middle = (proxy){.hand_on = hand_on_until_cut, .user = &cut, .target = port_of(strata_rpc_server_address(w->server))};
    start_proxy();
    snprintf(address, sizeof address, "127.0.0.1:%u", middle.port);
    strata_rpc_client *client = must_connect("worker:4", incarnation, address);
    const strata_rpc_ask block = {.method = BLOCK, .what = "a wait"};
    check(!strata_rpc_client_start(client, &block, NULL, SECONDS, &request, &err), "a wait that is cut", err.message);
    check(wait_until(w, &w->n_blocked, 1), "a wait that is cut", "it did not come");
    if (incarnation == BY_SOCKET)
        atomic_store(&cut, true); /* the next heartbeat cuts the connection */
    else
        cut_proxy();
    check(wait_until(w, &w->n_lost, 1) && wait_until(w, &w->n_connected, 2), "a wait that is cut", "no other connection came");
    check(wait_until(w, &w->n_blocked, 1), "a wait that is cut", "it was not waited for again");
    pthread_mutex_lock(&w->lock);
    w->open_gate = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    check(!strata_rpc_request_wait(request, &err), "a wait that is cut", err.message);
    strata_rpc_client_destroy(client);
    stop_proxy();
    stop_world(w);
}

static bool hand_on_until_broken(void *user, int connection, int direction, int to, char *bytes, size_t n, int64_t before) {
    (void)connection, (void)direction, (void)before;
    return !atomic_load((atomic_bool *)user) && send_all(to, bytes, n);
}

static void put(strata_rpc_client *client, uint32_t value, const char *what) {
    uint32_t got = 0;
    strata_error err = {0};
    const strata_rpc_ask ask = {.method = PUT, .head = &value, .head_bytes = sizeof value};
    strata_rpc_answer answer = {.head = &got, .head_bytes = sizeof got};
    check(!strata_rpc_client_call(client, &ask, &answer, SECONDS, &err), what, err.message);
    check(got == value, what, "its reply is that of another request");
}

/* A client that is destroyed while it has no connection cannot send that it leaves. A later client of the same incarnation must
 * not get the replies that the server stored for the first one. */
static void follow_a_client_that_was_cut_off(void) {
    world *w = start_world(NULL);
    atomic_bool broken = false;
    char address[32];
    middle = (proxy){.hand_on = hand_on_until_broken, .user = &broken, .target = port_of(strata_rpc_server_address(w->server))};
    start_proxy();
    snprintf(address, sizeof address, "127.0.0.1:%u", middle.port);
    strata_rpc_client *client = must_connect("worker:6", BY_SOCKET, address);
    put(client, 1, "a request of the first client");
    atomic_store(&broken, true); /* the next heartbeat cuts the connection */
    check(wait_until(w, &w->n_lost, 1), "a client that was cut off", "it was not lost");
    while (strata_rpc_client_connected(client)) usleep(1000);
    strata_rpc_client_destroy(client);
    stop_proxy();
    client = must_connect("worker:6", BY_SOCKET, strata_rpc_server_address(w->server));
    put(client, 2, "a request of the next client");
    check(n_logged(w) == 2, "a request of the next client", "it was not executed");
    strata_rpc_client_destroy(client);
    stop_world(w);
}

/* ---- servers and tasks that start again ---- */

static void come_back(void) {
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", find_port());
    world *w = start_world(address);
    strata_error err = {0};
    strata_rpc_request *request;
    strata_rpc_client *client = NULL;
    if (connect_as("worker:0", 1, address, 4, &client, &err)) exit(1);
    const uint64_t first = strata_rpc_client_server_incarnation(client);
    check(!call(client, PUT, SECONDS, &err), "before the server dies", err.message);
    const strata_rpc_ask block = {.method = BLOCK, .what = "a wait"};
    check(!strata_rpc_client_start(client, &block, NULL, SECONDS, &request, &err), "a request to block", err.message);
    check(wait_until(w, &w->n_blocked, 1), "a request to block", "it did not come");
    stop_world(w); /* wakes the handler */
    w = start_world(address);
    check(wait_until(w, &w->n_connected, 1), "after the server came back", "the client did not connect");
    while (strata_rpc_client_server_incarnation(client) == first) usleep(1000);
    check(!call(client, PUT, SECONDS, &err), "after the server came back", err.message);
    check(n_logged(w) == 1 && strata_rpc_client_server_incarnation(client) != first, "after the server came back",
          "it is the old one");
    check(strata_rpc_request_wait(request, &err) == STRATA_PEER_LOST && strstr(err.message, "a wait") &&
              strstr(err.message, "started again"),
          "a request to the server that died", err.message);
    stop_world(w);
    /* When no server starts again, the call must fail after the client's 4 s. */
    const double alone = now();
    check(call(client, PUT, SECONDS, &err) == STRATA_PEER_LOST && strstr(err.message, "ps:0 at"), "without a server",
          err.message);
    check(now() - alone > 3.5, "without a server", "it took another time");
    strata_rpc_client_destroy(client);
}

/* More connections than the server lets say nothing at a time, as those of a port scanner. They stay, and keep out no task, nor
 * one whose handshake has begun before they came. */
static void silent_connections(void) {
    enum { SILENT = 150 };
    world *w = start_world(NULL);
    const char *address = strata_rpc_server_address(w->server);
    strata_rpc_client *before = must_connect("worker:1", 1, address);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    strata_error err = {0};
    int fds[SILENT];
    char greeting[40] = "STRATA3\n", reply[40];
    const int begun = socket(AF_INET, SOCK_STREAM, 0);
    check(!connect(begun, (struct sockaddr *)&to, sizeof to) && write(begun, greeting, sizeof greeting) == sizeof greeting &&
              recv(begun, reply, sizeof reply, MSG_WAITALL) == sizeof reply,
          "a handshake that has begun", strerror(errno));
    for (int i = 0; i < SILENT; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        check(!connect(fds[i], (struct sockaddr *)&to, sizeof to), "a silent connection", strerror(errno));
    }
    /* The server waits for longer than TEST_PATIENCE until the silent ones greet it. */
    const double began = now();
    strata_rpc_client *after = must_connect("worker:2", 1, address);
    check(now() - began < TEST_PATIENCE, "a task beside silent connections", "it came late");
    check(!call(before, PUT, SECONDS, &err) && !call(after, PUT, SECONDS, &err), "a task beside silent connections",
          err.message);
    pthread_mutex_lock(&w->lock);
    check(!w->n_lost, "a task beside silent connections", w->why);
    pthread_mutex_unlock(&w->lock);
    check(recv(begun, reply, sizeof reply, MSG_DONTWAIT) < 0, "a handshake that has begun", "it was ended");
    close(begun);
    for (int i = 0; i < SILENT; i++) close(fds[i]);
    strata_rpc_client_destroy(before);
    strata_rpc_client_destroy(after);
    stop_world(w);
}

/* A client that sends one request after the other sends no heartbeats, since its requests show that it lives. Each request runs
 * for almost a heartbeat, so the server's monitor never sees that its connection waits for a request. */
static void ask_without_pause(uint64_t incarnation) {
    world *w = start_world(NULL);
    strata_error err = {0};
    strata_rpc_client *client = must_connect("worker:2", incarnation, strata_rpc_server_address(w->server));
    for (int i = 0; i < 8; i++) check(!call(client, NAP, SECONDS, &err), "one request after the other", err.message);
    pthread_mutex_lock(&w->lock);
    check(!w->n_lost, "one request after the other", w->why);
    pthread_mutex_unlock(&w->lock);
    strata_rpc_client_destroy(client);
    stop_world(w);
}

/* A task is started again. The numbers of incarnations have no order, so the later one may have any number. */
static void replace(uint64_t first, uint64_t second) {
    world *w = start_world(NULL);
    const char *address = strata_rpc_server_address(w->server);
    strata_error err = {0};
    strata_rpc_request *request;
    strata_rpc_client *old = must_connect("worker:3", first, address), *other = NULL;
    const strata_rpc_ask block = {.method = BLOCK, .what = "a wait"};
    check(!strata_rpc_client_start(old, &block, NULL, SECONDS, &request, &err), "a request to block", err.message);
    check(wait_until(w, &w->n_blocked, 1), "a request to block", "it did not come");
    strata_rpc_client *fresh = must_connect("worker:3", second, address); /* wakes the handler of the old incarnation */
    check(!call(fresh, PUT, SECONDS, &err), "the new incarnation", err.message);
    check(strata_rpc_request_wait(request, &err) == STRATA_INVALID && strstr(err.message, "started again"),
          "the old incarnation", err.message);
    check(call(old, PUT, SECONDS, &err) == STRATA_INVALID, "the old incarnation", err.message);
    check(connect_as("worker:3", first, address, 1, &other, &err) == STRATA_INVALID, "the old incarnation again", err.message);
    check(n_logged(w) == 1, "the new incarnation", "a request of the old one was executed");
    const strata_rpc_client_options wrong = {.task = "worker:9", .server = "ps:1", .address = address, .cluster = &security};
    check(strata_rpc_client_create(&wrong, &other, &err) == STRATA_INVALID && strstr(err.message, "ps:0 listens there"),
          "another server", err.message);
    strata_rpc_client_destroy(old);
    strata_rpc_client_destroy(fresh);
    stop_world(w);
}

/* A server knows a limited number of tasks at a time. Tasks that have left make room for new ones. */
static void know_some_tasks(void) {
    most_peers = 3;
    world *w = start_world(NULL);
    most_peers = 0;
    const char *address = strata_rpc_server_address(w->server);
    strata_error err = {0};
    strata_rpc_client *first = must_connect("worker:0", 1, address), *clients[2], *more = NULL;
    for (int i = 1; i <= 10; i++) {
        char task[32];
        snprintf(task, sizeof task, "worker:%d", i);
        strata_rpc_client *next = must_connect(task, 1, address);
        check(!call(next, PUT, SECONDS, &err), "a new task", err.message);
        strata_rpc_client_destroy(next);
        check(wait_until(w, &w->n_left, i), "a task that leaves", "the server did not notice it");
    }
    check(!call(first, PUT, SECONDS, &err) && n_logged(w) == 11, "the task that stayed", err.message);
    for (int i = 0; i < 2; i++) clients[i] = must_connect(i ? "worker:12" : "worker:11", 1, address);
    check(
        connect_as("worker:13", 1, address, 1, &more, &err) == STRATA_UNAVAILABLE && strstr(err.message, "as many as it takes"),
        "one task too many", err.message);
    for (int i = 0; i < 2; i++) strata_rpc_client_destroy(clients[i]);
    strata_rpc_client_destroy(first);
    stop_world(w);
}

/* ---- time ---- */

static void take_time(void) {
    world *w = start_world(NULL);
    strata_error err = {0};
    strata_rpc_client *client = must_connect("worker:0", 1, strata_rpc_server_address(w->server));
    const double began = now();
    check(call(client, BLOCK, 0.3, &err) == STRATA_TIMEOUT && strstr(err.message, "a try") && strstr(err.message, "0.3 s"),
          "a reply that does not come", err.message);
    check(now() - began > 0.25, "a reply that does not come", "it took another time");
    usleep(3000000); /* longer than 5 heartbeats: a handler that blocks must not make the server treat the client as lost */
    check(w->n_lost == 0 && strata_rpc_client_connected(client), "a handler that blocks", w->why);
    pthread_mutex_lock(&w->lock);
    w->open_gate = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    check(!call(client, PUT, SECONDS, &err), "after a handler that blocked", err.message);
    strata_rpc_client_destroy(client);
    stop_world(w);
}

/* ---- connections that do not belong to the job ---- */

static void meet_strangers(void) {
    enum { STRANGERS = 150 };
    world *w = start_world(NULL);
    const char *address = strata_rpc_server_address(w->server);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port_of(address))};
    strata_error err = {0};
    int fds[STRANGERS];
    unsigned seed = 7;
    for (int i = 0; i < STRANGERS; i++) {
        char junk[100];
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fds[i], (struct sockaddr *)&to, sizeof to)) continue;
        for (size_t k = 0; k < sizeof junk; k++) junk[k] = (char)rand_r(&seed);
        if (i % 2 && send(fds[i], junk, sizeof junk, MSG_NOSIGNAL) < 0) continue; /* the other half sends nothing */
    }
    strata_rpc_client *client = must_connect("worker:0", 1, address), *thief = NULL;
    check(!call(client, PUT, SECONDS, &err), "among strangers", err.message);
    security.secret = "another secret";
    security.secret_bytes = 14;
    const double began = now();
    check(connect_as("worker:1", 1, address, 1, &thief, &err) == STRATA_UNAVAILABLE && strstr(err.message, "secret"),
          "another secret", err.message);
    check(now() - began < TEST_PATIENCE, "another secret", "it took long"); /* it may try for twice as long */
    security.secret = secret;
    security.secret_bytes = sizeof secret;
    check(strstr(strata_rpc_server_refused(w->server).text, "127.0.0.1: ") != NULL, "another secret",
          strata_rpc_server_refused(w->server).text);
    check(!call(client, PUT, SECONDS, &err) && w->n_lost == 0, "after strangers", err.message);
    for (int i = 0; i < STRANGERS; i++) close(fds[i]);
    strata_rpc_client_destroy(client);
    stop_world(w);
}

static void refuse_options(void) {
    strata_rpc_server *server = NULL;
    strata_rpc_client *client = NULL;
    strata_error err = {0};
    const strata_communicator_options open = {0};
    strata_rpc_server_options s = {.task = "ps:0", .address = "0.0.0.0:0", .cluster = &open, .handler = handle};
    check(strata_rpc_server_create(&s, &server, &err) == STRATA_INVALID && strstr(err.message, "secret"), "without a secret",
          err.message);
    s.address = "nonsense";
    check(strata_rpc_server_create(&s, &server, &err) == STRATA_INVALID, "a wrong address", err.message);
    s.task = "";
    check(strata_rpc_server_create(&s, &server, &err) == STRATA_INVALID, "no name", err.message);
    strata_rpc_client_options c = {.task = "a b", .server = "ps:0", .address = "127.0.0.1:1"};
    check(strata_rpc_client_create(&c, &client, &err) == STRATA_INVALID, "a name with a space", err.message);
    const strata_communicator_options brief = {.connect_seconds = 0.3};
    c.task = "worker:0";
    c.cluster = &brief;
    check(strata_rpc_client_create(&c, &client, &err) == STRATA_TIMEOUT && strstr(err.message, "ps:0"), "nobody there",
          err.message);
}

/* ---- processes that are stopped or killed; they are forked while this program has no other thread ---- */

/* What the client does: nothing, so that the server's thread sleeps; it calls a handler that blocks; or it calls so often
 * that the server's thread spins between two requests. */
typedef enum client_does { IDLE, BLOCKS, BUSY } client_does;

/* Runs a client in another process. */
static void be_client(const char *address, client_does does, uint64_t incarnation) {
    strata_rpc_client *client = must_connect("worker:0", incarnation, address);
    strata_error err = {0};
    if (does == BLOCKS && call(client, BLOCK, SECONDS, &err)) _exit(1);
    while (does == BUSY)
        if (call(client, PUT, SECONDS, &err)) _exit(1);
    for (;;) pause();
}

static void lose_client(int signal_number, client_does does, uint64_t incarnation, double least, const char *expected) {
    char address[32], text[96];
    snprintf(address, sizeof address, "127.0.0.1:%u", find_port());
    const pid_t child = fork();
    if (!child) be_client(address, does, incarnation);
    world *w = start_world(address);
    check(wait_until(w, &w->n_connected, 1), "a client that is lost", "it did not come");
    if (does == BLOCKS) check(wait_until(w, &w->n_blocked, 1), "a client that is lost", "it did not call");
    if (does == BUSY) check(wait_until(w, &w->n_log, 500), "a client that is lost", "it did not call");
    const double began = now();
    kill(child, signal_number);
    check(wait_until(w, &w->n_lost, 1), "a client that is lost", "it was not noticed");
    snprintf(text, sizeof text, "after %.2f s: %.60s", w->lost_at - began, w->why);
    check(w->lost_at - began >= least && strstr(w->why, expected), "a client that is lost", text);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    stop_world(w);
}

/* Forks a process that kills another one after so many milliseconds. */
static pid_t kill_later(pid_t victim, int ms) {
    const pid_t killer = fork();
    if (killer) return killer;
    usleep((unsigned)ms * 1000);
    kill(victim, SIGKILL);
    _exit(0);
}

/* Starts a server in a process of its own, and a client whose first call has succeeded. */
static pid_t serve_in_process(uint64_t incarnation, strata_rpc_client **out_client) {
    char address[32];
    strata_error err = {0};
    snprintf(address, sizeof address, "127.0.0.1:%u", find_port());
    const pid_t child = fork();
    if (!child) {
        start_world(address);
        for (;;) pause();
    }
    if (connect_as("worker:0", incarnation, address, 2, out_client, &err)) exit(1);
    check(!call(*out_client, PUT, SECONDS, &err), "the first call of a server in another process", err.message);
    return child;
}

/* Kills a server while a client sleeps until it gets a reply, or while it makes calls all the time. */
static void kill_server(uint64_t incarnation, bool busy) {
    strata_error err = {0};
    strata_rpc_client *client = NULL;
    const pid_t child = serve_in_process(incarnation, &client);
    const double began = now();
    const pid_t killer = kill_later(child, 300);
    strata_status status = call(client, busy ? PUT : BLOCK, SECONDS, &err);
    while (busy && !status && now() - began < TEST_PATIENCE) status = call(client, PUT, SECONDS, &err);
    check(status == STRATA_PEER_LOST, "a server that is killed", err.message);
    check(now() - began > 2.2, "a server that is killed", "it took another time");
    strata_rpc_client_destroy(client);
    waitpid(killer, NULL, 0);
    waitpid(child, NULL, 0);
}

static void stop_server(uint64_t incarnation) {
    strata_error err = {0};
    strata_rpc_client *client = NULL;
    const pid_t child = serve_in_process(incarnation, &client);
    kill(child, SIGSTOP);
    waitpid(child, NULL, WUNTRACED); /* waits until it has stopped */
    check(call(client, PUT, SECONDS, &err) == STRATA_PEER_LOST && strstr(err.message, "ps:0 at"), "a stopped server",
          err.message);
    kill(child, SIGCONT);
    check(!call(client, PUT, SECONDS, &err), "a server that goes on", err.message);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    check(call(client, PUT, SECONDS, &err) == STRATA_PEER_LOST, "a killed server", err.message);
    strata_rpc_client_destroy(client);
}

int main(void) {
    static const uint64_t ways[] = {1, BY_SOCKET};
    for (int i = 0; i < 2; i++) {
        security.heartbeat_seconds = TEST_CALM_HEARTBEAT;
        for (client_does does = IDLE; does <= BUSY; does++) lose_client(SIGKILL, does, ways[i], 0, "closed");
        kill_server(ways[i], false);
        kill_server(ways[i], true);
        security.heartbeat_seconds = BRIEF;
        /* A busy client may stop in the middle of a message. The time until it is lost then counts from its last bytes. */
        for (client_does does = IDLE; does <= BUSY; does++) lose_client(SIGSTOP, does, ways[i], 2 * BRIEF, "no sign of life");
        stop_server(ways[i]);
    }
    for (unsigned seed = 1; seed <= 4; seed++) weather_faults(seed);
    for (int i = 0; i < 2; i++) cut_a_wait(ways[i]);
    follow_a_client_that_was_cut_off();
    for (int i = 0; i < 2; i++) ask_without_pause(ways[i]);
    take_time();
    security.heartbeat_seconds = TEST_CALM_HEARTBEAT;
    use_all(false, 1);
    use_all(false, BY_SOCKET);
    use_all(true, 1);
    for (int i = 0; i < 2; i++) leave_often(ways[i]);
    come_back();
    silent_connections();
    replace(1, 2);
    replace(2, 1);
    know_some_tasks();
    meet_strangers();
    refuse_options();
    if (!failures) puts("remote calls come through");
    return failures != 0;
}
