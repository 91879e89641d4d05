/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files, which TensorBoard shows: numbers over steps, histograms, pictures, texts, hyper-parameters.
 *
 *     strata_events_create("runs/first", &events, &err);
 *     strata_events_scalar(events, "loss", step, loss, &err);             as often as you like
 *     strata_events_histogram(events, "dense/kernel", step, &weights, &err);
 *     strata_events_flush(events, &err);                                  all is in the file, or why not
 *     strata_events_destroy(events);
 *
 * and then `tensorboard --logdir runs`. Each run is a folder of its own; runs side by side are compared.
 *
 * The functions copy what they are given and return; a thread of the events writes. A file that cannot be written is reported
 * by the next call, and by each one after that; what is in the file already stays readable.
 *
 * Formats: TFRecord (tensorflow/core/lib/io/record_writer.h) around the message Event (tensorflow/core/util/event.proto), with
 * the summaries of tensorboard/plugins.
 *
 * Threads: any number at a time. Fails, all of them: UNAVAILABLE or OUT_OF_DISK for a file that cannot be written,
 * OUT_OF_MEMORY, INVALID for an empty tag or one that is not UTF-8. */
#ifndef STRATA_EVENTS_H
#define STRATA_EVENTS_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_events strata_events;

/* Makes the folder, with those above it, and a new file in it. An existing run's folder gets a further file: both are shown as
 * one run. Fails also: UNAVAILABLE for a folder that cannot be made or written. */
STRATA_API STRATA_MUST_USE strata_status strata_events_create(const char *folder, strata_events **out_events,
                                                              strata_error *err);
/* Writes what is left and closes the file. NULL is fine. */
STRATA_API void strata_events_destroy(strata_events *events);
/* Waits until all that was added before is in the file. */
STRATA_API STRATA_MUST_USE strata_status strata_events_flush(strata_events *events, strata_error *err);

/* A number at a step. A tag such as "train/loss" is shown in the group "train". */
STRATA_API STRATA_MUST_USE strata_status strata_events_scalar(strata_events *events, const char *tag, int64_t step,
                                                              double value, strata_error *err);
/* How many elements of an array of any dtype and shape lie in each of 30 intervals of equal width between the smallest and the
 * largest one. Elements that are not finite are left out. */
STRATA_API STRATA_MUST_USE strata_status strata_events_histogram(strata_events *events, const char *tag, int64_t step,
                                                                 const strata_array *values, strata_error *err);
/* A picture (rows, columns, channels), channels 1, 3 or 4: u8, or f32 in 0..1, which is clamped. It is stored as PNG. Fails
 * also: INVALID for another array. */
STRATA_API STRATA_MUST_USE strata_status strata_events_image(strata_events *events, const char *tag, int64_t step,
                                                             const strata_array *picture, strata_error *err);
/* A text, shown as Markdown. */
STRATA_API STRATA_MUST_USE strata_status strata_events_text(strata_events *events, const char *tag, int64_t step,
                                                            const char *text, strata_error *err);

/* A hyper-parameter of a run: a text where `text` is not NULL, else a number. */
typedef struct strata_hyperparameter {
    const char *name, *text;
    double number;
} strata_hyperparameter;
/* The hyper-parameters of this run, and the tags of the scalars that it is judged by. */
STRATA_API STRATA_MUST_USE strata_status strata_events_hyperparameters(strata_events *events,
                                                                       const strata_hyperparameter *parameters,
                                                                       int n_parameters, const char *const *metric_tags,
                                                                       int n_metric_tags, strata_error *err);

/* A node of a graph that is shown. */
typedef struct strata_event_node {
    /* Unique; "dense/matmul" is shown inside of "dense". */
    const char *name;
    const char *op;
    /* [n_inputs] names of other nodes. */
    const char *const *inputs;
    int n_inputs;
    /* NULL: not said. */
    const char *device;
    /* Of its output. */
    strata_dtype dtype;
    strata_shape shape;
} strata_event_node;
/* The graph of the run; the newest one is shown. */
STRATA_API STRATA_MUST_USE strata_status strata_events_graph(strata_events *events, const strata_event_node *nodes, int n_nodes,
                                                             strata_error *err);

/* A trace (the file of strata_fit_options.trace) for TensorBoard's profiler, which is a package of its own (xprof): what ran
 * when on the host and on each device. It is shown as `run`, by convention the date and time; each process of the trace is a
 * host of it, whose file is FOLDER/plugins/profile/RUN/HOST.xplane.pb.
 * Fails: INVALID for an empty run; DATA, naming the place, for what is no trace or has no slices; UNAVAILABLE for a folder that
 * cannot be made or written. */
STRATA_API STRATA_MUST_USE strata_status strata_events_profile(const char *folder, const char *run, const char *trace,
                                                               strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
