/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine jaxlib. It starts one child process, run_jaxlib.py, which compiles and runs programs. Requests and answers are
 * sent through two pipes as numbers of 8 bytes and arrays:
 *     'C', bytes of the text, the text, parameters, then each one's type, rank and dims   ->  0 or a message
 *     'R', number of the program, then each argument's elements, and bytes of the results  ->  0 and the results, or a message
 * STRATA_TEST_JAX_PYTHON is the path of a Python that has jaxlib. The script is
 * STRATA_TEST_SOURCE_DIR/tests/pjrt/run_jaxlib.py. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

static struct {
    int to, from;
    int64_t n_programs;
    int started;
} child;

static int start(char message[MESSAGE_BYTES]) {
    int to[2], from[2];
    const char *python = getenv("STRATA_TEST_JAX_PYTHON");
    if (child.started) return 0;
    snprintf(message, MESSAGE_BYTES, "jaxlib's process cannot be started (STRATA_TEST_JAX_PYTHON)");
    signal(SIGPIPE, SIG_IGN); /* when the child has died, write must return an error */
    if (!python || pipe(to) || pipe(from)) return 1;
    const pid_t pid = fork();
    if (pid < 0) return 1;
    if (!pid) {
        dup2(to[0], 0);
        dup2(from[1], 3);
        dup2(2, 1);
        for (int fd = 4; fd < 64; fd++) close(fd);
        execl(python, python, STRATA_TEST_SOURCE_DIR "/tests/pjrt/run_jaxlib.py", (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    child.to = to[1];
    child.from = from[0];
    child.started = 1;
    return 0;
}

static int move(int fd, void *data, size_t bytes, int out) {
    for (char *at = data; bytes;) {
        const ssize_t n = out ? write(fd, at, bytes) : read(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 1;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int put(const void *data, size_t bytes) {
    return move(child.to, (void *)data, bytes, 1);
}

static int put_number(int64_t number) {
    return put(&number, sizeof number);
}

/* Reads an answer: 0, or the length of a message and the message. */
static int answer(char message[MESSAGE_BYTES]) {
    int64_t n = 0;
    snprintf(message, MESSAGE_BYTES, "jaxlib's process has ended");
    if (move(child.from, &n, sizeof n, 0)) return 1;
    if (!n) return 0;
    char *text = calloc(1, (size_t)n + 1);
    if (text && !move(child.from, text, (size_t)n, 0)) snprintf(message, MESSAGE_BYTES, "jaxlib: %s", text);
    free(text);
    return 1;
}

static int compile(program *p, char message[MESSAGE_BYTES]) {
    const size_t bytes = strlen(p->text);
    if (start(message)) return 1;
    int bad = put_number('C') | put_number((int64_t)bytes) | put(p->text, bytes) | put_number(p->n_parameters);
    for (int i = 0; i < p->n_parameters; i++) {
        const tensor_type *type = &p->parameters[i];
        bad |= put_number(type->type) | put_number(type->rank) | put(type->dims, (size_t)type->rank * sizeof *type->dims);
    }
    if (bad || answer(message)) return 1;
    int64_t *number = malloc(sizeof *number);
    if (!number) abort();
    *number = child.n_programs++;
    p->compiled = number;
    return 0;
}

static size_t bytes_of(const tensor_type *type) {
    return (size_t)n_elements(type) * element_bytes(type->type);
}

static int run(program *p, const void *const *arguments, void *const *results, char message[MESSAGE_BYTES]) {
    size_t bytes = 0;
    int bad = put_number('R') | put_number(*(int64_t *)p->compiled);
    for (int i = 0; i < p->n_parameters; i++) bad |= put(arguments[i], bytes_of(&p->parameters[i]));
    for (int i = 0; i < p->n_results; i++) bytes += bytes_of(&p->results[i]);
    bad |= put_number((int64_t)bytes);
    if (bad || answer(message)) return 1;
    for (int i = 0; i < p->n_results; i++) bad |= move(child.from, results[i], bytes_of(&p->results[i]), 0);
    return bad;
}

static void destroy(program *p) {
    free(p->compiled);
}

const engine engine_jaxlib = {"jaxlib", compile, run, destroy};
