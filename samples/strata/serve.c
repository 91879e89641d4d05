/* SPDX-License-Identifier: Apache-2.0
 *
 * strata serve: answers of a model over HTTP/1.1 (http.h).
 *
 *     POST /predict    {"inputs": [[...], ...]} (serve.h)      {"predictions": [{"index": 0, "class": "rose", ...}, ...]}
 *     GET /model       what the model takes and answers
 *     GET /health      200 while it serves
 *     GET /metrics     counts and times, for Prometheus (text format 0.0.4) */
#include "serve.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "answers.h"
#include "http.h"
#include "own.h"
#include "strata/json.h"

typedef struct serve_options {
    const char *host;
    int64_t port, batch, connections, most_waiting;
    double wait_ms, most_mib, idle_s;
    device_flags device;
    bool json;
} serve_options;

static const option_row rows[] = {
    {"port", "N", "the port to listen on; 0: any free port, which is printed (8080)", OPTION_INT, offsetof(serve_options, port),
     0, 65535},
    {"host", "ADDRESS", "the address to listen on; 0.0.0.0 or :: lets any host connect, without protection (127.0.0.1)",
     OPTION_TEXT, offsetof(serve_options, host), 0, 0},
    {"batch", "N", "the most examples, of several requests, that the model computes together (64)", OPTION_INT,
     offsetof(serve_options, batch), 1, 1 << 20},
    {"wait-ms", "MS",
     "how long a batch waits for other clients that are sending requests (2); a client that is alone does not wait",
     OPTION_NUMBER, offsetof(serve_options, wait_ms), 0, 60000},
    {"max-request", "MIB", "the largest size of a request (16)", OPTION_NUMBER, offsetof(serve_options, most_mib), 0.001, 4096},
    {"max-waiting", "N", "the most examples that may wait; further requests are answered with 503 (4096)", OPTION_INT,
     offsetof(serve_options, most_waiting), 1, 1 << 30},
    {"connections", "N", "the most connections at a time (256)", OPTION_INT, offsetof(serve_options, connections), 1, 65536},
    {"idle", "S", "close a connection that sends nothing for so many seconds (30)", OPTION_NUMBER,
     offsetof(serve_options, idle_s), 1, 86400},
    {"json", NULL, "print the address as a line of JSON", OPTION_FLAG, offsetof(serve_options, json), 0, 0},
    DEVICE_OPTION_ROWS(serve_options, device),
    {0}};

