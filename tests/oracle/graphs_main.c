/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws random graphs (tests/compile/random_graph.h) and makes those that fail smaller. README.md describes the method.
 *     --draws N --seed S    how many graphs, and the seed (default 300, and the date as 20261128)
 *     --only K              repeats draw K
 *     --devices A,B         where they run; one draw in thirty runs on one of the others than the first (default
 *                           host,opencl:0,vulkan:0,host-plugin:0,pjrt:0). Graphs on others than the host are small, since
 *                           their kernels are compiled. One with an op that a device does not have is left out
 *     --jobs J              how many draws run at a time (default 1)
 * Draws run in child processes, so that a crash and a draw that hangs are found, too. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "strata/device.h"
#include "tests/compile/random_graph_check.h"

enum { MOST_DEVICES = 8, SECONDS = 300, ON_OTHERS = 30, NODES_ON_OTHERS = 18, DUMP_BYTES = 1 << 16 };

typedef struct options {
    uint64_t draws, seed;
    int64_t only;
    int jobs, n_devices;
    char *devices[MOST_DEVICES];
} options;

/* A graph, and what a child process reports of it. */
typedef struct draw {
    uint64_t number, seed;
    scene graph;
    int device;
    bool failed, unavailable;
    char text[1024], dump[DUMP_BYTES];
} draw;

/* Memory that a process shares with its children. */
static void *shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) perror("mmap"), exit(2);
    return memory;
}

/* Which graph draw k is, and where it runs. */
static void choose(const options *o, uint64_t k, draw *d) {
    uint64_t state = o->seed * 1000003 + k;
    const uint64_t kind = strata_test_next(&state) % 8;
    d->number = k;
    d->seed = strata_test_next(&state);
    d->device = o->n_devices > 1 && k % ON_OTHERS == 0 ? 1 + (int)(k / ON_OTHERS % (uint64_t)(o->n_devices - 1)) : 0;
    d->graph = (scene){.differentiable = kind < 2,
                       .divided = kind == 2 || kind == 0,
                       .wide = kind > 2,
                       .most_nodes = strcmp(o->devices[d->device], "host") ? NODES_ON_OTHERS : 0};
}

/* Checks the graph of a draw on an open device. `again`: the graph whose nodes it repeats, or NULL. The graph is in shared
 * memory, so that the parent knows the nodes of one that crashes. */
static void check(draw *d, const scene *again, strata_device *device) {
    scene *s = &d->graph;
    *s = (scene){
        .differentiable = s->differentiable, .divided = s->divided, .wide = s->wide, .most_nodes = s->most_nodes, .of = again};
    alarm(SECONDS);
    const strata_test_result result = random_graph_check(s, device, d->seed, d->dump, sizeof d->dump);
    alarm(0);
    /* A device without an op that the host has says so, which is no difference. */
    d->failed = !result.ok && !(strstr(result.text, "cannot run") && strcmp(strata_device_get_info(device)->id, "host") != 0);
    snprintf(d->text, sizeof d->text, "%s", result.text);
}

static strata_device *open_device(const options *o, draw *d) {
    strata_device *device = NULL;
    strata_error err = {0};
    if (!strata_device_open(o->devices[d->device], NULL, &device, &err)) return device;
    d->unavailable = true;
    snprintf(d->text, sizeof d->text, "%.900s", err.message);
    return NULL;
}

/* Waits for a child. Writes how it died to the draw. */
static void join(pid_t child, draw *d) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) return;
    d->failed = true;
    if (WTERMSIG(status) == SIGALRM)
        snprintf(d->text, sizeof d->text, "no end within %d s", SECONDS);
    else
        snprintf(d->text, sizeof d->text, "the process ended: signal %d", WTERMSIG(status));
}

/* Whether the graph with these nodes left out, in a process of its own, still fails in the way of `text`: with the same words
 * up to the first comma or colon. */
static bool fails(const options *o, draw *d, const scene *plan, const char *text) {
    d->failed = false;
    *d->text = *d->dump = 0;
    const pid_t child = fork();
    if (!child) {
        strata_device *device = open_device(o, d);
        if (device) check(d, plan, device);
        _exit(0);
    }
    join(child, d);
    return d->failed && !strncmp(d->text, text, strcspn(text, ",:") + 1);
}

/* Leaves nodes out, and makes outputs no outputs, as long as the graph fails. */
static void make_smaller(const options *o, draw *d) {
    static scene plan;
    static draw best;
    plan = d->graph;
    plan.of = NULL;
    best = *d;
    if (!fails(o, d, &plan, best.text)) {
        snprintf(best.text + strlen(best.text), sizeof best.text - strlen(best.text), " (not when it is repeated)");
        *d = best;
        return;
    }
    for (bool went_on = true; went_on;) {
        went_on = false;
        for (int what = 0; what < 2; what++)
            for (int i = LEAVES; i < plan.n; i++) {
                bool *flag = what ? &plan.off[i] : &plan.is_output[i];
                if (*flag == what) continue;
                *flag = what;
                if (fails(o, d, &plan, best.text))
                    best = *d, went_on = true;
                else
                    *flag = !what;
            }
    }
    *d = best;
}

