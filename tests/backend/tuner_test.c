/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the tuner with a simulated device. Each candidate kernel takes the time and gives the result that the test chooses.
 * The clock is simulated, too: only a run of a candidate advances it. So the times do not depend on the machine. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/kernel/lowering.h"
#include "strata/ops.h"
#include "tests/support/folder.h"

TestSuite(tuner, .init = test_folder_make, .fini = test_folder_remove);

enum { N = 3, ELEMENTS = 1 << 15 };

/* ---- the clock ---- */
/* The seconds of the simulated clock; 0: the clock is the real one, as for the other tests of this program. */
static double play_seconds;

double __real_strata_trace_now(void);
double __wrap_strata_trace_now(void);
double __wrap_strata_trace_now(void) {
    return play_seconds > 0 ? play_seconds : __real_strata_trace_now();
}

/* ---- the simulated device ---- */
struct strata_buffer {
    float bytes[ELEMENTS];
};
struct strata_program {
    struct play_device *device;
    strata_buffer *output;
    int candidate;
};
typedef struct play_device {
    strata_device base;
    strata_tuner *tuner;
    const strata_tensor *node;
    const strata_candidate *candidates;
    int us[N];       /* the duration of one run of each candidate in us */
    float result[N]; /* the value that each candidate writes to every element; NaN: compiling it fails */
    int n_compiled, n_buffers;
} play_device;

static const strata_family family = {.name = "play/add", .op = "add"};

static strata_status play_buffer_create(strata_device *device, int64_t bytes, strata_buffer **out, strata_error *err) {
    (void)bytes;
    (void)err;
    ((play_device *)device)->n_buffers++;
    *out = calloc(1, sizeof **out);
    return STRATA_OK;
}
static void play_buffer_destroy(strata_device *device, strata_buffer *buffer) {
    ((play_device *)device)->n_buffers--;
    free(buffer);
}
static strata_status play_upload(strata_device *device, strata_buffer *buffer, int64_t offset, const void *source,
                                 int64_t bytes, strata_error *err) {
    (void)device;
    (void)err;
    memcpy((char *)buffer->bytes + offset, source, (size_t)bytes);
    return STRATA_OK;
}
static strata_status play_download(strata_device *device, strata_buffer *buffer, int64_t offset, void *target, int64_t bytes,
                                   strata_error *err) {
    (void)device;
    (void)err;
    memcpy(target, (char *)buffer->bytes + offset, (size_t)bytes);
    return STRATA_OK;
}
/* Like the compile function of a backend it asks the tuner again while it lowers the piece. */
static strata_status play_compile(strata_device *base, const strata_piece *piece, strata_program **out, strata_error *err) {
    play_device *device = (play_device *)base;
    device->n_compiled++;
    int candidate = strata_tuner_choose(device->tuner, &family, piece->nodes[0], device->candidates, N);
    if (device->result[candidate] != device->result[candidate]) return strata_fail(err, STRATA_UNSUPPORTED, "it crashed");
    *out = calloc(1, sizeof **out);
    (*out)->device = device;
    (*out)->candidate = candidate;
    (*out)->output = piece->arenas[piece->places[piece->nodes[0]->id].arena].buffer;
    return STRATA_OK;
}
static void play_program_destroy(strata_program *program) {
    free(program);
}
static strata_status play_run(strata_program *program, int slot, uint64_t *out_ticket, strata_error *err) {
    (void)slot;
    (void)err;
    play_seconds += 1e-6 * program->device->us[program->candidate];
    for (int i = 0; i < ELEMENTS; i++) program->output->bytes[i] = program->device->result[program->candidate];
    *out_ticket = 1;
    return STRATA_OK;
}
static strata_status play_wait(strata_device *device, uint64_t ticket, strata_error *err) {
    (void)device;
    (void)ticket;
    (void)err;
    return STRATA_OK;
}
static const strata_device_api play_api = {.buffer_create = play_buffer_create,
                                           .buffer_destroy = play_buffer_destroy,
                                           .upload = play_upload,
                                           .download = play_download,
                                           .compile = play_compile,
                                           .program_destroy = play_program_destroy,
                                           .run = play_run,
                                           .wait = play_wait};

/* ---- one choice ---- */
static const strata_candidate candidates[N] = {{"first", true, {0}}, {"second", true, {0}}, {"third", false, {0}}};

typedef struct play {
    play_device device;
    const char *driver;
    bool no_tune;
    /* The node has 8 elements instead of ELEMENTS. */
    bool is_small;
} play;

