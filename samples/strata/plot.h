/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of strata plot share. */
#ifndef STRATA_SAMPLES_PLOT_H
#define STRATA_SAMPLES_PLOT_H

#include "chart.h"
#include "samples.h"

typedef struct plot_options {
    /* data.path is the value of --confusion. */
    data_options data;
    const char *svg, *show;
    device_flags device;
    int64_t width, height;
    bool steps, weights;
} plot_options;

/* The output of a plot. */
typedef struct plot_target {
    look look;
    /* The height of a chart in rows; 0: it fits the terminal. */
    int rows;
    /* The picture; NULL: the plot is printed on stdout. */
    strata_text *svg;
} plot_target;

/* plot_log.c: curves of training runs. Each returns an exit code, after a message. */
int plot_logs(const plot_options *options, const char *const *paths, int n_paths, const plot_target *target);
/* plot_model.c */
int plot_confusion(const plot_options *options, const char *model_path, const plot_target *target);
int plot_weights(const plot_options *options, const char *model_path, const plot_target *target);

#endif