static void report(const options *o, draw *d, const char *program) {
    const bool hung = strstr(d->text, "no end") != NULL;
    printf("graphs: draw %llu of seed %llu differs on %s\n  %s\n", (unsigned long long)d->number, (unsigned long long)o->seed,
           o->devices[d->device], d->text);
    if (!hung && d->graph.n) {
        make_smaller(o, d);
        printf("  made smaller: %s\n%s", d->text, d->dump);
    }
    printf("    repeat it: %s --seed %llu --only %llu\n", program, (unsigned long long)o->seed, (unsigned long long)d->number);
    fflush(stdout);
}

/* Runs the draws from `first` on in steps of o->jobs until one fails. */
static void run_draws(const options *o, uint64_t first, draw *d, uint64_t *done, char (*skipped)[1024]) {
    strata_device *open[MOST_DEVICES] = {NULL};
    const uint64_t end = o->only >= 0 ? (uint64_t)o->only + 1 : o->draws;
    for (uint64_t k = first; k < end; k += (uint64_t)o->jobs) {
        choose(o, k, d);
        *done = k;
        if (!open[d->device] && !*skipped[d->device]) open[d->device] = open_device(o, d);
        if (!open[d->device]) {
            if (!*skipped[d->device]) memcpy(skipped[d->device], d->text, sizeof d->text);
            continue;
        }
        check(d, NULL, open[d->device]);
        if (d->failed) return;
    }
    *done = end;
    for (int i = 0; i < o->n_devices; i++)
        if (open[i]) strata_device_close(open[i]);
}

/* The draws of one job. Returns how many differ. */
static int job(const options *o, int index, const char *program) {
    draw *d = shared(sizeof *d);
    uint64_t *done = shared(sizeof *done);
    char(*skipped)[1024] = shared(MOST_DEVICES * sizeof *skipped);
    const uint64_t end = o->only >= 0 ? (uint64_t)o->only + 1 : o->draws;
    int n_failed = 0;
    for (uint64_t first = o->only >= 0 ? (uint64_t)o->only : (uint64_t)index; first < end;) {
        const pid_t child = fork();
        if (!child) {
            run_draws(o, first, d, done, skipped);
            _exit(0);
        }
        join(child, d);
        if (!d->failed) break;
        n_failed++;
        report(o, d, program);
        d->failed = false;
        first = *done + (uint64_t)o->jobs;
    }
    for (int i = 0; i < o->n_devices && index == 0; i++)
        if (*skipped[i]) printf("graphs: skipped on %s: %s\n", o->devices[i], skipped[i]);
    return n_failed;
}

static uint64_t today(void) {
    const time_t now = time(NULL);
    const struct tm *t = localtime(&now);
    return (uint64_t)(t->tm_year + 1900) * 10000 + (uint64_t)(t->tm_mon + 1) * 100 + (uint64_t)t->tm_mday;
}

static void split_devices(char *list, options *o) {
    o->n_devices = 0;
    for (char *at = strtok(list, ","); at && o->n_devices < MOST_DEVICES; at = strtok(NULL, ","))
        o->devices[o->n_devices++] = at;
}

int main(int argc, char **argv) {
    static char usual[] = "host,opencl:0,vulkan:0,host-plugin:0,pjrt:0";
    options o = {.draws = 300, .seed = today(), .only = -1, .jobs = 1};
    const time_t start = time(NULL);
    int n_failed = 0;
    split_devices(usual, &o);
    for (int i = 1; i + 1 < argc; i += 2) {
        const long long value = atoll(argv[i + 1]);
        if (!strcmp(argv[i], "--draws"))
            o.draws = (uint64_t)value;
        else if (!strcmp(argv[i], "--seed"))
            o.seed = (uint64_t)value;
        else if (!strcmp(argv[i], "--only"))
            o.only = value;
        else if (!strcmp(argv[i], "--jobs"))
            o.jobs = value < 1 ? 1 : (int)value;
        else if (!strcmp(argv[i], "--devices"))
            split_devices(argv[i + 1], &o);
        else
            return fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]), 2;
    }
    if (o.only >= 0) o.jobs = 1;
    int *counts = shared(sizeof *counts * (size_t)o.jobs);
    for (int i = 0; i < o.jobs; i++)
        if (!fork()) {
            counts[i] = job(&o, i, argv[0]);
            fflush(stdout);
            _exit(0);
        }
    while (wait(NULL) > 0) {
    }
    for (int i = 0; i < o.jobs; i++) n_failed += counts[i];
    printf("graphs: %llu draws of seed %llu, %d differ; %.0f s\n", o.only >= 0 ? 1ULL : (unsigned long long)o.draws,
           (unsigned long long)o.seed, n_failed, difftime(time(NULL), start));
    return n_failed > 0;
}