/* Upper limits of the buckets of request times, in seconds. */
static const double bucket_limits[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
enum { N_BUCKETS = sizeof bucket_limits / sizeof *bucket_limits };
/* The HTTP status codes of answers, each of which is counted. */
static const unsigned codes[] = {200, 400, 404, 405, 413, 414, 417, 431, 500, 501, 503, 505};
enum { N_CODES = sizeof codes / sizeof *codes };

typedef struct server {
    served_model served;
    /* The model's label, or the name of its file if it has none. */
    const char *name;
    batches *batches;
    size_t most_bytes;
    /* Only one thread at a time writes predictions as JSON. */
    pthread_mutex_t writing;
    atomic_ullong n_codes[N_CODES], in_bucket[N_BUCKETS + 1], microseconds;
} server;

static void count_request(server *s, unsigned code, double seconds) {
    for (int i = 0; i < N_CODES; i++) s->n_codes[i] += codes[i] == code;
    int bucket = 0;
    while (bucket < N_BUCKETS && seconds > bucket_limits[bucket]) bucket++;
    s->in_bucket[bucket]++;
    s->microseconds += (unsigned long long)(seconds * 1e6);
}

/* Makes an answer of the text, which this function takes. NULL: there was no memory for it. */
static void answer_text(http_answer *out, unsigned code, const char *type, char *text) {
    *out = (http_answer){.code = text ? code : 500, .type = type, .text = text};
}

/* Answers {"error": "..."}. */
static void answer_error(http_answer *out, unsigned code, const char *message) {
    strata_json_writer writer = {0};
    char *text = NULL;
    strata_json_begin_object(&writer);
    strata_json_key(&writer, "error");
    strata_json_write_string(&writer, message);
    strata_json_end_object(&writer);
    (void)!strata_json_take(&writer, &text, NULL, NULL);
    answer_text(out, code, "application/json", text);
}

/* ---- /predict ---- */

static unsigned code_of(strata_status status) {
    switch (status) {
        case STRATA_INVALID:
        case STRATA_DATA:
            return 400;
        case STRATA_UNAVAILABLE:
            return 503;
        default:
            return 500;
    }
}

/* Adds ,"warnings":["...", ...], with a text for each line, if there are any. */
static void add_warnings(strata_text *out, char *lines) {
    bool first = true;
    for (char *line; (line = strsep(&lines, "\n"));) {
        strata_json_writer writer = {0};
        char *string = NULL;
        if (!*line) continue;
        strata_json_write_string(&writer, line);
        if (!strata_json_take(&writer, &string, NULL, NULL))
            strata_text_add(out, "%s%s", first ? ",\"warnings\":[" : ",", string), first = false;
        free(string);
    }
    if (!first) strata_text_add(out, "]");
}

/* Writes {"predictions": [...]}, where each prediction is an object as strata predict --json writes it, and the warnings, lines
 * of text. */
static strata_status write_predictions(server *s, const strata_array *predictions, bool probabilities, char *warnings,
                                       char **out, strata_error *err) {
    const int64_t n = predictions->shape.dims[0];
    answers a = {.model = s->served.model,
                 .sample = s->served.sample,
                 .preprocessing = s->served.preprocessing,
                 .json = true,
                 .classes = predicts_classes(s->served.model),
                 .probabilities = probabilities,
                 .width = strata_shape_elements(predictions->shape) / n};
    pthread_mutex_lock(&s->writing);
    strata_text_add(&a.text, "{\"predictions\":[");
    for (int64_t i = 0; i < n; i++) {
        if (i) strata_text_add(&a.text, ",");
        add_answer(&a, (const float *)predictions->data + i * a.width, i);
        if (!a.text.failed) a.text.n_bytes--; /* removes the end of the line */
    }
    strata_text_add(&a.text, "]");
    pthread_mutex_unlock(&s->writing);
    add_warnings(&a.text, warnings);
    strata_text_add(&a.text, "}\n");
    return strata_text_take(&a.text, out, NULL, err);
}

/* Whether the query has "name", or "name=VALUE" with another value than 0. */
static bool asks_for(const char *query, const char *name) {
    const size_t n = strlen(name);
    for (; *query; query += strcspn(query, "&"), query += *query == '&') {
        const char *value = query + n;
        if (!strncmp(query, name, n) && (!*value || *value == '&')) return true;
        if (!strncmp(query, name, n) && *value == '=') return strcspn(value + 1, "&") != 1 || value[1] != '0';
    }
    return false;
}

static void predict(server *s, http_request *r, http_answer *out) {
    strata_array examples = {0}, predictions = {0};
    strata_error err = {0};
    strata_text warnings = {0};
    char *text = NULL, *lines = NULL;
    strata_status status = read_inputs(&s->served, r->body.bytes ? r->body.bytes : "", r->body.n_bytes,
                                       !strncasecmp(r->type, "image/", 6), &examples, &warnings, &err);
    if (!status) {
        r->user = NULL; /* the call that was announced */
        status = predict_in_batch(s->batches, &examples, &predictions, &err);
    }
    if (!status && warnings.n_bytes) status = strata_text_take(&warnings, &lines, NULL, &err);
    if (!status) status = write_predictions(s, &predictions, asks_for(r->query, "probabilities"), lines, &text, &err);
    strata_array_finish(&examples);
    strata_array_finish(&predictions);
    strata_text_finish(&warnings);
    free(lines);
    if (status)
        answer_error(out, code_of(status), err.message);
    else
        answer_text(out, 200, "application/json", text);
}

/* ---- /model and /metrics ---- */

static void write_shape(strata_json_writer *w, const char *key, strata_shape shape) {
    strata_json_key(w, key);
    strata_json_begin_array(w);
    for (int i = 0; i < shape.rank; i++) strata_json_write_int(w, shape.dims[i]);
    strata_json_end_array(w);
}

/* Writes for example "inputs": {"left": {"shape": [2], "dtype": "f32"}, ...}. */
static void write_ports(strata_json_writer *w, const char *key, const strata_model *model, int n,
                        strata_model_port (*port_of)(const strata_model *model, int index)) {
    strata_json_key(w, key);
    strata_json_begin_object(w);
    for (int i = 0; i < n; i++) {
        const strata_model_port port = port_of(model, i);
        strata_json_key(w, port.name);
        strata_json_begin_object(w);
        write_shape(w, "shape", port.shape);
        strata_json_key(w, "dtype");
        strata_json_write_string(w, strata_dtype_name(port.dtype));
        strata_json_end_object(w);
    }
    strata_json_end_object(w);
}

static char *describe(const server *s) {
    const served_model *m = &s->served;
    const bool table = m->preprocessing && strata_preprocessing_get_kind(m->preprocessing) == STRATA_PREPROCESSING_TABLE;
    strata_json_writer w = {0};
    char *text = NULL;
    strata_json_begin_object(&w);
    strata_json_key(&w, "model");
    strata_json_write_string(&w, s->name);
    strata_json_key(&w, "takes");
    strata_json_write_string(&w, table ? "rows" : m->tokenizer ? "texts" : "inputs");
    if (m->several && !m->preprocessing) {
        write_ports(&w, "inputs", m->model, strata_model_n_inputs(m->model), strata_model_input_port);
    } else {
        write_shape(&w, "input", m->element);
        strata_json_key(&w, "dtype");
        strata_json_write_string(&w, strata_dtype_name(m->dtype));
    }
    if (strata_model_n_outputs(m->model) > 1)
        write_ports(&w, "outputs", m->model, strata_model_n_outputs(m->model), strata_model_output_port);
    if (m->preprocessing && strata_preprocessing_n_classes(m->preprocessing)) {
        strata_json_key(&w, "classes");
        strata_json_begin_array(&w);
        for (int i = 0; i < strata_preprocessing_n_classes(m->preprocessing); i++)
            strata_json_write_string(&w, strata_preprocessing_class_name(m->preprocessing, i));
        strata_json_end_array(&w);
    }
    strata_json_end_object(&w);
    (void)!strata_json_take(&w, &text, NULL, NULL);
    return text;
}

static char *list_metrics(server *s) {
    strata_text t = {0};
    char *text = NULL;
    const batch_counts counts = count_batches(s->batches);
    unsigned long long n = 0;
    strata_text_add(
        &t, "# HELP strata_requests_total Requests by the code of their answer.\n# TYPE strata_requests_total counter\n");
    for (int i = 0; i < N_CODES; i++)
        strata_text_add(&t, "strata_requests_total{code=\"%u\"} %llu\n", codes[i], (unsigned long long)s->n_codes[i]);
    strata_text_add(&t,
                    "# HELP strata_request_seconds From the first byte of a request to its answer.\n"
                    "# TYPE strata_request_seconds histogram\n");
    for (int i = 0; i < N_BUCKETS; i++) {
        n += s->in_bucket[i];
        strata_text_add(&t, "strata_request_seconds_bucket{le=\"%g\"} %llu\n", bucket_limits[i], n);
    }
    n += s->in_bucket[N_BUCKETS];
    strata_text_add(&t,
                    "strata_request_seconds_bucket{le=\"+Inf\"} %llu\nstrata_request_seconds_sum %.6f\n"
                    "strata_request_seconds_count %llu\n",
                    n, (double)s->microseconds * 1e-6, n);
    strata_text_add(&t,
                    "# HELP strata_batches_total Runs of the model.\n# TYPE strata_batches_total counter\n"
                    "strata_batches_total %llu\n",
                    (unsigned long long)counts.batches);
    strata_text_add(&t,
                    "# HELP strata_examples_total Examples that were answered.\n# TYPE strata_examples_total counter\n"
                    "strata_examples_total %llu\n",
                    (unsigned long long)counts.examples);
    strata_text_add(&t,
                    "# HELP strata_waiting_examples Examples that wait for a run.\n# TYPE strata_waiting_examples gauge\n"
                    "strata_waiting_examples %lld\n",
                    (long long)counts.waiting);
    strata_text_add(&t,
                    "# HELP strata_announced_requests Requests for predictions of which not all has arrived.\n"
                    "# TYPE strata_announced_requests gauge\n"
                    "strata_announced_requests %lld\n",
                    (long long)counts.announced);
    (void)!strata_text_take(&t, &text, NULL, NULL);
    return text;
}

/* ---- requests ---- */

static bool is_predict(const http_request *r) {
    return !strcmp(r->path, "/predict");
}

static void choose_answer(server *s, http_request *r, http_answer *out) {
    char text[HTTP_LONGEST_TARGET];
    const bool get = !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD"), post = !strcmp(r->method, "POST");
    if (r->code == 413) {
        snprintf(text, sizeof text, "the request is larger than %zu bytes (--max-request)", s->most_bytes);
        answer_error(out, r->code, text);
    } else if (r->code) {
        answer_error(out, r->code, r->why);
    } else if (!is_predict(r) && strcmp(r->path, "/health") && strcmp(r->path, "/model") && strcmp(r->path, "/metrics")) {
        snprintf(text, sizeof text, "there is no %.60s; there are POST /predict, GET /model, /health and /metrics", r->path);
        answer_error(out, 404, text);
    } else if (is_predict(r) ? !post : !get) {
        snprintf(text, sizeof text, "%.10s takes %s, not %s", r->path, is_predict(r) ? "POST" : "GET", r->method);
        answer_error(out, 405, text);
    } else if (r->body.failed) {
        answer_error(out, 500, "no memory for the request");
    } else if (is_predict(r)) {
        predict(s, r, out);
    } else if (!strcmp(r->path, "/metrics")) {
        answer_text(out, 200, "text/plain; version=0.0.4; charset=utf-8", list_metrics(s));
    } else {
        answer_text(out, 200, "application/json", strcmp(r->path, "/model") ? strdup("{\"status\":\"ok\"}") : describe(s));
    }
}

/* The functions of the server of HTTP. A request for predictions is announced to the batches until r->user is NULL. */
static void on_head(void *user, http_request *r) {
    server *s = user;
    if (r->code || !is_predict(r) || strcmp(r->method, "POST") != 0) return;
    batches_announce(s->batches);
    r->user = s->batches;
}

static void on_request(void *user, http_request *r, http_answer *out) {
    server *s = user;
    choose_answer(s, r, out);
    count_request(s, out->code, now_seconds() - r->began);
}

static void on_end(void *user, http_request *r) {
    (void)user;
    if (r->user) batches_withdraw(r->user);
}

/* ---- listening ---- */

/* Serves until the process receives one of the signals. */
static int listen_and_serve(const serve_options *options, server *s, const sigset_t *signals) {
    const http_options opts = {.host = options->host,
                               .port = (int)options->port,
                               .connections = (int)options->connections,
                               .idle_seconds = options->idle_s,
                               .most_body_bytes = s->most_bytes};
    http_server *http = NULL;
    strata_error err = {0};
    const strata_status status = http_server_start(
        &opts, &(http_functions){.user = s, .on_head = on_head, .answer = on_request, .on_end = on_end}, &http, &err);
    if (status) return report(status == STRATA_INVALID ? FAILING_USAGE : FAILING_DATA, status, &err);
    const bool v6 = strchr(options->host, ':') != NULL;
    printf(
        options->json ? "{\"url\":\"http://%s%s%s:%d\"}\n" : "serving on http://%s%s%s:%d  (POST /predict; Ctrl-C ends it)\n",
        v6 ? "[" : "", options->host, v6 ? "]" : "", http_server_port(http));
    fflush(stdout);
    int received = 0;
    sigwait(signals, &received);
    http_server_stop(http, 5);
    const batch_counts counts = count_batches(s->batches);
    if (!options->json)
        printf("answered %llu examples in %llu batches\n", (unsigned long long)counts.examples,
               (unsigned long long)counts.batches);
    return EXIT_OK;
}

static int serve(const serve_options *options, server *s, strata_device *device, const sigset_t *signals) {
    strata_error err = {0};
    served_model *m = &s->served;
    m->element = strata_model_input_shape(m->model);
    m->dtype = strata_model_input_dtype(m->model);
    m->several = strata_model_n_inputs(m->model) > 1;
    if (m->several) {
        m->element = STRATA_SHAPE(0);
        m->dtype = STRATA_DTYPE_F32;
        for (int i = 0; i < strata_model_n_inputs(m->model); i++)
            m->element.dims[0] += strata_shape_elements(strata_model_input_port(m->model, i).shape);
    }
    m->sample = sample_of_model(m->model, &(data_options){0});
    if (strata_model_label(m->model)[0]) s->name = strata_model_label(m->model);
    s->most_bytes = (size_t)(options->most_mib * 1048576);
    strata_status status = strata_model_build(m->model, device, NULL, &err);
    if (!status) status = batches_create(m, options->batch, options->wait_ms * 1e-3, options->most_waiting, &s->batches, &err);
    if (status) return report(FAILING_RUN, status, &err);
    pthread_mutex_init(&s->writing, NULL);
    const int code = listen_and_serve(options, s, signals);
    batches_destroy(s->batches);
    pthread_mutex_destroy(&s->writing);
    return code;
}

static int run(const command *command, int argc, char **argv) {
    serve_options options = {.host = "127.0.0.1",
                             .port = 8080,
                             .batch = 64,
                             .wait_ms = 2,
                             .most_mib = 16,
                             .most_waiting = 4096,
                             .connections = 256,
                             .idle_s = 30};
    const char *arguments[1] = {NULL};
    int n_arguments = 0;
    int code = read_options(command, argc, argv, &options, arguments, &n_arguments);
    if (code) return code < 0 ? EXIT_OK : code;
    /* The signals are blocked before the first thread starts, also that of a driver, so that only sigwait receives them. */
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    strata_error err = {0};
    const char *slash = strrchr(arguments[0], '/');
    server s = {.name = slash ? slash + 1 : arguments[0]};
    strata_device *device = NULL;
    strata_status status = load_trained(arguments[0], &s.served.model, &err);
    if (!status) status = recall_preprocessing(s.served.model, &s.served.preprocessing, &err);
    if (!status && strata_model_tokenizer(s.served.model, &s.served.tokenizer, &err) == STRATA_UNAVAILABLE)
        s.served.tokenizer = NULL; /* the model was not trained on texts */
    code = status ? report(FAILING_DATA, status, &err) : open_device(&options.device, &device);
    if (!code) code = serve(&options, &s, device, &signals);
    strata_model_destroy(s.served.model);
    strata_device_close(device);
    strata_preprocessing_destroy(s.served.preprocessing);
    strata_tokenizer_destroy(s.served.tokenizer);
    return code;
}

const command command_serve = {
    .name = "serve",
    .arguments = "MODEL.strata",
    .summary = "answer requests for predictions over HTTP",
    .details =
        "POST /predict accepts {\"inputs\": [[...], ...]}, for a table {\"rows\": [{\"column\": 5.1}, ...]}, for texts\n"
        "{\"texts\": [\"...\"]}, or the bytes of a picture. The answer is {\"predictions\": [...]} "
        "as\n"
        "of predict --json, and \"warnings\" if there are some; with ?probabilities=1 it has the probabilities of all "
        "classes.\n"
        "GET /model describes the inputs; there are also /health and /metrics. There is no encryption and no password: put the "
        "server behind a proxy that has\n"
        "them, or let it listen on 127.0.0.1.\n",
    .options = rows,
    .least_arguments = 1,
    .most_arguments = 1,
    .files = "r",
    .run = run};
