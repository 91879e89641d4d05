/* SPDX-License-Identifier: Apache-2.0
 *
 * Event files for TensorBoard: scalars over steps, histograms, pictures, texts, hyper-parameters, graphs and profiles.
 *
 *     strata_events_create("runs/first", &events, &err);
 *     strata_events_scalar(events, "loss", step, loss, &err);             as often as you like
 *     strata_events_histogram(events, "dense/kernel", step, &weights, &err);
 *     strata_events_flush(events, &err);                                  all is written, or an error is returned
 *     strata_events_destroy(events);
 *
 * `tensorboard --logdir runs` then shows them. Each run has its own folder; TensorBoard compares the runs in the folders of one
 * folder.
 *
 * The functions copy their arguments and return; a background thread writes the file. If the file cannot be written, the next
 * call and each later one report the error; what was written before stays readable.
 *
 * Formats: TFRecord (tensorflow/core/lib/io/record_writer.h) containing messages Event (tensorflow/core/util/event.proto), with
 * the summaries of tensorboard/plugins.
 *
 * Threads: any number of threads may use the same events at a time. All functions fail with: UNAVAILABLE or OUT_OF_DISK for a
 * file that cannot be written, OUT_OF_MEMORY, INVALID for an empty tag or one that is not UTF-8. */
#ifndef STRATA_EVENTS_H
#define STRATA_EVENTS_H

#include "strata/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_events strata_events;

/* Creates the folder, with its parent folders, and a new file in it. In the folder of an existing run it creates a further
 * file; TensorBoard shows both as one run. Fails also: UNAVAILABLE for a folder that cannot be created or written. */
STRATA_API STRATA_MUST_USE strata_status strata_events_create(const char *folder, strata_events **out_events,
                                                              strata_error *err);
/* Writes what is not written yet and closes the file. NULL is fine. */
STRATA_API void strata_events_destroy(strata_events *events);
/* Waits until everything that was added before is in the file. */
STRATA_API STRATA_MUST_USE strata_status strata_events_flush(strata_events *events, strata_error *err);

/* Adds a number at a step. A tag such as "train/loss" is shown in the group "train". */
STRATA_API STRATA_MUST_USE strata_status strata_events_scalar(strata_events *events, const char *tag, int64_t step,
                                                              double value, strata_error *err);
/* Adds a histogram of an array of any dtype and shape: 30 intervals of equal width between its smallest and its largest
 * element. Elements that are not finite are left out. */
STRATA_API STRATA_MUST_USE strata_status strata_events_histogram(strata_events *events, const char *tag, int64_t step,
                                                                 const strata_array *values, strata_error *err);
/* Adds a picture (rows, columns, channels) with 1, 3 or 4 channels: u8, or f32, which is clamped to 0..1. It is stored as PNG.
 * Fails also: INVALID for an array of another form. */
STRATA_API STRATA_MUST_USE strata_status strata_events_image(strata_events *events, const char *tag, int64_t step,
                                                             const strata_array *picture, strata_error *err);
/* Adds a text, which is shown as Markdown. */
STRATA_API STRATA_MUST_USE strata_status strata_events_text(strata_events *events, const char *tag, int64_t step,
                                                            const char *text, strata_error *err);

/* A hyper-parameter of a run: a text if `text` is not NULL, else a number. */
typedef struct strata_hyperparameter {
    const char *name, *text;
    double number;
} strata_hyperparameter;
/* Adds the hyper-parameters of this run, and the tags of the scalars by which runs are compared. */
STRATA_API STRATA_MUST_USE strata_status strata_events_hyperparameters(strata_events *events,
                                                                       const strata_hyperparameter *parameters,
                                                                       int n_parameters, const char *const *metric_tags,
                                                                       int n_metric_tags, strata_error *err);

/* A node of a graph. */
typedef struct strata_event_node {
    /* The node's name, unique in the graph; "dense/matmul" is shown inside of "dense". */
    const char *name;
    const char *op;
    /* [n_inputs] names of other nodes. */
    const char *const *inputs;
    int n_inputs;
    /* NULL: no device is shown. */
    const char *device;
    /* The dtype and shape of the node's output. */
    strata_dtype dtype;
    strata_shape shape;
} strata_event_node;
/* Adds the graph of the run. TensorBoard shows the last one that was added. */
STRATA_API STRATA_MUST_USE strata_status strata_events_graph(strata_events *events, const strata_event_node *nodes, int n_nodes,
                                                             strata_error *err);

/* Converts a trace (the file of strata_fit_options.trace) for TensorBoard's profiler, a separate package (xprof), which shows
 * when each operation ran on the host and on each device. `run` is the name under which it is shown, by convention the date and
 * time. Each process of the trace becomes a host, whose file is FOLDER/plugins/profile/RUN/HOST.xplane.pb.
 * Fails: INVALID for an empty run; DATA, with the position, for a file that is not a trace or has no slices; UNAVAILABLE for a
 * folder that cannot be created or written. */
STRATA_API STRATA_MUST_USE strata_status strata_events_profile(const char *folder, const char *run, const char *trace,
                                                               strata_error *err);

#ifdef __cplusplus
}
#endif
#endif