/* Opens a tuner, lets it choose a candidate, and closes it. */
static int choose(play *play) {
    play_device *device = &play->device;
    device->base.api = &play_api;
    device->candidates = candidates;
    device->n_compiled = 0;
    play_seconds = 1;
    snprintf(device->base.info.backend, sizeof device->base.info.backend, "play");
    snprintf(device->base.info.name, sizeof device->base.info.name, "a device");
    snprintf(device->base.info.driver, sizeof device->base.info.driver, "%s", play->driver ? play->driver : "driver 1");
    strata_device_options opts = {.cache_dir = test_path("tune"), .no_tune = play->no_tune};
    strata_cache cache;
    strata_cache_open(&cache, &opts, &device->base.info);

    strata_graph *graph;
    cr_assert_eq(strata_graph_create(&graph, NULL), STRATA_OK);
    strata_tensor *a = strata_input(graph, "a", STRATA_DTYPE_F32, STRATA_SHAPE(play->is_small ? 8 : ELEMENTS));
    strata_tensor *node = strata_add(a, a);
    device->tuner = strata_tuner_create(&device->base, &(strata_kernel_limits){.compute_units = 1}, &cache, &opts);
    int choice = strata_tuner_choose(device->tuner, &family, node, candidates, N);
    strata_tuner_destroy(device->tuner);
    strata_graph_destroy(graph);
    play_seconds = 0;
    cr_assert_eq(device->n_buffers, 0, "every buffer is given back");
    return choice;
}

Test(tuner, the_fastest_that_agrees_wins) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 7, 7}}};
    cr_assert_eq(choose(&play), 1);
}

Test(tuner, a_node_that_takes_no_time_is_not_compiled_to_find_that_out) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 7, 7}}, .is_small = true};
    cr_assert_eq(choose(&play), 0);
    cr_assert_eq(play.device.n_compiled, 0);
}

Test(tuner, on_a_cpu_the_first_stays_unless_another_is_faster_by_more_than_noise) {
    play play = {.device = {.us = {1000, 960, 951}, .result = {7, 7, 7}}};
    cr_assert_eq(choose(&play), 0);
    play.driver = "driver 2";
    play.device.us[2] = 940;
    cr_assert_eq(choose(&play), 2);
}

Test(tuner, an_exact_candidate_must_agree_in_every_bit) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 7.000001f, 7}}};
    cr_assert_eq(choose(&play), 2);
}

Test(tuner, one_that_is_not_exact_may_differ_in_its_last_bits_only) {
    play play = {.device = {.us = {3000, 1500, 300}, .result = {7, 7, 7.00001f}}};
    cr_assert_eq(choose(&play), 2);
    play.driver = "driver 2";
    play.device.result[2] = 7.1f;
    cr_assert_eq(choose(&play), 1);
}

Test(tuner, one_that_does_not_compile_is_passed_over) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 0.0f / 0.0f, 7}}};
    cr_assert_eq(choose(&play), 2);
}

Test(tuner, candidates_beyond_the_time_budget_are_not_tried) {
    play play = {.device = {.us = {3000000, 1500000, 300}, .result = {7, 7, 7}}};
    cr_assert_eq(choose(&play), 1);
    cr_assert_eq(play.device.n_compiled, 2);
}

Test(tuner, the_winner_is_remembered) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 7, 7}}};
    choose(&play);
    cr_assert_eq(play.device.n_compiled, N);
    play.device.us[0] = 1;
    cr_assert_eq(choose(&play), 1);
    cr_assert_eq(play.device.n_compiled, 0);
}

Test(tuner, another_driver_is_tuned_anew) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 7, 7}}};
    choose(&play);
    play.driver = "driver 2";
    play.device.us[0] = 1;
    cr_assert_eq(choose(&play), 0);
    play.driver = "driver 1";
    cr_assert_eq(choose(&play), 1);
}

Test(tuner, no_tune_takes_the_first_and_keeps_no_file) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 7, 7}}, .no_tune = true};
    cr_assert_eq(choose(&play), 0);
    cr_assert_eq(play.device.n_compiled, 0);
}

Test(tuner, a_torn_file_is_as_good_as_none) {
    play play = {.device = {.us = {3000, 300, 1500}, .result = {7, 7, 7}}};
    choose(&play);
    char command[1024];
    snprintf(command, sizeof command, "for f in '%s'/*.tune; do printf 'play/add\\tfir' > \"$f\"; done", test_path("tune"));
    cr_assert_eq(system(command), 0);
    cr_assert_eq(choose(&play), 1);
    cr_assert_eq(play.device.n_compiled, N);
}
