/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of progress of a training, on stderr if that is a terminal, in its current width. A separate thread draws it ten
 * times a second from the last report of the training. So training does not wait for the terminal, a new width is used at once,
 * and the time is updated while kernels are compiled. */
#ifndef STRATA_SAMPLES_PROGRESS_H
#define STRATA_SAMPLES_PROGRESS_H

#include <strata/strata.h>

typedef struct progress progress;

typedef struct progress_options {
    /* The examples of a step. */
    int64_t batch;
    /* The model predicts classes, so that there is an accuracy. */
    bool classifies;
} progress_options;

/* Returns NULL if stderr is not a terminal or there is no memory or thread. All functions accept NULL and then do nothing. */
progress *progress_begin(const progress_options *opts);
/* Erases the line and ends the thread. */
void progress_end(progress *line);
/* Reports a compilation; as strata_device_options.on_compile. */
void progress_compile(progress *line, const strata_compile_progress *compile);
/* Reports a step, or the end of an epoch. */
void progress_step(progress *line, const strata_progress *p);
/* Adds this text at the end of a step's line, if it fits; the text is copied. */
void progress_note(progress *line, const char *text);
/* Shows this text until something else is reported. The text must be static. */
void progress_say(progress *line, const char *what);
/* Erases the line, so that something can be printed. The next report shows it again. */
void progress_hide(progress *line);

#endif
