#include <stdio.h>

#include "engine.h"
static int compile(program *p, char m[MESSAGE_BYTES]) {
    (void)p;
    snprintf(m, MESSAGE_BYTES, "no");
    return 1;
}
static int run(program *p, const void *const *a, void *const *r, char m[MESSAGE_BYTES]) {
    (void)p;
    (void)a;
    (void)r;
    (void)m;
    return 1;
}
static void destroy(program *p) {
    (void)p;
}
const engine engine_interpreter = {"interpreter", compile, run, destroy};
